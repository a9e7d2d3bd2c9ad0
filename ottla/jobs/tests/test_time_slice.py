"""A share of the loop: what fits goes at once, what does not rests in between, and waiting is nobody's work."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest
import trio

from ottla.broker.tests.connection_fixture import ConnectionEnv, in_virtual_time
from ottla.jobs.time_slice import BACKGROUND_SLICE_MS, SLICE_MS, Job, TimeSlice, WaitingJob


class YieldCounter(TimeSlice):
    """Counts how often the others got their turn."""

    rests = 0

    async def yield_now(self) -> None:
        self.rests += 1
        await super().yield_now()


class TimedCondition:
    """Opens after so many virtual seconds."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s

    async def wait(self) -> None:
        await trio.sleep(self._after_s)


def steps(world: ConnectionEnv, each_ms: float, count: int = 640) -> Job[str]:
    for _ in range(count):
        world.work(each_ms)
        yield
    return "done"


def test_a_turn_is_over_after_ten_milliseconds_of_work_and_waiting_does_not_count() -> None:
    async def run() -> None:
        world = ConnectionEnv()
        turn = TimeSlice(world)  # type: ignore[arg-type]
        assert not turn.is_used_up()
        world.work(9.9)
        assert not turn.is_used_up()
        assert turn.suspend() == turn.started_ms == world.monotonic_ms()
        await trio.sleep(100)
        turn.resume()
        assert not turn.is_used_up()
        world.work(0.1)
        assert turn.is_used_up()
        await turn.yield_now()
        assert not turn.is_used_up()
        world.work(9.9)
        assert not turn.is_used_up(), "what came before the rest is forgotten"

    in_virtual_time(run)


def test_what_goes_on_beside_requests_takes_smaller_slices() -> None:
    async def run() -> None:
        world = ConnectionEnv()
        turn = TimeSlice(world, BACKGROUND_SLICE_MS)  # type: ignore[arg-type]
        world.work(1.9)
        assert not turn.is_used_up()
        world.work(0.1)
        assert turn.is_used_up()

    in_virtual_time(run)
    assert 0 < BACKGROUND_SLICE_MS < SLICE_MS <= 10


@pytest.mark.parametrize(("each_ms", "rests"), [(0.0, 0), (0.015, 0), (0.1, 6), (1.0, 64), (20.0, 640)])
@pytest.mark.parametrize("way", ["through", "go", "step"])
def test_it_rests_whenever_its_time_is_over(each_ms: float, rests: int, way: str) -> None:
    async def run() -> None:
        world = ConnectionEnv()
        turn = YieldCounter(world)  # type: ignore[arg-type]
        if way == "through":
            assert await turn.run(steps(world, each_ms)) == "done"
        elif way == "go":
            result: Any = turn.start(steps(world, each_ms))
            assert (result == "done") == (rests == 0), "at once where it fits, and only then"
            if rests:
                assert await result == "done"
                turn.rests += 1  # to be waited for: the connection rests before it goes on
        else:
            for _ in steps(world, each_ms):
                await turn.maybe_yield()
        assert abs(turn.rests - rests) <= 1

    in_virtual_time(run)


def test_what_steps_wait_for_is_waited_for_and_does_not_count() -> None:
    def waiting(world: ConnectionEnv) -> WaitingJob[str]:
        yield None
        for _ in range(5):
            world.work(1.9)
            yield TimedCondition(100)
        return "done"

    async def run() -> None:
        world = ConnectionEnv()
        for way in ("go", "through"):
            turn = YieldCounter(world)  # type: ignore[arg-type]
            began = trio.current_time()
            assert await (turn.start(waiting(world)) if way == "go" else turn.run(waiting(world))) == "done"
            assert trio.current_time() - began == 500
            assert turn.rests == 0, "nine and a half milliseconds of work"
            assert not turn.is_used_up()
            world.work(0.5)
            assert turn.is_used_up(), "and they count, as the work goes on in one turn"

    in_virtual_time(run)


def test_a_result_that_must_be_waited_for_is_waited_for_on_the_way() -> None:
    async def later() -> str:
        await trio.sleep(5)
        return "later"

    def steps_to(world: ConnectionEnv, each_ms: float) -> Job[str | Awaitable[str]]:
        world.work(each_ms)
        yield
        return later()

    async def run() -> None:
        world = ConnectionEnv()
        assert await TimeSlice(world).start(steps_to(world, 0)) == "later"  # type: ignore[arg-type, misc]
        assert await TimeSlice(world).start(steps_to(world, 10)) == "later"  # type: ignore[arg-type, misc]

    in_virtual_time(run)
