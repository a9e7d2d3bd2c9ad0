"""What log tests share: a disk in memory, batches, and a log on it."""

from __future__ import annotations

import random

from ottla.log.memory_disk import MemoryDisk, Session
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import create_log, open_log
from ottla.log.settings import LogSettings
from ottla.wire import records as r
from ottla.wire.compression import Codec

TOPIC_ID = bytes(range(16))
DIRECTORY = "/data/t-0"
NOW = 1_000_000
SMALL = LogSettings(segment_bytes=2000, index_interval_bytes=200)


def memory_disk(seed: int = 1) -> MemoryDisk:
    return MemoryDisk(random.Random(seed), lambda: NOW)


def new_log(disk: Session, settings: LogSettings = SMALL) -> PartitionLog:
    return create_log(disk, DIRECTORY, "t", 0, TOPIC_ID, settings, NOW)


def reopened(disk: Session, settings: LogSettings = SMALL, *, clean: bool = False, point: int = 0) -> PartitionLog:
    return open_log(disk, DIRECTORY, "t", 0, settings, NOW, clean=clean, recovery_point=point)


def a_batch(first: int, count: int = 3, codec: Codec = Codec.NONE, **header: int) -> bytearray:
    """Records whose values say their number; timestamps grow with them."""
    items = [r.NewRecord(b"k%d" % i, b"v%d" % i * 10, NOW + i) for i in range(first, first + count)]
    return bytearray(r.build(items, codec=codec, **header))  # type: ignore[arg-type]


def fill(log: PartitionLog, batches: int, count: int = 3, epoch: int = 0) -> None:
    for _ in range(batches):
        log.append(a_batch(log.log_end_offset, count), epoch, NOW)
    log.set_high_watermark(log.log_end_offset)


def values(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for header, raw in log.batches(log.log_start_offset)
        if not header.is_control
        for record in r.iterate(raw, header)
    ]


def expected(end: int) -> list[tuple[int, bytes]]:
    return [(i, b"v%d" % i * 10) for i in range(end)]
