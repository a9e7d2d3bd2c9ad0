"""Compiled codecs: equal to the interpreter, and only `WireError` for malformed bytes."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings, strategies

from ottla.wire.api_keys import ApiKey, request_class, response_class
from ottla.wire.codec import compiler, interpreter
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages.catalogue import all_messages
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import ProduceResponse
from ottla.wire.tests.random_messages import random_message

ALL = [
    (cls, version)
    for cls in all_messages().values()
    for version in range(spec_of(cls).versions.low, spec_of(cls).versions.high + 1)
]


@settings(max_examples=1500, deadline=None)
@given(which=strategies.sampled_from(ALL), seed=strategies.integers(0, 2**32))
def test_compiled_codecs_random_messages_equal_interpreter(which: tuple[type[Message], int], seed: int) -> None:
    cls, version = which
    message = random_message(random.Random(seed), cls, version)
    raw = interpreter.encode(message, version)
    assert compiler.encode(message, version) == raw
    assert compiler.decode_exact(cls, version, raw) == message
    assert interpreter.decode(cls, version, raw) == (message, len(raw))


def outcome(decode: object, cls: type[Message], version: int, raw: bytes) -> object:
    try:
        return decode(cls, version, raw)  # type: ignore[operator]
    except WireError:
        return "refused"


def mutated(rng: random.Random, raw: bytes) -> bytes:
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 5))):
        kind = rng.randrange(4)
        at = rng.randrange(len(data) + 1)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = rng.choice(
                (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff" * 10, b"\x80", rng.randbytes(3))
            )
        elif data:
            data[at % len(data)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
    return bytes(data)


def test_decode_75000_mutated_messages_raises_only_wire_error_in_both_codecs() -> None:
    rng = random.Random(11)
    refused = 0
    for turn in range(75_000):
        cls, version = ALL[turn % len(ALL)] if turn % 5 else rng.choice(ALL)
        raw = mutated(rng, compiler.encode(random_message(rng, cls, version), version))
        compiled = outcome(compiler.decode, cls, version, raw)
        refused += compiled == "refused"
        if turn % 10 == 0:
            oracle = outcome(interpreter.decode, cls, version, raw)
            # NaN differs from itself; the printed forms are compared instead.
            assert compiled == oracle or str(compiled) == str(oracle), (cls, version, raw.hex())
    assert refused > 5_000


HUGE = b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    ("key", "version", "raw"),
    [
        (ApiKey.METADATA, 12, HUGE),
        (ApiKey.METADATA, 1, b"\x7f\xff\xff\xff"),
        (ApiKey.FETCH, 12, bytes(25) + HUGE),
        (ApiKey.PRODUCE, 9, bytes(7) + HUGE),
        (ApiKey.OFFSET_COMMIT, 8, b"\x02g" + bytes(4) + b"\x02m\x00" + HUGE),
        (ApiKey.LIST_GROUPS, 4, HUGE),
    ],
)
def test_decode_count_of_four_billion_allocates_less_than_100_kb(key: ApiKey, version: int, raw: bytes) -> None:
    compiler.decoder(request_class(key), version)
    tracemalloc.start()
    with pytest.raises(WireError):
        compiler.decode(request_class(key), version, raw + bytes(1000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_encode_field_outside_version_raises_wire_error_unless_ignorable() -> None:
    with pytest.raises(WireError, match="does not exist in version 3"):
        compiler.encode(MetadataRequest([], allow_auto_topic_creation=False), 3)
    with pytest.raises(WireError, match="does not exist in version 3"):
        interpreter.encode(MetadataRequest([], allow_auto_topic_creation=False), 3)
    assert compiler.encode(ProduceResponse(throttle_time_ms=5), 3)
    assert compiler.encode(FetchRequest(session_id=5), 4)


def test_encode_unknown_version_raises_wire_error() -> None:
    for version in (-1, 3, 19, 32767):
        with pytest.raises(WireError, match="no version"):
            compiler.encode(FetchResponse(), version)


def test_encode_null_in_non_nullable_field_raises_wire_error() -> None:
    message = MetadataRequest(None)
    with pytest.raises(WireError):
        compiler.encode(message, 0)
    assert compiler.encode(message, 1) == b"\xff\xff\xff\xff"


def test_decode_unknown_tags_are_skipped() -> None:
    raw = compiler.encode(response_class(ApiKey.HEARTBEAT)(), 4)
    with_tag = raw[:-1] + b"\x01\x63\x03abc"
    assert compiler.decode_exact(response_class(ApiKey.HEARTBEAT), 4, with_tag) == response_class(ApiKey.HEARTBEAT)()


def test_encode_record_data_is_not_copied() -> None:
    response = FetchResponse()
    data = memoryview(b"x" * 1000)

    response.responses = [FetchableTopicResponse("t", partitions=[PartitionData(records=data)])]
    assert any(chunk is data for chunk in compiler.encode_chunks(response, 12))


def test_generated_source_shows_compiled_codec() -> None:
    text = compiler.generated_source(FetchRequest, 12, "decode")
    assert "def decode_FetchRequest_v12(buf, pos, end):" in text
    assert "S_iiiibii.unpack_from(buf, pos)" in text
    assert "write(" in compiler.generated_source(FetchRequest, 12, "encode")
