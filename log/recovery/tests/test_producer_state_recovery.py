"""Producers and transactions of an opened log: ``LogLoader.java``, ``ProducerStateManager.java`` (Apache Kafka)."""

from __future__ import annotations

import pytest

from ottla.env.disk import read_file, write_file
from ottla.env.memory_disk import MemoryDisk
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.tests.test_log_loader import names, open_recovered_log
from ottla.log.segment.log_segment import segment_file_name
from ottla.log.tests.log_fixtures import (
    DIRECTORY,
    append_committed,
    make_marker,
    make_producer_batch,
    make_transactional_batch,
    memory_disk,
    new_log,
)


def with_snapshots(at: list[int]) -> tuple[MemoryDisk, PartitionLog]:
    memory = memory_disk()
    log = new_log(memory.session(), LogConfig())
    for number in range(12):
        append_committed(log, make_producer_batch(5, number))
        if number + 1 in at:
            log.producers.write_snapshot(log.disk, log.directory, log.log_end_offset)
    return memory, log


def snapshots(memory: MemoryDisk) -> list[int]:
    return sorted(int(n[:20]) for n in names(memory) if n.endswith(".snapshot"))


@pytest.mark.parametrize(
    ("at", "spoiled", "left"),
    [
        ([], [], []),
        ([3, 6, 9], [], [9]),
        ([3, 6, 9], [9], [3, 6]),  # the newest is damaged and removed; older ones stay for the next start
        ([3, 6, 9], [3], [9]),
        ([3, 6, 9], [3, 6, 9], []),
        ([12], [], [12]),
    ],
)
def test_open_log_loads_newest_readable_producer_snapshot(at: list[int], spoiled: list[int], left: list[int]) -> None:
    memory, log = with_snapshots(at)
    expected = log.producers.pack()
    for offset in spoiled:
        memory.files[f"{DIRECTORY}/{segment_file_name(offset, '.snapshot')}"].data[-1] ^= 1
    again = open_recovered_log(memory, LogConfig(), clean=True)
    assert again.producers.pack() == expected
    assert set(snapshots(memory)) <= set(left)


def test_open_log_removes_producer_snapshot_above_log_end() -> None:
    memory, log = with_snapshots([3, 12])
    write_file(memory.session(), f"{DIRECTORY}/{segment_file_name(13, '.snapshot')}", log.producers.pack())
    again = open_recovered_log(memory, LogConfig(), clean=True)
    assert 13 not in snapshots(memory)
    assert again.producers.pack() == log.producers.pack()


def test_open_log_trusts_producer_snapshot_at_log_end_after_clean_shutdown() -> None:
    memory, log = with_snapshots([12])
    state = log.producers
    state.producers[99] = state.producers[5]
    write_file(memory.session(), f"{DIRECTORY}/{segment_file_name(12, '.snapshot')}", state.pack())
    assert sorted(open_recovered_log(memory, LogConfig(), clean=True).producers.producers) == [5, 99]
    assert sorted(open_recovered_log(memory, LogConfig()).producers.producers) == [5], "rebuilt from the batches"


def test_open_log_ignores_producer_batches_below_log_start() -> None:
    memory, _ = with_snapshots([])
    again = open_recovered_log(memory, LogConfig(), clean=True, log_start_offset=12)
    assert again.producers.producers == {}
    again = open_recovered_log(memory, LogConfig(), clean=True, log_start_offset=11)
    assert [x.last_offset for x in again.producers.producers[5].batches] == [11]


def test_open_log_rebuilds_damaged_transaction_index() -> None:
    memory = memory_disk()
    log = new_log(memory.session(), LogConfig())
    append_committed(log, make_transactional_batch(1, 0))
    append_committed(log, make_marker(1, 0))
    append_committed(log, make_transactional_batch(2, 0))
    path = f"{DIRECTORY}/{segment_file_name(0, '.txnindex')}"
    before = read_file(memory.session(), path)
    memory.files[path].data[:] = memory.files[path].data * 2  # one entry twice: an invalid index
    for clean in (True, False):
        again = open_recovered_log(memory, LogConfig(), clean=clean)
        assert [a.producer_id for a in again.segments.collect_aborted_txns(0, 9)] == [1]
        assert read_file(memory.session(), path) == before
        assert again.producers.ongoing_txns == {2: 2}
        memory.files[path].data[:] = b"nonsense"
