"""Log directories: identity, placement of partitions, and failures.

The metadata directory is required (KIP-112, KIP-858; ``KafkaRaftServer.initializeLogDirs``).
"""

from __future__ import annotations

import errno
import itertools
import random
from typing import Any

import pytest

from ottla.broker.storage.log_dir_failures import LogDirFailureHandler
from ottla.broker.storage.log_dirs import LogDirMismatch, LogDirs
from ottla.env.memory_disk import DiskSession, MemoryDisk
from ottla.log.directory.log_directory import LogDirectoryInUse
from ottla.log.directory.meta_properties import MetaProperties
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog

NOW = 1_000_000
ME, CLUSTER = 1, "c"


class LogDirsFixture:
    """Disk with calls that fail as a test requires."""

    def __init__(self) -> None:
        self.memory = MemoryDisk(random.Random(1), lambda: NOW)
        self.disk: DiskSession = self.memory.session()
        self.broken: tuple[str, ...] = ()
        self.number = errno.EIO
        self.calls: list[tuple[str, str]] = []
        self.disk.fault = self._fault
        self._ids = itertools.count(1)

    def _fault(self, call: str, path: str) -> OSError | None:
        self.calls.append((call, path))
        return OSError(self.number, "injected", path) if path.startswith(self.broken or ("nowhere",)) else None

    def new_id(self) -> bytes:
        return bytes([9] * 15 + [next(self._ids)])

    def storage(self, *paths: str, metadata: str | None = None) -> LogDirs:
        return LogDirs(self.disk, list(paths), metadata)

    def begun(self, *paths: str, metadata: str | None = None, node: int = ME, cluster: str = CLUSTER) -> LogDirs:
        """Return the initialized directories of a node."""
        storage = self.storage(*paths, metadata=metadata)
        storage.lock()
        identity = storage.identify(node, None) or MetaProperties(cluster, node, self.new_id())
        storage.initialize(identity, NOW, self.new_id)
        return storage

    def identify(self, *paths: str, metadata: str | None = None, cluster: str | None = None) -> MetaProperties | None:
        """Identify the directories as the next start does."""
        storage = self.storage(*paths, metadata=metadata)
        return storage.identify(ME, cluster)


def put(storage: LogDirs, at: int, *names: str) -> list[PartitionLog]:
    directory = storage.directories[at]
    return [directory.create_partition(name, 0, bytes(16), LogConfig(), NOW) for name in names]


# ---------------------------------------------------------------------- directories


@pytest.mark.parametrize(
    ("metadata", "where", "every"),
    [
        pytest.param(None, 0, ["/a", "/b"], id="the first is the ground"),
        pytest.param("/b", 1, ["/a", "/b"], id="or the one that is named"),
        pytest.param("/m", None, ["/m", "/a", "/b"], id="or one of its own, without partitions"),
    ],
)
def test_metadata_log_dir_defaults_to_first_directory(
    metadata: str | None, where: int | None, every: list[str]
) -> None:
    storage = LogDirsFixture().begun("/a", "/b", metadata=metadata)
    assert [d.path for d in storage.directories] == ["/a", "/b"]
    assert storage.metadata.path == (metadata or "/a")
    if where is not None:
        assert storage.metadata is storage.directories[where], "one object for one directory"
    assert sorted(path for path in ("/a", "/b", "/m") if storage.metadata.disk.exists(f"{path}/.lock")) == sorted(every)
    assert storage.online == storage.directories
    assert storage.online_ids == [d.id for d in storage.directories]
    assert len({d.id for d in storage._all_directories()}) == len(every), "each has an id of its own"


def test_lock_of_directory_in_use_raises_log_directory_in_use() -> None:
    fixture = LogDirsFixture()
    fixture.begun("/a", "/b")
    fixture.disk = fixture.memory.session()  # another process
    with pytest.raises(LogDirectoryInUse, match="/a is in use"):
        fixture.storage("/a").lock()


def test_unlock_releases_all_locks() -> None:
    fixture = LogDirsFixture()
    storage = fixture.begun("/a", metadata="/m")
    storage.unlock()
    storage.lock()
    assert [d._lock is not None for d in storage._all_directories()] == [True, True]


# ---------------------------------------------------------------------- identity


def test_identify_new_directories_returns_none() -> None:
    assert LogDirsFixture().identify("/a", "/b") is None


@pytest.mark.parametrize("metadata", [None, "/m"])
def test_identify_returns_stored_identity(metadata: str | None) -> None:
    fixture = LogDirsFixture()
    storage = fixture.begun("/a", "/b", metadata=metadata)
    found = fixture.identify("/a", "/b", metadata=metadata, cluster=CLUSTER)
    assert found == storage.metadata.meta_properties
    assert (found and found.cluster_id, found and found.node_id) == (CLUSTER, ME)


