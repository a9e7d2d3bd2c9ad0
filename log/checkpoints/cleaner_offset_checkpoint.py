"""``cleaner-offset-checkpoint`` of a log directory: the offset up to which each log is compacted.

After a power failure the file must have either its last or its previous contents: gaps in a compacted log would
otherwise count as damage. Offsets are therefore written to a temporary file and synced before the rename. So that the
event loop is not blocked, a thread writes the temporary file (`CleanerCheckpointWrite`); it then replaces the
checkpoint unless that was written meanwhile.

Source: ``LogCleanerManager.updateCheckpoints``, ``CheckpointFile.write`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.log.checkpoints.checkpoint_files import CLEANER_OFFSET_CHECKPOINT, CorruptFile, read_offsets, write_offsets
from ottla.log.file_names import TopicPartition

CleanerOffsets = Mapping[TopicPartition, int]


class CleanerCheckpointWrite(NamedTuple):
    """Prepared write of the checkpoint: `run` it in a thread, then call `CleanerOffsetCheckpoint.replace`.

    ``path``: of the temporary file. ``replaced_offsets``: contents of the checkpoint when the write was prepared.
    """

    disk: Disk
    path: str
    offsets: CleanerOffsets
    replaced_offsets: CleanerOffsets

    def run(self) -> None:
        """Write and sync the temporary file, waiting for the disk; the checkpoint itself is unchanged.

        Raises:
            OSError: the log directory must go offline, unless the process is out of resources.
        """
        write_offsets(self.disk, self.path, dict(sorted(self.offsets.items())), sync_dir=False)


class CleanerOffsetCheckpoint:
    """Cleaner offset checkpoint of a log directory: contents, and whether they are durable."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{CLEANER_OFFSET_CHECKPOINT}"
        self.offsets: CleanerOffsets = {}
        """Contents of the file, by partition. Each write assigns another object."""
        self._is_synced = True
        """True if the current contents are durable."""
        self._was_found = False
        """True if a valid file existed at start: a log that is not in it was never compacted."""

    def load(self, has_logs: Callable[[], bool]) -> None:
        """Read the file into `offsets`; create it without entries in a directory without logs, as Kafka does.

        A corrupt file counts as missing.

        Raises:
            OSError: the disk failed.
        """
        if not self._disk.exists(self._path) and not has_logs():
            write_offsets(self._disk, self._path, {}, sync=False)
        try:
            self._was_found = self._disk.exists(self._path)
            self.offsets = read_offsets(self._disk, self._path)
        except CorruptFile:
            self._was_found = False

    def compacted_below(self, topic_partition: TopicPartition) -> int | None:
        """Return the offset below which a log is compacted (0: none); None if the file was missing or corrupt."""
        return self.offsets.get(topic_partition, 0) if self._was_found else None

    def raise_on_recovery(self, topic_partition: TopicPartition, below: int) -> None:
        """Raise a log's cleaner offset to ``below`` in the file, before recovery completes an interrupted segment swap.

        Waits for the disk. No effect if it is there already, or if the file was missing or corrupt at start.

        Raises:
            OSError: the disk failed.
        """
        if self._was_found and below > self.offsets.get(topic_partition, 0):
            self.write({**self.offsets, topic_partition: below}, sync_dir=True)

    @property
    def synced_offsets(self) -> CleanerOffsets | None:
        """Durable contents; None while a power failure may restore the previous contents."""
        return self.offsets if self._is_synced else None

    def write(self, offsets: CleanerOffsets, *, sync_dir: bool) -> None:
        """Write and sync the file, waiting for the disk; the rename is durable with ``sync_dir`` only.

        Raises:
            OSError: the file has its previous or the new contents; `offsets` is unchanged.
        """
        write_offsets(self._disk, self._path, dict(sorted(offsets.items())), sync_dir=sync_dir)
        self.offsets, self._is_synced = offsets, sync_dir

    def prepare_write(self, offsets: CleanerOffsets) -> CleanerCheckpointWrite | None:
        """Return the write of ``offsets`` to a temporary file, not started; None if they are durable already."""
        if offsets == self.synced_offsets:
            return None
        return CleanerCheckpointWrite(self._disk, f"{self._path}.new", offsets, self.offsets)

    def replace(self, write: CleanerCheckpointWrite, current: CleanerOffsets) -> bool:
        """Rename the temporary file, once written, to the checkpoint; return True if it was renamed.

        It is not renamed if the checkpoint was written meanwhile, or if a log was removed or truncated below its entry
        according to the current offsets ``current``. The caller then syncs the directory and calls `complete_write`.

        Raises:
            OSError: the file is unchanged.
        """
        if self.offsets is not write.replaced_offsets:
            return False
        if any(current.get(at, 0) < offset for at, offset in write.offsets.items()):
            return False
        self._disk.rename(write.path, self._path)
        self.offsets, self._is_synced = write.offsets, False
        return True

    def complete_write(self, write: CleanerCheckpointWrite) -> None:
        """Record that the directory was synced after `replace`, unless the file was written again meanwhile."""
        if self.offsets is write.offsets:
            self._is_synced = True

    def create_if_missing(self) -> None:
        """Create an empty file if it is missing, as a clean shutdown of Kafka does."""
        if not self._disk.exists(self._path):
            self._disk.open(self._path, create=True).close()
