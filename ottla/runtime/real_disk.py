"""The operating system's files as a `Disk`."""

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
    """A file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def is_regular(self) -> bool:
        """Return whether it is a regular file: no directory, FIFO, socket or device."""
        return stat.S_ISREG(os.fstat(self._fd).st_mode)

    def size(self) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(self._fd).st_size

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of ``data``; a short write is continued until the system names an error."""
        done = os.pwrite(self._fd, data, offset)
        if done == len(data):
            return
        view = memoryview(data)
        while done < len(view):
            done += os.pwrite(self._fd, view[done:], offset + done)

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Up to ``size_bytes`` bytes from ``offset``."""
        return os.pread(self._fd, size_bytes, offset)

    def truncate(self, size_bytes: int) -> None:
        """Cut or extend."""
        os.ftruncate(self._fd, size_bytes)

    def fsync(self) -> None:
        """Flush data and length."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file; later calls have no effect."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def __del__(self) -> None:
        # A fetch may still send from a segment that was just deleted: the last holder closes it.
        self.close()


def open_private(path: str) -> int:
    """Open a file to be written from its start, for its owner alone, also if it was there before.

    Returns:
        The descriptor.
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
"""Regular files are read and written as without O_NONBLOCK; opening a FIFO does not wait for its other end."""
_GUARD = threading.Lock()
_LOCKED: set[tuple[int, int]] = set()
"""Device and inode of the lock files this process holds: nodes in its threads see each other here."""


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


class LockFile(RealFile):
    """File whose lock is released when it is closed."""

    __slots__ = ("_key",)

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._key = _identity(os.fstat(fd))
        _LOCKED.add(self._key)

    def close(self) -> None:
        """Let the lock go, once."""
        if self._fd >= 0:
            super().close()
            _LOCKED.discard(self._key)


def _is_real_dir(path: str) -> bool:
    """Return whether there is a directory of that name, and not a symbolic link to one."""
    return os.path.isdir(path) and not os.path.islink(path)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a regular file or a link to one; a link that leads to itself is none."""
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _unless_missing(error: OSError) -> None:
    """Raise the error of a directory that cannot be listed, unless it does not exist."""
    if not isinstance(error, FileNotFoundError):
        raise error


class RealDisk:
    """The operating system's files."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644) -> File:
        """Open with O_CLOEXEC.

        Raises:
            OSError: it cannot be opened, or is no regular file: a FIFO would block a reader for good.
        """
        flags = (os.O_RDONLY if readonly else os.O_RDWR) | _FLAGS | (os.O_CREAT if create else 0)
        file = RealFile(os.open(path, flags, mode))
        if not file.is_regular():
            file.close()
            raise OSError(errno.EINVAL, "not a regular file", path)
        return file

    def exists(self, path: str) -> bool:
        """Return True if there is a file or directory of that name."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        """Return True if there is a directory of that name."""
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names sorted, so that the result does not depend on the file system's order."""
        return sorted(os.listdir(path))

    def list_files(self, path: str) -> list[str]:
        """As `listdir`; only of a symbolic link more than its name is read."""
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if _is_file(entry))

    def makedirs(self, path: str, mode: int = 0o777) -> None:
        """With parents."""
        try:
            os.makedirs(path, mode, exist_ok=True)
        except FileExistsError as error:
            why = "broken symbolic link" if os.path.islink(path) else "file"
            raise FileExistsError(error.errno, f"a {why} lies where a directory is to be made", path) from None

    def rename(self, old: str, new: str) -> None:
        """Atomic."""
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        """Remove a tree, as ``Utils.delete``: of a symbolic link the link alone; a missing file is no error."""
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
        """Sync the directory itself."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def stat(self, path: str) -> FileStat:
        """Return size and modification time by one system call."""
        found = os.stat(path)
        return FileStat(found.st_size, found.st_mtime_ns // 1_000_000)

    def usage(self, path: str) -> tuple[int, int]:
        """Return total and available bytes of the file system (``statvfs``)."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def lock(self, path: str) -> File | None:
        """Kafka locks with fcntl record locks (Java's FileChannel.lock), so both refuse each other's directory.

        Such a lock is the process's own: a second one in the same process would be granted too, and closing any
        descriptor of the file lets it go. So a file this process holds is not even opened.
        """
        with _GUARD:
            if os.path.exists(path) and _identity(os.stat(path)) in _LOCKED:
                return None
            fd = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                return None
            return LockFile(fd)

    def private(self) -> PrivateDisk:
        """Return a disk for the metadata log; descriptors are reserved until it is closed."""
        reserve = DescriptorReserve(RESERVED_DESCRIPTORS)
        return PrivateDisk(DescriptorReservingDisk(reserve), reserve.close)


RESERVED_DESCRIPTORS = 8
"""Descriptors for the metadata log: quorum-state, a new segment with its indexes, a snapshot, a directory that is
synced, and two threads that need one each at the same time."""


class DescriptorReserve:
    """Descriptors that are held open so that one can be given back when another one is needed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[int] = []
        self._guard = threading.Lock()
        self.fill()

    def fill(self) -> None:
        """Take as many descriptors as are missing and can be had."""
        with self._guard, suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release_descriptor(self) -> bool:
        """Close a descriptor; return whether there was one."""
        with self._guard:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True

    @property
    def is_full(self) -> bool:
        """True if all descriptors are held."""
        return len(self._held) == self._count

    def close(self) -> None:
        """Give all descriptors back, for good."""
        with self._guard:
            self._count = 0
            while self._held:
                os.close(self._held.pop())

    def __del__(self) -> None:
        self.close()


class DescriptorReservingDisk(RealDisk):
    """Disk whose calls use a reserved descriptor when the process has none left."""

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
        """Open, by a descriptor of the reserve at need."""
        return self._reserved(
            lambda: super(DescriptorReservingDisk, self).open(path, create=create, readonly=readonly, mode=mode)
        )

    def listdir(self, path: str) -> list[str]:
        """List, by a descriptor of the reserve at need."""
        return self._reserved(lambda: super(DescriptorReservingDisk, self).listdir(path))

    def list_files(self, path: str) -> list[str]:
        """List, by a descriptor of the reserve at need."""
        return self._reserved(lambda: super(DescriptorReservingDisk, self).list_files(path))

    def rmtree(self, path: str) -> None:
        """Remove, by a descriptor of the reserve at need."""
        self._reserved(lambda: super(DescriptorReservingDisk, self).rmtree(path))

    def fsync_dir(self, path: str) -> None:
        """Sync, by a descriptor of the reserve at need."""
        self._reserved(lambda: super(DescriptorReservingDisk, self).fsync_dir(path))
