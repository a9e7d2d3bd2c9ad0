"""In-memory disk: effects of power loss on directory names."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ottla.env.disk import read_file, write_file
from ottla.env.memory_disk import DiskSession, MemoryDisk

SEEDS = range(60)


def disk(seed: int) -> DiskSession:
    session = MemoryDisk(random.Random(seed), lambda: 0).session()
    session.makedirs("/d/a")
    write_file(session, "/d/a/file", b"x")
    session.fsync_dir("/d")
    return session


def names_after_power_loss(session: DiskSession) -> list[str]:
    session.disk.lose_power()
    found = session.listdir("/d")
    for name in found:
        if session.exists(f"/d/{name}/file"):
            assert read_file(session, f"/d/{name}/file") in (b"x", b"y")
    return found


def test_rename_is_durable_after_fsync_of_parent_directory() -> None:
    found: Counter[tuple[str, ...]] = Counter()
    for seed in SEEDS:
        session = disk(seed)
        session.rename("/d/a", "/d/b")
        session.fsync_dir("/d/b")
        names = names_after_power_loss(session)
        assert session.exists(f"/d/{names[0]}/file")
        found[tuple(names)] += 1
        session = disk(seed)
        session.rename("/d/a", "/d/b")
        session.fsync_dir("/d")
        assert names_after_power_loss(session) == ["b"]
    assert {*found} == {("a",), ("b",)}
    assert min(found.values()) > 15


def test_rename_twice_then_power_loss_keeps_one_of_the_names() -> None:
    found: Counter[tuple[str, ...]] = Counter()
    for seed in SEEDS:
        session = disk(seed)
        session.rename("/d/a", "/d/b")
        session.rename("/d/b", "/d/c")
        found[tuple(names_after_power_loss(session))] += 1
    assert {*found} == {("a",), ("b",), ("c",)}


def test_power_loss_does_not_restore_a_reused_name() -> None:
    for seed in SEEDS:
        session = disk(seed)
        session.rename("/d/a", "/d/b")
        session.makedirs("/d/a")
        write_file(session, "/d/a/file", b"y")
        assert names_after_power_loss(session) == ["a", "b"]
        assert read_file(session, "/d/b/file") == b"x"


def test_power_loss_does_not_restore_a_removed_directory() -> None:
    for seed in SEEDS:
        session = disk(seed)
        session.rename("/d/a", "/d/b")
        session.rmtree("/d/b")
        assert names_after_power_loss(session) == []


def test_kill_without_power_loss_keeps_renames() -> None:
    session = disk(1)
    session.rename("/d/a", "/d/b")
    session.kill()
    assert session.disk.session().listdir("/d") == ["b"]


def test_open_read_only_file_for_writing_raises_permission_error() -> None:
    disk = MemoryDisk(random.Random(1), lambda: 0).session()
    disk.makedirs("/d")
    disk.open("/d/f", create=True, mode=0o400).pwrite(b"x", 0)
    assert disk.open("/d/f", readonly=True).pread(1, 0) == b"x"
    with pytest.raises(PermissionError):
        disk.open("/d/f")


def test_some_reads_from_the_page_cache_only_find_no_bytes() -> None:
    session = disk(0)
    file = session.open("/d/a/file")
    assert [file.pread_cached(1, 0) for _ in range(20)] == [b"x"] * 20
    session.disk.cold_read_interval = 5
    found = [file.pread_cached(1, 0) for _ in range(20)]
    assert (found.count(None), found.count(b"x")) == (4, 16)
    assert file.pread(1, 0) == b"x"
