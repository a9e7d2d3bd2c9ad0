"""Share partition between clock and persister: lock timeouts, reported failures, and closed instances."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.share_partitions.acknowledgement import ACCEPT, RELEASE, ShareAcknowledgementBatch
from ottla.broker.share_partitions.acquisition import AcquiredRange, AcquireRequest, FetchedOffsets
from ottla.broker.share_partitions.share_partition import SharePartitionLimits
from ottla.broker.share_partitions.share_partition_leader import (
    WRITTEN,
    SharePartitionDependencies,
    SharePartitionLeader,
    to_consumer_error,
)
from ottla.broker.share_state.share_group_offsets import ShareGroupOffset, SharePartitionKey
from ottla.broker.share_state.state_batches import PersisterStateBatch
from ottla.broker.tests.handler_fixture import run_virtual
from ottla.wire.errors import ErrorCode, ProtocolError

LOCK_MS = 30_000
KEY = SharePartitionKey("g", b"t" * 16, 0)


class FakeTimers:
    """Timers by key, like those of the node."""

    def __init__(self, env: SharePartitionLeaderFixture) -> None:
        self._env = env
        self.armed: dict[object, tuple[int, Callable[[], None]]] = {}

    def arm(self, key: object, at_ms: int, fire: Callable[[], None]) -> None:
        self.armed[key] = self._env.ms + max(at_ms - self._env.now_ms(), 0), fire

    def cancel(self, key: object) -> None:
        self.armed.pop(key, None)

    def wait(self, ms: int) -> None:
        end = self._env.ms + ms
        while due := sorted(((at, key) for key, (at, _) in self.armed.items() if at <= end), key=lambda one: one[0]):
            at, key = due[0]
            self._env.ms = max(self._env.ms, at)
            self.armed.pop(key)[1]()
        self._env.ms = end


class SharePartitionLeaderFixture:
    """Dependencies of share partitions; ``keeps`` is the persister's result of a write."""

    def __init__(self, *stored: PersisterStateBatch, start: int = 0) -> None:
        self.ms = 1_000_000
        self.ahead_ms = 500_000_000
        """How far the wall clock is ahead of the one that is never set."""
        self.stored, self.start_offset, self.deliveries = stored, start, 5
        self.reads: Exception | None = None
        """What the persister refuses to read with."""
        self.begins: Exception = OSError("the disk is gone")
        """What keeps one that was never read from beginning somewhere."""
        self.timers = FakeTimers(self)
        self.keeps: Callable[[], Awaitable[None]] | None = None
        self.writes: list[tuple[PersisterStateBatch, ...]] = []
        self.requested: list[str] = []
        """What the persister was called for, in that order."""
        self.woken: list[object] = []
        self.gone: list[SharePartitionLeader] = []
        self.failed: list[object] = []

    def now_ms(self) -> int:
        return self.ms + self.ahead_ms

    def monotonic_ms(self) -> float:
        return float(self.ms)

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Awaitable[ShareGroupOffset]:
        self.requested.append("read")
        return self._read(leader_epoch)

    async def _read(self, leader_epoch: int) -> ShareGroupOffset:
        if self.reads is not None:
            raise self.reads
        return ShareGroupOffset(0, 0, leader_epoch, self.start_offset, 0, self.stored)

    def write(self, *batches: Any) -> Awaitable[None]:
        self.requested.append("write")
        return self._write(*batches)

    async def _write(self, *batches: Any) -> None:
        self.writes.append(batches[-1])
        if self.keeps is not None:
            await self.keeps()

    async def run(self, scenario: Callable[[SharePartitionLeaderFixture], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            self.start = nursery.start_soon
            await scenario(self)
            nursery.cancel_scope.cancel()

    def shared(self, epoch: int = 1) -> SharePartitionLeader:
        rules: Any = SimpleNamespace(
            limits=lambda group: SharePartitionLimits(self.deliveries, lock_duration_ms=LOCK_MS),
            start_offset=self._first_start,
        )
        replica: Any = SimpleNamespace(leader_epoch=epoch, log="log")
        dependencies = SharePartitionDependencies(
            *(self, self.timers, self, rules, self.start),  # type: ignore[arg-type]
            *(self.woken.append, self._gone, lambda error, log: self.failed.append(log)),
        )
        return SharePartitionLeader(dependencies, KEY, replica)

    def _first_start(self, group: str, replica: object) -> int:
        raise self.begins

    def _gone(self, shared: SharePartitionLeader) -> None:
        self.gone.append(shared)
        shared.close()

    async def served(self, epoch: int = 1) -> SharePartitionLeader:
        shared = self.shared(epoch)
        await trio.testing.wait_all_tasks_blocked()
        return shared


def acquire(shared: SharePartitionLeader, first: int, last: int, member: str = "m") -> list[AcquiredRange]:
    return shared.acquire_records(AcquireRequest(member, 100, 100), FetchedOffsets(first, [(first, last)]))


def acknowledge(shared: SharePartitionLeader, first: int, last: int, kind: int = ACCEPT, member: str = "m") -> Any:
    return shared.acknowledge(member, [ShareAcknowledgementBatch(first, last, [kind])])


def over(
    scenario: Callable[[SharePartitionLeaderFixture], Awaitable[None]], *stored: PersisterStateBatch, start: int = 0
) -> SharePartitionLeaderFixture:
    fixture = SharePartitionLeaderFixture(*stored, start=start)
    run_virtual(lambda: fixture.run(scenario))
    return fixture


def test_close_writes_released_records_before_successor_reads() -> None:
    """Tasks run in any order: a successor that read first would miss the deliveries before it."""

    async def scenario(fixture: SharePartitionLeaderFixture) -> None:
        shared = await fixture.served()
        acquire(shared, 0, 0)
        fixture.requested.clear()
        shared.release("m")
        shared.close()
        fixture.shared()
        assert fixture.requested == ["write", "read"], "and nobody has run yet"

    run_virtual(lambda: SharePartitionLeaderFixture().run(scenario))


def test_failed_write_releases_records_at_lock_timeout() -> None:
    async def scenario(fixture: SharePartitionLeaderFixture) -> None:
        shared, go = await fixture.served(), trio.Event()

        async def fails() -> None:
            await go.wait()
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        acquire(shared, 0, 4)
        fixture.timers.wait(5_000)
        acquire(shared, 5, 9)
        fixture.keeps = fails
        acknowledge(shared, 5, 9)
        await trio.testing.wait_all_tasks_blocked()
        fixture.timers.wait(26_000)  # the lock of 0 to 4 has expired; pending records have no visible lock
        go.set()
        await trio.testing.wait_all_tasks_blocked()
        fixture.keeps = None
        assert shared.share_partition is not None
        assert [batch.states()[0].member_id for batch in shared.share_partition] == ["", "m"]
        fixture.timers.wait(5_000)
        assert [batch.states()[0].member_id for batch in shared.share_partition] == ["", ""]

    over(scenario)


@pytest.mark.parametrize("jump_ms", [-600_000, 600_000])
def test_lock_timeout_uses_monotonic_clock(jump_ms: int) -> None:
    async def scenario(fixture: SharePartitionLeaderFixture) -> None:
        shared = await fixture.served()
        acquire(shared, 0, 4)
        fixture.ahead_ms += jump_ms
        fixture.timers.wait(LOCK_MS // 2)
        acquire(shared, 5, 9)
        assert shared.next_fetch_offset() == 10
        fixture.timers.wait(LOCK_MS // 2)
        assert shared.next_fetch_offset() == 0
        acquire(shared, 0, 4)
        fixture.timers.wait(LOCK_MS // 2)
        assert shared.next_fetch_offset() == 5

    over(scenario)


def test_closed_share_partition_leaves_its_successors_timer_alone() -> None:
    async def scenario(fixture: SharePartitionLeaderFixture) -> None:
        old, go = await fixture.served(1), trio.Event()

        async def fenced() -> None:
            await go.wait()
            raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH)

        acquire(old, 0, 4)
        fixture.keeps = fenced
        pending = acknowledge(old, 0, 4)
        await trio.testing.wait_all_tasks_blocked()
        old.close()
        new = await fixture.served(2)
        fixture.keeps = None
        acquire(new, 0, 4, "n")
        go.set()
        await trio.testing.wait_all_tasks_blocked()
        assert pending.answer.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert new.next_fetch_offset() == 5
        fixture.timers.wait(LOCK_MS)
        assert new.next_fetch_offset() == 0, "the lock was looked at"

    over(scenario)


def test_start_offset_advance_wakes_delayed_fetches() -> None:
    async def scenario(fixture: SharePartitionLeaderFixture) -> None:
        shared, go = await fixture.served(), trio.Event()
        fixture.keeps, fixture.deliveries = go.wait, 1
        assert shared.next_fetch_offset() == 0
        acquire(shared, 0, 4)
        fixture.timers.wait(LOCK_MS)
        await trio.testing.wait_all_tasks_blocked()
        fixture.woken.clear()
        go.set()
        await trio.testing.wait_all_tasks_blocked()
        assert fixture.woken == [shared.purgatory_key]

    over(scenario)


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ((PersisterStateBatch(3, 2, 1, 0),), "ends before it begins"),
        ((PersisterStateBatch(0, 2, 1, 77),), "no such state"),
        ((PersisterStateBatch(0, 2, 1, 1),), "acquired is never stored"),
        ((PersisterStateBatch(0, 1 << 40, 1, 0),), "no batch holds as many, and no memory a state for each"),
    ],
)
def test_invalid_stored_state_fails_only_the_share_partition(stored: tuple[PersisterStateBatch, ...], why: str) -> None:
    async def scenario(fixture: SharePartitionLeaderFixture) -> None:
        shared = await fixture.served()
        assert shared.load_error is not None, why
        assert shared.load_error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert fixture.gone == [shared]

    over(scenario, *stored)


def test_disk_error_at_first_read_reports_log_directory() -> None:
    async def scenario(fixture: SharePartitionLeaderFixture) -> None:
        shared = await fixture.served()
        assert shared.load_error is not None
        assert (shared.load_error.code, fixture.failed) == (ErrorCode.KAFKA_STORAGE_ERROR, ["log"])

    over(scenario, start=-1)


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.CORRUPT_MESSAGE])
def test_start_offset_lookup_error_is_returned_unchanged(code: ErrorCode) -> None:
    """As Kafka's ``ShareFetchUtils.offsetForTimestamp``: with a duration there may be no record of that time yet."""

    async def scenario(fixture: SharePartitionLeaderFixture) -> None:
        fixture.begins = ProtocolError(code, "why")
        shared = await fixture.served()
        assert shared.load_error is not None
        assert (shared.load_error.code, shared.load_error.message) == (code, "why")
        assert fixture.gone == [shared], "it is looked for anew"

    over(scenario, start=-1)


