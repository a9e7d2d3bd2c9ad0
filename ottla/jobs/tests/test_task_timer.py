"""Event loop time of coroutines, without their waits and other tasks; exceptions and cancellation."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from ottla.jobs.task_timer import TaskTimer


class TimerClock:
    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> float:
        return self.ms


def test_task_timer_excludes_waits_and_other_tasks() -> None:
    clock = TimerClock()
    watch = TaskTimer(clock.now_ms)
    inside: list[float] = []

    async def work() -> str:
        clock.ms += 3
        inside.append(watch.lap_ms())
        clock.ms += 4
        await trio.sleep(1)
        clock.ms += 5
        return "done"

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            assert await watch.run(work()) == "done"

    async def other() -> None:
        await trio.sleep(0.5)
        clock.ms += 1000

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert inside == [3]
    assert watch.lap_ms() == 9
    assert watch.lap_ms() == 0


def test_task_timer_passes_exceptions_and_cancellation_through() -> None:
    clock, seen = TimerClock(), list[str]()
    watch = TaskTimer(clock.now_ms)

    async def fails() -> None:
        clock.ms += 2
        raise ValueError("ours")

    async def sleeps() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            clock.ms += 7
            seen.append("cancelled")
            raise

    async def run() -> None:
        with pytest.raises(ValueError, match="ours"):
            await watch.run(fails())
        assert watch.lap_ms() == 2
        with trio.move_on_after(1) as scope:
            await watch.run(sleeps())
        assert scope.cancelled_caught

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert (seen, watch.lap_ms()) == (["cancelled"], 7)
