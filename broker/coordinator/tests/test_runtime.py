"""Coordinator runtime: elections, resignations and loading of logs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.coordinator import runtime
from ottla.broker.coordinator.events import RequestDisconnected, ShardLoaded, TimerExpired
from ottla.broker.coordinator.shard import CoordinatorState
from ottla.broker.tests.coordinator_runtime_fixture import (
    E,
    FailingReplica,
    ParkRequest,
    PutAndCount,
    PutPairs,
    PutWithResult,
    RegisterRuntime,
    code_of,
    start_leading,
    with_runtime,
)
from ottla.controller.metadata.image import PartitionRegistration
from ottla.log.log_validator import AppendOrigin
from ottla.wire.record_batch.records import NewRecord, build_batch

# ---------------------------------------------------------------------- leadership


def test_resignation_answers_parked_and_pending_requests_not_coordinator() -> None:
    fixture = start_leading(RegisterRuntime())
    parked, held = fixture.runtime.submit_to_partition(0, ParkRequest), fixture.put(("a", "1"))
    promised = fixture.runtime.submit_to_partition(0, lambda t: PutWithResult(t, [("b", "1")]))
    fixture.runtime.on_resignation(fixture.replica)
    assert parked.answer == ("unloaded", E.NOT_COORDINATOR)
    assert code_of(held) is E.NOT_COORDINATOR
    assert promised.answer == ("settled", E.NOT_COORDINATOR)
    assert code_of(fixture.put(("c", "1"))) is E.NOT_COORDINATOR
    fixture.commit()
    fixture.runtime.on_resignation(fixture.replica)


def test_election_in_new_epoch_of_same_leader_keeps_shard() -> None:
    fixture = start_leading(RegisterRuntime())
    parked = fixture.runtime.submit_to_partition(0, ParkRequest)
    fixture.runtime.on_election(fixture.replica)
    assert parked.answer is None
    assert len(fixture.machines) == 1


def test_election_in_new_epoch_answers_requests_committed_by_smaller_isr() -> None:
    fixture = start_leading(RegisterRuntime())
    held = fixture.put(("a", "1"))
    assert held.answer is None
    fixture.replica.apply_partition_state(
        1, PartitionRegistration((1,), (1,), 1, fixture.replica.leader_epoch + 1, 9), fixture.env.now_ms()
    )
    fixture.replica.recover_high_watermark(fixture.env.now_ms())
    fixture.runtime.on_election(fixture.replica)
    assert held.answer == "put"


def test_election_of_other_log_of_same_partition_replaces_shard() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))
    parked = fixture.runtime.submit_to_partition(0, ParkRequest)
    old = fixture.replica
    fixture.runtime.on_election(FailingReplica(old, OSError()))  # type: ignore[arg-type]
    assert parked.answer == ("unloaded", E.NOT_COORDINATOR)
    fixture.runtime.on_resignation(old)
    assert fixture.put().answer == "put", "resigning the old one does not touch the new"


def test_submit_without_election_returns_not_coordinator() -> None:
    fixture = RegisterRuntime()
    assert code_of(fixture.put()) is E.NOT_COORDINATOR
    start_leading(fixture).replica.resign()
    assert code_of(fixture.put()) is E.NOT_COORDINATOR


def test_election_of_other_topics_is_ignored() -> None:
    fixture = RegisterRuntime()
    fixture.runtime.on_election(fixture.fixture.hosted.host("other"))
    assert list(fixture.runtime) == []


def test_shards_are_listed_by_partition() -> None:
    fixture = RegisterRuntime(partitions=3)
    for number in (2, 0, 1):
        fixture.runtime.on_election(fixture.fixture.hosted.replicas["state", number])
    assert [shard.replica.partition for shard in fixture.runtime] == [0, 1, 2]


def test_disconnect_is_reported_to_machine_only_for_unanswered_requests() -> None:
    fixture = start_leading(RegisterRuntime())
    parked, answered = fixture.runtime.submit_to_partition(0, ParkRequest), fixture.put()
    fixture.runtime.on_disconnect("k", answered)
    assert not any(isinstance(e, RequestDisconnected) for e in fixture.machine.received)
    fixture.runtime.on_disconnect("k", parked)
    assert fixture.machine.received[-1] == RequestDisconnected("k", parked)
    fixture.runtime.on_resignation(fixture.replica)
    count = len(fixture.machine.received)
    fixture.runtime.on_disconnect("k", parked)
    assert len(fixture.machine.received) == count


# ---------------------------------------------------------------------- the high watermark


@pytest.mark.parametrize("requested", [True, False])
def test_append_advancing_high_watermark_completes_earlier_requests_first(*, requested: bool) -> None:
    fixture = start_leading(RegisterRuntime())
    replica, now_ms = fixture.replica, fixture.env.now_ms()
    replica.apply_partition_state(1, PartitionRegistration((1, 2), (1,), 1, replica.leader_epoch, 9), now_ms)
    follower = replica.state.followers[2]
    follower.caught_up_ms, follower.end_offset = now_ms, 0  # outside the ISR, and waited for as it has almost caught up
    first = fixture.put(("a", "1"))
    assert first.answer is None
    replica._isr = replica._isr._replace(is_eligible=lambda broker, epoch: False)
    if requested:
        assert fixture.put(("b", "2")).answer == "put"
    else:
        fixture.runtime.submit_to_partition(0, lambda t: PutAndCount(t, [("b", "2")]))
    assert first.answer == "put", "in the order they were asked in, and not after the write timeout"


def test_commit_completes_many_pending_writes() -> None:
    fixture = start_leading(RegisterRuntime())
    started = [fixture.runtime.submit_to_partition(0, lambda t: PutWithResult(t, [("a", "1")])) for _ in range(1000)]
    fixture.commit()
    assert {pending.answer for pending in started} == {("settled", E.NONE)}


def test_append_committed_in_part_completes_requests_up_to_high_watermark() -> None:
    fixture = start_leading(RegisterRuntime())
    first = fixture.put(("a", "1"))
    real = fixture.replica

    class Moving(FailingReplica):
        def append(self, *args: object, **more: object) -> object:
            done = real.append(*args)
            real.log.set_high_watermark(1)
            return done

    fixture.shard.replica = Moving(real, OSError())  # type: ignore[assignment]
    second = fixture.put(("b", "2"))
    assert (first.answer, second.answer) == ("put", None)


# ---------------------------------------------------------------------- loading


def test_load_replays_log_to_its_end_before_serving_requests() -> None:
    fixture = RegisterRuntime(followed=False)
    fixture.write(*(b"k%d" % n for n in range(5)), b"unknown")
    fixture.write(b"k3", value=None)
    start_leading(fixture)

    async def scenario() -> None:
        assert code_of(fixture.put()) is E.COORDINATOR_LOAD_IN_PROGRESS
        fixture.runtime.submit_to_all("an event for all")
        await trio.testing.wait_all_tasks_blocked()
        assert fixture.machine.values == {"k0": "v", "k1": "v", "k2": "v", "k3": None, "k4": "v"}
        assert fixture.machine.received == [ShardLoaded(), "an event for all"]
        assert fixture.put(("new", "1")).answer == "put"

    with_runtime(fixture, scenario)


def test_load_replays_uncommitted_records_and_reads_wait_for_their_commit() -> None:
    fixture = RegisterRuntime()
    fixture.write(b"k")
    start_leading(fixture)

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        look = fixture.put()
        assert look.answer is None
        fixture.commit()
        assert look.answer == "put"

    with_runtime(fixture, scenario)


@pytest.mark.parametrize("sizes", [(1, 40), (40, 1)])
def test_load_yields_to_event_loop_between_slices(sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "REPLAY_SLICE_BYTES", 1000)
    fixture = RegisterRuntime(followed=False)
    key, value = sizes
    records = [NewRecord(b"%d" % n + b"k" * key, bytes(value), 1) for n in range(100, 200)]
    fixture.replica.append(bytearray(build_batch(records)), 1, AppendOrigin.COORDINATOR)
    fixture.write(*(b"one%d" % n for n in range(100)))
    start_leading(fixture)
    seen: list[int] = []

    async def scenario() -> None:
        while fixture.shard_state() is CoordinatorState.LOADING:
            seen.append(len(fixture.machine.values))
            await trio.lowlevel.checkpoint()
        assert len(fixture.machine.values) == 200

    with_runtime(fixture, scenario)
    steps = [b - a for a, b in itertools.pairwise(seen)]
    assert max(steps) <= 30, "a hundred bytes a record: ten to a slice, and seldom two or three slices at once"
    assert 12 <= len(seen) <= 80


def test_load_reads_batches_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "READ_BYTES", 700)
    fixture = RegisterRuntime(followed=False)
    fixture.write(*(b"k%d" % n for n in range(50)))
    start_leading(fixture)
    shard = next(iter(fixture.runtime))
    sizes = []
    at = 0
    while batches := fixture.runtime._read(shard, at):
        sizes.append(sum(len(raw) for _, raw in batches))
        assert batches[0][0].base_offset == at
        at = batches[-1][0].next_offset
    assert at == 50
    assert all(700 <= size < 800 for size in sizes[:-1])


def test_shard_loaded_event_runs_in_slices() -> None:
    fixture = RegisterRuntime(followed=False)
    fixture.slow_start = 5
    fixture.write(b"k")
    start_leading(fixture)

    async def scenario() -> None:
        turns = 0
        while fixture.shard_state() is CoordinatorState.LOADING:
            turns += 1
            await trio.lowlevel.checkpoint()
        assert turns >= 5
        await trio.sleep(1)
        assert sum(isinstance(e, TimerExpired) for e in fixture.machine.received) == 5

    with_runtime(fixture, scenario)


@pytest.mark.parametrize("key", [b"bad", None])
def test_undecodable_record_fails_only_its_shard(key: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    fixture = RegisterRuntime(followed=False, partitions=2)
    fixture.write(b"k", key, b"never")
    start_leading(fixture)
    fixture.runtime.on_election(fixture.fixture.hosted.replicas["state", 1])

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        assert code_of(fixture.put()) is E.NOT_COORDINATOR
        assert fixture.shard_state() is CoordinatorState.FAILED
        assert fixture.runtime.submit_to_partition(1, lambda t: PutPairs(t, [])).answer == "put"
        fixture.runtime.submit_to_all("event")
        assert "event" not in fixture.machines[0].received
        fixture.runtime.on_resignation(fixture.replica)

    with_runtime(fixture, scenario)
    assert sum("Failed to load metadata from state-0" in record.message for record in caplog.records) == 1


def test_failed_shard_is_loaded_again_at_next_election() -> None:
    fixture = RegisterRuntime(followed=False)
    fixture.write(b"bad")
    start_leading(fixture)

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        fixture.runtime.on_election(fixture.replica)
        assert fixture.shard_state() is CoordinatorState.LOADING
        await trio.testing.wait_all_tasks_blocked()
        assert fixture.shard_state() is CoordinatorState.FAILED

    with_runtime(fixture, scenario)


class _UnreadableReplica:
    """Replica that fails to be read a given number of times."""

    def __init__(self, real: Any, *errors: OSError) -> None:
        self._real = real
        self.errors = list(errors)
        self.log = self.segments = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real if hasattr(type(self._real), name) or name in ("topic",) else self._real.log, name)

    @property
    def partition(self) -> int:
        return 0

    is_leader = True

    def batches(self, at: int) -> Iterator[Any]:
        if self.errors:
            raise self.errors.pop(0)
        return self._real.log.segments.batches(at)  # type: ignore[no-any-return]


def test_load_read_error_for_want_of_descriptors_is_retried() -> None:
    fixture = RegisterRuntime(followed=False)
    fixture.write(b"k")
    fixture.runtime.on_election(_UnreadableReplica(fixture.replica, OSError(24, "too many"), OSError(24, "too many")))  # type: ignore[arg-type]

    async def scenario() -> None:
        await trio.sleep(runtime.READ_RETRY_S * 1.5)
        assert fixture.shard_state() is CoordinatorState.LOADING
        await trio.sleep(runtime.READ_RETRY_S)
        assert fixture.machine.values == {"k": "v"}

    with_runtime(fixture, scenario)
    assert len(fixture.failures) == 2


def test_load_read_error_fails_shard_and_reports_log_directory() -> None:
    fixture = RegisterRuntime(followed=False)
    fixture.write(b"k")
    fixture.runtime.on_election(_UnreadableReplica(fixture.replica, OSError(5, "gone")))  # type: ignore[arg-type]

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        assert fixture.shard_state() is CoordinatorState.FAILED
        assert len(fixture.failures) == 1

    with_runtime(fixture, scenario)


def test_resignation_during_load_stops_it_and_next_election_loads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "REPLAY_SLICE_BYTES", 100)
    fixture = RegisterRuntime(followed=False)
    fixture.write(*(b"k%d" % n for n in range(50)))
    start_leading(fixture)

    async def scenario() -> None:
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        fixture.runtime.submit_to_all("for later")
        fixture.runtime.on_resignation(fixture.replica)
        await trio.testing.wait_all_tasks_blocked()
        assert len(fixture.machine.values) < 50
        assert not any(isinstance(e, ShardLoaded) for e in fixture.machine.received)
        assert code_of(fixture.put()) is E.NOT_COORDINATOR
        fixture.runtime.on_election(fixture.replica)
        await trio.testing.wait_all_tasks_blocked()
        assert len(fixture.machine.values) == 50

    with_runtime(fixture, scenario)
