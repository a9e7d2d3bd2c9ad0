"""ConsumerGroupHeartbeat, ConsumerGroupDescribe, and classic group APIs for consumer groups."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.tests.group_coordinator_fixture import GroupCoordinatorNode, run
from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.controller.metadata.delta import MetadataDelta
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import heartbeat as old
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.sync_group import SyncGroupRequest

JOIN = ConsumerGroupHeartbeatRequest("g", "a", 0, None, None, 30_000, ["t"], None, None, [])
ROWS = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id_of("t"), [0])]


def served(level: int = 1) -> GroupCoordinatorNode:
    """Return a node with the consumer protocol enabled, and "t" with three partitions."""
    node = GroupCoordinatorNode()
    image = replace(node.fixture.hosted.image, features={"group.version": level})
    node.fixture.hosted.image = image
    node.groups.publish(image, MetadataDelta.from_empty(image))
    return node


def beat(node: GroupCoordinatorNode, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(**{name: getattr(JOIN, name) for name in JOIN.__struct_fields__} | fields)
    answer: ConsumerGroupHeartbeatResponse = node.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, request)
    return answer


def test_consumer_group_heartbeat_join_returns_assignment() -> None:
    answer = beat(served())
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", 2)
    assert answer.assignment is not None
    assert [(row.topic_id, row.partitions) for row in answer.assignment.topic_partitions] == [
        (topic_id_of("t"), [0, 1, 2])
    ]


def test_consumer_group_heartbeat_generated_member_id_is_22_base64_chars() -> None:
    name = beat(served(), 0, member_id="").member_id
    assert name is not None
    assert len(name) == 22
    assert name.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    ("version", "fields", "code"),
    [
        (1, {"group_id": " "}, ErrorCode.INVALID_REQUEST),
        (1, {"member_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"member_id": "", "member_epoch": 1}, ErrorCode.INVALID_REQUEST),
        (0, {"member_id": "", "member_epoch": -1}, ErrorCode.INVALID_REQUEST),
        (1, {"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        (1, {"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        (1, {"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        (1, {"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (1, {"topic_partitions": ROWS}, ErrorCode.INVALID_REQUEST),
        (1, {"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        (1, {"subscribed_topic_names": None, "subscribed_topic_regex": ""}, 0),
        (1, {"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        (1, {"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        (1, {"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (1, {"server_assignor": "range"}, 0),
    ],
)
def test_consumer_group_heartbeat_invalid_fields_return_error(version: int, fields: dict[str, Any], code: int) -> None:
    assert beat(served(), version, **fields).error_code == code


@pytest.mark.behaviour("C-163")
def test_consumer_group_apis_disabled_return_unsupported_version() -> None:
    off = served(level=0)
    assert beat(off).error_code == ErrorCode.UNSUPPORTED_VERSION
    described = off.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(["g"]))
    assert described.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    without = served()
    without.fixture.config.values["group.coordinator.rebalance.protocols"] = "classic"
    assert beat(without).error_code == ErrorCode.UNSUPPORTED_VERSION


def forbidding(node: GroupCoordinatorNode, *names: str) -> None:
    """Deny all operations on resources with these names."""
    node.fixture.services.authorizer = SimpleNamespace(
        decisions={},
        may=lambda peer, operation, resource, name: name not in names,
        authorized_operations=lambda *arguments: 0,
    )


@pytest.mark.behaviour("C-163", "C-186")
def test_consumer_group_apis_without_permission_return_authorization_error() -> None:
    for name, code in (("g", ErrorCode.GROUP_AUTHORIZATION_FAILED), ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)):
        node = served()
        forbidding(node, name)
        assert beat(node).error_code == code
    node = served()
    beat(node)
    forbidding(node, "t")
    row = node.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(["g"])).groups[0]
    assert (row.error_code, row.group_id, row.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "g", [])
    forbidding(node, "g")
    row = node.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(["g"])).groups[0]
    assert (row.error_code, row.group_id) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, "g")


@pytest.mark.behaviour("C-186")
def test_consumer_group_describe_returns_members_and_targets() -> None:
    node = served()
    beat(node, rack_id="r", instance_id="i")
    beat(node, member_id="b")
    beat(node, member_epoch=2, topic_partitions=None, instance_id="i")
    request = ConsumerGroupDescribeRequest(["g", "nobody", "g", ""], include_authorized_operations=True)
    group, absent, empty = node.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Assigning", 3, 2)
    assert (group.assignor_name, group.authorized_operations) == ("uniform", 3400)
    a, b = group.members
    assert (a.member_id, a.instance_id, a.rack_id, a.member_epoch, a.member_type) == ("a", "i", "r", 2, 1)
    assert (a.client_host, a.subscribed_topic_names, a.subscribed_topic_regex) == ("/127.0.0.1", ["t"], "")
    assert [(p.topic_name, p.partitions) for p in a.assignment.topic_partitions] == [("t", [0, 1, 2])]
    assert [(p.topic_name, p.partitions) for p in a.target_assignment.topic_partitions] == [("t", [0, 1, 2])]
    assert (b.member_epoch, b.assignment.topic_partitions) == (2, [])
    assert (absent.error_code, absent.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nobody not found.")
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID


def test_classic_group_apis_report_consumer_groups() -> None:
    node = served()
    beat(node)
    listed = node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(types_filter=["Consumer"])).groups
    assert [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in listed] == [
        ("g", "consumer", "Stable", "consumer")
    ]
    assert node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(types_filter=["classic"])).groups == []
    described = node.ask(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(["g"])).groups[0]
    assert (described.error_code, described.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a classic group.",
    )
    deleted = node.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(["g"])).results[0]
    assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP


@pytest.mark.behaviour("C-184")
@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [(None, -1, 0), ("a", 2, 0), ("a", 1, ErrorCode.STALE_MEMBER_EPOCH), ("b", 2, ErrorCode.UNKNOWN_MEMBER_ID)],
)
def test_offset_fetch_checks_consumer_member_epoch(member: str | None, epoch: int, code: int) -> None:
    node = served()
    beat(node)
    rows = [OffsetCommitRequestPartition(0, 7)]
    commit = OffsetCommitRequest("g", 2, "a", topics=[OffsetCommitRequestTopic("t", partitions=rows)])
    assert node.ask(ApiKey.OFFSET_COMMIT, 9, commit).topics[0].partitions[0].error_code == 0
    wanted = OffsetFetchRequestGroup("g", member, epoch, None)
    group = node.ask(ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=[wanted])).groups[0]
    assert group.error_code == code
    assert [p.committed_offset for t in group.topics for p in t.partitions] == ([7] if code == 0 else [])


@pytest.mark.behaviour("C-192")
def test_classic_member_requests_to_consumer_group_return_unknown_member_id() -> None:
    node = served()
    beat(node)
    protocols = [JoinGroupRequestProtocol("range", b"meta")]
    join = JoinGroupRequest("g", 10_000, 30_000, "", None, "consumer", protocols)
    assert node.ask(ApiKey.JOIN_GROUP, 9, join).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert node.ask(ApiKey.HEARTBEAT, 4, old.HeartbeatRequest("g", 2, "a")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (
        node.ask(ApiKey.SYNC_GROUP, 5, SyncGroupRequest("g", 2, "a", None, "consumer", "range")).error_code
        == ErrorCode.UNKNOWN_MEMBER_ID
    )
    identity = [MemberIdentity("nobody"), MemberIdentity("a")]
    left = node.ask(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest("g", members=identity))
    assert [row.error_code for row in left.members] == [ErrorCode.UNKNOWN_MEMBER_ID, 0], (
        "an administrator may take them out"
    )
    beat(node)
    assert node.ask(ApiKey.LEAVE_GROUP, 2, LeaveGroupRequest("g", "b")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.behaviour("C-189")
def test_empty_consumer_group_is_replaced_by_classic_member() -> None:
    node = served()
    beat(node)
    beat(node, member_epoch=-1)

    async def scenario() -> None:
        protocols = [JoinGroupRequestProtocol("range", b"meta")]
        join = JoinGroupRequest("g", 10_000, 30_000, "", None, "consumer", protocols)
        answer = node.ask(ApiKey.JOIN_GROUP, 3, join)
        assert (answer.error_code, answer.generation_id) == (0, 1)
        listed = node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups
        assert [(g.group_id, g.group_type) for g in listed] == [("g", "classic")]
        assert beat(node).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(node, scenario)
