"""Streams groups beside offsets, other group types and the log (C-234, C-244, C-246)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.coordinator.events import ShardLoaded
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.offset_commit import CommitOffsets
from ottla.broker.groups.offset_validation import validate_offset_commit
from ottla.broker.groups.records import decode
from ottla.broker.groups.state_machine import DeleteGroup, DeleteOffsets, GroupStateMachine
from ottla.broker.groups.streams.records import member_record
from ottla.broker.groups.streams.status import StreamsGroupStatus
from ottla.broker.groups.streams.streams_group import StreamsGroupMember, TasksTuple, TasksTupleWithEpochs
from ottla.broker.groups.streams.topology import from_request
from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.broker.tests.streams_group_fixture import (
    StreamsGroupShard,
    StreamsThreadClient,
    internal,
    reconcile_threads,
    subtopology,
    topology,
    two_reconciled_threads,
)
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import consumer_group_heartbeat, join_group, sync_group


@pytest.mark.parametrize(
    ("member", "epoch", "version", "code"),
    [
        ("a", 3, 9, ErrorCode.NONE),
        ("a", 3, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("a", 4, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, 9, ErrorCode.NONE),  # it has had the task since then
        ("a", 1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 2, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 2, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_offset_commit_requires_member_epoch_or_task_epoch(
    member: str, epoch: int, version: int, code: ErrorCode
) -> None:
    shard, a, _ = two_reconciled_threads()
    assert a.epoch == 3
    assert commit(shard, member, epoch, version) == code


def commit(
    shard: StreamsGroupShard, member: str, epoch: int, version: int = 9, topic: str = "t", partition: int = 0
) -> Any:
    shard._count += 1
    pending = f"commit-{shard._count}"
    new = [OffsetToCommit(topic, topic_id_of(topic), partition, 5, -1, "")]
    event = CommitOffsets(pending, "g", member, None, epoch, -1, new, version)
    shard.apply(shard.machine.handle(shard.now, event))
    return shard.answers[pending]


def test_offset_commit_of_task_being_revoked_is_accepted() -> None:
    shard = StreamsGroupShard()
    a, b = StreamsThreadClient(shard, "a"), StreamsThreadClient(shard, "b")
    a.beat()
    b.beat()
    a.beat()
    assert shard.group.members["a"].revoking.active["0"].keys() == {3, 4, 5}
    assert commit(shard, "a", 2, partition=5) == ErrorCode.NONE
    assert commit(shard, "a", 2, topic="u") == ErrorCode.NONE, "in its epoch nobody asks of what"
    assert commit(shard, "a", 1, topic="u") == ErrorCode.STALE_MEMBER_EPOCH


def test_delete_offsets_of_subscribed_topics_is_refused() -> None:
    shard, a, b = two_reconciled_threads()
    commit(shard, "a", 3)
    event = DeleteOffsets("d1", "g", [("t", 0), ("u", 0)])
    shard.apply(shard.machine.handle(shard.now, event))
    assert shard.answers["d1"] == {"t"}
    for thread in (a, b):
        shard.beat(thread.name, -1)
    shard.apply(shard.machine.handle(shard.now, event._replace(pending_request="d2")))
    assert shard.answers["d2"] == set()
    assert not shard.machine.offsets.has_offset("g", "t", 0)


def test_delete_group_without_members_writes_all_tombstones() -> None:
    shard = StreamsGroupShard()
    shard.beat("a", 0)
    commit(shard, "a", 2)

    def delete(pending: str) -> Any:
        shard.apply(shard.machine.handle(shard.now, DeleteGroup(pending, "g")))
        return shard.answers[pending]

    assert delete("d1") == ErrorCode.NON_EMPTY_GROUP
    shard.beat("a", -1)
    before = len(shard.log)
    assert delete("d2") == ErrorCode.NONE
    assert shard.records(before) == ["-1", "-20", "-17", "-23"]
    assert shard.machine.find_streams_group("g") is None
    assert delete("d3") == ErrorCode.GROUP_ID_NOT_FOUND


def test_empty_group_expires_with_its_last_offset() -> None:
    shard = StreamsGroupShard()
    shard.beat("a", 0)
    commit(shard, "a", 2)
    shard.wait(45_000)
    assert shard.group.state == "Empty"
    shard.wait(shard.settings.offsets_retention_ms + shard.settings.expiry_every_ms)
    assert shard.machine.find_streams_group("g") is None


# ---------------------------------------------------------------------- other kinds


def test_join_of_other_group_type_is_refused() -> None:
    shard, _, _ = two_reconciled_threads()
    answer = shard.call(join_group.JoinGroupRequest("g", 10_000, 30_000, "", None, "consumer", []), 9)
    assert answer.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.call(sync_group.SyncGroupRequest("g", 1, "a"), 5).code == ErrorCode.UNKNOWN_MEMBER_ID
    beat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "x", 0, None, None, 30_000, ["t"], None, None, []
    )
    answer = shard.call(beat)
    why = "Group g is not a consumer group."
    assert (answer.error_code, answer.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, why)
    shard.beat("a", -1)
    shard.beat("b", -1)
    assert shard.call(beat).error_code == ErrorCode.GROUP_ID_NOT_FOUND, "nor is an empty one taken over"


def test_empty_streams_group_is_replaced_by_classic_member() -> None:
    shard = StreamsGroupShard(initial_rebalance_delay_ms=3_000)
    shard.beat("a", 0)
    shard.beat("a", -1)
    before = len(shard.log)
    shard.enter("c")
    assert shard.records(before)[:3] == ["-20", "-17", "-23"]
    assert shard.machine.find_streams_group("g") is None
    assert "g" in shard.machine.classic_groups.groups
    assert not shard.machine.streams_groups.delayed_groups


def test_only_empty_classic_group_is_replaced_by_streams_member() -> None:
    shard = StreamsGroupShard()
    commit(shard, "", -1)
    shard.beat("a", 0)
    assert shard.kinds[0] == "-2"
    assert "g" not in shard.machine.classic_groups.groups
    assert shard.machine.offsets.has_offset("g", "t", 0), "its positions stay"
    other = StreamsGroupShard()
    other.enter("c")
    answer = other.beat("a", 0)
    assert (answer.code, answer.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a streams group.")


def test_consumer_group_is_not_replaced() -> None:
    shard = StreamsGroupShard()
    shard.heartbeat("m", 0)
    assert shard.beat("a", 0).code == ErrorCode.GROUP_ID_NOT_FOUND
    shard.heartbeat("m", -1)
    assert shard.beat("a", 0).code == ErrorCode.GROUP_ID_NOT_FOUND, "not even an empty one"


# ---------------------------------------------------------------------- the log


def restarted(shard: StreamsGroupShard) -> StreamsGroupShard:
    """Return a shard loaded from the same log."""
    again = StreamsGroupShard(dict(shard.topics))
    again.settings = shard.settings
    again.machine = GroupStateMachine(shard.settings)
    again.now, again.log = shard.now, list(shard.log)
    for number, raw in enumerate(shard.log):
        record = decode(*raw)
        assert record is not None
        again.machine.replay(number, record)
    again.apply(again.machine.handle(again.now, ShardLoaded()))
    again.image(shard.topics)
    return again


def test_shard_loaded_restores_streams_group_and_sessions() -> None:
    shard = StreamsGroupShard()
    a, b = StreamsThreadClient(shard, "a"), StreamsThreadClient(shard, "b")
    a.beat()
    b.beat()
    a.beat()
    again = restarted(shard)
    assert again.group.members == shard.group.members
    assert (again.group.epoch, again.group.target_epoch, again.group.target) == (
        shard.group.epoch,
        shard.group.target_epoch,
        shard.group.target,
    )
    assert (again.group.active_process_ids, again.group.state) == (shard.group.active_process_ids, "Reconciling")
    a.fixture = b.fixture = again
    reconcile_threads(a, b)
    assert (sorted(a.active["0"]), sorted(b.active["0"])) == ([0, 1, 2], [3, 4, 5])
    again.wait(45_000)
    assert again.group.state == "Empty", "sessions run here too"


def test_shard_loaded_arms_rebalance_timeout_of_revoking_member() -> None:
    shard = StreamsGroupShard()
    a, b = StreamsThreadClient(shard, "a", rebalance_timeout_ms=10_000), StreamsThreadClient(shard, "b")
    a.beat()
    b.beat()
    a.beat()
    again = restarted(shard)
    again.wait(9_999)
    assert "a" in again.group.members
    again.wait(1)
    assert "a" not in again.group.members


def test_replay_of_records_of_unknown_groups_and_members_is_ignored() -> None:
    shard, _, _ = two_reconciled_threads()
    machine = restarted(shard).machine
    for number, raw in enumerate([*reversed(shard.log), *((key, None) for key, _ in shard.log)]):
        record = decode(*raw)
        assert record is not None
        machine.replay(number, record)


def test_leave_of_member_without_epoch_record_writes_one() -> None:
    """The record of the group is missing in the log."""
    shard = StreamsGroupShard()
    shard.machine.replay(0, member_record("g", StreamsGroupMember("a", 2, 1, process_id="p")))
    assert shard.beat("a", -1).error_code == ErrorCode.NONE
    assert shard.kinds[-1] == "17"
    assert (shard.group.epoch, shard.group.configs) == (2, {})


def test_target_of_large_group_is_written_in_slices_with_one_response() -> None:
    shard = StreamsGroupShard({"t": 1_500})
    threads = [StreamsThreadClient(shard, f"m{number}", f"p{number % 40}") for number in range(300)]
    for thread in threads:
        thread.beat()
    shard.wait(1_000)
    reconcile_threads(*threads, rounds=6)
    done = sorted(number for thread in threads for number in thread.active.get("0", ()))
    assert done == list(range(1_500))
    assert shard.group.state == "Stable"


def test_repartition_topic_is_read_by_downstream_subtopology() -> None:
    shard = StreamsGroupShard({"t": 2, "r": 2})
    chain = topology(subtopology("0", "t", sinks=("r",)), subtopology("1", repartition=(internal("r"),)))
    a = StreamsThreadClient(shard, "a", topology=chain)
    reconcile_threads(a)
    assert a.active == {"0": [0, 1], "1": [0, 1]}
    assert shard.group.target["a"] == TasksTuple({"0": frozenset({0, 1}), "1": frozenset({0, 1})})
    assert commit(shard, "a", a.epoch - 1, topic="r") == ErrorCode.STALE_MEMBER_EPOCH


def test_status_codes_are_those_of_kafka() -> None:
    """``StreamsGroupHeartbeatResponse.Status``."""
    assert {status.name: int(status) for status in StreamsGroupStatus} == {
        "STALE_TOPOLOGY": 0,
        "MISSING_SOURCE_TOPICS": 1,
        "INCORRECTLY_PARTITIONED_TOPICS": 2,
        "MISSING_INTERNAL_TOPICS": 3,
        "SHUTDOWN_APPLICATION": 4,
        "ASSIGNMENT_DELAYED": 5,
    }


def test_topology_is_configured_again_only_if_metadata_hash_changes() -> None:
    shard = StreamsGroupShard({"t": 1})
    a = StreamsThreadClient(shard, "a")
    for _ in range(2):  # the first one creates the group, which is configured once it is stored
        a.beat()
    configured = shard.group.configured
    shard.image({"t": 1})
    assert shard.group.is_metadata_stale
    a.beat()
    assert shard.group.configured is configured
    shard.image({"t": 2})
    a.beat()
    assert shard.group.configured is not configured


def test_deleted_group_waits_initial_rebalance_delay_again() -> None:
    shard = StreamsGroupShard({"t": 1}, initial_rebalance_delay_ms=3_000)
    shard.beat("a", 0)
    shard.beat("a", -1)
    shard.apply(shard.machine.handle(shard.now, DeleteGroup("d", "g")))
    shard.wait(2_000)
    b = StreamsThreadClient(shard, "b")
    b.beat()
    shard.wait(2_999)
    b.beat()
    assert b.active == {}
    shard.wait(1)
    b.beat()
    assert b.active == {"0": [0]}


@pytest.mark.parametrize(("epoch", "passes"), [(5, True), (4, True), (3, True), (2, False)])
def test_offset_commit_of_revoking_task_counts_epoch_of_its_assignment(epoch: int, passes: bool) -> None:
    group = StreamsGroupShard().machine.streams_groups.get_or_create_group("g", GroupEffects())
    group.topology = from_request(topology(subtopology("0", "t")))
    group.update(StreamsGroupMember("m", epoch=5, revoking=TasksTupleWithEpochs({"0": {1: 3}})))
    new = [OffsetToCommit("t", topic_id_of("t"), 1, 9, -1, "")]
    if passes:
        validate_offset_commit(group, "m", None, epoch, 9, new)
        return
    with pytest.raises(ProtocolError) as refused:
        validate_offset_commit(group, "m", None, epoch, 9, new)
    assert refused.value.code is ErrorCode.STALE_MEMBER_EPOCH
