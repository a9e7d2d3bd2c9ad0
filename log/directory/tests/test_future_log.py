"""A copy of a log in another directory: it follows the log, and takes its place with all it knows."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from ottla.env.memory_disk import DiskSession, MemoryDisk
from ottla.log.directory.future_log import (
    append_missing,
    create_future_log,
    follow_offsets,
    list_future_dirs,
    read_missing,
    replace_current_with_future_log,
    skip_compacted_tail,
    truncate_to_common,
)
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.directory.meta_properties import MetaProperties
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import (
    COMPACTED,
    NOW,
    SMALL,
    TOPIC_ID,
    append_batches,
    expected_values,
    make_batch,
    memory_disk,
    record_values,
)
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import set_offset_and_epoch

AT = ("t", 0)
TAG = "0123456789abcdef" * 2


class FutureLogFixture:
    """A log in /a, and an empty copy of it in /b."""

    def __init__(self, settings: LogConfig = SMALL) -> None:
        self.memory: MemoryDisk = memory_disk()
        self.disk: DiskSession = self.memory.session()
        self.here, self.there = (LogDirectory(self.disk, path) for path in ("/b", "/a"))
        for number, directory in enumerate((self.here, self.there), 1):
            directory.lock()
            directory.write_meta_properties(MetaProperties("c", 1, bytes([number]) * 16), NOW)
            directory.load_checkpoints()
        self.current = self.there.create_partition("t", 0, TOPIC_ID, settings, NOW)
        self.future = create_future_log(self.here, "t", 0, TOPIC_ID, settings, NOW, TAG)
        self.here.add_log(self.future)

    def copy(self, most_bytes: int = 500, pieces: int = 10**6, *, was_cut: bool = False) -> int:
        """Copy so many pieces at most; gives how many there were."""
        truncate_to_common(self.future, self.current, NOW, was_cut=was_cut)
        done = 0
        while done < pieces and self.future.log_end_offset < self.current.log_end_offset:
            piece = read_missing(self.future, self.current, most_bytes)
            assert piece is not None
            append_missing(self.future, self.current, piece.read(), NOW)
            done += 1
        return done

    def swap(self) -> None:
        checkpoints = self.here.checkpoints
        write = checkpoints.cleaner.prepare_write(checkpoints.cleaner_offsets())
        if write is not None:
            write.run()
            assert checkpoints.cleaner.replace(write, checkpoints.cleaner_offsets())
            self.here.disk.fsync_dir(self.here.path)
            checkpoints.cleaner.complete_write(write)
        replace_current_with_future_log(self.here, self.future, self.current, NOW)

    def same(self) -> bool:
        return batches(self.future) == batches(self.current)


def batches(log: PartitionLog) -> list[bytes]:
    return [bytes(raw) for _, raw in log.segments.batches(log.log_start_offset)]


def test_the_directory_is_named_as_kafka_names_it_and_found_again() -> None:
    stage = FutureLogFixture()
    assert stage.future.directory == f"/b/t-0.{TAG}-future"
    assert (stage.future.is_future, stage.current.is_future) == (True, False)
    for name in ("t-1", f"t-1.{TAG}-delete", f"a.b-c-12.{TAG}-future", "x-future", f"t-x.{TAG}-future"):
        stage.disk.makedirs(f"/b/{name}")
    stage.disk.open(f"/b/t-2.{TAG}-future", create=True)
    assert list(list_future_dirs(stage.here)) == [
        (("a.b-c", 12), f"/b/a.b-c-12.{TAG}-future"),
        (AT, f"/b/t-0.{TAG}-future"),
    ]
    assert stage.here.partition_dirs() == {("t", 1): "/b/t-1"}


@pytest.mark.parametrize("most_bytes", [1, 137, 500, 5000])
def test_a_copy_is_filled_piece_by_piece_over_segments_while_the_log_grows(most_bytes: int) -> None:
    stage = FutureLogFixture()
    append_batches(stage.current, 40)
    assert stage.copy(most_bytes, 3) == 3
    append_batches(stage.current, 10)
    stage.copy(most_bytes)
    assert stage.same()
    assert record_values(stage.future) == expected_values(150)
    assert stage.future.high_watermark == stage.current.high_watermark == 150
    assert len(stage.future.segments) > 2
    assert stage.copy(most_bytes) == 0


def epochs(log: PartitionLog, *each: int) -> None:
    """A batch of each of these leader epochs."""
    for epoch in each:
        log.append_as_leader(make_batch(log.log_end_offset, 3), epoch, NOW)


@pytest.mark.parametrize(
    ("before", "cut", "after", "kept"),
    [
        ([1, 1, 1], 3, [2, 2], 3),  # cut and written anew under a later epoch
        ([1, 1, 1], 3, [], 3),  # cut, and nothing since
        ([1, 1, 2, 2], 3, [3], 3),  # a whole epoch is gone, and the end of the one before it
        ([1, 1, 2, 2], 6, [4, 4, 4], 6),  # exactly an epoch is gone
        ([1, 2, 3], 0, [5], 0),  # everything is
        ([1, 2, 3], 9, [3, 4], 9),  # nothing is
    ],
)
def test_what_is_cut_off_the_log_is_cut_off_the_copy_whatever_was_written_since(
    before: list[int], cut: int, after: list[int], kept: int
) -> None:
    stage = FutureLogFixture()
    epochs(stage.current, *before)
    stage.copy()
    stage.current.truncate_to(cut, NOW)
    epochs(stage.current, *after)
    truncate_to_common(stage.future, stage.current, NOW, was_cut=True)
    assert stage.future.log_end_offset == kept
    stage.copy()
    assert stage.same()
    assert stage.future.epochs.entries == stage.current.epochs.entries


def test_a_log_that_began_anew_elsewhere_has_a_copy_that_does() -> None:
    stage = FutureLogFixture()
    epochs(stage.current, 1, 1)
    stage.copy()
    for offset in (100, 50):
        stage.current.truncate_fully_and_start_at(offset, NOW)
        stage.copy()
        assert (stage.future.log_start_offset, stage.future.log_end_offset) == (offset, offset)
    epochs(stage.current, 3)
    stage.copy()
    assert stage.same()


def test_a_log_that_was_cut_below_its_start_and_filled_again_has_a_copy_of_all_of_that() -> None:
    """A new leader's log may begin before the one of the leader before it did."""
    stage = FutureLogFixture()
    stage.current.truncate_fully_and_start_at(100, NOW)
    epochs(stage.current, 3, 3)
    stage.copy()
    stage.current.truncate_to(50, NOW)
    epochs(stage.current, 3, 3, 3)
    stage.copy()
    assert (stage.future.log_start_offset, stage.future.log_end_offset) == (50, 59)
    assert stage.same()


