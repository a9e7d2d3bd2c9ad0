"""Quorum of controllers: one active controller, equal images, durable responses after failures."""

from __future__ import annotations

import pytest
import trio

from ottla.controller.quorum_controller import QuorumController
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.tests.controller_fixture import register_broker
from ottla.controller.tests.quorum_fixture import CLUSTER_ID, ControllerQuorum, ControllerQuorumNode
from ottla.controller.tests.test_quorum_controller import code, topic, virtual
from ottla.jobs.time_slice import run_in_background
from ottla.wire.api_keys import ApiKey, response_class
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
    LeaderEndpoint,
)
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from ottla.wire.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochRequestPartitionData,
    EndQuorumEpochRequestTopicData,
)
from ottla.wire.messages.metadata_records import BeginTransactionRecord, TopicRecord
from ottla.wire.messages.vote import VoteRequest, VoteRequestPartitionData, VoteRequestTopicData


async def with_broker(controller: QuorumController) -> None:
    await register_broker(controller)


async def make(controller: QuorumController, *names: str) -> None:
    for name in names:
        assert code(await controller.submit(topic(name), 7)) == 0


@pytest.mark.parametrize("static", [False, True])
@virtual
async def test_quorum_elects_one_controller_and_all_replay_its_decisions(static: bool) -> None:
    quorum = ControllerQuorum(3, static=static)
    async with quorum.running():
        leader = await quorum.leader(0.5)  # a new quorum: no former leader is awaited
        for member in quorum.nodes.values():
            await member.running_controller.wait_ready()
        await with_broker(leader)
        await make(leader, "t", "u")
        await quorum.wait_converged()
        for member in quorum.nodes.values():
            here = member.running_controller
            assert set(here.image.topics) == {"t", "u"}
            assert here.image.brokers == leader.image.brokers
            assert here.image.features == leader.image.features
            assert here.image.configs == leader.image.configs
            assert (here.leader_id, here.epoch) == (leader.node_id, leader.epoch)
            assert here.leader_address() == (f"host{leader.node_id}", 9093)
            assert here.is_active == (here is leader)
            assert here.kraft_version == (0 if static else 1)
            made = [name for _, delta in member.published for name in delta.topics]
            assert made == ["t", "u"], "each publication is received once, in order"
            if here is not leader:
                with pytest.raises(ProtocolError) as caught:
                    await here.submit(topic("v"), 7)
                assert caught.value.code == ErrorCode.NOT_CONTROLLER


@virtual
async def test_answered_changes_survive_repeated_controller_failures() -> None:
    quorum = ControllerQuorum(3)
    names: list[str] = []
    async with quorum.running():
        for turn in range(6):
            leader = await quorum.leader()
            if turn == 0:
                await with_broker(leader)
            names.append(f"t{turn}")
            await make(leader, names[-1])
            quorum.nodes[leader.node_id].kill()
            following = await quorum.leader()
            assert following.node_id != leader.node_id
            assert following.epoch > leader.epoch
            assert set(following.image.topics) == set(names)
            quorum.start(leader.node_id)
            await quorum.wait_converged()
        assert not any(member.failures for member in quorum.nodes.values())
    logs = [quorum_log(quorum, i) for i in quorum.nodes]
    shortest = min(map(len, logs))
    assert logs[0][:shortest] == logs[1][:shortest] == logs[2][:shortest]


def quorum_log(quorum: ControllerQuorum, node_id: int) -> bytes:
    session = quorum.nodes[node_id].disk.session()
    file = session.open("/data/__cluster_metadata-0/00000000000000000000.log")
    return file.pread(file.size(), 0)


@virtual
async def test_killed_controller_is_replaced_at_once_and_isolated_one_after_timeout() -> None:
    for failure, least, most in (("killed", 0.0, 0.4), ("cut", 1.5, 6.0)):
        quorum = ControllerQuorum(3)
        async with quorum.running():
            for _ in range(3):
                leader = await quorum.leader()
                await quorum.wait_converged()
                await trio.sleep(3)
                began = trio.current_time()
                if failure == "killed":
                    quorum.nodes[leader.node_id].kill()
                else:
                    quorum.partitioned_nodes = {leader.node_id}
                await quorum.leader()
                assert least < trio.current_time() - began < most
                if failure == "killed":
                    quorum.start(leader.node_id)
                quorum.partitioned_nodes = set()


