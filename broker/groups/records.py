"""Records of `__consumer_offsets`: int16 type and key; int16 version and value; no value is a tombstone.

Source: ``GroupCoordinatorRecordHelpers.java``, ``CoordinatorRecordSerde.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.wire import compiler
from ottla.wire.errors import WireError
from ottla.wire.messages import offset_records as o
from ottla.wire.schema import Message

_TYPE = struct.Struct(">h")
OFFSET_VALUE_VERSION = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3

_KEYS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (o.LegacyOffsetCommitKey, o.LegacyOffsetCommitValue),
    1: (o.OffsetCommitKey, o.OffsetCommitValue),
    2: (o.GroupMetadataKey, o.GroupMetadataValue),
}


class GroupRecord(NamedTuple):
    """A key and its value; None is a tombstone."""

    key: Message
    value: Message | None


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value bytes."""
    kind = 2 if isinstance(record.key, o.GroupMetadataKey) else 1
    key = _TYPE.pack(kind) + compiler.encode(record.key, 0)
    if record.value is None:
        return key, None
    version = GROUP_VALUE_VERSION
    if isinstance(record.value, o.OffsetCommitValue):
        expires = record.value.expire_timestamp != -1
        version = OFFSET_VALUE_VERSION_WITH_EXPIRY if expires else OFFSET_VALUE_VERSION
    return key, _TYPE.pack(version) + compiler.encode(record.value, version)


def decode(key: bytes | None, value: bytes | None) -> GroupRecord | None:
    """Read a record; None for a type that is not ours, which must be skipped.

    Raises:
        WireError: a record of our types that does not parse.
    """
    if key is None or len(key) < 2:
        raise WireError("a group record without a key")
    (kind,) = _TYPE.unpack_from(key)
    classes = _KEYS.get(kind)
    if classes is None:
        return None
    decoded = compiler.decode(classes[0], 0, key, 2)[0]
    if isinstance(decoded, o.LegacyOffsetCommitKey):
        decoded = o.OffsetCommitKey(decoded.group, decoded.topic, decoded.partition)
    if value is None:
        return GroupRecord(decoded, None)
    if len(value) < 2:
        raise WireError("a group record's value without a version")
    (version,) = _TYPE.unpack_from(value)
    cls = o.OffsetCommitValue if isinstance(decoded, o.OffsetCommitKey) else o.GroupMetadataValue
    return GroupRecord(decoded, compiler.decode(cls, version, value, 2)[0])
