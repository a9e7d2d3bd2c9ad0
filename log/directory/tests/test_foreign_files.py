"""Files and directories that Kafka did not create: never removed, renamed or read."""

from __future__ import annotations

from ottla.env.disk import Disk
from ottla.log.directory.directory_listing import contains_partition_files, delete_partition_dir, list_foreign_entries
from ottla.log.directory.tests.test_log_directory import directory_with_logs, reopen_directory
from ottla.log.tests.log_fixtures import NOW, append_batches, memory_disk, record_offsets

ID = "0123456789abcdef" * 2
FOREIGN = [
    "notes.log",
    "my.snapshot",
    "a.deleted",
    "a.cleaned",
    "a.swap",
    "thesis.tmp",
    "1.log",
    "x.index",
    "y.txnindex",
]


def touch(disk: Disk, path: str) -> None:
    """Create a file of a few bytes."""
    file = disk.open(path, create=True)
    file.pwrite(b"precious", 0)
    file.close()


def test_open_log_with_foreign_files_leaves_them_and_reads_all_records() -> None:
    memory = memory_disk()
    directory = directory_with_logs(memory, 1)
    there = record_offsets(directory.logs["t", 0])
    path = directory.logs["t", 0].directory
    for name in FOREIGN:
        touch(directory.disk, f"{path}/{name}")
    again, log = reopen_directory(memory)[0], reopen_directory(memory)[1][0]
    assert record_offsets(log) == there
    assert set(FOREIGN) <= set(again.disk.listdir(path))


def test_truncate_with_foreign_files_leaves_them() -> None:
    directory = directory_with_logs(memory_disk(), 1)
    log = directory.logs["t", 0]
    append_batches(log, 5)
    for name in FOREIGN:
        touch(directory.disk, f"{log.directory}/{name}")
    log.truncate_to(log.log_end_offset - 1, NOW)
    log.truncate_fully_and_start_at(100, NOW)
    assert set(FOREIGN) <= set(directory.disk.listdir(log.directory))


def test_list_foreign_entries_returns_directories_and_files_with_partition_names() -> None:
    disk = memory_disk().session()
    for name in ("t-0", f"t-0.{ID}-delete", "remote-log-index-cache", "lost+found", "my-backup.2024-delete", "plain"):
        disk.makedirs(f"/d/{name}")
    for name in ("u-0", "file.txt", "recovery-point-offset-checkpoint"):
        touch(disk, f"/d/{name}")
    assert list_foreign_entries(disk, "/d") == [
        f"/d/{x}" for x in ("lost+found", "my-backup.2024-delete", "plain", "u-0")
    ]


def test_contains_partition_files_requires_regular_partition_file() -> None:
    disk = memory_disk().session()
    for name in ("notes.log", "partition.metadata", f"{0:020d}.log"):
        disk.makedirs(f"/d/{name}")
        touch(disk, f"/d/{name}/{name}")
    assert [contains_partition_files(disk, f"/d/{x}") for x in disk.listdir("/d")] == [True, False, True]


def test_delete_partition_dir_removes_whole_directory() -> None:
    disk = memory_disk().session()
    path = f"/d/t-0.{ID}-delete"
    disk.makedirs(path)
    touch(disk, f"{path}/{0:020d}.log")
    touch(disk, f"{path}/partition.metadata")
    delete_partition_dir(disk, path)
    assert disk.listdir("/d") == []


SEGMENT_NAMES = [
    f"{5:020d}{kind}{state}"
    for kind in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    for state in ("", ".deleted", ".cleaned", ".swap", ".tmp")
]


def test_open_log_with_directories_named_as_segment_files_leaves_them() -> None:
    memory = memory_disk()
    directory = directory_with_logs(memory, 1)
    there, path = record_offsets(directory.logs["t", 0]), directory.logs["t", 0].directory
    for name in SEGMENT_NAMES:
        directory.disk.makedirs(f"{path}/{name}")
        touch(directory.disk, f"{path}/{name}/keep")
    again, log = reopen_directory(memory)[0], reopen_directory(memory)[1][0]
    assert record_offsets(log) == there
    assert all(again.disk.exists(f"{path}/{name}/keep") for name in SEGMENT_NAMES)
    log.truncate_to(log.log_end_offset - 1, NOW)
    log.truncate_fully_and_start_at(100, NOW)
    assert all(again.disk.exists(f"{path}/{name}/keep") for name in SEGMENT_NAMES)