@virtual
async def test_isolated_controller_loses_uncommitted_changes() -> None:
    quorum = ControllerQuorum(3)
    async with quorum.running():
        old = await quorum.leader()
        await with_broker(old)
        await make(old, "kept")
        await quorum.wait_converged()
        quorum.partitioned_nodes.add(old.node_id)
        lost = old.enqueue(topic("lost"), 7)
        late = old.enqueue(topic("late"), 7)
        new = await quorum.leader()
        assert new is not old
        assert "lost" not in old.image.topics
        await make(new, "new")
        with trio.fail_after(10):
            for future in (lost, late):
                with pytest.raises(ProtocolError) as caught:
                    await future.wait()
                assert caught.value.code == ErrorCode.NOT_CONTROLLER
        assert not old.is_active
        quorum.partitioned_nodes.clear()
        await quorum.wait_converged()
        assert set(old.image.topics) == {"kept", "new"}
        published = [name for _, delta in quorum.nodes[old.node_id].published for name in delta.topics]
        assert published == ["kept", "new"], "records committed during leadership are not replayed again"
        assert old.machine.latest_image.topics == old.image.topics


@virtual
async def test_record_of_failed_leader_may_be_committed_by_the_next() -> None:
    """The followers have the record, but the leader never learned so: the request stays unanswered."""
    quorum = ControllerQuorum(3)
    async with quorum.running():
        old = await quorum.leader()
        await with_broker(old)
        await quorum.wait_converged()
        for member in quorum.nodes.values():
            if member.running_controller is not old:
                member.env.thread_gate = (
                    trio.Event()
                )  # they append the record, and cannot fetch again before the leader is gone
        future = old.enqueue(topic("t"), 7)
        await trio.sleep(0.2)
        quorum.partitioned_nodes.add(old.node_id)
        for member in quorum.nodes.values():
            if member.env.thread_gate is not None:
                blocked, member.env.thread_gate = member.env.thread_gate, None
                blocked.set()
        new = await quorum.leader()
        assert "t" in new.image.topics
        with trio.fail_after(10), pytest.raises(ProtocolError):
            await future.wait()
        quorum.partitioned_nodes.clear()
        await quorum.wait_converged()
        assert set(old.image.topics) == {"t"}


@virtual
async def test_all_controllers_stopped_restart_in_any_order() -> None:
    quorum = ControllerQuorum(3)
    async with quorum.running():
        leader = await quorum.leader()
        await with_broker(leader)
        await make(leader, "a", "b", "c")
    async with quorum.running(3):
        await trio.sleep(5)
        assert not quorum.nodes[3].running_controller.is_active
        assert not quorum.nodes[3].running_controller._ready.is_set()
        quorum.start(1)
        began = trio.current_time()
        leader = await quorum.leader()
        assert trio.current_time() - began < 1, "no wait for a leader whose port refuses connections"
        assert set(leader.image.topics) == {"a", "b", "c"}
        quorum.start(2)
        await quorum.wait_converged()


@pytest.mark.behaviour("R-308")
@virtual
async def test_controller_is_ready_after_catching_up_with_discovered_leader() -> None:
    quorum = ControllerQuorum(3, fetch_bytes=400)
    async with quorum.running():
        leader = await quorum.leader()
        await with_broker(leader)
        await quorum.wait_converged()
        late = next(i for i in (1, 2, 3) if i != leader.node_id)
        quorum.nodes[late].kill()
        names = [f"t{n}" for n in range(20)]
        await make(leader, *names)
        quorum.nodes[late].published.clear()
        quorum.start(late)
        await trio.sleep(0.001)
        await quorum.nodes[late].running_controller.wait_ready()
        assert set(quorum.nodes[late].running_controller.image.topics) == set(names)
        (first, everything), *_ = quorum.nodes[late].published
        assert set(first.topics) == set(everything.topics) == set(names), "the first image is complete"


