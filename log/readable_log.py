"""Reading a partition's log: ranges of bytes for a fetch, batches for everybody else.

Source: ``UnifiedLog.read``, ``LocalLog.read``, ``LocalLog.collectAbortedTransactions`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter

from ottla.env.disk import FileSlice
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.log_state import LogState
from ottla.log.segment.batch_scan import LogOffsetPosition
from ottla.log.segment.damaged_ranges import undamaged_end
from ottla.log.segment.indexes import AbortedTxn
from ottla.log.segment.log_segment import LogSegment
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.record_batch.batch_header import BatchHeader

_abort_marker_offset = attrgetter("last_offset")


class ReadableLog(LogState):
    """A log that can be read."""

    def _locate(self, offset: int) -> tuple[LogSegment, LogOffsetPosition] | None:
        """The first batch that ends at or behind ``offset``; a hole left by compaction is skipped."""
        for segment in self.segments[max(bisect_right(self.base_offsets, offset) - 1, 0) :]:
            found = segment.locate(offset)
            if found is not None:
                return segment, found
        return None

    def check_readable(self, offset: int) -> None:
        """Raise OFFSET_OUT_OF_RANGE unless ``log start <= offset <= log end``."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in {self.log_start_offset} to {self.log_end_offset}",
            )

    def read(self, offset: int, max_bytes: int, upper_offset: int, *, at_least_one: bool) -> FileSlice | None:
        """Return a range of one segment: from the batch that holds ``offset``, at most ``max_bytes``, below
        ``upper_offset``.

        The range begins with a whole batch; a later batch may be cut off at ``max_bytes``. A first batch larger than
        ``max_bytes`` is returned whole with ``at_least_one`` and not at all without it: consumers fail on a partition
        whose records hold no whole batch. None if there is nothing to read.

        Source: ``LogSegment.read``, ``ReplicaManager.readFromLog`` (``minOneMessage``, ``firstEntryIncomplete``).

        Raises:
            ProtocolError: OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE for what is damaged; UNKNOWN_SERVER_ERROR for a negative
                ``max_bytes``, as Kafka.
        """
        self.check_readable(offset)
        if offset >= upper_offset:
            return None
        try:
            found = self._locate(offset)
            if found is None or found[1].base_offset >= upper_offset:
                return None
            segment, batch = found
            limit = segment.locate(upper_offset) if upper_offset < self.log_end_offset else None
        except WireError as error:
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        end = segment.size_bytes if limit is None else limit.position
        if segment.damaged_ranges:
            end = undamaged_end(segment.damaged_ranges, batch.position, end)
            if end <= batch.position:
                raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path}.log is damaged at {batch.position}")
        size, least = end - batch.position, batch.size_bytes
        if size < least:
            if batch.position + least > segment.size_bytes:
                text = f"{segment.path}.log: the batch at {batch.position} ends behind the segment ({least} bytes)"
                raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, text)
            return None  # the upper offset lies within the batch
        if max_bytes < size:
            if max_bytes >= least:
                size = max_bytes
            elif max_bytes < 0:
                raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Invalid max size {max_bytes} for log read")
            elif at_least_one:
                size = least
            else:
                return None
        return FileSlice(segment.file, batch.position, size)

    def bytes_between(self, offset: int, upper_offset: int) -> int | None:
        """Return the number of bytes from the batch that holds ``offset`` up to ``upper_offset``.

        None if ``upper_offset`` lies in a later segment, or if the batch cannot be read: a fetch is answered then.

        Source: ``LogOffsetMetadata.onOlderSegment``, ``LogOffsetMetadata.positionDiff``.
        """
        if offset >= upper_offset or offset < self.log_start_offset:
            return 0
        try:
            found = self._locate(offset)
            if found is None:
                return 0
            segment, batch = found
            if upper_offset >= self.log_end_offset:
                return segment.size_bytes - batch.position if segment is self.active_segment else None
            limit = segment.locate(upper_offset)
        except WireError:
            return None
        return None if limit is None else max(limit.position - batch.position, 0)

    def is_batch_above(self, offset: int, upper_offset: int) -> bool:
        """Return whether the batch that holds ``offset`` begins above ``upper_offset``; the log end is a batch here."""
        if offset <= upper_offset:
            return False
        try:
            found = self._locate(offset)
        except WireError:
            return True
        return found is None or found[1].base_offset > upper_offset

    def aborted_txns_in_slice(self, part: FileSlice, offset: int) -> list[AbortedTxn]:
        """Aborted transactions a reader must skip of what `read` gave it from ``offset`` on: not of all up to the end.

        Where the index does not say more, it is all that begin in the segment: as many as Kafka tells.

        Source: ``LogSegment.fetchUpperBoundOffset``, ``LocalLog.addAbortedTransactions`` (apache/kafka 4.3.1). Raises
        as `collect_aborted_txns` does.
        """
        found = self._locate(offset)
        if found is None:
            return []
        beyond = found[0].offset_index.upper_bound_offset(part.offset + len(part))
        if beyond is None:
            after = bisect_right(self.base_offsets, found[0].base_offset)
            beyond = self.base_offsets[after] if after < len(self.base_offsets) else self.log_end_offset
        return self.collect_aborted_txns(offset, beyond)

    def collect_aborted_txns(self, offset: int, upper_offset: int) -> list[AbortedTxn]:
        """Aborted transactions a read_committed reader of that range must skip.

        Raises:
            ProtocolError: CORRUPT_MESSAGE: a transaction index went bad since the log was opened.
        """
        out: list[AbortedTxn] = []
        for segment in self.segments[max(bisect_right(self.base_offsets, offset) - 1, 0) :]:
            try:
                entries = segment.aborted_txns
            except CorruptFile as error:
                raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
            for entry in islice(entries, bisect_left(entries, offset, key=_abort_marker_offset), None):
                if entry.first_offset < upper_offset:
                    out.append(entry)
                if entry.last_stable_offset >= upper_offset:
                    return out
        return out

    def batches(self, offset: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch from the one that holds ``offset``, with its bytes.

        Raises:
            WireError: a batch on disk is damaged.
        """
        found = self._locate(offset)
        if found is None:
            return
        first, located = found
        for segment in list(self.segments[self.segments.index(first) :]):
            for _, header, raw in segment.scan(located.position if segment is first else 0):
                yield header, raw
