"""Minimal coordinator, a register of strings by key, on the runtime of all coordinators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import trio
import trio.testing

from ottla.broker.coordinator.events import ShardLoaded, ShardUnloaded, WriteResult
from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import CoordinatorState, Serde, Shard
from ottla.broker.coordinator.timers import Timers
from ottla.broker.tests.handler_fixture import HandlerFixture, run_virtual
from ottla.jobs.state_machine import CancelTimer, Effects, RequestReply, ScheduleTimer
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.record_batch import records

Pair = tuple[str, str | None]
E = ErrorCode


class PutPairs(NamedTuple):
    pending_request: Any
    pairs: list[Pair]


class PutWithResult(NamedTuple):
    """Event with a reply that is the result of its write."""

    pending_request: Any
    pairs: list[Pair]


class PutManyInSlices(NamedTuple):
    """Event that puts many keys in slices, and fails at one of them."""

    pending_request: Any
    count: int
    write_context: Any = None
    refused_at: int = -1


class ParkRequest(NamedTuple):
    pending_request: Any


class PutAndCount(NamedTuple):
    """Event that puts keys, with an immediate reply of the number of values."""

    pending_request: Any
    pairs: list[Pair]


class SetTimer(NamedTuple):
    """Event that sets or cancels a timer."""

    timer: ScheduleTimer | CancelTimer


class RegisterStateMachine:
    def __init__(self) -> None:
        self.values: dict[str, str | None] = {}
        self.parked: list[Any] = []
        self.received: list[Any] = []
        self.slow_start = 0
        self.greeted: Any = None
        """Who hears that this is loaded."""
        self.offsets: list[int] = []

    def _many(self, many: PutManyInSlices) -> Iterator[Pair]:
        for number in range(many.count):
            if number == many.refused_at:
                raise ProtocolError(E.GROUP_MAX_SIZE_REACHED)
            yield f"many-{number}", "x"

    def handle(self, now_ms: int, event: Any) -> Effects[Pair]:
        self.received.append(event)
        match event:
            case PutPairs(pending, pairs):
                return Effects(list(pairs), [RequestReply(pending, "put")])
            case PutWithResult(pending, pairs):
                return Effects(list(pairs), on_commit_outcome=pending)
            case PutManyInSlices(pending, _, transitions):
                fx: Effects[Pair] = Effects(replies=[RequestReply(pending, "done")], on_commit_outcome=transitions)
                fx.add_records(self._many(event))
                return fx
            case PutAndCount(pending, pairs):
                return Effects(list(pairs), immediate_replies=[RequestReply(pending, f"{len(self.values)} values")])
            case ParkRequest(pending):
                self.parked.append(pending)
            case SetTimer(timer):
                return Effects(timers=[timer])
            case WriteResult(value, error):
                return Effects(replies=[RequestReply(value, ("settled", error))])
            case ShardUnloaded(error):
                return Effects(replies=[RequestReply(t, ("unloaded", error)) for t in self.parked])
            case ShardLoaded() if self.greeted is not None:
                return Effects(immediate_replies=[RequestReply(self.greeted, "loaded")])
            case ShardLoaded() if self.slow_start:
                return Effects(
                    continuation=iter(
                        [Effects(timers=[ScheduleTimer(("t", str(n)), 0)]) for n in range(self.slow_start)]
                    )
                )
        return Effects()

    def replay(self, offset: int, record: Pair) -> None:
        self.values[record[0]] = record[1]
        self.offsets.append(offset)


def encode(pair: Pair) -> tuple[bytes, bytes | None]:
    return pair[0].encode(), None if pair[1] is None else pair[1].encode()


def decode(key: bytes | None, value: bytes | None, parsed: Any = None) -> Pair | None:
    if key is None or key == b"bad":
        raise WireError("a bad record")
    return None if key == b"unknown" else (key.decode(), None if value is None else value.decode())


class RegisterRuntime:
    """Runtime over the partitions of a topic; in ``followed`` ones a test commits the records."""

    def __init__(
        self,
        *,
        followed: bool = True,
        partitions: int = 1,
        settings: LogConfig | None = None,
        base_sequence: int = 0,
    ) -> None:
        self.fixture = HandlerFixture()
        self.env: Any = self.fixture.env
        self.timers = Timers(self.env)
        self.failures: list[Any] = []
        isr = (1, 2) if followed else (1,)
        self.replica: Any = self.fixture.hosted.host(
            "state", partitions=partitions, isr=isr, replicas=isr, settings=settings
        )
        self.machines: list[RegisterStateMachine] = []
        self.slow_start = 0
        self.greeted: Any = None
        self.runtime: CoordinatorRuntime[Pair] = CoordinatorRuntime(
            self.env,
            self.timers,
            self._failed,
            "state",
            lambda: self.fixture.hosted.image,
            1,
            self._machine,
            Serde(encode, decode, lambda key, value: None, base_sequence),
            5000,
        )
        self.on_failure: Callable[[], None] = lambda: None

    def _failed(self, error: OSError, where: Any = None) -> None:
        self.failures.append((error, where))
        self.on_failure()

    def _machine(self) -> RegisterStateMachine:
        machine = RegisterStateMachine()
        machine.slow_start, machine.greeted = self.slow_start, self.greeted
        self.machines.append(machine)
        return machine

    @property
    def machine(self) -> RegisterStateMachine:
        return self.machines[-1]

    @property
    def shard(self) -> Shard[Pair]:
        return self.runtime.shard(0)

    def shard_state(self) -> CoordinatorState:
        return next(iter(self.runtime)).state

    def put(self, *pairs: Pair) -> PendingBrokerRequest:
        return self.runtime.submit_to_partition(0, lambda pending: PutPairs(pending, list(pairs)))

    def commit(self) -> None:
        """Advance the high watermark to the log end."""
        self.replica.log.set_high_watermark(self.replica.log.log_end_offset)
        self.runtime.on_high_watermark_updated(self.replica)

    def write(self, *keys: bytes | None, value: bytes | None = b"v") -> None:
        """Append records as another writer, one batch for each."""
        for key in keys:
            batch = records.build_batch([records.NewRecord(key, value, 1)])
            self.replica.append(bytearray(batch), 1, AppendOrigin.COORDINATOR)


def code_of(pending: PendingBrokerRequest) -> ErrorCode:
    assert isinstance(pending.answer, ProtocolError), pending.answer
    return pending.answer.code


def with_runtime(fixture: RegisterRuntime, scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario beside the runtime's own tasks."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fixture.runtime.run)
            nursery.start_soon(fixture.timers.run)
            await scenario()
            nursery.cancel_scope.cancel()

    run_virtual(main)


def start_leading(fixture: RegisterRuntime) -> RegisterRuntime:
    fixture.runtime.on_election(fixture.replica)
    return fixture


class FailingReplica:
    """Replica with a log that refuses appends."""

    def __init__(self, real: Any, error: Exception, after: int = 0) -> None:
        self._real = real
        self._error = error
        self._left = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def append(self, *args: Any, **more: Any) -> Any:
        if self._left <= 0:
            raise self._error
        self._left -= 1
        return self._real.append(*args)


def failing_replica(fixture: RegisterRuntime, error: Exception, after: int = 0) -> Any:
    return FailingReplica(fixture.replica, error, after)
