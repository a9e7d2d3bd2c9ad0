"""Release of acquired records of a share partition: by acknowledgement, a closed session, or an expired lock.

An acknowledgement is first *pending*, then written by the persister, then complete; if the write fails, or a batch of
the request is invalid, all changes of the request are rolled back, except renewed locks. The release by an expired lock
is not rolled back: the record may be delivered again even if that could not be written.

Source: ``SharePartition.acknowledge``, ``releaseAcquiredRecords``, ``releaseAcquisitionLockOnTimeout`` (apache/kafka
4.3.1), KIP-932, KIP-1222.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ottla.broker.config.limits import MAX_SHARE_BATCH_CUTS
from ottla.broker.share_partitions.in_flight import InFlightBatch, InFlightRun, InFlightState, RecordState
from ottla.broker.share_partitions.share_partition import SharePartition
from ottla.broker.share_state.state_batches import PersisterStateBatch, merge_adjacent
from ottla.wire.errors import ErrorCode, ProtocolError

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
_STATE_BY_ACKNOWLEDGE_TYPE = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}


class ShareAcknowledgementBatch(NamedTuple):
    """Acknowledgement of a range of records: one type for all of them, or one for each; offsets inclusive."""

    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]

    def type_at(self, offset: int) -> int:
        """Return the acknowledge type of the record at an offset: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""
        return (
            self.acknowledge_types[offset - self.first_offset]
            if len(self.acknowledge_types) > 1
            else self.acknowledge_types[0]
        )

    def type_boundaries(self, first: int, last: int) -> list[int]:
        """Return the first offset of each run of equal types from ``first`` to ``last``, and the offset after ``last``.

        The list is longer than `MAX_SHARE_BATCH_CUTS` + 2 if there are too many runs; it then has not all of them.
        """
        if len(self.acknowledge_types) == 1 or first > last:
            return [first, last + 1]
        types = bytes(self.acknowledge_types[first - self.first_offset : last - self.first_offset + 1])
        found = islice(_SAME_TYPE_RUN.finditer(types), MAX_SHARE_BATCH_CUTS + 2)
        return [*(first + alike.start() for alike in found), last + 1]


_SAME_TYPE_RUN = re.compile(b"|".join(b"%c+" % kind for kind in range(5)))


class RecordStateChange(NamedTuple):
    """Pending state change of records ``first_offset`` to ``last_offset`` (inclusive) of a batch.

    ``state_batch``: what the persister must write for it.
    """

    batch: InFlightBatch
    first_offset: int
    last_offset: int
    state: InFlightState
    state_batch: PersisterStateBatch

    def runs(self) -> list[InFlightRun]:
        """Return the runs that have the changed records now: runs and batch may have been split since the change."""
        if self.batch.is_whole_run(self.first_offset, self.last_offset):
            return [InFlightRun(self.first_offset, self.last_offset, self.state)]
        before = self.state.rollback_state
        found = [
            run for run in self.batch.runs(self.first_offset, self.last_offset) if run.state.rollback_state is before
        ]
        return found or [InFlightRun(self.first_offset, self.last_offset, self.state)]


@dataclass(slots=True)
class RecordStateChanges:
    """State changes that the persister must write; `complete_changes` then completes them or rolls them back."""

    changes: list[RecordStateChange] = field(default_factory=list)

    def state_batches(self) -> tuple[PersisterStateBatch, ...]:
        """Return the state batches that the persister must write; adjacent ones with the same state are merged."""
        return merge_adjacent(row.state_batch for row in self.changes)

    def add(self, batch: InFlightBatch, first: int, last: int, state: InFlightState) -> None:
        """Add a change that has been made to records ``first`` to ``last`` (inclusive); ``state``: their new state."""
        written = PersisterStateBatch(first, last, state.delivery_count, state.state)
        self.changes.append(RecordStateChange(batch, first, last, state, written))


def _invalid_record_state(text: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_RECORD_STATE, text)


def acknowledge_records(
    share: SharePartition, member_id: str, batches: Sequence[ShareAcknowledgementBatch], now_ms: int
) -> RecordStateChanges:
    """Change the states of a member's acquired records as acknowledged; return the changes to write.

    They are pending until the caller has written them and calls `complete_changes`. Batches before the start offset are
    ignored, since their records are final or deleted. A renewal only extends the acquisition lock and returns no
    change. ``now_ms``: time of the monotonic clock.

    Raises:
        ProtocolError: INVALID_RECORD_STATE (not acquired by the member), INVALID_REQUEST: all changes are rolled back,
            but renewed locks stay renewed.
    """
    changes = RecordStateChanges()
    try:
        for one in batches:
            if one.last_offset >= share.start_offset:
                for batch in _acknowledged_batches(share, one):
                    _acknowledge_batch(share, member_id, one, batch, changes, now_ms)
    except ProtocolError:
        complete_changes(share, changes, now_ms, written=False)
        raise
    return changes


