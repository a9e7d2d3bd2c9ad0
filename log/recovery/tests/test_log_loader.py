"""Tables of rules for opening a log: ``LogLoader.java``, ``ProducerStateManager.java`` (apache/kafka 4.3.1)."""

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


def laid(*segments: tuple[int, Batches]) -> MemoryDisk:
    memory = memory_disk()
    for base, batches in segments:
        write_segment_file(memory, base, batches)
    return memory


def open_it(memory: MemoryDisk, settings: LogConfig = SMALL, **more: Any) -> PartitionLog:
    return open_log(memory.session(), DIRECTORY, "t", 0, settings, NOW, **{"clean": False, **more})


def names(memory: MemoryDisk) -> set[str]:
    return {path.rpartition("/")[2] for path in memory.files}


# ---------------------------------------------------------------- where log start, end, watermark and points come from


@pytest.mark.parametrize(
    ("start", "high_watermark", "point", "clean", "found"),
    [
        # checkpoints -> log start, high watermark, end, recovery point
        (0, 0, 0, False, (0, 0, 30, 0)),
        (0, 12, 7, False, (0, 12, 30, 7)),
        (0, 99, 99, False, (0, 30, 30, 30)),  # they say more than there is
        (0, 12, 7, True, (0, 12, 30, 30)),  # after a clean stop all is on the disk
        (10, 4, 0, False, (10, 10, 30, 0)),  # never below the log start
        (30, 0, 0, False, (30, 30, 30, 0)),
        (31, 40, 9, False, (31, 31, 31, 9)),  # all that is left lies below the log start: it starts over there
        (31, 40, 9, True, (31, 31, 31, 31)),
    ],
)
def test_offsets_of_an_opened_log(
    start: int, high_watermark: int, point: int, *, clean: bool, found: tuple[int, int, int, int]
) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 10)
    log.close()
    again = open_it(memory, clean=clean, log_start_offset=start, high_watermark=high_watermark, recovery_point=point)
    offsets_of = (again.log_start_offset, again.high_watermark, again.log_end_offset, again.recovery_point)
    assert offsets_of == found
    assert again.segments.base_offsets == (log.segments.base_offsets if start <= 30 else [start])
    append_batches(again, 1)
    assert record_offsets(again)[-3:] == [again.log_end_offset - n for n in (3, 2, 1)]


def test_a_log_without_a_segment_begins_at_its_log_start() -> None:
    memory = memory_disk()
    session = memory.session()
    session.makedirs(DIRECTORY)
    log = open_it(memory, log_start_offset=17)
    assert (log.segments.base_offsets, log.log_start_offset, log.log_end_offset) == ([17], 17, 17)
    assert open_it(memory).log_start_offset == 17, "its first segment says so"


def test_the_topic_id_is_read_and_a_file_of_nonsense_is_an_error() -> None:
    memory = laid((0, [(0, 3)]))
    assert open_it(memory).topic_id == bytes(16), "made before there were any"
    write_partition_metadata(memory.session(), DIRECTORY, TOPIC_ID, sync=False)
    assert open_it(memory).topic_id == TOPIC_ID
    write_file(memory.session(), f"{DIRECTORY}/partition.metadata", b"x")
    with pytest.raises(CorruptFile):
        open_it(memory)


@pytest.mark.parametrize("clean", [True, False])
def test_what_an_opened_log_knows_of_the_disk(*, clean: bool) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 10)
    log.close()
    again = open_it(memory, clean=clean)
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
        (b"0\n1\n0 0\n", 0),  # as the batches say
        (b"0\n1\n0 3\n", 1),
        (b"0\n0\n", 1),
        (b"0\n1\n", 1),  # damaged
        (b"", 1),
        (None, 1),
    ],
)
def test_recovery_writes_the_epoch_checkpoint_only_where_batches_or_damage_change_it(
    checkpoint: bytes | None, writes: int
) -> None:
    memory = laid((0, [(0, 3), (3, 2)]))
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    if checkpoint is not None:
        write_file(memory.session(), path, checkpoint)
    log = open_it(memory)
    assert log.epochs.write_count == writes
    assert log.epochs.entries == [(0, 0)]
    assert open_it(memory).epochs.write_count == 0, "the file is as the first recovery left it"