def test_added_directory_gets_node_identity_and_own_id() -> None:
    fixture = LogDirsFixture()
    fixture.begun("/a").unlock()
    storage = fixture.begun("/a", "/new")
    old, new = (d.meta_properties for d in storage.directories)
    assert old is not None
    assert new is not None
    assert (new.cluster_id, new.node_id) == (old.cluster_id, old.node_id)
    assert new.directory_id != old.directory_id
    storage.unlock()
    assert fixture.begun("/a", "/new").online_ids == [old.directory_id, new.directory_id], "for good"


def _foreign(fixture: LogDirsFixture) -> None:
    fixture.begun("/b", node=7).unlock()


def _of_another_cluster(fixture: LogDirsFixture) -> None:
    fixture.begun("/a").unlock()
    fixture.begun("/b", cluster="other").unlock()


def _copied(fixture: LogDirsFixture) -> None:
    storage = fixture.begun("/a", "/b")
    identity = storage.directories[0].meta_properties
    assert identity is not None
    storage.directories[1].write_meta_properties(identity, NOW)
    storage.unlock()


def _without_nursery(fixture: LogDirsFixture) -> None:
    fixture.begun("/b").unlock()


@pytest.mark.parametrize(
    ("made", "cluster", "words"),
    [
        (_foreign, None, "/b belongs to node 7, not 1: set --node-id"),
        (_of_another_cluster, None, "/b belongs to cluster other, not c"),
        (_copied, None, "/b is a copy of /a: both have the same directory.id"),
        (_without_nursery, None, "/a has no metadata log, but /b belongs to a node: list the directory with "),
        (_without_nursery, "x", "/b belongs to cluster c, not x"),
        (_of_another_cluster, "other", "/a belongs to cluster c, not other"),
    ],
)
def test_directory_of_other_node_or_cluster_raises_mismatch_unchanged(
    made: Any, cluster: str | None, words: str
) -> None:
    fixture = LogDirsFixture()
    made(fixture)
    before = {path: bytes(file.data) for path, file in fixture.memory.files.items()}
    with pytest.raises(LogDirMismatch) as refused:
        fixture.identify("/a", "/b", cluster=cluster)
    assert str(refused.value).startswith(words)
    assert {path: bytes(file.data) for path, file in fixture.memory.files.items()} == before


# ---------------------------------------------------------------------- failures at startup


@pytest.mark.parametrize("step", ["lock", "identify", "begin"])
def test_directory_failed_at_startup_is_left_out(step: str) -> None:
    fixture = LogDirsFixture()
    fixture.begun("/a", "/b").unlock()
    storage = fixture.storage("/a", "/b")
    for name in ("lock", "identify", "begin"):
        fixture.broken = ("/b",) if name == step else fixture.broken
        if name == "lock":
            storage.lock()
        elif name == "identify":
            identity = storage.identify(ME, None)
        else:
            assert identity is not None
            storage.initialize(identity, NOW, fixture.new_id)
    assert list(storage.offline) == ["/b"]
    assert [d.path for d in storage.online] == ["/a"]
    fixture.calls.clear()
    assert storage.identify(ME, None) == storage.metadata.meta_properties
    assert not [path for _, path in fixture.calls if path.startswith("/b")], "nobody looks at it again"


@pytest.mark.parametrize(
    ("paths", "metadata", "fails", "number"),
    [
        (("/a", "/b"), None, "/a", errno.EIO),
        (("/b",), "/a", "/a", errno.EIO),
        (("/b", "/c"), "/a", "/a", errno.EIO),
        (("/a", "/b"), None, "/b", errno.EMFILE),  # without any fault
    ],
)
def test_metadata_directory_failed_at_startup_raises(
    paths: tuple[str, ...], metadata: str | None, fails: str, number: int
) -> None:
    fixture = LogDirsFixture()
    fixture.begun(*paths, metadata=metadata).unlock()
    fixture.broken, fixture.number = (fails,), number
    with pytest.raises(OSError, match="injected"):
        fixture.storage(*paths, metadata=metadata).lock()


def test_can_go_offline_is_false_for_metadata_and_last_directory() -> None:
    fixture = LogDirsFixture()
    storage = fixture.begun("/b", "/c", metadata="/a")
    assert [storage.can_go_offline(d) for d in (storage.metadata, *storage.directories)] == [False, True, True]
    storage.mark_offline(storage.directories[0], OSError(errno.EIO, "gone"))
    assert not storage.can_go_offline(storage.directories[1])


# ---------------------------------------------------------------------- partitions


