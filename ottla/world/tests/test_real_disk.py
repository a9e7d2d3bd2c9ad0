"""The real disk's lock: nobody else gets it, in this process or another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.world.real_disk import RealDisk

ANOTHER = """
import sys
import pytest

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


def test_rmtree_of_symbolic_links_removes_the_links_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "f").write_text("precious")
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "g").write_text("x")
    for name, to in (
        ("dir", target),
        ("file", target / "f"),
        ("nowhere", tmp_path / "nowhere"),
        ("loop", tree / "loop"),
    ):
        (tree / name).symlink_to(to)
    link = tmp_path / "link"
    link.symlink_to(tree)
    RealDisk().rmtree(str(link))
    assert not link.is_symlink()
    assert (tree / "inner" / "g").exists()
    RealDisk().rmtree(str(tree))
    RealDisk().rmtree(str(tree))
    assert not tree.exists()
    assert (target / "f").read_text() == "precious"


@pytest.mark.parametrize("kind", ["file", "broken symbolic link"])
def test_makedirs_where_no_directory_lies_names_what_does(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "d"
    if kind == "file":
        path.write_text("")
    else:
        path.symlink_to("nowhere")
    with pytest.raises(FileExistsError, match=f"a {kind} lies where a directory is to be made"):
        RealDisk().makedirs(str(path))
