"""Records of a share partition that come back: acknowledged, released with their session, or when their lock is over.

What a member says is first *pending*, then written by the persister, then final; where the write fails, or one batch
of a request is refused, everything of that request is as it was. A lock that is over is not taken back: the record may
be delivered again whether or not that could be written.

Source: ``SharePartition.acknowledge``, ``releaseAcquiredRecords``, ``releaseAcquisitionLockOnTimeout`` (apache/kafka
4.3.1), KIP-932, KIP-1222.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ottla.broker.share.batches import StateBatch, joined
from ottla.broker.share.in_flight import InFlight, InFlightBatch, RecordState, Run
from ottla.broker.share.partition import MOST_CUTS, SharePartition
from ottla.wire.errors import ErrorCode, ProtocolError

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
_STATE = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}


class Acknowledgement(NamedTuple):
    """What a member says of some records: one type for all of them, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def type_at(self, offset: int) -> int:
        """What is said of one record."""
        return self.types[offset - self.first_offset] if len(self.types) > 1 else self.types[0]

    def turns(self, first: int, last: int) -> list[int]:
        """Where among some of its records another thing is said than of the one before; the first of them, and the one
        behind them. No more than can be taken, and one.
        """
        if len(self.types) == 1 or first > last:
            return [first, last + 1]
        types = bytes(self.types[first - self.first_offset : last - self.first_offset + 1])
        found = islice(_ALIKE.finditer(types), MOST_CUTS + 2)
        return [*(first + alike.start() for alike in found), last + 1]


_ALIKE = re.compile(b"|".join(b"%c+" % kind for kind in range(5)))


class Change(NamedTuple):
    """Records whose state changes, and what is to be written of it."""

    batch: InFlightBatch
    first_offset: int
    last_offset: int
    state: InFlight
    written: StateBatch

    def runs(self) -> list[Run]:
        """The same records now: they may have been cut, and their batch split, meanwhile."""
        if self.batch.is_run(self.first_offset, self.last_offset):
            return [Run(self.first_offset, self.last_offset, self.state)]
        before = self.state.before
        found = [run for run in self.batch.runs(self.first_offset, self.last_offset) if run.state.before is before]
        return found or [Run(self.first_offset, self.last_offset, self.state)]


@dataclass(slots=True)
class Changes:
    """What is to be written before it holds; `settle` it when that is known."""

    rows: list[Change] = field(default_factory=list)

    def batches(self) -> tuple[StateBatch, ...]:
        """As the persister takes them: neighbours of one fate as one."""
        return joined(row.written for row in self.rows)

    def add(self, batch: InFlightBatch, first: int, last: int, state: InFlight) -> None:
        """Note what has just been changed."""
        written = StateBatch(first, last, state.delivery_count, state.state)
        self.rows.append(Change(batch, first, last, state, written))


def _refused(text: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_RECORD_STATE, text)


def acknowledge(share: SharePartition, member_id: str, said: Sequence[Acknowledgement], now_ms: int) -> Changes:
    """Take a member's word for its records: pending until `settle`; what lies before the start offset is long done.

    Raises:
        ProtocolError: INVALID_RECORD_STATE, INVALID_REQUEST: nothing of it was taken.
    """
    changes = Changes()
    try:
        for one in said:
            if one.last_offset >= share.start_offset:
                for batch in _batches(share, one):
                    _acknowledge(share, member_id, one, batch, changes, now_ms)
    except ProtocolError:
        settle(share, changes, now_ms, written=False)
        raise
    return changes


def _batches(share: SharePartition, one: Acknowledgement) -> list[InFlightBatch]:
    floor = share.floor(one.first_offset)
    if floor is None and one.first_offset < share.start_offset:
        floor = share.floor(share.start_offset)
    if floor is None:
        raise _refused("Batch record not found. The request batch offsets are not found in the cache.")
    found = share.between(floor.first_offset, one.last_offset)
    end = found[-1].last_offset
    if end < one.first_offset or end < one.last_offset:
        which = "first" if end < one.first_offset else "last"
        text = f"Batch record not found. The {which} offset in request is past acquired records."
        raise ProtocolError(ErrorCode.INVALID_REQUEST, text)
    return found


def _acknowledge(
    share: SharePartition,
    member_id: str,
    one: Acknowledgement,
    batch: InFlightBatch,
    changes: Changes,
    now_ms: int,
) -> None:
    if batch.last_offset < share.start_offset:
        return
    if batch.whole is not None:
        _check_whole(batch.whole, member_id)
        inside = batch.first_offset >= one.first_offset and batch.last_offset <= one.last_offset
        if inside and len(one.types) == 1 and not share.begins_inside(batch):
            _say(share, one.types[0], batch, Run(batch.first_offset, batch.last_offset, batch.whole), changes, now_ms)
            return
        if batch.whole.state is not RecordState.ACQUIRED:
            raise _refused("The batch cannot be acknowledged. The subset batch is not in the acquired state.")
        batch.split()
    first, last = max(one.first_offset, share.start_offset, batch.first_offset), min(one.last_offset, batch.last_offset)
    refused = None
    for run in batch.runs(first, last):
        refused = _why_not(run.state, member_id)
        if refused is not None:
            last = run.first_offset - 1  # what is said of those before it is taken, until it is undone
            break
    begins = one.turns(first, last)
    if len(begins) > MOST_CUTS + 2 or (first <= last and not share.cut_at(batch, begins, MOST_CUTS)):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Batches of the partition are cut more than {MOST_CUTS} times.")
    for run in batch.runs(first, last):
        _say(share, one.type_at(run.first_offset), batch, run, changes, now_ms)
    if refused is not None:
        raise refused


