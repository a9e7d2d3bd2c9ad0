"""Fake brokers with a table of responses, and a runner for coroutines that never wait."""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from ottla.client.cluster_client import ClusterClient
from ottla.wire.api_keys import ApiKey, request_class, request_spec
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.framing import RequestFrame, encode_response, parse_request
from ottla.wire.messages import metadata
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

FakeHandler = Callable[[Any, int], Message | bytes | None]
"""(request, version) -> response message, raw bytes, or None for no response."""


def run_coroutine(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited")


class FakeBrokerStream:
    """Connection to a fake broker; returns at most `piece_bytes` at once."""

    peer, local = "there", ("here", 1)

    def __init__(self, handlers: dict[ApiKey, FakeHandler], piece_bytes: int = 1 << 30) -> None:
        self.handlers, self.piece_bytes = handlers, piece_bytes
        self.ready = b""
        self.requests: list[RequestFrame] = []
        self.largest_buffer_bytes = 0
        self.closed = False

    async def send(self, chunks: Sequence[Any]) -> None:
        raw = b"".join(chunks)
        assert struct.unpack(">i", raw[:4]) == (len(raw) - 4,)
        request = parse_request(memoryview(raw)[4:])
        self.requests.append(request)
        body = compiler.decode(request_class(request.key), request.version, request.frame, request.body_position)[0]
        answer = self.handlers[request.key](body, request.version)
        if isinstance(answer, Message):
            answer = b"".join(encode_response(request.key, request.version, request.correlation_id, answer))
        self.ready += answer or b""

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        self.largest_buffer_bytes = max(self.largest_buffer_bytes, len(buffer))
        count = min(len(buffer), len(self.ready), self.piece_bytes)
        buffer[:count] = self.ready[:count]
        self.ready = self.ready[count:]
        return count

    def close(self) -> None:
        self.closed = True


def api_versions_handler(**highest: int) -> FakeHandler:
    """Return a handler of ApiVersions: all known APIs, with the given highest versions."""

    def answer(_request: Any, _version: int) -> Message:
        rows = []
        for key in ApiKey:
            spec = request_spec(key).versions
            rows.append(ApiVersion(key, spec.low, highest.get(key.name.lower(), spec.high)))
        return ApiVersionsResponse(0, rows)

    return answer


class FakeCluster:
    """Cluster of two brokers: topic "t" has partitions 0 and 1, led by brokers 0 and 1."""

    def __init__(self, **handlers: FakeHandler) -> None:
        self.handlers = {ApiKey[name.upper()]: handler for name, handler in handlers.items()}
        self.handlers.setdefault(ApiKey.API_VERSIONS, api_versions_handler())
        self.handlers.setdefault(ApiKey.METADATA, self.metadata)
        self.leaders = {0: 0, 1: 1}
        self.error = 0
        self.down: set[tuple[str, int]] = set()
        self.refusals: dict[tuple[str, int], OSError] = {}
        self.streams: list[tuple[str, int, FakeBrokerStream]] = []
        self.slept: list[float] = []

    def metadata(self, request: Any, _version: int) -> Message:
        brokers = [metadata.MetadataResponseBroker(n, f"b{n}", 9000 + n) for n in (0, 1)]
        rows = [metadata.MetadataResponsePartition(0, p, leader) for p, leader in self.leaders.items()]
        names = [row.name for row in request.topics or []]
        topics = [metadata.MetadataResponseTopic(self.error, name, partitions=rows) for name in names]
        return metadata.MetadataResponse(brokers=brokers, topics=topics)

    async def connect(self, host: str, port: int) -> FakeBrokerStream:
        if (host, port) in self.down:
            raise OSError(f"{host}:{port} refused")
        if (host, port) in self.refusals:
            raise self.refusals[host, port]
        wire = FakeBrokerStream(self.handlers)
        self.streams.append((host, port, wire))
        return wire

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def client(self, bootstrap: str = "b0:9000") -> ClusterClient:
        env: Any = SimpleNamespace(
            net=self, sleep=self.sleep, monotonic_ms=lambda: 1000 * sum(self.slept), timeout=lambda _: nullcontext()
        )
        return ClusterClient(env, bootstrap, "me", 3.0)

    def connected_addresses(self) -> list[tuple[str, int]]:
        return [(host, port) for host, port, _ in self.streams]
