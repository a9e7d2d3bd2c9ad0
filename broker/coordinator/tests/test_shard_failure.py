"""Exceptions of a state machine: the shard fails and is loaded again; the node and the other shards go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.coordinator import runtime
from ottla.broker.coordinator.events import ShardLoaded, ShardUnloaded, TimerExpired
from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.coordinator.record_batches import MAX_BATCH_BYTES
from ottla.broker.coordinator.shard import CoordinatorState
from ottla.broker.coordinator.shard_state import MIN_TRACKED_REQUESTS, UnansweredRequests
from ottla.broker.tests.coordinator_runtime_fixture import (
    E,
    ParkRequest,
    PutManyInSlices,
    PutPairs,
    PutWithResult,
    RegisterRuntime,
    RegisterStateMachine,
    SetTimer,
    code_of,
    with_runtime,
)
from ottla.jobs.state_machine import Effects, RequestReply, ScheduleTimer
from ottla.log.log_validator import AppendOrigin
from ottla.wire.errors import WireError
from ottla.wire.record_batch import records
from ottla.wire.record_batch.batch_header import HEADER_BYTES, pack_batch, parse_header
from ottla.wire.record_batch.compression import CompressionType

pytestmark = pytest.mark.invalid_state


def fails_on(fixture: RegisterRuntime, method: str, when: Callable[..., bool], error: Exception | None = None) -> None:
    """Have the state machines raise in ``handle`` or ``replay`` where ``when`` is true of the arguments."""

    class Failing(RegisterStateMachine):
        def handle(self, now_ms: int, event: Any) -> Any:
            if method == "handle" and when(event):
                raise AssertionError("an impossible state")
            return super().handle(now_ms, event)

        def replay(self, offset: int, record: Any) -> None:
            if method == "replay" and when(record):
                raise KeyError("an impossible record")
            super().replay(offset, record)

        def _many(self, many: PutManyInSlices) -> Iterator[Any]:
            for number, pair in enumerate(super()._many(many)):
                if method == "slice" and number == 600:
                    raise error or IndexError("an impossible slice")
                yield pair

    def machine() -> RegisterStateMachine:
        fixture.machines.append(Failing())
        return fixture.machines[-1]

    fixture.runtime._machine_of = machine


def run(fixture: RegisterRuntime, scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario with both partitions led."""
    for number in (1, 0):
        fixture.runtime.on_election(fixture.fixture.hosted.replicas["state", number])

    async def main() -> None:
        await trio.testing.wait_all_tasks_blocked()
        await scenario()
        assert fixture.runtime.submit_to_partition(1, lambda t: PutPairs(t, [])).answer == "put", (
            "the other shard serves"
        )

    with_runtime(fixture, main)


def test_event_that_raises_answers_unknown_server_error_and_reloads_shard() -> None:
    fixture = RegisterRuntime(partitions=2)
    fails_on(fixture, "handle", lambda event: isinstance(event, PutPairs) and ("x", "1") in event.pairs)

    async def scenario() -> None:
        held, parked = fixture.put(("a", "1")), fixture.runtime.submit_to_partition(0, ParkRequest)
        promised = fixture.runtime.submit_to_partition(0, lambda t: PutWithResult(t, [("b", "1")]))
        assert code_of(fixture.put(("x", "1"))) is E.UNKNOWN_SERVER_ERROR
        assert code_of(held) is E.NOT_COORDINATOR
        assert parked.answer == ("unloaded", E.NOT_COORDINATOR)
        assert promised.answer == ("settled", E.NOT_COORDINATOR)
        assert fixture.shard_state() is CoordinatorState.FAILED
        assert code_of(fixture.put()) is E.NOT_COORDINATOR
        await trio.sleep(runtime.MIN_RELOAD_BACKOFF_MS / 1000 + 0.01)
        assert fixture.machines[-1].values == {"a": "1", "b": "1"}, "its log is its state"
        fixture.commit()
        assert fixture.put().answer == "put"

    run(fixture, scenario)


def test_repeated_failure_reloads_shard_with_growing_backoff() -> None:
    fixture = RegisterRuntime(followed=False, partitions=2)
    fixture.write(b"k")
    fails_on(fixture, "handle", lambda event: isinstance(event, PutPairs) and bool(event.pairs))

    async def scenario() -> None:
        for pause_s in (1, 2, 4, 8, 16, 32, 60, 60):
            assert code_of(fixture.put(("x", "1"))) is E.UNKNOWN_SERVER_ERROR
            await trio.sleep(pause_s - 0.1)
            assert fixture.shard_state() is CoordinatorState.FAILED
            await trio.sleep(0.2)
            assert fixture.shard_state() is CoordinatorState.ACTIVE
        await trio.sleep(runtime.RELOAD_BACKOFF_RESET_MS / 1000)
        assert code_of(fixture.put(("x", "1"))) is E.UNKNOWN_SERVER_ERROR
        await trio.sleep(1.1)
        assert fixture.shard_state() is CoordinatorState.ACTIVE, "it has been calm for long"

    run(fixture, scenario)