def _why_not(state: InFlight, member_id: str) -> ProtocolError | None:
    if state.state is not RecordState.ACQUIRED:
        return _refused("The offset cannot be acknowledged. The offset is not acquired.")
    if state.before is not None:
        return _refused("The record state is invalid. The acknowledgement of delivery could not be completed.")
    return None if state.member_id == member_id else _refused("Member is not the owner of offset")


def _check_whole(state: InFlight, member_id: str) -> None:
    if not state.member_id:
        raise _refused("The batch cannot be acknowledged. The batch is not in the acquired state.")
    if state.member_id != member_id:
        raise _refused("Member is not the owner of batch record")
    assert state.before is None, "a pending change has no member"


def _say(share: SharePartition, kind: int, batch: InFlightBatch, run: Run, changes: Changes, now_ms: int) -> None:
    first, last, state = run
    if kind == RENEW:
        if not share.limits.renew:
            raise _refused("Renewing acquisition locks is not enabled for the group.")
        state.lock_until_ms = now_ms + share.limits.lock_duration_ms
        return
    if not state.begin(_STATE[kind], share.limits.delivery_count):
        raise _refused("Unable to acknowledge records for the batch")
    changes.add(batch, first, last, state)
    if state.state.is_final:
        share.delivery_complete_count += run.records_count


def release(share: SharePartition, member_id: str) -> Changes:
    """A member is gone: whatever it holds may go to others; pending until `settle`."""
    changes = Changes()
    for batch, (first, last, state) in _taken_back(share, lambda state: _holds(state, member_id)):
        gone = last < share.start_offset
        if state.begin(RecordState.ARCHIVED if gone else RecordState.AVAILABLE, share.limits.delivery_count):
            changes.add(batch, first, last, state)
            if state.state.is_final:
                share.delivery_complete_count += share.open_count(first, last)
    return changes


def _taken_back(share: SharePartition, goes: Callable[[InFlight], bool]) -> Iterator[tuple[InFlightBatch, Run]]:
    """What goes, with its batch: all of it, or runs of its records. One the start offset lies in is cut there: what
    lies before it has another end.
    """
    for batch in share:
        if batch.whole is not None and not goes(batch.whole):
            continue
        if share.begins_inside(batch):
            batch.split()
            share.cut_at(batch, (share.start_offset,))
        for run in batch.runs(batch.first_offset, batch.last_offset):
            if goes(run.state):
                yield batch, run


def _holds(state: InFlight, member_id: str) -> bool:
    return state.state is RecordState.ACQUIRED and state.member_id == member_id


def settle(share: SharePartition, changes: Changes, now_ms: int, *, written: bool) -> bool:
    """The fate of pending changes is known; says whether the start offset moved on."""
    for row in changes.rows:
        for first, last, state in row.runs():
            state.complete(now_ms, written=written)
            if state.state is RecordState.AVAILABLE:
                share.look_again()
            if not written and RecordState(row.written.delivery_state).is_final and not state.state.is_final:
                share.delivery_complete_count -= share.open_count(first, last)
    for batch in {id(row.batch): row.batch for row in changes.rows}.values():
        share.join(batch)
    if not changes.rows:
        return False
    return share.move_on() if written else share.pass_what_was_given_up()


def next_lock_end(share: SharePartition) -> int | None:
    """When the first lock in force is over, by the clock of `acquire`; None where nothing is locked."""
    ends = (state.lock_until_ms for batch in share for state in batch.states() if _is_locked(state))
    return min((end for end in ends if end is not None), default=None)


def _is_locked(state: InFlight) -> bool:
    return state.state is RecordState.ACQUIRED and state.lock_until_ms is not None


def expire(share: SharePartition, now_ms: int) -> list[StateBatch]:
    """Take back what members have held for too long; gives what is to be written of it, then call `move_on`."""
    out: list[StateBatch] = []
    touched: dict[int, InFlightBatch] = {}
    for batch, (first, last, state) in _taken_back(share, lambda state: _is_over(state, now_ms)):
        gone = last < share.start_offset
        state.change(RecordState.ARCHIVED if gone else RecordState.AVAILABLE, share.limits.delivery_count)
        state.lock_until_ms = None
        out.append(StateBatch(first, last, state.delivery_count, state.state))
        if state.state.is_final:
            share.delivery_complete_count += share.open_count(first, last)
        else:
            share.look_again()
        touched[id(batch)] = batch
    for batch in touched.values():
        share.join(batch)
    return out


def _is_over(state: InFlight, now_ms: int) -> bool:
    if not _is_locked(state) or state.before is not None:
        return False
    assert state.lock_until_ms is not None
    return state.lock_until_ms <= now_ms
