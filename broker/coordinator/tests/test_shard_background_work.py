"""Background work of a shard: timers, long events and work that ends after the shard was unloaded."""

from __future__ import annotations

import trio
import trio.testing

from ottla.broker.coordinator.events import TimerExpired
from ottla.broker.coordinator.shard import MAX_EVENTS_PER_PASS
from ottla.broker.tests.coordinator_runtime_fixture import (
    E,
    PutManyInSlices,
    RegisterRuntime,
    SetTimer,
    code_of,
    start_leading,
    with_runtime,
)
from ottla.jobs.state_machine import RECORDS_PER_STEP, CancelTimer, ScheduleTimer


def test_timers_fire_at_latest_deadline_and_not_when_cancelled() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))
    now = fixture.env.now_ms()

    async def scenario() -> None:
        fixture.runtime.submit_to_all(SetTimer(ScheduleTimer(("a",), now + 1000)))
        fixture.runtime.submit_to_all(SetTimer(ScheduleTimer(("b",), now + 1000)))
        fixture.runtime.submit_to_all(SetTimer(ScheduleTimer(("c",), now + 1000)))
        fixture.runtime.submit_to_all(SetTimer(ScheduleTimer(("a",), now + 3000)))
        fixture.runtime.submit_to_all(SetTimer(CancelTimer(("b",))))
        await trio.sleep(2)
        assert [e for e in fixture.machine.received if isinstance(e, TimerExpired)] == [TimerExpired(("c",))]
        await trio.sleep(2)
        assert fixture.machine.received[-1] == TimerExpired(("a",))

    with_runtime(fixture, scenario)


def test_timer_rescheduled_while_its_event_is_queued_does_not_fire() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))
    now = fixture.env.now_ms()

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        for name in ("moved", "kept", "gone"):
            fixture.runtime.submit_to_all(SetTimer(ScheduleTimer((name,), now + 1000)))
        fixture.runtime.submit_to_partition(0, lambda t: PutManyInSlices(t, 3 * RECORDS_PER_STEP))
        fixture.runtime.submit_to_all(SetTimer(ScheduleTimer(("moved",), now + 5000)))
        fixture.runtime.submit_to_all(SetTimer(CancelTimer(("gone",))))
        for name, arming in (("moved", 1), ("kept", 2), ("gone", 3)):
            fixture.shard._on_timer((name,), arming)
        await trio.testing.wait_all_tasks_blocked()
        assert [e for e in fixture.machine.received if isinstance(e, TimerExpired)] == [TimerExpired(("kept",))]

    with_runtime(fixture, scenario)


def test_shard_unloaded_cancels_its_timers() -> None:
    fixture = start_leading(RegisterRuntime())
    fixture.runtime.submit_to_all(SetTimer(ScheduleTimer(("a",), 0)))
    fixture.put(("a", "1"))
    assert len(fixture.timers._armed) == 2
    fixture.runtime.on_resignation(fixture.replica)
    assert fixture.timers._armed == {}


def test_read_barrier_of_unloaded_shard_leaves_its_successor_alone() -> None:
    fixture = start_leading(RegisterRuntime())
    old = fixture.shard

    async def scenario() -> None:
        fixture.put(("a", "1"))
        fixture.runtime.on_resignation(fixture.replica)
        fixture.runtime.on_election(fixture.replica)
        await trio.testing.wait_all_tasks_blocked()
        waits = fixture.put(("b", "2"))
        late = old.read_barrier()
        assert late is not None
        assert code_of(late) is E.NOT_COORDINATOR, "at once"
        await trio.sleep(5.001)
        assert code_of(waits) is E.COORDINATOR_NOT_AVAILABLE, "the write timeout is watched as before"
        fixture.commit()
        late = old.read_barrier()
        assert late is not None
        assert code_of(late) is E.NOT_COORDINATOR, "also where all is committed: others may have gone on from it"

    with_runtime(fixture, scenario)


def test_long_events_yield_to_event_loop() -> None:
    fixture = start_leading(RegisterRuntime(followed=False))
    turns = [0]
    clock = [0.0]

    def ticking() -> float:  # every reading of the clock costs a millisecond
        clock[0] += 1.0
        return clock[0]

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        long = fixture.runtime.submit_to_partition(0, lambda t: PutManyInSlices(t, RECORDS_PER_STEP))
        for number in range(MAX_EVENTS_PER_PASS - 1):
            fixture.put((f"{number}", "x"))
        fixture.env.monotonic_ms = ticking
        while (await long.wait()) and fixture.shard._is_draining:
            turns[0] += 1
            await trio.lowlevel.checkpoint()
        assert turns[0] >= 10

    with_runtime(fixture, scenario)
