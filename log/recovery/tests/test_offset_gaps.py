"""Offsets that are missing between two segments: the work of compaction, or what a power cut took."""

from __future__ import annotations

import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.log.checkpoints.checkpoint_files import CLEANER_OFFSET_CHECKPOINT, write_offsets
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.directory.tests.test_log_directory import begun, opened_again, saying
from ottla.log.recovery.tests.test_log_loader import Batches, laid, names, open_it
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
    """A compacted log of six records in a segment that is full, and three behind it."""
    memory = memory_disk()
    directory = begun(memory.session())
    log = directory.create_partition("t", 0, TOPIC_ID, COMPACTED, NOW)
    append_batches(log, 2)
    log.roll(NOW)
    append_batches(log, 1)
    return memory, directory


@pytest.mark.parametrize(
    ("file", "kept"),
    [
        (b"0\n0\n", False),
        (b"", False),  # as Kafka makes it
        (b"0\n1\nu 0 99\n", False),
        (b"0\n1\nt 0 4\n", True),
        (b"nonsense", True),
        (None, True),
    ],
)
def test_a_hole_in_a_compacted_log_is_a_loss_unless_it_may_be_the_work_of_the_cleaner(
    file: bytes | None, *, kept: bool
) -> None:
    """A power cut took the end of a segment that was just full, and not the empty one behind it."""
    memory, _ = two_segments()
    first = memory.files["/data/t-0/00000000000000000000.log"].data
    del first[len(first) // 2 :]
    path = f"/data/{CLEANER_OFFSET_CHECKPOINT}"
    assert saying(memory, CLEANER_OFFSET_CHECKPOINT) == {}, "a directory without logs gets a file"
    if file is None:
        memory.session().unlink(path)
    else:
        memory.files[path].data[:] = file
    assert record_offsets(opened_again(memory, COMPACTED)[1][0]) == ([0, 1, 2, 6, 7, 8] if kept else [0, 1, 2])


def test_a_batch_that_is_older_than_its_epoch_as_noted_is_told_of_under_its_own() -> None:
    """It was cut, and a power cut before a sync brought it back: under the newer epoch no leader would have it cut."""
    memory = memory_disk()
    log = new_log(memory.session(), SMALL)
    append_batches(log, 1)
    log.truncate_to(0, NOW)
    log.epochs.assign(3, 0)
    write_segment_file(memory, 0, [(0, 3)])
    again = open_it(memory)
    assert (again.log_end_offset, again.epochs.latest_epoch()) == (3, 0)


@pytest.mark.parametrize("known", [True, False])
def test_an_exchange_gone_on_with_is_noted_for_good_where_others_are(*, known: bool) -> None:
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
        assert record_offsets(opened_again(memory, COMPACTED)[1][0]) == [0, 1, 2, 6, 7, 8]
    if known:
        assert saying(memory, CLEANER_OFFSET_CHECKPOINT) == {("t", 0): 6, ("u", 1): 5}
    else:
        assert bytes(memory.files[f"/data/{CLEANER_OFFSET_CHECKPOINT}"].data) == b"nonsense", (
            "of the others nothing is known"
        )


@pytest.mark.parametrize(
    ("swaps", "others", "told", "found"),
    [
        ([(0, [(0, 2)])], [(0, [(0, 3)]), (3, [(3, 3)])], [3], [0, 1, 3, 4, 5]),
        # Of several the last; before each there may be a hole.
        ([(0, [(0, 2)]), (3, [(3, 1)])], [(0, [(0, 3)]), (3, [(3, 3)]), (6, [(6, 3)])], [6], [0, 1, 3, 6, 7, 8]),
        ([], [(0, [(0, 3)]), (3, [(3, 3)])], [], list(range(6))),
    ],
)
def test_where_an_exchange_is_gone_on_with_is_told_before_its_segments_have_their_names(
    swaps: list[tuple[int, Batches]], others: list[tuple[int, Batches]], told: list[int], found: list[int]
) -> None:
    """Else a second crash would leave a hole of which nothing tells, and the next start takes it for a loss."""
    memory = laid(*others)
    for base, batches in swaps:
        write_segment_file(memory, base, batches, ".swap")
    heard: list[int] = []

    def hear(below: int) -> None:
        heard.append(below)
        assert [n for n in names(memory) if n.endswith(".log.swap")]

    log = open_it(memory, COMPACTED, compacted_below=0, on_swaps=hear)
    assert (heard, record_offsets(log)) == (told, found)


@pytest.mark.parametrize("compact", [True, False])
def test_in_a_copy_segments_adjoin_wherever_what_it_is_a_copy_of_was_compacted(*, compact: bool) -> None:
    """A copy takes holes along within its segments; between two of them it has lost something in a power cut."""
    settings = COMPACTED if compact else SMALL
    whole = laid((0, [(1, 2)]), (3, [(5, 1), (8, 3)]), (11, [(12, 3)]))
    assert record_offsets(open_it(whole, settings, compacted_below=15, adjoin=True)) == [1, 2, 5, 8, 9, 10, 12, 13, 14]
    for lost in (laid((0, [(1, 2)]), (11, [(12, 3)])), laid((0, [(1, 2)]), (3, [(5, 1)]), (11, [(12, 3)]))):
        log = open_it(lost, settings, compacted_below=15, adjoin=True)
        assert log.log_end_offset == (6 if 5 in record_offsets(log) else 3)


@pytest.mark.parametrize("returned", ["not its neighbour", "damaged", "of a later epoch"])
def test_a_segment_below_the_log_start_that_a_power_cut_brought_back_costs_no_later_one(returned: str) -> None:
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


def test_a_log_start_above_the_records_that_are_left_excuses_no_gap_above_it() -> None:
    """A power cut took the end of a segment from which records were deleted, and not the next segment."""
    memory = memory_disk()
    begun(memory.session()).create_partition("t", 0, TOPIC_ID, SMALL, NOW)
    directory, logs = opened_again(memory, SMALL)
    append_batches(logs[0], 3)
    logs[0].maybe_increment_log_start_offset(4)
    directory.checkpoints.write()
    directory, logs = opened_again(memory, SMALL)
    logs[0].roll(NOW)
    append_batches(logs[0], 1)
    directory.checkpoints.write()
    first = memory.files["/data/t-0/00000000000000000000.log"].data
    del first[len(first) // 3 :]  # whole batches are left
    again = opened_again(memory, SMALL)[1][0]
    assert (again.log_start_offset, again.log_end_offset, record_offsets(again)) == (4, 4, [])