def test_what_is_deleted_of_the_log_is_not_copied_and_goes_from_the_copy() -> None:
    stage = FutureLogFixture()
    append_batches(stage.current, 30)
    stage.current.maybe_increment_log_start_offset(40)
    stage.current.delete_segments_below_start(NOW)
    stage.copy(pieces=2)
    assert stage.future.log_start_offset == 40
    assert stage.future.segments.base_offsets[0] == 39, "from the batch that holds the start"
    stage.current.maybe_increment_log_start_offset(70)
    stage.current.delete_segments_below_start(NOW)
    stage.copy()
    assert (stage.future.log_start_offset, stage.future.log_end_offset) == (70, 90)
    assert stage.same()


def test_batches_without_epochs_are_copied_anew_where_the_log_may_have_been_cut() -> None:
    stage = FutureLogFixture()
    epochs(stage.current, -1, -1)
    stage.copy()
    truncate_to_common(stage.future, stage.current, NOW, was_cut=False)
    assert stage.future.log_end_offset == 6
    truncate_to_common(stage.future, stage.current, NOW, was_cut=True)
    assert stage.future.log_end_offset == 0


def test_bytes_that_were_torn_on_the_way_are_refused() -> None:
    stage = FutureLogFixture()
    append_batches(stage.current, 3)
    piece = read_missing(stage.future, stage.current, 5000)
    assert piece is not None
    raw = bytearray(piece.read())
    raw[-1] ^= 1
    with pytest.raises(ProtocolError) as caught:
        append_missing(stage.future, stage.current, raw, NOW)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert stage.future.log_end_offset == 0


