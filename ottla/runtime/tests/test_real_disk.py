"""Real disk: locks, links, private descriptors, regular files."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from ottla.env.disk import write_file
from ottla.runtime.real_disk import RESERVED_DESCRIPTORS, RealDisk

ANOTHER = """
import sys
import pytest

from ottla.runtime.real_disk import RealDisk
sys.exit(0 if RealDisk().lock(sys.argv[1]) else 7)
"""


def is_locked_by_other_process(path: str) -> bool:
    return subprocess.run([sys.executable, "-c", ANOTHER, path], check=False).returncode == 7


def test_lock_in_same_process_returns_none_and_keeps_first_lock(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    first = RealDisk().lock(path)
    assert first is not None
    assert RealDisk().lock(path) is None
    assert RealDisk().lock(f"{tmp_path}/./.lock") is None, "path in another form"
    assert is_locked_by_other_process(path), "the failed attempt keeps the first lock"
    first.close()
    first.close()
    again = RealDisk().lock(path)
    assert again is not None
    first.close()
    assert RealDisk().lock(path) is None, "close of an old lock keeps the new one"
    again.close()
    assert not is_locked_by_other_process(path)


def test_lock_two_directories_returns_two_locks(tmp_path: Path) -> None:
    locks = [RealDisk().lock(str(tmp_path / name)) for name in ("a", "b")]
    assert all(locks)
    for lock in locks:
        assert lock is not None
        lock.close()


def test_lock_refused_for_another_reason_than_a_holder_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("ottla.runtime.real_disk.fcntl.lockf", refuse)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="No locks available"):
        RealDisk().lock(str(tmp_path / ".lock"))
    assert len(os.listdir("/proc/self/fd")) == len(before), "the descriptor is closed"


def test_rmtree_removes_symbolic_links_but_not_their_targets(tmp_path: Path) -> None:
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
def test_makedirs_over_other_file_type_raises_file_exists_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "d"
    if kind == "file":
        path.write_text("")
    else:
        path.symlink_to("nowhere")
    with pytest.raises(FileExistsError, match=f"cannot create a directory: a {kind} exists at the path"):
        RealDisk().makedirs(str(path))


@pytest.fixture
def few_descriptors() -> Iterator[Callable[[], None]]:
    """Use up all file descriptors of the process; they are closed after the test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []

    def use_up() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, before[1]))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))

    yield use_up
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for number in taken:
        os.close(number)


def test_private_disk_without_descriptors_opens_lists_and_syncs(
    tmp_path: Path, few_descriptors: Callable[[], None]
) -> None:
    plain, path = RealDisk(), str(tmp_path)
    disk = plain.private()
    few_descriptors()
    for call in (partial(plain.open, f"{path}/t", create=True), partial(plain.listdir, path)):
        with pytest.raises(OSError, match="Too many open files"):
            call()
    write_file(disk, f"{path}/quorum-state", b"{}")
    assert disk.listdir(path) == ["quorum-state"]
    kept = [disk.open(f"{path}/{number}", create=True) for number in range(4)]
    write_file(disk, f"{path}/quorum-state", b"{1}")
    for file in kept:
        file.close()
    for number in range(20):
        disk.open(f"{path}/{number}", create=True).close()


def test_private_disk_close_releases_descriptors(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    disk = RealDisk().private()
    assert len(os.listdir("/proc/self/fd")) == before + RESERVED_DESCRIPTORS
    disk.close()
    write_file(disk, f"{tmp_path}/t", b"x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_private_disk_garbage_collection_releases_descriptors() -> None:
    before = len(os.listdir("/proc/self/fd"))
    disk = RealDisk().private()
    assert len(os.listdir("/proc/self/fd")) == before + RESERVED_DESCRIPTORS
    del disk
    assert len(os.listdir("/proc/self/fd")) == before


def test_pread_cached_returns_all_bytes_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    file = RealDisk().open(str(tmp_path / "file"), readonly=True)
    if file.pread_cached(1, 0) is None:
        pytest.skip("the file system cannot read from the page cache only")
    assert (file.pread_cached(4, 3), file.pread_cached(7, 3), file.pread_cached(8, 3)) == (b"3456", b"3456789", None)

    def block(*arguments: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", block)
    assert file.pread_cached(4, 3) is None
    file.close()


def test_list_files_returns_regular_files_and_links_to_them(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name, target in (("link", "file"), ("to-directory", "directory"), ("broken", "missing"), ("loop", "loop")):
        (tmp_path / name).symlink_to(target)
    assert RealDisk().list_files(str(tmp_path)) == ["file", "link"]
    assert RealDisk().private().list_files(str(tmp_path)) == ["file", "link"]


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize("kind", ["directory", "fifo"])
def test_open_other_file_type_raises_os_error_with_path(tmp_path: Path, kind: str, *, readonly: bool) -> None:
    path = tmp_path / "quorum-state"
    path.mkdir() if kind == "directory" else os.mkfifo(path)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match=f"(not a regular file|Is a directory).*{path}"):
        RealDisk().open(str(path), readonly=readonly, create=not readonly)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("kind", ["directory", "fifo", "dangling link"])
def test_write_file_with_blocked_temporary_name_raises_os_error_with_path(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "quorum-state"
    path.write_text("old")
    temporary = Path(f"{path}.tmp")
    match kind:
        case "directory":
            temporary.mkdir()
        case "fifo":
            os.mkfifo(temporary)
        case _:
            temporary.symlink_to("nowhere/at-all")
    with pytest.raises(OSError, match=str(temporary)):
        write_file(RealDisk(), str(path), b"new")
    assert path.read_text() == "old"
