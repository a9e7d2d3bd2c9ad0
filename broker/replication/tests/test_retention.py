"""Retention of segments: the log start is checkpointed first, then segments are renamed, later deleted."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import trio

from ottla.broker.replication.log_maintenance import INITIAL_RETENTION_DELAY_S, LogMaintenance
from ottla.broker.storage.tests.test_background_tasks import SETTINGS, BackgroundEnv, in_virtual_time, log_with_storage
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
        _, self.disk, self.log_dirs, self.log = log_with_storage()
        self.log.flush()
        self.log.update_config(replace(SETTINGS, retention_bytes=3000, file_delete_delay_ms=DELAY_MS))
        self.env = RecordedThreads()
        self.failures: list[Any] = []
        self.calls: list[tuple[str, str]] = []
        self.disk.fault = self.received
        self.fails: str | None = None
        self.log_maintenance = LogMaintenance(
            cast("Env", self.env),
            self.log_dirs,
            300_000,
            86_400_000,
            lambda *x: self.failures.append(x),
            lambda _: None,
        )

    def received(self, label: str, path: str) -> OSError | None:
        self.calls.append((label, path.rpartition("/")[2]))
        return OSError(errno.EIO, "injected") if self.fails is not None and self.fails in path else None

    def apply_retention(self) -> None:
        in_virtual_time(lambda: run_in_background(self.env, self.log_maintenance.apply_retention()), 10)

    def names(self, ending: str) -> list[str]:
        return [name for name in self.disk.listdir(self.log.directory) if name.endswith(ending)]


def test_log_start_is_checkpointed_before_segments_are_renamed() -> None:
    fixture = RetentionFixture()
    fixture.apply_retention()
    assert fixture.log.log_start_offset == fixture.log.segments.base_offsets[0] > 0
    assert fixture.log.size_bytes < 5000
    renamed = [n for n, call in enumerate(fixture.calls) if call[0] == "rename" and ".log" in call[1]]
    noted = [n for n, call in enumerate(fixture.calls) if "log-start-offset-checkpoint" in call[1]]
    assert max(noted) < min(renamed)
    assert fixture.names(".log.deleted")


def test_log_start_checkpoint_error_keeps_segments() -> None:
    fixture = RetentionFixture()
    fixture.fails = "log-start-offset-checkpoint"
    fixture.apply_retention()
    assert not fixture.names(".deleted")
    assert len(fixture.failures) == 1


def test_retention_runs_after_initial_delay_and_each_interval() -> None:
    fixture = RetentionFixture()
    looks: list[float] = []

    def retain() -> Job[None]:
        looks.append(trio.current_time())
        yield None

    fixture.log_maintenance.apply_retention = retain  # type: ignore[method-assign]
    in_virtual_time(fixture.log_maintenance.run_retention, 1000)
    assert looks == pytest.approx([INITIAL_RETENTION_DELAY_S, INITIAL_RETENTION_DELAY_S + 300, 630, 930])


def test_deleted_segments_are_removed_in_a_thread_after_delay() -> None:
    fixture = RetentionFixture()
    fixture.apply_retention()
    before = fixture.names(".deleted")
    in_virtual_time(fixture.log_maintenance.run, DELAY_MS / 1000 - 1)
    assert fixture.names(".deleted") == before
    assert ThreadPool.REMOVAL not in fixture.env.lanes
    in_virtual_time(fixture.log_maintenance.run, DELAY_MS / 1000 + 6)
    assert fixture.names(".deleted") == []
    assert fixture.env.lanes.count(ThreadPool.REMOVAL) == 1, "all at once: the loop waits for none of them"
    assert not fixture.failures


def test_segment_removal_error_is_reported() -> None:
    fixture = RetentionFixture()
    fixture.apply_retention()
    fixture.fails = ".deleted"
    in_virtual_time(fixture.log_maintenance.run, DELAY_MS / 1000 + 6)
    assert [where for _, where in fixture.failures] == [fixture.log]


def test_retention_of_many_segments_yields_to_event_loop() -> None:
    fixture = RetentionFixture()
    clock = [0.0]

    def ticking() -> float:  # every look at the clock costs a millisecond
        clock[0] += 1.0
        return clock[0]

    turns: list[int] = []

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:

            async def other() -> None:
                while True:
                    turns.append(len(fixture.log.segments))
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(other)
            await trio.lowlevel.checkpoint()
            fixture.env.monotonic_ms = ticking  # type: ignore[method-assign]
            await run_in_background(fixture.env, fixture.log_maintenance.apply_retention())
            nursery.cancel_scope.cancel()

    many = len(fixture.log.segments)
    in_virtual_time(scenario, 60)
    assert len(set(turns)) >= (many - len(fixture.log.segments)) // 3