def test_select_directory_returns_least_loaded_counting_pending() -> None:
    storage = LogDirsFixture().begun("/a", "/b", "/c")
    a, b, c = storage.directories
    assert storage.select_directory() is a, "the first of equals"
    put(storage, 0, "t")
    assert storage.select_directory() is b
    assert storage.select_directory({"/b": 1}) is c
    put(storage, 1, "u", "v")
    put(storage, 2, "w")
    assert storage.select_directory() is a
    assert storage.select_directory({"/a": 1}) is c
    storage.mark_offline(a, OSError(errno.EIO, "gone"))
    assert storage.select_directory() is c, "never where nothing can be written"


def test_cordoned_directories_get_no_new_partitions(caplog: pytest.LogCaptureFixture) -> None:
    storage = LogDirsFixture().begun("/a", "/b", "/c")
    a, b, c = storage.directories
    assert storage.cordon("/a, /c,/x")
    assert not storage.cordon("/a, /c,/x"), "nothing new"
    assert [storage.is_cordoned(d) for d in (a, b, c)] == [True, False, True]
    assert storage.cordoned_ids == [a.id, c.id]
    put(storage, 1, "t", "u")
    assert storage.select_directory() is b, "though it has the most"
    assert "Invalid entry in cordoned.log.dirs: /x is not in log.dirs" in caplog.text
    assert len(caplog.records) == 1
    assert storage.cordon("*")
    assert storage.cordoned_ids == [a.id, b.id, c.id]
    assert storage.select_directory() is a, "the controller had not heard of it yet"
    storage.mark_offline(a, OSError(errno.EIO, "gone"))
    assert (storage.select_directory(), storage.cordoned_ids) == (b, [b.id, c.id])
    assert storage.cordon("")
    assert (storage.select_directory(), storage.cordoned_ids) == (c, [])


def test_directory_of_returns_directory_of_log() -> None:
    storage = LogDirsFixture().begun("/a", "/b")
    [t], [u] = put(storage, 0, "t"), put(storage, 1, "u")
    assert (storage.directory_of(t), storage.directory_of(u)) == tuple(storage.directories)
    assert storage.logs() == [t, u]


# ---------------------------------------------------------------------- failures later


def test_mark_offline_closes_logs_once() -> None:
    storage = LogDirsFixture().begun("/a", "/b")
    [t], lost = put(storage, 0, "t"), put(storage, 1, "u", "v")
    error = OSError(errno.EIO, "gone")
    assert storage.mark_offline(storage.directories[1], error) == lost
    assert storage.offline == {"/b": error}
    assert [log.closed for log in (t, *lost)] == [False, True, True], "nothing is written there any more"
    assert storage.logs() == [t]
    assert storage.online_ids == [storage.directories[0].id]
    assert storage.mark_offline(storage.directories[1], OSError(errno.EIO, "again")) == []
    assert storage.offline == {"/b": error}, "what went wrong first"


class FailureRecorder:
    """Failures of the directories, and their notifications."""

    def __init__(self, storage: LogDirs) -> None:
        self.ended = 0
        self.lost: list[list[PartitionLog]] = []
        self.losses = LogDirFailureHandler(storage, self._end)
        self.losses.on_logs_offline.append(self.lost.append)

    def _end(self) -> None:
        self.ended += 1


def test_log_error_takes_its_directory_offline_once() -> None:
    storage = LogDirsFixture().begun("/a", "/b")
    [u] = put(storage, 1, "u")
    watch = FailureRecorder(storage)
    watch.losses.handle_failure(OSError(errno.EIO, "gone"), u)
    watch.losses.handle_failure(OSError(errno.EIO, "gone"), u)
    watch.losses.handle_failure(OSError(errno.EIO, "gone"), storage.directories[1])
    assert (watch.lost, watch.ended, watch.losses.failure) == ([[u]], 0, None)


@pytest.mark.parametrize("reported_where", [False, True])
def test_metadata_directory_error_ends_node_with_first_error(reported_where: bool) -> None:
    storage = LogDirsFixture().begun("/a", "/b")
    watch = FailureRecorder(storage)
    first, second = OSError(errno.EIO, "first"), OSError(errno.EIO, "second")
    watch.losses.handle_failure(first, storage.metadata if reported_where else None)
    watch.losses.handle_failure(second)
    assert (watch.lost, watch.ended, watch.losses.failure) == ([], 1, first)


def test_transient_error_is_ignored_except_for_metadata_log() -> None:
    storage = LogDirsFixture().begun("/a", "/b")
    watch = FailureRecorder(storage)
    short = OSError(errno.EMFILE, "too many open files")
    for where in (storage.metadata, storage.directories[1]):
        watch.losses.handle_failure(short, where)
    assert (watch.ended, storage.offline) == (0, {})
    watch.losses.handle_failure(short)
    assert watch.ended == 1
