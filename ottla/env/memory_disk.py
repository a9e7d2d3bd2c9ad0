"""Simulated disk in memory: after a power failure unsynced data is lost, torn or kept, at random.

It has two states: that of the page cache, which processes read, and the durable one. ``fsync`` makes a file's bytes
durable, ``fsync_dir`` a directory's names. Every call can be made to fail, and the process can be killed at any call:
each simulated process accesses the `MemoryDisk` through its own `DiskSession`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from ottla.env.disk import File, FileStat, PrivateDisk
from ottla.env.inode import Inode, RandomSource
from ottla.wire.codec.primitives import Buffer

FaultHook = Callable[[str, str], OSError | None]
"""Callback before each call with (name of the call, path): returns an error to raise, or None."""


class ProcessKilled(BaseException):
    """Raised by a disk call at or after which the simulated process is killed. Only the simulator may catch it."""


class MemoryDisk:
    """Contents of a simulated disk, which outlive the simulated processes."""

    def __init__(self, dice: RandomSource, now_ms: Callable[[], int]) -> None:
        self.random_source = dice
        self.now_ms = now_ms
        self.files: dict[str, Inode] = {}
        self.durable_files: dict[str, Inode] = {}
        self.dirs: dict[str, None] = {"/": None}
        self.durable_dirs: dict[str, None] = {"/": None}
        self.renamed_dirs: list[tuple[str, str]] = []
        """(old path, new path) of renamed directories in an unsynced parent: a power failure may undo each rename."""
        self.locks: dict[str, DiskSession] = {}
        self.calls = 0
        self.cold_read_interval = 0
        """If not 0, `MemoryFile.pread_cached` finds its bytes missing in the page cache once in so many disk calls."""
        self.holes = False
        """True if a power failure may lose unsynced sectors and keep later ones."""

    def session(self) -> DiskSession:
        """Return a new session, by which one simulated process accesses the disk."""
        return DiskSession(self)

    def lose_power(self) -> None:
        """Simulate a power failure: synced names and bytes survive, unsynced ones are kept, lost or torn at random.

        So an unsynced removal or rename may be undone. New directories survive without a sync.
        """
        for before, after in reversed(self.renamed_dirs):
            lost = self.random_source.random() < 0.5
            if lost and after in self.dirs and before not in self.dirs:
                self.move_dir(after, before)
        self.renamed_dirs.clear()
        names = dict.fromkeys([*self.durable_files, *self.files])
        files: dict[str, Inode] = {}
        for path in names:
            old, new = self.durable_files.get(path), self.files.get(path)
            found = old if old is new or self.random_source.random() < 0.5 else new
            if found is not None and path.rpartition("/")[0] in self._surviving_dirs():
                files[path] = found
        kept = set(files.values())
        durable = set(self.durable_files.values())
        for path, inode in self.files.items():
            if inode in durable and inode not in kept:
                files[path] = inode  # a rename is atomic and never loses the file
        for inode in dict.fromkeys(files.values()):
            inode.lose_power(self.random_source, holes=self.holes)
        self.dirs = dict(self._surviving_dirs())
        self.durable_dirs = dict(self.dirs)
        self.files = files
        self.durable_files = dict(files)

    def move_dir(self, old: str, new: str) -> None:
        """Rename directory ``old`` to ``new`` with its files, in the current and the durable state.

        It must not have subdirectories: they would keep their names.
        """
        for table in (self.files, self.durable_files):
            for path in [p for p in table if p.startswith(old + "/")]:
                table[new + path[len(old) :]] = table.pop(path)
        for names in (self.dirs, self.durable_dirs):
            if old in names:
                del names[old]
                names[new] = None

    def _surviving_dirs(self) -> dict[str, None]:
        """Return the directories, as keys, that survive a power failure: unsynced new ones too."""
        return {**self.durable_dirs, **self.dirs}


class MemoryFile:
    """Open file on a `MemoryDisk` for one simulated process, with the interface of `File`.

    Each call but `close` and `fileno` counts as a disk call: it may raise `ProcessKilled` or an injected OSError.
    """

    __slots__ = ("__weakref__", "_closed", "_path", "_session", "inode")

    def __init__(self, session: DiskSession, path: str, inode: Inode) -> None:
        self._session = session
        self._path = path
        self._closed = False
        self.inode = inode

    def _enter(self, call: str) -> None:
        self._session.enter(call, self._path)
        if self._closed:
            raise OSError(errno.EBADF, "closed", self._path)

    def size(self) -> int:
        """Return the length of the file in bytes."""
        self._enter("size")
        return len(self.inode.data)

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write ``data`` at ``offset``; if the call fails or kills the process, a random prefix of it is written.

        Nothing is written if the process was dead or the file closed before.
        """
        try:
            self._enter("pwrite")
        except (ProcessKilled, OSError):
            if not self._closed and not self._session.was_dead_at_call:
                part = int(self._session.disk.random_source.random() * (len(data) + 1))
                self.inode.write(bytes(data)[:part], offset)
            raise
        self.inode.write(data, offset)
        self.inode.mtime_ms = self._session.disk.now_ms()
        self._session.leave("pwrite")

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Return up to ``size_bytes`` bytes from ``offset`` on."""
        self._enter("pread")
        return bytes(self.inode.data[offset : offset + size_bytes])

    def pread_cached(self, size_bytes: int, offset: int) -> bytes | None:
        """Return ``size_bytes`` bytes from ``offset`` on; None if the file ends before, or the disk fails.

        None, too, for the bytes that `MemoryDisk.cold_read_interval` makes missing.
        """
        try:
            data = self.pread(size_bytes, offset)
        except OSError:
            return None
        disk = self._session.disk
        is_cold = disk.cold_read_interval and not disk.calls % disk.cold_read_interval
        return data if len(data) == size_bytes and not is_cold else None

    def truncate(self, size_bytes: int) -> None:
        """Set the length of the file to ``size_bytes``, unsynced: cut it, or extend it by zeros."""
        self._enter("truncate")
        self.inode.truncate(size_bytes)
        self._session.leave("truncate")

    def fsync(self) -> None:
        """Make the file's contents durable; if it fails, unsynced data is dropped from later syncs."""
        try:
            self._enter("fsync")
        except OSError:
            if not self._closed:
                self.inode.drop_dirty_pages()
            raise
        self.inode.sync()
        self._session.leave("fsync")

    def close(self) -> None:
        """Close the file and release its session's lock of the path, also after the process was killed.

        The lock is released even if another open file of the session took it. Repeated calls have no further effect.
        """
        self._closed = True
        if self._session.disk.locks.get(self._path) is self._session:
            del self._session.disk.locks[self._path]

    def fileno(self) -> int:
        """Return -1, since there is no descriptor for ``sendfile``."""
        return -1


