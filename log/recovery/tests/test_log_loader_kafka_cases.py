"""Kafka's cases for opening a log, restated from their facts; each test names its case.

Source: the case names of ``LogLoaderTest.scala`` (apache/kafka 4.3.1). Not included:
testLogStartOffsetWhenRemoteStorageIsEnabled (there is no remote storage).
"""

from __future__ import annotations

import random

import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.log.checkpoints.checkpoint_files import CLEAN_SHUTDOWN_FILE, read_clean_shutdown_file
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.directory.meta_properties import MetaProperties
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.recovery.log_loader import open_log
from ottla.log.tests.log_fixtures import (
    DIRECTORY,
    NOW,
    SMALL,
    TOPIC_ID,
    append_batches,
    append_committed,
    expected_values,
    make_producer_batch,
    memory_disk,
    new_log,
    record_offsets,
    record_values,
    reopen_in_new_session,
)
from ottla.wire.record_batch.batch_header import iterate_batches, parse_header


def names(memory: MemoryDisk, suffix: str) -> list[int]:
    return sorted(int(p.rpartition("/")[2][:20]) for p in memory.files if p.endswith(suffix))


def reads_of(memory: MemoryDisk, **options: bool) -> list[str]:
    """Return the segments that are read while the log is opened."""
    session = memory.session()
    seen: list[str] = []

    def look(operation: str, path: str) -> None:
        if operation == "pread" and path.endswith(".log"):
            seen.append(path)

    session.fault = look
    open_log(session, DIRECTORY, "t", 0, SMALL, NOW, clean=options.get("clean", False))
    return seen


def test_open_log_after_crash_reads_all_segments() -> None:
    """testLogRecoveryIsCalledUponBrokerCrash: all segments are read after a crash, only the end after a clean stop."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 60)
    log.close()
    assert set(reads_of(memory, clean=True)) == {log.segments.active.path + ".log"}
    assert set(reads_of(memory)) == {s.path + ".log" for s in log.segments}


def test_clean_shutdown_file_is_removed_when_a_log_is_opened() -> None:
    """testCleanShutdownFile; the file is valid once: an interrupted start is no clean stop.

    Before the first log is opened the file stays: otherwise a controller would treat the directory as lost.
    """
    memory = memory_disk()
    directory = LogDirectory(memory.session(), "/data")
    directory.lock()
    directory.write_meta_properties(MetaProperties("c", 1, TOPIC_ID), NOW)
    directory.load_checkpoints()
    assert not directory.was_clean_shutdown
    directory.create_partition("t", 0, TOPIC_ID, SMALL, NOW)
    directory.close(7)
    assert f"/data/{CLEAN_SHUTDOWN_FILE}" in memory.files
    for _ in range(2):
        again = LogDirectory(memory.session(), "/data")
        again.load_checkpoints()
        assert (again.was_clean_shutdown, again.clean_shutdown_epoch) == (True, 7), "the file is only read"
    again.open_partition("t", 0, SMALL, NOW)
    assert again.clean_shutdown_epoch == 7, "epoch for the broker registration"
    assert read_clean_shutdown_file(memory.session(), "/data") is None
    assert f"/data/{CLEAN_SHUTDOWN_FILE}" not in memory.durable_files


def test_clean_shutdown_file_is_removed_by_new_log_or_on_request() -> None:
    for take in (
        lambda directory: directory.create_partition("u", 0, TOPIC_ID, SMALL, NOW),
        lambda directory: directory.remove_clean_shutdown_file(),
    ):
        memory = memory_disk()
        directory = LogDirectory(memory.session(), "/data")
        directory.lock()
        directory.load_checkpoints()
        directory.close(7)
        again = LogDirectory(memory.session(), "/data")
        again.load_checkpoints()
        take(again)
        assert read_clean_shutdown_file(memory.session(), "/data") is None


def test_recovery_after_unclean_shutdown_restores_producer_state() -> None:
    """testProducerSnapshotsRecoveryAfterUncleanShutdown: same state; snapshots above the new end are removed."""
    memory = memory_disk()
    log = new_log(memory.session())
    for number in range(60):
        append_committed(log, make_producer_batch(number % 3, number // 3))
    before = log.producers.pack()
    log.close()
    bases = log.segments.base_offsets[:]
    again = reopen_in_new_session(memory, point=bases[2])
    assert again.producers.pack() == before
    inode = memory.files[again.segments.active.path + ".log"]
    del inode.data[len(inode.data) // 2 :]
    cut = reopen_in_new_session(memory)
    assert cut.log_end_offset < 60
    assert max(names(memory, ".snapshot")) <= cut.log_end_offset
    last = {number % 3: number // 3 for number in range(cut.log_end_offset)}
    assert {pid: p.last_sequence for pid, p in cut.producers.producers.items()} == last


def test_truncate_without_producers_leaves_empty_producer_state() -> None:
    """testSkipLoadingIfEmptyProducerStateBeforeTruncation: truncating a log without producers leaves none."""
    log = new_log(memory_disk().session())
    append_batches(log, 10)
    log.truncate_to(12, NOW)
    assert not log.producers.producers
    assert log.log_end_offset == 12


def test_open_log_after_clean_shutdown_trusts_producer_snapshot() -> None:
    """testSkipTruncateAndReloadIfNewMessageFormatAndCleanShutdown: the snapshot is trusted, no batch is replayed."""
    memory = memory_disk()
    log = new_log(memory.session())
    for number in range(20):
        append_committed(log, make_producer_batch(5, number))
    log.close()
    path = f"{DIRECTORY}/{20:020d}.snapshot"
    states = ProducerStateManager.unpack(bytes(memory.files[path].data))
    states.producers[77] = states.producers[5]
    memory.files[path].data[:] = states.pack()
    assert 77 in reopen_in_new_session(memory, clean=True).producers.producers


@pytest.mark.parametrize("start", [1, 2])
def test_open_log_forgets_producers_below_log_start_within_segment(start: int) -> None:
    """testLoadProducersAfterDeleteRecordsMidSegment: producers below the log start are not restored."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_committed(log, make_producer_batch(1, 0))
    append_committed(log, make_producer_batch(2, 0))
    append_committed(log, make_producer_batch(3, 0))
    log.maybe_increment_log_start_offset(start)
    assert len(log.producers.producers) == 3, "no expiration while the log is open"
    again = reopen_in_new_session(memory, start=start)
    assert sorted(again.producers.producers) == list(range(start + 1, 4))


