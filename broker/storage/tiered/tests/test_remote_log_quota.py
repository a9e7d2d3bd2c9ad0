"""Quotas of tiered storage, and the threads for calls of the remote store."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
import trio.testing

from ottla.broker.storage.tiered.remote_log_quota import RemoteLogQuota
from ottla.broker.storage.tiered.remote_thread_pool import RemoteReadQueueFullError, RemoteThreadPool
from ottla.broker.storage.tiered.store_calls import StoreCalls
from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.env.env import Env


def test_quota_throttles_until_the_rate_is_within_the_limit() -> None:
    async def main() -> list[int]:
        quota = RemoteLogQuota(cast("Env", VirtualEnv()), 1000, 11, 1)
        out = [quota.throttle_ms()]
        quota.record(1000)
        out.append(quota.throttle_ms())
        quota.record(2000)
        out.append(quota.throttle_ms())  # 3000 bytes in a second
        await trio.sleep(out[-1] / 1000 + 0.5)
        out.append(quota.throttle_ms())  # 3000 bytes in 2.5 s
        await trio.sleep(0.5)
        out.append(quota.throttle_ms())
        await trio.sleep(8)
        quota.record(10**9)
        await trio.sleep(11)
        out.append(quota.throttle_ms())
        return out

    assert run_virtual(main) == [0, 0, 2000, 500, 0, 0]


def test_limit_of_the_quota_changes_at_once() -> None:
    async def main() -> tuple[int, int]:
        quota = RemoteLogQuota(cast("Env", VirtualEnv()), 1000, 11, 1)
        quota.record(2000)
        before = quota.throttle_ms()
        quota.bytes_per_second = 2**63 - 1
        return before, quota.throttle_ms()

    assert run_virtual(main) == (1000, 0)


class _BlockingEnv:
    """Environment whose threads end when a test lets them."""

    def __init__(self) -> None:
        self.running = 0
        self.release = trio.Event()

    async def in_thread(self, work: Any, lane: Any) -> Any:
        self.running += 1
        try:
            await self.release.wait()
            return work()
        finally:
            self.running -= 1


def test_reads_beyond_the_threads_wait_and_beyond_the_queue_are_rejected() -> None:
    async def main() -> None:
        env = _BlockingEnv()
        pool = RemoteThreadPool(StoreCalls(cast("Env", env)), threads=2, max_pending=1)
        done: list[int] = []

        async def read(number: int) -> None:
            done.append(await pool.run(lambda: number))

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(read, number)
            await trio.testing.wait_all_tasks_blocked()
            assert (env.running, pool.active_count, pool.pending_count, pool.idle_percent) == (2, 2, 1, 0.0)
            with pytest.raises(RemoteReadQueueFullError):
                await pool.run(lambda: 3)
            env.release.set()
        assert sorted(done) == [0, 1, 2]
        assert pool.idle_percent == 1.0

    run_virtual(main)


def test_more_threads_take_up_waiting_calls() -> None:
    async def main() -> None:
        env = _BlockingEnv()
        pool = RemoteThreadPool(StoreCalls(cast("Env", env)), threads=1)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(pool.run, lambda: None)
            await trio.testing.wait_all_tasks_blocked()
            assert env.running == 1
            pool.resize(3)
            await trio.testing.wait_all_tasks_blocked()
            assert env.running == 3
            env.release.set()

    run_virtual(main)