@pytest.mark.parametrize(("checkpoint", "writes"), [(b"0\n0\n", 0), (b"x", 1), (b"", 1), (None, 1)])
def test_recovery_of_an_empty_log_leaves_a_readable_epoch_checkpoint(checkpoint: bytes | None, writes: int) -> None:
    memory = laid((0, []))
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    if checkpoint is not None:
        write_file(memory.session(), path, checkpoint)
    log = open_it(memory)
    assert log.epochs.write_count == writes
    assert read_epochs(memory.session(), path) == []
    assert memory.session().exists(path)


# ---------------------------------------------------------------- which files count


@pytest.mark.parametrize(
    ("left", "gone"),
    [
        (["{b}.log.deleted", "{b}.index.deleted"], True),
        (["{b}.log.cleaned", "{b}.timeindex.cleaned"], True),
        (["leader-epoch-checkpoint.tmp"], True),
        (["{o}.index", "{o}.timeindex", "{o}.txnindex"], True),  # of no segment
        (["partition.metadata.x", "note"], False),
    ],
)
def test_what_a_crash_left_half_done_goes(left: list[str], *, gone: bool) -> None:
    memory = laid((0, [(0, 3)]), (3, [(3, 3)]))
    files = [name.format(b=f"{3:020d}", o=f"{99:020d}") for name in left]
    for name in files:
        write_file(memory.session(), f"{DIRECTORY}/{name}", b"")
    log = open_it(memory)
    assert record_offsets(log) == list(range(6))
    assert (not names(memory) & set(files)) == gone


@pytest.mark.parametrize(
    ("swap", "swapped", "others", "bases", "kept"),
    [
        # A new segment stands for all within its range, up to the offset behind its last batch.
        (0, [(0, 1), (5, 1)], [(0, [(0, 3)]), (3, [(3, 3)]), (6, [(6, 3)])], [0, 6], [0, 5, 6, 7, 8]),
        (0, [(0, 1), (2, 1)], [(0, [(0, 3)]), (3, [(3, 3)])], [0, 3], [0, 2, 3, 4, 5]),
        (3, [(4, 1)], [(0, [(0, 3)]), (3, [(3, 3)]), (6, [(6, 3)])], [0, 3, 6], [0, 1, 2, 4, 6, 7, 8]),
        # An empty one takes its own place only.
        (3, [], [(0, [(0, 3)]), (3, [(3, 3)]), (6, [(6, 3)])], [0, 3, 6], [0, 1, 2, 6, 7, 8]),
    ],
)
def test_a_segment_on_its_way_takes_its_place(
    swap: int, swapped: Batches, others: list[tuple[int, Batches]], bases: list[int], kept: list[int]
) -> None:
    """``LogLoader.load``: from ``.swap`` on there is no way back."""
    memory = laid(*others)
    write_segment_file(memory, swap, swapped, ".swap")
    log = open_it(memory, COMPACTED)
    assert log.segments.base_offsets == bases
    assert record_offsets(log) == kept
    assert not [n for n in names(memory) if n.endswith(".swap")]


@pytest.mark.parametrize(("cleaned", "counts"), [(2, False), (3, False), (4, True)])
def test_a_swap_counts_only_when_nothing_of_its_pass_is_still_being_named(cleaned: int, *, counts: bool) -> None:
    """``removeTempFilesAndCollectSwapFiles``: a ``.cleaned`` file at or below says the exchange had not begun."""
    memory = laid((0, [(0, 3)]), (3, [(3, 3)]), (6, [(6, 3)]))
    write_segment_file(memory, 3, [(4, 1)], ".swap")
    write_segment_file(memory, cleaned, [(cleaned, 1)], ".cleaned")
    found = record_offsets(open_it(memory, COMPACTED))
    assert found == ([0, 1, 2, 4, 6, 7, 8] if counts else list(range(9)))


