"""ListGroups, DescribeGroups and DeleteGroups with a real coordinator in virtual time."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any, cast

import pytest

from ottla.broker.coordinator.runtime import java_string_hash, partition_for_key
from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.groups.coordinator import TOPIC, state_machine_of
from ottla.broker.handlers.groups import delete_groups
from ottla.broker.handlers.item_results import MAX_PENDING_RESULTS
from ottla.broker.tests.group_coordinator_fixture import GroupCoordinatorNode, run
from ottla.broker.tests.handler_fixture import as_decoded
from ottla.jobs.job import Job
from ottla.log.log_validator import AppendOrigin
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.record_batch.records import NewRecord, build_batch


@pytest.mark.behaviour("C-187")
def test_list_groups_filters_by_state_and_type_case_insensitively() -> None:
    node = GroupCoordinatorNode(partitions=3)
    for number in range(20):
        node.commit(f"g{number}")
    assert {g.group_id for g in node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups} == {
        f"g{n}" for n in range(20)
    }
    row = node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups[0]
    assert (row.protocol_type, row.group_state, row.group_type) == ("", "Empty", "classic")
    for states, types, count in [
        (["EMPTY"], [], 20),
        (["stable"], [], 0),
        (["stable", "empty"], ["Classic"], 20),
        ([], ["consumer"], 0),
    ]:
        assert len(node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(states, types)).groups) == count


def test_list_groups_during_load_is_refused_and_heartbeats_succeed() -> None:
    node = GroupCoordinatorNode(led=False)
    batch = build_batch([NewRecord(b"\x00\x63", b"", 1)])
    node.replica.append(bytearray(batch), 1, AppendOrigin.COORDINATOR)
    node.groups.on_election(node.replica)
    assert node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert node.ask(ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "m")).error_code == 0
    described = node.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(["g"])).groups[0]
    assert (described.error_code, described.group_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "g")

    async def scenario() -> None:
        assert node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).error_code == 0
        assert node.ask(ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "m")).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(node, scenario)


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x09", b"\x00\x03\xff"])
def test_list_groups_with_failed_shard_lists_groups_of_others(value: bytes) -> None:
    node = GroupCoordinatorNode(led=False, partitions=2)
    key = b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x00"
    node.replica.append(bytearray(build_batch([NewRecord(key, value, 1)])), 1, AppendOrigin.COORDINATOR)
    for number in range(2):
        node.groups.on_election(node.fixture.hosted.replicas[TOPIC, number])

    async def scenario() -> None:
        name = next(n for n in map(str, range(99)) if partition_for_key(n, 2) == 1)
        node.commit(name)
        listed = node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
        assert (listed.error_code, [g.group_id for g in listed.groups]) == (0, [name])
        lost = next(n for n in map(str, range(99)) if partition_for_key(n, 2) == 0)
        answer = node.ask(
            ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(lost, topics=None)])
        )
        assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR

    run(node, scenario)


def joined(node: GroupCoordinatorNode) -> str:
    """Return a group with one member in its first generation."""
    protocols = [JoinGroupRequestProtocol("range", b"meta")]
    request = JoinGroupRequest("m", 10_000, 30_000, "", None, "consumer", protocols)
    answer = node.ask(ApiKey.JOIN_GROUP, 3, request)
    return cast("str", answer.member_id)


@pytest.mark.parametrize(("version", "code"), [(5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_describe_groups_describes_each_group_once(version: int, code: int) -> None:
    node = GroupCoordinatorNode()
    member = joined(node)
    request = DescribeGroupsRequest(["m", "nobody", "m"], include_authorized_operations=True)
    first, second = node.ask(ApiKey.DESCRIBE_GROUPS, version, request).groups
    assert (first.group_state, first.protocol_type, first.protocol_data) == ("CompletingRebalance", "consumer", "")
    assert [(m.member_id, m.member_metadata) for m in first.members] == [(member, b"")]
    assert first.authorized_operations == 3400
    assert (second.error_code, second.group_state, second.group_id) == (code, "Dead", "nobody")
    assert (second.authorized_operations == 3400) is (code == 0)
    state_machine_of(node.groups.shard_for("m")).classic_groups.groups["m"].state = type(
        state_machine_of(node.groups.shard_for("m")).classic_groups.groups["m"].state
    )("Stable")
    stable = node.ask(ApiKey.DESCRIBE_GROUPS, version, DescribeGroupsRequest(["m"])).groups[0]
    assert (stable.protocol_data, stable.members[0].member_metadata) == ("range", b"meta")
    assert stable.authorized_operations != 3400


def test_list_and_describe_groups_wait_for_commit_and_time_out() -> None:
    node = GroupCoordinatorNode(followed=True)

    async def scenario() -> None:
        node.commit()
        listed = node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
        described = node.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(["g"]))
        assert isawaitable(listed)
        assert isawaitable(described)
        answer = await listed
        assert (answer.error_code, answer.groups) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
        row = (await described).groups[0]
        assert (row.error_code, row.group_id, row.group_state) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "g", "")
        again = node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
        node.commit_log()
        assert [g.group_id for g in (await again).groups] == ["g"]

    run(node, scenario)


def test_join_group_id_over_record_size_returns_unknown_server_error() -> None:
    node = GroupCoordinatorNode()
    request = JoinGroupRequest("g" * 40_000, 10_000, protocol_type="consumer")
    request.protocols = [JoinGroupRequestProtocol("range", b"meta")]
    answer = node.ask(ApiKey.JOIN_GROUP, 9, request)
    assert (answer.error_code, answer.generation_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert node.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest()).groups == []


def test_delete_groups_returns_result_per_group() -> None:
    node = GroupCoordinatorNode()
    node.commit()
    joined(node)
    answer = node.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(["g", "nobody", "m", "g"]))
    assert [(row.group_id, row.error_code) for row in answer.results] == [
        ("g", 0),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ("m", ErrorCode.NON_EMPTY_GROUP),
    ]
    assert (
        GroupCoordinatorNode(led=False).ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(["g"])).results[0].error_code
        == 16
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("ab", 3105),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
        ("hello", 99162322),
    ],
)
def test_java_string_hash_equals_string_hash_code(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_partition_for_group_uses_topic_partition_count() -> None:
    """The transaction coordinator adds a group's partition to a transaction, and may lead none of them (C-130)."""
    node = GroupCoordinatorNode(led=False, partitions=3, offsets_topic_num_partitions="50")
    assert node.groups.partition_for("hello") == partition_for_key("hello", 3) != partition_for_key("hello", 50)


