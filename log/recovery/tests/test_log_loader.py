"""Rules for opening a log: ``LogLoader.java``, ``ProducerStateManager.java`` (apache/kafka 4.3.1)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.env.disk import write_file
from ottla.env.memory_disk import MemoryDisk
from ottla.log.checkpoints.checkpoint_files import CorruptFile, read_epochs, write_partition_metadata
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.log_loader import MAX_UNSYNCED_RECORDS, open_log
from ottla.log.segment.log_segment import segment_file_name
from ottla.log.tests.log_fixtures import (
    COMPACTED,
    DIRECTORY,
    NOW,
    SMALL,
    TOPIC_ID,
    append_batches,
    append_committed,
    make_batch,
    make_producer_batch,
    memory_disk,
    new_log,
    record_offsets,
    reopen_in_new_session,
    write_segment_file,
)
from ottla.wire.record_batch.batch_header import set_offset_and_epoch

Batches = list[tuple[int, int]]


def disk_with_segments(*segments: tuple[int, Batches]) -> MemoryDisk:
    memory = memory_disk()
    for base, batches in segments:
        write_segment_file(memory, base, batches)
    return memory


def open_recovered_log(memory: MemoryDisk, settings: LogConfig = SMALL, **more: Any) -> PartitionLog:
    return open_log(memory.session(), DIRECTORY, "t", 0, settings, NOW, **{"clean": False, **more})


def names(memory: MemoryDisk) -> set[str]:
    return {path.rpartition("/")[2] for path in memory.files}


# ---------------------------------------------------------------- offsets of an opened log


@pytest.mark.parametrize(
    ("start", "high_watermark", "point", "clean", "found"),
    [
        # checkpoints -> log start, high watermark, end, recovery point
        (0, 0, 0, False, (0, 0, 30, 0)),
        (0, 12, 7, False, (0, 12, 30, 7)),
        (0, 99, 99, False, (0, 30, 30, 30)),  # checkpoints beyond the log end
        (0, 12, 7, True, (0, 12, 30, 30)),  # after a clean stop all records are on the disk
        (10, 4, 0, False, (10, 10, 30, 0)),  # never below the log start
        (30, 0, 0, False, (30, 30, 30, 0)),
        (31, 40, 9, False, (31, 31, 31, 9)),  # all remaining records are below the log start: the log restarts there
        (31, 40, 9, True, (31, 31, 31, 31)),
    ],
)
def test_open_log_offsets_from_checkpoints_and_segments(
    start: int, high_watermark: int, point: int, *, clean: bool, found: tuple[int, int, int, int]
) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 10)
    log.close()
    again = open_recovered_log(
        memory, clean=clean, log_start_offset=start, high_watermark=high_watermark, recovery_point=point
    )
    offsets_of = (again.log_start_offset, again.high_watermark, again.log_end_offset, again.recovery_point)
    assert offsets_of == found
    assert again.segments.base_offsets == (log.segments.base_offsets if start <= 30 else [start])
    append_batches(again, 1)
    assert record_offsets(again)[-3:] == [again.log_end_offset - n for n in (3, 2, 1)]


def test_open_log_without_segment_begins_at_log_start() -> None:
    memory = memory_disk()
    session = memory.session()
    session.makedirs(DIRECTORY)
    log = open_recovered_log(memory, log_start_offset=17)
    assert (log.segments.base_offsets, log.log_start_offset, log.log_end_offset) == ([17], 17, 17)
    assert open_recovered_log(memory).log_start_offset == 17, "offset of the first segment"


def test_open_log_reads_topic_id_and_malformed_file_raises_corrupt_file() -> None:
    memory = disk_with_segments((0, [(0, 3)]))
    assert open_recovered_log(memory).topic_id == bytes(16), "log without a topic id file"
    write_partition_metadata(memory.session(), DIRECTORY, TOPIC_ID, sync=False)
    assert open_recovered_log(memory).topic_id == TOPIC_ID
    write_file(memory.session(), f"{DIRECTORY}/partition.metadata", b"x")
    with pytest.raises(CorruptFile):
        open_recovered_log(memory)


@pytest.mark.parametrize("clean", [True, False])
def test_open_log_is_synced_only_after_clean_shutdown(*, clean: bool) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 10)
    log.close()
    again = open_recovered_log(memory, clean=clean)
    assert again.flush_state.sealed_end_offset == (30 if clean else -1)
    assert (
        again.segments.directory_changes > again.flush_state.synced_directory_changes,
        again.flush_state.is_directory_unsynced,
    ) == (
        not clean,
        not clean,
    )
    assert again.epochs.is_file_unsynced == (not clean)
    assert not [s for s in again.segments if s.is_open]


@pytest.mark.parametrize(
    ("checkpoint", "writes"),
    [
        (b"0\n1\n0 0\n", 0),  # equal to the batches
        (b"0\n1\n0 3\n", 1),
        (b"0\n0\n", 1),
        (b"0\n1\n", 1),  # damaged
        (b"", 1),
        (None, 1),
    ],
)
def test_recovery_writes_epoch_checkpoint_only_if_changed_or_damaged(checkpoint: bytes | None, writes: int) -> None:
    memory = disk_with_segments((0, [(0, 3), (3, 2)]))
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    if checkpoint is not None:
        write_file(memory.session(), path, checkpoint)
    log = open_recovered_log(memory)
    assert log.epochs.write_count == writes
    assert log.epochs.entries == [(0, 0)]
    assert open_recovered_log(memory).epochs.write_count == 0, "checkpoint unchanged since the first recovery"


@pytest.mark.parametrize(("checkpoint", "writes"), [(b"0\n0\n", 0), (b"x", 1), (b"", 1), (None, 1)])
def test_recovery_of_empty_log_leaves_readable_epoch_checkpoint(checkpoint: bytes | None, writes: int) -> None:
    memory = disk_with_segments((0, []))
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    if checkpoint is not None:
        write_file(memory.session(), path, checkpoint)
    log = open_recovered_log(memory)
    assert log.epochs.write_count == writes
    assert read_epochs(memory.session(), path) == []
    assert memory.session().exists(path)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("left", "gone"),
    [
        (["{b}.log.deleted", "{b}.index.deleted"], True),
        (["{b}.log.cleaned", "{b}.timeindex.cleaned"], True),
        (["leader-epoch-checkpoint.tmp"], True),
        (["{o}.index", "{o}.timeindex", "{o}.txnindex"], True),  # without a segment
        (["partition.metadata.x", "note"], False),
    ],
)
def test_open_log_removes_unfinished_files(left: list[str], *, gone: bool) -> None:
    memory = disk_with_segments((0, [(0, 3)]), (3, [(3, 3)]))
    files = [name.format(b=f"{3:020d}", o=f"{99:020d}") for name in left]
    for name in files:
        write_file(memory.session(), f"{DIRECTORY}/{name}", b"")
    log = open_recovered_log(memory)
    assert record_offsets(log) == list(range(6))
    assert (not names(memory) & set(files)) == gone


@pytest.mark.parametrize(
    ("swap", "swapped", "others", "bases", "kept"),
    [
        # A new segment replaces all segments within its range, up to the offset after its last batch.
        (0, [(0, 1), (5, 1)], [(0, [(0, 3)]), (3, [(3, 3)]), (6, [(6, 3)])], [0, 6], [0, 5, 6, 7, 8]),
        (0, [(0, 1), (2, 1)], [(0, [(0, 3)]), (3, [(3, 3)])], [0, 3], [0, 2, 3, 4, 5]),
        (3, [(4, 1)], [(0, [(0, 3)]), (3, [(3, 3)]), (6, [(6, 3)])], [0, 3, 6], [0, 1, 2, 4, 6, 7, 8]),
        # An empty segment replaces only the one of the same base offset.
        (3, [], [(0, [(0, 3)]), (3, [(3, 3)]), (6, [(6, 3)])], [0, 3, 6], [0, 1, 2, 6, 7, 8]),
    ],
)
def test_open_log_completes_segment_swap(
    swap: int, swapped: Batches, others: list[tuple[int, Batches]], bases: list[int], kept: list[int]
) -> None:
    """``LogLoader.load``: a swap is completed once the ``.swap`` files exist."""
    memory = disk_with_segments(*others)
    write_segment_file(memory, swap, swapped, ".swap")
    log = open_recovered_log(memory, COMPACTED)
    assert log.segments.base_offsets == bases
    assert record_offsets(log) == kept
    assert not [n for n in names(memory) if n.endswith(".swap")]


@pytest.mark.parametrize(("cleaned", "counts"), [(2, False), (3, False), (4, True)])
def test_open_log_discards_swap_with_cleaned_file_at_or_below(cleaned: int, *, counts: bool) -> None:
    """``removeTempFilesAndCollectSwapFiles``: a ``.cleaned`` file at or below means that the swap had not begun."""
    memory = disk_with_segments((0, [(0, 3)]), (3, [(3, 3)]), (6, [(6, 3)]))
    write_segment_file(memory, 3, [(4, 1)], ".swap")
    write_segment_file(memory, cleaned, [(cleaned, 1)], ".cleaned")
    found = record_offsets(open_recovered_log(memory, COMPACTED))
    assert found == ([0, 1, 2, 4, 6, 7, 8] if counts else list(range(9)))


# ---------------------------------------------------------------- batches


A, B, C = (0, [(0, 3), (3, 3)]), (6, [(6, 3), (9, 3)]), (12, [(12, 3)])


@pytest.mark.parametrize(
    ("segments", "compact", "below", "found"),
    [
        ([A, B, C], False, 0, list(range(15))),
        # A gap within the last segment: damage, unless compaction reached it.
        ([A, (6, [(6, 3), (10, 2)])], False, 0, list(range(9))),
        ([A, (6, [(6, 3), (10, 2)])], True, 0, [*range(9), 10, 11]),
        ([A, (6, [(6, 3), (10, 2)])], False, 10, [*range(9), 10, 11]),
        ([A, (6, [(6, 3), (10, 2)])], False, 9, list(range(9))),
        # A gap at the end of an older segment: the next segment begins after the gap.
        ([(0, [(0, 3)]), B, C], False, 0, [0, 1, 2]),
        # In a compacted log as well, if the gap is below the cleaner offset or the offset is unknown.
        ([(0, [(0, 3)]), B, C], True, 0, [0, 1, 2]),
        ([(0, [(0, 3)]), (6, []), C], True, 0, [0, 1, 2]),
        ([A, C], True, 6, list(range(6))),
        ([A, C], True, 7, [*range(6), 12, 13, 14]),
        ([(0, [(0, 3)]), B, C], True, 4, [0, 1, 2, *range(6, 15)]),
        ([(0, [(0, 3)]), B, C], True, None, [0, 1, 2, *range(6, 15)]),
        ([(0, [(0, 3)]), B, C], False, None, [0, 1, 2]),
        # A gap too wide for a crash: made by a leader that began a new segment.
        ([A, (5 + MAX_UNSYNCED_RECORDS, [(5 + MAX_UNSYNCED_RECORDS, 1)])], True, 0, list(range(6))),
        (
            [A, (7 + MAX_UNSYNCED_RECORDS, [(7 + MAX_UNSYNCED_RECORDS, 1)])],
            True,
            0,
            [*range(6), 7 + MAX_UNSYNCED_RECORDS],
        ),
        ([(0, [(0, 3)]), B, C], False, 4, [0, 1, 2, *range(6, 15)]),
        ([(0, [(0, 3)]), B, C], False, 3, [0, 1, 2]),
        # A gap within an older segment with an intact end: the log was compacted once.
        ([(0, [(0, 1), (4, 2)]), B], False, 0, [0, 4, 5, *range(6, 12)]),
        # Offsets that decrease, or that overlap the next segment.
        ([(0, [(0, 3), (2, 4)]), B], False, 0, [0, 1, 2]),
        ([(0, [(0, 3), (3, 4)]), B], False, 0, [0, 1, 2]),
        ([(0, [(0, 3), (3, 4)]), B], True, 0, [0, 1, 2]),
        ([A, (6, [(6, 3), (8, 1)])], False, 0, list(range(9))),
        # The batch after a gap is wrong if an offset from within the gap follows.
        ([(0, [(0, 3), (20, 1), (4, 2)])], False, 0, [0, 1, 2]),
        ([(0, [(0, 3), (5, 1), (4, 2)]), B], False, 0, [0, 1, 2]),
        ([(0, [(0, 3), (5, 1), (3, 2)]), B], True, 0, [0, 1, 2]),
        # The same if damage follows at once, but not if other batches are in between.
        ([(0, [(0, 3), (4, 1), (2, 2)]), B], True, 0, [0, 1, 2]),
        ([(0, [(0, 3), (4, 1), (5, 1), (2, 2)]), C], True, 0, [0, 1, 2, 4, 5]),
    ],
)
def test_recovery_truncates_at_unexplained_offset_gap(
    segments: list[tuple[int, Batches]], *, compact: bool, below: int | None, found: list[int]
) -> None:
    memory = disk_with_segments(*segments)
    log = open_recovered_log(memory, COMPACTED if compact else SMALL, compacted_below=below)
    assert record_offsets(log) == found
    assert log.log_end_offset == found[-1] + 1
    assert (
        record_offsets(open_recovered_log(memory, COMPACTED if compact else SMALL, compacted_below=below)) == found
    ), "second recovery is unchanged"


@pytest.mark.parametrize(("point", "left"), [(0, 3), (5, 3), (6, 15), (7, 15), (12, 15)])
def test_recovery_skips_segments_below_recovery_point(point: int, left: int) -> None:
    """Segments that end at or below it are trusted (``LogLoader.recoverLog``)."""
    memory = disk_with_segments(A, B, C)
    data = memory.files[f"{DIRECTORY}/{segment_file_name(0, '.log')}"].data
    data[len(data) - 1] ^= 1
    log = open_recovered_log(memory, recovery_point=point)
    assert log.log_end_offset == left
    assert any("truncating to offset" in note for note in log.recovery_notes) == (left == 3)
    assert log.segments.base_offsets == ([0] if left == 3 else [0, 6, 12])


@pytest.mark.parametrize(("cut", "end"), [(1, 12), (61, 12), (0, 15)])
def test_recovery_truncates_log_at_damaged_batch(cut: int, end: int) -> None:
    memory = disk_with_segments(A, B, C)
    data = memory.files[f"{DIRECTORY}/{segment_file_name(12, '.log')}"].data
    del data[len(data) - cut :]
    log = open_recovered_log(memory)
    assert log.log_end_offset == end
    assert log.segments.active.size_bytes == (0 if cut else len(data))
    size = len(memory.files[f"{DIRECTORY}/{segment_file_name(12, '.log')}"].data)
    assert size == log.segments.active.size_bytes, "the file is truncated too"


def test_open_log_after_clean_shutdown_reads_only_its_end() -> None:
    memory = memory_disk()
    log = new_log(memory.session(), LogConfig(index_interval_bytes=200))
    append_batches(log, 30)
    log.close()
    assert len(log.segments.active.offset_index.offsets) > 3
    data = memory.files[f"{DIRECTORY}/{segment_file_name(0, '.log')}"].data
    data[70] ^= 1
    again = open_recovered_log(memory, LogConfig(index_interval_bytes=200), clean=True)
    assert (again.log_end_offset, again.recovery_notes) == (90, [])
    assert again.segments.active.bytes_since_index_entry > 0
    append_batches(again, 1)
    assert again.log_end_offset == 93
    del data[len(data) - 10 :]
    again = open_recovered_log(memory, LogConfig(index_interval_bytes=200), clean=True)
    assert again.log_end_offset == 0, "damaged end: full recovery truncates at the first batch"


@pytest.mark.parametrize("extra", [0, 1, 2, 5])
def test_open_log_continues_index_interval_after_clean_shutdown(extra: int) -> None:
    """The next index entry is at the same batch as without the stop."""
    settings = LogConfig(index_interval_bytes=400)
    stopped, straight = memory_disk(), memory_disk()
    logs = [new_log(stopped.session(), settings), new_log(straight.session(), settings)]
    for log in logs:
        append_batches(log, 10 + extra)
    logs[0].close()
    logs[0] = open_recovered_log(stopped, settings, clean=True)
    for log in logs:
        append_batches(log, 20)
    assert list(logs[0].segments.active.offset_index.offsets) == list(logs[1].segments.active.offset_index.offsets)
    assert list(logs[0].segments.active.offset_index.positions) == list(logs[1].segments.active.offset_index.positions)


def test_recovery_rebuilds_epochs_from_batches() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    for epoch in (1, 1, 4, 7):
        append_batches(log, 1, epoch=epoch)
    memory.files[f"{DIRECTORY}/leader-epoch-checkpoint"].data[:] = b""
    assert open_recovered_log(memory).epochs.entries == [(1, 0), (4, 6), (7, 9)]
    data = memory.files[f"{DIRECTORY}/{segment_file_name(0, '.log')}"].data
    del data[len(data) - 5 :]
    again = open_recovered_log(memory)
    assert again.epochs.entries == [(1, 0), (4, 6)], "epochs without batches are removed"
    assert open_recovered_log(memory, clean=True).epochs.entries == [(1, 0), (4, 6)]


def test_recovery_twice_returns_same_log() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    for number in range(40):
        append_committed(log, make_producer_batch(number % 3, number // 3))
    data = make_batch(0)
    set_offset_and_epoch(data, 0, 40, 0)
    log.close()
    first = reopen_in_new_session(memory)
    second = reopen_in_new_session(memory)
    assert (first.segments.base_offsets, first.log_end_offset, first.producers.pack()) == (
        second.segments.base_offsets,
        second.log_end_offset,
        second.producers.pack(),
    )
