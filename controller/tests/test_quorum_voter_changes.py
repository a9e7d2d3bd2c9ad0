"""Voter changes in a running quorum: adding, removing, moving."""

from __future__ import annotations

import pytest
import trio

from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.quorum_controller import QuorumController
from ottla.controller.tests.quorum_fixture import CLUSTER_ID, LISTENER, ControllerQuorum, endpoint
from ottla.controller.tests.test_quorum_controller import virtual
from ottla.controller.tests.test_quorum_of_controllers import make, with_broker
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import controller_registration
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse


def voters(controller: QuorumController) -> list[tuple[int, str]]:
    record = controller._store.quorum_records.voters
    return [] if record is None else sorted((v.voter_id, v.endpoints[0].host) for v in record.voters)


async def wait_for_voters(quorum: ControllerQuorum, wanted: list[tuple[int, str]]) -> None:
    with trio.fail_after(20):
        while True:
            if all(not m.is_starting and voters(m.running_controller) == wanted for m in quorum.nodes.values()):
                return
            await trio.sleep(0.01)


def adding(node_id: int) -> AddRaftVoterRequest:
    listener = endpoint(node_id)
    listeners = [Listener(listener.name, listener.host, listener.port)]
    return AddRaftVoterRequest(CLUSTER_ID, 2000, node_id, bytes([node_id] * 16), listeners)


@virtual
async def test_add_raft_voter_observer_becomes_voter() -> None:
    quorum = ControllerQuorum(1, observers=2)
    for node_id in (2, 3):
        quorum.nodes[node_id].may_vote = True
    async with quorum.running():
        leader = await quorum.leader()
        await with_broker(leader)
        await quorum.wait_converged()
        for node_id in (2, 3):
            answer = await leader.handle_raft_request(adding(node_id), 1, LISTENER)
            assert isinstance(answer, AddRaftVoterResponse)
            assert (answer.error_code, answer.error_message) == (0, None)
        await wait_for_voters(quorum, [(1, "host1"), (2, "host2"), (3, "host3")])
        again = await leader.handle_raft_request(adding(2), 1, LISTENER)
        assert isinstance(again, AddRaftVoterResponse)
        assert again.error_code == ErrorCode.DUPLICATE_VOTER
        await make(leader, "t")
        quorum.nodes[1].kill()
        following = await quorum.leader()
        await make(following, "u")
        quorum.start(1)
        await quorum.wait_converged()
        assert set(quorum.nodes[1].running_controller.image.topics) == {"t", "u"}


@virtual
async def test_add_raft_voter_unreachable_returns_request_timed_out() -> None:
    quorum = ControllerQuorum(1)
    async with quorum.running():
        leader = await quorum.leader()
        answer = await leader.handle_raft_request(_unreachable_voter(), 1, LISTENER)
        assert isinstance(answer, AddRaftVoterResponse)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert voters(leader) == [(1, "host1")]


def _unreachable_voter() -> AddRaftVoterRequest:
    listener = Listener(LISTENER, "host1", 9093)
    return AddRaftVoterRequest(CLUSTER_ID, 2000, 9, bytes([9] * 16), [listener])


@virtual
async def test_remove_raft_voter_leader_resigns_and_becomes_observer() -> None:
    quorum = ControllerQuorum(3)
    async with quorum.running():
        leader = await quorum.leader()
        await with_broker(leader)
        await quorum.wait_converged()
        gone = leader.node_id
        answer = await leader.handle_raft_request(
            RemoveRaftVoterRequest(CLUSTER_ID, gone, bytes([gone] * 16)), 0, LISTENER
        )
        assert isinstance(answer, RemoveRaftVoterResponse)
        assert answer.error_code == 0
        following = await quorum.leader()
        assert following.node_id != gone
        remaining = [(i, f"host{i}") for i in (1, 2, 3) if i != gone]
        await wait_for_voters(quorum, remaining)
        await make(following, "t")
        await quorum.wait_converged()
        assert set(leader.image.topics) == {"t"}, "it replicates as an observer"
        assert not leader.is_active


@virtual
async def test_auto_join_observers_become_voters() -> None:
    quorum = ControllerQuorum(1, observers=2)
    for node_id in (2, 3):
        quorum.nodes[node_id].may_vote = quorum.nodes[node_id].auto_joins = True
    async with quorum.running():
        await wait_for_voters(quorum, [(1, "host1"), (2, "host2"), (3, "host3")])
        leader = await quorum.leader()
        await with_broker(leader)
        quorum.nodes[leader.node_id].kill()
        await make(await quorum.leader(), "t")


@virtual
async def test_moved_voter_updates_its_endpoint() -> None:
    quorum = ControllerQuorum(3)
    async with quorum.running():
        leader = await quorum.leader()
        await quorum.wait_converged()
        moved = next(i for i in (1, 2, 3) if i != leader.node_id)
        quorum.nodes[moved].kill()
        quorum.nodes[moved].moved_to = 8
        quorum.start(moved)
        await wait_for_voters(quorum, sorted((i, "host8" if i == moved else f"host{i}") for i in (1, 2, 3)))


@virtual
async def test_moved_single_voter_updates_its_endpoint_as_leader() -> None:
    quorum = ControllerQuorum(1)
    async with quorum.running():
        await quorum.leader()
    quorum.nodes[1].moved_to = 8
    async with quorum.running():
        leader = await quorum.leader()
        assert voters(leader) == [(1, "host8")]
        assert leader.leader_address() == ("host8", 9093)


async def upgrade_kraft_version(controller: QuorumController, *, validate_only: bool = False) -> UpdateFeaturesResponse:
    update = FeatureUpdateKey("kraft.version", 1)
    answer = await controller.submit(UpdateFeaturesRequest(1000, [update], validate_only), 2)
    assert isinstance(answer, UpdateFeaturesResponse)
    return answer


@pytest.mark.behaviour("R-244")
@virtual
async def test_kraft_version_upgrade_records_static_voters() -> None:
    quorum = ControllerQuorum(3, static=True)
    async with quorum.running():
        leader = await quorum.leader()
        await quorum.wait_converged()
        for node_id in quorum.nodes:
            features = [
                controller_registration.Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()
            ]
            here = [controller_registration.Listener(*endpoint(node_id), 0)]
            await leader.submit(
                controller_registration.ControllerRegistrationRequest(
                    node_id, bytes([node_id] * 16), False, here, features
                )
            )
        assert (await upgrade_kraft_version(leader)).error_code == ErrorCode.INVALID_UPDATE_VERSION, (
            "versions of the voters are unknown"
        )
        await trio.sleep(5)
        end = leader.log_end_offset
        assert (await upgrade_kraft_version(leader, validate_only=True)).error_code == 0
        assert leader.kraft_version == 0
        answer = await upgrade_kraft_version(leader)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert leader.kraft_version == leader.machine.kraft_version == 1
        assert leader.log_end_offset >= end + 3
        wanted = [(1, "host1"), (2, "host2"), (3, "host3")]
        await wait_for_voters(quorum, wanted)
        assert (await upgrade_kraft_version(leader)).error_code == 0, "the version is already active"
    async with quorum.running():
        leader = await quorum.leader()
        assert leader.kraft_version == 1
        assert voters(leader) == wanted
