"""Claims about the disk on which nothing happens."""

from __future__ import annotations

from ottla.log.rehearsal import Rehearsal
from ottla.log.tests.world import memory_disk


def test_a_directory_removed_in_a_rehearsal_is_gone_there_and_whole_on_the_disk() -> None:
    disk = memory_disk().session()
    for name in ("/d/t-0/a", "/d/t-0/inner/b", "/d/t-1/c"):
        disk.makedirs(name.rpartition("/")[0])
        disk.open(name, create=True).pwrite(b"x", 0)
    rehearsal = Rehearsal(disk)
    rehearsal.open("/d/t-0/new", create=True)
    rehearsal.rmtree("/d/t-0")
    assert rehearsal.listdir("/d") == ["t-1"]
    assert not rehearsal.exists("/d/t-0/inner/b")
    assert not rehearsal.exists("/d/t-0/new")
    assert {"/d/t-0/a", "/d/t-0/inner/b"} <= rehearsal.removed
    assert disk.exists("/d/t-0/a")
    assert disk.exists("/d/t-0/inner/b")
    assert rehearsal.exists("/d/t-1/c")
