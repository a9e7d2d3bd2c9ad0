"""Cutting a partition's log: its end goes because the leader's log differs, or all of it does.

A cut is made so that a crash at any point leaves a log that recovery reads right: first the recovery point is lowered,
in its file too; then files go, the newest first. What was synced before counts for nothing behind the cut.

Source: ``UnifiedLog.truncateTo``, ``UnifiedLog.truncateFullyAndStartAt`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.file_names import SWAP_FILE_SUFFIX, parse_segment_file
from ottla.log.producer_state_rebuild import list_snapshot_files, rebuild_producer_state
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.readable_log import ReadableLog
from ottla.log.segment.log_segment import SEGMENT_START, IndexedBatch, LogSegment
from ottla.wire.errors import WireError


def _no_checkpoints(offset: int) -> None:
    """A log on its own has no checkpoints."""


class TruncatableLog(ReadableLog):
    """A log that can be cut."""

    _lower_checkpoints: Callable[[int], None] = staticmethod(_no_checkpoints)

    def set_offline(self) -> None:
        """Out of service: nothing is written to this log any more, and nothing of it synced or sealed."""
        self.closed = True

    def set_checkpoints(self, lower_checkpoints: Callable[[int], None]) -> None:
        """Have ``lower_checkpoints`` called with the offset of each truncation, before anything is removed."""
        self._lower_checkpoints = lower_checkpoints

    def lower_recovery_point(self, offset: int) -> None:
        """Recovery point and log start come down to ``offset`` at least; their files follow with the next writing."""
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)

    def truncate_to(self, offset: int, now_ms: int, producers: ProducerStateManager | None = None) -> int:
        """Drop every batch that reaches to ``offset`` or behind it; gives where the log ends now.

        ``producers``: as of there, just told by `producer_state_below_job`; else all since the last roll is read.
        Batches stay whole, and a log ends where its bytes do: a cut in the middle of a batch ends it before that batch.

        Raises:
            OSError: before anything was cut, or final: then the log is out of service.
        """
        assert offset >= 0
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(offset)
            return self.log_end_offset
        if offset < self.base_offsets[0]:
            self.truncate_fully_and_start_at(offset, now_ms)
            return offset
        self._prepare_truncation(offset)
        with self._truncating():
            self.remove_segments(bisect_right(self.base_offsets, offset))
            self.log_end_offset = self._truncate_segment(self.active_segment, offset)
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
            self.high_watermark = min(self.high_watermark, self.log_end_offset)
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            self.cleaner_offset = min(self.cleaner_offset, self.log_end_offset)
            self.epochs.truncate_from_end(self.log_end_offset)
            none = not self.producers.producers and self.producers.last_txn_end_offset < self.log_end_offset
            rebuild_producer_state(self, none=none, told=producers)
        self.check_offset_order()
        return self.log_end_offset

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drop everything; the log is empty, and starts and ends at ``offset``.

        Raises:
            OSError: before anything was cut, or final: then the log is out of service.
        """
        assert offset >= 0
        self._prepare_truncation(offset)
        with self._truncating():
            self.remove_segments(0)
            self.create_first_segment(offset, now_ms)
            self.log_start_offset = self.high_watermark = self.cleaner_offset = offset
            self.epochs.clear()
            self.producers = ProducerStateManager()
            self.verification_states.clear()
            for name in list_snapshot_files(self.disk, self.directory):
                self.disk.unlink(f"{self.directory}/{name}")
        self.check_offset_order()

    def _prepare_truncation(self, offset: int) -> None:
        """No checkpoint may name an offset above the cut: what is written there later would be believed unread."""
        self.lower_recovery_point(offset)
        self._lower_checkpoints(offset)
        self.truncations += 1
        self.sealed_end_offset = -1
        # An exchange may be under way: a crash would bring back what is cut now.
        for name in self.disk.list_files(self.directory):
            file = parse_segment_file(name)
            if file is not None and file.state == SWAP_FILE_SUFFIX:
                self.disk.unlink(f"{self.directory}/{name}")

    @contextmanager
    def _truncating(self) -> Iterator[None]:
        """Half a cut cannot be gone on with: whatever goes wrong puts the log out of service, for good."""
        try:
            yield
        except (OSError, CorruptFile) as error:
            self.set_offline()
            raise OSError(errno.EIO, f"{self.describe()}: not truncated to the end: {error}") from error

    def _truncate_segment(self, segment: LogSegment, offset: int) -> int:
        """Cut a segment before the first batch that reaches to ``offset``; gives where its last batch ends.

        What the index knows below the cut is believed, so that only a few batches are looked at.
        """
        known = segment.truncate_indexes(offset)
        try:
            end, good = self._index_batches_from(segment, known, offset)
        except WireError:
            segment.reset_indexes()
            end, good = self._index_batches_from(segment, SEGMENT_START, offset)
        if good < segment.size_bytes:
            segment.truncate(good)
        segment.truncate_txn_index(end)
        return end

    def _index_batches_from(self, segment: LogSegment, known: IndexedBatch, offset: int) -> tuple[int, int]:
        """Take the batches from a known one on into the indexes: where those below ``offset`` end, and their bytes.

        Raises:
            WireError: the batch that is known is another; damage behind it ends the segment.
        """
        end, good = segment.base_offset, known.position
        try:
            for position, header, _ in segment.scan(known.position, check=False):
                if position == known.position > 0 and header.last_offset != known.last_offset:
                    break
                if header.last_offset >= offset:
                    return end, good
                segment.index_batch(header, position)
                end, good = header.next_offset, position + header.size_bytes
        except WireError as error:
            damage: WireError | None = error
        else:
            damage = None
        if good == known.position > 0:
            raise WireError(f"{segment.path}.index is wrong about offset {known.last_offset}")
        if damage is not None:
            self.recovery_notes.append(f"{segment.path}.log: cut at {good}: {damage}")
        return end, good
