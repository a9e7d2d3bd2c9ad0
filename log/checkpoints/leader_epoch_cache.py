"""Leader epochs of one partition: where each began, and so where each ended.

Kept in ``leader-epoch-checkpoint``. A follower or a consumer asks "where did epoch E end?" and cuts its log, or its
position, there (KIP-101, KIP-279, KIP-320). Source: ``LeaderEpochFileCache.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from bisect import bisect_right

from ottla.env.disk import Disk
from ottla.log.checkpoints.checkpoint_files import LEADER_EPOCH_CHECKPOINT, CorruptFile, read_epochs, write_epochs

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochFileCache:
    """A growing list of (epoch, start offset)."""

    __slots__ = ("_disk", "entries", "has_unsaved_entries", "is_corrupt", "is_file_unsynced", "path", "write_count")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        self.is_file_unsynced = True
        """True if a power cut could take back what the file says."""
        self.write_count = 0
        """How often the file was written: a sync begun before says nothing of the newest."""
        self.is_corrupt = False
        """True if the file says nothing that can be believed: all batches must tell their epochs again."""
        is_missing = False
        try:
            self.entries = read_epochs(disk, self.path)
            is_missing = not self.entries and not disk.exists(self.path)
            self.is_corrupt = not self.entries and not is_missing and disk.stat(self.path).size_bytes == 0
        except CorruptFile:
            self.entries = []
            self.is_corrupt = True
        self.has_unsaved_entries = is_missing or self.is_corrupt
        """True if the file lacks something that is known here, or is missing or damaged."""

    def set_directory(self, directory: str) -> None:
        """Set the new path after a rename of the directory."""
        self.path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"

    def copy_from(self, other: LeaderEpochFileCache) -> None:
        """Know what a log of the same records knows. The file follows.

        Raises:
            OSError: it could not be written.
        """
        if self.entries != other.entries:
            self.entries = list(other.entries)
            self.save()

    def latest_epoch(self) -> int:
        """Return the newest epoch, -1 where there is none."""
        return self.entries[-1][0] if self.entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int, *, save: bool = True) -> None:
        """Start a new epoch at ``start_offset``; remove entries that contradict it.

        Raises:
            OSError: the file could not be written. The next call retries it, for any epoch.
        """
        if epoch >= 0 and (not self.entries or self.entries[-1][0] < epoch):
            self.entries = [*(e for e in self.entries if e[1] < start_offset), (epoch, start_offset)]
            self.has_unsaved_entries = True
        if save and self.has_unsaved_entries:
            self.save()

    def assign_from_batch(self, epoch: int, offset: int) -> None:
        """Set the epoch of a batch that recovery read, overriding the entries; the file is not written yet.

        A batch older than the entries was truncated before, and a power cut restored it. The batches that replaced it
        are missing, and a leader that gets the batch's epoch causes another truncation.
        """
        if epoch < 0 or epoch == self.epoch_for_offset(offset):
            return
        before = [(e, start) for e, start in self.entries if e <= epoch and start < offset]
        if not before or before[-1][0] < epoch:
            before.append((epoch, offset))
        self.entries = before + [(e, start) for e, start in self.entries if e > epoch and start > offset]
        self.has_unsaved_entries = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest epoch <= asked, its end offset); (-1, -1) for an epoch the log does not know.

        ``LeaderEpochFileCache.endOffsetFor``: the current epoch ends at the log end; one above it is undefined; one
        before the first known gives (asked, start of the first).
        """
        if epoch == UNDEFINED_EPOCH or not self.entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.entries[-1][0]:
            return epoch, log_end_offset
        above = [i for i, (e, _) in enumerate(self.entries) if e > epoch]
        if not above:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        first = above[0]
        if first == 0:
            return epoch, self.entries[0][1]
        return self.entries[first - 1][0], self.entries[first][1]

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch of the record at ``offset``, -1 where it is not known."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[at - 1][0] if at else UNDEFINED_EPOCH

    def truncate_from_end(self, offset: int, *, save: bool = True) -> None:
        """Forget epochs that begin at or after ``offset``. Not saved, the next epoch takes it along."""
        kept = [(e, s) for e, s in self.entries if s < offset]
        if kept != self.entries:
            self.entries = kept
            self.has_unsaved_entries = True
        if save and self.has_unsaved_entries:
            self.save()

    def truncate_from_start(self, offset: int) -> None:
        """Truncate from the start: older epochs are removed, the one that covers ``offset`` starts there."""
        older = [e for e in self.entries if e[1] <= offset]
        if older and (len(older) > 1 or older[0][1] < offset):
            self.entries = [(older[-1][0], offset), *(e for e in self.entries if e[1] > offset)]
            self.has_unsaved_entries = True
        if self.has_unsaved_entries:
            self.save()

    def clear(self) -> None:
        """Forget every epoch."""
        self.entries = []
        self.save()

    def save(self, *, sync: bool = False) -> None:
        """Write the file; while the log is open not synced, since the batches carry the epochs too.

        Raises:
            OSError: it could not be written.
        """
        self.has_unsaved_entries = True
        write_epochs(self._disk, self.path, self.entries, sync=sync)
        self.write_count += 1
        self.has_unsaved_entries = False
        self.is_file_unsynced = not sync

    def on_synced(self, written: int) -> None:
        """Record a sync of the file and its name, by its number of writes."""
        if written == self.write_count:
            self.is_file_unsynced = False
