"""Leader epochs of one partition's log with their start offsets, and their file ``leader-epoch-checkpoint``.

A follower or consumer asks for the end offset of an epoch (OffsetForLeaderEpoch, Fetch) and truncates its log, or
resets its position, to it (KIP-101, KIP-279, KIP-320). Source: ``LeaderEpochFileCache.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from bisect import bisect_right

from ottla.env.disk import Disk
from ottla.log.checkpoints.checkpoint_files import LEADER_EPOCH_CHECKPOINT, CorruptFile, read_epochs, write_epochs

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochFileCache:
    """Leader epochs of a partition: list of (epoch, start offset), both ascending, in memory and in the file."""

    __slots__ = (
        *("_disk", "entries", "has_unsaved_entries", "is_corrupt", "is_file_unsynced", "is_only_copy", "path"),
        "write_count",
    )

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        self.is_file_unsynced = True
        """True if the file's contents or name may not be durable."""
        self.is_only_copy = False
        """True if no local batch has the first epochs, as those records are only in the remote store: saves sync."""
        self.write_count = 0
        """Number of writes of the file, so that a sync that began before the last write is recognised."""
        self.is_corrupt = False
        """True if the file is malformed: recovery must read the epochs from all batches."""
        is_missing = False
        try:
            self.entries = read_epochs(disk, self.path)
            is_missing = not self.entries and not disk.exists(self.path)
            self.is_corrupt = not self.entries and not is_missing and disk.stat(self.path).size_bytes == 0
        except CorruptFile:
            self.entries = []
            self.is_corrupt = True
        self.has_unsaved_entries = is_missing or self.is_corrupt
        """True if the file differs from ``entries``, or is missing or malformed."""

    def set_directory(self, directory: str) -> None:
        """Set the path of the file after the partition's directory was renamed to ``directory``; no file is touched."""
        self.path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"

    def copy_from(self, other: LeaderEpochFileCache) -> None:
        """Replace the entries by those of another log with the same records, and write the file; no effect if equal.

        Raises:
            OSError: it could not be written.
        """
        if self.entries != other.entries:
            self.replace(other.entries)

    def replace(self, entries: list[tuple[int, int]], *, sync: bool = False) -> None:
        """Replace all entries by a copy of ``entries``, (epoch, start offset) with both ascending, and write the file.

        Raises:
            OSError: it could not be written.
        """
        self.entries = list(entries)
        self.save(sync=sync)

    def latest_epoch(self) -> int:
        """Return the latest leader epoch; -1 if there is none."""
        return self.entries[-1][0] if self.entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int, *, save: bool = True) -> None:
        """Add leader epoch ``epoch`` with its start offset, if it is newer than the latest; write unsaved changes.

        Entries that start at or above ``start_offset`` are removed then. With ``save`` False the file is written by the
        next call that saves, even if that changes nothing.

        Raises:
            OSError: the file could not be written; the next call with any epoch writes it again.
        """
        if epoch >= 0 and (not self.entries or self.entries[-1][0] < epoch):
            self.entries = [*(e for e in self.entries if e[1] < start_offset), (epoch, start_offset)]
            self.has_unsaved_entries = True
        if save and self.has_unsaved_entries:
            self.save()

    def assign_from_batch(self, epoch: int, offset: int) -> None:
        """Set the epoch of a batch at ``offset`` that recovery read, overriding the entries, in memory only.

        If the batch's epoch is older than the entries say, the batch was truncated and a power failure restored it,
        without the batches that replaced it. With its true epoch the leader causes the truncation again.
        """
        if epoch < 0 or epoch == self.epoch_for_offset(offset):
            return
        before = [(e, start) for e, start in self.entries if e <= epoch and start < offset]
        if not before or before[-1][0] < epoch:
            before.append((epoch, offset))
        self.entries = before + [(e, start) for e, start in self.entries if e > epoch and start > offset]
        self.has_unsaved_entries = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch not above ``epoch`` and its exclusive end offset; (-1, -1) if it is undefined.

        As ``LeaderEpochFileCache.endOffsetFor``: the latest epoch ends at ``log_end_offset``; an epoch above it is
        undefined; for one before the first entry the result is (``epoch``, start offset of the first entry).
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
        """Return the leader epoch of the record at ``offset``; from the log end on the latest, below the first -1."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[at - 1][0] if at else UNDEFINED_EPOCH

    def truncate_from_end(self, offset: int, *, save: bool = True) -> None:
        """Remove epochs that start at or after ``offset``, and write unsaved changes to the file.

        With ``save`` False the file is written by the next call that saves, even if that changes nothing.

        Raises:
            OSError: the file could not be written.
        """
        kept = [(e, s) for e, s in self.entries if s < offset]
        if kept != self.entries:
            self.entries = kept
            self.has_unsaved_entries = True
        if save and self.has_unsaved_entries:
            self.save()

    def truncate_from_start(self, offset: int) -> None:
        """Remove epochs that end at or below ``offset``, and write unsaved changes to the file.

        The epoch that contains the offset starts there afterwards.

        Raises:
            OSError: the file could not be written.
        """
        older = [e for e in self.entries if e[1] <= offset]
        if older and (len(older) > 1 or older[0][1] < offset):
            self.entries = [(older[-1][0], offset), *(e for e in self.entries if e[1] > offset)]
            self.has_unsaved_entries = True
        if self.has_unsaved_entries:
            self.save()

    def declare_only_copy(self, *, is_only_copy: bool) -> None:
        """Record whether no local batch has the first epochs, so that each save from now on must be durable."""
        self.is_only_copy = is_only_copy

    def set_only_copy(self) -> None:
        """Make the file durable now and with each save: local batches with the first epochs are about to be deleted.

        Raises:
            OSError: it could not be written.
        """
        self.is_only_copy = True
        if self.is_file_unsynced:
            self.save()

    def save(self, *, sync: bool = False) -> None:
        """Write the file; sync it only with ``sync`` or `is_only_copy`, since the batches contain the epochs too.

        Raises:
            OSError: it could not be written.
        """
        sync = sync or self.is_only_copy
        self.has_unsaved_entries = True
        write_epochs(self._disk, self.path, self.entries, sync=sync)
        self.write_count += 1
        self.has_unsaved_entries = False
        self.is_file_unsynced = not sync

    def on_synced(self, written: int) -> None:
        """Record that a sync of the file and its name is complete, which started when `write_count` was ``written``.

        No effect if the file was written again meanwhile.
        """
        if written == self.write_count:
            self.is_file_unsynced = False