class DiskSession:
    """`Disk` of one simulated process. Calls may raise injected OSErrors; after `kill`, `ProcessKilled`."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.dead = False
        self.was_dead_at_call = False
        self.kill_at: int | None = None
        """Number of the disk call (counted over all sessions) at which the process is killed; None for never."""
        self.fault: FaultHook | None = None
        self.on_call: Callable[[str], None] | None = None
        """Callback before each call, to run other simulated threads of the process.

        Also after each change, but for `makedirs`, `rmtree` and the rename of a directory.
        """
        self.died: Callable[[], None] = lambda: None
        """Callback when the process is killed."""

    def kill(self) -> None:
        """Kill the simulated process: release its locks, and let `Inode.redirty_pages` undo failed syncs. Once only."""
        if self.dead:
            return
        self.dead = True
        for path in [p for p, owner in self.disk.locks.items() if owner is self]:
            del self.disk.locks[path]
        for inode in self.disk.files.values():
            inode.redirty_pages()
        self.died()

    def enter(self, call: str, path: str) -> None:
        """Begin a disk call: run the callback, then raise an error if one is due.

        Raises:
            ProcessKilled: the process is dead, or `kill_at` is reached, which kills it.
            OSError: the error that the fault hook injects.
        """
        if self.on_call is not None:
            self.on_call(call)
        self.was_dead_at_call = self.dead
        if self.dead:
            raise ProcessKilled
        self.disk.calls += 1
        if self.kill_at is not None and self.disk.calls >= self.kill_at:
            self.kill()
            raise ProcessKilled
        if self.fault is not None:
            error = self.fault(call, path)
            if error is not None:
                raise error

    def leave(self, call: str) -> None:
        """Run the callback after a call that changed the disk; it may kill the process before the call returns."""
        if self.on_call is not None:
            self.on_call(call)

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644) -> File:
        """Open a file like `Disk.open`; the name of a new file is not durable before its directory is synced.

        Raises:
            FileNotFoundError: there is no such file, or no directory for it; PermissionError: the file is not writable.
        """
        self.enter("open", path)
        inode = self.disk.files.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            if path.rpartition("/")[0] not in self.disk.dirs:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            inode = self.disk.files[path] = Inode()
            inode.mode = mode
            inode.mtime_ms = self.disk.now_ms()
            self.leave("open")
        elif not readonly and not inode.mode & 0o200:
            raise PermissionError(errno.EACCES, "permission denied", path)
        return MemoryFile(self, path, inode)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists at ``path``."""
        self.enter("exists", path)
        return path in self.disk.files or path in self.disk.dirs

    def is_dir(self, path: str) -> bool:
        """Return whether a directory exists at ``path``."""
        self.enter("exists", path)
        return path in self.disk.dirs

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted. Raises FileNotFoundError."""
        self.enter("listdir", path)
        if path not in self.disk.dirs:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return self._children(path)

    def list_files(self, path: str) -> list[str]:
        """Return the names of files in a directory, sorted."""
        return [name for name in self.listdir(path) if f"{path}/{name}" in self.disk.files]

    def _children(self, path: str) -> list[str]:
        prefix = path + "/"
        every = [*self.disk.files, *self.disk.dirs]
        return sorted({p[len(prefix) :] for p in every if p.startswith(prefix) and "/" not in p[len(prefix) :]})

    def makedirs(self, path: str, mode: int = 0o777) -> None:
        """Create a directory and its missing parents; their access rights are ignored."""
        self.enter("makedirs", path)
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            self.disk.dirs["/".join(parts[:end])] = None

    def rename(self, old: str, new: str) -> None:
        """Rename a file, or a directory with its files, atomically, replacing an existing file (`MemoryDisk.move_dir`).

        A power failure may undo it until the parent directory is synced. Raises FileNotFoundError.
        """
        self.enter("rename", old)
        files, dirs = self.disk.files, self.disk.dirs
        if old in files:
            files[new] = files.pop(old)
            self.leave("rename")
            return
        if old not in dirs:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self.disk.move_dir(old, new)
        self.disk.renamed_dirs.append((old, new))

    def unlink(self, path: str) -> None:
        """Remove a file; a power failure may undo it until its directory is synced. Raises FileNotFoundError."""
        self.enter("unlink", path)
        if path not in self.disk.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        del self.disk.files[path]
        self.leave("unlink")

    def rmtree(self, path: str) -> None:
        """Remove a directory with its contents, durably."""
        self.enter("rmtree", path)
        for table in (self.disk.files, self.disk.durable_files):
            for name in [p for p in table if p.startswith(path + "/")]:
                del table[name]
        for names in (self.disk.dirs, self.disk.durable_dirs):
            for name in [p for p in names if p == path or p.startswith(path + "/")]:
                del names[name]

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        self.enter("fsync_dir", path)
        prefix = path + "/"
        here = {p for p in [*self.disk.files, *self.disk.durable_files] if p.rpartition("/")[0] == path}
        for name in sorted(here):
            if name in self.disk.files:
                self.disk.durable_files[name] = self.disk.files[name]
            else:
                self.disk.durable_files.pop(name, None)
        self.disk.durable_dirs[path] = None
        self.disk.renamed_dirs = [x for x in self.disk.renamed_dirs if x[0].rpartition("/")[0] != path]
        for name in [p for p in self.disk.dirs if p.startswith(prefix)]:
            self.disk.durable_dirs[name] = None
        self.leave("fsync_dir")

    def stat(self, path: str) -> FileStat:
        """Return size and modification time of a file; FileNotFoundError for a directory."""
        self.enter("stat", path)
        inode = self.disk.files.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return FileStat(len(inode.data), inode.mtime_ms)

    def usage(self, path: str) -> tuple[int, int]:
        """Return 1 TiB total and 512 GiB available: the simulated disk never fills up."""
        self.enter("usage", path)
        return 1 << 40, 1 << 39

    def lock(self, path: str) -> File | None:
        """Create and lock the file at ``path``; return it, or None if another session has the lock.

        A session that has the lock gets it again, unlike a process with a real disk.
        """
        file = self.open(path, create=True)
        holder = self.disk.locks.get(path)
        if holder is not None and holder is not self:
            return None
        self.disk.locks[path] = self
        return file

    def private(self) -> PrivateDisk:
        """Return a view of this disk whose new files are readable by their owner only."""
        return PrivateDisk(self)