# ---------------------------------------------------------------- which batches count


A, B, C = (0, [(0, 3), (3, 3)]), (6, [(6, 3), (9, 3)]), (12, [(12, 3)])


@pytest.mark.parametrize(
    ("segments", "compact", "below", "found"),
    [
        ([A, B, C], False, 0, list(range(15))),
        # A hole within the last segment: damage, unless compaction was there.
        ([A, (6, [(6, 3), (10, 2)])], False, 0, list(range(9))),
        ([A, (6, [(6, 3), (10, 2)])], True, 0, [*range(9), 10, 11]),
        ([A, (6, [(6, 3), (10, 2)])], False, 10, [*range(9), 10, 11]),
        ([A, (6, [(6, 3), (10, 2)])], False, 9, list(range(9))),
        # A hole at the end of an older one: what follows stands behind a hole.
        ([(0, [(0, 3)]), B, C], False, 0, [0, 1, 2]),
        # Where a log is compacted, too, but below where it was, or where nobody knows.
        ([(0, [(0, 3)]), B, C], True, 0, [0, 1, 2]),
        ([(0, [(0, 3)]), (6, []), C], True, 0, [0, 1, 2]),
        ([A, C], True, 6, list(range(6))),
        ([A, C], True, 7, [*range(6), 12, 13, 14]),
        ([(0, [(0, 3)]), B, C], True, 4, [0, 1, 2, *range(6, 15)]),
        ([(0, [(0, 3)]), B, C], True, None, [0, 1, 2, *range(6, 15)]),
        ([(0, [(0, 3)]), B, C], False, None, [0, 1, 2]),
        # A hole so wide no crash makes: a leader's, which began a new segment.
        ([A, (5 + MAX_UNSYNCED_RECORDS, [(5 + MAX_UNSYNCED_RECORDS, 1)])], True, 0, list(range(6))),
        (
            [A, (7 + MAX_UNSYNCED_RECORDS, [(7 + MAX_UNSYNCED_RECORDS, 1)])],
            True,
            0,
            [*range(6), 7 + MAX_UNSYNCED_RECORDS],
        ),
        ([(0, [(0, 3)]), B, C], False, 4, [0, 1, 2, *range(6, 15)]),
        ([(0, [(0, 3)]), B, C], False, 3, [0, 1, 2]),
        # A hole within an older one, the end whole: it was compacted once.
        ([(0, [(0, 1), (4, 2)]), B], False, 0, [0, 4, 5, *range(6, 12)]),
        # Offsets that go back, or reach into the next segment.
        ([(0, [(0, 3), (2, 4)]), B], False, 0, [0, 1, 2]),
        ([(0, [(0, 3), (3, 4)]), B], False, 0, [0, 1, 2]),
        ([(0, [(0, 3), (3, 4)]), B], True, 0, [0, 1, 2]),
        ([A, (6, [(6, 3), (8, 1)])], False, 0, list(range(9))),
        # The batch behind a gap is the liar where an offset from within the gap follows.
        ([(0, [(0, 3), (20, 1), (4, 2)])], False, 0, [0, 1, 2]),
        ([(0, [(0, 3), (5, 1), (4, 2)]), B], False, 0, [0, 1, 2]),
        ([(0, [(0, 3), (5, 1), (3, 2)]), B], True, 0, [0, 1, 2]),
        # So it is where damage follows at once, and not where others stand between.
        ([(0, [(0, 3), (4, 1), (2, 2)]), B], True, 0, [0, 1, 2]),
        ([(0, [(0, 3), (4, 1), (5, 1), (2, 2)]), C], True, 0, [0, 1, 2, 4, 5]),
    ],
)
def test_which_batches_are_believed(
    segments: list[tuple[int, Batches]], *, compact: bool, below: int | None, found: list[int]
) -> None:
    memory = laid(*segments)
    log = open_it(memory, COMPACTED if compact else SMALL, compacted_below=below)
    assert record_offsets(log) == found
    assert log.log_end_offset == found[-1] + 1
    assert record_offsets(open_it(memory, COMPACTED if compact else SMALL, compacted_below=below)) == found, (
        "once and for all"
    )


