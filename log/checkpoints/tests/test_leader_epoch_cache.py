"""Rules of the leader epoch cache and the checkpoint files (``LeaderEpochFileCache``, ``CheckpointFile``)."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from ottla.env.disk import read_file, write_file
from ottla.env.memory_disk import DiskSession
from ottla.log.checkpoints.checkpoint_files import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA_FILE,
    CorruptFile,
    read_clean_shutdown_file,
    read_epochs,
    read_offsets,
    read_partition_metadata,
    read_properties,
    remove_clean_shutdown_file,
    write_clean_shutdown_file,
    write_epochs,
    write_offsets,
    write_partition_metadata,
    write_properties,
)
from ottla.log.checkpoints.leader_epoch_cache import LeaderEpochFileCache
from ottla.log.recovery.log_loader import open_log
from ottla.log.tests.log_fixtures import DIRECTORY, NOW, SMALL, make_batch, memory_disk, new_log

Entries = list[tuple[int, int]]


def epochs(entries: Entries, disk: DiskSession | None = None) -> LeaderEpochFileCache:
    disk = disk or memory_disk().session()
    disk.makedirs("/d")
    write_epochs(disk, f"/d/{LEADER_EPOCH_CHECKPOINT}", entries, sync=False)
    return LeaderEpochFileCache(disk, "/d")


@pytest.mark.parametrize(
    ("before", "epoch", "start", "after"),
    [
        ([], 0, 0, [(0, 0)]),
        ([], -1, 0, []),  # a batch of an old format has no epoch
        ([(0, 0)], 0, 5, [(0, 0)]),  # the epoch began before
        ([(3, 5)], 2, 9, [(3, 5)]),  # an older epoch adds no entry
        ([(0, 0)], 1, 5, [(0, 0), (1, 5)]),
        ([(0, 0), (1, 5)], 2, 5, [(0, 0), (2, 5)]),  # an epoch without a batch is removed
        ([(0, 0), (1, 5)], 2, 4, [(0, 0), (2, 4)]),
        ([(0, 0), (1, 5)], 2, 6, [(0, 0), (1, 5), (2, 6)]),
        ([(0, 3), (1, 5)], 7, 0, [(7, 0)]),
    ],
)
def test_leader_epoch_cache_assign_keeps_entries_monotonic(
    before: Entries, epoch: int, start: int, after: Entries
) -> None:
    """``LeaderEpochFileCache.assign`` with ``maybeTruncateNonMonotonicEntries``."""
    found = epochs(before)
    found.assign(epoch, start)
    assert found.entries == after
    assert LeaderEpochFileCache(found._disk, "/d").entries == after
    assert not found.has_unsaved_entries


@pytest.mark.parametrize(
    ("before", "epoch", "offset", "after"),
    [
        ([(1, 0)], 1, 5, [(1, 0)]),
        ([(1, 0)], -1, 5, [(1, 0)]),  # a batch of an old format has no epoch
        ([], 1, 5, [(1, 5)]),
        ([(1, 0)], 2, 5, [(1, 0), (2, 5)]),  # was not recorded yet
        ([(1, 0), (3, 5)], 1, 5, [(1, 0)]),  # was truncated for the missing epoch
        ([(1, 0), (3, 5), (4, 8)], 1, 6, [(1, 0), (4, 8)]),
        ([(1, 0), (3, 10), (4, 12)], 2, 6, [(1, 0), (2, 6), (3, 10), (4, 12)]),  # is between two recorded epochs
        ([(1, 0), (3, 5), (4, 8)], 2, 6, [(1, 0), (2, 6), (4, 8)]),
        ([(1, 0), (2, 8), (4, 12)], 3, 6, [(1, 0), (3, 6), (4, 12)]),
        ([(1, 0), (2, 6)], 3, 6, [(1, 0), (3, 6)]),
        ([(3, 0), (4, 9)], 1, 0, [(1, 0), (4, 9)]),
    ],
)
def test_assign_from_batch_overrides_recorded_entries(before: Entries, epoch: int, offset: int, after: Entries) -> None:
    found = epochs(before)
    found.assign_from_batch(epoch, offset)
    assert found.entries == after
    assert found.has_unsaved_entries == (before != after)


@pytest.mark.parametrize(
    ("entries", "requested", "answer"),
    [
        ([], 0, (-1, -1)),
        ([], -1, (-1, -1)),
        ([(2, 10), (4, 20)], -1, (-1, -1)),
        ([(2, 10), (4, 20)], 4, (4, 100)),  # the current epoch ends at the log end
        ([(2, 10), (4, 20)], 5, (-1, -1)),  # unknown here
        ([(2, 10), (4, 20)], 2, (2, 20)),
        ([(2, 10), (4, 20)], 3, (2, 20)),  # the largest epoch below
        ([(2, 10), (4, 20)], 1, (1, 10)),  # before the first epoch: the start of the first
        ([(2, 10), (4, 20)], 0, (0, 10)),
        ([(2, 10), (4, 20), (9, 30)], 4, (4, 30)),
        ([(2, 10), (4, 20), (9, 30)], 8, (4, 30)),
    ],
)
def test_end_offset_for_epoch_equals_kafka(entries: Entries, requested: int, answer: tuple[int, int]) -> None:
    """``LeaderEpochFileCache.endOffsetFor`` (KIP-101, KIP-279)."""
    assert epochs(entries).end_offset_for(requested, 100) == answer


@pytest.mark.parametrize(("offset", "epoch"), [(0, -1), (9, -1), (10, 2), (19, 2), (20, 4), (99, 4)])
def test_epoch_for_offset_returns_epoch_of_last_entry_at_or_below(offset: int, epoch: int) -> None:
    assert epochs([(2, 10), (4, 20)]).epoch_for_offset(offset) == epoch


@pytest.mark.parametrize(
    ("offset", "after"),
    [
        (9, []),
        (10, []),
        (11, [(2, 10)]),
        (20, [(2, 10)]),
        (21, [(2, 10), (4, 20)]),
    ],
)
def test_truncate_from_end_removes_epochs_at_or_above_offset(offset: int, after: Entries) -> None:
    """``truncateFromEnd``: epochs that begin at or after the offset are removed."""
    found = epochs([(2, 10), (4, 20)])
    found.truncate_from_end(offset)
    assert found.entries == LeaderEpochFileCache(found._disk, "/d").entries == after


@pytest.mark.parametrize(
    ("offset", "after"),
    [
        (5, [(2, 10), (4, 20), (6, 30)]),
        (10, [(2, 10), (4, 20), (6, 30)]),
        (11, [(2, 11), (4, 20), (6, 30)]),
        (19, [(2, 19), (4, 20), (6, 30)]),
        (20, [(4, 20), (6, 30)]),
        (25, [(4, 25), (6, 30)]),
        (31, [(6, 31)]),
    ],
)
def test_truncate_from_start_moves_first_epoch_to_log_start(offset: int, after: Entries) -> None:
    """``truncateFromStart``: the epoch that covers the new log start begins there."""
    found = epochs([(2, 10), (4, 20), (6, 30)])
    found.truncate_from_start(offset)
    assert found.entries == LeaderEpochFileCache(found._disk, "/d").entries == after


CHANGES: dict[str, Callable[[LeaderEpochFileCache], None]] = {
    "assign": lambda e: e.assign(9, 50),
    "truncate_end": lambda e: e.truncate_from_end(11),
    "truncate_start": lambda e: e.truncate_from_start(15),
    "replace": lambda e: e.replace([]),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_leader_epoch_cache_failed_write_is_repeated_with_next_change(change: str) -> None:
    disk = memory_disk().session()
    found = epochs([(2, 10), (4, 20)], disk)
    disk.fault = lambda operation, path: OSError(errno.EMFILE, "short") if operation == "open" else None
    with pytest.raises(OSError, match="short"):
        CHANGES[change](found)
    disk.fault = None
    assert found.has_unsaved_entries
    assert LeaderEpochFileCache(disk, "/d").entries == [(2, 10), (4, 20)]
    for again in (
        lambda: found.assign(-1, 0),
        lambda: found.truncate_from_end(99),
        lambda: found.truncate_from_start(0),
    ):
        found.has_unsaved_entries = True
        again()
        assert not found.has_unsaved_entries
    assert LeaderEpochFileCache(disk, "/d").entries == found.entries


def test_leader_epoch_cache_unchanged_writes_no_file() -> None:
    disk = memory_disk().session()
    found = epochs([(2, 10), (4, 20)], disk)
    disk.fault = lambda operation, path: OSError(errno.EIO, "touched") if operation != "exists" else None
    found.assign(4, 99)
    found.assign(1, 0)
    found.truncate_from_end(21)
    found.truncate_from_start(10)
    found.truncate_from_start(0)


def test_leader_epoch_cache_save_tracks_unsaved_and_unsynced_state() -> None:
    found = epochs([(0, 0)])
    assert found.is_file_unsynced
    found.save(sync=True)
    assert not found.is_file_unsynced
    found.assign(1, 3, save=False)
    assert (found.has_unsaved_entries, found.is_file_unsynced) == (True, False)
    found.save()
    assert (found.has_unsaved_entries, found.is_file_unsynced) == (False, True)
    assert found.latest_epoch() == 1
    assert epochs([]).latest_epoch() == -1


def test_leader_epoch_cache_malformed_file_is_treated_as_missing() -> None:
    disk = memory_disk().session()
    disk.makedirs("/d")
    assert LeaderEpochFileCache(disk, "/d").entries == []
    write_file(disk, f"/d/{LEADER_EPOCH_CHECKPOINT}", b"0\n2\n0 0\n")
    assert LeaderEpochFileCache(disk, "/d").entries == []


# ---------------------------------------------------------------- the files


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0\n2\n0 0\n3 17\n", [(0, 0), (3, 17)]),
        ("0\n0\n", []),
        ("", []),
        (" \n", []),
        ("0\n1\n0 1", None),  # of 12, for example: a power loss may leave the beginning of a number
        ("1\n1\n0 0\n", None),  # another version
        ("0\n2\n0 0\n", None),  # truncated
        ("0\n1\n0 0\n1 5\n", None),
        ("0\n", None),
        ("x\n1\n0 0\n", None),
        ("0\n1\n0\n", None),
        ("0\n1\n0 0 0\n", None),
        ("0\n1\n0 x\n", None),
    ],
)
def test_read_epochs_malformed_checkpoint_raises_corrupt_file(text: str, found: Entries | None) -> None:
    """``CheckpointFile``: version, count, entries; an inconsistent file is corrupt."""
    disk = memory_disk().session()
    disk.makedirs("/d")
    write_file(disk, "/d/f", text.encode())
    if found is None:
        with pytest.raises(CorruptFile, match="/d/f"):
            read_epochs(disk, "/d/f")
    else:
        assert read_epochs(disk, "/d/f") == found
    assert read_epochs(disk, "/d/none") == []


def test_write_offsets_equals_kafkas_format() -> None:
    disk = memory_disk().session()
    disk.makedirs("/d")
    offsets = {("t", 0): 5, ("a.b", 12): 0}
    write_offsets(disk, "/d/f", offsets)
    assert read_file(disk, "/d/f") == b"0\n2\nt 0 5\na.b 12 0\n"
    assert read_offsets(disk, "/d/f") == offsets
    for wrong in (b"0\n1\nt 0\n", b"0\n1\nt x 5\n", b"0\n1\nt 0 x\n", b"0\n1\nt 0 5 6\n"):
        write_file(disk, "/d/f", wrong)
        with pytest.raises(CorruptFile, match="/d/f"):
            read_offsets(disk, "/d/f")


def test_write_offsets_syncs_only_if_requested() -> None:
    for sync in (True, False):
        disk = memory_disk().session()
        disk.makedirs("/d")
        write_offsets(disk, "/d/f", {("t", 0): 5}, sync=sync)
        assert (bytes(disk.disk.files["/d/f"].durable) != b"") == sync
        assert ("/d/f" in disk.disk.durable_files) == sync


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw", bytes(range(16))),
        (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n", bytes(range(16))),
        (b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", None),
        (b"topic_id: AAECAwQFBgcICQoLDA0ODw", None),
        (b"version: 0\n", None),
        (b"version: 0\ntopic_id: ?", None),
        (b"", None),
    ],
)
def test_partition_metadata_malformed_raises_corrupt_file(text: bytes, found: bytes | None) -> None:
    disk = memory_disk().session()
    disk.makedirs("/d")
    assert read_partition_metadata(disk, "/d") is None
    write_file(disk, f"/d/{PARTITION_METADATA_FILE}", text)
    if found is None:
        with pytest.raises(CorruptFile, match=PARTITION_METADATA_FILE):
            read_partition_metadata(disk, "/d")
    else:
        assert read_partition_metadata(disk, "/d") == found
        write_partition_metadata(disk, "/d", found, sync=True)
        assert read_file(disk, f"/d/{PARTITION_METADATA_FILE}") == text.rstrip(b"\n")
        assert bytes(disk.disk.files[f"/d/{PARTITION_METADATA_FILE}"].durable) != b""


def test_properties_are_written_with_date_and_read_without_comments() -> None:
    disk = memory_disk().session()
    disk.makedirs("/d")
    write_properties(disk, "/d/p", {"node.id": "1", "cluster.id": "x=y"}, NOW)
    assert read_file(disk, "/d/p") == b"#\n#Thu Jan 01 00:16:40 UTC 1970\nnode.id=1\ncluster.id=x\\=y\n"
    assert read_properties(disk, "/d/p") == {"node.id": "1", "cluster.id": "x=y"}
    write_file(disk, "/d/p", b"# a=1\n! b=2\n\n c = 3 \nd\n")
    assert read_properties(disk, "/d/p") == {"c": "3 ", "d": ""}
    write_file(disk, "/d/p", b"a=\xff1\nb=2\n")
    assert read_properties(disk, "/d/p") == {"a": "\xff1", "b": "2"}
    write_file(disk, "/d/p", b"a=\\u12\n")
    with pytest.raises(CorruptFile, match="/d/p: Malformed"):
        read_properties(disk, "/d/p")


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        (b'{"version":0,"brokerEpoch":17}', 17),
        (b'{"version":0}', -1),
        (b"", -1),
        (b"[]", -1),
        (b"nonsense", -1),
        (b'{"brokerEpoch":null}', -1),
        (b'{"brokerEpoch":1e999}', -1),
        (b"[" * 100_000, -1),
        (None, None),
    ],
)
def test_clean_shutdown_file_presence_marks_clean_stop_until_removed(text: bytes | None, epoch: int | None) -> None:
    """``CleanShutdownFileHandler``: the presence of the file is the marker, independent of its content."""
    disk = memory_disk().session()
    disk.makedirs("/d")
    if text is not None:
        write_file(disk, f"/d/{CLEAN_SHUTDOWN_FILE}", text)
    assert read_clean_shutdown_file(disk, "/d") == epoch
    if epoch is not None:
        assert read_clean_shutdown_file(disk, "/d") == epoch, "reading keeps the file"
        remove_clean_shutdown_file(disk, "/d")
    assert read_clean_shutdown_file(disk, "/d") is None
    assert f"/d/{CLEAN_SHUTDOWN_FILE}" not in disk.disk.durable_files
    write_clean_shutdown_file(disk, "/d", 17)
    assert read_file(disk, f"/d/{CLEAN_SHUTDOWN_FILE}") == b'{"version":0,"brokerEpoch":17}'
    assert f"/d/{CLEAN_SHUTDOWN_FILE}" in disk.disk.durable_files


def test_assign_epoch_start_offset_writes_no_file_before_first_batch() -> None:
    """Becoming leader of ten thousand idle partitions writes no file."""
    memory = memory_disk()
    log = new_log(memory.session())
    log.assign_epoch_start_offset(4)
    log.close()
    disk = memory.session()
    written: list[str] = []

    def watch(operation: str, path: str) -> None:
        if operation == "rename":
            written.append(path.rpartition("/")[2])

    disk.fault = watch
    again = open_log(disk, DIRECTORY, "t", 0, SMALL, NOW, clean=True)
    again.assign_epoch_start_offset(5)
    assert again.epochs.entries == [(5, 0)], "the entry is visible in memory"
    assert not written
    assert open_log(memory.session(), DIRECTORY, "t", 0, SMALL, NOW, clean=True).epochs.entries == []
    for _ in range(2):
        again.append_as_leader(make_batch(0), 5, NOW)
        assert written == [f"{LEADER_EPOCH_CHECKPOINT}.tmp"]
    assert LeaderEpochFileCache(disk, DIRECTORY).entries == [(5, 0)]
