"""Records on their way to consumers: the state of each, kept by whole batches until one of a batch goes its own way,
and then by runs of neighbours that are alike. A batch's header says how many records it has, and may lie.

| from | to | when |
|---|---|---|
| Available | Acquired | it is fetched: delivered once more |
| Acquired | Available | released, lock over, session gone, and it may be delivered again |
| Acquired | Archived | the same where it was delivered as often as it may be; rejected; a gap |
| Acquired | Acknowledged | accepted |
| Available | Archived | the log starts behind it, it is a gap, or its transaction was aborted |

A change that is being written is *pending*: it is taken back where the write fails.

Source: ``InFlightState.java``, ``InFlightBatch.java``, ``RecordState.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

NOBODY = ""


class RecordState(IntEnum):
    """What becomes of a record; the numbers are stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        """Whether nothing changes it any more."""
        return self >= RecordState.ACKNOWLEDGED


class Before(NamedTuple):
    """What a pending change is taken back to."""

    state: RecordState
    member_id: str
    delivery_limit: int


class InFlight:
    """The state of neighbouring records that are all alike."""

    __slots__ = ("_archived", "before", "delivery_count", "lock_until_ms", "member_id", "state")

    def __init__(
        self, state: RecordState, delivery_count: int, member_id: str = NOBODY, lock_until_ms: int | None = None
    ) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock_until_ms = lock_until_ms
        """By a clock nobody sets: until then it is its member's alone; None where it is nobody's."""
        self.before: Before | None = None
        """Set while a change of it is being written."""
        self._archived = False

    def copy(self) -> InFlight:
        """The same for some records of a batch, with nothing pending."""
        return InFlight(self.state, self.delivery_count, self.member_id, self.lock_until_ms)

    def part(self) -> InFlight:
        """The same for some records of a run; a pending change is theirs as well."""
        out = self.copy()
        out.before, out._archived = self.before, self._archived
        return out

    def is_like(self, other: InFlight) -> bool:
        """Whether nothing tells the two apart any more, and nothing is pending."""
        return (
            self.before is other.before is None
            and self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.lock_until_ms == other.lock_until_ms
        )

    @property
    def is_free(self) -> bool:
        """Whether it can be delivered."""
        return self.state is RecordState.AVAILABLE and self.before is None

    def acquire(self, member_id: str, lock_until_ms: int) -> None:
        """Deliver it once more."""
        assert self.is_free
        self.state = RecordState.ACQUIRED
        self.delivery_count += 1
        self.member_id = member_id
        self.lock_until_ms = lock_until_ms

    def change(self, state: RecordState, delivery_limit: int) -> bool:
        """Let an acquired record go; says whether that was possible."""
        if self.before is not None or self.state is not RecordState.ACQUIRED:
            return False
        if state is RecordState.AVAILABLE and self.delivery_count >= delivery_limit:
            state = RecordState.ARCHIVED
        self.state = state
        self.member_id = NOBODY
        return True

    def begin(self, state: RecordState, delivery_limit: int) -> bool:
        """The same, to be taken back should the write of it fail; the lock runs on meanwhile."""
        before = Before(self.state, self.member_id, delivery_limit)
        if not self.change(state, delivery_limit):
            return False
        self.before = before
        return True

    def complete(self, now_ms: int, *, written: bool) -> None:
        """The write of a pending change has succeeded or failed. A lock that ran out meanwhile ends where it would."""
        before, self.before = self.before, None
        assert before is not None
        if written or self._archived:
            self.lock_until_ms = None
        elif self.lock_until_ms is not None and self.lock_until_ms <= now_ms:
            done = self.delivery_count >= before.delivery_limit
            self.state = RecordState.ARCHIVED if done else RecordState.AVAILABLE
            self.member_id = NOBODY
            self.lock_until_ms = None
        else:
            self.state, self.member_id = before.state, before.member_id

    def archive(self) -> None:
        """It is gone from the log, or must not be seen: whatever is pending, this stays."""
        self._archived = True
        self.state = RecordState.ARCHIVED
        self.member_id = NOBODY
        self.lock_until_ms = None