def test_replay_error_after_append_fails_shard() -> None:
    fixture = RegisterRuntime(followed=False, partitions=2)
    fails_on(fixture, "replay", lambda record: record[0] == "x")

    async def scenario() -> None:
        assert code_of(fixture.put(("x", "1"))) is E.UNKNOWN_SERVER_ERROR
        await trio.sleep(runtime.MIN_RELOAD_BACKOFF_MS / 1000 + 0.01)
        assert fixture.shard_state() is CoordinatorState.FAILED, "its log holds the record now"
        await trio.sleep(120)
        assert fixture.shard_state() is CoordinatorState.FAILED, (
            "loading has failed: it is not tried again, as in Kafka"
        )

    run(fixture, scenario)


@pytest.mark.parametrize("method", ["replay", "handle"])
def test_shard_failed_in_load_answers_not_coordinator(method: str) -> None:
    fixture = RegisterRuntime(followed=False, partitions=2)
    fixture.write(b"x")

    def when(call: Any) -> bool:
        return isinstance(call, ShardLoaded) and bool(fixture.machine.values) if method == "handle" else call[0] == "x"

    fails_on(fixture, method, when)

    async def scenario() -> None:
        assert fixture.shard_state() is CoordinatorState.FAILED
        assert code_of(fixture.put()) is E.NOT_COORDINATOR
        fixture.runtime.submit_to_all("event")
        assert "event" not in fixture.machines[1].received

    run(fixture, scenario)


@pytest.mark.parametrize("error", [IndexError("an impossible slice"), WireError("bytes of a member that do not parse")])
def test_slice_that_raises_fails_shard_and_answers_pending_requests(error: Exception) -> None:
    fixture = RegisterRuntime(followed=False, partitions=2)
    fails_on(fixture, "slice", lambda _: True, error)

    async def scenario() -> None:
        many = fixture.runtime.submit_to_partition(0, lambda t: PutManyInSlices(t, 2_000))
        behind = fixture.put(("b", "1"))
        await trio.testing.wait_all_tasks_blocked()
        assert (code_of(many), code_of(behind)) == (E.NOT_COORDINATOR, E.NOT_COORDINATOR)
        assert fixture.shard_state() is CoordinatorState.FAILED

    run(fixture, scenario)


def test_timer_event_that_raises_fails_only_its_shard() -> None:
    fixture = RegisterRuntime(followed=False, partitions=2)
    fails_on(fixture, "handle", lambda event: isinstance(event, TimerExpired))

    async def scenario() -> None:
        fixture.shard.enqueue(SetTimer(ScheduleTimer(("t",), fixture.env.now_ms() + 50)))
        fixture.shard.enqueue(SetTimer(ScheduleTimer(("u",), fixture.env.now_ms() + 60)))
        await trio.sleep(0.1)
        assert fixture.shard_state() is CoordinatorState.FAILED
        assert sum(isinstance(event, TimerExpired) for event in fixture.machines[0].received) == 0, (
            "the first raised, no other came"
        )

    run(fixture, scenario)


def test_shard_unloaded_event_that_raises_closes_shard() -> None:
    fixture = RegisterRuntime(followed=False, partitions=2)
    fails_on(
        fixture,
        "handle",
        lambda event: isinstance(event, ShardUnloaded | PutPairs) and getattr(event, "pairs", ["x"]) != [],
    )

    async def scenario() -> None:
        assert code_of(fixture.put(("x", "1"))) is E.UNKNOWN_SERVER_ERROR
        fixture.runtime.on_resignation(fixture.replica)
        assert code_of(fixture.put()) is E.NOT_COORDINATOR
        await trio.sleep(5)
        assert len(list(fixture.runtime)) == 1, "what has moved away is not loaded again"

    run(fixture, scenario)


