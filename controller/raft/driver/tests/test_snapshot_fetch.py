"""Fetch of a snapshot from the leader in chunks by a node behind the start of the log."""

from __future__ import annotations

import pytest
import trio

from ottla.controller.metadata.snapshot_files import SnapshotId
from ottla.controller.raft.store import metadata_store
from ottla.controller.tests.quorum_fixture import ControllerQuorum
from ottla.controller.tests.test_quorum_controller import virtual
from ottla.controller.tests.test_quorum_of_controllers import make, with_broker
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

SMALL = {"metadata.log.max.record.bytes.between.snapshots": "1500", "metadata.max.retention.bytes": "3000"}


@pytest.mark.behaviour("R-234")
@virtual
async def test_follower_behind_log_start_fetches_snapshot_and_publishes_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_part = metadata_store.MetadataStore.read_snapshot_chunk
    monkeypatch.setattr(
        metadata_store.MetadataStore, "read_snapshot_chunk", lambda self, name, at, _: read_part(self, name, at, 500)
    )
    quorum = ControllerQuorum(3, observers=1, **SMALL)
    async with quorum.running():
        leader = await quorum.leader()
        await with_broker(leader)
        await make(leader, "kept", "gone")
        await quorum.wait_converged()
        late = next(i for i in (1, 2, 3) if i != leader.node_id)
        known = quorum.nodes[late].running_controller.image
        assert set(known.topics) == {"kept", "gone"}
        for node_id in (late, 4):
            quorum.partitioned_nodes.add(node_id)
        answer = await leader.submit(DeleteTopicsRequest([DeleteTopicState("gone")], timeout_ms=1000), 6)
        assert answer.responses[0].error_code == 0
        for number in range(40):
            await make(leader, f"t{number}")
        await trio.sleep(2)
        await make(leader, "last")
        assert leader._store.log.log_start_offset > known.offset + 1
        counts = {i: len(quorum.nodes[i].published) for i in (late, 4)}
        quorum.partitioned_nodes.clear()
        await quorum.wait_converged()
        for node_id in (late, 4):
            member = quorum.nodes[node_id]
            assert member.running_controller._store.log.log_start_offset > known.offset + 1, (
                "the log starts after the snapshot"
            )
            assert member.running_controller.image.configs == leader.image.configs
            assert member.running_controller.image.brokers == leader.image.brokers
            changes = {n: d for _, delta in member.published[counts[node_id] :] for n, d in delta.topics.items()}
            assert "kept" not in changes
            assert changes["gone"].new is None
            assert {"t0", "t39", "last"} <= set(changes)
        await make(leader, "after")
        await quorum.wait_converged()
        quorum.nodes[late].kill()
        quorum.start(late)
        await quorum.wait_converged()
        assert "after" in quorum.nodes[late].running_controller.image.topics
        assert not any(member.failures for member in quorum.nodes.values())


@virtual
async def test_repeated_snapshot_fetch_is_written_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_part = metadata_store.MetadataStore.read_snapshot_chunk
    monkeypatch.setattr(
        metadata_store.MetadataStore, "read_snapshot_chunk", lambda self, name, at, _: read_part(self, name, at, 100)
    )
    quorum = ControllerQuorum(3, observers=1, **SMALL)
    async with quorum.running(1, 2, 3):
        leader = await quorum.leader()
        await with_broker(leader)
        for number in range(40):
            await make(leader, f"t{number}")
        quorum.start(4)
        for _ in range(6):
            await trio.sleep(0.011)
            raft = quorum.nodes[4].running_controller._raft
            assert raft.machine.requests.loading_snapshot is not None
            raft._nursery.start_soon(raft._load_snapshot, SnapshotId(*raft.machine.requests.loading_snapshot))
        await quorum.wait_converged()
        assert not quorum.nodes[4].failures
        assert set(quorum.nodes[4].running_controller.image.topics) == {f"t{n}" for n in range(40)}


@virtual
async def test_observer_starts_from_snapshot_and_follows_next_leader() -> None:
    quorum = ControllerQuorum(3, observers=1, **SMALL)
    async with quorum.running(1, 2, 3):
        leader = await quorum.leader()
        await with_broker(leader)
        for number in range(40):
            await make(leader, f"t{number}")
        await quorum.wait_converged()
        quorum.start(4)
        await quorum.wait_converged()
        quorum.nodes[leader.node_id].kill()
        following = await quorum.leader()
        await make(following, "more")
        await quorum.wait_converged()
        assert "more" in quorum.nodes[4].running_controller.image.topics
