"""Snapshots of the metadata, written beside the turns."""

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
async def test_snapshots_are_written_beside_the_turns_and_what_they_cover_goes() -> None:
    ground = ControllerFixture(
        **{"metadata.log.max.record.bytes.between.snapshots": "1500", "metadata.max.retention.bytes": "4000"}
    )
    async with ground.controller() as controller:
        for number in range(60):
            assert code(await controller.submit(topic(f"t{number}"), 7)) == 0
        await trio.sleep(1)
        await controller.submit(topic("last"), 7)
        before = controller.image
        raft, store = controller._raft.machine, controller._store
        assert [name for name, _ in raft.log_summary.snapshots] == [s.end_offset for s in store.snapshots]
        assert raft.log_summary.start_offset == store.log.log_start_offset > 0
    names = ground.disk.session().listdir(LOG)
    snapshots = [n for n in names if n.endswith(".checkpoint")]
    assert 1 <= len(snapshots) <= 2
    assert min(n for n in names if n.endswith(".log")) >= snapshots[0][:20] + ".log"
    async with ground.controller(broker=False) as controller:
        assert controller.image.topics == before.topics
        assert controller.image.configs == before.configs
        assert controller.image.features == before.features


@virtual
async def test_an_hour_after_the_last_snapshot_the_next_commit_brings_one() -> None:
    ground = ControllerFixture()
    async with ground.controller() as controller:
        await controller.submit(topic("t"), 7)
        ground.env.wall_ms += 3_600_000
        await trio.sleep(1)
        assert len(controller._store.snapshots) == 1
        await controller.submit(topic("u"), 7)
        await trio.sleep(1)
        assert [s.end_offset for s in controller._store.snapshots][1:] == [controller.image.offset + 1]


@virtual
async def test_what_was_written_before_a_restart_counts_for_the_next_snapshot() -> None:
    ground = ControllerFixture(**{"metadata.log.max.record.bytes.between.snapshots": "3000"})
    for life in range(20):
        async with ground.controller(broker=life == 0) as controller:
            await controller.submit(topic(f"t{life}"), 7)
            await trio.sleep(1)
            if len(controller._store.snapshots) > 1:
                assert 2 < life < 12
                assert controller._store.bytes_since_snapshot < 3000
                return
    raise AssertionError("no snapshot was ever written")


@virtual
async def test_one_snapshot_is_written_at_a_time() -> None:
    ground = ControllerFixture(**{"metadata.log.max.record.bytes.between.snapshots": "500"})
    async with ground.controller() as controller:
        await trio.sleep(1)
        before = len(controller._store.snapshots)
        ground.env.blocked_pools[ThreadPool.FILES] = trio.Event()
        for number in range(12):
            await controller.submit(topic(f"t{number}"), 7)
        segments = [n for n in ground.env.disk.listdir(LOG) if n.endswith(".log")]
        for number in range(12, 24):
            await controller.submit(topic(f"t{number}"), 7)
        assert [n for n in ground.env.disk.listdir(LOG) if n.endswith(".log")] == segments, "no other was begun"
        ground.env.blocked_pools.pop(ThreadPool.FILES).set()
        await trio.sleep(1)
        assert len(controller._store.snapshots) == before + 1


@pytest.mark.behaviour("R-230")
@virtual
async def test_no_snapshot_is_taken_while_a_metadata_transaction_is_open() -> None:
    ground = ControllerFixture(**{"metadata.log.max.record.bytes.between.snapshots": "1000"})
    async with ground.controller() as controller:
        turns, store = controller._request_processor, controller._store
        await run_in_background(ground.env, turns.append([BeginTransactionRecord("x")]))
        await run_in_background(ground.env, turns.commit())
        await trio.sleep(1)
        before = list(store.snapshots)
        for number in range(20):
            await run_in_background(ground.env, turns.append([ConfigRecord(2, "t", f"k{number}", "v" * 100)]))
            await run_in_background(ground.env, turns.commit())
            await trio.sleep(1)
        assert store.snapshots == before
        await run_in_background(ground.env, turns.append([EndTransactionRecord()]))
        await run_in_background(ground.env, turns.commit())
        await trio.sleep(1)
        assert len(store.snapshots) == len(before) + 1


@virtual
async def test_a_snapshot_that_cannot_be_written_ends_it() -> None:
    ground = ControllerFixture(**{"metadata.log.max.record.bytes.between.snapshots": "1"})
    async with ground.controller() as controller:
        await trio.sleep(1)
        await controller.submit(topic("t"), 7)
        ground.env.thread_error = OSError("full")
        await trio.sleep(1)
        assert [str(e) for e in ground.failures] == ["full"]


@pytest.mark.parametrize("where", ["thread", "roll"])
@virtual
async def test_a_snapshot_for_which_descriptors_are_missing_is_left_out(where: str) -> None:
    """The process is short of something, and the disk is fine: nothing is lost, for the log has it all."""
    ground = ControllerFixture(**{"metadata.log.max.record.bytes.between.snapshots": "1500"})

    def short(call: str, path: str) -> OSError | None:
        at = ".checkpoint.part" if where == "thread" else ".log"
        return OSError(errno.EMFILE, "too many open files", path) if call == "open" and path.endswith(at) else None

    async with ground.controller() as controller:
        for number in range(30):
            ground.env.disk.fault = short if number < 15 else None
            assert code(await controller.submit(topic(f"t{number}"), 7)) == 0
            await trio.sleep(1)
            written_at = [s.end_offset for s in controller._store.snapshots]
            assert number >= 15 or written_at == [0]
        assert len(written_at) > 1
        assert not ground.failures
