"""Calls of the remote store: a cancelled task waits for its call, and a node that stops waits a bounded time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import pytest
import trio
import trio.testing

from ottla.broker.storage.tiered.remote_storage import RetriableRemoteStorageError
from ottla.broker.storage.tiered.store_calls import STOP_TIMEOUT_S, StoreCalls
from ottla.broker.tests.handler_fixture import run_virtual
from ottla.env.env import Env, ThreadPool
from ottla.runtime.real_env import RealEnv


class _SlowEnv:
    """Environment whose threads take ``seconds`` (virtual time) and can be abandoned."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun = 0

    async def in_thread(self, work: Callable[[], Any], lane: ThreadPool) -> Any:
        self.begun += 1
        await trio.sleep(self.seconds)
        return work()

    def timeout(self, seconds: float) -> AbstractContextManager[trio.CancelScope]:
        return trio.move_on_after(seconds)


def stop_during(seconds: float, calls: int = 1) -> tuple[list[int], float]:
    """Stop a node during calls of ``seconds``; return the results that the calls returned, and how long it took."""
    results: list[int] = []

    async def main() -> float:
        store = StoreCalls(cast("Env", _SlowEnv(seconds)))

        async def call(number: int) -> None:
            results.append(await store.run(lambda: number))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run_until_stopped)
            for number in range(calls):
                nursery.start_soon(call, number)
            await trio.sleep(1)
            began_s = trio.current_time()
            nursery.cancel_scope.cancel()
        return trio.current_time() - began_s

    took_s = run_virtual(main)
    return sorted(results), took_s


def test_stop_without_calls_does_not_wait() -> None:
    assert stop_during(0, calls=0) == ([], 0)
    assert stop_during(0.5) == ([0], 0), "a call that has ended before"


def test_stop_waits_for_calls_that_end_in_time() -> None:
    assert stop_during(4, calls=3) == ([0, 1, 2], 3)


def test_stop_abandons_calls_that_hang_and_logs_their_number(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ottla.tiered"):
        assert stop_during(10_000, calls=2) == ([], STOP_TIMEOUT_S)
    assert caplog.messages == ["Abandoning calls of the remote store: 2 have not ended 5 s after the stop of the node"]


def test_cancelled_task_waits_for_its_call_while_the_node_runs() -> None:
    async def main() -> float:
        store, began_s = StoreCalls(cast("Env", _SlowEnv(100))), trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run_until_stopped)
            with trio.move_on_after(1):
                await store.run(lambda: None)
            ended_s = trio.current_time()
            nursery.cancel_scope.cancel()
        return ended_s - began_s

    assert run_virtual(main) == 100


def test_cancelled_task_begins_no_call() -> None:
    async def main() -> int:
        env = _SlowEnv(1)
        with trio.CancelScope() as scope:
            scope.cancel()
            await StoreCalls(cast("Env", env)).run(lambda: None)
        return env.begun

    assert run_virtual(main) == 0


def test_abandoned_call_of_task_that_is_not_cancelled_raises() -> None:
    async def main() -> None:
        store = StoreCalls(cast("Env", _SlowEnv(10_000)))

        async def call() -> None:
            with pytest.raises(RetriableRemoteStorageError, match="abandoned"):
                await store.run(lambda: None)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            with trio.move_on_after(1):
                await store.run_until_stopped()

    run_virtual(main)


@pytest.mark.parametrize(("lane", "waits"), [(ThreadPool.REMOTE_STORAGE, False), (ThreadPool.FILES, True)])
def test_real_thread_is_abandoned_only_in_the_pool_of_the_remote_store(lane: ThreadPool, *, waits: bool) -> None:
    release, begun, ended = threading.Event(), threading.Event(), list[bool]()

    def work() -> None:
        begun.set()
        release.wait()

    async def run_ended(scope: trio.CancelScope, call: Callable[[], Awaitable[None]]) -> None:
        with scope:
            await call()
        ended.append(scope.cancelled_caught)

    async def main() -> None:
        env, scope = RealEnv(), trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_ended, scope, lambda: env.in_thread(work, lane))
            await trio.to_thread.run_sync(begun.wait)
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert ended == ([] if waits else [True])
            release.set()

    try:
        trio.run(main)
    finally:
        release.set()