def test_the_copy_takes_the_place_with_all_that_is_known_of_the_log() -> None:
    stage = FutureLogFixture()
    stage.current.append_as_leader(make_batch(0, 3, producer_id=7, producer_epoch=0, base_sequence=0), 2, NOW)
    append_batches(stage.current, 3, epoch=2)
    stage.current.maybe_increment_log_start_offset(9)
    stage.current.delete_segments_below_start(NOW)
    stage.current.assign_epoch_start_offset(5)
    stage.copy()
    assert stage.future.producers.producers.entry(7) is None, "its records are gone"
    settings = replace(SMALL, retention_ms=1)
    stage.current.update_config(settings)
    stage.swap()
    future = stage.future
    assert future.directory == "/b/t-0"
    assert not future.is_future
    assert (future.log_start_offset, future.high_watermark, future.log_end_offset) == (9, 12, 12)
    assert future.epochs.entries == stage.current.epochs.entries == [(2, 9), (5, 12)]
    assert future.config is settings
    again = future.append_as_leader(make_batch(0, 3, producer_id=7, producer_epoch=0, base_sequence=0), 5, NOW)
    assert again.duplicate, "who sends it again is known still"
    append_batches(future, 1, epoch=5)
    assert not [path for path in stage.disk.listdir("/b") if path.endswith("-future")]


def test_a_start_within_a_segment_is_noted_before_the_name_changes() -> None:
    stage = FutureLogFixture()
    append_batches(stage.current, 4)
    stage.current.maybe_increment_log_start_offset(7)
    stage.copy()
    stage.swap()
    (log,) = reopened(stage.memory, "/b")
    assert (log.directory, log.log_start_offset, log.log_end_offset) == ("/b/t-0", 7, 12)


def reopened(memory: MemoryDisk, path: str, settings: LogConfig = SMALL) -> list[PartitionLog]:
    """What the next process finds in a directory."""
    directory = LogDirectory(memory.session(), path)
    directory.load_checkpoints()
    return [directory.open_partition(*at, settings, NOW) for at in directory.partition_dirs()]


@pytest.mark.parametrize("seed", range(10))
def test_what_is_synced_of_a_copy_survives_a_power_cut_under_either_name(seed: int) -> None:
    stage = FutureLogFixture()
    stage.memory.random_source = random.Random(seed)
    append_batches(stage.current, 20)
    stage.copy()
    stage.future.flush()
    swapped = seed % 2 == 0
    if swapped:
        stage.swap()
    stage.memory.lose_power()
    directory = LogDirectory(stage.memory.session(), "/b")
    directory.load_checkpoints()
    (name,) = (x for x in directory.disk.listdir("/b") if x.startswith("t-0"))
    assert name in ("t-0", f"t-0.{TAG}-future")[not swapped :], "its new name may be lost, but no more than that"
    log = directory.open_partition_directory(f"/b/{name}", "t", 0, SMALL, NOW)
    assert record_values(log) == expected_values(60)


def test_a_compacted_log_with_holes_is_copied_as_it_is() -> None:
    stage = FutureLogFixture(COMPACTED)
    epochs(stage.current, 1)
    for offset in (10, 20, 31):
        raw = make_batch(offset, 2)
        set_offset_and_epoch(raw, 0, offset, 1)
        stage.current.append_as_follower(raw, NOW)
    stage.copy(1)
    assert stage.same()
    assert stage.future.log_end_offset == 33


def test_holes_of_a_log_that_is_compacted_no_more_are_no_damage_in_the_other_directory() -> None:
    stage = FutureLogFixture()
    for offset in (0, 10, 20, 31):
        raw = make_batch(offset, 2)
        set_offset_and_epoch(raw, 0, offset, 1)
        stage.current.append_as_follower(raw, NOW)
    stage.future.raise_cleaner_offset(stage.current.cleaner_offset)
    stage.copy()
    with pytest.raises(AssertionError):  # the disk must know of them first
        replace_current_with_future_log(stage.here, stage.future, stage.current, NOW)
    stage.swap()
    (log,) = reopened(stage.memory, "/b")
    assert [offset for offset, _ in record_values(log)] == [0, 1, 10, 11, 20, 21, 31, 32]
    assert log.cleaner_offset == 31


