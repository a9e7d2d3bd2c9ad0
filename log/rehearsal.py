"""A disk on which everything can be tried and nothing happens: reads come from a real one, changes stay in memory.

Recovery run on it tells what it would do. What was changed can be asked for afterwards.
"""

from __future__ import annotations

from ottla.wire.primitives import Buffer
from ottla.world.disk import Disk, File, FileStat


class RehearsalFile:
    """A file whose changes are kept in memory; its bytes are copied when the first change comes."""

    def __init__(self, disk: Rehearsal, path: str, under: File | None) -> None:
        self._disk = disk
        self._path = path
        self._under = under
        self._own: bytearray | None = None if under is not None else bytearray()

    def _copy(self) -> bytearray:
        if self._own is None:
            assert self._under is not None
            self._own = bytearray(self._under.pread(self._under.size(), 0))
        return self._own

    def size(self) -> int:
        """Its length as it would be."""
        if self._own is not None:
            return len(self._own)
        assert self._under is not None
        return self._under.size()

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Remember the change."""
        own = self._copy()
        own[offset : offset + len(data)] = data
        self._disk.changed.add(self._path)

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """The bytes as they would be."""
        if self._own is not None:
            return bytes(self._own[offset : offset + size_bytes])
        assert self._under is not None
        return self._under.pread(size_bytes, offset)

    def truncate(self, size_bytes: int) -> None:
        """Remember the change, and that bytes would go."""
        size = self.size()
        if size_bytes < size:
            self._disk.cut[self._path] = self._disk.cut.get(self._path, 0) + size - size_bytes
        if size_bytes != size:
            own = self._copy()
            del own[size_bytes:]
            own.extend(bytes(size_bytes - len(own)))
            self._disk.changed.add(self._path)

    def fsync(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """The state stays for whoever opens it again."""

    def fileno(self) -> int:
        """None."""
        return -1


class Rehearsal:
    """A `Disk` over another one."""

    def __init__(self, under: Disk) -> None:
        self._under = under
        self._files: dict[str, RehearsalFile] = {}
        self._gone: set[str] = set()
        self.changed: set[str] = set()
        """Files that would be written."""
        self.cut: dict[str, int] = {}
        """Files that would lose bytes at their end, and how many."""
        self.removed: set[str] = set()
        """Files of the real disk that would be removed."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644) -> File:
        """Open a file as it would be."""
        known = self._files.get(path)
        if known is not None:
            return known
        if path in self._gone or not self._under.exists(path):
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            under = None
        else:
            under = self._under.open(path, readonly=True)
        self._gone.discard(path)
        made = self._files[path] = RehearsalFile(self, path, under)
        return made

    def exists(self, path: str) -> bool:
        """As it would be."""
        return path in self._files or (path not in self._gone and self._under.exists(path))

    def is_dir(self, path: str) -> bool:
        """As it would be."""
        return path not in self._gone and self._under.is_dir(path)

    def listdir(self, path: str) -> list[str]:
        """As it would be."""
        names = {n for n in self._under.listdir(path) if f"{path}/{n}" not in self._gone}
        names |= {p[len(path) + 1 :] for p in self._files if p.rpartition("/")[0] == path}
        return sorted(names)

    def makedirs(self, path: str) -> None:
        """Take it back where it was removed: all else that is rehearsed is there."""
        self._gone.discard(path)

    def rename(self, old: str, new: str) -> None:
        """Remember it."""
        file = self.open(old)
        assert isinstance(file, RehearsalFile)
        self.unlink(old)
        self._gone.discard(new)
        self._files[new] = file
        self.changed.add(new)

    def unlink(self, path: str) -> None:
        """Remember it."""
        self._files.pop(path, None)
        self._gone.add(path)
        if self._under.exists(path):
            self.removed.add(path)

    def rmtree(self, path: str) -> None:
        """Remember it, for everything beneath."""
        for name in self.listdir(path):
            inner = f"{path}/{name}"
            if self.is_dir(inner):
                self.rmtree(inner)
            else:
                self.unlink(inner)
        self.unlink(path)

    def fsync_dir(self, path: str) -> None:
        """Nothing to do."""

    def stat(self, path: str) -> FileStat:
        """The size as it would be, the age as it is."""
        known = self._files.get(path)
        if known is None:
            return self._under.stat(path)
        return FileStat(known.size(), self._under.stat(path).mtime_ms if self._under.exists(path) else 0)

    def usage(self, path: str) -> tuple[int, int]:
        """The real one."""
        return self._under.usage(path)

    def lock(self, path: str) -> File | None:
        """The real lock: nobody may write meanwhile."""
        return self._under.lock(path)
