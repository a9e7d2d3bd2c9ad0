"""Frames with random values as the console saves them: one request and one response of each version of each API."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.console.frame_fields import request_fields, response_fields, visible_request, visible_response
from ottla.console.pcap import PcapFrame, write_pcap
from ottla.wire.api_keys import ApiKey, request_class, response_class
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.schema import Message, fields_of
from ottla.wire.framing import encode_request, encode_response
from ottla.wire.record_batch.records import NewRecord, build_batch
from ottla.wire.tests.random_messages import random_message

PORT = 9092
TIME_MS = 1_767_225_600_123.5


class FramePair(NamedTuple):
    """Request and response: API, version, correlation id, and both frames with their sizes."""

    key: ApiKey
    version: int
    correlation_id: int
    request: bytes
    response: bytes


BATCH = build_batch([NewRecord(b"key", b"secret", 1_767_225_600_000, (("header", b"secret"),))] * 2)


def set_records(message: Any) -> None:
    """Replace record data, which is random, by a batch."""
    for spec in fields_of(type(message)):
        value = getattr(message, spec.name)
        if spec.kind == "records":
            setattr(message, spec.name, bytes(BATCH))
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                set_records(each)


def finish(job: Any) -> Any:
    """Run a job to its end."""
    while True:
        try:
            next(job)
        except StopIteration as done:
            return done.value


def frame_pairs(seed: int) -> list[FramePair]:
    """Return a request and a response with random values for each version of each API, as the console saves them."""
    rng = random.Random(seed)
    out: list[FramePair] = []
    for key, spec in BROKER_APIS.items():
        for version in range(spec.min_version, spec.max_version + 1):
            if version not in spec_of(response_class(key)).versions:
                continue
            number = len(out) + 1
            request: Any = random_message(rng, request_class(key), version)
            if key is ApiKey.PRODUCE:
                request.acks = -1
            response: Any = random_message(rng, response_class(key), version)
            for message in (request, response):
                set_records(message)
            answer = b"".join(bytes(chunk) for chunk in encode_response(key, version, number, response))
            query = bytes(encode_request(key, version, number, "client", request))
            query = visible_request(key, query, finish(request_fields(key, version, query)))
            answer = visible_response(key, answer, finish(response_fields(key, version, answer)))
            assert b"secret" not in query + answer
            out.append(FramePair(key, version, number, query, answer))
    return out


def pcap_of(sent: Iterable[FramePair]) -> bytes:
    """Return a pcap file with both frames of each pair, on a connection of its own."""
    frames = [
        PcapFrame(each.correlation_id, "10.0.0.7", ("10.0.0.1", PORT), is_request, TIME_MS, bytes(data))
        for each in sent
        for is_request, data in ((True, each.request), (False, each.response))
    ]
    return b"".join(write_pcap(frames))
