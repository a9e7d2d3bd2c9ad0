"""Directories that are no partitions of the node: left unchanged, logged, or removed at startup."""

from __future__ import annotations

import errno

import pytest

from ottla.broker.replication.tests.test_replica_manager_load import load, made
from ottla.broker.tests.broker_storage_fixture import BrokerStorageFixture

FOREIGN = ("lost+found", "foo.1234-delete", "my-backup.2024-delete", "notes-delete", "my-future", "old-stray", "b-2024")


def test_load_with_foreign_directories_leaves_and_logs_them(caplog: pytest.LogCaptureFixture) -> None:
    fixture = BrokerStorageFixture()
    made(fixture, 0, "t", records=1)
    disk = fixture.env.disk
    for name in FOREIGN:
        disk.makedirs(f"/a/{name}")
        disk.open(f"/a/{name}/f", create=True).pwrite(b"precious", 0)
    load(fixture, "t")
    assert fixture.hosted() == {("t", 0)}
    for name in FOREIGN:
        assert disk.exists(f"/a/{name}/f")
        assert f"'/a/{name}' (left unchanged)" in caplog.text
    assert not fixture.replica_manager.has_leftover_future_logs


def test_load_with_unreadable_unknown_directory_leaves_it(caplog: pytest.LogCaptureFixture) -> None:
    fixture = BrokerStorageFixture()
    made(fixture, 0, "t", records=1)
    disk = fixture.env.disk
    disk.makedirs("/a/other-7")
    disk.fault = lambda call, at: (
        PermissionError(errno.EACCES, "permission denied", at) if (call, at) == ("listdir", "/a/other-7") else None
    )
    load(fixture, "t")
    assert fixture.hosted() == {("t", 0)}
    assert not fixture.log_dirs.offline
    assert "'/a/other-7' (left unchanged)" in caplog.text


def test_load_with_undeletable_deleted_partition_continues(caplog: pytest.LogCaptureFixture) -> None:
    fixture = BrokerStorageFixture()
    made(fixture, 0, "t", records=1)
    made(fixture, 0, "u")
    path = fixture.log_dirs.directories[0].rename_for_deletion("u", 0, "0" * 32)
    fixture.env.disk.fault = lambda call, at: (
        OSError(errno.EBUSY, "busy", at) if (call, at) == ("rmtree", path) else None
    )
    load(fixture, "t")
    assert fixture.hosted() == {("t", 0)}
    assert not fixture.log_dirs.offline
    assert f"Failed to delete the directory of a deleted partition: {path!r}" in caplog.text
