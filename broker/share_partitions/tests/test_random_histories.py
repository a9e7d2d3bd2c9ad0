"""Random histories of a share partition: its runs equal a state kept for each record."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from ottla.broker.share_partitions import acknowledgement
from ottla.broker.share_partitions.acquisition import AcquireRequest, FetchedOffsets, acquire_records
from ottla.broker.share_partitions.share_partition import SharePartition, SharePartitionLimits
from ottla.broker.share_state.state_batches import PersisterStateBatch
from ottla.wire.errors import ErrorCode, ProtocolError

FREE, HELD, DONE, GONE = 0, 1, 2, 4
BECOMES = {
    acknowledgement.GAP: GONE,
    acknowledgement.ACCEPT: DONE,
    acknowledgement.RELEASE: FREE,
    acknowledgement.REJECT: GONE,
}
Acknowledgements = list[acknowledgement.ShareAcknowledgementBatch]


@dataclass
class PlainRecordState:
    """State of one record."""

    state: int = FREE
    count: int = 0
    member: str = ""
    until: int | None = None
    before: tuple[int, str] | None = None
    """State before the change that is being written."""

    @property
    def is_final(self) -> bool:
        return self.before is None and self.state in (DONE, GONE)

    def is_of(self, member: str) -> bool:
        return self.state == HELD and self.member == member

    def let_go(self, state: int, limit: int) -> None:
        self.state, self.member = GONE if state == FREE and self.count >= limit else state, ""

    def complete(self, now: int, limit: int, *, written: bool) -> None:
        assert self.before is not None
        (state, member), self.before = self.before, None
        if written:
            self.until = None
        elif self.until is not None and self.until <= now:
            self.let_go(FREE, limit)
            self.until = None
        else:
            self.state, self.member = state, member


class PlainSharePartition:
    """Share partition with a state for each record from the start offset on."""

    def __init__(self, limits: SharePartitionLimits) -> None:
        self.limits = limits
        self.records: dict[int, PlainRecordState] = {}
        self.end = 0
        """Behind the last record that was ever in flight."""

    def move_on(self) -> None:
        for offset in sorted(self.records):
            if not self.records[offset].is_final:
                break
            del self.records[offset]

    def begin(self, offset: int, state: int) -> int:
        record = self.records[offset]
        record.before = record.state, record.member
        record.let_go(state, self.limits.max_delivery_count)
        return offset

    def acknowledge(self, member: str, batches: Acknowledgements, now: int) -> list[int] | ErrorCode:
        """Return the pending changes, or the error code of the refusal."""
        pending: list[int] = []
        for one in batches:
            code = self._acknowledge_batch(member, one, pending, now)
            if code is not None:
                self.complete(pending, now, written=False)
                return code
        return pending

    def _acknowledge_batch(
        self, member: str, one: acknowledgement.ShareAcknowledgementBatch, pending: list[int], now: int
    ) -> ErrorCode | None:
        if one.last_offset >= self.end:
            return ErrorCode.INVALID_REQUEST
        for number, offset in enumerate(range(one.first_offset, one.last_offset + 1)):
            if not self.records[offset].is_of(member):
                return ErrorCode.INVALID_RECORD_STATE
            kind = one.acknowledge_types[number % len(one.acknowledge_types)]
            if kind == acknowledgement.RENEW:
                self.records[offset].until = now + self.limits.lock_duration_ms
            else:
                pending.append(self.begin(offset, BECOMES[kind]))
        return None

    def release(self, member: str) -> list[int]:
        return [self.begin(offset, FREE) for offset, record in self.records.items() if record.is_of(member)]

    def complete(self, pending: list[int], now: int, *, written: bool) -> None:
        for offset in pending:
            self.records[offset].complete(now, self.limits.max_delivery_count, written=written)
        if pending and (written or self._is_stuck()):
            self.move_on()

    def _is_stuck(self) -> bool:
        """Return True when the window is full and no member can acknowledge any of it."""
        over = all(record.state in (DONE, GONE) and record.before is None for record in self.records.values())
        return over and len(self.records) >= self.limits.max_record_locks

    def expire(self, now: int) -> list[int]:
        over = [
            offset
            for offset, record in self.records.items()
            if record.state == HELD and record.until is not None and record.until <= now
        ]
        for offset in over:
            self.records[offset].let_go(FREE, self.limits.max_delivery_count)
            self.records[offset].until = None
        return over

    def reported(self, offsets: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Return the state batches to write for these changes."""
        return {offset: (self.records[offset].count, self.records[offset].state) for offset in offsets}


def by_record(batches: Iterable[PersisterStateBatch]) -> dict[int, tuple[int, int]]:
    return {at: (count, state) for first, last, count, state in batches for at in range(first, last + 1)}


