"""Rules of streams groups (C-238 to C-246): membership, epochs, tasks and statuses."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.streams.status import StreamsGroupStatus
from ottla.broker.groups.streams.streams_group import StreamsMemberState
from ottla.broker.tests.streams_group_fixture import (
    StreamsGroupShard,
    StreamsThreadClient,
    from_task_ids,
    reconcile_threads,
    subtopology,
    to_task_ids,
    topology,
    two_reconciled_threads,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import streams_group_heartbeat

STATEFUL = topology(subtopology("0", "t", changelogs=("log",)))


def refused(answer: Any) -> ErrorCode:
    code: ErrorCode = answer.code
    return code


def test_first_member_creates_group_and_gets_all_tasks() -> None:
    """Order of the records."""
    shard = StreamsGroupShard()
    answer = shard.beat("a", 0)
    assert shard.kinds == ["19", "23", "17", "21", "20", "22"]
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms, answer.status) == ("a", 2, 5_000, [])
    assert from_task_ids(answer.active_tasks) == {"0": [0, 1, 2, 3, 4, 5]}
    assert (answer.standby_tasks, answer.warmup_tasks) == ([], [])
    assert (shard.group.state, shard.group.epoch, shard.group.validated_epoch) == ("Stable", 2, 0)
    assert shard.group.configs == {"num.standby.replicas": "0"}


def test_unchanged_heartbeat_writes_no_record() -> None:
    shard = StreamsGroupShard()
    a = StreamsThreadClient(shard, "a")
    a.beat()
    answer = a.beat()
    assert shard.kinds == []
    assert (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks) == (None, None, None)


def test_tasks_are_revoked_before_they_are_assigned() -> None:
    shard = StreamsGroupShard()
    a, b = StreamsThreadClient(shard, "a"), StreamsThreadClient(shard, "b")
    a.beat()
    b.beat()
    assert b.active == {}, "all are with a"
    assert shard.group.members["b"].state is StreamsMemberState.UNRELEASED_TASKS
    assert shard.group.state == "Reconciling"
    a.beat()
    assert sorted(a.active["0"]) == [0, 1, 2], "told what to keep"
    assert shard.group.members["a"].state is StreamsMemberState.UNREVOKED_TASKS
    b.beat()
    assert b.active == {}, "not before a says that it has stopped"
    a.beat()
    b.beat()
    assert sorted(b.active["0"]) == [3, 4, 5]
    assert shard.group.state == "Stable"


@pytest.mark.parametrize(
    ("change", "bumps"),
    [
        ({}, False),
        ({"rack_id": "r"}, True),
        ({"process_id": "other"}, True),
        ({"rebalance_timeout_ms": 5}, True),
        ({"rebalance_timeout_ms": -1}, False),
        ({"user_endpoint": streams_group_heartbeat.StreamsGroupHeartbeatRequestEndpoint("h", 1)}, True),
        ({"client_tags": [streams_group_heartbeat.KeyValue("zone", "z")]}, True),
        ({"client_tags": []}, False),
    ],
)
def test_changed_member_metadata_bumps_epoch(change: dict[str, Any], bumps: bool) -> None:
    shard = StreamsGroupShard()
    a = StreamsThreadClient(shard, "a")
    a.beat()
    before = shard.group.epoch
    a.beat(**change)
    assert shard.group.epoch == before + bumps
    assert ("19" in shard.kinds) == bumps


def test_changed_topics_or_standby_count_bumps_epoch() -> None:
    shard = StreamsGroupShard({"t": 2, "log": 2})
    a, b = StreamsThreadClient(shard, "a", topology=STATEFUL), StreamsThreadClient(shard, "b", topology=STATEFUL)
    reconcile_threads(a, b)
    before = shard.group.epoch
    shard.image({"t": 2, "log": 2, "other": 1})
    a.beat()
    assert shard.group.epoch == before, "a topic that nobody reads"
    shard.image({"t": 4, "log": 4})
    reconcile_threads(a, b)
    assert sorted(a.active["0"] + b.active["0"]) == [0, 1, 2, 3]
    before = shard.group.epoch
    shard.image({"t": 4, "log": 4}, streams_num_standby_replicas="1")
    reconcile_threads(a, b)
    assert shard.group.epoch == before + 1
    assert sorted(a.standby["0"] + b.standby["0"]) == [0, 1, 2, 3]
    assert not set(a.standby["0"]) & set(a.active["0"])


def test_stale_or_changed_topology_returns_status_or_error() -> None:
    shard = StreamsGroupShard({"t": 2, "u": 1})
    first = topology(subtopology("0", "t"), epoch=3)
    shard.beat("a", 0, topology=first)
    assert shard.beat("b", 0, topology=topology(subtopology("0", "t"), epoch=3)).status == []
    old = shard.beat("c", 0, topology=topology(subtopology("0", "u"), epoch=2))
    assert [(row.status_code, row.status_detail) for row in old.status] == [
        (StreamsGroupStatus.STALE_TOPOLOGY, "The member's topology epoch 2 is behind the group's topology epoch 3.")
    ]
    for other in (topology(subtopology("0", "u"), epoch=3), topology(subtopology("0", "t"), epoch=4)):
        answer = shard.beat("d", 0, topology=other)
        assert (answer.code, answer.message) == (ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    assert "d" not in shard.group.members


def test_missing_internal_topics_are_requested_and_tasks_wait_for_them() -> None:
    shard = StreamsGroupShard({"t": 2})
    a = StreamsThreadClient(shard, "a", topology=STATEFUL)
    answer = a.beat()
    assert [(row.status_code, row.status_detail) for row in answer.status] == [
        (StreamsGroupStatus.MISSING_INTERNAL_TOPICS, "Internal topics are missing: log")
    ]
    assert {name: topic.partitions for name, topic in shard.to_create.items()} == {"log": 2}
    assert (a.active, shard.group.state, shard.group.validated_epoch) == ({}, "NotReady", -1)
    shard.image({"t": 2, "log": 2}, has_new=True)
    reconcile_threads(a)
    assert (a.active, a.status, shard.to_create) == ({"0": [0, 1]}, [], {})
    assert shard.group.validated_epoch == 0


def test_missing_source_topic_revokes_all_tasks() -> None:
    shard = StreamsGroupShard({"t": 2})
    a = StreamsThreadClient(shard, "a")
    reconcile_threads(a)
    shard.image({}, has_new=False)
    reconcile_threads(a)
    assert (a.active, a.status, shard.group.state) == ({}, [StreamsGroupStatus.MISSING_SOURCE_TOPICS], "NotReady")
    shard.image({"t": 2}, has_new=True)
    reconcile_threads(a)
    assert a.active == {"0": [0, 1]}


def test_empty_group_waits_initial_rebalance_delay() -> None:
    shard = StreamsGroupShard({"t": 2}, initial_rebalance_delay_ms=3_000)
    a, b = StreamsThreadClient(shard, "a"), StreamsThreadClient(shard, "b")
    answer = a.beat()
    assert [(row.status_code, row.status_detail) for row in answer.status] == [
        (StreamsGroupStatus.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay.")
    ]
    assert (answer.member_epoch, a.active) == (1, {})
    shard.wait(1_000)
    b.beat()
    assert b.status == [StreamsGroupStatus.ASSIGNMENT_DELAYED]
    shard.wait(1_999)
    a.beat()
    assert (a.active, shard.group.target_epoch) == ({}, 1)
    before = len(shard.log)
    shard.wait(1)
    assert shard.records(before) == ["21", "21", "20"], "the timer itself computes the target"
    a.beat()
    b.beat()
    assert sorted(a.active["0"] + b.active["0"]) == [0, 1]


def test_initial_rebalance_delay_without_validated_topology_assigns_at_heartbeat() -> None:
    """The topology of the first heartbeat is not kept, as the group was being created."""
    shard = StreamsGroupShard({"t": 2}, initial_rebalance_delay_ms=3_000)
    a = StreamsThreadClient(shard, "a")
    a.beat()
    before = len(shard.log)
    shard.wait(3_000)
    assert shard.records(before) == []
    a.beat()
    assert a.active == {"0": [0, 1]}


def test_target_assignment_waits_for_assignment_interval() -> None:
    shard = StreamsGroupShard({"t": 2}, assignment_interval_ms=1_000)
    a, b = StreamsThreadClient(shard, "a"), StreamsThreadClient(shard, "b")
    a.beat()
    answer = b.beat()
    assert [(row.status_code, row.status_detail) for row in answer.status] == [
        (StreamsGroupStatus.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")
    ]
    assert (b.active, shard.group.state) == ({}, "Assigning")
    shard.wait(1_000)
    reconcile_threads(a, b)
    assert (a.active, b.active) == ({"0": [0]}, {"0": [1]})


@pytest.mark.parametrize(
    ("member", "epoch", "fields", "code"),
    [
        ("a", 99, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("a", 1, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("x", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", -1, {}, None),
        ("x", -1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 0, {}, None),
    ],
)
def test_heartbeat_epoch_must_match_member_epoch(
    member: str, epoch: int, fields: dict[str, Any], code: ErrorCode | None
) -> None:
    shard, _, _ = two_reconciled_threads()
    answer = shard.beat(member, epoch, **fields)
    assert getattr(answer, "code", None) == code


def test_heartbeat_with_previous_epoch_and_owned_tasks_is_accepted() -> None:
    """Accepted as long as it claims no more tasks than it has."""
    shard = StreamsGroupShard()
    a, b = StreamsThreadClient(shard, "a"), StreamsThreadClient(shard, "b")
    a.beat()
    b.beat()
    before = a.epoch
    a.beat()
    a.beat()
    member = shard.group.members["a"]
    assert (member.epoch, member.previous_epoch) == (3, before)
    mine = {"active_tasks": to_task_ids({"0": [0]}), "standby_tasks": [], "warmup_tasks": []}
    assert shard.beat("a", before, **mine).member_epoch == 3
    for theirs in (
        {**mine, "active_tasks": to_task_ids({"0": [5]})},
        {**mine, "standby_tasks": to_task_ids({"0": [0]})},
        {},
    ):
        assert refused(shard.beat("a", before, **theirs)) is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"9": [0]}, "Subtopology 9 does not exist in the topology."),
        ({"0": [6]}, "Task 6 for subtopology 0 is invalid. Number of tasks for this subtopology: 6"),
        ({"0": [-1]}, "Task -1 for subtopology 0 is invalid. Number of tasks for this subtopology: 6"),
    ],
)
def test_heartbeat_with_nonexistent_tasks_is_refused(tasks: dict[str, list[int]], message: str) -> None:
    shard, a, _ = two_reconciled_threads()
    answer = a.beat(active_tasks=to_task_ids(tasks))
    assert (answer.code, answer.message) == (ErrorCode.INVALID_REQUEST, message)
    assert len(shard.group.members) == 2


def test_heartbeat_of_unknown_or_full_group_returns_error() -> None:
    shard = StreamsGroupShard(max_size=1)
    answer = shard.beat("a", 5)
    assert (answer.code, answer.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Streams group g not found.")
    answer = shard.beat("a", -1)
    assert (answer.code, answer.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    shard.beat("a", 0)
    for name in ("b", "a"):
        assert refused(shard.beat(name, 0)) is ErrorCode.GROUP_MAX_SIZE_REACHED, "also a member that it knows"


def test_leave_and_session_timeout_reassign_tasks() -> None:
    shard, _, b = two_reconciled_threads()
    answer = shard.beat("a", -1)
    assert shard.kinds == ["-22", "-21", "-19", "17"]
    assert (answer.member_id, answer.member_epoch, answer.status) == ("a", -1, [])
    reconcile_threads(b)
    assert sorted(b.active["0"]) == [0, 1, 2, 3, 4, 5]
    before = len(shard.log)
    shard.wait(45_000)
    assert shard.records(before) == ["-22", "-21", "-19", "17"]
    assert shard.group.state == "Empty"


def test_rebalance_timeout_removes_member_that_does_not_revoke() -> None:
    shard = StreamsGroupShard()
    a, b = StreamsThreadClient(shard, "a", rebalance_timeout_ms=10_000), StreamsThreadClient(shard, "b")
    a.beat()
    b.beat()
    a.beat()
    for _ in range(9):
        shard.wait(1_000)
        shard.beat("a", a.epoch)  # reports no tasks
        b.beat()
    assert "a" in shard.group.members
    shard.wait(1_000)
    assert "a" not in shard.group.members
    reconcile_threads(b)
    assert sorted(b.active["0"]) == [0, 1, 2, 3, 4, 5]


def test_shutdown_application_status_is_sent_until_group_is_empty() -> None:
    shard, a, b = two_reconciled_threads()
    answer = a.beat(shutdown_application=True)
    why = "Streams group member a encountered a fatal error and requested a shutdown for the entire application."
    assert [(row.status_code, row.status_detail) for row in answer.status] == [
        (StreamsGroupStatus.SHUTDOWN_APPLICATION, why)
    ]
    b.beat()
    assert b.status == [StreamsGroupStatus.SHUTDOWN_APPLICATION]
    shard.beat("a", -1)
    b.beat()
    assert StreamsGroupStatus.SHUTDOWN_APPLICATION in b.status
    shard.beat("b", -1)
    c = StreamsThreadClient(shard, "c")
    c.beat()
    assert c.status == []


def test_endpoints_are_sent_to_members_with_older_endpoint_epoch() -> None:
    shard = StreamsGroupShard({"t": 2, "u": 1})
    joining = {"topology": topology(subtopology("0", "t", "u"))}
    a = StreamsThreadClient(
        shard, "a", user_endpoint=streams_group_heartbeat.StreamsGroupHeartbeatRequestEndpoint("host-a", 1), **joining
    )
    b = StreamsThreadClient(shard, "b", **joining)
    reconcile_threads(a, b)
    epoch = shard.group.endpoint_epoch
    assert epoch > 0
    answer = b.beat(endpoint_information_epoch=epoch)
    assert (answer.endpoint_information_epoch, answer.partitions_by_user_endpoint) == (epoch, None)
    answer = b.beat(endpoint_information_epoch=-1)
    (row,) = answer.partitions_by_user_endpoint
    assert (row.user_endpoint.host, row.user_endpoint.port) == ("host-a", 1)
    number = a.active["0"][0]
    reported_of = {topic.topic: topic.partitions for topic in row.active_partitions}
    assert reported_of == {"t": [number], "u": [number]}, "as many as there are tasks: nobody looks which they are"
    assert row.standby_partitions == []
    shard.beat("b", -1)
    reconcile_threads(a)
    assert shard.group.endpoint_epoch > epoch
    answer = a.beat(endpoint_information_epoch=-1)
    (row,) = answer.partitions_by_user_endpoint
    assert {topic.topic: topic.partitions for topic in row.active_partitions} == {"t": [0, 1], "u": [0]}


def test_endpoints_of_deleted_topics_are_left_out() -> None:
    shard = StreamsGroupShard({"t": 2})
    a = StreamsThreadClient(
        shard, "a", user_endpoint=streams_group_heartbeat.StreamsGroupHeartbeatRequestEndpoint("host-a", 1)
    )
    reconcile_threads(a)
    shard.image({})
    answer = a.beat(endpoint_information_epoch=-1)
    (row,) = answer.partitions_by_user_endpoint
    assert (row.active_partitions, answer.status[0].status_code) == ([], StreamsGroupStatus.MISSING_SOURCE_TOPICS)


def test_group_without_endpoints_has_endpoint_epoch_0() -> None:
    shard, _, _ = two_reconciled_threads()
    assert shard.group.endpoint_epoch == 0


def test_member_without_tasks_has_current_assignment_record() -> None:
    shard = StreamsGroupShard({"t": 1})
    shard.beat("a", 0)
    shard.beat("b", 0)
    assert shard.kinds == ["19", "17", "21", "20", "22"]


def test_initial_rebalance_delay_is_not_restarted_by_later_member() -> None:
    shard = StreamsGroupShard({"t": 1}, initial_rebalance_delay_ms=3_000)
    shard.beat("a", 0)
    shard.beat("a", -1)
    shard.wait(2_000)
    b = StreamsThreadClient(shard, "b")
    b.beat()
    shard.wait(1_000)
    b.beat()
    assert b.active == {"0": [0]}