@pytest.mark.parametrize("settings", [SMALL, COMPACTED])
@pytest.mark.parametrize("count", [0, 40])
def test_a_copy_of_a_log_that_ends_in_a_hole_ends_there_too_and_does_after_a_crash(
    settings: LogConfig, count: int
) -> None:
    stage = FutureLogFixture(settings)
    append_batches(stage.current, count)
    end = stage.current.log_end_offset
    stage.current.epochs.assign(7, end + 5)
    stage.current.roll_past_gap(end + 60, NOW)
    stage.future.raise_cleaner_offset(stage.current.cleaner_offset)
    while stage.future.log_end_offset < end:
        piece = read_missing(stage.future, stage.current, 500)
        assert piece is not None
        append_missing(stage.future, stage.current, piece.read(), NOW)
    assert read_missing(stage.future, stage.current, 500) is None
    skip_compacted_tail(stage.future, stage.current, NOW)
    truncate_to_common(stage.future, stage.current, NOW, was_cut=False)
    assert stage.future.log_end_offset == end + 60
    stage.swap()
    (log,) = reopened(stage.memory, "/b", settings)
    assert (log.log_end_offset, log.epochs.latest_epoch()) == (end + 60, 7)
    assert record_values(log) == record_values(stage.current)


def test_where_something_should_be_and_is_not_the_log_is_damaged() -> None:
    stage = FutureLogFixture()
    append_batches(stage.current, 4)
    with pytest.raises(ProtocolError, match="nothing can be read from offset 0 on"):
        skip_compacted_tail(stage.future, stage.current, NOW)


def test_a_renamed_log_is_read_by_who_holds_it_still() -> None:
    stage = FutureLogFixture()
    append_batches(stage.current, 30)
    stage.current.close_files()
    target = stage.there.rename_for_deletion("t", 0, "tag")
    assert stage.current.directory == target
    assert record_values(stage.current) == expected_values(90)
    assert stage.current.closed


def test_a_batch_that_ends_behind_the_file_is_damage_and_not_asked_for_again_and_again() -> None:
    stage = FutureLogFixture()
    append_batches(stage.current, 1)
    file = stage.current.segments.active.file
    length = int.from_bytes(file.pread(4, 8), "big")
    file.pwrite((length + 1000).to_bytes(4, "big"), 8)
    with pytest.raises(ProtocolError) as refused:
        read_missing(stage.future, stage.current, 500)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(ProtocolError) as refused:
        append_missing(stage.future, stage.current, file.pread(500, 0), NOW)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_files_that_were_retired_are_found_under_the_new_name() -> None:
    stage = FutureLogFixture()
    append_batches(stage.current, 60)
    stage.copy()
    stage.current.set_high_watermark(stage.current.log_end_offset)
    stage.current.maybe_increment_log_start_offset(stage.current.segments.base_offsets[2])
    follow_offsets(stage.future, stage.current, NOW)
    assert stage.future.segments.retired_files
    stage.swap()
    paths = [path for _, path in stage.future.segments.retired_files]
    assert paths
    assert all(stage.disk.exists(path) for path in paths)


def test_as_long_as_it_has_not_taken_its_place_the_log_and_the_copy_have_their_own_producers() -> None:
    stage = FutureLogFixture()
    append_batches(stage.current, 4)
    stage.current.maybe_increment_log_start_offset(2)
    stage.copy()

    def fault(_: str, path: str) -> OSError | None:
        return OSError(errno.EMFILE, "injected", path) if path.startswith("/b/log-start") else None

    stage.disk.fault = fault
    with pytest.raises(OSError, match="injected"):
        stage.swap()
    assert stage.future.is_future
    assert stage.future.producers is not stage.current.producers
    assert stage.future.producers.verification_states is not stage.current.producers.verification_states
    stage.disk.fault = None
    stage.swap()
    assert stage.future.producers is stage.current.producers