class RandomSharePartitionHistory:
    """Applies each operation to both models and compares them after it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        limits = SharePartitionLimits(self.rng.choice([1, 2, 3, 5]), self.rng.choice([8, 20, 40]), 100)
        self.share, self.model = SharePartition(0, limits=limits), PlainSharePartition(limits)
        self.log: list[tuple[int, int]] = []
        self.now = 0
        self.pending: list[tuple[acknowledgement.RecordStateChanges, list[int]]] = []

    def read(self, offset: int) -> list[tuple[int, int]]:
        """Return some batches of the log, the first around this offset."""
        while not self.log or self.log[-1][0] < offset + 60:
            first = self.log[-1][1] + 1 if self.log else 0
            self.log.append((first, first + self.rng.randrange(14)))
        return [row for row in self.log if row[1] >= offset][: self.rng.randint(1, 4)]

    def acquire(self) -> None:
        rng, share, model = self.rng, self.share, self.model
        share.advance_start_offset()  # records given up because their write failed are passed no sooner
        model.move_on()
        at, wanted = share.next_fetch_offset(), share.can_acquire()
        request = AcquireRequest(
            rng.choice("ab"), rng.choice([1, 3, 10, 50]), rng.choice([1, 5, 100]), rng.random() < 0.5
        )
        result = acquire_records(share, request, FetchedOffsets(at, self.read(at)), self.now)
        assert bool(result) == wanted, "whenever something may go out, something does"
        new = range(model.end, share.end_offset + 1)
        model.records |= {offset: PlainRecordState() for offset in new}
        model.end = max(model.end, share.end_offset + 1)
        for first, last, count in result:
            for record in (model.records[offset] for offset in range(first, last + 1)):
                assert (record.state, record.before, record.count + 1) == (FREE, None, count)
                record.state, record.count, record.member = HELD, count, request.member_id
                record.until = self.now + model.limits.lock_duration_ms
        if request.is_record_limit_strict:
            assert sum(last - first + 1 for first, last, _ in result) <= request.max_records
        else:
            assert all(model.records[offset].count for offset in new), "whole batches"

    def received(self, member: str) -> acknowledgement.ShareAcknowledgementBatch:
        """Return an acknowledgement, sometimes of records of another member, of free records or outside the window."""
        rng, records = self.rng, self.model.records
        held = [offset for offset, record in records.items() if record.is_of(member)]
        first = rng.choice(held if held and rng.random() < 0.9 else list(records))
        last = min(first + rng.choice([0, 1, 3, 9]), self.model.end)
        while last > first and (last not in records or not records[last].is_of(member)) and rng.random() < 0.9:
            last -= 1
        kinds = [
            acknowledgement.GAP,
            acknowledgement.ACCEPT,
            acknowledgement.RELEASE,
            acknowledgement.RELEASE,
            acknowledgement.REJECT,
            acknowledgement.RENEW,
            acknowledgement.RENEW,
        ]
        return acknowledgement.ShareAcknowledgementBatch(
            first, last, rng.choices(kinds, k=rng.choice([1, last - first + 1]))
        )

    def acknowledge(self) -> None:
        if not self.model.records:
            return
        member = self.rng.choice("ab")
        batches = [self.received(member) for _ in range(self.rng.choice([1, 1, 2]))]
        expected = self.model.acknowledge(member, batches, self.now)
        if isinstance(expected, ErrorCode):
            with pytest.raises(ProtocolError) as caught:
                acknowledgement.acknowledge_records(self.share, member, batches, self.now)
            assert caught.value.code is expected
        else:
            self._began(acknowledgement.acknowledge_records(self.share, member, batches, self.now), expected)

    def release(self) -> None:
        member = self.rng.choice("ab")
        self._began(acknowledgement.release_acquired_records(self.share, member), self.model.release(member))

    def _began(self, changes: acknowledgement.RecordStateChanges, offsets: list[int]) -> None:
        assert by_record(changes.state_batches()) == self.model.reported(offsets)
        self.pending.append((changes, offsets))
        if self.rng.random() < 0.6:
            self.complete()

    def complete(self) -> None:
        if self.pending:
            changes, offsets = self.pending.pop(self.rng.randrange(len(self.pending)))
            written = self.rng.random() < 0.7
            acknowledgement.complete_changes(self.share, changes, self.now, written=written)
            self.model.complete(offsets, self.now, written=written)

    def expire(self) -> None:
        batches, offsets = acknowledgement.expire_locks(self.share, self.now), self.model.expire(self.now)
        assert by_record(batches) == self.model.reported(offsets)
        self.share.advance_start_offset()
        self.model.move_on()

    def compare(self) -> None:
        share, records = self.share, self.model.records
        runs = [run for batch in share for run in batch.runs(max(share.start_offset, batch.first_offset), 1 << 40)]
        assert [at for run in runs for at in range(run.first_offset, run.last_offset + 1)] == sorted(records)
        for first, last, state in runs:
            kept = (
                int(state.state),
                state.delivery_count,
                state.member_id,
                state.lock_until_ms,
                state.rollback_state is None,
            )
            for offset in range(first, last + 1):
                record = records[offset]
                assert kept == (record.state, record.count, record.member, record.until, record.before is None), offset
        assert share.start_offset == min(records, default=self.model.end)
        assert share.delivery_complete_count == sum(record.state in (DONE, GONE) for record in records.values())
        free = [at for at, record in records.items() if record.state == FREE and record.before is None]
        assert share.next_fetch_offset() == min(free, default=self.model.end)
        assert share.cut_count == sum(batch.cut_count for batch in share)


@pytest.mark.parametrize("seed", range(30))
def test_share_partition_with_runs_equals_state_per_record(seed: int) -> None:
    scenario = RandomSharePartitionHistory(seed)
    steps: list[Callable[[], None]] = [
        scenario.acquire,
        scenario.acknowledge,
        scenario.complete,
        scenario.expire,
        scenario.release,
    ]
    for _ in range(150):
        scenario.now += scenario.rng.randrange(20)
        (step,) = scenario.rng.choices(steps, [40, 45, 5, 6, 2])
        step()
        scenario.compare()
    assert scenario.model.end, "something went out"
