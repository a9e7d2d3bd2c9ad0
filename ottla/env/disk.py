"""Interfaces of the disk and of files.

All access to files goes through a `Disk`, so the simulator can lose unsynced bytes, tear a write or fail any call.
Methods are synchronous and raise OSError; the broker decides on which thread a slow one runs.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.wire.codec.primitives import Buffer

PRIVATE_FILE, PRIVATE_DIR = 0o600, 0o700
"""Modes of files and directories that only their owner may use."""
_TRANSIENT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})


def is_transient(error: OSError) -> bool:
    """Return True for an error of the process (out of descriptors or memory) instead of the disk.

    A retry may succeed.
    """
    return error.errno in _TRANSIENT


class FileStat(NamedTuple):
    """Size and modification time of a file."""

    size_bytes: int
    mtime_ms: int
    """Time of the last modification, in milliseconds since 1970."""


class File(Protocol):
    """Open file."""

    def size(self) -> int:
        """Return the length of the file in bytes."""

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of ``data`` at ``offset``; raises OSError where it could not be written whole."""

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Up to ``size_bytes`` bytes from ``offset``; fewer only at the end."""

    def truncate(self, size_bytes: int) -> None:
        """Cut or extend to that length."""

    def fsync(self) -> None:
        """Make what was written survive a power cut. A failure is final: never try again."""

    def close(self) -> None:
        """Give the descriptor back."""

    def fileno(self) -> int:
        """Return the descriptor for ``sendfile``, or -1 where there is none."""


class FileSlice:
    """A range of a file to be sent to a socket; its bytes are read only where ``sendfile`` is impossible."""

    __slots__ = ("file", "offset", "size_bytes")

    def __init__(self, file: File, offset: int, size_bytes: int) -> None:
        self.file = file
        self.offset = offset
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    def read(self) -> bytes:
        """Return the bytes of the range.

        Raises:
            FileReadError: the disk could not read them.
        """
        try:
            return self.file.pread(self.size_bytes, self.offset)
        except OSError as error:
            raise FileReadError(error, self.file) from error

    def read_all(self) -> bytes:
        """Return the bytes of the range, all of them: a response whose length is sent already holds no fewer.

        Raises:
            FileTruncatedError: the file ends before; FileReadError: as `read`.
        """
        try:
            raw = self.file.pread(self.size_bytes, self.offset)
        except OSError as error:
            raise FileReadError(error, self.file) from error
        if len(raw) < self.size_bytes:
            raise FileTruncatedError(self)
        return raw


class FileReadError(OSError):
    """Disk error while a range of ``file`` is read or sent, distinct from errors of the connection."""

    def __init__(self, error: OSError, file: File) -> None:
        super().__init__(error.errno, error.strerror or str(error))
        self.file = file


class FileTruncatedError(OSError):
    """The file has become shorter than the range that is sent of it: its log was truncated meanwhile."""

    def __init__(self, part: FileSlice) -> None:
        size_bytes = part.file.size()
        super().__init__(
            f"file was truncated while it was sent: {size_bytes} bytes, {part.size_bytes} at {part.offset}"
        )


class Disk(Protocol):
    """A tree of files."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644) -> File:
        """Open a file for reading and writing; ``create`` makes an absent one."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory of that name."""

    def is_dir(self, path: str) -> bool:
        """Return whether there is a directory of that name."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def list_files(self, path: str) -> list[str]:
        """Names of the regular files in a directory, sorted; a symbolic link counts as what it leads to."""

    def makedirs(self, path: str, mode: int = 0o777) -> None:
        """Make a directory and its parents where they are missing; ``mode`` is that of the directory itself."""

    def rename(self, old: str, new: str) -> None:
        """Replace ``new`` by ``old`` in one step."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def rmtree(self, path: str) -> None:
        """Remove a directory with all it holds; of a symbolic link the link alone."""

    def fsync_dir(self, path: str) -> None:
        """Make creations, renames and removals in a directory survive a power cut."""

    def stat(self, path: str) -> FileStat:
        """Return a file's size and age, without opening it."""

    def usage(self, path: str) -> tuple[int, int]:
        """Return total and available bytes of the volume of a directory."""

    def lock(self, path: str) -> File | None:
        """Lock a file, which is created if it is missing; return it, or None if another holder has the lock."""

    def private(self) -> PrivateDisk:
        """Return the disk for the metadata log.

        New files are readable by their owner only, and descriptors are reserved until it is closed.
        """


class PrivateDisk:
    """Disk whose new files and directories are readable by their owner only: they may hold credentials."""

    def __init__(self, under: Disk, release: Callable[[], None] = lambda: None) -> None:
        """``release``: gives back what is reserved for this disk."""
        self._under = under
        self.close = release
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

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o600) -> File:
        """Open a file; of ``mode`` only the owner's part counts."""
        return self._under.open(path, create=create, readonly=readonly, mode=mode & PRIVATE_DIR)

    def makedirs(self, path: str, mode: int = PRIVATE_DIR) -> None:
        """Make a directory; of ``mode`` only the owner's part counts."""
        self._under.makedirs(path, mode & PRIVATE_DIR)

    def private(self) -> PrivateDisk:
        """Return the disk itself."""
        return self


def read_file(disk: Disk, path: str) -> bytes:
    """Return a whole small file."""
    file = disk.open(path, readonly=True)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def sync_file(disk: Disk, path: str) -> None:
    """Make a small file that was written before survive a power cut."""
    file = disk.open(path, readonly=True)
    try:
        file.fsync()
    finally:
        file.close()


def write_file(
    disk: Disk, path: str, data: bytes, *, sync: bool = True, sync_dir: bool | None = None, keep: str | None = None
) -> None:
    """Replace a small file in one step: ``.tmp`` written and synced, renamed, the directory synced.

    ``sync_dir=False`` leaves the directory to the caller, who has several files to replace in it. ``keep`` is the name
    that the former file gets.
    """
    temporary = path + ".tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        if sync:
            file.fsync()
    finally:
        file.close()
    if keep is not None:
        disk.rename(path, keep)
    disk.rename(temporary, path)
    if sync if sync_dir is None else sync_dir:
        disk.fsync_dir(path.rpartition("/")[0] or ".")
