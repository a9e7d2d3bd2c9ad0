"""Background tasks in virtual time: scrubbing, throttling and flushing of idle files."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import trio
import trio.testing

from ottla.broker.replication.hosted_partition import HostedPartition, IsrDependencies
from ottla.broker.replication.log_maintenance import LogMaintenance
from ottla.broker.storage.log_dirs import LogDirs
from ottla.broker.storage.scrubber import SCRUB_INTERVAL_S, Scrubber
from ottla.broker.storage.throttled_compaction import ThrottledCompaction, run_compaction
from ottla.controller.metadata.image import PartitionRegistration
from ottla.env.env import Env, WorkerContext
from ottla.env.memory_disk import DiskSession, MemoryDisk
from ottla.jobs.time_slice import run_in_background
from ottla.log.cleaner.log_to_clean import find_log_to_clean, plan_compaction
from ottla.log.directory.meta_properties import MetaProperties
from ottla.log.log_config import NO_TIERING, LogConfig, TieringConfig
from ottla.log.partition_log import PartitionLog
from ottla.wire.record_batch.records import NewRecord, build_batch

NOW = 1_000_000
SETTINGS = LogConfig(segment_bytes=2000, index_interval_bytes=200)


class BackgroundEnv:
    """Part of `Env` that background work needs."""

    def now_ms(self) -> int:
        return NOW + int(trio.current_time() * 1000)

    def monotonic_ms(self) -> float:
        return trio.current_time() * 1000

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def in_thread(self, work: Callable[[], Any], lane: Any = None) -> Any:
        await trio.lowlevel.checkpoint()
        return work()


def log_with_storage() -> tuple[MemoryDisk, DiskSession, LogDirs, PartitionLog]:
    memory = MemoryDisk(random.Random(1), lambda: NOW)
    disk = memory.session()
    storage = LogDirs(disk, ["/data"])
    storage.lock()
    storage.initialize(MetaProperties("c", 1, bytes(16)), NOW, lambda: bytes(16))
    log = storage.directories[0].create_partition("t", 0, bytes(16), SETTINGS, NOW)
    for number in range(120):
        log.append_as_leader(bytearray(build_batch([NewRecord(b"k%d" % (number % 7), bytes(100), NOW)])), 0, NOW)
    log.set_high_watermark(log.log_end_offset)
    return memory, disk, storage, log


def in_virtual_time(work: Callable[[], Awaitable[Any]], for_s: float) -> float:
    """Run a task for a time; return the virtual seconds it took."""

    async def main() -> float:
        with trio.move_on_after(for_s):
            await work()
        return trio.current_time()

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_scrubber_reads_each_cold_segment_once_a_day_at_its_rate() -> None:
    memory, _, storage, log = log_with_storage()
    log.flush()
    cold = len(log.segments) - 1
    bytes_cold = sum(s.size_bytes for s in log.segments[:-1])
    scrubber = Scrubber(cast("Env", BackgroundEnv()), storage, lambda: 500)
    in_virtual_time(scrubber.run, bytes_cold / 500 * 0.5)
    assert 0 < scrubber.segments_read < cold
    scrubber = Scrubber(cast("Env", BackgroundEnv()), storage, lambda: 500)
    in_virtual_time(scrubber.run, SCRUB_INTERVAL_S / 2)
    assert scrubber.segments_read == cold
    memory.files[log.segments[2].path + ".log"].data[70] ^= 1
    in_virtual_time(scrubber.run, SCRUB_INTERVAL_S * 2.5)
    assert scrubber.segments_read == 4 * cold
    assert scrubber.damage_count == 1, "told once, not each day"
    assert log.segments[2].damaged_ranges[0][0] == 0


def test_scrubber_with_rate_0_reads_no_segment() -> None:
    _, _, storage, log = log_with_storage()
    log.flush()
    scrubber = Scrubber(cast("Env", BackgroundEnv()), storage, lambda: 0)
    in_virtual_time(scrubber.run, 3600)
    assert scrubber.segments_read == 0


def test_idle_log_is_flushed_once_and_its_files_closed() -> None:
    _, disk, storage, log = log_with_storage()
    failures: list[object] = []
    flusher = LogMaintenance(
        cast("Env", BackgroundEnv()), storage, 300_000, 86_400_000, lambda *x: failures.append(x), lambda work: None
    )
    synced: list[str] = []

    def watch(call: str, path: str) -> None:
        if call == "fsync":
            synced.append(path)

    disk.fault = watch
    in_virtual_time(flusher.run, 60)
    assert log.recovery_point == log.log_end_offset == 120
    assert synced.count(log.segments.active.path + ".log") == 1
    assert all(s._file is None for s in log.segments)
    assert not failures


def test_checkpoints_are_durable_before_segments_are_removed() -> None:
    memory, disk, storage, log = log_with_storage()
    env = cast("Env", BackgroundEnv())
    flusher = LogMaintenance(env, storage, 300_000, 86_400_000, lambda *_: None, lambda _: None)
    log.update_config(replace(SETTINGS, retention_bytes=1, retention_ms=-1))
    log.set_high_watermark(120)
    reported: list[bytes] = []

    def watch(call: str, path: str) -> None:
        if call == "rename" and path.endswith(".log"):
            reported.append(bytes(memory.files["/data/log-start-offset-checkpoint"].durable))

    disk.fault = watch
    in_virtual_time(lambda: run_in_background(env, flusher.apply_retention()), 60)
    assert reported[0] == b"0\n1\nt 0 %d\n" % log.log_start_offset
    assert log.log_start_offset == log.segments.base_offsets[0] > 0


@pytest.mark.parametrize("tiering", [NO_TIERING, TieringConfig(True, True, -1, -1)], ids=["local", "tiered"])
def test_segments_below_a_log_start_that_another_task_advanced_are_deleted(tiering: TieringConfig) -> None:
    """A follower takes the log start of its leader, and remote retention advances it without local deletions."""
    _, _, storage, log = log_with_storage()
    env = cast("Env", BackgroundEnv())
    maintenance = LogMaintenance(env, storage, 300_000, 86_400_000, lambda *_: None, lambda _: None)
    log.update_config(replace(SETTINGS, retention_bytes=-1, retention_ms=-1, tiering=tiering))
    bases = list(log.segments.base_offsets)
    log.maybe_increment_log_start_offset(bases[2] + 1)
    in_virtual_time(lambda: run_in_background(env, maintenance.apply_retention()), 60)
    assert log.segments.base_offsets == bases[2:]


@pytest.mark.parametrize("rate", [1000.0, 50_000.0])
def test_compaction_pass_is_throttled_to_its_rate(rate: float) -> None:
    _, disk, _, log = log_with_storage()
    log.update_config(LogConfig(segment_bytes=2000, index_interval_bytes=200, compact=True))
    found = find_log_to_clean(log, NOW)
    assert found is not None
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds

    context = WorkerContext(disk, lambda: clock[0], pause)
    stats = run_compaction(context, ThrottledCompaction(plan_compaction(found, NOW, 1 << 20), rate)).stats
    least = stats.bytes_read + stats.bytes_written
    assert least / rate <= clock[0] <= 4 * least / rate
    began_s = clock[0]
    assert (
        run_compaction(context, ThrottledCompaction(plan_compaction(found, NOW, 1 << 20), 1.7976931348623157e308)).stats
        == stats
    )
    assert clock[0] == began_s, "the largest rate has no pauses"


def test_flush_overtaken_by_truncation_is_repeated() -> None:
    _, _, storage, log = log_with_storage()
    log.update_config(replace(SETTINGS, flush_messages=1))
    log.flush()
    replica = HostedPartition(log, bytes(16), lambda _: None, lambda _: None, IsrDependencies(30_000, lambda *_: True))
    replica.apply_partition_state(
        1, PartitionRegistration((1,), (1,), leader=1, leader_epoch=0, partition_epoch=0), NOW
    )
    syncs: list[int] = []

    class Overtaken(BackgroundEnv):
        async def in_thread(self, work: Callable[[], Any], lane: Any = None) -> Any:
            syncs.append(log.log_end_offset)
            if len(syncs) == 1:
                log.truncate_to(119, NOW)
                log.append_as_leader(bytearray(build_batch([NewRecord(b"k", b"v", NOW)])), 0, NOW)
            return await super().in_thread(work, lane)

    works: list[Callable[[], Awaitable[None]]] = []
    env = cast("Env", Overtaken())
    flusher = LogMaintenance(env, storage, 300_000, 86_400_000, lambda *_: None, works.append)
    log.append_as_leader(bytearray(build_batch([NewRecord(b"k", b"v", NOW)])), 0, NOW)
    log.truncate_to(120, NOW)
    flusher.request_flush(replica)
    assert len(works) == 1
    in_virtual_time(works[0], 60)
    assert (log.recovery_point, log.high_watermark, log.log_end_offset) == (120, 120, 120)
    assert syncs == [120, 120]
    assert not replica.is_flushing
