"""Metadata snapshots, generated beside the processing of requests."""

from __future__ import annotations

import errno

import pytest
import trio

from ottla.controller.tests.controller_fixture import ControllerFixture
from ottla.controller.tests.test_quorum_controller import LOG, code, topic, virtual
from ottla.env.env import ThreadPool
from ottla.jobs.time_slice import run_in_background
from ottla.wire.messages.metadata_records import BeginTransactionRecord, ConfigRecord, EndTransactionRecord


@virtual
async def test_snapshot_generator_writes_snapshots_and_removes_covered_log() -> None:
    fixture = ControllerFixture(
        **{"metadata.log.max.record.bytes.between.snapshots": "1500", "metadata.max.retention.bytes": "4000"}
    )
    async with fixture.controller() as controller:
        for number in range(60):
            assert code(await controller.submit(topic(f"t{number}"), 7)) == 0
        await trio.sleep(1)
        await controller.submit(topic("last"), 7)
        before = controller.image
        raft, store = controller._raft.machine, controller._store
        assert [name for name, _ in raft.log_summary.snapshots] == [s.end_offset for s in store.snapshots]
        assert raft.log_summary.start_offset == store.log.log_start_offset > 0
    names = fixture.disk.session().listdir(LOG)
    snapshots = [n for n in names if n.endswith(".checkpoint")]
    assert 1 <= len(snapshots) <= 2
    assert min(n for n in names if n.endswith(".log")) >= snapshots[0][:20] + ".log"
    async with fixture.controller(broker=False) as controller:
        assert controller.image.topics == before.topics
        assert controller.image.configs == before.configs
        assert controller.image.features == before.features


@virtual
async def test_snapshot_is_generated_by_first_commit_after_one_hour() -> None:
    fixture = ControllerFixture()
    async with fixture.controller() as controller:
        await controller.submit(topic("t"), 7)
        fixture.env.wall_ms += 3_600_000
        await trio.sleep(1)
        assert len(controller._store.snapshots) == 1
        await controller.submit(topic("u"), 7)
        await trio.sleep(1)
        assert [s.end_offset for s in controller._store.snapshots][1:] == [controller.image.offset + 1]


@virtual
async def test_bytes_since_snapshot_include_records_before_a_restart() -> None:
    fixture = ControllerFixture(**{"metadata.log.max.record.bytes.between.snapshots": "3000"})
    for run in range(20):
        async with fixture.controller(broker=run == 0) as controller:
            await controller.submit(topic(f"t{run}"), 7)
            await trio.sleep(1)
            if len(controller._store.snapshots) > 1:
                assert 2 < run < 12
                assert controller._store.bytes_since_snapshot < 3000
                return
    raise AssertionError("no snapshot was ever written")


@virtual
async def test_snapshot_generator_writes_one_snapshot_at_a_time() -> None:
    fixture = ControllerFixture(**{"metadata.log.max.record.bytes.between.snapshots": "500"})
    async with fixture.controller() as controller:
        await trio.sleep(1)
        before = len(controller._store.snapshots)
        fixture.env.blocked_pools[ThreadPool.FILES] = trio.Event()
        for number in range(12):
            await controller.submit(topic(f"t{number}"), 7)
        segments = [n for n in fixture.env.disk.listdir(LOG) if n.endswith(".log")]
        for number in range(12, 24):
            await controller.submit(topic(f"t{number}"), 7)
        assert [n for n in fixture.env.disk.listdir(LOG) if n.endswith(".log")] == segments, (
            "no second snapshot was started"
        )
        fixture.env.blocked_pools.pop(ThreadPool.FILES).set()
        await trio.sleep(1)
        assert len(controller._store.snapshots) == before + 1


@pytest.mark.behaviour("R-230")
@virtual
async def test_snapshot_generator_waits_for_end_of_metadata_transaction() -> None:
    fixture = ControllerFixture(**{"metadata.log.max.record.bytes.between.snapshots": "1000"})
    async with fixture.controller() as controller:
        processor, store = controller._request_processor, controller._store
        await run_in_background(fixture.env, processor.append([BeginTransactionRecord("x")]))
        await run_in_background(fixture.env, processor.commit())
        await trio.sleep(1)
        before = list(store.snapshots)
        for number in range(20):
            await run_in_background(fixture.env, processor.append([ConfigRecord(2, "t", f"k{number}", "v" * 100)]))
            await run_in_background(fixture.env, processor.commit())
            await trio.sleep(1)
        assert store.snapshots == before
        await run_in_background(fixture.env, processor.append([EndTransactionRecord()]))
        await run_in_background(fixture.env, processor.commit())
        await trio.sleep(1)
        assert len(store.snapshots) == len(before) + 1


@virtual
async def test_failed_snapshot_write_ends_the_controller() -> None:
    fixture = ControllerFixture(**{"metadata.log.max.record.bytes.between.snapshots": "1"})
    async with fixture.controller() as controller:
        await trio.sleep(1)
        await controller.submit(topic("t"), 7)
        fixture.env.thread_error = OSError("full")
        await trio.sleep(1)
        assert [str(e) for e in fixture.failures] == ["full"]


@pytest.mark.parametrize("where", ["thread", "roll"])
@virtual
async def test_snapshot_without_file_descriptors_is_skipped(where: str) -> None:
    """A shortage of the process, not a failure of the disk: the log still contains all records."""
    fixture = ControllerFixture(**{"metadata.log.max.record.bytes.between.snapshots": "1500"})

    def short(call: str, path: str) -> OSError | None:
        at = ".checkpoint.part" if where == "thread" else ".log"
        return OSError(errno.EMFILE, "too many open files", path) if call == "open" and path.endswith(at) else None

    async with fixture.controller() as controller:
        for number in range(30):
            fixture.env.disk.fault = short if number < 15 else None
            assert code(await controller.submit(topic(f"t{number}"), 7)) == 0
            await trio.sleep(1)
            written_at = [s.end_offset for s in controller._store.snapshots]
            assert number >= 15 or written_at == [0]
        assert len(written_at) > 1
        assert not fixture.failures
