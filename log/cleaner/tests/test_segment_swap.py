"""Replacement of segments by compacted segments, with power loss or concurrent changes at each step."""

from __future__ import annotations

import contextlib
import errno
import random
from dataclasses import replace

import pytest

from ottla.env.disk import read_file
from ottla.env.memory_disk import DiskSession, MemoryDisk, ProcessKilled
from ottla.log.cleaner.compaction import CompactionResult, delete_unfinished_files, run_compaction
from ottla.log.cleaner.log_to_clean import find_log_to_clean, plan_compaction
from ottla.log.cleaner.segment_swap import SegmentSwap
from ottla.log.cleaner.tests.swap import swap_segments
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.log_loader import open_log
from ottla.log.segment.indexes import AbortedTxn
from ottla.log.tests.log_fixtures import (
    NOW,
    append_committed,
    make_marker,
    make_transactional_batch,
    memory_disk,
    new_log,
    record_offsets,
    record_values,
    reopen_in_new_session,
)
from ottla.wire.record_batch.batch_header import iterate_batches
from ottla.wire.record_batch.records import NewRecord, build_batch, iterate_records

SETTINGS = LogConfig(segment_bytes=1200, index_interval_bytes=200, compact=True, delete=False)
MERGED = replace(SETTINGS, segment_bytes=6000)
"""Large enough for the content of several segments."""