def test_open_log_forgets_producers_below_log_start_at_segment_boundary() -> None:
    """testLoadProducersAfterDeleteRecordsOnSegment: the same at a segment boundary, the older files deleted."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_committed(log, make_producer_batch(1, 0))
    log.roll(NOW)
    append_committed(log, make_producer_batch(2, 0))
    log.maybe_increment_log_start_offset(1)
    log.delete_segments_below_start(NOW)
    assert names(memory, ".log") == [1]
    again = reopen_in_new_session(memory, start=1)
    assert again.log_start_offset == 1
    assert 2 in again.producers.producers


def test_open_log_keeps_newest_stray_producer_snapshot() -> None:
    """testLoadingLogKeepsLargestStrayProducerStateSnapshot: of snapshots without a segment only the newest stays."""
    memory = memory_disk()
    log = new_log(memory.session())
    for number in range(5):
        append_committed(log, make_producer_batch(1, number))
        log.producers.write_snapshot(log.disk, log.directory, log.log_end_offset)
    assert names(memory, ".snapshot") == [1, 2, 3, 4, 5]
    reopen_in_new_session(memory)
    assert names(memory, ".snapshot") == [5]


def test_recovery_result_does_not_depend_on_recovery_point() -> None:
    """testLogRecoversToCorrectOffset: same end and same indexes for every recovery point."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 60)
    log.close()
    want = [(list(s.offset_index.offsets), list(s.time_index.timestamps)) for s in log.segments]
    for point in (0, 77, 180):
        again = reopen_in_new_session(memory, point=point)
        assert again.log_end_offset == 180
        got = []
        for s in again.segments:
            s.time_index.maybe_append(s.max_timestamp, s.max_timestamp_offset)
            got.append((list(s.offset_index.offsets), list(s.time_index.timestamps)))
        assert got == want


@pytest.mark.parametrize("damage", ["gone", "garbage"])
@pytest.mark.parametrize("clean", [True, False])
def test_open_log_missing_or_corrupt_index_is_rebuilt(damage: str, *, clean: bool) -> None:
    """testIndexRebuild, testCorruptIndexRebuild: lookups by offset and by timestamp return the same records."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 60)
    log.close()
    for path in [p for p in memory.files if p.endswith("index")]:
        if damage == "gone":
            del memory.files[path]
        else:
            memory.files[path].data[:] = b"  "
    again = reopen_in_new_session(memory, clean=clean)
    for offset in (0, 50, 179):
        part = again.read(offset, 1, 180, at_least_one=True)
        assert part is not None
        assert parse_header(part.read()).base_offset == offset // 3 * 3


def test_open_log_removes_index_files_without_segment() -> None:
    """testBogusIndexSegmentsAreRemoved: an index without its segment is removed, the others stay."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 1)
    disk = memory.session()
    for suffix in (".index", ".timeindex", ".txnindex"):
        disk.open(f"{DIRECTORY}/{5:020d}{suffix}", create=True).pwrite(b"bogus", 0)
    again = reopen_in_new_session(memory)
    assert names(memory, ".index") == names(memory, ".timeindex") == [0]
    append_batches(again, 60)
    assert again.log_end_offset == 183


