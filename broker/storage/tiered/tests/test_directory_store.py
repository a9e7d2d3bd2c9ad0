"""Objects in a directory: whole or absent after a crash, with the errors of tiered storage."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

import pytest

from ottla.broker.storage.tiered.directory_store import UPLOAD_SUFFIX, DirectoryStore
from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from ottla.env.memory_disk import DiskSession, MemoryDisk, ProcessKilled

NAME = "events/id/0/x.segment"
CHUNKS = [b"a" * 1000, b"b" * 1000, b"c"]
WHOLE = b"".join(CHUNKS)


def memory_disk(seed: int = 0) -> MemoryDisk:
    disk = MemoryDisk(random.Random(seed), lambda: 1000)
    disk.session().makedirs("/store")
    disk.session().fsync_dir("/")
    return disk


def open_store(disk: MemoryDisk) -> tuple[DirectoryStore, DiskSession]:
    session = disk.session()
    return DirectoryStore(session, "/store"), session


def test_object_is_read_in_ranges_and_listed_and_deleted() -> None:
    store, _ = open_store(memory_disk())
    store.put(NAME, iter(CHUNKS), 1)
    store.put("other/id/0/y.segment", iter([b"y"]), 1)
    assert store.size(NAME) == 2001
    assert store.get_range(NAME, 999, 1001) == b"ab"
    assert store.get_range(NAME, 2000, 5000) == b"c"
    assert [x.name for x in store.list_objects()] == [NAME, "other/id/0/y.segment"]
    assert [(x.name, x.size_bytes, x.modified_ms) for x in store.list_objects("events/")] == [(NAME, 2001, 1000)]
    assert list(store.list_objects("absent/")) == []
    store.delete(NAME)
    store.delete(NAME)
    with pytest.raises(RemoteResourceNotFoundError, match="object does not exist"):
        store.size(NAME)
    with pytest.raises(RemoteResourceNotFoundError):
        store.get_range(NAME, 0, 1)


def test_get_range_behind_the_end_reports_truncation() -> None:
    store, _ = open_store(memory_disk())
    store.put(NAME, iter(CHUNKS), 1)
    with pytest.raises(CorruptRemoteSegmentError, match="truncated"):
        store.get_range(NAME, 2001, 2002)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a//b", "", "."])
def test_name_outside_the_directory_is_rejected(name: str) -> None:
    store, _ = open_store(memory_disk())
    for call in (lambda: store.put(name, iter([b"x"]), 1), lambda: store.get_range(name, 0, 1)):
        with pytest.raises(RemoteStorageError, match="invalid object name"):
            call()


def test_missing_mount_point_is_retriable_and_not_created() -> None:
    session = MemoryDisk(random.Random(0), lambda: 0).session()
    store = DirectoryStore(session, "/store")
    for call in (
        lambda: store.put(NAME, iter(CHUNKS), 1),
        lambda: store.get_range(NAME, 0, 1),
        lambda: store.size(NAME),
        lambda: store.delete(NAME),
        lambda: list(store.list_objects()),
    ):
        with pytest.raises(RetriableRemoteStorageError, match="directory does not exist: /store"):
            call()
    assert not session.exists("/store")


def test_failing_chunks_leave_no_object() -> None:
    def failing() -> Iterator[bytes]:
        yield b"first"
        raise RemoteStorageError("local segment was truncated")

    store, session = open_store(memory_disk())
    with pytest.raises(RemoteStorageError, match="local segment was truncated"):
        store.put(NAME, failing(), 1)
    assert list(store.list_objects()) == []
    assert session.listdir("/store/events/id/0") == []


@pytest.mark.parametrize("call", ["open", "pwrite", "fsync", "rename", "fsync_dir", "makedirs", "truncate"])
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, RetriableRemoteStorageError),
        (errno.EIO, RemoteStorageError),
        (errno.ESTALE, RetriableRemoteStorageError),
    ],
)
def test_failed_disk_call_ends_the_upload_without_a_partial_object(
    call: str, number: int, kind: type[RemoteStorageError]
) -> None:
    disk = memory_disk()
    store, session = open_store(disk)
    session.fault = lambda name, path: OSError(number, "injected", path) if name == call else None
    with pytest.raises(RemoteStorageError, match="injected") as caught:
        store.put(NAME, iter(CHUNKS), 1)
    assert type(caught.value) is kind
    session.fault = None
    assert not any(path.endswith(UPLOAD_SUFFIX) for path in disk.files)
    assert all(disk.files[path].data == WHOLE for path in disk.files)
    store.put(NAME, iter(CHUNKS), 1)
    assert store.get_range(NAME, 0, 3000) == WHOLE


def test_kill_and_power_failure_at_each_disk_call_leave_a_whole_object_or_none() -> None:
    for seed in range(4):
        at = 0
        while True:
            disk = memory_disk(seed)
            store, session = open_store(disk)
            at += 1
            session.kill_at = disk.calls + at
            try:
                store.put(NAME, iter(CHUNKS), 1)
                finished = True
            except ProcessKilled:
                finished = False
            disk.lose_power()
            after, _ = open_store(disk)
            found = [x.name for x in after.list_objects()]
            assert found in ([], [NAME])
            if found:
                assert after.get_range(NAME, 0, 3000) == WHOLE, (seed, at)
            if finished:
                assert found == [NAME], "a put that returned is durable"
                break
        assert at > 15


def test_new_directories_are_synced_in_their_parents_also_after_a_failed_sync() -> None:
    store, session = open_store(memory_disk())
    synced: list[str] = []

    def fail(name: str, path: str) -> OSError | None:
        return OSError(errno.EIO, "injected", path) if (name, path) == ("fsync_dir", "/store") else None

    def record(name: str, path: str) -> None:
        if name == "fsync_dir":
            synced.append(path)

    session.fault = fail
    with pytest.raises(RemoteStorageError, match="injected"):
        store.put(NAME, iter(CHUNKS), 1)
    session.fault = record  # type: ignore[assignment]
    store.put(NAME, iter(CHUNKS), 1)
    assert synced == ["/store", "/store/events", "/store/events/id", "/store/events/id/0"]
    synced.clear()
    store.put(NAME.replace("x.", "y."), iter(CHUNKS), 1)
    assert synced == ["/store/events/id/0"], "parents are synced once"


def test_delete_that_returned_is_durable() -> None:
    for seed in range(20):
        disk = memory_disk(seed)
        store, _ = open_store(disk)
        store.put(NAME, iter(CHUNKS), 1)
        store.delete(NAME)
        disk.lose_power()
        assert list(open_store(disk)[0].list_objects()) == []


def test_remove_uploads_keeps_recent_ones_and_objects() -> None:
    disk = memory_disk()
    store, session = open_store(disk)
    store.put(NAME, iter(CHUNKS), 1)
    for name, time_ms in (("old", 500), ("new", 1500)):
        session.open(f"/store/events/{name}{UPLOAD_SUFFIX}", create=True)
        disk.files[f"/store/events/{name}{UPLOAD_SUFFIX}"].mtime_ms = time_ms
    assert [x.name for x in store.list_objects()] == [NAME]
    assert store.remove_uploads(1200) == [f"events/old{UPLOAD_SUFFIX}"]
    assert session.exists(f"/store/events/new{UPLOAD_SUFFIX}")
    assert store.size(NAME) == 2001
