"""Static voters with new disks: voter state in the store, and whole controllers."""

from __future__ import annotations

import random

import pytest
import trio

from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.state_machine.events import HardState, ReplicaKey, VoterState
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.controller.raft.store.quorum_state_file import QuorumStateFile
from ottla.controller.raft.store.tests.test_metadata_store import LOG, LeaderMetadataStore, formatted
from ottla.controller.tests.quorum_fixture import CLUSTER_ID, ControllerQuorum, ControllerQuorumNode
from ottla.controller.tests.test_quorum_controller import virtual
from ottla.controller.tests.test_quorum_of_controllers import make, with_broker
from ottla.env.memory_disk import MemoryDisk
from ottla.log.directory.meta_properties import MetaProperties

AT = {i: ListenerEndpoint("CONTROLLER", f"host{i}", 9093) for i in (1, 2, 3)}
ONE = QuorumConfig(endpoints=(AT[1],), static_voters=((1, AT[1]),))
THREE = QuorumConfig(endpoints=(AT[1],), static_voters=tuple(AT.items()))
OTHERS = QuorumConfig(endpoints=(AT[1],), static_voters=tuple(AT.items())[1:])
DYNAMIC = QuorumConfig(endpoints=(AT[1],), bootstrap_servers=(("host2", 9093), ("host3", 9093)))


@pytest.mark.parametrize(
    ("quorum", "age"),
    [
        (THREE, VoterState.EMPTY_LOG),
        (ONE, VoterState.NORMAL),
        (OTHERS, VoterState.NORMAL),
        (DYNAMIC, VoterState.NORMAL),
    ],
)
def test_initial_voter_state_is_empty_log_for_several_static_voters(quorum: QuorumConfig, age: VoterState) -> None:
    disk = MemoryDisk(random.Random(1), lambda: 0).session()
    store = MetadataStore(disk, "/data", MetaProperties(CLUSTER_ID, 1, bytes(16)), 0)
    assert store.initial_hard_state(quorum) == HardState(0, voter_state=age)


@pytest.mark.parametrize(
    ("written", "quorum", "age"),
    [
        (HardState(3, 2), THREE, VoterState.NORMAL),  # written by Kafka or an older Ottla
        (HardState(3, 2, None, VoterState.RECOVERING), THREE, VoterState.RECOVERING),
        (HardState(1, -1, ReplicaKey(1), VoterState.EMPTY_LOG), THREE, VoterState.EMPTY_LOG),
        (HardState(3, 2, None, VoterState.RECOVERING), ONE, VoterState.NORMAL),  # no other node remembers
    ],
)
def test_initial_voter_state_is_read_from_quorum_state(
    written: HardState, quorum: QuorumConfig, age: VoterState
) -> None:
    disk = MemoryDisk(random.Random(1), lambda: 0).session()
    disk.makedirs(LOG)
    QuorumStateFile(written).write(disk, f"{LOG}/quorum-state")
    store = MetadataStore(disk, "/data", MetaProperties(CLUSTER_ID, 1, bytes(16)), 0)
    assert store.initial_hard_state(quorum) == written._replace(voter_state=age)


def test_initial_voter_state_with_log_or_snapshot_is_normal() -> None:
    disk, identity = formatted()
    session = disk.session()
    assert MetadataStore(session, "/data", identity, 0).initial_hard_state(THREE).voter_state == VoterState.NORMAL, (
        "voters are stored in records"
    )
    led = LeaderMetadataStore(session, identity)
    led.add(3)
    led.store.close()
    session.unlink(f"{LOG}/quorum-state")
    assert MetadataStore(session, "/data", identity, 0).initial_hard_state(THREE).voter_state == VoterState.NORMAL


# ------------------------------------------------------------------ whole controllers


def wipe(quorum: ControllerQuorum, number: int) -> None:
    """Replace the disk of a node by an empty formatted one."""
    member = quorum.nodes[number] = ControllerQuorumNode(quorum, number)
    member.identity = MetaProperties(CLUSTER_ID, number, bytes([9] * 15 + [number]))
    session = member.disk.session()
    session.makedirs(LOG)
    session.fsync_dir("/data")


def age(quorum: ControllerQuorum, number: int) -> VoterState:
    return quorum.nodes[number].running_controller._raft.machine.hard_state.voter_state


@virtual
async def test_voter_with_new_disk_votes_again_after_catching_up() -> None:
    quorum = ControllerQuorum(3, static=True)
    async with quorum.running():
        old = await quorum.leader()
        await with_broker(old)
        await make(old, "t", "u")
        await quorum.wait_converged()
        assert {age(quorum, i) for i in quorum.nodes} == {VoterState.NORMAL}
        lost, third = (i for i in quorum.nodes if i != old.node_id)
        quorum.nodes[lost].kill()
        wipe(quorum, lost)
        quorum.start(lost)
        await quorum.wait_converged()
        await trio.sleep(1)
        assert age(quorum, lost) == VoterState.NORMAL
        quorum.nodes[third].kill()
        await make(old, "v")
        quorum.nodes[old.node_id].kill()
        quorum.start(third)
        new = await quorum.leader()
        assert new.node_id == lost, "only this node has the last committed records"
        assert set(new.image.topics) == {"t", "u", "v"}


@virtual
async def test_voter_with_new_disk_elects_no_leader_without_committed_records() -> None:
    quorum = ControllerQuorum(3, static=True)
    async with quorum.running():
        old = await quorum.leader()
        await with_broker(old)
        await make(old, "t")
        await quorum.wait_converged()
        lost, third = (i for i in quorum.nodes if i != old.node_id)
        quorum.nodes[third].kill()
        await make(old, "u")
        for number in (lost, old.node_id):
            quorum.nodes[number].kill()
        wipe(quorum, lost)
        quorum.start(lost)
        quorum.start(third)
        for _ in range(2):
            await trio.sleep(15)
            assert age(quorum, lost) == VoterState.RECOVERING
            assert not any(quorum.nodes[i].running_controller.is_active for i in (lost, third)), (
                "u is on the disk of the old leader"
            )
            quorum.nodes[lost].kill()
            quorum.start(lost)
            await trio.sleep(0.1)
        quorum.start(old.node_id)
        await quorum.leader()
        await quorum.wait_converged()
        assert all(set(m.running_controller.image.topics) == {"t", "u"} for m in quorum.nodes.values())
        await trio.sleep(1)
        assert age(quorum, lost) == VoterState.NORMAL
