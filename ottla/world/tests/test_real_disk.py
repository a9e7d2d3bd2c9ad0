"""The real disk's lock: nobody else gets it, in this process or another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ottla.world.real_disk import RealDisk

ANOTHER = """
import sys
from ottla.world.real_disk import RealDisk
sys.exit(0 if RealDisk().lock(sys.argv[1]) else 7)
"""


def taken_elsewhere(path: str) -> bool:
    return subprocess.run([sys.executable, "-c", ANOTHER, path], check=False).returncode == 7


def test_a_second_lock_in_the_same_process_is_refused_and_leaves_the_first(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    first = RealDisk().lock(path)
    assert first is not None
    assert RealDisk().lock(path) is None
    assert RealDisk().lock(f"{tmp_path}/./.lock") is None, "by whatever name"
    assert taken_elsewhere(path), "the refused one did not take the first with it"
    first.close()
    first.close()
    again = RealDisk().lock(path)
    assert again is not None
    first.close()
    assert RealDisk().lock(path) is None, "an old one's closing says nothing of the new"
    again.close()
    assert not taken_elsewhere(path)


def test_two_directories_have_two_locks(tmp_path: Path) -> None:
    locks = [RealDisk().lock(str(tmp_path / name)) for name in ("a", "b")]
    assert all(locks)
    for lock in locks:
        assert lock is not None
        lock.close()
