"""Control records: transaction markers and records of the quorum. Key: int16 version, int16 type; value: a message.

Source: ``ControlRecordType.java``, ``EndTransactionMarker.java``, ``ControlRecordUtils.java`` (apache/kafka 4.3.1).

Transaction markers: KIP-98; records of the quorum: KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from ottla.wire.codec import compiler
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.primitives import Buffer
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages import control_records as ctl
from ottla.wire.record_batch.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from ottla.wire.record_batch.records import NewRecord, Record, build_batch, iterate_records

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlRecordType(IntEnum):
    """Type of a control record: the second int16 of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_CLASSES: dict[int, type[Message]] = {
    ControlRecordType.ABORT: ctl.EndTxnMarker,
    ControlRecordType.COMMIT: ctl.EndTxnMarker,
    ControlRecordType.LEADER_CHANGE: ctl.LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: ctl.SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: ctl.SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: ctl.KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: ctl.VotersRecord,
}
_TYPES = {cls: kind for kind, cls in _CLASSES.items() if cls is not ctl.EndTxnMarker}


class EndTransactionMarker(NamedTuple):
    """Transaction marker: ABORT or COMMIT, and the epoch of the transaction coordinator that wrote it."""

    control_type: int
    coordinator_epoch: int


def read_control_type(record: Record) -> int | None:
    """Return the type in a control record's key; None if the key is missing or too short."""
    if record.key is None or len(record.key) < _KEY.size:
        return None
    return int(_KEY.unpack_from(record.key)[1])


def parse_end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """Return the transaction marker in a control record; None for other types or a truncated value."""
    kind = read_control_type(record)
    if (
        kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT)
        or record.value is None
        or len(record.value) < _MARKER.size
    ):
        return None
    return EndTransactionMarker(kind, _MARKER.unpack_from(record.value)[1])


def iterate_end_markers(header: BatchHeader, data: Buffer) -> Iterator[EndTransactionMarker]:
    """Yield the transaction markers in the control batch ``data``; other control records are skipped.

    Raises:
        WireError: the records are malformed or do not match the header.
    """
    for record in iterate_records(data, header):
        end = parse_end_transaction_marker(record)
        if end is not None:
            yield end


def build_control_record(message: Message, now_ms: int) -> NewRecord:
    """Return a control record of KRaft with the timestamp ``now_ms``.

    Its value is ``message`` encoded in version 0; such a message has a version field of its own.
    """
    return NewRecord(_KEY.pack(0, _TYPES[type(message)]), compiler.encode(message, 0), now_ms)


def build_end_transaction_batch(end: EndTransactionMarker, producer_id: int, epoch: int, now_ms: int) -> bytes:
    """Return a control batch with one marker, which commits or aborts a producer's transaction.

    ``epoch``: producer epoch of the marker; ``now_ms``: its timestamp. The base offset is 0.

    Source: ``MemoryRecords.writeEndTransactionalMarker`` (apache/kafka 4.3.1).
    """
    record = NewRecord(_KEY.pack(0, end.control_type), _MARKER.pack(0, end.coordinator_epoch), now_ms)
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    return build_batch([record], attributes=attributes, producer_id=producer_id, producer_epoch=epoch)


def decode_control_record(record: Record) -> Message | None:
    """Return the message in a control record; None for an unknown type, which readers must ignore.

    Raises:
        WireError: key or value is missing or malformed.
    """
    kind = read_control_type(record)
    if kind is None or record.value is None or len(record.value) < 2:
        raise WireError("a control record without type or content")
    cls = _CLASSES.get(kind)
    if cls is None:
        return None
    if cls is ctl.EndTxnMarker:
        return compiler.decode(cls, 0, record.value, 2)[0]  # int16 version, then the body
    version = int.from_bytes(record.value[:2], "big", signed=True)
    return compiler.decode(cls, min(max(version, 0), spec_of(cls).versions.high), record.value)[0]