@virtual
async def test_propose_with_old_epoch_raises_not_controller() -> None:
    quorum = ControllerQuorum(3)
    async with quorum.running():
        leader = await quorum.leader()
        await quorum.wait_converged()
        raft, end = leader._raft, leader.log_end_offset
        for member in quorum.nodes.values():
            with pytest.raises(ProtocolError) as caught:
                await member.running_controller._raft.propose(leader.epoch - 1, bytearray(b"x"), 1)
            assert caught.value.code == ErrorCode.NOT_CONTROLLER
        assert leader.log_end_offset == end
        elsewhere = ListenerEndpoint("CONTROLLER", "elsewhere", 1)
        raft.update_leader_endpoints(leader.epoch - 1, 9, elsewhere)
        assert raft.addresses.learned_node_ids.isdisjoint({9})
        assert 9 not in raft.machine.reachable_replicas
        raft.update_leader_endpoints(leader.epoch, 9, elsewhere)
        assert raft.addresses.dial_address(9) == ("elsewhere", 1)
        assert 9 in raft.machine.reachable_replicas


@pytest.mark.behaviour("R-207")
@virtual
async def test_controllers_without_pre_vote_support_elect_a_leader() -> None:
    quorum = ControllerQuorum(3)
    for member in quorum.nodes.values():
        member.max_versions = {ApiKey.VOTE: 1}
    async with quorum.running():
        await quorum.leader(5)


@pytest.mark.behaviour("R-214")
@virtual
async def test_begin_quorum_epoch_of_unknown_leader_is_followed_at_its_endpoint() -> None:
    quorum = ControllerQuorum(3)
    async with quorum.running():
        leader = await quorum.leader()
        await quorum.wait_converged()
        other = next(m.running_controller for m in quorum.nodes.values() if m.running_controller is not leader)
        part = BeginQuorumEpochRequestPartitionData(0, bytes(16), 9, leader.epoch + 5)
        topic = BeginQuorumEpochRequestTopicData("__cluster_metadata", [part])
        endpoint = LeaderEndpoint("CONTROLLER", "host9", 9)
        request = BeginQuorumEpochRequest(CLUSTER_ID, other.node_id, [topic], [endpoint])
        quorum.nodes[9] = ControllerQuorumNode(quorum, 9)
        await other.handle_raft_request(request, 1, "CONTROLLER")
        assert (other.leader_id, other.epoch) == (9, leader.epoch + 5)
        assert other.leader_address() == ("host9", 9)
        del quorum.nodes[9]


@pytest.mark.behaviour("R-213")
@virtual
@pytest.mark.parametrize("version", [0, 1])
async def test_raft_response_contains_leader_endpoint_from_version_1(version: int) -> None:
    quorum = ControllerQuorum(3)
    async with quorum.running():
        leader = await quorum.leader()
        await quorum.wait_converged()
        vote = VoteRequestTopicData("__cluster_metadata", [VoteRequestPartitionData(0, 0, 2)])
        begin = BeginQuorumEpochRequestTopicData("__cluster_metadata", [BeginQuorumEpochRequestPartitionData()])
        end = EndQuorumEpochRequestTopicData("__cluster_metadata", [EndQuorumEpochRequestPartitionData()])
        for key, request in (
            (ApiKey.VOTE, VoteRequest(topics=[vote])),
            (ApiKey.BEGIN_QUORUM_EPOCH, BeginQuorumEpochRequest(topics=[begin])),
            (ApiKey.END_QUORUM_EPOCH, EndQuorumEpochRequest(topics=[end])),
        ):
            answer = await leader.handle_raft_request(request, version, "CONTROLLER")
            again = compiler.decode_exact(response_class(key), version, compiler.encode(answer, version))
            named = [(x.node_id, x.host) for x in again.node_endpoints]  # type: ignore[attr-defined]
            assert named == ([(leader.node_id, f"host{leader.node_id}")] if version else [])


