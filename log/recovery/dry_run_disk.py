"""Dry-run `Disk` that reads from another disk and applies changes in memory only.

Recovery runs on it to report its changes without making them.
"""

from __future__ import annotations

from ottla.env.disk import Disk, File, FileStat, PrivateDisk
from ottla.wire.codec.primitives import Buffer


class DryRunFile:
    """Open file of a `DryRunDisk`; its changes are applied in memory only.

    The real file is open only during a read, as there may be more files than descriptors.
    """

    def __init__(self, disk: DryRunDisk, path: str, real_path: str | None) -> None:
        self._disk = disk
        self._path = path
        self._real_path = real_path
        self._real: File | None = None
        self._size = disk.real_size(real_path) if real_path is not None else 0
        self._own: bytearray | None = None if real_path is not None else bytearray()

    def _read(self, size_bytes: int, offset: int) -> bytes:
        if self._real is None:
            assert self._real_path is not None
            self._real = self._disk.open_real(self._real_path)
        return self._real.pread(max(min(size_bytes, self._size - offset), 0), offset)

    def _copy(self) -> bytearray:
        if self._own is None:
            self._own = bytearray(self._read(self._size, 0))
            self.close()
        return self._own

    def size(self) -> int:
        """Return the length of the file in bytes, after the changes in memory."""
        return self._size

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write in memory and record the file as changed."""
        own = self._copy()
        own.extend(bytes(max(offset - len(own), 0)))
        own[offset : offset + len(data)] = data
        self._size = len(own)
        self._disk.changed_files.add(self._path)

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Return up to ``size_bytes`` bytes from ``offset`` on, after the changes in memory."""
        return self._read(size_bytes, offset) if self._own is None else bytes(self._own[offset : offset + size_bytes])

    def pread_cached(self, size_bytes: int, offset: int) -> bytes | None:
        """Return what `pread` does: a dry run may wait for the disk. None if the file ends before."""
        data = self.pread(size_bytes, offset)
        return data if len(data) == size_bytes else None

    def truncate(self, size_bytes: int) -> None:
        """Truncate in memory and record the removed bytes in `DryRunDisk.truncated_bytes`."""
        if size_bytes == self._size:
            return
        self._disk.changed_files.add(self._path)
        if size_bytes < self._size:
            self._disk.truncated_bytes[self._path] = (
                self._disk.truncated_bytes.get(self._path, 0) + self._size - size_bytes
            )
        if size_bytes > self._size or self._own is not None:
            own = self._copy()
            del own[size_bytes:]
            own.extend(bytes(size_bytes - len(own)))
        self._size = size_bytes

    def fsync(self) -> None:
        """Do nothing: nothing is written to the real disk."""

    def close(self) -> None:
        """Close the real file's descriptor; the changes in memory remain for the next open."""
        if self._real is not None:
            self._real.close()
            self._real = None

    def fileno(self) -> int:
        """Return -1, since there is no descriptor for ``sendfile``."""
        return -1


class DryRunDisk:
    """`Disk` over a real disk: reads see earlier changes, which are applied in memory and recorded only."""

    def __init__(self, under: Disk) -> None:
        self._real_disk = under
        self.usage = under.usage
        self.lock = under.lock  # on the real disk, so that no node writes meanwhile
        self._files: dict[str, DryRunFile] = {}
        self._removed_paths: set[str] = set()
        self.changed_files: set[str] = set()
        """Paths of files that would be written."""
        self.truncated_bytes: dict[str, int] = {}
        """Bytes that would be truncated, by path."""
        self.removed_files: set[str] = set()
        """Paths of files of the real disk that would be removed."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644) -> File:
        """Open a file with the changes that the dry run has made to it in memory."""
        known = self._files.get(path)
        if known is not None:
            return known
        if path in self._removed_paths or not self._real_disk.exists(path):
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            real_path = None
        else:
            real_path = path
        self._removed_paths.discard(path)
        made = self._files[path] = DryRunFile(self, path, real_path)
        return made

    def open_real(self, path: str) -> File:
        """Open a file of the real disk, read-only."""
        return self._real_disk.open(path, readonly=True)

    def real_size(self, path: str) -> int:
        """Return the size in bytes of a file of the real disk."""
        return self._real_disk.stat(path).size_bytes

    def exists(self, path: str) -> bool:
        """Return True if a file or directory would exist after the changes so far."""
        return path in self._files or (path not in self._removed_paths and self._real_disk.exists(path))

    def is_dir(self, path: str) -> bool:
        """Return True if the path would be a directory after the changes so far."""
        return path not in self._removed_paths and self._real_disk.is_dir(path)

    def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory after the changes so far."""
        names = {n for n in self._real_disk.listdir(path) if f"{path}/{n}" not in self._removed_paths}
        names |= {p[len(path) + 1 :] for p in self._files if p.rpartition("/")[0] == path}
        return sorted(names)

    def list_files(self, path: str) -> list[str]:
        """Return the sorted names of regular files in a directory after the changes so far."""
        names = {n for n in self._real_disk.list_files(path) if f"{path}/{n}" not in self._removed_paths}
        names |= {p[len(path) + 1 :] for p in self._files if p.rpartition("/")[0] == path}
        return sorted(names)

    def makedirs(self, path: str, mode: int = 0o777) -> None:
        """Undo the removal of a directory; the directories of existing partitions exist already."""
        self._removed_paths.discard(path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file in memory; record ``new`` as changed and ``old`` as removed."""
        file = self.open(old)
        assert isinstance(file, DryRunFile)
        self.unlink(old)
        self._removed_paths.discard(new)
        self._files[new] = file
        self.changed_files.add(new)

    def unlink(self, path: str) -> None:
        """Remove in memory and record the path as removed if the real file exists."""
        self._files.pop(path, None)
        self._removed_paths.add(path)
        if self._real_disk.exists(path):
            self.removed_files.add(path)

    def rmtree(self, path: str) -> None:
        """Remove a directory with its contents in memory and record the files as removed."""
        for name in self.listdir(path):
            inner = f"{path}/{name}"
            if self.is_dir(inner):
                self.rmtree(inner)
            else:
                self.unlink(inner)
        self.unlink(path)

    def fsync_dir(self, path: str) -> None:
        """Do nothing: nothing is written to the real disk."""

    def stat(self, path: str) -> FileStat:
        """Return size after the changes, and modification time of the real file (0 without one)."""
        known = self._files.get(path)
        if known is None:
            return self._real_disk.stat(path)
        return FileStat(known.size(), self._real_disk.stat(path).mtime_ms if self._real_disk.exists(path) else 0)

    def private(self) -> PrivateDisk:
        """Return a view of this disk whose new files are readable by their owner only."""
        return PrivateDisk(self)