def write_small_segments(disk: DiskSession, count: int = 160) -> PartitionLog:
    """Write many small segments with mostly superseded records; committed and synced."""
    log = new_log(disk, SETTINGS)
    for number in range(count):
        item = NewRecord(b"k%d" % (number // 12 * 3 + number % 3), b"v%d" % number * 5, NOW)
        log.append_as_leader(bytearray(build_batch([item])), 0, NOW)
    log.set_high_watermark(log.log_end_offset)
    log.flush()
    log.update_config(MERGED)
    return log


def compacted(log: PartitionLog, disk: DiskSession) -> CompactionResult:
    found = find_log_to_clean(log, NOW)
    assert found is not None
    return run_compaction(disk, plan_compaction(found, NOW, 1 << 20))


def last_of_keys(log: PartitionLog) -> dict[bytes | None, tuple[int, bytes | None]]:
    out = {}
    for header, raw in log.segments.batches(log.log_start_offset):
        for record in iterate_records(raw, header):
            out[record.key] = (record.offset, record.value)
    return out


def test_segment_swap_power_loss_at_any_point_keeps_last_values() -> None:
    for seed in range(200):
        memory: MemoryDisk = memory_disk(seed)
        disk = memory.session()
        log = write_small_segments(disk)
        expected, end = last_of_keys(log), log.log_end_offset
        outcome = compacted(log, disk)
        assert any(len(done.sources) > 1 for done in outcome.cleaned), "segments are grouped"
        disk.kill_at = memory.calls + random.Random(seed).randrange(1, 260)
        with contextlib.suppress(ProcessKilled):
            swap_segments(log, outcome.cleaned, NOW)
            disk.kill()
        memory.lose_power()
        if seed % 2:  # a second power loss during recovery
            disk = memory.session()
            disk.kill_at = memory.calls + random.Random(seed).randrange(20, 160)
            with contextlib.suppress(ProcessKilled):
                open_log(disk, log.directory, "t", 0, SETTINGS, NOW, clean=False, recovery_point=end)
                disk.kill()
            memory.lose_power()
        again = reopen_in_new_session(memory, SETTINGS, point=end)
        assert again.log_end_offset == end, seed
        assert last_of_keys(again) == expected, seed
        found = record_offsets(again)
        assert found == sorted(set(found)), seed
        assert not [n for n in disk.disk.files if n.endswith((".swap", ".cleaned"))], seed


def test_segment_swap_deleted_key_is_not_restored_from_old_segment() -> None:
    """The new segment covers the offsets of all its sources, even if the last source kept no record."""
    disk = memory_disk().session()
    log = new_log(disk, SETTINGS)
    for number in range(200):
        item = NewRecord(b"same" if number >= 10 else b"k%d" % number, b"v" * 40, NOW)
        log.append_as_leader(bytearray(build_batch([item])), 0, NOW)
    log.set_high_watermark(200)
    log.update_config(MERGED)
    first, *more = compacted(log, disk).cleaned
    assert len(first.sources) > 1
    assert more
    raw = read_file(disk, f"{log.directory}/{first.base_offset:020d}.log.cleaned")
    assert [header for _, header in iterate_batches(raw)][-1].next_offset == log.segments.base_offsets[
        log.segments.base_offsets.index(first.sources[-1]) + 1
    ]


def test_segment_swap_reads_continue_between_steps() -> None:
    disk = memory_disk().session()
    log = write_small_segments(disk)
    work = SegmentSwap(log, compacted(log, disk).cleaned)
    before = record_values(log)
    assert work.add_swap_suffix()
    assert record_values(log) == before
    assert work.replace_segments(NOW)
    after = record_values(log)
    assert len(after) < len(before)
    for _ in range(3):
        log.close_idle_files()  # independent of the duration of the sync, the new segments stay open
        assert [s for s in log.segments if s.is_open]
    assert record_values(log) == after
    work.remove_swap_suffix()
    for _ in range(3):
        log.close_idle_files()
    assert not [s for s in log.segments[:-1] if s.is_open]
    assert record_values(log) == after


def test_segment_swap_changed_log_cancels_the_swap() -> None:
    for step in ("before", "between"):
        disk = memory_disk().session()
        log = write_small_segments(disk)
        work = SegmentSwap(log, compacted(log, disk).cleaned)
        if step == "between":
            assert work.add_swap_suffix()
        log.maybe_increment_log_start_offset(log.segments.base_offsets[2])
        log.delete_segments_below_start(NOW)
        remaining = record_values(log)
        done = work.add_swap_suffix() if step == "before" else work.replace_segments(NOW)
        assert not done
        assert record_values(log) == remaining
        delete_unfinished_files(disk, log.directory)
        assert not [n for n in disk.listdir(log.directory) if n.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("step", ["announced", "taken over"])
def test_segment_swap_truncated_or_closed_log_is_left_unchanged(step: str) -> None:
    disk = memory_disk().session()
    log = write_small_segments(disk)
    work = SegmentSwap(log, compacted(log, disk).cleaned)
    assert work.add_swap_suffix()
    if step == "announced":
        log.truncate_to(3, NOW)
        assert not work.replace_segments(NOW)
        assert not [n for n in disk.listdir(log.directory) if n.endswith(".swap")], (
            "a leftover file would be restored after a crash"
        )
        assert record_offsets(log) == [0, 1, 2]
        return
    assert work.replace_segments(NOW)
    log.set_offline()
    disk.rmtree(log.directory)
    work.sync_directory()
    work.remove_swap_suffix()
    assert not disk.exists(log.directory)


def test_segment_swap_replaces_transaction_index() -> None:
    for aborted in (True, False):
        disk = memory_disk().session()
        settings = replace(SETTINGS, segment_bytes=500)
        log = new_log(disk, settings)
        if aborted:
            append_committed(log, make_transactional_batch(1, 0))
            append_committed(log, make_transactional_batch(2, 0))
            append_committed(log, make_marker(1, 0))
            append_committed(log, make_marker(2, 1))
        else:
            append_committed(log, make_transactional_batch(2, 0))
            append_committed(log, make_marker(2, 1))
            log.segments.active.add_aborted_txn(AbortedTxn(3, 0, 1, 1))
        for number in range(20):
            append_committed(log, bytearray(build_batch([NewRecord(b"k", b"%d" % number * 40, NOW)])))
        log.flush()
        assert swap_segments(log, compacted(log, disk).cleaned, NOW)
        names = [n for n in disk.listdir(log.directory) if n == f"{0:020d}.txnindex"]
        assert bool(names) == aborted
        assert bool(log.segments[0].aborted_txns) == aborted


def test_segment_swap_closes_replaced_segments_and_renames_new_ones() -> None:
    disk = memory_disk().session()
    log = write_small_segments(disk)
    work = SegmentSwap(log, compacted(log, disk).cleaned)
    old = log.segments[:]
    assert all(segment.file for segment in old)
    assert work.add_swap_suffix()
    assert work.replace_segments(NOW)
    assert not [s.base_offset for s in old if s not in log.segments and s.is_open]
    assert work.removes_base_offsets
    work.remove_swap_suffix()
    assert not [n for n in disk.listdir(log.directory) if n.endswith(".swap")]


def test_segment_swap_failed_call_cancels_swap_or_sets_log_offline() -> None:
    """A half-finished swap would be read as corruption, or compacted again without the merged records."""
    ends = set()
    for at in range(1, 200):
        memory = memory_disk(at)
        disk = memory.session()
        log = write_small_segments(disk)
        before, last = record_values(log), last_of_keys(log)
        work = SegmentSwap(log, compacted(log, disk).cleaned)
        assert work.add_swap_suffix()
        target = memory.calls + at
        disk.fault = lambda operation, path, m=memory, t=target: (
            OSError(errno.EMFILE, "short") if m.calls == t else None
        )  # type: ignore[misc]
        failed: OSError | None = None
        try:
            work.replace_segments(NOW)
            work.remove_swap_suffix()
        except OSError as error:
            failed = error
        disk.fault = None
        ends.add((failed is not None, log.closed))
        if failed is None:
            assert last_of_keys(log) == last
            if memory.calls < target:
                break
            continue  # an unreadable index was rebuilt
        if not log.closed:
            assert failed.errno == errno.EMFILE
            delete_unfinished_files(disk, log.directory)
            assert record_values(log) == before
            assert swap_segments(log, compacted(log, disk).cleaned, NOW)
            assert last_of_keys(log) == last
            continue
        assert failed.errno == errno.EIO
        disk.kill()
        again = reopen_in_new_session(memory, MERGED)
        assert last_of_keys(again) == last
        assert again.log_end_offset == log.log_end_offset
    assert ends == {(True, False), (True, True), (False, False)}


def test_segment_swap_completed_at_start_survives_next_compaction_and_power_loss() -> None:
    """Simulator seed 1015: the old name reappeared beside an unfinished .cleaned file, and both were deleted."""
    for seed in range(20):
        memory = MemoryDisk(random.Random(seed), lambda: NOW)
        disk = memory.session()
        log = write_small_segments(disk)
        work = SegmentSwap(log, compacted(log, disk).cleaned)
        assert work.add_swap_suffix()
        work.sync_directory()  # killed here
        log = reopen_in_new_session(memory, MERGED)
        before, disk = record_values(log), memory.session()
        half = disk.open(f"{log.directory}/00000000000000000000.log.cleaned", create=True)
        half.pwrite(b"half", 0)
        half.fsync()
        memory.lose_power()
        assert record_values(reopen_in_new_session(memory, MERGED)) == before, seed