class Run(NamedTuple):
    """Neighbouring records with one state; offsets inclusive."""

    first_offset: int
    last_offset: int
    state: InFlight

    @property
    def records_count(self) -> int:
        """How many they are."""
        return self.last_offset - self.first_offset + 1


class InFlightBatch:
    """Neighbouring records that were acquired together. Costs as much as it has runs, whatever number of records."""

    __slots__ = ("_firsts", "_states", "first_offset", "last_offset", "whole")

    def __init__(self, first_offset: int, last_offset: int, whole: InFlight) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.whole: InFlight | None = whole
        """The state of all its records; None once they may have states of their own."""
        self._firsts: list[int] = [first_offset]
        """Where each run begins; it ends where the next one does."""
        self._states: list[InFlight] = [whole]

    def __len__(self) -> int:
        return self.last_offset - self.first_offset + 1

    @property
    def cuts(self) -> int:
        """How often it is cut: its runs but one."""
        return len(self._firsts) - 1

    def split(self) -> None:
        """Its records may have states of their own from now on. A change of the whole that is pending is not theirs."""
        if self.whole is not None:
            self._states, self.whole = [self.whole.copy()], None

    def _end(self, at: int) -> int:
        return self._firsts[at + 1] - 1 if at + 1 < len(self._firsts) else self.last_offset

    def state_at(self, offset: int) -> InFlight:
        """The state of a record."""
        return self._states[bisect_right(self._firsts, offset) - 1]

    def runs(self, first: int, last: int) -> list[Run]:
        """The runs that lie among these offsets, and of a run that reaches further what lies among them."""
        if self.whole is not None:
            first, last = max(first, self.first_offset), min(last, self.last_offset)
            return [Run(first, last, self.whole)] if first <= last else []
        if first > last:
            return []
        begin = max(bisect_right(self._firsts, first) - 1, 0)
        end = bisect_right(self._firsts, last)
        found = ((at, self._firsts[at], self._end(at)) for at in range(begin, end))
        return [Run(max(x, first), min(y, last), self._states[at]) for at, x, y in found if x <= last and y >= first]

    def each(self) -> Iterator[Run]:
        """Its runs, one after the other, for who may stop at the first; none may be cut meanwhile."""
        for at, first in enumerate(self._firsts):
            yield Run(first, self._end(at), self._states[at])

    def is_run(self, first: int, last: int) -> bool:
        """Whether these are all records of one run."""
        at = bisect_right(self._firsts, first) - 1
        return self._firsts[at] == first and self._end(at) == last

    def cut_at(self, begins: Sequence[int]) -> None:
        """Have runs begin at these ascending offsets, where none does yet; one behind the batch is passed over."""
        low, high = bisect_right(self._firsts, begins[0]) - 1, bisect_right(self._firsts, begins[-1])
        firsts = sorted({*self._firsts[low:high], *begins})
        if firsts[-1] > self.last_offset:
            del firsts[-1]
        states: list[InFlight] = []
        at = low
        for first in firsts:
            if at < high and self._firsts[at] == first:
                states.append(self._states[at])
                at += 1
            else:
                states.append(states[-1].part())
        self._firsts[low:high], self._states[low:high] = firsts, states

    def join(self) -> None:
        """Have neighbours that are alike be one run again."""
        if not self.cuts:
            return
        firsts, states = self._firsts[:1], self._states[:1]
        for first, state in zip(self._firsts[1:], self._states[1:], strict=True):
            if not state.is_like(states[-1]):
                firsts.append(first)
                states.append(state)
        self._firsts, self._states = firsts, states

    def states(self) -> list[InFlight]:
        """The states of its runs."""
        return self._states