def test_partition_for_key_handles_minimum_integer_hash() -> None:
    assert partition_for_key("polygenelubricants", 50) == 0
    assert partition_for_key("hello", 50) == 22
    long = "x" * 100_000
    assert partition_for_key(long, 50) == abs(java_string_hash(long)) % 50


def test_join_and_sync_group_over_element_limits_are_refused() -> None:
    node = GroupCoordinatorNode()
    many = [JoinGroupRequestProtocol(str(n), b"") for n in range(1001)]
    join = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", many)
    assert node.ask(ApiKey.JOIN_GROUP, 4, join).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    del many[1000:]
    assert node.ask(ApiKey.JOIN_GROUP, 4, join) is not None
    sync = SyncGroupRequest("g", 1, "m", assignments=[SyncGroupRequestAssignment("m", b"")] * 100_001)
    assert node.ask(ApiKey.SYNC_GROUP, 3, sync).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_rows_wait_for_results_when_last_row_of_block_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last row of a block is refused at once: the rows before it are waited for all the same."""
    node = GroupCoordinatorNode(followed=True)
    names = [f"g{number}" for number in range(2 * MAX_PENDING_RESULTS)]
    refused = names[MAX_PENDING_RESULTS - 1]

    def fail_share_state(context: Any, name: str) -> Job[ProtocolError | None]:
        yield None
        return ProtocolError(ErrorCode.GROUP_AUTHORIZATION_FAILED) if name == refused else None

    monkeypatch.setattr(delete_groups, "_delete_share_state", fail_share_state)
    monkeypatch.setattr(RequestContext, "may", lambda context, operation, resource, name: name != refused)

    async def scenario() -> None:
        for name in names:
            node.commit(name)
        deleted = node.ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(names))
        described = node.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(names))
        for rows in (as_decoded(await described, 5).groups, as_decoded(await deleted, 2).results):
            codes = {row.group_id: row.error_code for row in rows}
            assert codes.pop(refused) == ErrorCode.GROUP_AUTHORIZATION_FAILED
            assert set(codes.values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}

    run(node, scenario)