def test_truncate_after_reopen_keeps_records_below_offset() -> None:
    """testReopenThenTruncate."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 60)
    log.close()
    again = reopen_in_new_session(memory, clean=True)
    again.truncate_to(3, NOW)
    assert (again.log_end_offset, again.segments.base_offsets) == (3, [0])
    assert record_values(again) == expected_values(3)


def test_open_log_removes_deleted_files() -> None:
    """testOpenDeletesObsoleteFiles: files that retention renamed but did not yet remove."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 60)
    disk = memory.session()
    for base in log.segments.base_offsets[:-1]:
        for suffix in (".log", ".index", ".timeindex"):
            path = f"{DIRECTORY}/{base:020d}{suffix}"
            disk.rename(path, path + ".deleted")
    again = reopen_in_new_session(memory, start=log.segments.base_offsets[-1])
    assert again.segments.base_offsets == [log.segments.base_offsets[-1]]
    assert not names(memory, ".deleted")


def test_recovery_corrupt_last_segment_keeps_records_before_damage() -> None:
    """testCorruptLog: damage at 50 random positions of the last segment; records before it are kept."""
    for seed in range(50):
        rng = random.Random(seed)
        memory = memory_disk(seed)
        log = new_log(memory.session())
        append_batches(log, rng.randrange(20, 80))
        path = log.segments.active.path + ".log"
        data = memory.files[path].data
        if not data:
            continue
        at = rng.randrange(len(data))
        for _ in range(rng.randrange(1, 5)):
            data[min(at + rng.randrange(20), len(data) - 1)] ^= rng.randrange(1, 256)
        data += rng.randbytes(rng.randrange(50))
        again = reopen_in_new_session(memory, point=log.segments.base_offsets[-1])
        kept = log.segments.active.base_offset + sum(1 for x in iterate_batches(bytes(data[:at]))) * 3
        assert again.log_end_offset >= kept, seed
        assert record_values(again) == expected_values(again.log_end_offset), seed
        append_batches(again, 10)
        assert record_values(again) == expected_values(again.log_end_offset), seed


def test_recovery_without_epoch_checkpoint_rebuilds_epochs() -> None:
    """testLogRecoversForLeaderEpoch: the start of each epoch is read from the batches again."""
    memory = memory_disk()
    log = new_log(memory.session())
    for epoch, count in ((1, 1), (2, 2), (3, 1)):
        append_batches(log, count, epoch=epoch)
    want = log.epochs.entries[:]
    del memory.files[f"{DIRECTORY}/leader-epoch-checkpoint"]
    again = reopen_in_new_session(memory)
    assert again.epochs.entries == want == [(1, 0), (2, 3), (3, 9)]


@pytest.mark.parametrize("clean", [True, False])
def test_open_log_end_below_start_restarts_empty_at_start(*, clean: bool) -> None:
    """testLogEndLessThanStartAfterReopen: the log restarts at its start, empty."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 20)
    log.maybe_increment_log_start_offset(50)
    log.close()
    for base in log.segments.base_offsets[1:]:
        for path in [p for p in memory.files if f"/{base:020d}." in p]:
            del memory.files[path]
    again = reopen_in_new_session(memory, start=50, clean=clean)
    assert (again.log_start_offset, again.log_end_offset, again.segments.base_offsets) == (50, 50, [50])
    append_batches(again, 1)
    assert record_offsets(again) == [50, 51, 52]


def test_recovery_of_corrupt_log_keeps_producer_snapshots_below_damage() -> None:
    """testCorruptedLogRecoveryDoesNotDeleteProducerStateSnapshotsPostRecovery: snapshots below the damage stay."""
    memory = memory_disk()
    log = new_log(memory.session())
    for number in range(120):
        append_committed(log, make_producer_batch(1, number))
    bases = log.segments.base_offsets[:]
    assert len(bases) > 4
    inode = memory.files[log.segments[-2].path + ".log"]
    del inode.data[len(inode.data) // 2 :]
    again = reopen_in_new_session(memory)
    assert again.segments.base_offsets == bases[:-1]
    assert set(bases[1:-1]) <= set(names(memory, ".snapshot"))
    assert max(names(memory, ".snapshot")) <= again.log_end_offset