@virtual
async def test_observer_discovers_leader_and_replays_metadata() -> None:
    quorum = ControllerQuorum(3, observers=1)
    async with quorum.running():
        leader = await quorum.leader()
        await with_broker(leader)
        await make(leader, "t")
        await quorum.wait_converged()
        watcher = quorum.nodes[4]
        assert set(watcher.running_controller.image.topics) == {"t"}
        assert watcher.running_controller.leader_address() == leader.leader_address()
        assert watcher.running_controller.kraft_version == 1
        threads = watcher.env.threads
        await make(leader, "u", "v")
        await quorum.wait_converged()
        assert watcher.env.threads == threads, "syncs of an observer are not awaited (R-225)"
        quorum.nodes[leader.node_id].kill()
        following = await quorum.leader()
        await make(following, "w")
        await quorum.wait_converged()
        assert watcher.running_controller.leader_id == following.node_id


@virtual
async def test_resign_transfers_leadership_at_once() -> None:
    quorum = ControllerQuorum(3)
    async with quorum.running():
        leader = await quorum.leader()
        await quorum.wait_converged()
        began = trio.current_time()
        await leader.resign()
        assert trio.current_time() - began < 1
        assert not leader.is_active
        following = await quorum.leader()
        assert following is not leader
        assert leader.leader_id == following.node_id


@virtual
async def test_idle_quorum_appends_no_op_records_and_single_node_does_not() -> None:
    for voters, grows in ((3, True), (1, False)):
        quorum = ControllerQuorum(voters)
        async with quorum.running():
            leader = await quorum.leader()
            await trio.sleep(1)
            before = leader.log_end_offset
            await trio.sleep(5)
            assert (leader.log_end_offset - before in range(9, 12)) is grows
            assert grows or leader.log_end_offset == before


@virtual
async def test_open_metadata_transaction_stays_open_after_lost_abort() -> None:
    """The abort was appended and lost: the next leader must abort the transaction again."""
    quorum = ControllerQuorum(3)
    async with quorum.running():
        leader = await quorum.leader()
        await with_broker(leader)
        processor = leader._request_processor
        await run_in_background(
            leader._env, processor.append([BeginTransactionRecord("x"), TopicRecord("lost", bytes(15) + b"\x05")])
        )
        await run_in_background(leader._env, processor.commit())
        await quorum.wait_converged()
        quorum.nodes[leader.node_id].kill()
        following = await quorum.leader()
        assert not following.machine.in_transaction
        await make(following, "t")
        quorum.start(leader.node_id)
        await quorum.wait_converged()
        assert all(not x.running_controller.machine.in_transaction for x in quorum.nodes.values())
        assert all(set(x.running_controller.image.topics) == {"t"} for x in quorum.nodes.values())


@pytest.mark.behaviour("R-251")
@virtual
async def test_describe_quorum_is_answered_by_leader_only() -> None:
    quorum = ControllerQuorum(3, observers=1)
    async with quorum.running():
        leader = await quorum.leader()
        await quorum.wait_converged()
        await trio.sleep(2)
        rows = [DescribeQuorumRequestPartitionData(0)]
        request = DescribeQuorumRequest([DescribeQuorumRequestTopicData("__cluster_metadata", rows)])
        for member in quorum.nodes.values():
            answer = await member.running_controller.handle_raft_request(request, 2, "CONTROLLER")
            assert isinstance(answer, DescribeQuorumResponse)
            row = answer.topics[0].partitions[0]
            if member.running_controller is not leader:
                assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                continue
            assert (row.leader_id, row.leader_epoch) == (leader.node_id, leader.epoch)
            assert sorted(v.replica_id for v in row.current_voters) == [1, 2, 3]
            assert [v.replica_id for v in row.observers] == [4]
            for voter in [*row.current_voters, *row.observers]:
                assert leader.log_end_offset - 1 <= voter.log_end_offset <= leader.log_end_offset
                assert 0 <= member.env.now_ms() - voter.last_fetch_timestamp <= 1000
                assert voter.last_caught_up_timestamp > -1000
            assert [(n.node_id, n.listeners[0].host) for n in answer.nodes] == [
                (1, "host1"),
                (2, "host2"),
                (3, "host3"),
            ]
