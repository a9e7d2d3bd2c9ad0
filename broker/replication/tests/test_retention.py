"""Retention of segments: the log start is checkpointed first, then segments are renamed, later deleted."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import trio

from ottla.broker.replication.log_maintenance import INITIAL_RETENTION_DELAY_S, LogMaintenance
from ottla.broker.storage.tests.test_background_tasks import SETTINGS, BackgroundEnv, in_virtual_time, stage
from ottla.env.env import Env, ThreadPool
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background

DELAY_MS = 60_000
CLOSES_S = 70.0


class RecordedThreads(BackgroundEnv):
    """Records the work that is run in threads."""

    def __init__(self) -> None:
        self.lanes: list[Any] = []

    async def in_thread(self, work: Callable[[], Any], lane: Any = None) -> Any:
        self.lanes.append(lane)
        return await super().in_thread(work, lane)


class RetentionFixture:
    def __init__(self) -> None:
        _, self.disk, self.log_dirs, self.log = stage()
        self.log.flush()
        self.log.update_config(replace(SETTINGS, retention_bytes=3000, file_delete_delay_ms=DELAY_MS))
        self.env = RecordedThreads()
        self.failures: list[Any] = []
        self.calls: list[tuple[str, str]] = []
        self.disk.fault = self.heard
        self.fails: str | None = None
        self.log_maintenance = LogMaintenance(
            cast("Env", self.env),
            self.log_dirs,
            300_000,
            86_400_000,
            lambda *x: self.failures.append(x),
            lambda _: None,
        )

    def heard(self, what: str, path: str) -> OSError | None:
        self.calls.append((what, path.rpartition("/")[2]))
        return OSError(errno.EIO, "injected") if self.fails is not None and self.fails in path else None

    def apply_retention(self) -> None:
        in_virtual_time(lambda: run_in_background(self.env, self.log_maintenance.apply_retention()), 10)

    def names(self, ending: str) -> list[str]:
        return [name for name in self.disk.listdir(self.log.directory) if name.endswith(ending)]


def test_log_start_is_checkpointed_before_segments_are_renamed() -> None:
    house = RetentionFixture()
    house.apply_retention()
    assert house.log.log_start_offset == house.log.segments.base_offsets[0] > 0
    assert house.log.size_bytes < 5000
    renamed = [n for n, call in enumerate(house.calls) if call[0] == "rename" and ".log" in call[1]]
    noted = [n for n, call in enumerate(house.calls) if "log-start-offset-checkpoint" in call[1]]
    assert max(noted) < min(renamed)
    assert house.names(".log.deleted")


def test_log_start_checkpoint_error_keeps_segments() -> None:
    house = RetentionFixture()
    house.fails = "log-start-offset-checkpoint"
    house.apply_retention()
    assert not house.names(".deleted")
    assert len(house.failures) == 1


def test_retention_runs_after_initial_delay_and_each_interval() -> None:
    house = RetentionFixture()
    looks: list[float] = []

    def retain() -> Job[None]:
        looks.append(trio.current_time())
        yield None

    house.log_maintenance.apply_retention = retain  # type: ignore[method-assign]
    in_virtual_time(house.log_maintenance.run_retention, 1000)
    assert looks == pytest.approx([INITIAL_RETENTION_DELAY_S, INITIAL_RETENTION_DELAY_S + 300, 630, 930])


def test_deleted_segments_are_removed_in_a_thread_after_delay() -> None:
    house = RetentionFixture()
    house.apply_retention()
    before = house.names(".deleted")
    in_virtual_time(house.log_maintenance.run, DELAY_MS / 1000 - 1)
    assert house.names(".deleted") == before
    assert ThreadPool.REMOVAL not in house.env.lanes
    in_virtual_time(house.log_maintenance.run, DELAY_MS / 1000 + 6)
    assert house.names(".deleted") == []
    assert house.env.lanes.count(ThreadPool.REMOVAL) == 1, "all at once: the loop waits for none of them"
    assert not house.failures


def test_segment_removal_error_is_reported() -> None:
    house = RetentionFixture()
    house.apply_retention()
    house.fails = ".deleted"
    in_virtual_time(house.log_maintenance.run, DELAY_MS / 1000 + 6)
    assert [where for _, where in house.failures] == [house.log]


def test_retention_of_many_segments_yields_to_event_loop() -> None:
    house = RetentionFixture()
    clock = [0.0]

    def ticking() -> float:  # every look at the clock costs a millisecond
        clock[0] += 1.0
        return clock[0]

    turns: list[int] = []

    async def story() -> None:
        async with trio.open_nursery() as nursery:

            async def other() -> None:
                while True:
                    turns.append(len(house.log.segments))
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(other)
            await trio.lowlevel.checkpoint()
            house.env.monotonic_ms = ticking  # type: ignore[method-assign]
            await run_in_background(house.env, house.log_maintenance.apply_retention())
            nursery.cancel_scope.cancel()

    many = len(house.log.segments)
    in_virtual_time(story, 60)
    assert len(set(turns)) >= (many - len(house.log.segments)) // 3
