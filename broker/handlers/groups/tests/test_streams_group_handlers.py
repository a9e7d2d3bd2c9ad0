"""StreamsGroupHeartbeat, StreamsGroupDescribe, and classic group APIs for streams groups."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.tests.group_coordinator_fixture import GroupCoordinatorNode, run
from ottla.broker.tests.streams_group_fixture import internal, subtopology, to_task_ids, topology
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.controller.metadata.delta import MetadataDelta
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import streams_group_heartbeat
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.create_topics import CreatableTopic
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    StreamsGroupDescribeRequest,
    TaskIds,
)

APP = topology(subtopology("0", "t", sinks=("r",)), subtopology("1", repartition=(internal("r"),), changelogs=("log",)))
READS = topology(subtopology("0", "t"))


class StreamsHandlersNode(GroupCoordinatorNode):
    """Node with streams groups and "t" with three partitions; internal topics to create are recorded."""

    def __init__(self, level: int = 1, **settings: str) -> None:
        super().__init__(**settings)
        image = replace(self.fixture.hosted.image, features={"streams.version": level})
        self.fixture.hosted.image = image
        self.groups.publish(image, MetadataDelta.from_empty(image))
        self.created: list[tuple[list[CreatableTopic], int]] = []
        self.failures_of: dict[str, str] = {}
        internal_topics = SimpleNamespace(
            create=lambda topics, quiet_ms: self.created.append((list(topics), quiet_ms)), failure=self.failures_of.get
        )
        self.fixture.services.controller_forwarder = SimpleNamespace(
            streams_internal_topics=lambda now_ms: internal_topics
        )

    def beat(self, **fields: Any) -> streams_group_heartbeat.StreamsGroupHeartbeatResponse:
        joining = {"rebalance_timeout_ms": 30_000, "topology": READS, "process_id": "p"}
        joining |= {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        request = streams_group_heartbeat.StreamsGroupHeartbeatRequest(
            **{"group_id": "g", "member_id": "a", "member_epoch": 0, **joining, **fields}
        )
        return self.waited(self.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, request))

    def waited(self, answer: Any) -> Any:
        out: list[Any] = []

        async def scenario() -> None:
            out.append(await answer if isinstance(answer, Awaitable) else answer)

        run(self, scenario)
        return out[0]

    def describe(self, *groups: str, **more: Any) -> list[DescribedGroup]:
        answer = self.waited(
            self.ask(ApiKey.STREAMS_GROUP_DESCRIBE, 0, StreamsGroupDescribeRequest(list(groups), **more))
        )
        return list(answer.groups)

    def allow(self, *denied: tuple[AclOperation, ResourceType, str]) -> None:
        """Allow everything except these permissions."""
        self.fixture.services.authorizer = SimpleNamespace(
            decisions={},
            may=lambda peer, operation, resource, name: (operation, resource, name) not in denied,
            authorized_operations=lambda *arguments: 7,
        )


def test_streams_group_heartbeat_join_returns_tasks_or_status() -> None:
    answer = StreamsHandlersNode().beat()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", 2) or answer.status
    assert answer.active_tasks is not None


def test_streams_group_heartbeat_without_initial_delay_returns_all_tasks() -> None:
    node = StreamsHandlersNode(group_streams_initial_rebalance_delay_ms="0")
    answer = node.beat()
    assert answer.active_tasks is not None
    assert [(row.subtopology_id, row.partitions) for row in answer.active_tasks] == [("0", [0, 1, 2])]


@pytest.mark.behaviour("C-237")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"instance_id": "i"}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "i", "member_epoch": -2, "topology": None}, ErrorCode.INVALID_REQUEST),
        ({"task_offsets": []}, ErrorCode.INVALID_REQUEST),
        ({"task_end_offsets": []}, ErrorCode.INVALID_REQUEST),
        ({"warmup_tasks": to_task_ids({"0": [0]})}, ErrorCode.INVALID_REQUEST),
        (
            {
                "topology": streams_group_heartbeat.Topology(
                    0, [streams_group_heartbeat.Subtopology("0", ["t"], ["t.*"])]
                )
            },
            ErrorCode.INVALID_REQUEST,
        ),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"standby_tasks": to_task_ids({"0": [0]})}, ErrorCode.INVALID_REQUEST),
        ({"warmup_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"topology": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1}, ErrorCode.INVALID_REQUEST),  # only a joining member sends the topology
        ({"member_epoch": 1, "topology": None, "standby_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2, "topology": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3, "topology": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1, "topology": None}, ErrorCode.GROUP_ID_NOT_FOUND),
        (
            {"client_tags": [streams_group_heartbeat.KeyValue("k", "1"), streams_group_heartbeat.KeyValue("k", "2")]},
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
    ],
)
def test_streams_group_heartbeat_invalid_fields_return_error(fields: dict[str, Any], code: int) -> None:
    assert StreamsHandlersNode().beat(**fields).error_code == code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            topology(streams_group_heartbeat.Subtopology("0", ["t"], [], [internal("log", 3)])),
            "Changelog topic log must have an undefined partition count, but it is set to 3.",
        ),
        (
            topology(subtopology("0", "t", sinks=("__transaction_state",))),
            "Use of Kafka internal topics __transaction_state in a Kafka Streams topology is prohibited.",
        ),
        (topology(subtopology("0", "t", "a b", "c d")), "Topic names a b,c d are not valid topic names."),
        (topology(subtopology("0", *(f"t{n}" for n in range(2_000)))), "The topology is too large"),
        (
            topology(
                streams_group_heartbeat.Subtopology(
                    "0", ["t"], [], [], [], [], [streams_group_heartbeat.CopartitionGroup([0] * 10_000)]
                )
            ),
            "The topology is too large",
        ),
    ],
)
def test_streams_group_heartbeat_invalid_topology_returns_error(
    text: streams_group_heartbeat.Topology, message: str
) -> None:
    answer = StreamsHandlersNode().beat(topology=text)
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert (answer.error_message or "").startswith(message)


def test_streams_group_heartbeat_over_task_limit_is_refused_early() -> None:
    fields: dict[str, Any] = {"member_epoch": 1, "topology": None, "active_tasks": to_task_ids({"0": [0] * 50_000})}
    assert StreamsHandlersNode().beat(**fields).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.behaviour("C-237")
def test_streams_group_apis_disabled_return_unsupported_version() -> None:
    off = StreamsHandlersNode(level=0)
    assert off.beat().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert off.describe("g")[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    without = StreamsHandlersNode()
    without.fixture.config.values["group.coordinator.rebalance.protocols"] = "classic,consumer"
    assert without.beat().error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.behaviour("C-237")
def test_streams_group_heartbeat_without_permission_is_refused() -> None:
    node = StreamsHandlersNode()
    node.allow((AclOperation.READ, ResourceType.GROUP, "g"))
    assert node.beat().error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    for name in ("t", "r", "log"):
        node.allow((AclOperation.DESCRIBE, ResourceType.TOPIC, name))
        assert node.beat(topology=APP).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert node.beat(member_epoch=-1, topology=None).error_code == ErrorCode.GROUP_ID_NOT_FOUND, "nothing was done"


CREATE_CLUSTER = (AclOperation.CREATE, ResourceType.CLUSTER, "kafka-cluster")


def test_missing_internal_topics_are_created_as_requested() -> None:
    node = StreamsHandlersNode()
    node.beat(topology=APP)
    ((topics, quiet_ms),) = node.created
    assert [(t.name, t.num_partitions, t.replication_factor) for t in topics] == [("r", 3, -1), ("log", 3, -1)]
    assert quiet_ms == 10_000, "two heartbeats"


def test_internal_topics_without_create_permission_are_reported() -> None:
    node = StreamsHandlersNode()
    node.allow(CREATE_CLUSTER, (AclOperation.CREATE, ResourceType.TOPIC, "log"))
    status = node.beat(topology=APP).status or []
    (detail,) = [row.status_detail for row in status if row.status_code == 3]
    assert detail.endswith("; Unauthorized to CREATE on topics log.")
    assert node.created == []
    node.allow(CREATE_CLUSTER)
    node.beat(topology=APP)
    assert len(node.created) == 1, "each of the topics is enough"


def test_internal_topic_creation_failure_is_reported() -> None:
    node = StreamsHandlersNode()
    node.failures_of["log"] = "no room"
    status = node.beat(topology=APP).status or []
    (detail,) = [row.status_detail for row in status if row.status_code == 3]
    assert detail == "Internal topics are missing: r, log; Creation failed: log (no room)."


# ---------------------------------------------------------------------- descriptions


def test_streams_group_describe_returns_topology_and_members() -> None:
    node = StreamsHandlersNode(group_streams_initial_rebalance_delay_ms="0")
    node.beat(
        user_endpoint=streams_group_heartbeat.StreamsGroupHeartbeatRequestEndpoint("h", 9),
        client_tags=[streams_group_heartbeat.KeyValue("z", "1")],
        rack_id="r",
    )
    (group,) = node.describe("g", include_authorized_operations=True)
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Stable", 2, 2)
    assert group.topology is not None
    assert [(row.subtopology_id, row.source_topics) for row in group.topology.subtopologies or ()] == [("0", ["t"])]
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.process_id, member.rack_id) == ("a", 2, "p", "r")
    assert (member.user_endpoint, member.client_tags) == (Endpoint("h", 9), [KeyValue("z", "1")])
    assert member.assignment == member.target_assignment == Assignment([TaskIds("0", [0, 1, 2])])
    assert member.is_classic is False


def test_streams_group_describe_returns_internal_topic_sizes_when_known() -> None:
    node = StreamsHandlersNode()
    node.beat(topology=APP)
    (group,) = node.describe("g")
    assert (group.group_state, shown(group)) == ("NotReady", {"r": 0, "log": 0})
    node.fixture.hosted.host("r", partitions=3)
    node.fixture.hosted.host("log", partitions=3)
    image = replace(node.fixture.hosted.image, features={"streams.version": 1})
    node.fixture.hosted.image = image
    node.groups.publish(image, MetadataDelta.from_empty(image))
    member = {"member_epoch": group.members[0].member_epoch, "topology": None}
    answer = node.beat(**member)
    assert answer.error_code == 0
    (group,) = node.describe("g")
    assert shown(group) == {"r": 3, "log": 3}


def shown(group: DescribedGroup) -> dict[str, int]:
    assert group.topology is not None
    parts = group.topology.subtopologies or ()
    return {
        t.name: t.partitions for row in parts for t in [*row.repartition_source_topics, *row.state_changelog_topics]
    }


def test_streams_group_describe_unknown_or_denied_group_returns_error() -> None:
    node = StreamsHandlersNode()
    node.beat(topology=APP)
    node.commit(group="simple")
    missing, other, empty = node.describe("x", "simple", "")
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found.")
    assert (other.error_code, other.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group simple is not a streams group.",
    )
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID
    node.allow((AclOperation.DESCRIBE, ResourceType.GROUP, "g"))
    assert node.describe("g")[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    node.allow((AclOperation.DESCRIBE, ResourceType.TOPIC, "log"))
    (hidden,) = node.describe("g")
    assert (hidden.error_code, hidden.topology, hidden.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, [])


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ([], [], True),
        (["not_ready"], ["Streams"], True),
        (["NotReady"], [], False),
        (["stable"], [], False),
        ([], ["consumer"], False),
    ],
)
def test_list_groups_includes_streams_groups(states: list[str], types: list[str], found: bool) -> None:
    """A state of two words has an underscore in a filter."""
    node = StreamsHandlersNode()
    node.beat(topology=APP)
    answer = node.waited(node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(states, types)))
    row = ListedGroup("g", "streams", "NotReady", "streams")
    assert list(answer.groups) == ([row] if found else [])


def test_classic_group_apis_report_streams_groups() -> None:
    node = StreamsHandlersNode()
    node.beat()
    (row,) = node.waited(node.ask(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(["g"]))).groups
    assert (row.error_code, row.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    image = replace(node.fixture.hosted.image, features={"streams.version": 1, "group.version": 1})
    node.fixture.hosted.image = image
    (row,) = node.waited(node.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(["g"]))).groups
    assert (row.error_code, row.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")
    (gone,) = node.waited(node.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(["g"]))).results
    assert gone.error_code == ErrorCode.NON_EMPTY_GROUP
    node.beat(member_epoch=-1, topology=None)
    (gone,) = node.waited(node.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(["g"]))).results
    assert gone.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("a", 1, ErrorCode.NONE),
        ("a", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_offset_fetch_checks_streams_member_epoch(member: str | None, epoch: int, code: ErrorCode) -> None:
    node = StreamsHandlersNode()
    assert node.beat().member_epoch == 1, "its first target waits for others"
    wanted = OffsetFetchRequestGroup("g", member, epoch)
    (group,) = node.waited(node.ask(ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=[wanted]))).groups
    assert group.error_code == code
