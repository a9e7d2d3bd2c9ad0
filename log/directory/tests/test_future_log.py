"""Future log in another directory: follows the current log and replaces it with all state."""

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
    """Log in /a, and an empty future log of it in /b."""

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
        """Copy at most `pieces` pieces; return their number."""
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


def test_future_log_directory_has_kafkas_name_and_is_listed() -> None:
    fixture = FutureLogFixture()
    assert fixture.future.directory == f"/b/t-0.{TAG}-future"
    assert (fixture.future.is_future, fixture.current.is_future) == (True, False)
    for name in ("t-1", f"t-1.{TAG}-delete", f"a.b-c-12.{TAG}-future", "x-future", f"t-x.{TAG}-future"):
        fixture.disk.makedirs(f"/b/{name}")
    fixture.disk.open(f"/b/t-2.{TAG}-future", create=True)
    assert list(list_future_dirs(fixture.here)) == [
        (("a.b-c", 12), f"/b/a.b-c-12.{TAG}-future"),
        (AT, f"/b/t-0.{TAG}-future"),
    ]
    assert fixture.here.partition_dirs() == {("t", 1): "/b/t-1"}


@pytest.mark.parametrize("most_bytes", [1, 137, 500, 5000])
def test_future_log_copy_in_pieces_follows_growing_log(most_bytes: int) -> None:
    fixture = FutureLogFixture()
    append_batches(fixture.current, 40)
    assert fixture.copy(most_bytes, 3) == 3
    append_batches(fixture.current, 10)
    fixture.copy(most_bytes)
    assert fixture.same()
    assert record_values(fixture.future) == expected_values(150)
    assert fixture.future.high_watermark == fixture.current.high_watermark == 150
    assert len(fixture.future.segments) > 2
    assert fixture.copy(most_bytes) == 0


def epochs(log: PartitionLog, *each: int) -> None:
    """Append a batch for each leader epoch."""
    for epoch in each:
        log.append_as_leader(make_batch(log.log_end_offset, 3), epoch, NOW)


@pytest.mark.parametrize(
    ("before", "cut", "after", "kept"),
    [
        ([1, 1, 1], 3, [2, 2], 3),  # truncated, then appended under a later epoch
        ([1, 1, 1], 3, [], 3),  # truncated, without later appends
        ([1, 1, 2, 2], 3, [3], 3),  # a whole epoch and the end of the previous epoch are truncated
        ([1, 1, 2, 2], 6, [4, 4, 4], 6),  # exactly one epoch is truncated
        ([1, 2, 3], 0, [5], 0),  # all records are truncated
        ([1, 2, 3], 9, [3, 4], 9),  # no record is truncated
    ],
)
def test_truncate_to_common_removes_truncated_records_from_future_log(
    before: list[int], cut: int, after: list[int], kept: int
) -> None:
    fixture = FutureLogFixture()
    epochs(fixture.current, *before)
    fixture.copy()
    fixture.current.truncate_to(cut, NOW)
    epochs(fixture.current, *after)
    truncate_to_common(fixture.future, fixture.current, NOW, was_cut=True)
    assert fixture.future.log_end_offset == kept
    fixture.copy()
    assert fixture.same()
    assert fixture.future.epochs.entries == fixture.current.epochs.entries


def test_future_log_copy_follows_fully_truncated_log() -> None:
    fixture = FutureLogFixture()
    epochs(fixture.current, 1, 1)
    fixture.copy()
    for offset in (100, 50):
        fixture.current.truncate_fully_and_start_at(offset, NOW)
        fixture.copy()
        assert (fixture.future.log_start_offset, fixture.future.log_end_offset) == (offset, offset)
    epochs(fixture.current, 3)
    fixture.copy()
    assert fixture.same()


def test_future_log_copy_follows_log_truncated_below_its_start() -> None:
    """The log of a new leader may begin before the log of the previous leader."""
    fixture = FutureLogFixture()
    fixture.current.truncate_fully_and_start_at(100, NOW)
    epochs(fixture.current, 3, 3)
    fixture.copy()
    fixture.current.truncate_to(50, NOW)
    epochs(fixture.current, 3, 3, 3)
    fixture.copy()
    assert (fixture.future.log_start_offset, fixture.future.log_end_offset) == (50, 59)
    assert fixture.same()


def test_future_log_copy_follows_deleted_records() -> None:
    fixture = FutureLogFixture()
    append_batches(fixture.current, 30)
    fixture.current.maybe_increment_log_start_offset(40)
    fixture.current.delete_segments_below_start(NOW)
    fixture.copy(pieces=2)
    assert fixture.future.log_start_offset == 40
    assert fixture.future.segments.base_offsets[0] == 39, "starts at the batch with the log start offset"
    fixture.current.maybe_increment_log_start_offset(70)
    fixture.current.delete_segments_below_start(NOW)
    fixture.copy()
    assert (fixture.future.log_start_offset, fixture.future.log_end_offset) == (70, 90)
    assert fixture.same()


