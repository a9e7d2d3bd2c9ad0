"""Dry-run disk: changes are visible in it and never reach the real disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.env.disk import File
from ottla.env.memory_disk import DiskSession
from ottla.log.directory import offline_check
from ottla.log.directory.offline_check import PartitionReport
from ottla.log.recovery.dry_run_disk import DryRunDisk
from ottla.log.recovery.log_loader import open_log
from ottla.log.tests.log_fixtures import NOW, SMALL, append_batches, memory_disk, new_log


def test_dry_run_disk_rmtree_leaves_real_directory() -> None:
    disk = memory_disk().session()
    for name in ("/d/t-0/a", "/d/t-0/inner/b", "/d/t-1/c"):
        disk.makedirs(name.rpartition("/")[0])
        disk.open(name, create=True).pwrite(b"x", 0)
    rehearsal = DryRunDisk(disk)
    rehearsal.open("/d/t-0/new", create=True)
    rehearsal.rmtree("/d/t-0")
    assert rehearsal.listdir("/d") == ["t-1"]
    assert not rehearsal.exists("/d/t-0/inner/b")
    assert not rehearsal.exists("/d/t-0/new")
    assert {"/d/t-0/a", "/d/t-0/inner/b"} <= rehearsal.removed_files
    assert disk.exists("/d/t-0/a")
    assert disk.exists("/d/t-0/inner/b")
    assert rehearsal.exists("/d/t-1/c")


def test_dry_run_disk_write_and_truncate_leave_real_file() -> None:
    disk = memory_disk().session()
    disk.makedirs("/d")
    disk.open("/d/a", create=True).pwrite(b"0123456789", 0)
    rehearsal = DryRunDisk(disk)
    file = rehearsal.open("/d/a")
    assert (file.size(), file.pread(3, 8), file.pread(3, 20)) == (10, b"89", b"")
    assert rehearsal.changed_files == set()
    file.truncate(10)
    assert rehearsal.changed_files == set()
    file.truncate(6)
    assert (file.size(), file.pread(10, 4), rehearsal.truncated_bytes) == (6, b"45", {"/d/a": 4})
    file.pwrite(b"xy", 5)
    assert file.pread(10, 0) == b"01234xy"
    file.truncate(2)
    assert rehearsal.truncated_bytes == {"/d/a": 9}
    file.truncate(4)
    file.pwrite(b"z", 6)
    file.close()
    assert rehearsal.open("/d/a").pread(10, 0) == b"01\0\0\0\0z"
    assert rehearsal.stat("/d/a").size_bytes == 7
    rehearsal.rename("/d/a", "/d/b")
    assert rehearsal.listdir("/d") == ["b"]
    assert rehearsal.open("/d/b").pread(2, 0) == b"01"
    assert rehearsal.changed_files == {"/d/a", "/d/b"}
    assert disk.open("/d/a").pread(20, 0) == b"0123456789"


def test_offline_check_keeps_few_files_open() -> None:
    memory = memory_disk()
    disk = memory.session()
    log = new_log(disk)
    append_batches(log, 60)
    log.close()
    most, now = [0], [0]
    real_open = disk.open

    def counted(path: str, **options: bool) -> File:
        file = real_open(path, **options)
        real_close = file.close
        now[0] += 1
        most[0] = max(most[0], now[0])

        def close() -> None:
            now[0] -= 1
            real_close()

        return CloseCountingFile(file, close)

    disk.open = counted  # type: ignore[method-assign, assignment]
    for clean in (True, False):
        again = open_log(disk, log.directory, "t", 0, SMALL, NOW, clean=clean)
        assert len(again.segments) > 5
        assert now[0] == 0, "files are reopened on demand"
    assert [v.problem for v in check_one(disk, log.directory)] == [None]
    assert now[0] == 0
    assert most[0] <= 3


class CloseCountingFile:
    """File that calls a function when it is closed."""

    def __init__(self, file: File, close: Callable[[], None]) -> None:
        self._file = file
        self.close = close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def check_one(disk: DiskSession, path: str) -> list[PartitionReport]:
    return [offline_check._check_partition(DryRunDisk(disk), path, "t", 0, NOW, deep=True)]
