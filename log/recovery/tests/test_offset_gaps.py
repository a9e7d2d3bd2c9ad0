"""Offset gaps between two segments: made by compaction, or by a power loss."""

from __future__ import annotations

import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.log.checkpoints.checkpoint_files import CLEANER_OFFSET_CHECKPOINT, write_offsets
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.directory.tests.test_log_directory import open_directory, read_checkpoint, reopen_directory
from ottla.log.recovery.tests.test_log_loader import Batches, disk_with_segments, names, open_recovered_log
from ottla.log.tests.log_fixtures import (
    COMPACTED,
    NOW,
    SMALL,
    TOPIC_ID,
    append_batches,
    memory_disk,
    new_log,
    record_offsets,
    reopen_in_new_session,
    write_segment_file,
)
from ottla.wire.record_batch.batch_header import set_offset_and_epoch


def two_segments() -> tuple[MemoryDisk, LogDirectory]:
    """Return a compacted log of six records in a full segment, and three records in the next."""
    memory = memory_disk()
    directory = open_directory(memory.session())
    log = directory.create_partition("t", 0, TOPIC_ID, COMPACTED, NOW)
    append_batches(log, 2)
    log.roll(NOW)
    append_batches(log, 1)
    return memory, directory


@pytest.mark.parametrize(
    ("file", "kept"),
    [
        (b"0\n0\n", False),
        (b"", False),  # as Kafka creates it
        (b"0\n1\nu 0 99\n", False),
        (b"0\n1\nt 0 4\n", True),
        (b"nonsense", True),
        (None, True),
    ],
)
def test_recovery_gap_above_cleaner_offset_truncates_log(file: bytes | None, *, kept: bool) -> None:
    """Power loss truncated a segment that was just full, but not the next one."""
    memory, _ = two_segments()
    first = memory.files["/data/t-0/00000000000000000000.log"].data
    del first[len(first) // 2 :]
    path = f"/data/{CLEANER_OFFSET_CHECKPOINT}"
    assert read_checkpoint(memory, CLEANER_OFFSET_CHECKPOINT) == {}, "a directory without logs gets an empty checkpoint"
    if file is None:
        memory.session().unlink(path)
    else:
        memory.files[path].data[:] = file
    assert record_offsets(reopen_directory(memory, COMPACTED)[1][0]) == ([0, 1, 2, 6, 7, 8] if kept else [0, 1, 2])


def test_recovery_batch_older_than_recorded_epoch_keeps_own_epoch() -> None:
    """Power loss restored a truncated batch: under the newer epoch no leader would truncate it."""
    memory = memory_disk()
    log = new_log(memory.session(), SMALL)
    append_batches(log, 1)
    log.truncate_to(0, NOW)
    log.epochs.assign(3, 0)
    write_segment_file(memory, 0, [(0, 3)])
    again = open_recovered_log(memory)
    assert (again.log_end_offset, again.epochs.latest_epoch()) == (3, 0)


@pytest.mark.parametrize("known", [True, False])
def test_completed_swap_writes_cleaner_offset_durably(*, known: bool) -> None:
    memory, directory = two_segments()
    directory.logs["t", 0].flush()
    directory.sync_new_partition_directories()
    session = memory.session()
    write_offsets(session, f"/data/{CLEANER_OFFSET_CHECKPOINT}", {("u", 1): 5})
    session.rename("/data/t-0/00000000000000000000.log", "/data/t-0/00000000000000000000.log.swap")
    session.fsync_dir("/data/t-0")
    data = memory.files["/data/t-0/00000000000000000000.log.swap"].data
    del data[len(data) // 2 :]
    if not known:
        memory.files[f"/data/{CLEANER_OFFSET_CHECKPOINT}"].data[:] = b"nonsense"
    for _ in range(2):
        assert record_offsets(reopen_directory(memory, COMPACTED)[1][0]) == [0, 1, 2, 6, 7, 8]
    if known:
        assert read_checkpoint(memory, CLEANER_OFFSET_CHECKPOINT) == {("t", 0): 6, ("u", 1): 5}
    else:
        assert bytes(memory.files[f"/data/{CLEANER_OFFSET_CHECKPOINT}"].data) == b"nonsense", (
            "offsets of other logs are unknown"
        )


@pytest.mark.parametrize(
    ("swaps", "others", "expected", "found"),
    [
        ([(0, [(0, 2)])], [(0, [(0, 3)]), (3, [(3, 3)])], [3], [0, 1, 3, 4, 5]),
        # Of several swaps the last; there may be a gap before each.
        ([(0, [(0, 2)]), (3, [(3, 1)])], [(0, [(0, 3)]), (3, [(3, 3)]), (6, [(6, 3)])], [6], [0, 1, 3, 6, 7, 8]),
        ([], [(0, [(0, 3)]), (3, [(3, 3)])], [], list(range(6))),
    ],
)
def test_open_log_reports_swaps_before_renaming_segments(
    swaps: list[tuple[int, Batches]], others: list[tuple[int, Batches]], expected: list[int], found: list[int]
) -> None:
    """Otherwise a second crash would leave an unexplained gap, and the next start would treat it as a loss."""
    memory = disk_with_segments(*others)
    for base, batches in swaps:
        write_segment_file(memory, base, batches, ".swap")
    reported: list[int] = []

    def report(below: int) -> None:
        reported.append(below)
        assert [n for n in names(memory) if n.endswith(".log.swap")]

    log = open_recovered_log(memory, COMPACTED, compacted_below=0, on_swaps=report)
    assert (reported, record_offsets(log)) == (expected, found)


@pytest.mark.parametrize("compact", [True, False])
def test_open_future_log_requires_adjoining_segments(*, compact: bool) -> None:
    """A future log has gaps within its segments only; a gap between two segments is a loss by power failure."""
    settings = COMPACTED if compact else SMALL
    whole = disk_with_segments((0, [(1, 2)]), (3, [(5, 1), (8, 3)]), (11, [(12, 3)]))
    assert record_offsets(open_recovered_log(whole, settings, compacted_below=15, is_contiguous=True)) == [
        1,
        2,
        5,
        8,
        9,
        10,
        12,
        13,
        14,
    ]
    for lost in (
        disk_with_segments((0, [(1, 2)]), (11, [(12, 3)])),
        disk_with_segments((0, [(1, 2)]), (3, [(5, 1)]), (11, [(12, 3)])),
    ):
        log = open_recovered_log(lost, settings, compacted_below=15, is_contiguous=True)
        assert log.log_end_offset == (6 if 5 in record_offsets(log) else 3)


@pytest.mark.parametrize("returned", ["not its neighbour", "damaged", "of a later epoch"])
def test_recovery_restored_segment_below_log_start_keeps_later_segments(returned: str) -> None:
    memory = memory_disk()
    log = new_log(memory.session(), SMALL)
    for _ in range(3):
        append_batches(log, 1)
        log.roll(NOW)
    append_batches(log, 1)
    if returned == "not its neighbour":
        memory.session().unlink("/data/t-0/00000000000000000003.log")
    elif returned == "damaged":
        memory.files["/data/t-0/00000000000000000003.log"].data[80] ^= 1
    else:
        for base in (0, 3):
            set_offset_and_epoch(memory.files[f"/data/t-0/{base:020d}.log"].data, 0, base, 5)
    again = reopen_in_new_session(memory, start=6)
    assert record_offsets(again) == [6, 7, 8, 9, 10, 11]
    assert (again.log_start_offset, again.log_end_offset) == (6, 12)


def test_recovery_log_start_above_remaining_records_does_not_explain_a_gap() -> None:
    """Power loss truncated a segment whose records were deleted, but not the next segment."""
    memory = memory_disk()
    open_directory(memory.session()).create_partition("t", 0, TOPIC_ID, SMALL, NOW)
    directory, logs = reopen_directory(memory, SMALL)
    append_batches(logs[0], 3)
    logs[0].maybe_increment_log_start_offset(4)
    directory.checkpoints.write()
    directory, logs = reopen_directory(memory, SMALL)
    logs[0].roll(NOW)
    append_batches(logs[0], 1)
    directory.checkpoints.write()
    first = memory.files["/data/t-0/00000000000000000000.log"].data
    del first[len(first) // 3 :]  # whole batches remain
    again = reopen_directory(memory, SMALL)[1][0]
    assert (again.log_start_offset, again.log_end_offset, record_offsets(again)) == (4, 4, [])
