"""Share partition: states and owners of the in-flight records of one group.

In flight are the records between the *start offset* (earlier records are final or deleted) and the *end offset* (the
last record acquired so far). Records are acquired in `ottla.broker.share_partitions.acquisition` and released in
`ottla.broker.share_partitions.acknowledgement`; this module has their common state. Pure: no clock, log or persister.

Source: ``SharePartition.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.broker.share_partitions.in_flight import InFlightBatch, InFlightState, RecordState
from ottla.broker.share_state.state_batches import PersisterStateBatch


class SharePartitionLimits(NamedTuple):
    """Delivery limits of a share group (``share.*`` configs), which may change at run time."""

    max_delivery_count: int = 5
    max_record_locks: int = 2000
    lock_duration_ms: int = 30_000
    allows_renew: bool = True


MAX_BATCH_RECORDS = 1 << 32
"""Maximum number of records of a persisted state batch; no record batch has half as many."""
_PERSISTED_STATES = frozenset(RecordState) - {RecordState.ACQUIRED}
"""Record states that the persister stores: all but ACQUIRED."""


class InvalidShareState(Exception):
    """Share state that the persister returned is inconsistent, such as records before the start offset."""


class SharePartition:
    """In-flight records of one share partition (a group's view of a partition) at its leader, in memory only."""

    def __init__(
        self,
        start_offset: int,
        remembered: Iterable[PersisterStateBatch] = (),
        limits: SharePartitionLimits | None = None,
    ) -> None:
        """Initialize with the persisted start offset and state batches, or with the initial start offset of the group.

        ``remembered``: persisted state batches, ascending; ``limits``: None for the default limits.

        Raises:
            InvalidShareState: a batch begins before the start offset, is empty or too large, or has an unknown state.
        """
        self.limits = limits or SharePartitionLimits()
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.delivery_complete_count = 0
        """Number of final records from the start offset on; written with each state, to compute the group's lag."""
        self.cut_count = 0
        """Number of boundaries between runs in all in-flight batches, which is limited."""
        self._firsts: list[int] = []
        self._batches: dict[int, InFlightBatch] = {}
        self._has_available_records = False
        """False if no in-flight record is available, so that the next fetch offset is after the end offset."""
        self._gap_start: int | None = None
        self._gap_end = -1
        self._load_state_batches(remembered)

    def _load_state_batches(self, remembered: Iterable[PersisterStateBatch]) -> None:
        """Add the persisted batches as in-flight. Records in gaps between them are fetched as new records.

        Raises:
            InvalidShareState: a batch is invalid.
        """
        expected, gap = self.start_offset, None
        for first, last, count, state in remembered:
            if first < self.start_offset or last < first:
                raise InvalidShareState(f"records {first} to {last} after a start at {self.start_offset}")
            if last - first >= MAX_BATCH_RECORDS:
                raise InvalidShareState(f"{last - first + 1} records from {first} on in one batch")
            if state not in _PERSISTED_STATES:
                raise InvalidShareState(f"records {first} to {last} in state {state}")
            if gap is None and first > expected:
                gap = expected
            expected = last + 1
            kept = RecordState(state)
            self.add_batch(InFlightBatch(first, last, InFlightState(kept, count)))
            if kept.is_final:
                self.delivery_complete_count += last - first + 1
        if self._firsts:
            self._has_available_records = True
            self.end_offset = self.last_batch.last_offset
            if gap is not None:
                self._gap_start, self._gap_end = gap, self.end_offset
            self.advance_start_offset()

    # ------------------------------------------------------------------ in-flight batches

    def __len__(self) -> int:
        return len(self._firsts)

    @property
    def last_batch(self) -> InFlightBatch:
        """In-flight batch with the highest offsets; there must be one."""
        return self._batches[self._firsts[-1]]

    @property
    def first_batch(self) -> InFlightBatch:
        """In-flight batch with the lowest offsets; there must be one."""
        return self._batches[self._firsts[0]]

    def add_batch(self, batch: InFlightBatch) -> None:
        """Add an in-flight batch; it replaces one with the same first offset. Start and end offset stay unchanged."""
        if batch.first_offset not in self._batches:
            self._firsts.insert(bisect_left(self._firsts, batch.first_offset), batch.first_offset)
        self._batches[batch.first_offset] = batch

    def last_batch_at_or_before(self, offset: int) -> InFlightBatch | None:
        """Return the last in-flight batch whose first offset is at or before ``offset``; None if there is none."""
        at = bisect_right(self._firsts, offset)
        return self._batches[self._firsts[at - 1]] if at else None

    def batches_between(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the in-flight batches whose first offset is from ``first`` to ``last`` (inclusive), ascending."""
        begin, end = bisect_left(self._firsts, first), bisect_right(self._firsts, last)
        return [self._batches[at] for at in self._firsts[begin:end]]

    def __iter__(self) -> Iterator[InFlightBatch]:
        return (self._batches[first] for first in self._firsts)

    def split_runs_at(self, batch: InFlightBatch, begins: Sequence[int], most: int | None = None) -> bool:
        """Split runs of a batch at these ascending offsets, as `InFlightBatch.split_runs_at`.

        Return False, with the split undone, if there would be more than ``most`` boundaries in all batches.
        """
        before = batch.cut_count
        batch.split_runs_at(begins)
        self.cut_count += batch.cut_count - before
        if most is None or self.cut_count <= most or batch.cut_count == before:
            return True
        self.merge_equivalent_runs(batch)
        return False

    def split_run(self, batch: InFlightBatch, first: int, last: int) -> InFlightState:
        """Split a run of a batch so that records ``first`` to ``last`` (inclusive) are a run; return its own state."""
        self.split_runs_at(batch, (first, last + 1))
        return batch.state_at(first)

    def merge_equivalent_runs(self, batch: InFlightBatch) -> None:
        """Merge adjacent runs of a batch with equivalent states."""
        before = batch.cut_count
        batch.merge_equivalent_runs()
        if self._batches.get(batch.first_offset) is batch:
            self.cut_count -= before - batch.cut_count

    def starts_within(self, batch: InFlightBatch) -> bool:
        """Return True if the start offset is in a batch, after its first record."""
        return batch.first_offset < self.start_offset <= batch.last_offset

    def count_from_start_offset(self, first: int, last: int) -> int:
        """Return how many of the offsets ``first`` to ``last`` (inclusive) are at or after the start offset."""
        return max(0, last - max(self.start_offset, first) + 1)

    @property
    def in_flight_count(self) -> int:
        """Number of offsets from start to end offset, both inclusive; final records count. 0 without a batch."""
        return self.end_offset - self.start_offset + 1 if self._firsts else 0

    # ------------------------------------------------------------------ next fetch

    def mark_available(self) -> None:
        """Record that an in-flight record has become available, so that `next_fetch_offset` searches for it."""
        self._has_available_records = True

    @property
    def has_gap(self) -> bool:
        """True if records in gaps between the persisted batches are still to be fetched."""
        return self._gap_start is not None and self._gap_end == self.end_offset

    def advance_gap(self, offset: int) -> None:
        """Continue the search for gaps at ``offset``: all earlier records are in flight."""
        if self._gap_start is not None:
            self._gap_start = offset if self.has_gap and offset <= self._gap_end else None

    @property
    def first_new_offset(self) -> int:
        """First offset never acquired: the one after the end offset or, with nothing in flight, the end offset."""
        return self.end_offset + 1 if self._has_batch_in_flight else self.end_offset

    @property
    def _has_batch_in_flight(self) -> bool:
        """False without a batch, or if the log start offset advanced past the last one."""
        return bool(self._firsts) and self.start_offset <= self.last_batch.last_offset

    def next_fetch_offset(self) -> int:
        """Return the offset at which the next fetch starts: that of the first available record or unread gap.

        If there is none, it is `first_new_offset`.
        """
        if not self._has_batch_in_flight:
            self._has_available_records = False
            return self.end_offset
        if not self._has_available_records:
            return self.end_offset + 1
        gap = self._gap_start if self._gap_start is not None and self.has_gap else None
        for batch in self:
            if gap is not None:
                if batch.first_offset > gap:
                    return gap
                gap = max(batch.last_offset + 1, gap)
            if batch.batch_state is not None:
                if batch.batch_state.is_available:
                    return batch.first_offset
                continue
            for run in batch.iterate_runs():
                if run.state.is_available:
                    return run.first_offset
        self._has_available_records = False
        return self.end_offset + 1

    def can_acquire(self) -> bool:
        """Return True if a fetch may acquire records: some are available, or the in-flight limit is not reached."""
        return self.next_fetch_offset() != self.end_offset + 1 or self.in_flight_count < self.limits.max_record_locks

    # ------------------------------------------------------------------ advancing the start offset

    def advance_past_archived(self) -> bool:
        """Advance the start offset if the in-flight limit is reached and no record is acquired or pending.

        Return True if it moved.
        Kafka would acquire no further record in this state.
        """
        if self.can_acquire():
            return False
        states = (state for batch in self for state in batch.states())
        return (
            not any(x.state is RecordState.ACQUIRED or x.rollback_state is not None for x in states)
            and self.advance_start_offset()
        )

    def advance_start_offset(self) -> bool:
        """Advance the start offset over final records and remove completed batches; return True if it moved."""
        if not self._is_start_final():
            return False
        last_final, counted = self._final_prefix()
        if last_final == -1:
            return False
        if last_final == self.last_batch.last_offset:
            self.start_offset = self.end_offset = last_final + 1
            self._firsts.clear()
            self._batches.clear()
            self.cut_count = 0
            self.delivery_complete_count = 0
            return True
        batch = self.last_batch_at_or_before(last_final)
        assert batch is not None
        at = bisect_right(self._firsts, last_final)
        if last_final == batch.last_offset:
            self.start_offset = max(self.start_offset, self._firsts[at])
            if self.has_gap and self._gap_start is not None:
                self.start_offset = min(self._gap_start, self.start_offset)
        else:
            self.start_offset = max(self.start_offset, last_final + 1)
            at -= 1
        self.delivery_complete_count -= counted
        for first in self._firsts[:at]:
            self.cut_count -= self._batches.pop(first).cut_count
        del self._firsts[:at]
        return True

    def _is_start_final(self) -> bool:
        batch = self.last_batch_at_or_before(self.start_offset)
        if batch is None:
            return False  # nothing is in flight, or the first records are a gap
        # after the batch if the log start offset advanced
        state = batch.state_at(min(self.start_offset, batch.last_offset))
        return state.rollback_state is None and state.state.is_final

    def _final_prefix(self) -> tuple[int, int]:
        """Return the last offset of the leading final records (-1: none).

        Also return how many of their offsets are at or after the start offset.
        """
        last, counted = -1, 0
        for batch in self:
            if self._gap_start is not None and self.has_gap and batch.last_offset >= self._gap_start:
                break
            for run in batch.iterate_runs():
                if run.state.rollback_state is not None or not run.state.state.is_final:
                    return last, counted
                last = run.last_offset
                counted += self.count_from_start_offset(run.first_offset, last)
        return last, counted

    # ------------------------------------------------------------------ deleted records

    def update_log_start_offset(self, offset: int) -> None:
        """Advance the start offset to a new log start offset: available records before it are archived.

        Do nothing if it is not after the start offset.
        Acquired records before it are archived on release or when their lock expires; acknowledgements do not change
        them.
        """
        if offset <= self.start_offset:
            return
        if not self._firsts:
            self.start_offset = self.end_offset = offset
            self.delivery_complete_count = 0
            return
        gone = sum(
            self._count_final(batch, self.start_offset, offset - 1) for batch in self.batches_between(-1, offset - 1)
        )
        if self.archive_records(self.start_offset, offset, self, RecordState.AVAILABLE, counts=False):
            self._has_available_records = True
        self.start_offset = offset
        self.delivery_complete_count -= gone
        self.end_offset = max(self.end_offset, offset)

    def _count_final(self, batch: InFlightBatch, first: int, last: int) -> int:
        return sum(run.record_count for run in batch.runs(first, last) if run.state.state.is_final)

    def archive_records(
        self, first: int, end: int, batches: Iterable[InFlightBatch], only: RecordState, *, counts: bool
    ) -> bool:
        """Archive the records in ``[first, end)`` that are in state ``only``; return True if there were any.

        ``batches``: in-flight batches to look at, ascending; ``counts``: add the records to
        ``delivery_complete_count``.
        """
        found = False
        for batch in batches:
            if batch.first_offset >= end:
                break
            if batch.batch_state is not None:
                if batch.batch_state.state is not only:
                    continue
                if batch.first_offset >= first and batch.last_offset < end:
                    batch.batch_state.archive()
                    self.delivery_complete_count += len(batch) if counts else 0
                    found = True
                    continue
                batch.track_offset_states()
            for run in batch.runs(first, end - 1):
                if run.state.state is only:
                    self.split_run(batch, run.first_offset, run.last_offset).archive()
                    self.delivery_complete_count += run.record_count if counts else 0
                    found = True
            self.merge_equivalent_runs(batch)
        return found
