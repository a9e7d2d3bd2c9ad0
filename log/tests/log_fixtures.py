"""Fixtures of log tests: a disk in memory, batches, and a log."""

from __future__ import annotations

import random
from dataclasses import replace

from ottla.env.memory_disk import DiskSession, MemoryDisk
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.transaction_verification import VERIFICATION_DISABLED, TxnAppendContext
from ottla.log.recovery.log_loader import create_log, open_log
from ottla.wire.record_batch.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT, set_offset_and_epoch
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.records import NewRecord, build_batch, iterate_records

TOPIC_ID = bytes(range(16))
DIRECTORY = "/data/t-0"
NOW = 1_000_000
UNVERIFIED_TXN = TxnAppendContext(VERIFICATION_DISABLED)
"""Context of transactions without verification."""
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200)
COMPACTED = replace(SMALL, compact=True, delete=False)


def memory_disk(seed: int = 1) -> MemoryDisk:
    return MemoryDisk(random.Random(seed), lambda: NOW)


def new_log(disk: DiskSession, settings: LogConfig = SMALL) -> PartitionLog:
    return create_log(disk, DIRECTORY, "t", 0, TOPIC_ID, settings, NOW)


def reopen_log(disk: DiskSession, settings: LogConfig = SMALL, *, clean: bool = False, point: int = 0) -> PartitionLog:
    return open_log(disk, DIRECTORY, "t", 0, settings, NOW, clean=clean, recovery_point=point)


def reopen_in_new_session(
    memory: MemoryDisk, settings: LogConfig = SMALL, *, clean: bool = False, point: int = 0, start: int = 0
) -> PartitionLog:
    """Open a log again in a new session, as a new process does."""
    return open_log(
        memory.session(),
        DIRECTORY,
        "t",
        0,
        settings,
        NOW,
        clean=clean,
        recovery_point=point,
        log_start_offset=start,
    )


def make_batch(first: int, count: int = 3, codec: CompressionType = CompressionType.NONE, **header: int) -> bytearray:
    """Return a batch whose values contain the record number; timestamps increase with it."""
    items = [NewRecord(b"k%d" % i, b"v%d" % i * 10, NOW + i) for i in range(first, first + count)]
    return bytearray(build_batch(items, codec=codec, **header))  # type: ignore[arg-type]


def append_batches(log: PartitionLog, batches: int, count: int = 3, epoch: int = 0) -> None:
    for _ in range(batches):
        log.append_as_leader(make_batch(log.log_end_offset, count), epoch, NOW)
    log.set_high_watermark(log.log_end_offset)


def record_values(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for header, raw in log.segments.batches(log.log_start_offset)
        if not header.is_control
        for record in iterate_records(raw, header)
    ]


def expected_values(end: int) -> list[tuple[int, bytes]]:
    return [(i, b"v%d" % i * 10) for i in range(end)]


def record_offsets(log: PartitionLog) -> list[int]:
    return [o for o, _ in record_values(log)]


def write_segment_file(memory: MemoryDisk, base: int, batches: list[tuple[int, int]], suffix: str = "") -> None:
    """Write a segment file as after compaction: batches of (base offset, records), with gaps between them."""
    disk = memory.session()
    disk.makedirs(DIRECTORY)
    raw = b""
    for offset, count in batches:
        data = make_batch(0, count)
        set_offset_and_epoch(data, 0, offset, 0)
        raw += bytes(data)
    disk.open(f"{DIRECTORY}/{base:020d}.log{suffix}", create=True).pwrite(raw, 0)


def make_producer_batch(pid: int, sequence: int, epoch: int = 0, **more: int) -> bytearray:
    return make_batch(sequence, 1, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **more)


def make_marker(pid: int, kind: int, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    """Return an abort (0) or commit (1) marker."""
    key = b"\x00\x00" + kind.to_bytes(2, "big")
    value = b"\x00\x00" + coordinator_epoch.to_bytes(4, "big")
    attributes = CONTROL_BIT | TRANSACTIONAL_BIT
    items = [NewRecord(key, value, NOW)]
    raw = build_batch(items, attributes=attributes, producer_id=pid, producer_epoch=epoch, base_sequence=-1)
    return bytearray(raw)


def make_transactional_batch(pid: int, sequence: int) -> bytearray:
    return make_producer_batch(pid, sequence, attributes=TRANSACTIONAL_BIT)


def append_committed(
    log: PartitionLog, data: bytearray, origin: AppendOrigin = AppendOrigin.COORDINATOR, epoch: int = 0
) -> int:
    first = log.append_as_leader(data, epoch, NOW, origin, txn=UNVERIFIED_TXN).first_offset
    log.set_high_watermark(log.log_end_offset)
    return first
