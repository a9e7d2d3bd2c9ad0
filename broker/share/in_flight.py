"""Records on their way to consumers: the state of each, kept by whole batches until one of a batch goes its own way.

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

from collections.abc import Iterator
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
    """The state of one record, or of a batch of them that are all alike."""

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
        """The same for one record of a batch."""
        return InFlight(self.state, self.delivery_count, self.member_id, self.lock_until_ms)

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


class InFlightBatch:
    """Neighbouring records that were acquired together."""

    __slots__ = ("first_offset", "last_offset", "singles", "whole")

    def __init__(self, first_offset: int, last_offset: int, whole: InFlight) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.whole: InFlight | None = whole
        """The state of all its records; None once they have states of their own."""
        self.singles: list[InFlight] = []

    def __len__(self) -> int:
        return self.last_offset - self.first_offset + 1

    def split(self) -> list[InFlight]:
        """Give each record a state of its own."""
        if self.whole is not None:
            whole, self.whole = self.whole, None
            self.singles = [whole.copy() for _ in range(len(self))]
        return self.singles

    def state_at(self, offset: int) -> InFlight:
        """The state of a record."""
        return self.singles[offset - self.first_offset] if self.whole is None else self.whole

    def each(self, first: int, last: int) -> Iterator[tuple[int, InFlight]]:
        """Records with states of their own, of these offsets."""
        begin = max(first, self.first_offset)
        for offset in range(begin, min(last, self.last_offset) + 1):
            yield offset, self.singles[offset - self.first_offset]

    def states(self) -> list[InFlight]:
        """Its states, one or many."""
        return self.singles if self.whole is None else [self.whole]
