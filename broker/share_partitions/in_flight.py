"""States of in-flight records, stored per batch while all its records are equal, then per run of equal records.

The record count in a batch's header is not trusted.

| from | to | when |
|---|---|---|
| Available | Acquired | fetched; the delivery count is incremented |
| Acquired | Available | released, lock expired or session closed, below the delivery count limit |
| Acquired | Archived | the same at the delivery count limit, or deleted; rejected; a gap; of an aborted transaction |
| Acquired | Acknowledged | accepted |
| Available | Archived | before the log start offset, or a gap |

A change that is being written is *pending*: it is rolled back if the write fails.

Source: ``InFlightState.java``, ``InFlightBatch.java``, ``RecordState.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

NO_MEMBER = ""


class RecordState(IntEnum):
    """Delivery state of a record; the value is that of the share coordinator's records."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        """True if a record in this state is never delivered again: acknowledged or archived."""
        return self >= RecordState.ACKNOWLEDGED


class RollbackState(NamedTuple):
    """State and member before a pending change, and the delivery count limit."""

    state: RecordState
    member_id: str
    delivery_limit: int


class InFlightState:
    """State of a run of adjacent records: delivery state, delivery count, acquiring member and lock."""

    __slots__ = ("_archived", "delivery_count", "lock_until_ms", "member_id", "rollback_state", "state")

    def __init__(
        self, state: RecordState, delivery_count: int, member_id: str = NO_MEMBER, lock_until_ms: int | None = None
    ) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.lock_until_ms = lock_until_ms
        """Expiry of the acquisition lock on the monotonic clock (ms); None without a lock."""
        self.rollback_state: RollbackState | None = None
        """State before a change that is being written; None without a pending change."""
        self._archived = False

    def copy(self) -> InFlightState:
        """Return a copy of delivery state, count, member and lock as they are now; the copy has no pending change."""
        return InFlightState(self.state, self.delivery_count, self.member_id, self.lock_until_ms)

    def copy_with_pending(self) -> InFlightState:
        """Return a copy of the state including its pending change."""
        out = self.copy()
        out.rollback_state, out._archived = self.rollback_state, self._archived
        return out

    def is_equivalent(self, other: InFlightState) -> bool:
        """Return True if both states have equal values, and neither has a pending change."""
        return (
            self.rollback_state is other.rollback_state is None
            and self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.lock_until_ms == other.lock_until_ms
        )

    @property
    def is_available(self) -> bool:
        """True if the records can be acquired: Available, without a pending change."""
        return self.state is RecordState.AVAILABLE and self.rollback_state is None

    def acquire(self, member_id: str, lock_until_ms: int) -> None:
        """Acquire the records, which must be available, for a member, and increment the delivery count.

        ``lock_until_ms``: expiry of the acquisition lock on the monotonic clock.
        """
        assert self.is_available
        self.state = RecordState.ACQUIRED
        self.delivery_count += 1
        self.member_id = member_id
        self.lock_until_ms = lock_until_ms

    def try_update_state(self, state: RecordState, delivery_limit: int) -> bool:
        """Change acquired records to ``state`` and return True; remove the member.

        Return False, without a change, if they are not acquired or have a pending change.

        Archived replaces Available once the delivery count has reached ``delivery_limit``.
        """
        if self.rollback_state is not None or self.state is not RecordState.ACQUIRED:
            return False
        if state is RecordState.AVAILABLE and self.delivery_count >= delivery_limit:
            state = RecordState.ARCHIVED
        self.state = state
        self.member_id = NO_MEMBER
        return True

    def start_state_transition(self, state: RecordState, delivery_limit: int) -> bool:
        """Change the state as `try_update_state`, as a pending change; return False if that returns False.

        `complete_state_transition` completes the change or rolls it back.
        """
        before = RollbackState(self.state, self.member_id, delivery_limit)
        if not self.try_update_state(state, delivery_limit):
            return False
        self.rollback_state = before
        return True

    def complete_state_transition(self, now_ms: int, *, written: bool) -> None:
        """Complete the pending change (``written``) or roll it back; there must be one.

        If the lock has expired at ``now_ms`` (monotonic clock) by then, the rollback makes the records available
        instead, or archived at the delivery count limit. Records archived meanwhile (`archive`) stay archived.
        """
        before, self.rollback_state = self.rollback_state, None
        assert before is not None
        if written or self._archived:
            self.lock_until_ms = None
        elif self.lock_until_ms is not None and self.lock_until_ms <= now_ms:
            done = self.delivery_count >= before.delivery_limit
            self.state = RecordState.ARCHIVED if done else RecordState.AVAILABLE
            self.member_id = NO_MEMBER
            self.lock_until_ms = None
        else:
            self.state, self.member_id = before.state, before.member_id

    def archive(self) -> None:
        """Archive records that were deleted or must not be delivered; a pending change is not rolled back after it."""
        self._archived = True
        self.state = RecordState.ARCHIVED
        self.member_id = NO_MEMBER
        self.lock_until_ms = None


