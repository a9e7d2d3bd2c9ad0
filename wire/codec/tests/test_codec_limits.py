"""Limits of the codecs, equal in the compiled codec and in the interpreter.

Sources: KIP-482 (flexible versions: compact lengths and tagged fields); the reading and writing code that Kafka's
``MessageDataGenerator.java`` generates (4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.wire.api_keys import ApiKey, request_class, request_header_version, request_spec, response_class
from ottla.wire.codec import compiler, interpreter
from ottla.wire.codec.decode_budget import DecodeBudget
from ottla.wire.codec.interpreter import min_encoded_size, spec_of
from ottla.wire.codec.primitives import write_string_length, write_uvarint
from ottla.wire.codec.schema import Message, MessageSpec, data, fields_of, request, response
from ottla.wire.errors import WireError
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest
from ottla.wire.messages.catalogue import all_messages
from ottla.wire.messages.consumer_group_records import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from ottla.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
)
from ottla.wire.messages.fetch import FetchRequest, ReplicaState
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


def decode_by_job(cls: type[Message], version: int, raw: bytes) -> tuple[Any, int]:
    steps = compiler.decode_job(cls, version, raw, 0, DecodeBudget(len(raw)))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def encode_by_job(message: Message, version: int) -> bytes:
    steps = compiler.encode_job(message, version)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return b"".join(end.value)


Decode = Callable[[type[Message], int, bytes], tuple[Any, int]]
Encode = Callable[[Message, int], bytes]
each_decoder = pytest.mark.parametrize("decode", [compiler.decode, decode_by_job, interpreter.decode])
each_encoder = pytest.mark.parametrize("encode", [compiler.encode, encode_by_job, interpreter.encode])


# ---------------------------------------------------------------- strings and bytes


@each_decoder
@each_encoder
@pytest.mark.parametrize("version", [3, 4])
def test_codecs_string_longer_than_32767_bytes_raise_wire_error(decode: Decode, encode: Encode, version: int) -> None:
    message = HeartbeatRequest("x" * 32_767, 1, "m")
    raw = encode(message, version)
    assert decode(HeartbeatRequest, version, raw) == (message, len(raw))
    with pytest.raises(WireError):
        encode(HeartbeatRequest("x" * 32_768, 1, "m"), version)
    wide = HeartbeatRequest("\u00e9" * 16_384, 1, "m")  # fewer characters, 32,768 bytes
    with pytest.raises(WireError):
        encode(wide, version)


@each_decoder
def test_decode_compact_string_longer_than_32767_bytes_raises_wire_error(decode: Decode) -> None:
    longer = write_uvarint(32_769) + b"x" * 32_768 + b"\0\0\0\1" + b"\2m" + b"\0" + b"\0"
    with pytest.raises(WireError, match="32768"):
        decode(HeartbeatRequest, 4, longer)
    longest = write_uvarint(32_768) + b"x" * 32_767 + b"\0\0\0\1" + b"\2m" + b"\0" + b"\0"
    assert len(decode(HeartbeatRequest, 4, longest)[0].group_id) == 32_767


@each_decoder
@each_encoder
@pytest.mark.parametrize("version", [3, 5])
def test_codecs_bytes_longer_than_32767_are_accepted(decode: Decode, encode: Encode, version: int) -> None:
    message = SyncGroupRequest("g", 1, "m", None, None, None, [SyncGroupRequestAssignment("m", bytes(100_000))])
    raw = encode(message, version)
    assert decode(SyncGroupRequest, version, raw) == (message, len(raw))


def test_write_string_length_is_length_plus_one() -> None:
    assert write_string_length(32_768) == write_uvarint(32_768)
    with pytest.raises(WireError, match="a string of 32768 bytes"):
        write_string_length(32_769)


@each_decoder
def test_decode_negative_length_is_null_only_where_nullable(decode: Decode) -> None:
    head = b"\0\1g\0\0\0\1\0\1m"
    for length in (b"\xff\xff", b"\xff\xfe", b"\x80\x00"):
        assert decode(HeartbeatRequest, 3, head + length)[0].group_instance_id is None
        with pytest.raises(WireError):
            decode(HeartbeatRequest, 2, length)
    assert decode(HeartbeatRequest, 4, b"\2g\0\0\0\1\2m\0\0")[0].group_instance_id is None
    with pytest.raises(WireError):
        decode(HeartbeatRequest, 4, b"\0\0\0\0\1\2m\0\0")
    assert decode(MetadataRequest, 8, b"\xff\xff\xff\xfe\0\0\0")[0].topics is None
    with pytest.raises(WireError):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")


@each_decoder
def test_decode_invalid_utf_8_is_replaced_as_in_java(decode: Decode) -> None:
    assert decode(HeartbeatRequest, 0, b"\0\3a\xffb\0\0\0\1\0\0")[0].group_id == "a\ufffdb"


# ---------------------------------------------------------------- tagged fields


def tags(*pairs: tuple[int, bytes]) -> bytes:
    return write_uvarint(len(pairs)) + b"".join(write_uvarint(t) + write_uvarint(len(x)) + x for t, x in pairs)


PLAIN = compiler.encode(HeartbeatRequest("g", 1, "m"), 4)[:-1]
FETCH = compiler.encode(FetchRequest(), 15)[:-1]


@each_decoder
@pytest.mark.parametrize(("many", "taken"), [(0, True), (1, True), (63, True), (64, True), (65, False), (300, False)])
def test_decode_up_to_64_unknown_tags_are_skipped(decode: Decode, many: int, *, taken: bool) -> None:
    raw = PLAIN + tags(*((n + 7, b"x" * (n % 3)) for n in range(many)))
    if taken:
        assert decode(HeartbeatRequest, 4, raw) == (HeartbeatRequest("g", 1, "m"), len(raw))
    else:
        with pytest.raises(WireError, match="tag"):
            decode(HeartbeatRequest, 4, raw)


@each_decoder
def test_decode_known_tags_do_not_count_towards_the_limit(decode: Decode) -> None:
    known = [(0, b"\2c"), (1, b"\0\0\0\5" + b"\0" * 7 + b"\6" + b"\0")]
    unknown = [(n + 10, b"") for n in range(64)]
    got, end = decode(FetchRequest, 15, FETCH + tags(*known, *unknown))
    assert (got.cluster_id, got.replica_state) == ("c", ReplicaState(5, 6))
    assert end == len(FETCH + tags(*known, *unknown))
    with pytest.raises(WireError, match="tag"):
        decode(FetchRequest, 15, FETCH + tags(*known, *unknown, (99, b"")))


@each_decoder
@pytest.mark.parametrize(
    "raw",
    [
        tags((0, b"\2c?")),
        tags((0, b"\2")),
        b"\1\0\1\2c",
        b"\1\x07\5four",
        b"\1",
        b"\1\x07",
        b"\2" + tags((9, b"x"))[1:],
    ],
    ids=[
        "longer than its field",
        "cut off",
        "shorter than its field",
        "beyond the end",
        "no tag",
        "no size",
        "only one",
    ],
)
def test_decode_tag_with_wrong_size_raises_wire_error(decode: Decode, raw: bytes) -> None:
    with pytest.raises(WireError):
        decode(FetchRequest, 15, FETCH + raw)


@each_encoder
def test_encode_tagged_fields_are_sorted_and_defaults_omitted(encode: Encode) -> None:
    assert encode(FetchRequest(), 15) == FETCH + b"\0"
    both = FetchRequest(cluster_id="c", replica_state=ReplicaState(5, 6))
    assert encode(both, 15) == FETCH + tags((0, b"\2c"), (1, b"\0\0\0\5" + b"\0" * 7 + b"\6" + b"\0"))
    assert encode(FetchRequest(replica_state=ReplicaState(-1, -1)), 15) == FETCH + b"\0"


CURSOR = b"\2t\0\0\0\7\0"


@each_decoder
@pytest.mark.parametrize(
    ("mark", "there"),
    [(b"\x80", False), (b"\xfe", False), (b"\xff", False), (b"\0", True), (b"\1", True), (b"\x7f", True)],
)
def test_decode_nullable_struct_is_null_for_negative_marker(decode: Decode, mark: bytes, *, there: bool) -> None:
    got, _ = decode(DescribeTopicPartitionsRequest, 0, b"\1\0\0\0\1" + mark + CURSOR * there + b"\0")
    assert got.cursor == (DescribeTopicPartitionsRequestCursor("t", 7) if there else None)


@each_decoder
@pytest.mark.parametrize(
    ("mark", "there"), [(b"\0", False), (b"\x80\0", False), (b"\1", True), (b"\x81\1", True), (b"\x80\1", True)]
)
def test_decode_tagged_nullable_struct_is_null_for_marker_0(decode: Decode, mark: bytes, *, there: bool) -> None:
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=ClassicMemberMetadata(9))
    raw = compiler.encode(value, 0)
    body = b"\0\0\0\x09\1\0"
    assert raw.endswith(b"\1\0\7\1" + body)
    marked = raw[: -len(body) - 3] + b"\0" + bytes([len(mark) + len(body) * there]) + mark + body * there
    got, _ = decode(ConsumerGroupMemberMetadataValue, 0, marked)
    assert got.classic_member_metadata == (ClassicMemberMetadata(9) if there else None)


# ---------------------------------------------------------------- counts


@each_decoder
def test_decode_count_larger_than_remaining_bytes_raises_wire_error(decode: Decode) -> None:
    assert decode(MetadataRequest, 0, b"\0\0\0\2" + b"\0\0" * 2)[0].topics == [MetadataRequestTopic(name="")] * 2
    for raw in (b"\0\0\0\3" + b"\0\0" * 2, b"\x7f\xff\xff\xff" + b"\0\0" * 2):
        with pytest.raises(WireError, match=r"topics|elements"):
            decode(MetadataRequest, 0, raw)


def smallest(cls: type[Message], version: int, *, flexible: bool) -> Message:
    """Return the instance of a class with the shortest encoding."""
    values: dict[str, Any] = {}
    for spec in fields_of(cls):
        tagged = flexible and version in spec.tagged
        if version not in spec.versions or tagged:
            values[spec.name] = spec.default_value()
        elif spec.is_array:
            values[spec.name] = []
        elif spec.kind == "struct":
            assert spec.struct is not None
            none = version in spec.nullable
            values[spec.name] = None if none else smallest(spec.struct, version, flexible=flexible)
        else:
            values[spec.name] = {"uuid": bytes(16), "string": "", "bytes": b"", "records": b""}.get(spec.kind, 0)
    return cls(**values)


@pytest.mark.parametrize("cls", all_messages().values(), ids=lambda cls: cls.__name__)
def test_min_encoded_size_of_struct_equals_smallest_encoding(cls: type[Message]) -> None:
    spec = spec_of(cls)
    for version in range(spec.versions.low, spec.versions.high + 1):
        flexible = version in spec.flexible
        raw = compiler.encode(smallest(cls, version, flexible=flexible), version)
        assert min_encoded_size("struct", cls, version, flexible=flexible) == max(len(raw), 1)


@pytest.mark.parametrize(
    ("kind", "old", "flexible"),
    [("string", 2, 1), ("bytes", 4, 1), ("records", 4, 1), ("uuid", 16, 16), ("bool", 1, 1), ("int64", 8, 8)],
)
def test_min_encoded_size_of_value_depends_on_flexible_version(kind: str, old: int, flexible: int) -> None:
    assert min_encoded_size(kind, None, 0, flexible=False) == old
    assert min_encoded_size(kind, None, 0, flexible=True) == flexible


# ---------------------------------------------------------------- null, and invalid values


@each_encoder
@pytest.mark.parametrize(
    ("message", "version"),
    [
        (HeartbeatRequest(None, 1, "m"), 0),  # type: ignore[arg-type]
        (HeartbeatRequest(None, 1, "m"), 4),  # type: ignore[arg-type]
        (HeartbeatRequest("g", None, "m"), 4),  # type: ignore[arg-type]
        (HeartbeatRequest("g", 2**31, "m"), 4),
        (HeartbeatRequest(7, 1, "m"), 4),  # type: ignore[arg-type]
        (HeartbeatRequest("\ud800", 1, "m"), 4),
        (MetadataRequest([None]), 4),  # type: ignore[list-item]
        (MetadataRequest([MetadataRequestTopic(b"short", "t")]), 12),
        (BrokerRegistrationRequest(log_dirs=[bytes(16), bytes(15)]), 2),
        (JoinGroupRequest("g", 1, 1, "m", None, "c", None), 5),  # type: ignore[arg-type]
    ],
)
def test_encode_invalid_value_raises_wire_error(encode: Encode, message: Message, version: int) -> None:
    with pytest.raises(WireError):
        encode(message, version)


@each_encoder
def test_encode_unknown_version_raises_wire_error(encode: Encode) -> None:
    for version in (-1, 5):
        with pytest.raises(WireError, match=f"HeartbeatRequest has no version {version}, only 0-4"):
            encode(HeartbeatRequest("g", 1, "m"), version)


def test_decode_exact_trailing_bytes_raise_wire_error() -> None:
    with pytest.raises(WireError, match="HeartbeatRequest v4: 2 bytes left over"):
        compiler.decode_exact(HeartbeatRequest, 4, PLAIN + b"\0??")
    with pytest.raises(WireError, match="HeartbeatRequest v4"):
        compiler.decode_exact(HeartbeatRequest, 4, PLAIN)


# ---------------------------------------------------------------- the interpreter's trace


def test_interpreter_trace_reports_each_value_with_its_position() -> None:
    traced: list[tuple[str, int, int, Any]] = []
    topics = [MetadataRequestTopic(bytes(16), "t"), MetadataRequestTopic(bytes(16), None)]
    message = MetadataRequest(topics, False, include_topic_authorized_operations=True)
    raw = compiler.encode(message, 12)
    interpreter.decode(MetadataRequest, 12, b"??" + raw, 2, lambda *value: traced.append(value))
    assert traced == [
        ("topics.count", 2, 3, 2),
        ("topics[0].topic_id", 3, 19, bytes(16)),
        ("topics[0].name", 19, 21, "t"),
        ("topics[0].tags", 21, 22, 0),
        ("topics[1].topic_id", 22, 38, bytes(16)),
        ("topics[1].name", 38, 39, None),
        ("topics[1].tags", 39, 40, 0),
        ("allow_auto_topic_creation", 40, 41, False),
        ("include_topic_authorized_operations", 41, 42, True),
        ("tags", 42, 43, 0),
    ]
    traced.clear()
    keys = compiler.encode(FindCoordinatorRequest("", 1, ["a", "bc"]), 4)
    interpreter.decode(FindCoordinatorRequest, 4, keys, 0, lambda *value: traced.append(value))
    assert traced[1:4] == [
        ("coordinator_keys.count", 1, 2, 2),
        ("coordinator_keys[0]", 2, 4, "a"),
        ("coordinator_keys[1]", 4, 7, "bc"),
    ]
    traced.clear()
    interpreter.decode(MetadataRequest, 12, b"\0\0\0\0", 0, lambda *value: traced.append(value))
    assert traced[0] == ("topics", 0, 1, None)


# ---------------------------------------------------------------- keys, versions, headers


def test_api_keys_equal_keys_of_their_messages() -> None:
    for key in ApiKey:
        assert (spec_of(request_class(key)).key, spec_of(response_class(key)).key) == (key, key)
        assert (spec_of(request_class(key)).type, spec_of(response_class(key)).type) == ("request", "response")
        assert spec_of(request_class(key)).versions == spec_of(response_class(key)).versions
    assert [int(key) for key in ApiKey] == [n for n in range(93) if not 4 <= n <= 7]


def test_request_header_version_is_2_from_first_flexible_version() -> None:
    for key in ApiKey:
        versions, flexible = request_spec(key).versions, request_spec(key).flexible
        for version in range(versions.low, versions.high + 1):
            assert request_header_version(key, version) == (2 if version in flexible else 1)


def test_message_spec_holds_key_versions_and_listeners() -> None:
    assert request(7, "1-3", "2+", "broker controller", latest_unstable=True) == MessageSpec(
        "request", 7, (1, 3), (2, 32767), ("broker", "controller"), True
    )
    assert request(7, "0", "none", "broker") == MessageSpec("request", 7, (0, 0), (1, 0), ("broker",), False)
    assert response(7, "1-3", "2+") == MessageSpec("response", 7, (1, 3), (2, 32767), (), False)
    assert data("data", "0-1", "1+") == MessageSpec("data", -1, (0, 1), (1, 32767), (), False)
    assert data("metadata", "0", "0+", 12).key == 12
