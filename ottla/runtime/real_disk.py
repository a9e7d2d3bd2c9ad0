"""`Disk` of the operating system's files, with reserved descriptors for the metadata log."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ottla.env.disk import PRIVATE_FILE, File, FileStat, PrivateDisk
from ottla.wire.codec.primitives import Buffer


class RealFile:
    """Open file of the operating system; closed when it is garbage collected."""

    __slots__ = ("__weakref__", "_fd")

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def is_regular(self) -> bool:
        """Return whether this is a regular file, not a directory, FIFO, socket or device."""
        return stat.S_ISREG(os.fstat(self._fd).st_mode)

    def size(self) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(self._fd).st_size

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of ``data`` at ``offset``; a short write is continued until the system reports an error.

        Raises:
            OSError: the write failed; a part of ``data`` may be written.
        """
        done = os.pwrite(self._fd, data, offset)
        if done == len(data):
            return
        view = memoryview(data)
        while done < len(view):
            done += os.pwrite(self._fd, view[done:], offset + done)

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Return ``size_bytes`` bytes from ``offset`` on; fewer, or none, at the end of the file."""
        return os.pread(self._fd, size_bytes, offset)

    def pread_cached(self, size_bytes: int, offset: int) -> bytes | None:
        """Return ``size_bytes`` bytes from the page cache; None if it does not have all, or cannot tell (tmpfs).

        None, too, if the file ends before, or the disk fails.
        """
        buffer = bytearray(size_bytes)
        try:
            count = os.preadv(self._fd, [buffer], offset, os.RWF_NOWAIT)
        except OSError:
            return None
        return bytes(buffer) if count == size_bytes else None

    def truncate(self, size_bytes: int) -> None:
        """Set the length of the file to ``size_bytes``; a longer file ends with zeros."""
        os.ftruncate(self._fd, size_bytes)

    def fsync(self) -> None:
        """Make data and length of the file durable; blocks until the disk has them."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file; repeated calls have no effect."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def fileno(self) -> int:
        """Return the descriptor; -1 if the file is closed."""
        return self._fd

    def __del__(self) -> None:
        # A fetch may still send from a segment that was just deleted: the last reference closes it.
        self.close()


def open_private(path: str) -> int:
    """Create or empty a file and make it accessible by its owner only; return a descriptor for writing.

    A path that is not a regular file, such as a terminal, is only opened.
    """
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        if stat.S_ISREG(os.fstat(number).st_mode):  # not a terminal
            os.fchmod(number, PRIVATE_FILE)
            os.ftruncate(number, 0)
    except OSError:
        os.close(number)
        raise
    return number


T = TypeVar("T")
_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
"""O_NONBLOCK has no effect on regular files; with it, opening a FIFO does not wait for its other end."""
_GUARD = threading.Lock()
_LOCKED: set[tuple[int, int]] = set()
"""(device, inode) of the lock files that this process has locked: fcntl locks do not exclude its own threads."""


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


class LockFile(RealFile):
    """File that `RealDisk.lock` has locked for this process; `close` releases the lock."""

    __slots__ = ("_key",)

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._key = _identity(os.fstat(fd))
        _LOCKED.add(self._key)

    def close(self) -> None:
        """Close the file and release the lock; repeated calls have no effect."""
        if self._fd >= 0:
            super().close()
            _LOCKED.discard(self._key)