def _acknowledged_batches(share: SharePartition, one: ShareAcknowledgementBatch) -> list[InFlightBatch]:
    preceding = share.last_batch_at_or_before(one.first_offset)
    if preceding is None and one.first_offset < share.start_offset:
        preceding = share.last_batch_at_or_before(share.start_offset)
    if preceding is None:
        raise _invalid_record_state("Batch record not found. The request batch offsets are not found in the cache.")
    found = share.batches_between(preceding.first_offset, one.last_offset)
    end = found[-1].last_offset
    if end < one.first_offset or end < one.last_offset:
        which = "first" if end < one.first_offset else "last"
        text = f"Batch record not found. The {which} offset in request is past acquired records."
        raise ProtocolError(ErrorCode.INVALID_REQUEST, text)
    return found


def _acknowledge_batch(
    share: SharePartition,
    member_id: str,
    one: ShareAcknowledgementBatch,
    batch: InFlightBatch,
    changes: RecordStateChanges,
    now_ms: int,
) -> None:
    if batch.last_offset < share.start_offset:
        return
    if batch.batch_state is not None:
        _check_batch_state(batch.batch_state, member_id)
        inside = batch.first_offset >= one.first_offset and batch.last_offset <= one.last_offset
        if inside and len(one.acknowledge_types) == 1 and not share.starts_within(batch):
            _apply_acknowledge_type(
                share,
                one.acknowledge_types[0],
                batch,
                InFlightRun(batch.first_offset, batch.last_offset, batch.batch_state),
                changes,
                now_ms,
            )
            return
        if batch.batch_state.state is not RecordState.ACQUIRED:
            raise _invalid_record_state(
                "The batch cannot be acknowledged. The subset batch is not in the acquired state."
            )
        batch.track_offset_states()
    first, last = max(one.first_offset, share.start_offset, batch.first_offset), min(one.last_offset, batch.last_offset)
    refused = None
    for run in batch.runs(first, last):
        refused = _acknowledgement_error(run.state, member_id)
        if refused is not None:
            last = run.first_offset - 1  # earlier records of the batch are changed until the rollback
            break
    begins = one.type_boundaries(first, last)
    if len(begins) > MAX_SHARE_BATCH_CUTS + 2 or (
        first <= last and not share.split_runs_at(batch, begins, MAX_SHARE_BATCH_CUTS)
    ):
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, f"Too many divisions of in-flight batches: limit {MAX_SHARE_BATCH_CUTS}."
        )
    for run in batch.runs(first, last):
        _apply_acknowledge_type(share, one.type_at(run.first_offset), batch, run, changes, now_ms)
    if refused is not None:
        raise refused


def _acknowledgement_error(state: InFlightState, member_id: str) -> ProtocolError | None:
    if state.state is not RecordState.ACQUIRED:
        return _invalid_record_state("The offset cannot be acknowledged. The offset is not acquired.")
    if state.rollback_state is not None:
        return _invalid_record_state(
            "The record state is invalid. The acknowledgement of delivery could not be completed."
        )
    return None if state.member_id == member_id else _invalid_record_state("Member is not the owner of offset")


def _check_batch_state(state: InFlightState, member_id: str) -> None:
    if not state.member_id:
        raise _invalid_record_state("The batch cannot be acknowledged. The batch is not in the acquired state.")
    if state.member_id != member_id:
        raise _invalid_record_state("Member is not the owner of batch record")
    assert state.rollback_state is None, "a pending change has no member"


def _apply_acknowledge_type(
    share: SharePartition, kind: int, batch: InFlightBatch, run: InFlightRun, changes: RecordStateChanges, now_ms: int
) -> None:
    first, last, state = run
    if kind == RENEW:
        if not share.limits.allows_renew:
            raise _invalid_record_state("Renewing acquisition locks is not enabled for the group.")
        state.lock_until_ms = now_ms + share.limits.lock_duration_ms
        return
    if not state.start_state_transition(_STATE_BY_ACKNOWLEDGE_TYPE[kind], share.limits.max_delivery_count):
        raise _invalid_record_state("Unable to acknowledge records for the batch")
    changes.add(batch, first, last, state)
    if state.state.is_final:
        share.delivery_complete_count += run.record_count


