"""Interfaces `Disk` and `File`, ranges of files to send, and helpers to read, sync and replace small files.

A node accesses its log directories only through a `Disk`, so the simulator can lose unsynced bytes, tear a write or
fail any call. Methods are synchronous and raise OSError; the broker decides on which thread a slow one runs.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple, Protocol

from ottla.wire.codec.primitives import Buffer

PRIVATE_FILE, PRIVATE_DIR = 0o600, 0o700
"""Access rights of files and directories that only their owner may use."""
_TRANSIENT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})


def is_transient(error: OSError) -> bool:
    """Return True for an error of the process (no descriptors or memory, signal), not of the disk: a retry may help."""
    return error.errno in _TRANSIENT


class FileStat(NamedTuple):
    """Size in bytes and modification time of a file or directory."""

    size_bytes: int
    mtime_ms: int
    """Time of the last modification, in milliseconds since 1970."""


class File(Protocol):
    """Open file with reads and writes at given offsets, as ``pread`` and ``pwrite``. Errors are OSError."""

    def size(self) -> int:
        """Return the length of the file in bytes."""

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of ``data`` at ``offset``; raises OSError if it could not be written completely."""

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Return ``size_bytes`` bytes from ``offset`` on, fewer only at the end of the file, none beyond it."""

    def pread_cached(self, size_bytes: int, offset: int) -> bytes | None:
        """Return ``size_bytes`` bytes from ``offset`` on without waiting for the disk; None if that is not possible.

        None, too, if the file ends before.
        """

    def truncate(self, size_bytes: int) -> None:
        """Set the length of the file to ``size_bytes``, as ``ftruncate``: cut it, or extend it by zeros."""

    def fsync(self) -> None:
        """Make all writes durable; blocks. After an error it must not be retried: the unsynced data may be lost."""

    def close(self) -> None:
        """Close the file and its descriptor."""

    def fileno(self) -> int:
        """Return the descriptor for ``sendfile``; -1 if there is none."""


class FileSlice:
    """Range of a file to send to a socket; a large one by ``sendfile``, if that can be used, without reading it."""

    __slots__ = ("file", "offset", "size_bytes")

    def __init__(self, file: File, offset: int, size_bytes: int) -> None:
        self.file = file
        self.offset = offset
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    def read(self) -> bytes:
        """Return the bytes of the range, fewer if the file has become shorter.

        Raises:
            FileReadError: the disk could not read them.
        """
        try:
            return self.file.pread(self.size_bytes, self.offset)
        except OSError as error:
            raise FileReadError(error, self.file) from error

    def read_all(self) -> bytes:
        """Return all bytes of the range, for a response with a length that was sent already.

        Raises:
            FileTruncatedError: the file ends within the range; FileReadError: the disk could not read them.
        """
        try:
            raw = self.file.pread(self.size_bytes, self.offset)
        except OSError as error:
            raise FileReadError(error, self.file) from error
        if len(raw) < self.size_bytes:
            raise FileTruncatedError(self)
        return raw


class FileReadError(OSError):
    """Raised for a disk error during a read or ``sendfile`` of a range of ``file``, not of the connection."""

    def __init__(self, error: OSError, file: File) -> None:
        super().__init__(error.errno, error.strerror or str(error))
        self.file = file


class FileTruncatedError(OSError):
    """Raised if a file has become shorter than a range that is being sent from it, because its log was truncated."""

    def __init__(self, part: FileSlice) -> None:
        size_bytes = part.file.size()
        super().__init__(
            f"file was truncated while it was sent: {size_bytes} bytes, {part.size_bytes} at {part.offset}"
        )


class Disk(Protocol):
    """File system of a node: files and directories by path. Errors are OSError."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644) -> File:
        """Open an existing file for reading and writing.

        ``create``: create it with the access rights ``mode`` if it is missing, instead of raising FileNotFoundError.
        ``readonly``: open it for reading only.
        """

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists at ``path``."""

    def is_dir(self, path: str) -> bool:
        """Return whether a directory exists at ``path``."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def list_files(self, path: str) -> list[str]:
        """Return the names of the regular files in a directory, sorted; symbolic links to files are included."""

    def makedirs(self, path: str, mode: int = 0o777) -> None:
        """Create a directory and its parents if they are missing; ``mode``: access rights of the directory itself.

        A `MemoryDisk` ignores ``mode``.
        """

    def rename(self, old: str, new: str) -> None:
        """Rename the file or directory ``old`` to ``new`` atomically, replacing an existing file.

        On a `MemoryDisk` a directory must have no subdirectories.
        """

    def unlink(self, path: str) -> None:
        """Remove a file or a symbolic link."""

    def rmtree(self, path: str) -> None:
        """Remove a directory with its contents; of a symbolic link only the link. A missing directory is no error."""

    def fsync_dir(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable; blocks."""

    def stat(self, path: str) -> FileStat:
        """Return size and modification time of a file or directory (`MemoryDisk`: only a file), without opening it."""

    def usage(self, path: str) -> tuple[int, int]:
        """Return total and available bytes of the file system that contains ``path``."""

    def lock(self, path: str) -> File | None:
        """Create and lock the file at ``path`` without waiting; return it, or None if it is locked already.

        Usually another process holds the lock; a `MemoryDisk` locks a file again for the process that has locked it.
        Closing the file, or the end of the process, releases the lock; the file remains. Raises `OSError` if the file
        cannot be created, or the file system has no locks.
        """

    def private(self) -> PrivateDisk:
        """Return a view of the disk for the metadata log: new files are readable by their owner only.

        File descriptors are reserved for it until it is closed; a `MemoryDisk` needs none.
        """


class DiskView:
    """Base of a disk that changes some calls to another one.

    It passes all calls on to ``under``, except `open`, `makedirs` and `private`, which subclasses define.
    """

    def __init__(self, under: Disk) -> None:
        self._under = under
        self.exists = under.exists
        self.is_dir = under.is_dir
        self.listdir = under.listdir
        self.list_files = under.list_files
        self.rename = under.rename
        self.unlink = under.unlink
        self.rmtree = under.rmtree
        self.fsync_dir = under.fsync_dir
        self.stat = under.stat
        self.usage = under.usage
        self.lock = under.lock


class PrivateDisk(DiskView):
    """Disk whose new files and directories are accessible by their owner only: they may contain credentials.

    This does not apply to lock files, nor to missing parents of a directory.
    """

    def __init__(self, under: Disk, release: Callable[[], None] = lambda: None) -> None:
        """Create a view of ``under``; ``release`` is called by `close` to release reserved descriptors."""
        super().__init__(under)
        self.close = release

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o600) -> File:
        """Open a file as `Disk.open`; only the owner's access rights in ``mode`` are used."""
        return self._under.open(path, create=create, readonly=readonly, mode=mode & PRIVATE_DIR)

    def makedirs(self, path: str, mode: int = PRIVATE_DIR) -> None:
        """Create a directory as `Disk.makedirs`; only the owner's access rights in ``mode`` are used."""
        self._under.makedirs(path, mode & PRIVATE_DIR)

    def private(self) -> PrivateDisk:
        """Return this disk, which is private already."""
        return self


def read_file(disk: Disk, path: str) -> bytes:
    """Return the contents of a small file; raises OSError."""
    with closing(disk.open(path, readonly=True)) as file:
        return file.pread(file.size(), 0)


def sync_file(disk: Disk, path: str) -> None:
    """Open a file, make its contents durable and close it; raises OSError."""
    with closing(disk.open(path, readonly=True)) as file:
        file.fsync()


def write_file(
    disk: Disk, path: str, data: bytes, *, sync: bool = True, sync_dir: bool | None = None, keep: str | None = None
) -> None:
    """Replace the contents of a small file atomically: write and sync ``.tmp``, rename it, sync the directory.

    ``sync`` False omits both syncs; ``sync_dir``, if not None, determines whether the directory is synced. ``keep`` is
    the path to which the previous file, which must exist, is renamed before, so that for a moment no file is at
    ``path``; None to replace it.

    Raises:
        OSError: a call failed; the file has the previous or the new contents, or with ``keep`` may be missing.
    """
    temporary = path + ".tmp"
    with closing(disk.open(temporary, create=True)) as file:
        file.truncate(0)
        file.pwrite(data, 0)
        if sync:
            file.fsync()
    if keep is not None:
        disk.rename(path, keep)
    disk.rename(temporary, path)
    if sync if sync_dir is None else sync_dir:
        disk.fsync_dir(path.rpartition("/")[0] or ".")
