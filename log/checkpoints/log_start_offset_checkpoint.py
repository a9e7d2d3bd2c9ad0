"""Where a directory's logs start, as its checkpoint says: a writing that a power cut tears leaves the one before it.

Who notes a start does not wait for the disk. So what the disk is known to have is kept beside the file under another
name until the disk has something newer. Without it one deletion, noted and torn, would bring all deleted records back.

Source: ``LogManager.checkpointLogStartOffsetsInDir`` (apache/kafka 4.3.1), which waits for the disk each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ottla.env.disk import Disk, sync_file
from ottla.log.checkpoints import checkpoint_files

TopicPartition = tuple[str, int]
BACKUP_FILE = f"{checkpoint_files.LOG_START_OFFSET_CHECKPOINT}.kept"


class LogStartOffsetCheckpoint:
    """The checkpoint, and what is kept of it."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path, self._backup_path = (
            f"{directory}/{checkpoint_files.LOG_START_OFFSET_CHECKPOINT}",
            f"{directory}/{BACKUP_FILE}",
        )
        self.offsets: Mapping[TopicPartition, int] = {}
        """What was written last, or is about to be."""
        self.is_file_current = True
        """Whether the file says just that: whoever was about to write it may have failed."""
        self.backup_partitions: Collection[TopicPartition] = ()
        """Whom the former writing names, where a power cut may bring it back."""
        self._written: Mapping[TopicPartition, int] = {}
        self._has_backup = False
        self._is_synced = True
        """Whether the disk has all of the newest file, whatever it has of its name."""
        self.write_count = 0

    def load(self) -> None:
        """Read it, and what is kept instead where a power cut, or an end between two names, took it.

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
            self.offsets = self._written = {}  # it was never on the disk as a whole

    def _is_whole(self) -> bool:
        try:
            checkpoint_files.read_offsets(self._disk, self._path)
        except checkpoint_files.CorruptFile:
            return False
        return self._disk.exists(self._path) and self._disk.stat(self._path).size_bytes > 0

    def needs_write(self, starts: Mapping[TopicPartition, int]) -> bool:
        """Whether the file, or what may come in its place, says anything else."""
        return starts != self.offsets or not self.is_file_current or bool(self.backup_partitions)

    def write(self, starts: Mapping[TopicPartition, int], *, sync: bool, sync_dir: bool = False) -> None:
        """Say where these logs start, and of no others.

        Raises:
            OSError: the file is as it was.
        """
        self.prepare_write(starts)
        self.write_entries([f"{topic} {number} {start}" for (topic, number), start in starts.items()], sync=sync)
        if sync_dir:
            self._disk.fsync_dir(self._directory)
            self.complete_sync(self.write_count)

    def prepare_write(self, starts: Mapping[TopicPartition, int]) -> None:
        """Somebody is to `write_entries` this."""
        self.offsets, self.is_file_current = starts, False

    def write_entries(self, lines: list[str], *, sync: bool = False) -> None:
        """Write what is to be said, in a checkpoint's own lines.

        Raises:
            OSError: the file is as it was.
        """
        keeps = not sync and self._is_synced and self._disk.exists(self._path)
        self.write_count += 1
        checkpoint_files.write_entries(
            self._disk, self._path, lines, sync=sync, sync_dir=False, keep=self._backup_path if keeps else None
        )
        if keeps:
            self._has_backup, self.backup_partitions = True, self._written.keys()
        elif sync:
            self.backup_partitions = ()  # whoever has the new name has all that stands under it
        self._written, self.is_file_current, self._is_synced = self.offsets, True, sync

    @property
    def is_durable(self) -> bool:
        """Whether a power cut leaves what was written last."""
        return self._is_synced and not self._has_backup

    def prepare_sync(self) -> Callable[[], int]:
        """What waits until the disk has the file as it is now, and gives what `complete_sync` needs: for a thread.

        Raises:
            OSError: final, unless the process is only short of something; also in the thread.
        """
        writings = self.write_count
        # by its name a thread could look between two renamings
        file = self._disk.open(self._path, readonly=True) if self._disk.exists(self._path) else None

        def settle() -> int:
            if file is not None:
                try:
                    file.fsync()
                finally:
                    file.close()
            self._disk.fsync_dir(self._directory)
            return writings

        return settle

    def complete_sync(self, writings: int) -> None:
        """The disk has what was written so far, and its name.

        Raises:
            OSError: the former one is kept.
        """
        if writings == self.write_count:
            self._is_synced, self.backup_partitions = True, ()
            if self._has_backup:
                self._disk.unlink(self._backup_path)
                self._has_backup = False
