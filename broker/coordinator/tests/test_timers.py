"""Heap of timers, in virtual time."""

from __future__ import annotations

import random
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.coordinator.timers import Timers
from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual


class RecordingTimers:
    """Timers that record when they fired, in milliseconds since the start."""

    def __init__(self) -> None:
        self.env: Any = VirtualEnv()
        self.timers = Timers(self.env)
        self.fired: list[tuple[Any, float]] = []

    def arm(self, key: Any, after_ms: int) -> None:
        self.timers.arm(key, self.env.now_ms() + after_ms, lambda: self.fired.append((key, trio.current_time() * 1000)))

    def run(self, scenario: Callable[[], Awaitable[None]]) -> list[tuple[Any, int]]:
        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.timers.run)
                await trio.testing.wait_all_tasks_blocked()
                await scenario()
                nursery.cancel_scope.cancel()

        run_virtual(main)
        return [(key, round(at)) for key, at in self.fired]


def test_timers_fire_in_order_of_deadline() -> None:
    watch = RecordingTimers()

    async def scenario() -> None:
        for key, after in (("late", 90_000), ("early", 1_000), ("now", 0), ("past", -5)):
            watch.arm(key, after)
        await trio.sleep(200)

    fired = watch.run(scenario)
    assert sorted(fired[:2]) == [("now", 0), ("past", 0)]
    assert fired[2:] == [("early", 1_000), ("late", 90_000)]


def test_arm_again_moves_timer_earlier_or_later() -> None:
    watch = RecordingTimers()

    async def scenario() -> None:
        watch.arm("later", 1_000)
        watch.arm("earlier", 9_000)
        watch.arm("other", 5_000)
        watch.arm("later", 7_000)
        watch.arm("earlier", 2_000)
        await trio.sleep(0.5)
        watch.arm("later", 6_000)
        await trio.sleep(20)

    assert watch.run(scenario) == [("earlier", 2_000), ("other", 5_000), ("later", 6_500)]


def test_cancelled_timer_does_not_fire_and_can_be_armed_again() -> None:
    watch = RecordingTimers()

    async def scenario() -> None:
        for key in ("a", "b"):
            watch.arm(key, 1_000)
            watch.timers.cancel(key)
        watch.timers.cancel("never armed")
        watch.arm("b", 3_000)
        await trio.sleep(5)

    assert watch.run(scenario) == [("b", 3_000)]


def test_cancelled_timers_are_removed_from_heap() -> None:
    watch = RecordingTimers()

    async def scenario() -> None:
        for number in range(10):
            watch.arm(("kept", number), 1_000 + number)
            watch.arm(("kept", number), 2_000 + number)
        for number in range(54):
            watch.arm(number, 5_000)
        for number in range(54):
            watch.timers.cancel(number)
        assert len(watch.timers._heap) == 64, "so few cost nothing"
        watch.arm("more", 5_000)
        watch.timers.cancel("more")
        assert len(watch.timers._heap) == 10
        for number in range(100):
            watch.arm(number, 5_000)
        for number in range(90):
            watch.timers.cancel(number)
        assert len(watch.timers._heap) <= 4 * 21 + 1
        await trio.sleep(3)
        assert len(watch.fired) == 10
        assert [key for key, _ in watch.fired] == [("kept", n) for n in range(10)]

    watch.run(scenario)


def test_timer_callback_may_arm_another_timer() -> None:
    watch = RecordingTimers()

    async def scenario() -> None:
        watch.timers.arm("first", watch.env.now_ms() + 1_000, lambda: watch.arm("second", 500))
        await trio.sleep(5)

    assert watch.run(scenario) == [("second", 1_500)]


def test_many_due_timers_yield_to_event_loop() -> None:
    watch = RecordingTimers()
    turns: list[int] = []
    clock = [0.0]

    def ticking() -> float:  # every reading of the clock costs a tenth of a millisecond
        clock[0] += 0.1
        return clock[0]

    async def scenario() -> None:
        for number in range(1000):
            watch.arm(number, 0)
        watch.env.monotonic_ms = ticking
        while len(watch.fired) < 1000:
            await trio.lowlevel.checkpoint()
            turns.append(len(watch.fired))

    watch.run(scenario)
    assert max(b - a for a, b in zip([0, *turns], turns, strict=False)) <= 25, "two milliseconds"


@pytest.mark.parametrize("how", ["cancelled", "moved to earlier"])
def test_cancelled_or_moved_timer_releases_its_key(how: str) -> None:
    """A key may hold a name of 32 KiB chosen by a client, and the old deadline may be half an hour away."""

    class Key:
        pass

    watch = RecordingTimers()
    for number in range(30):
        watch.arm(number, 1_000_000)
    key = Key()
    kept = weakref.ref(key)
    watch.timers.arm(key, watch.env.now_ms() + 1_800_000, int)
    if how == "cancelled":
        watch.timers.cancel(key)
    else:
        watch.timers.arm(key, watch.env.now_ms(), int)

    async def scenario() -> None:
        await trio.sleep(1)

    watch.run(scenario)
    del key
    assert kept() is None


class AdvancingEnv(VirtualEnv):
    """`Env` whose monotonic clock advances by 5 ms at each reading, as it does on a busy machine."""

    readings = 0

    def monotonic_ms(self) -> float:
        self.readings += 1
        return super().monotonic_ms() + 5 * self.readings


def test_timer_that_expires_before_the_wait_for_it_begins_fires() -> None:
    async def main() -> None:
        env: Any = AdvancingEnv()
        timers, fired, delays = Timers(env), [], random.Random(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            for number in range(100):
                timers.arm(
                    number, env.now_ms() + delays.randrange(100, 2_000), lambda number=number: fired.append(number)
                )
                await trio.sleep(0.05)
            await trio.sleep(10)
            nursery.cancel_scope.cancel()
        assert sorted(fired) == list(range(100))

    run_virtual(main)