@pytest.mark.parametrize(
    "codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
)
def test_batch_decompressing_above_limit_fails_the_load(codec: CompressionType) -> None:
    fixture = RegisterRuntime(followed=False, partitions=2)
    for size, state in ((MAX_BATCH_BYTES // 2, CoordinatorState.ACTIVE), (MAX_BATCH_BYTES, CoordinatorState.FAILED)):
        raw = records.build_batch([records.NewRecord(b"k", bytes(size), 1)], codec=codec)
        fixture.replica.append(bytearray(raw), 1, AppendOrigin.COORDINATOR)

        async def scenario(state: CoordinatorState = state) -> None:
            assert fixture.shard_state() is state

        run(fixture, scenario)
        fixture.runtime.on_resignation(fixture.replica)


@pytest.mark.parametrize("delta", [1, 63, -1, -64])
def test_record_with_offset_outside_its_batch_fails_the_load(delta: int) -> None:
    fixture = RegisterRuntime(followed=False, partitions=2)
    raw = bytearray(records.build_batch([records.NewRecord(b"k", b"v", 1)]))
    at = HEADER_BYTES + 3  # after its size, attributes and timestamp delta of one byte each
    assert raw[at] == 0
    raw[at] = delta << 1 if delta >= 0 else (~delta << 1) + 1
    fixture.replica.append(bytearray(pack_batch(parse_header(raw), bytes(raw[HEADER_BYTES:]))), 1, AppendOrigin.CLIENT)

    async def scenario() -> None:
        assert fixture.shard_state() is CoordinatorState.FAILED

    run(fixture, scenario)


def test_load_failed_between_slices_fires_no_timer() -> None:
    fixture = RegisterRuntime(followed=False, partitions=2)
    fixture.write(b"x")

    class Failing(RegisterStateMachine):
        def _slices(self) -> Iterator[Any]:
            yield Effects(timers=[ScheduleTimer(("t",), fixture.env.now_ms() + 100)])
            raise KeyError("an impossible state")

        def handle(self, now_ms: int, event: Any) -> Any:
            if isinstance(event, ShardLoaded) and self.values:
                return Effects(continuation=self._slices())
            return Effects([("t", "1")]) if isinstance(event, TimerExpired) else super().handle(now_ms, event)

    fixture.runtime._machine_of = Failing

    async def scenario() -> None:
        assert fixture.shard_state() is CoordinatorState.FAILED
        end = fixture.replica.log.log_end_offset
        await trio.sleep(1)
        assert fixture.replica.log.log_end_offset == end

    run(fixture, scenario)


@pytest.mark.parametrize("in_slices", [False, True])
def test_replay_error_answers_all_replies_of_its_event(in_slices: bool) -> None:
    fixture = RegisterRuntime(followed=False, partitions=2)
    fails_on(fixture, "replay", lambda record: record[0] == "x")

    async def scenario() -> None:
        parked = fixture.runtime.submit_to_partition(0, ParkRequest)
        await trio.testing.wait_all_tasks_blocked()
        machine = fixture.machines[-1]

        def handle(now_ms: int, event: Any) -> Any:
            fx: Any = Effects([("x", "1")], [RequestReply(pending, "released") for pending in machine.parked])
            machine.parked = []
            del machine.handle  # type: ignore[method-assign]
            return Effects(continuation=iter([fx])) if in_slices else fx

        machine.handle = handle  # type: ignore[method-assign]
        fixture.shard.enqueue("release")
        await trio.testing.wait_all_tasks_blocked()
        assert fixture.shard_state() is CoordinatorState.FAILED
        assert code_of(parked) is E.NOT_COORDINATOR

    run(fixture, scenario)


def test_continuation_of_shard_unloaded_during_pause_is_not_resumed() -> None:
    fixture = RegisterRuntime(followed=False, partitions=2)

    async def scenario() -> None:
        shard, resumed = fixture.shard, []

        def job() -> Iterator[Any]:
            shard.unload()
            yield None
            resumed.append(True)

        machine = fixture.machines[-1]
        machine.handle = lambda now_ms, event: Effects(continuation=job())  # type: ignore[method-assign,assignment]
        shard.enqueue("long")
        del machine.handle  # type: ignore[method-assign]
        await trio.testing.wait_all_tasks_blocked()
        assert (shard.state, resumed) == (CoordinatorState.CLOSED, [])

    run(fixture, scenario)


def test_unanswered_requests_keeps_only_open_requests() -> None:
    open_tickets, waiting = UnansweredRequests(), [PendingBrokerRequest() for _ in range(3)]
    for pending in waiting:
        open_tickets.add(pending)
    for _ in range(10 * MIN_TRACKED_REQUESTS):
        done = PendingBrokerRequest()
        open_tickets.add(done)
        done.deliver("done")
    assert len(open_tickets._references) <= MIN_TRACKED_REQUESTS
    open_tickets.fail_all(E.NOT_COORDINATOR)
    assert [code_of(pending) for pending in waiting] == [E.NOT_COORDINATOR] * 3