def test_truncate_to_common_without_epochs_restarts_only_after_truncation() -> None:
    fixture = FutureLogFixture()
    epochs(fixture.current, -1, -1)
    fixture.copy()
    truncate_to_common(fixture.future, fixture.current, NOW, was_cut=False)
    assert fixture.future.log_end_offset == 6
    truncate_to_common(fixture.future, fixture.current, NOW, was_cut=True)
    assert fixture.future.log_end_offset == 0


def test_append_missing_damaged_bytes_raises_corrupt_message() -> None:
    fixture = FutureLogFixture()
    append_batches(fixture.current, 3)
    piece = read_missing(fixture.future, fixture.current, 5000)
    assert piece is not None
    raw = bytearray(piece.read())
    raw[-1] ^= 1
    with pytest.raises(ProtocolError) as caught:
        append_missing(fixture.future, fixture.current, raw, NOW)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert fixture.future.log_end_offset == 0


def test_replace_current_with_future_log_keeps_all_state() -> None:
    fixture = FutureLogFixture()
    fixture.current.append_as_leader(make_batch(0, 3, producer_id=7, producer_epoch=0, base_sequence=0), 2, NOW)
    append_batches(fixture.current, 3, epoch=2)
    fixture.current.maybe_increment_log_start_offset(9)
    fixture.current.delete_segments_below_start(NOW)
    fixture.current.assign_epoch_start_offset(5)
    fixture.copy()
    assert fixture.future.producers.producers.entry(7) is None, "records of the producer are deleted"
    settings = replace(SMALL, retention_ms=1)
    fixture.current.update_config(settings)
    fixture.swap()
    future = fixture.future
    assert future.directory == "/b/t-0"
    assert not future.is_future
    assert (future.log_start_offset, future.high_watermark, future.log_end_offset) == (9, 12, 12)
    assert future.epochs.entries == fixture.current.epochs.entries == [(2, 9), (5, 12)]
    assert future.config is settings
    again = future.append_as_leader(make_batch(0, 3, producer_id=7, producer_epoch=0, base_sequence=0), 5, NOW)
    assert again.duplicate, "a retry is recognized as a duplicate"
    append_batches(future, 1, epoch=5)
    assert not [path for path in fixture.disk.listdir("/b") if path.endswith("-future")]


def test_replace_current_with_future_log_writes_start_within_segment_before_rename() -> None:
    fixture = FutureLogFixture()
    append_batches(fixture.current, 4)
    fixture.current.maybe_increment_log_start_offset(7)
    fixture.copy()
    fixture.swap()
    (log,) = reopened(fixture.memory, "/b")
    assert (log.directory, log.log_start_offset, log.log_end_offset) == ("/b/t-0", 7, 12)


def reopened(memory: MemoryDisk, path: str, settings: LogConfig = SMALL) -> list[PartitionLog]:
    """Return the logs that the next process opens in a directory."""
    directory = LogDirectory(memory.session(), path)
    directory.load_checkpoints()
    return [directory.open_partition(*at, settings, NOW) for at in directory.partition_dirs()]


@pytest.mark.parametrize("seed", range(10))
def test_future_log_synced_records_survive_power_loss_under_either_name(seed: int) -> None:
    fixture = FutureLogFixture()
    fixture.memory.random_source = random.Random(seed)
    append_batches(fixture.current, 20)
    fixture.copy()
    fixture.future.flush()
    swapped = seed % 2 == 0
    if swapped:
        fixture.swap()
    fixture.memory.lose_power()
    directory = LogDirectory(fixture.memory.session(), "/b")
    directory.load_checkpoints()
    (name,) = (x for x in directory.disk.listdir("/b") if x.startswith("t-0"))
    assert name in ("t-0", f"t-0.{TAG}-future")[not swapped :], "only the rename may be lost"
    log = directory.open_partition_directory(f"/b/{name}", "t", 0, SMALL, NOW)
    assert record_values(log) == expected_values(60)


def test_future_log_copy_of_compacted_log_keeps_offset_gaps() -> None:
    fixture = FutureLogFixture(COMPACTED)
    epochs(fixture.current, 1)
    for offset in (10, 20, 31):
        raw = make_batch(offset, 2)
        set_offset_and_epoch(raw, 0, offset, 1)
        fixture.current.append_as_follower(raw, NOW)
    fixture.copy(1)
    assert fixture.same()
    assert fixture.future.log_end_offset == 33


