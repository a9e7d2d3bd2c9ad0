"""``log-start-offset-checkpoint`` of a log directory; its regular writes are not synced.

A power failure may tear an unsynced write. The last synced file is therefore kept as a backup until a newer one is
durable: otherwise a torn write after one DeleteRecords would restore all deleted records of the directory.

Source: ``LogManager.checkpointLogStartOffsetsInDir`` (apache/kafka 4.3.1), which waits for the disk each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ottla.env.disk import Disk, sync_file
from ottla.log.checkpoints import checkpoint_files
from ottla.log.file_names import TopicPartition

BACKUP_FILE = f"{checkpoint_files.LOG_START_OFFSET_CHECKPOINT}.kept"


class LogStartOffsetCheckpoint:
    """Log start offset checkpoint of one log directory: contents, backup file, and whether they are durable."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{checkpoint_files.LOG_START_OFFSET_CHECKPOINT}"
        self._backup_path = f"{directory}/{BACKUP_FILE}"
        self.offsets: Mapping[TopicPartition, int] = {}
        """Log start offsets of the last write, even if it failed."""
        self._is_file_current = True
        """True if the file contains ``offsets``; False if the last write failed."""
        self.backup_partitions: Collection[TopicPartition] = ()
        """Partitions in the backup, while a power failure may restore it."""
        self._written: Mapping[TopicPartition, int] = {}
        self._has_backup = False
        self._is_synced = True
        """True if the contents of the newest file are durable; its name may not be."""
        self._write_count = 0

    def load(self) -> None:
        """Read the file into `offsets`; restore it from the backup if a power failure or a crash lost or tore it.

        A corrupt file counts as empty.

        Raises:
            OSError: the disk failed.
        """
        if self._disk.exists(self._backup_path):
            if self._is_whole():
                sync_file(self._disk, self._path)
                self._disk.unlink(self._backup_path)
            else:
                self._disk.rename(self._backup_path, self._path)
            self._disk.fsync_dir(self._directory)
        try:
            self.offsets = self._written = checkpoint_files.read_offsets(self._disk, self._path)
        except checkpoint_files.CorruptFile:
            self.offsets = self._written = {}  # never written as a whole

    def _is_whole(self) -> bool:
        try:
            checkpoint_files.read_offsets(self._disk, self._path)
        except checkpoint_files.CorruptFile:
            return False
        return self._disk.exists(self._path) and self._disk.stat(self._path).size_bytes > 0

    def needs_write(self, starts: Mapping[TopicPartition, int]) -> bool:
        """Return True if the file differs from ``starts``, or a power failure may restore a backup with entries."""
        return starts != self.offsets or not self._is_file_current or bool(self.backup_partitions)

    def write(
        self,
        starts: Mapping[TopicPartition, int],
        lines: list[str] | None = None,
        *,
        sync: bool,
        sync_dir: bool = False,
    ) -> None:
        """Replace the file's contents by ``starts``; without ``sync`` the last synced file becomes the backup.

        ``lines`` are its formatted entries, None to format them here. ``sync`` waits until the contents are durable,
        and with ``sync_dir`` also the rename; the backup is removed then.

        Raises:
            OSError: the file has its previous or the new contents, or only the backup exists.
        """
        self.offsets, self._is_file_current = starts, False
        if lines is None:
            lines = [f"{topic} {number} {start}" for (topic, number), start in starts.items()]
        keeps = not sync and self._is_synced and self._disk.exists(self._path)
        self._write_count += 1
        checkpoint_files.write_entries(
            self._disk, self._path, lines, sync=sync, sync_dir=False, keep=self._backup_path if keeps else None
        )
        if keeps:
            self._has_backup, self.backup_partitions = True, self._written.keys()
        elif sync:
            self.backup_partitions = ()  # the rename is never durable before the new contents
        self._written, self._is_file_current, self._is_synced = starts, True, sync
        if sync_dir:
            self._disk.fsync_dir(self._directory)
            self.complete_sync(self._write_count)

    @property
    def is_durable(self) -> bool:
        """True if the last write is durable, contents and rename."""
        return self._is_synced and not self._has_backup

    def prepare_sync(self) -> Callable[[], int]:
        """Return a function that syncs the current file in a thread and returns the argument of `complete_sync`.

        Raises:
            OSError: here and in the thread; the log directory must go offline, unless the process is out of resources.
        """
        write_count = self._write_count
        # opened here: between two renames a thread could find no file of that name
        file = self._disk.open(self._path, readonly=True) if self._disk.exists(self._path) else None

        def sync() -> int:
            if file is not None:
                try:
                    file.fsync()
                finally:
                    file.close()
            self._disk.fsync_dir(self._directory)
            return write_count

        return sync

    def complete_sync(self, write_count: int) -> None:
        """Record that the file as of write number ``write_count`` and its name are durable, and remove the backup.

        No effect if the file was written again meanwhile.

        Raises:
            OSError: the backup was not removed.
        """
        if write_count == self._write_count:
            self._is_synced, self.backup_partitions = True, ()
            if self._has_backup:
                self._disk.unlink(self._backup_path)
                self._has_backup = False
