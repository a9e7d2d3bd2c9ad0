"""A partition as one group shares it: which of its records are with whom, and from where on anything is open.

In flight is what lies between the *start offset* (all before it is final) and the *end offset* (the last record ever
handed out). Records are handed out by `ottla.broker.share.acquiring` and come back by
`ottla.broker.share.acknowledging`; here is what both stand on. Pure: no clock, no log, no persister.

Source: ``SharePartition.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.broker.share.batches import StateBatch
from ottla.broker.share.in_flight import InFlight, InFlightBatch, RecordState


class Limits(NamedTuple):
    """What a group may; each may change while it runs (``share.*`` of the group)."""

    delivery_count: int = 5
    record_locks: int = 2000
    lock_duration_ms: int = 30_000
    renew: bool = True


MOST_RECORDS = 1 << 32
"""So many at most are remembered as one batch: no record batch says that it has half as many."""
MOST_CUTS = 10_000
"""So often may the batches in flight be cut because of what is said of their records, and twice as often in all: as
much can be stored at once, and a batch may say that it has any number of records.
"""
_STORED = frozenset(RecordState) - {RecordState.ACQUIRED}
"""What is written of a record: never that somebody has it."""


class InvalidState(Exception):
    """What is remembered of a share partition cannot be."""


class SharePartition:
    """The state of one share partition at its leader."""

    def __init__(self, start_offset: int, remembered: Iterable[StateBatch] = (), limits: Limits | None = None) -> None:
        """Begin where the persister says, or at the log offset that the group's settings name where it says nothing.

        Raises:
            InvalidState: batches that begin before the start offset, end before they begin, or never, or in no state.
        """
        self.limits = limits or Limits()
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.delivery_complete_count = 0
        """Final records from the start offset on: stored with each write, for the group's lag."""
        self.cuts = 0
        """How often the batches in flight are cut."""
        self._firsts: list[int] = []
        self._batches: dict[int, InFlightBatch] = {}
        self._look_again = False
        """Whether something in flight may be free: else the next record to fetch is the one after the end."""
        self._gap_from: int | None = None
        self._gap_end = -1
        self._remember(remembered)

    def _remember(self, remembered: Iterable[StateBatch]) -> None:
        """Take over what is stored. Between its batches there may be gaps, whose records are fetched as new ones."""
        expected, gap = self.start_offset, None
        for first, last, count, state in remembered:
            if first < self.start_offset or last < first:
                raise InvalidState(f"records {first} to {last} after a start at {self.start_offset}")
            if last - first >= MOST_RECORDS:
                raise InvalidState(f"{last - first + 1} records from {first} on in one batch")
            if state not in _STORED:
                raise InvalidState(f"records {first} to {last} in state {state}")
            if gap is None and first > expected:
                gap = expected
            expected = last + 1
            kept = RecordState(state)
            self.put(InFlightBatch(first, last, InFlight(kept, count)))
            if kept.is_final:
                self.delivery_complete_count += last - first + 1
        if self._firsts:
            self._look_again = True
            self.end_offset = self.last.last_offset
            if gap is not None:
                self._gap_from, self._gap_end = gap, self.end_offset
            self.move_on()

    # ------------------------------------------------------------------ what is in flight

    def __len__(self) -> int:
        return len(self._firsts)

    @property
    def last(self) -> InFlightBatch:
        """The batch of the highest offsets."""
        return self._batches[self._firsts[-1]]

    @property
    def first(self) -> InFlightBatch:
        """The batch of the lowest offsets."""
        return self._batches[self._firsts[0]]

    def put(self, batch: InFlightBatch) -> None:
        """Have a batch in flight."""
        if batch.first_offset not in self._batches:
            self._firsts.insert(bisect_left(self._firsts, batch.first_offset), batch.first_offset)
        self._batches[batch.first_offset] = batch

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at an offset or before it."""
        at = bisect_right(self._firsts, offset)
        return self._batches[self._firsts[at - 1]] if at else None

    def between(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that begin at these offsets."""
        begin, end = bisect_left(self._firsts, first), bisect_right(self._firsts, last)
        return [self._batches[at] for at in self._firsts[begin:end]]

    def __iter__(self) -> Iterator[InFlightBatch]:
        return (self._batches[first] for first in self._firsts)

    def cut_at(self, batch: InFlightBatch, begins: Sequence[int], most: int | None = None) -> bool:
        """Have runs of a batch begin at these ascending offsets, as `InFlightBatch.cut_at`; undone, and False, where
        ``most`` does not allow for it.
        """
        before = batch.cuts
        batch.cut_at(begins)
        self.cuts += batch.cuts - before
        if most is None or self.cuts <= most or batch.cuts == before:
            return True
        self.join(batch)
        return False

    def cut(self, batch: InFlightBatch, first: int, last: int) -> InFlight:
        """The state of records that lie in one run, of which they are cut."""
        self.cut_at(batch, (first, last + 1))
        return batch.state_at(first)

    def join(self, batch: InFlightBatch) -> None:
        """Forget cuts of a batch that make no difference any more."""
        before = batch.cuts
        batch.join()
        if self._batches.get(batch.first_offset) is batch:
            self.cuts -= before - batch.cuts

    def begins_inside(self, batch: InFlightBatch) -> bool:
        """Whether the start offset lies behind a batch's first record, and not behind its last."""
        return batch.first_offset < self.start_offset <= batch.last_offset

    def open_count(self, first: int, last: int) -> int:
        """How many of these records lie at the start offset or behind it."""
        return max(0, last - max(self.start_offset, first) + 1)

    @property
    def in_flight_count(self) -> int:
        """How many records are in flight, final ones among them."""
        return self.end_offset - self.start_offset + 1 if self._firsts else 0

    # ------------------------------------------------------------------ what comes next

    def look_again(self) -> None:
        """Something in flight has become free."""
        self._look_again = True

    @property
    def has_gap(self) -> bool:
        """Whether records between remembered ones have still to be fetched."""
        return self._gap_from is not None and self._gap_end == self.end_offset

    def passed_gap(self, offset: int) -> None:
        """Everything before ``offset`` has been looked at."""
        if self._gap_from is not None:
            self._gap_from = offset if self.has_gap and offset <= self._gap_end else None

    def next_fetch_offset(self) -> int:
        """Where the next fetch of this group begins: at the first free record, else behind the end."""
        if not self._firsts or self.start_offset > self.last.last_offset:
            self._look_again = False
            return self.end_offset
        if not self._look_again:
            return self.end_offset + 1
        gap = self._gap_from if self._gap_from is not None and self.has_gap else None
        for batch in self:
            if gap is not None:
                if batch.first_offset > gap:
                    return gap
                gap = max(batch.last_offset + 1, gap)
            if batch.whole is not None:
                if batch.whole.is_free:
                    return batch.first_offset
                continue
            for run in batch.each():
                if run.state.is_free:
                    return run.first_offset
        self._look_again = False
        return self.end_offset + 1

    def can_acquire(self) -> bool:
        """Whether a fetch may bring anything: something is free, or more may be in flight."""
        return self.next_fetch_offset() != self.end_offset + 1 or self.in_flight_count < self.limits.record_locks

    # ------------------------------------------------------------------ the start moves on

    def pass_what_was_given_up(self) -> bool:
        """Move on where nothing else will: the window is full, and nobody holds anything of it. Kafka stands still."""
        if self.can_acquire():
            return False
        states = (state for batch in self for state in batch.states())
        return not any(x.state is RecordState.ACQUIRED or x.before is not None for x in states) and self.move_on()

    def move_on(self) -> bool:
        """Move the start offset over what is final, and forget whole batches of it; says whether it did."""
        if not self._starts_final():
            return False
        last_final, counted = self._final_prefix()
        if last_final == -1:
            return False
        if last_final == self.last.last_offset:
            self.start_offset = self.end_offset = last_final + 1
            self._firsts.clear()
            self._batches.clear()
            self.cuts = 0
            self.delivery_complete_count = 0
            return True
        batch = self.floor(last_final)
        assert batch is not None
        at = bisect_right(self._firsts, last_final)
        if last_final == batch.last_offset:
            self.start_offset = max(self.start_offset, self._firsts[at])
            if self.has_gap and self._gap_from is not None:
                self.start_offset = min(self._gap_from, self.start_offset)
        else:
            self.start_offset = max(self.start_offset, last_final + 1)
            at -= 1
        self.delivery_complete_count -= counted
        for first in self._firsts[:at]:
            self.cuts -= self._batches.pop(first).cuts
        del self._firsts[:at]
        return True

    def _starts_final(self) -> bool:
        batch = self.floor(self.start_offset)
        if batch is None:
            return False  # nothing is in flight, or it begins with a gap
        state = batch.state_at(min(self.start_offset, batch.last_offset))  # which lies behind it where the log was cut
        return state.before is None and state.state.is_final

    def _final_prefix(self) -> tuple[int, int]:
        """The last of the records that are all final, -1 for none, and how many count as complete."""
        last, counted = -1, 0
        for batch in self:
            if self._gap_from is not None and self.has_gap and batch.last_offset >= self._gap_from:
                break
            for run in batch.each():
                if run.state.before is not None or not run.state.state.is_final:
                    return last, counted
                last = run.last_offset
                counted += self.open_count(run.first_offset, last)
        return last, counted

    # ------------------------------------------------------------------ what is gone from the log

    def log_starts_at(self, offset: int) -> None:
        """The log begins here now: what lies before it and is with nobody is given up.

        Acquired records before it end by release or by the expiry of their lock; acknowledgements do not change them.
        """
        if offset <= self.start_offset:
            return
        if not self._firsts:
            self.start_offset = self.end_offset = offset
            self.delivery_complete_count = 0
            return
        gone = sum(self._final_in(batch, self.start_offset, offset - 1) for batch in self.between(-1, offset - 1))
        if self.archive(self.start_offset, offset, self, RecordState.AVAILABLE, counts=False):
            self._look_again = True
        self.start_offset = offset
        self.delivery_complete_count -= gone
        self.end_offset = max(self.end_offset, offset)

    def _final_in(self, batch: InFlightBatch, first: int, last: int) -> int:
        return sum(run.records_count for run in batch.runs(first, last) if run.state.state.is_final)

    def archive(
        self, first: int, end: int, batches: Iterable[InFlightBatch], only: RecordState, *, counts: bool
    ) -> bool:
        """Give up records from ``first`` to before ``end`` that are in one state; says whether there were any."""
        found = False
        for batch in batches:
            if batch.first_offset >= end:
                break
            if batch.whole is not None:
                if batch.whole.state is not only:
                    continue
                if batch.first_offset >= first and batch.last_offset < end:
                    batch.whole.archive()
                    self.delivery_complete_count += len(batch) if counts else 0
                    found = True
                    continue
                batch.split()
            for run in batch.runs(first, end - 1):
                if run.state.state is only:
                    self.cut(batch, run.first_offset, run.last_offset).archive()
                    self.delivery_complete_count += run.records_count if counts else 0
                    found = True
            self.join(batch)
        return found
