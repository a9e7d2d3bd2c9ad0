"""Encoding and decoding of `__share_group_state` records: int16 type and key; int16 version and value, or null.

Source: ``ShareCoordinatorRecordHelpers.java``, ``ShareCoordinatorRecordSerde.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages import share_state_records

_TYPE = struct.Struct(">h")
_CLASSES: dict[int, tuple[type[Any], type[Any]]] = {
    0: (share_state_records.ShareSnapshotKey, share_state_records.ShareSnapshotValue),
    1: (share_state_records.ShareUpdateKey, share_state_records.ShareUpdateValue),
}
SHARE_RECORD_VALUE_VERSION = 0
MAX_EPOCH = 2**31 - 1 - 2**16
"""Largest accepted snapshot epoch: a record with the largest int32 would leave no next epoch."""

ShareRecordKey = share_state_records.ShareSnapshotKey | share_state_records.ShareUpdateKey
ShareRecordValue = share_state_records.ShareSnapshotValue | share_state_records.ShareUpdateValue


class ShareRecord(NamedTuple):
    """Key and value of a record of `__share_group_state`; a value of None is a tombstone."""

    key: ShareRecordKey
    value: ShareRecordValue | None


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Return key and value of a record as bytes; None as the value of a tombstone.

    Raises:
        WireError: a field does not fit its schema, such as a string that is too long.
    """
    kind = 0 if isinstance(record.key, share_state_records.ShareSnapshotKey) else 1
    key = _TYPE.pack(kind) + compiler.encode(record.key, 0)
    if record.value is None:
        return key, None
    return key, _TYPE.pack(SHARE_RECORD_VALUE_VERSION) + compiler.encode(record.value, SHARE_RECORD_VALUE_VERSION)


def record_classes(kind: int) -> tuple[type[Message], type[Message]] | None:
    """Return the key and value classes of a record type; None for an unknown one."""
    return _CLASSES.get(kind)


def form(key: bytes, value: bytes) -> tuple[type[Message], int] | None:
    """Return message class and version of an encoded value; None if key or value is too short, or the type unknown."""
    if min(len(key), len(value)) < _TYPE.size:
        return None
    classes = record_classes(_TYPE.unpack_from(key)[0])
    return None if classes is None else (classes[1], _TYPE.unpack_from(value)[0])


def decode(key: bytes | None, value: bytes | None, parsed: Any = None) -> ShareRecord | None:
    """Return the record of encoded key and value; None for an unknown record type, which replay skips.

    ``parsed``: the value, if it is decoded already.

    Raises:
        WireError: the key has no type, or a record of a known type is malformed.
    """
    if key is None or len(key) < 2:
        raise WireError("a share state record without a key")
    (kind,) = _TYPE.unpack_from(key)
    classes = _CLASSES.get(kind)
    if classes is None:
        return None
    decoded: Any = compiler.decode(classes[0], 0, key, 2)[0]
    if value is None:
        if not isinstance(decoded, share_state_records.ShareSnapshotKey):
            raise WireError("a share update without a value")
        return ShareRecord(decoded, None)
    if len(value) < 2:
        raise WireError("a share state record's value without a version")
    (version,) = _TYPE.unpack_from(value)
    stored: Any = parsed or compiler.decode(classes[1], version, value, 2)[0]
    if not -1 <= stored.snapshot_epoch <= MAX_EPOCH:
        raise WireError(f"invalid snapshot epoch: {stored.snapshot_epoch} (at most {MAX_EPOCH})")
    return ShareRecord(decoded, stored)