def test_persister_error_at_load_is_mapped_to_consumer_error() -> None:
    async def scenario(fixture: SharePartitionLeaderFixture) -> None:
        fixture.reads = ProtocolError(ErrorCode.NOT_COORDINATOR, "why")
        shared = await fixture.served()
        assert shared.load_error is not None
        assert (shared.load_error.code, shared.load_error.message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "why")

    over(scenario)


def test_closed_share_partition_refuses_requests_and_writes_none() -> None:
    async def scenario(fixture: SharePartitionLeaderFixture) -> None:
        shared = await fixture.served()
        acquire(shared, 0, 4)
        shared.close()
        assert shared.next_fetch_offset() is None
        assert acknowledge(shared, 0, 4).answer.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        shared.release("m")
        fixture.timers.wait(LOCK_MS)
        await trio.testing.wait_all_tasks_blocked()
        assert (fixture.writes, fixture.timers.armed) == ([], {})

    over(scenario)


def test_release_writes_available_state_and_wakes_delayed_fetches() -> None:
    async def scenario(fixture: SharePartitionLeaderFixture) -> None:
        shared = await fixture.served()
        acquire(shared, 0, 4)
        acquire(shared, 5, 9, "n")
        shared.release("m")
        await trio.testing.wait_all_tasks_blocked()
        assert fixture.writes == [(PersisterStateBatch(0, 4, 1, 0),)]
        assert shared.next_fetch_offset() == 0
        pending = acknowledge(shared, 5, 9, RELEASE, "n")
        await trio.testing.wait_all_tasks_blocked()
        assert pending.answer is WRITTEN
        assert shared.purgatory_key in fixture.woken

    over(scenario)


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_persister_error_codes_are_mapped_for_consumers(batches: ErrorCode, expected: ErrorCode) -> None:
    assert to_consumer_error(ProtocolError(batches)).code is expected


def test_first_new_offset_is_the_first_offset_never_acquired() -> None:
    async def scenario(fixture: SharePartitionLeaderFixture) -> None:
        shared = await fixture.served()
        assert shared.first_new_offset == 0, "nothing is in flight"
        acquire(shared, 0, 4)
        assert shared.first_new_offset == 5
        acknowledge(shared, 0, 4, ACCEPT)
        await trio.testing.wait_all_tasks_blocked()
        assert shared.first_new_offset == 5, "all is final"
        acquire(shared, 5, 9)
        assert shared.share_partition is not None
        shared.share_partition.update_log_start_offset(20)
        assert shared.first_new_offset == 20, "records in flight were deleted"

    over(scenario)