def test_future_log_copy_of_formerly_compacted_log_keeps_offset_gaps() -> None:
    fixture = FutureLogFixture()
    for offset in (0, 10, 20, 31):
        raw = make_batch(offset, 2)
        set_offset_and_epoch(raw, 0, offset, 1)
        fixture.current.append_as_follower(raw, NOW)
    fixture.future.raise_cleaner_offset(fixture.current.cleaner_offset)
    fixture.copy()
    with pytest.raises(AssertionError):  # the cleaner offset must be durable first
        replace_current_with_future_log(fixture.here, fixture.future, fixture.current, NOW)
    fixture.swap()
    (log,) = reopened(fixture.memory, "/b")
    assert [offset for offset, _ in record_values(log)] == [0, 1, 10, 11, 20, 21, 31, 32]
    assert log.cleaner_offset == 31


@pytest.mark.parametrize("settings", [SMALL, COMPACTED])
@pytest.mark.parametrize("count", [0, 40])
def test_skip_compacted_tail_extends_future_log_to_same_end(settings: LogConfig, count: int) -> None:
    fixture = FutureLogFixture(settings)
    append_batches(fixture.current, count)
    end = fixture.current.log_end_offset
    fixture.current.epochs.assign(7, end + 5)
    fixture.current.roll_past_gap(end + 60, NOW)
    fixture.future.raise_cleaner_offset(fixture.current.cleaner_offset)
    while fixture.future.log_end_offset < end:
        piece = read_missing(fixture.future, fixture.current, 500)
        assert piece is not None
        append_missing(fixture.future, fixture.current, piece.read(), NOW)
    assert read_missing(fixture.future, fixture.current, 500) is None
    skip_compacted_tail(fixture.future, fixture.current, NOW)
    truncate_to_common(fixture.future, fixture.current, NOW, was_cut=False)
    assert fixture.future.log_end_offset == end + 60
    fixture.swap()
    (log,) = reopened(fixture.memory, "/b", settings)
    assert (log.log_end_offset, log.epochs.latest_epoch()) == (end + 60, 7)
    assert record_values(log) == record_values(fixture.current)


def test_skip_compacted_tail_missing_records_raises_protocol_error() -> None:
    fixture = FutureLogFixture()
    append_batches(fixture.current, 4)
    with pytest.raises(ProtocolError, match="no records can be read from offset 0"):
        skip_compacted_tail(fixture.future, fixture.current, NOW)


def test_rename_for_deletion_open_log_stays_readable() -> None:
    fixture = FutureLogFixture()
    append_batches(fixture.current, 30)
    fixture.current.close_files()
    target = fixture.there.rename_for_deletion("t", 0, "tag")
    assert fixture.current.directory == target
    assert record_values(fixture.current) == expected_values(90)
    assert fixture.current.closed


def test_read_missing_batch_beyond_end_of_file_raises_corrupt_message() -> None:
    fixture = FutureLogFixture()
    append_batches(fixture.current, 1)
    file = fixture.current.segments.active.file
    length = int.from_bytes(file.pread(4, 8), "big")
    file.pwrite((length + 1000).to_bytes(4, "big"), 8)
    with pytest.raises(ProtocolError) as refused:
        read_missing(fixture.future, fixture.current, 500)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(ProtocolError) as refused:
        append_missing(fixture.future, fixture.current, file.pread(500, 0), NOW)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_replace_current_with_future_log_moves_retired_files() -> None:
    fixture = FutureLogFixture()
    append_batches(fixture.current, 60)
    fixture.copy()
    fixture.current.set_high_watermark(fixture.current.log_end_offset)
    fixture.current.maybe_increment_log_start_offset(fixture.current.segments.base_offsets[2])
    follow_offsets(fixture.future, fixture.current, NOW)
    assert fixture.future.segments.retired_files
    fixture.swap()
    paths = [path for _, path in fixture.future.segments.retired_files]
    assert paths
    assert all(fixture.disk.exists(path) for path in paths)


def test_replace_current_with_future_log_failure_keeps_separate_producer_state() -> None:
    fixture = FutureLogFixture()
    append_batches(fixture.current, 4)
    fixture.current.maybe_increment_log_start_offset(2)
    fixture.copy()

    def fault(_: str, path: str) -> OSError | None:
        return OSError(errno.EMFILE, "injected", path) if path.startswith("/b/log-start") else None

    fixture.disk.fault = fault
    with pytest.raises(OSError, match="injected"):
        fixture.swap()
    assert fixture.future.is_future
    assert fixture.future.producers is not fixture.current.producers
    assert fixture.future.producers.verification_states is not fixture.current.producers.verification_states
    fixture.disk.fault = None
    fixture.swap()
    assert fixture.future.producers is fixture.current.producers