def release_acquired_records(share: SharePartition, member_id: str) -> RecordStateChanges:
    """Change all records acquired by a member to available.

    Records at the delivery count limit, or before the start offset, are archived instead.

    Return the changes; they are pending until the caller has written them and calls `complete_changes`.
    """
    changes = RecordStateChanges()
    for batch, (first, last, state) in _split_releasable(share, lambda state: _is_acquired_by(state, member_id)):
        gone = last < share.start_offset
        if state.start_state_transition(
            RecordState.ARCHIVED if gone else RecordState.AVAILABLE, share.limits.max_delivery_count
        ):
            changes.add(batch, first, last, state)
            if state.state.is_final:
                share.delivery_complete_count += share.count_from_start_offset(first, last)
    return changes


def _split_releasable(
    share: SharePartition, goes: Callable[[InFlightState], bool]
) -> Iterator[tuple[InFlightBatch, InFlightRun]]:
    """Yield the runs of in-flight records whose state satisfies ``goes``, each with its batch.

    A batch that contains the start offset is split there, since records before it change to another state.
    """
    for batch in share:
        if batch.batch_state is not None and not goes(batch.batch_state):
            continue
        if share.starts_within(batch):
            batch.track_offset_states()
            share.split_runs_at(batch, (share.start_offset,))
        for run in batch.runs(batch.first_offset, batch.last_offset):
            if goes(run.state):
                yield batch, run


def _is_acquired_by(state: InFlightState, member_id: str) -> bool:
    return state.state is RecordState.ACQUIRED and state.member_id == member_id


def complete_changes(share: SharePartition, changes: RecordStateChanges, now_ms: int, *, written: bool) -> bool:
    """Complete pending changes (``written``) or roll them back; return True if the start offset advanced.

    ``now_ms``: time of the monotonic clock; a rolled-back record whose lock has expired becomes available, or archived
    at the delivery count limit.
    """
    for row in changes.changes:
        for first, last, state in row.runs():
            state.complete_state_transition(now_ms, written=written)
            if state.state is RecordState.AVAILABLE:
                share.mark_available()
            if not written and RecordState(row.state_batch.delivery_state).is_final and not state.state.is_final:
                share.delivery_complete_count -= share.count_from_start_offset(first, last)
    for batch in {id(row.batch): row.batch for row in changes.changes}.values():
        share.merge_equivalent_runs(batch)
    if not changes.changes:
        return False
    return share.advance_start_offset() if written else share.advance_past_archived()


def next_lock_expiry_ms(share: SharePartition) -> int | None:
    """Return the earliest expiry of an acquisition lock (monotonic clock, ms); None without locks."""
    ends = (state.lock_until_ms for batch in share for state in batch.states() if _is_locked(state))
    return min((end for end in ends if end is not None), default=None)


def _is_locked(state: InFlightState) -> bool:
    return state.state is RecordState.ACQUIRED and state.lock_until_ms is not None


def expire_locks(share: SharePartition, now_ms: int) -> list[PersisterStateBatch]:
    """Release the records whose acquisition lock has expired at ``now_ms`` (monotonic clock); return what to write.

    Records with a pending change are left out. The change is final at once, also if the write of the returned state
    batches fails. After the write the caller calls `advance_start_offset`.
    """
    out: list[PersisterStateBatch] = []
    touched: dict[int, InFlightBatch] = {}
    for batch, (first, last, state) in _split_releasable(share, lambda state: _is_lock_expired(state, now_ms)):
        gone = last < share.start_offset
        state.try_update_state(RecordState.ARCHIVED if gone else RecordState.AVAILABLE, share.limits.max_delivery_count)
        state.lock_until_ms = None
        out.append(PersisterStateBatch(first, last, state.delivery_count, state.state))
        if state.state.is_final:
            share.delivery_complete_count += share.count_from_start_offset(first, last)
        else:
            share.mark_available()
        touched[id(batch)] = batch
    for batch in touched.values():
        share.merge_equivalent_runs(batch)
    return out


def _is_lock_expired(state: InFlightState, now_ms: int) -> bool:
    if not _is_locked(state) or state.rollback_state is not None:
        return False
    assert state.lock_until_ms is not None
    return state.lock_until_ms <= now_ms
