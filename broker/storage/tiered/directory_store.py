"""Object store in a directory, such as a mounted network file system."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ottla.broker.storage.tiered.object_store import StoredObject
from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from ottla.env.disk import Disk, is_transient

UPLOAD_SUFFIX = ".upload"
"""Suffix of a file that is being written; it is no object."""
MAX_KNOWN_DIRECTORIES = 10_000
_RETRIABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ETIMEDOUT, errno.ESTALE, errno.EBUSY})


class DirectoryStore:
    """`ObjectStore` whose objects are files below a directory.

    The directory itself must exist: it is not created, since it may be the mount point of a file system that is not
    mounted. An object is written to a file with `UPLOAD_SUFFIX`, synced, renamed, and its directory is synced. A file
    that a crash leaves behind is removed by `remove_uploads`.
    """

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root.rstrip("/")
        self._durable: set[str] = set()
        """Directories of objects that survive a power failure, with their parents."""

    def put(self, name: str, chunks: Iterator[bytes], minimum_bytes: int) -> None:
        """Write an object's file whole or not at all, and durably; arguments and errors are those of `ObjectStore.put`.

        The temporary file is removed after an error.
        """
        path = self._path(name)
        directory = path.rpartition("/")[0]
        temporary = path + UPLOAD_SUFFIX
        with self._remote_errors(name):
            self._make_directory(directory)
        try:
            with self._remote_errors(name):
                self._write(temporary, chunks)
                self._disk.rename(temporary, path)
                self._disk.fsync_dir(directory)
        except Exception:
            with suppress(OSError):
                self._disk.unlink(temporary)
            raise

    def _write(self, path: str, chunks: Iterator[bytes]) -> None:
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            position = 0
            for chunk in chunks:
                file.pwrite(chunk, position)
                position += len(chunk)
            file.fsync()
        finally:
            file.close()

    def _make_directory(self, directory: str) -> None:
        """Create a directory below the root with its parents, each durably in its parent.

        An existing one is synced once, since the attempt that created it may have failed before its sync.

        Raises:
            FileNotFoundError: The root does not exist. OSError: The disk failed.
        """
        if not self._disk.is_dir(self._root):
            raise FileNotFoundError(errno.ENOENT, "no such directory", self._root)
        if directory in self._durable and self._disk.is_dir(directory):
            return
        parent = self._root
        for part in directory[len(self._root) + 1 :].split("/"):
            path = f"{parent}/{part}"
            self._disk.makedirs(path)
            self._disk.fsync_dir(parent)
            parent = path
        if len(self._durable) >= MAX_KNOWN_DIRECTORIES:
            self._durable.clear()
        self._durable.add(directory)

    def get_range(self, name: str, start: int, end: int) -> bytes:
        """Return bytes [start, end) of an object's file, fewer at its end; errors as `ObjectStore.get_range`."""
        with self._remote_errors(name):
            file = self._disk.open(self._path(name), readonly=True)
            try:
                data = file.pread(end - start, start)
            finally:
                file.close()
        if not data and end > start:
            raise CorruptRemoteSegmentError(f"object is truncated: {name} (no byte at {start})")
        return data

    def size(self, name: str) -> int:
        """Return the length of an object's file in bytes. Raises RemoteResourceNotFoundError if it does not exist."""
        with self._remote_errors(name):
            return self._disk.stat(self._path(name)).size_bytes

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects below ``prefix``; those of a directory before those of its subdirectories."""
        for name in self._files(prefix):
            if not name.endswith(UPLOAD_SUFFIX):
                with suppress(RemoteResourceNotFoundError), self._remote_errors(name):
                    yield StoredObject(name, *self._disk.stat(self._path(name)))

    def delete(self, name: str) -> None:
        """Remove an object's file durably; one that does not exist is no error."""
        path = self._path(name)
        with suppress(RemoteResourceNotFoundError), self._remote_errors(name):
            self._disk.unlink(path)
            self._disk.fsync_dir(path.rpartition("/")[0])

    def remove_uploads(self, modified_before_ms: int) -> list[str]:
        """Remove unfinished uploads that were last written before a time in ms since 1970; return their names."""
        removed = []
        for name in self._files(""):
            with suppress(RemoteResourceNotFoundError), self._remote_errors(name):
                path = self._path(name)
                if name.endswith(UPLOAD_SUFFIX) and self._disk.stat(path).mtime_ms < modified_before_ms:
                    self._disk.unlink(path)
                    removed.append(name)
        return removed

    def _files(self, prefix: str) -> Iterator[str]:
        """Yield the names of all files below ``prefix``, unfinished uploads among them."""
        pending = [prefix.rstrip("/")]
        while pending:
            inner = pending.pop()
            path = self._path(inner) if inner else self._root
            with suppress(RemoteResourceNotFoundError), self._remote_errors(inner or self._root):
                names = [f"{inner}/{name}".lstrip("/") for name in self._disk.listdir(path)]
                directories = [name for name in names if self._disk.is_dir(self._path(name))]
                pending += reversed(directories)
                yield from (name for name in names if name not in directories)

    @contextmanager
    def _remote_errors(self, name: str) -> Iterator[None]:
        """Context manager that replaces an OSError in its block by the matching `RemoteStorageError`.

        ``name`` is the object of the message. While the root directory is missing, as without its mount, no object
        counts as missing: the error is retriable.
        """
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            if not self._disk.is_dir(self._root):
                raise RetriableRemoteStorageError(f"directory does not exist: {self._root}") from None
            raise RemoteResourceNotFoundError(f"object does not exist: {name}") from None
        except OSError as error:
            retriable = is_transient(error) or error.errno in _RETRIABLE
            kind = RetriableRemoteStorageError if retriable else RemoteStorageError
            raise kind(f"{name}: {error.strerror or error}") from error

    def _path(self, name: str) -> str:
        if any(part in ("", ".", "..") for part in name.split("/")):
            raise RemoteStorageError(f"invalid object name: {name!r}")
        return f"{self._root}/{name}"
