"""Records of `__consumer_offsets` and the offsets read from them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ottla.broker.groups.committed_offsets import CommittedOffsets, OffsetAndMetadata, pack_offset, unpack_offset
from ottla.broker.groups.records import MAX_EPOCH, GroupRecord, decode, encode
from ottla.wire.errors import WireError
from ottla.wire.messages import consumer_group_records, offset_records, share_group_records, streams_group_records

TOPIC_ID = b"\x07" * 16
KEY = offset_records.OffsetCommitKey("g", "t", 3)
RAW_KEY = b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x03"


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (offset_records.OffsetCommitValue(5, 2, "meta", 77, -1, TOPIC_ID), 4),
        (offset_records.OffsetCommitValue(5, -1, "meta", 77, 99), 1),
        (offset_records.OffsetCommitValue(5, -1, "meta", 77, 0), 1),
    ],
)
def test_encode_offset_with_expire_timestamp_uses_version_1(
    value: offset_records.OffsetCommitValue, version: int
) -> None:
    key, raw = encode(GroupRecord(KEY, value))
    assert key == RAW_KEY
    assert raw is not None
    assert raw[:2] == version.to_bytes(2, "big"), "GroupCoordinatorRecordHelpers.newOffsetCommitRecord"
    assert decode(key, raw) == (KEY, value)


def test_encode_group_metadata_uses_version_3() -> None:
    key, raw = encode(
        GroupRecord(
            offset_records.GroupMetadataKey("g"), offset_records.GroupMetadataValue("consumer", 4, "range", "m", 5)
        )
    )
    assert key == b"\x00\x02\x00\x01g"
    assert raw is not None
    assert raw[:2] == b"\x00\x03"


def test_encode_and_decode_tombstone_has_no_value() -> None:
    assert encode(GroupRecord(KEY, None)) == (RAW_KEY, None)
    assert decode(RAW_KEY, None) == (KEY, None)


def test_decode_offset_key_version_0_equals_version_1() -> None:
    assert decode(b"\x00\x00" + RAW_KEY[2:], None) == (KEY, None)


@pytest.mark.parametrize("kind", [9, 99, -1])
def test_decode_unknown_record_type_returns_none(kind: int) -> None:
    assert decode(kind.to_bytes(2, "big", signed=True) + b"whatever", b"") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (b"\x00", b""),
        (b"\x00\x01\x00", None),
        (RAW_KEY, b""),
        (RAW_KEY, b"\x00"),
        (RAW_KEY, b"\x00\x05"),
        (RAW_KEY, b"\xff\xff"),
        (RAW_KEY, b"\x00\x04\x00"),
        (b"\x00\x02\x00\x01g", b"\x00\x03\x00"),
    ],
)
def test_decode_invalid_record_raises_wire_error(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(WireError):
        decode(key, value)


@pytest.mark.parametrize("metadata", ["", "meta", "\u00e9\U0001f600"])
def test_pack_offset_roundtrips_in_52_bytes_and_metadata(metadata: str) -> None:
    value = offset_records.OffsetCommitValue(2**62, 7, metadata, 77, -1, TOPIC_ID)
    raw = pack_offset(value, 99)
    assert len(raw) == 52 + len(metadata.encode())
    assert unpack_offset(raw) == OffsetAndMetadata(2**62, 7, 77, -1, 99, TOPIC_ID, metadata)


def test_committed_offsets_replay_by_group_topic_and_partition() -> None:
    offsets = CommittedOffsets()
    for group in ("g", "h"):
        for topic in ("t", "u"):
            for partition in (0, 1):
                value = offset_records.OffsetCommitValue(partition + 5, -1, "", 1)
                offsets.replay(5, offset_records.OffsetCommitKey(group, topic, partition), value)
    assert offsets.groups() == ["g", "h"]
    found = offsets.get("g", "u", 1)
    assert found is not None
    assert found.offset == 6
    assert offsets.get("g", "u", 2) is None
    assert offsets.get("x", "u", 1) is None
    assert (
        dict(offsets.group_offsets("x"))
        == dict(offsets.topic_offsets("x", "t"))
        == dict(offsets.topic_offsets("g", "x"))
        == {}
    )
    names = [name for group in ("g", "h") for name in offsets.group_offsets(group)]
    assert all(name is sys.intern(name) for name in names), "one text for all groups"
    for key in (
        ("g", "t", 7),
        ("g", "x", 0),
        ("x", "t", 0),
        ("g", "t", 0),
        ("g", "t", 1),
        ("g", "u", 0),
        ("g", "u", 1),
    ):
        offsets.replay(6, offset_records.OffsetCommitKey(*key), None)
    assert offsets.groups() == ["h"]
    gone = list(offsets.tombstones("h"))
    assert {
        (r.key.group, r.key.topic, r.key.partition) for r in gone if isinstance(r.key, offset_records.OffsetCommitKey)
    } == {("h", topic, partition) for topic in ("t", "u") for partition in (0, 1)}
    assert all(r.value is None for r in gone)


@pytest.mark.parametrize("epoch", [-2, MAX_EPOCH + 1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize(
    "record",
    [
        (
            offset_records.GroupMetadataKey("g"),
            lambda epoch: offset_records.GroupMetadataValue("", epoch, None, None, 0, []),
        ),
        (
            consumer_group_records.ConsumerGroupMetadataKey("g"),
            lambda epoch: consumer_group_records.ConsumerGroupMetadataValue(epoch, 0),
        ),
        (
            share_group_records.ShareGroupMetadataKey("g"),
            lambda epoch: share_group_records.ShareGroupMetadataValue(epoch, 0),
        ),
        (
            streams_group_records.StreamsGroupMetadataKey("g"),
            lambda epoch: streams_group_records.StreamsGroupMetadataValue(epoch, 0),
        ),
    ],
    ids=["classic", "consumer", "share", "streams"],
)
def test_decode_epoch_above_maximum_raises_wire_error(record: Any, epoch: int) -> None:
    key, value = record
    assert decode(*encode(GroupRecord(key, value(MAX_EPOCH)))) == GroupRecord(key, value(MAX_EPOCH))
    with pytest.raises(WireError):
        decode(*encode(GroupRecord(key, value(epoch))))