class InFlightRun(NamedTuple):
    """Run of adjacent records with one state; offsets inclusive."""

    first_offset: int
    last_offset: int
    state: InFlightState

    @property
    def record_count(self) -> int:
        """Number of offsets from ``first_offset`` to ``last_offset``, both included."""
        return self.last_offset - self.first_offset + 1


class InFlightBatch:
    """Batch of adjacent records that were acquired or persisted together; its memory depends on its runs only."""

    __slots__ = ("_run_starts", "_states", "batch_state", "first_offset", "last_offset")

    def __init__(self, first_offset: int, last_offset: int, whole: InFlightState) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.batch_state: InFlightState | None = whole
        """State of all records; None once the records are tracked as runs with their own states."""
        self._run_starts: list[int] = [first_offset]
        """First offset of each run, ascending; a run ends before the next one."""
        self._states: list[InFlightState] = [whole]

    def __len__(self) -> int:
        return self.last_offset - self.first_offset + 1

    @property
    def cut_count(self) -> int:
        """Number of boundaries between runs of records in equal state; 0 while the whole batch has one state."""
        return len(self._run_starts) - 1

    def track_offset_states(self) -> None:
        """Track the records as runs with their own states from now on; do nothing if they are already.

        A pending change of the whole batch does not apply to the runs.
        """
        if self.batch_state is not None:
            self._states, self.batch_state = [self.batch_state.copy()], None

    def _run_end(self, at: int) -> int:
        return self._run_starts[at + 1] - 1 if at + 1 < len(self._run_starts) else self.last_offset

    def state_at(self, offset: int) -> InFlightState:
        """Return the state of the run that contains ``offset``; changes to it apply to all records of the run."""
        return self._states[bisect_right(self._run_starts, offset) - 1]

    def runs(self, first: int, last: int) -> list[InFlightRun]:
        """Return the runs of records ``first`` to ``last`` (inclusive) in the batch.

        A run that extends beyond them is returned truncated, but with the state that all of its records share.
        """
        if self.batch_state is not None:
            first, last = max(first, self.first_offset), min(last, self.last_offset)
            return [InFlightRun(first, last, self.batch_state)] if first <= last else []
        if first > last:
            return []
        begin = max(bisect_right(self._run_starts, first) - 1, 0)
        end = bisect_right(self._run_starts, last)
        found = ((at, self._run_starts[at], self._run_end(at)) for at in range(begin, end))
        return [
            InFlightRun(max(x, first), min(y, last), self._states[at]) for at, x, y in found if x <= last and y >= first
        ]

    def iterate_runs(self) -> Iterator[InFlightRun]:
        """Yield the runs one by one, for callers that may stop early; no run may be split meanwhile."""
        for at, first in enumerate(self._run_starts):
            yield InFlightRun(first, self._run_end(at), self._states[at])

    def is_whole_run(self, first: int, last: int) -> bool:
        """Return True if records ``first`` to ``last`` (inclusive) are exactly one run."""
        at = bisect_right(self._run_starts, first) - 1
        return self._run_starts[at] == first and self._run_end(at) == last

    def split_runs_at(self, begins: Sequence[int]) -> None:
        """Split runs so that one begins at each of the ascending offsets; an offset after the batch is ignored.

        Each part of a run has its own copy of the state, with its pending change. The caller must have called
        `track_offset_states`.
        """
        low, high = bisect_right(self._run_starts, begins[0]) - 1, bisect_right(self._run_starts, begins[-1])
        firsts = sorted({*self._run_starts[low:high], *begins})
        if firsts[-1] > self.last_offset:
            del firsts[-1]
        states: list[InFlightState] = []
        at = low
        for first in firsts:
            if at < high and self._run_starts[at] == first:
                states.append(self._states[at])
                at += 1
            else:
                states.append(states[-1].copy_with_pending())
        self._run_starts[low:high], self._states[low:high] = firsts, states

    def merge_equivalent_runs(self) -> None:
        """Merge adjacent runs with equivalent states."""
        if not self.cut_count:
            return
        firsts, states = self._run_starts[:1], self._states[:1]
        for first, state in zip(self._run_starts[1:], self._states[1:], strict=True):
            if not state.is_equivalent(states[-1]):
                firsts.append(first)
                states.append(state)
        self._run_starts, self._states = firsts, states

    def states(self) -> list[InFlightState]:
        """Return the states of the runs in order, one if the whole batch has the same; the list must not be changed."""
        return self._states