@pytest.mark.parametrize(("point", "left"), [(0, 3), (5, 3), (6, 15), (7, 15), (12, 15)])
def test_damage_below_the_recovery_point_is_not_looked_for(point: int, left: int) -> None:
    """Segments that end at or below it are believed (``LogLoader.recoverLog``)."""
    memory = laid(A, B, C)
    data = memory.files[f"{DIRECTORY}/{segment_file_name(0, '.log')}"].data
    data[len(data) - 1] ^= 1
    log = open_it(memory, recovery_point=point)
    assert log.log_end_offset == left
    assert any("truncating to offset" in note for note in log.recovery_notes) == (left == 3)
    assert log.segments.base_offsets == ([0] if left == 3 else [0, 6, 12])


@pytest.mark.parametrize(("cut", "end"), [(1, 12), (61, 12), (0, 15)])
def test_damage_is_cut_off_with_all_behind_it(cut: int, end: int) -> None:
    memory = laid(A, B, C)
    data = memory.files[f"{DIRECTORY}/{segment_file_name(12, '.log')}"].data
    del data[len(data) - cut :]
    log = open_it(memory)
    assert log.log_end_offset == end
    assert log.segments.active.size_bytes == (0 if cut else len(data))
    size = len(memory.files[f"{DIRECTORY}/{segment_file_name(12, '.log')}"].data)
    assert size == log.segments.active.size_bytes, "the file too"


def test_after_a_clean_stop_only_the_end_is_read() -> None:
    memory = memory_disk()
    log = new_log(memory.session(), LogConfig(index_interval_bytes=200))
    append_batches(log, 30)
    log.close()
    assert len(log.segments.active.offset_index.offsets) > 3
    data = memory.files[f"{DIRECTORY}/{segment_file_name(0, '.log')}"].data
    data[70] ^= 1
    again = open_it(memory, LogConfig(index_interval_bytes=200), clean=True)
    assert (again.log_end_offset, again.recovery_notes) == (90, [])
    assert again.segments.active.bytes_since_index_entry > 0
    append_batches(again, 1)
    assert again.log_end_offset == 93
    del data[len(data) - 10 :]
    again = open_it(memory, LogConfig(index_interval_bytes=200), clean=True)
    assert again.log_end_offset == 0, "damage at the end: then everything is looked at, and the first batch is damaged"


@pytest.mark.parametrize("extra", [0, 1, 2, 5])
def test_indexing_goes_on_where_a_clean_stop_left_off(extra: int) -> None:
    """The next index entry comes at the same batch as without the stop."""
    settings = LogConfig(index_interval_bytes=400)
    stopped, straight = memory_disk(), memory_disk()
    logs = [new_log(stopped.session(), settings), new_log(straight.session(), settings)]
    for log in logs:
        append_batches(log, 10 + extra)
    logs[0].close()
    logs[0] = open_it(stopped, settings, clean=True)
    for log in logs:
        append_batches(log, 20)
    assert list(logs[0].segments.active.offset_index.offsets) == list(logs[1].segments.active.offset_index.offsets)
    assert list(logs[0].segments.active.offset_index.positions) == list(logs[1].segments.active.offset_index.positions)


def test_epochs_come_from_the_batches_that_were_read() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    for epoch in (1, 1, 4, 7):
        append_batches(log, 1, epoch=epoch)
    memory.files[f"{DIRECTORY}/leader-epoch-checkpoint"].data[:] = b""
    assert open_it(memory).epochs.entries == [(1, 0), (4, 6), (7, 9)]
    data = memory.files[f"{DIRECTORY}/{segment_file_name(0, '.log')}"].data
    del data[len(data) - 5 :]
    again = open_it(memory)
    assert again.epochs.entries == [(1, 0), (4, 6)], "one whose batches are gone goes too"
    assert open_it(memory, clean=True).epochs.entries == [(1, 0), (4, 6)]


def test_opened_says_the_same_twice() -> None:
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
