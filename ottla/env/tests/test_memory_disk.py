"""The disk of the simulator: what a power cut may do to the names of directories."""

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


def after_a_cut(session: DiskSession) -> list[str]:
    session.disk.lose_power()
    found = session.listdir("/d")
    for name in found:
        if session.exists(f"/d/{name}/file"):
            assert read_file(session, f"/d/{name}/file") in (b"x", b"y")
    return found


def test_a_directorys_new_name_is_sure_once_the_one_it_lies_in_is_synced() -> None:
    found: Counter[tuple[str, ...]] = Counter()
    for seed in SEEDS:
        session = disk(seed)
        session.rename("/d/a", "/d/b")
        session.fsync_dir("/d/b")
        names = after_a_cut(session)
        assert session.exists(f"/d/{names[0]}/file")
        found[tuple(names)] += 1
        session = disk(seed)
        session.rename("/d/a", "/d/b")
        session.fsync_dir("/d")
        assert after_a_cut(session) == ["b"]
    assert {*found} == {("a",), ("b",)}
    assert min(found.values()) > 15


def test_what_was_renamed_twice_has_one_of_its_names() -> None:
    found: Counter[tuple[str, ...]] = Counter()
    for seed in SEEDS:
        session = disk(seed)
        session.rename("/d/a", "/d/b")
        session.rename("/d/b", "/d/c")
        found[tuple(after_a_cut(session))] += 1
    assert {*found} == {("a",), ("b",), ("c",)}


def test_an_old_name_that_another_has_now_is_not_taken_back() -> None:
    for seed in SEEDS:
        session = disk(seed)
        session.rename("/d/a", "/d/b")
        session.makedirs("/d/a")
        write_file(session, "/d/a/file", b"y")
        assert after_a_cut(session) == ["a", "b"]
        assert read_file(session, "/d/b/file") == b"x"


def test_what_is_removed_does_not_come_back_under_an_older_name() -> None:
    for seed in SEEDS:
        session = disk(seed)
        session.rename("/d/a", "/d/b")
        session.rmtree("/d/b")
        assert after_a_cut(session) == []


def test_a_dead_process_alone_takes_no_name_back() -> None:
    session = disk(1)
    session.rename("/d/a", "/d/b")
    session.kill()
    assert session.disk.session().listdir("/d") == ["b"]


def test_file_that_its_owner_may_only_read_is_not_opened_for_writing() -> None:
    disk = MemoryDisk(random.Random(1), lambda: 0).session()
    disk.makedirs("/d")
    disk.open("/d/f", create=True, mode=0o400).pwrite(b"x", 0)
    assert disk.open("/d/f", readonly=True).pread(1, 0) == b"x"
    with pytest.raises(PermissionError):
        disk.open("/d/f")
