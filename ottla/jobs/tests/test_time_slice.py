"""Time slices: jobs run at once within a slice, pause when it is used up, and wait without using it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel

from ottla.broker.tests.connection_fixture import ConnectionEnv, in_virtual_time
from ottla.jobs.job import Job, as_job, run_to_end
from ottla.jobs.time_slice import BACKGROUND_SLICE_MS, SLICE_MS, TimeSlice, run_in_background


class CountingTimeSlice(TimeSlice):
    """Time slice that counts the pauses."""

    pauses = 0

    async def yield_now(self) -> None:
        self.pauses += 1
        await super().yield_now()


def steps(env: ConnectionEnv, each_ms: float, count: int = 640) -> Job[str]:
    for _ in range(count):
        env.work(each_ms)
        yield None
    return "done"


def test_time_slice_is_used_up_after_10_ms_of_work() -> None:
    async def run() -> None:
        env = ConnectionEnv()
        time_slice = TimeSlice(env)  # type: ignore[arg-type]
        assert not time_slice.is_used_up()
        env.work(9.9)
        assert not time_slice.is_used_up()
        assert time_slice.suspend() == time_slice.started_ms == env.monotonic_ms()
        await trio.sleep(100)
        time_slice.resume()
        assert not time_slice.is_used_up()
        env.work(0.1)
        assert time_slice.is_used_up()
        await time_slice.yield_now()
        assert not time_slice.is_used_up()
        env.work(9.9)
        assert not time_slice.is_used_up(), "pause starts a new slice"

    in_virtual_time(run)


def test_background_time_slice_is_shorter() -> None:
    async def run() -> None:
        env = ConnectionEnv()
        time_slice = TimeSlice(env, BACKGROUND_SLICE_MS)  # type: ignore[arg-type]
        env.work(1.9)
        assert not time_slice.is_used_up()
        env.work(0.1)
        assert time_slice.is_used_up()

    in_virtual_time(run)
    assert 0 < BACKGROUND_SLICE_MS < SLICE_MS <= 10


@pytest.mark.parametrize(("each_ms", "pauses"), [(0.0, 0), (0.015, 0), (0.1, 6), (1.0, 64), (20.0, 640)])
@pytest.mark.parametrize("method", ["run", "start"])
def test_job_pauses_when_time_slice_is_used_up(each_ms: float, pauses: int, method: str) -> None:
    async def run() -> None:
        env = ConnectionEnv()
        time_slice = CountingTimeSlice(env)  # type: ignore[arg-type]
        if method == "run":
            assert await time_slice.run(steps(env, each_ms)) == "done"
        else:
            result: Any = time_slice.start(steps(env, each_ms))
            assert (result == "done") == (pauses == 0), "no pause exactly if the work fits in one slice"
            if pauses:
                assert await result == "done"
        assert abs(time_slice.pauses - pauses) <= 1

    in_virtual_time(run)


@pytest.mark.parametrize("method", ["run", "start"])
def test_job_waits_do_not_use_the_time_slice(method: str) -> None:
    async def later(number: int) -> int:
        await trio.sleep(100)
        return number

    def waiting(env: ConnectionEnv) -> Job[list[int]]:
        yield None
        results = []
        for number in range(5):
            env.work(1.9)
            results.append((yield later(number)))
        return results

    async def run() -> None:
        env = ConnectionEnv()
        time_slice = CountingTimeSlice(env)  # type: ignore[arg-type]
        job = waiting(env)
        result: Any = await (time_slice.start(job) if method == "start" else time_slice.run(job))  # type: ignore[misc]
        assert result == [0, 1, 2, 3, 4]
        assert trio.current_time() == 500
        assert time_slice.pauses == 0, "9.5 ms of work"
        assert not time_slice.is_used_up()
        env.work(0.5)
        assert time_slice.is_used_up(), "work of all steps is added"

    in_virtual_time(run)


def test_job_pauses_between_completed_waits() -> None:
    async def at_once() -> None:
        pass

    def waiting(env: ConnectionEnv) -> Job[None]:
        for _ in range(64):
            env.work(1.0)
            yield at_once()

    async def run() -> None:
        env = ConnectionEnv()
        time_slice = CountingTimeSlice(env)  # type: ignore[arg-type]
        await time_slice.run(waiting(env))
        assert time_slice.pauses == 6

    in_virtual_time(run)


def test_job_receives_exception_of_a_wait() -> None:
    async def fail() -> None:
        await trio.sleep(1)
        raise OSError("of the wait")

    def inner() -> Job[None]:
        yield fail()

    def waiting(*, handles: bool) -> Job[str]:
        try:
            yield from inner()
        except OSError as error:
            if not handles:
                raise
            yield trio.sleep(1)  # noqa: ASYNC105 - the runner awaits it
            return str(error)
        return "no error"

    async def run() -> None:
        time_slice = TimeSlice(ConnectionEnv())  # type: ignore[arg-type]
        assert await time_slice.run(waiting(handles=True)) == "of the wait"
        with pytest.raises(OSError, match="of the wait"):
            await time_slice.run(waiting(handles=False))

    in_virtual_time(run)


@pytest.mark.parametrize("waits", [True, False])
def test_job_receives_cancellation_while_waiting_or_paused(*, waits: bool) -> None:
    seen: list[str] = []

    def job(env: ConnectionEnv) -> Job[None]:
        try:
            while True:
                env.work(SLICE_MS)
                yield trio.sleep(1) if waits else None  # noqa: ASYNC105 - the runner awaits it
        except trio.Cancelled:
            seen.append("cancelled")
            raise

    async def run() -> None:
        env = ConnectionEnv()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(TimeSlice(env).run, job(env))  # type: ignore[arg-type]
                await trio.lowlevel.checkpoint()
                scope.cancel()
        assert scope.cancelled_caught

    in_virtual_time(run)
    assert seen == ["cancelled"]


def test_run_in_background_uses_short_slices() -> None:
    iterations: list[int] = []

    async def run() -> None:
        env = ConnectionEnv()

        async def count_iterations() -> None:
            while True:
                iterations.append(1)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_iterations)
            assert await run_in_background(env, steps(env, 1.0, 20)) == "done"  # type: ignore[arg-type]
            nursery.cancel_scope.cancel()

    in_virtual_time(run)
    assert len(iterations) >= 20 / BACKGROUND_SLICE_MS - 1


def test_run_to_end_returns_result_and_rejects_waits() -> None:
    def waiting() -> Job[None]:
        yield None
        yield trio.Event().wait()

    assert run_to_end(steps(ConnectionEnv(), 1.0)) == "done"
    with pytest.raises(RuntimeError, match="a job waits where it must not"), pytest.warns(RuntimeWarning):
        run_to_end(waiting())


def test_as_job_accepts_values_and_jobs() -> None:
    assert run_to_end(as_job("at once")) == "at once"
    assert run_to_end(as_job(steps(ConnectionEnv(), 1.0))) == "done"