def _is_real_dir(path: str) -> bool:
    """Return whether ``path`` is a directory, and not a symbolic link to one."""
    return os.path.isdir(path) and not os.path.islink(path)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Return whether a directory entry is a regular file or a symbolic link to one; False for a cyclic link."""
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _unless_missing(error: OSError) -> None:
    """Raise ``error``, unless it is FileNotFoundError; callback of `os.walk` for directories that cannot be listed."""
    if not isinstance(error, FileNotFoundError):
        raise error


class RealDisk:
    """`Disk` of the operating system's file systems."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644) -> File:
        """Open a regular file as `Disk.open`.

        Raises:
            OSError: the file cannot be opened, or is not a regular file: a FIFO would block a reader forever.
        """
        flags = (os.O_RDONLY if readonly else os.O_RDWR) | _FLAGS | (os.O_CREAT if create else 0)
        file = RealFile(os.open(path, flags, mode))
        if not file.is_regular():
            file.close()
            raise OSError(errno.EINVAL, "not a regular file", path)
        return file

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists at ``path``; False for a broken symbolic link."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        """Return whether a directory, or a symbolic link to one, exists at ``path``."""
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names of files and directories in a directory, sorted."""
        return sorted(os.listdir(path))

    def list_files(self, path: str) -> list[str]:
        """Return the names of regular files and symbolic links to them in a directory, sorted."""
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if _is_file(entry))

    def makedirs(self, path: str, mode: int = 0o777) -> None:
        """Create a directory and its parents if they are missing.

        Raises:
            FileExistsError: a file or a broken symbolic link has that path; OSError: the disk failed.
        """
        try:
            os.makedirs(path, mode, exist_ok=True)
        except FileExistsError as error:
            why = "broken symbolic link" if os.path.islink(path) else "file"
            raise FileExistsError(error.errno, f"cannot create a directory: a {why} exists at the path", path) from None

    def rename(self, old: str, new: str) -> None:
        """Rename ``old`` to ``new`` atomically, replacing an existing file."""
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file or a symbolic link; FileNotFoundError if it is missing."""
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        """Remove a directory with its contents, or only the link, as ``Utils.delete``; missing files are no error."""
        if not _is_real_dir(path):
            with suppress(FileNotFoundError):
                os.unlink(path)
            return
        for inner, directories, files in os.walk(path, topdown=False, onerror=_unless_missing):
            for name in files:
                with suppress(FileNotFoundError):
                    os.unlink(f"{inner}/{name}")
            for name in directories:
                if os.path.islink(f"{inner}/{name}"):
                    os.unlink(f"{inner}/{name}")
                else:
                    with suppress(FileNotFoundError):
                        os.rmdir(f"{inner}/{name}")
        with suppress(FileNotFoundError):
            os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def stat(self, path: str) -> FileStat:
        """Return size (bytes) and modification time (ms since 1970) of a file or directory, by one system call."""
        found = os.stat(path)
        return FileStat(found.st_size, found.st_mtime_ns // 1_000_000)

    def usage(self, path: str) -> tuple[int, int]:
        """Return total bytes of the file system of ``path``, and those available to normal users (``statvfs``)."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def lock(self, path: str) -> File | None:
        """Create the file at ``path`` if it is missing, and lock it; return it, or None if it is locked already.

        It is an fcntl record lock like Kafka's (Java's ``FileChannel.lock``), so that Kafka and Ottla exclude each
        other. Such a lock belongs to the process: a second one in the same process would be granted too, and closing
        any descriptor of the file releases it. So a file that this process has locked is not opened.

        Raises:
            OSError: The file cannot be created or opened, or locked for another reason (``ENOLCK``).
        """
        with _GUARD:
            if os.path.exists(path) and _identity(os.stat(path)) in _LOCKED:
                return None
            fd = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    return None
                raise  # such as ENOLCK: the file system has no locks
            return LockFile(fd)

    def private(self) -> PrivateDisk:
        """Return a disk for the metadata log, which works even while the process has no free descriptors.

        Opens `RESERVED_DESCRIPTORS` descriptors for it, which `close` of the disk releases. New files are accessible by
        their owner only.
        """
        reserve = DescriptorReserve(RESERVED_DESCRIPTORS)
        return PrivateDisk(DescriptorReservingDisk(reserve), reserve.close)


RESERVED_DESCRIPTORS = 8
"""Descriptors reserved for the metadata log: quorum-state, a new segment with its indexes, a snapshot, a directory to
sync, and one each for two concurrent threads."""


class DescriptorReserve:
    """Reserve of open descriptors of ``/dev/null``, which a caller closes one by one when the process has none left."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[int] = []
        self._guard = threading.Lock()
        self.fill()

    def fill(self) -> None:
        """Open descriptors until the reserve is full or the process has none left."""
        with self._guard, suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release_descriptor(self) -> bool:
        """Close a descriptor of the reserve, so that the process has a free one; return False if there was none."""
        with self._guard:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True

    @property
    def is_full(self) -> bool:
        """True if no descriptor of the reserve is missing at present, or the reserve is closed."""
        return len(self._held) == self._count

    def close(self) -> None:
        """Close all descriptors of the reserve; `fill` opens none any more."""
        with self._guard:
            self._count = 0
            while self._held:
                os.close(self._held.pop())

    def __del__(self) -> None:
        self.close()


class DescriptorReservingDisk(RealDisk):
    """`RealDisk` whose calls, except `lock`, release a reserved descriptor and retry when the process has none left."""

    def __init__(self, reserve: DescriptorReserve) -> None:
        self._reserve = reserve

    def _reserved(self, call: Callable[[], T]) -> T:
        while True:
            try:
                result = call()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._reserve.release_descriptor():
                    raise
                continue
            if not self._reserve.is_full:
                self._reserve.fill()
            return result

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644) -> File:
        """Open a file, with a descriptor of the reserve if necessary."""
        return self._reserved(
            lambda: super(DescriptorReservingDisk, self).open(path, create=create, readonly=readonly, mode=mode)
        )

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, with a descriptor of the reserve if necessary."""
        return self._reserved(lambda: super(DescriptorReservingDisk, self).listdir(path))

    def list_files(self, path: str) -> list[str]:
        """Return the names of files in a directory, with a descriptor of the reserve if necessary."""
        return self._reserved(lambda: super(DescriptorReservingDisk, self).list_files(path))

    def rmtree(self, path: str) -> None:
        """Remove a directory with its contents, with a descriptor of the reserve if necessary."""
        self._reserved(lambda: super(DescriptorReservingDisk, self).rmtree(path))

    def fsync_dir(self, path: str) -> None:
        """Sync a directory, with a descriptor of the reserve if necessary."""
        self._reserved(lambda: super(DescriptorReservingDisk, self).fsync_dir(path))
