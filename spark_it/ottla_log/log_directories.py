"""Log directories written without a node: batches with chosen offsets, checkpoint files, producer snapshots.

Of the indexes only transaction indexes are written.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.wire.record_batch.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, pack_batch
from ottla.wire.record_batch.compression import CompressionType, compress
from ottla.wire.record_batch.control_record import ControlRecordType
from ottla.wire.record_batch.crc import crc32c
from ottla.wire.record_batch.records import NewRecord, build_batch, encode_record

FIRST_TIMESTAMP_MS = 1_700_000_000_000
_LEGACY_ATTRIBUTES = struct.Struct(">bbq")


def value_of(offset: int) -> bytes:
    """Return the value that the test record at an offset has."""
    return b"value %d" % offset


def record_at(offset: int) -> NewRecord:
    """Return the test record at an offset: one of five keys, and a value and timestamp that depend on the offset."""
    return NewRecord(b"key %d" % (offset % 5), value_of(offset), FIRST_TIMESTAMP_MS + offset)


def batch_of(first: int, count: int, codec: CompressionType = CompressionType.NONE, leader_epoch: int = 0) -> bytes:
    """Return an encoded batch with the test records of ``count`` offsets from ``first`` on.

    ``leader_epoch``: partition leader epoch of the batch.
    """
    records = [record_at(offset) for offset in range(first, first + count)]
    return build_batch(records, base_offset=first, codec=codec, leader_epoch=leader_epoch)


def compacted_batch(first: int, last: int, offsets: Sequence[int], codec: CompressionType) -> bytes:
    """Return an encoded batch from offset `first` to `last`, both included, in which only ``offsets`` are left."""
    base_ms = FIRST_TIMESTAMP_MS + first
    records = b"".join(encode_record(record_at(offset), offset - first, offset - first) for offset in offsets)
    newest_ms = FIRST_TIMESTAMP_MS + max(offsets, default=first)
    header = BatchHeader(first, 0, 0, 2, 0, codec, last - first, base_ms, newest_ms, -1, -1, -1, len(offsets))
    return pack_batch(header, compress(codec, records))


def transactional_batch(first: int, count: int, producer_id: int) -> bytes:
    """Return an encoded batch of a transactional producer with ``count`` test records from ``first`` on.

    Its producer epoch and base sequence are 0.
    """
    records = [record_at(offset) for offset in range(first, first + count)]
    more = {"attributes": TRANSACTIONAL_BIT, "producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    return build_batch(records, base_offset=first, **more)


def marker(offset: int, producer_id: int, kind: ControlRecordType) -> bytes:
    """Return the encoded control batch at an offset that ends a producer's transaction; ``kind``: COMMIT or ABORT."""
    record = NewRecord(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), FIRST_TIMESTAMP_MS + offset)
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    return build_batch([record], base_offset=offset, attributes=attributes, producer_id=producer_id, producer_epoch=0)


def legacy_message(offset: int, magic: int) -> bytes:
    """Return the test record at an offset as an uncompressed message of format ``magic`` (0 or 1), as before 0.11."""
    record = record_at(offset)
    assert record.key is not None
    assert record.value is not None
    head = _LEGACY_ATTRIBUTES.pack(magic, 0, record.timestamp_ms)[: 10 if magic else 2]
    fields = b"".join(len(field).to_bytes(4, "big") + field for field in (record.key, record.value))
    message = zlib.crc32(head + fields).to_bytes(4, "big") + head + fields
    return struct.pack(">qi", offset, len(message)) + message


def write_partition(
    log_dir: Path,
    topic: str,
    segments: Mapping[int, Sequence[bytes]],
    *,
    partition: int = 0,
    topic_id: str = "AAAAAAAAAAAAAAAAAAAAAQ",
    leader_epoch: int = 0,
) -> Path:
    """Create the directory of a partition with segments, ``partition.metadata`` and leader epochs, and return its path.

    The segments have no indexes. ``segments``: encoded batches by base offset. ``leader_epoch``: the only leader epoch,
    from offset 0 on.
    """
    directory = log_dir / f"{topic}-{partition}"
    directory.mkdir(parents=True)
    for base_offset, batches in segments.items():
        (directory / f"{base_offset:020}.log").write_bytes(b"".join(batches))
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    (directory / "leader-epoch-checkpoint").write_text(f"0\n1\n{leader_epoch} 0\n")
    return directory


def write_checkpoint(log_dir: Path, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write checkpoint file ``name`` of a log directory with the offsets of these topics and partitions alone."""
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in offsets.items()]
    (log_dir / name).write_text(f"0\n{len(lines)}\n" + "".join(lines))


def write_high_watermark(log_dir: Path, topic: str, offset: int) -> None:
    """Write ``replication-offset-checkpoint`` with the high watermark of partition 0 of a topic alone."""
    write_checkpoint(log_dir, "replication-offset-checkpoint", {(topic, 0): offset})


def write_snapshot(directory: Path, offset: int, open_transactions: Mapping[int, int]) -> None:
    """Write the producer snapshot of a partition directory at an offset.

    ``open_transactions``: first offset of the open transaction of each producer id.
    """
    rows = b"".join(
        struct.pack(">qhiqiqiq", producer_id, 0, 0, first_offset, 0, FIRST_TIMESTAMP_MS, 0, first_offset)
        for producer_id, first_offset in open_transactions.items()
    )
    body = struct.pack(">i", len(open_transactions)) + rows
    (directory / f"{offset:020}.snapshot").write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)


def write_transaction_index(directory: Path, base_offset: int, rows: Sequence[tuple[int, int, int]]) -> None:
    """Write the transaction index of the segment at ``base_offset``, with a row for each aborted transaction.

    ``rows``: producer id, first offset, and last offset, which is that of the marker.
    """
    raw = b"".join(struct.pack(">hqqqq", 0, *row, row[1]) for row in rows)
    (directory / f"{base_offset:020}.txnindex").write_bytes(raw)
