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

from ottla.log.checkpoints import CorruptFile
from ottla.log.names import SWAP, parse_segment_file
from ottla.log.producers import ProducerStates
from ottla.log.reading import ReadableLog
from ottla.log.rebuild import rebuild_producers, snapshot_files
from ottla.log.segment import START, Known, Segment
from ottla.wire.errors import WireError


def _nothing() -> None:
    """A log on its own has no checkpoints."""


class TruncatableLog(ReadableLog):
    """A log that can be cut."""

    _write_points: Callable[[], None] = staticmethod(_nothing)
    _noted: tuple[int, int] = (0, 0)
    """What the checkpoints on disk say at most: recovery point, log start."""

    def abandon(self) -> None:
        """Out of service: nothing is written to this log any more, and nothing of it synced or sealed."""
        self.closed = True

    def noted_by(self, write_points: Callable[[], None], recovery_point: int, log_start_offset: int) -> None:
        """Whoever keeps the checkpoints tells how they are written, and what they say of this log now."""
        self._write_points = write_points
        self._noted = (recovery_point, log_start_offset)

    def points_noted(self) -> None:
        """The checkpoints on disk say of this log what it says itself, or are about to."""
        noted, start = self._noted
        self._noted = (max(noted, self.recovery_point), max(start, self.log_start_offset))

    def lower_points(self, offset: int) -> None:
        """Recovery point and log start come down to ``offset`` at least; their files follow with the next writing."""
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)

    def truncate_to(self, offset: int, now_ms: int, producers: ProducerStates | None = None) -> int:
        """Drop every batch that reaches to ``offset`` or behind it; gives where the log ends now.

        ``producers``: as of there, just told by `producers_below`; else all since the last roll is read.
        Batches stay whole, and a log ends where its bytes do: a cut in the middle of a batch ends it before that batch.

        Raises:
            OSError: before anything was cut, or final: then the log is out of service.
        """
        assert offset >= 0
        if offset >= self.log_end_offset:
            self.epochs.truncate_end(offset)
            return self.log_end_offset
        if offset < self.bases[0]:
            self.start_over_at(offset, now_ms)
            return offset
        self._before_cut(offset)
        with self._cutting():
            self.remove_segments(bisect_right(self.bases, offset))
            self.log_end_offset = self._cut(self.active, offset)
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
            self.high_watermark = min(self.high_watermark, self.log_end_offset)
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            self.cleaner_point = min(self.cleaner_point, self.log_end_offset)
            self.epochs.truncate_end(self.log_end_offset)
            none = not self.producers.producers and self.producers.ended_at < self.log_end_offset
            rebuild_producers(self, none=none, told=producers)
        self.check_order()
        return self.log_end_offset

    def start_over_at(self, offset: int, now_ms: int) -> None:
        """Drop everything; the log is empty, and starts and ends at ``offset``.

        Raises:
            OSError: before anything was cut, or final: then the log is out of service.
        """
        assert offset >= 0
        self._before_cut(offset)
        with self._cutting():
            self.remove_segments(0)
            self.start_with(offset, now_ms)
            self.log_start_offset = self.high_watermark = self.cleaner_point = offset
            self.epochs.clear()
            self.producers = ProducerStates()
            self.verifying.clear()
            for name in snapshot_files(self.disk, self.directory):
                self.disk.unlink(f"{self.directory}/{name}")
        self.check_order()

    def _before_cut(self, offset: int) -> None:
        """No checkpoint may name an offset above the cut: what is written there later would be believed unread."""
        self.lower_points(offset)
        if max(self._noted) > offset:
            self._write_points()
            self._noted = (self.recovery_point, self.log_start_offset)
        self.truncations += 1
        self.sealed_at = -1
        # An exchange may be under way: a crash would bring back what is cut now.
        for name in self.disk.list_files(self.directory):
            file = parse_segment_file(name)
            if file is not None and file.state == SWAP:
                self.disk.unlink(f"{self.directory}/{name}")

    @contextmanager
    def _cutting(self) -> Iterator[None]:
        """Half a cut cannot be gone on with: whatever goes wrong puts the log out of service, for good."""
        try:
            yield
        except (OSError, CorruptFile) as error:
            self.abandon()
            raise OSError(errno.EIO, f"{self.in_words()}: not truncated to the end: {error}") from error

    def _cut(self, segment: Segment, offset: int) -> int:
        """Cut a segment before the first batch that reaches to ``offset``; gives where its last batch ends.

        What the index knows below the cut is believed, so that only a few batches are looked at.
        """
        known = segment.cut_indexes(offset)
        try:
            end, good = self._told_from(segment, known, offset)
        except WireError:
            segment.reset_indexes()
            end, good = self._told_from(segment, START, offset)
        if good < segment.size_bytes:
            segment.truncate(good)
        segment.cut_aborted(end)
        return end

    def _told_from(self, segment: Segment, known: Known, offset: int) -> tuple[int, int]:
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
                segment.note(header, position)
                end, good = header.next_offset, position + header.size_bytes
        except WireError as error:
            damage: WireError | None = error
        else:
            damage = None
        if good == known.position > 0:
            raise WireError(f"{segment.path}.index is wrong about offset {known.last_offset}")
        if damage is not None:
            self.notes.append(f"{segment.path}.log: cut at {good}: {damage}")
        return end, good
