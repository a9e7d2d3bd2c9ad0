"""Encoding and decoding of `__consumer_offsets` records: int16 type and key; int16 version and value, or null.

Source: ``GroupCoordinatorRecordHelpers.java``, ``CoordinatorRecordSerde.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple

from ottla.jobs.job import Job
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages import offset_records

_TYPE = struct.Struct(">h")
OFFSET_VALUE_VERSION = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
MAX_EPOCH = 2**31 - 1 - 2**16
"""Largest accepted group epoch or generation: a record with the largest int32 would leave no next epoch."""
_GROUP_EPOCH_RECORD_TYPES = frozenset({3, 11, 17})
"""Record types whose value has the group epoch: consumer, share and streams group metadata."""

_KEYS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (offset_records.LegacyOffsetCommitKey, offset_records.LegacyOffsetCommitValue),
    1: (offset_records.OffsetCommitKey, offset_records.OffsetCommitValue),
    2: (offset_records.GroupMetadataKey, offset_records.GroupMetadataValue),
}


class GroupRecord(NamedTuple):
    """Key and value of a record of `__consumer_offsets`; a value of None is a tombstone."""

    key: Message
    value: Message | None


@cache
def modern_record_types() -> dict[int, tuple[type[Message], type[Message]]]:
    """Return record type -> key and value classes of consumer, share and streams groups; imported at the first call."""
    # lazy: 2.5 ms, 155 kB
    from ottla.wire.messages import consumer_group_records as consumer
    from ottla.wire.messages import share_group_records as share
    from ottla.wire.messages import streams_group_records as streams

    return {
        3: (consumer.ConsumerGroupMetadataKey, consumer.ConsumerGroupMetadataValue),
        4: (consumer.ConsumerGroupPartitionMetadataKey, consumer.ConsumerGroupPartitionMetadataValue),
        5: (consumer.ConsumerGroupMemberMetadataKey, consumer.ConsumerGroupMemberMetadataValue),
        6: (consumer.ConsumerGroupTargetAssignmentMetadataKey, consumer.ConsumerGroupTargetAssignmentMetadataValue),
        7: (consumer.ConsumerGroupTargetAssignmentMemberKey, consumer.ConsumerGroupTargetAssignmentMemberValue),
        8: (consumer.ConsumerGroupCurrentMemberAssignmentKey, consumer.ConsumerGroupCurrentMemberAssignmentValue),
        10: (share.ShareGroupMemberMetadataKey, share.ShareGroupMemberMetadataValue),
        11: (share.ShareGroupMetadataKey, share.ShareGroupMetadataValue),
        12: (share.ShareGroupTargetAssignmentMetadataKey, share.ShareGroupTargetAssignmentMetadataValue),
        13: (share.ShareGroupTargetAssignmentMemberKey, share.ShareGroupTargetAssignmentMemberValue),
        14: (share.ShareGroupCurrentMemberAssignmentKey, share.ShareGroupCurrentMemberAssignmentValue),
        15: (share.ShareGroupStatePartitionMetadataKey, share.ShareGroupStatePartitionMetadataValue),
        16: (consumer.ConsumerGroupRegularExpressionKey, consumer.ConsumerGroupRegularExpressionValue),
        17: (streams.StreamsGroupMetadataKey, streams.StreamsGroupMetadataValue),
        19: (streams.StreamsGroupMemberMetadataKey, streams.StreamsGroupMemberMetadataValue),
        20: (streams.StreamsGroupTargetAssignmentMetadataKey, streams.StreamsGroupTargetAssignmentMetadataValue),
        21: (streams.StreamsGroupTargetAssignmentMemberKey, streams.StreamsGroupTargetAssignmentMemberValue),
        22: (streams.StreamsGroupCurrentMemberAssignmentKey, streams.StreamsGroupCurrentMemberAssignmentValue),
        23: (streams.StreamsGroupTopologyKey, streams.StreamsGroupTopologyValue),
    }


@cache
def _numbers() -> dict[type[Message], int]:
    return {classes[0]: number for number, classes in modern_record_types().items()}


def _type_and_version(record: GroupRecord) -> tuple[int, int]:
    """Return the type of a record's key and the version of its value."""
    cls = type(record.key)
    if cls is offset_records.GroupMetadataKey:
        return 2, GROUP_VALUE_VERSION
    if cls is not offset_records.OffsetCommitKey:
        return _numbers()[cls], 0
    expires = isinstance(record.value, offset_records.OffsetCommitValue) and record.value.expire_timestamp != -1
    return 1, OFFSET_VALUE_VERSION_WITH_EXPIRY if expires else OFFSET_VALUE_VERSION


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return key and value of a record as bytes; None as the value of a tombstone.

    Raises:
        WireError: a field does not fit its schema, such as a string that is too long.
    """
    kind, version = _type_and_version(record)
    key = _TYPE.pack(kind) + compiler.encode(record.key, 0)
    return key, None if record.value is None else _TYPE.pack(version) + compiler.encode(record.value, version)


def encode_job(record: GroupRecord) -> Job[tuple[bytes, bytes | None]]:
    """Return key and value of a record as bytes, as `encode`, as a job that yields within a value of many elements."""
    if record.value is None:
        return encode(record)
    kind, version = _type_and_version(record)
    chunks = yield from compiler.encode_job(record.value, version)
    return _TYPE.pack(kind) + compiler.encode(record.key, 0), b"".join([_TYPE.pack(version), *chunks])


def record_classes(kind: int) -> tuple[type[Message], type[Message]] | None:
    """Return the key and value classes of a record type; None for an unknown one."""
    return _KEYS.get(kind) or modern_record_types().get(kind)


def form(key: bytes, value: bytes) -> tuple[type[Message], int] | None:
    """Return message class and version of an encoded value; None if key or value is too short, or the type unknown."""
    if min(len(key), len(value)) < _TYPE.size:
        return None
    (kind,), (version,) = _TYPE.unpack_from(key), _TYPE.unpack_from(value)
    if kind == 0:
        return offset_records.OffsetCommitValue, version
    classes = record_classes(kind)
    return None if classes is None else (classes[1], version)


def decode(key: bytes | None, value: bytes | None, parsed: Any = None) -> GroupRecord | None:
    """Return the record of encoded key and value; None for an unknown record type, which replay skips.

    ``parsed``: the value, if it is decoded already.

    Raises:
        WireError: the key has no type, or a record of a known type is malformed.
    """
    if key is None or len(key) < 2:
        raise WireError("a group record without a key")
    (kind,) = _TYPE.unpack_from(key)
    classes = _KEYS.get(kind)
    if classes is None:
        classes = modern_record_types().get(kind)
        if classes is None:
            return None
        new_key = compiler.decode(classes[0], 0, key, 2)[0]
        if value is None:
            return GroupRecord(new_key, None)
        if len(value) < 2:
            raise WireError("a group record's value without a version")
        new_value: Any = parsed or compiler.decode(classes[1], _TYPE.unpack_from(value)[0], value, 2)[0]
        if kind in _GROUP_EPOCH_RECORD_TYPES:
            _check_epoch(new_value.epoch)
        return GroupRecord(new_key, new_value)
    decoded = compiler.decode(classes[0], 0, key, 2)[0]
    if isinstance(decoded, offset_records.LegacyOffsetCommitKey):
        decoded = offset_records.OffsetCommitKey(decoded.group, decoded.topic, decoded.partition)
    if value is None:
        return GroupRecord(decoded, None)
    if len(value) < 2:
        raise WireError("a group record's value without a version")
    (version,) = _TYPE.unpack_from(value)
    if isinstance(decoded, offset_records.OffsetCommitKey):
        return GroupRecord(decoded, parsed or compiler.decode(offset_records.OffsetCommitValue, version, value, 2)[0])
    group = parsed or compiler.decode(offset_records.GroupMetadataValue, version, value, 2)[0]
    _check_epoch(group.generation)
    return GroupRecord(decoded, group)


def _check_epoch(epoch: int) -> None:
    """Check that a group epoch or generation is at least -1 and at most `MAX_EPOCH`.

    Raises:
        WireError: the epoch is outside this range.
    """
    if not -1 <= epoch <= MAX_EPOCH:
        raise WireError(f"invalid group epoch: {epoch} (at most {MAX_EPOCH})")
