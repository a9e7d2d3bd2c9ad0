"""Page of a group of any of the four types: members, assignments and lag.

Source: ``ConsumerGroupCommand.java``, ``ShareGroupCommand.java``, ``StreamsGroupCommand.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.channel import Channel
from ottla.console.offsets import LATEST, TopicPartitionName, list_offsets
from ottla.console.page import PageRequest, View, check
from ottla.console.paging import paginate
from ottla.console.record_scan import RecordCriteria, RecordScan, ScanRange
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.wire.record_batch import legacy_records

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
EMPTY_STATES = ("Empty", "Dead")
OFFSETS_VERSION_WITH_NAMES = 9
_MAX_REBALANCES = 20
_MAX_TIMED_ROWS = 30
_OTHER_TYPE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
_DESCRIBERS: dict[str, Any] = {
    CONSUMER: ConsumerGroupDescribeRequest,
    SHARE: ShareGroupDescribeRequest,
    STREAMS: StreamsGroupDescribeRequest,
}
"""Request that describes groups of a type; for any other type it is DescribeGroups."""


class DescribedGroup(NamedTuple):
    """Group as described by its coordinator: ``coordinator`` is its node id, ``channel`` a connection to it.

    ``epoch`` is the group epoch; None for a classic group. ``assignor`` is empty for types that have none. Keys of
    ``members``: ``id``, ``instance`` (empty for a dynamic member), ``client``, ``host``, ``epoch`` (None in a classic
    group), ``assignment`` (partitions by topic; in a streams group active tasks by subtopology), and ``is_settled``
    (False if a member of a consumer group has not reached its target assignment).
    """

    id: str
    type: str
    state: str
    epoch: int | None
    assignor: str
    coordinator: int
    members: list[dict[str, Any]]
    channel: Any


async def find_group_coordinator(page: PageRequest, group: str) -> tuple[int, Any]:
    """Return node id and channel of a group's coordinator.

    Raises:
        ProtocolError: no coordinator is available, or the session is not authorized.
    """
    response = await page.client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
    row = response.coordinators[0]
    check(row.error_code, row.error_message, f"coordinator of group {group}")
    await page.client.metadata([])
    return row.node_id, await page.client.broker(row.node_id)


def _by_topic(assignment: Any) -> dict[str, list[int]]:
    return {row.topic_name: sorted(row.partitions) for row in assignment.topic_partitions}


def _classic_assignment(raw: Any) -> dict[str, list[int]]:
    """Return the partitions by topic in the assignment of a classic group's member; empty if it is not a consumer's."""
    if len(raw) < 2:
        return {}
    try:
        decoded = compiler.decode(ConsumerProtocolAssignment, min(int.from_bytes(raw[:2], "big"), 3), raw, 2)[0]
    except WireError:
        return {}
    return {row.topic: sorted(row.partitions) for row in decoded.assigned_partitions}


def _tasks(assignment: Any) -> dict[str, list[int]]:
    return {f"subtopology {row.subtopology_id}": sorted(row.partitions) for row in assignment.active_tasks}


def _member(kind: str, member: Any) -> dict[str, Any]:
    if kind == CLASSIC:
        assignment, instance = _classic_assignment(member.member_assignment), member.group_instance_id
    else:
        assignment = _tasks(member.assignment) if kind == STREAMS else _by_topic(member.assignment)
        instance = getattr(member, "instance_id", None)
    target = _by_topic(member.target_assignment) if kind == CONSUMER else assignment
    return {
        "id": member.member_id,
        "instance": instance or "",
        "client": member.client_id,
        "host": member.client_host,
        "epoch": getattr(member, "member_epoch", None),
        "assignment": assignment,
        "is_settled": assignment == target,
    }


async def describe_groups(channel: Channel, kind: str, groups: list[str]) -> list[Any]:
    """Return the rows of groups of a type in a coordinator's response, in its order; errors are not checked.

    Raises:
        ProtocolError, OSError, WireError: as `Channel.call`.
    """
    rows: list[Any] = (await channel.call(_DESCRIBERS.get(kind, DescribeGroupsRequest)(groups))).groups
    return rows


async def describe_group(page: PageRequest, group: str) -> DescribedGroup:
    """Describe a group of any type.

    Raises:
        ProtocolError: the group does not exist, or the session may not describe it.
    """
    coordinator, channel = await find_group_coordinator(page, group)
    for kind in _DESCRIBERS:
        row = (await describe_groups(channel, kind, [group]))[0]
        if row.error_code not in _OTHER_TYPE:
            check(row.error_code, row.error_message, f"group {group}")
            members = [_member(kind, member) for member in sorted(row.members, key=lambda m: m.member_id)]
            assignor = getattr(row, "assignor_name", "")
            return DescribedGroup(
                group, kind, row.group_state, row.group_epoch, assignor, coordinator, members, channel
            )
    row = (await describe_groups(channel, CLASSIC, [group]))[0]
    if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND or row.group_state == "Dead":
        check(ErrorCode.GROUP_ID_NOT_FOUND, "the group does not exist", f"group {group}")
    check(row.error_code, row.error_message, f"group {group}")
    members = [_member(CLASSIC, member) for member in sorted(row.members, key=lambda m: m.member_id)]
    return DescribedGroup(group, CLASSIC, row.group_state, None, row.protocol_data, coordinator, members, channel)


async def fetch_positions(channel: Channel, kind: str, group: str) -> dict[TopicPartitionName, int]:
    """Return the committed offsets of a group, or the start offsets of a share group; partitions without are left out.

    ``channel`` is one to the coordinator, ``kind`` the type of the group.

    Raises:
        ProtocolError: the coordinator refused the request.
    """
    if kind == SHARE:
        query = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)])
        shared = (await channel.call(query)).groups[0]
        check(shared.error_code, shared.error_message, f"group {group}")
        return {
            (topic.topic_name, row.partition_index): row.start_offset
            for topic in shared.topics
            for row in topic.partitions
            if row.start_offset >= 0
        }
    version = channel.version_for(ApiKey.OFFSET_FETCH, OFFSETS_VERSION_WITH_NAMES)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
    stored = (await channel.call(request, version)).groups[0]
    check(stored.error_code, None, f"group {group}")
    return {
        (topic.name, row.partition_index): row.committed_offset
        for topic in stored.topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }


def sum_lags(positions: Mapping[TopicPartitionName, int], ends: Mapping[TopicPartitionName, int]) -> int | None:
    """Return the lag in records of a group, the sum over its partitions; None without any, or without an end."""
    if not positions or any(at not in ends for at in positions):
        return None
    return sum(max(ends[at] - position, 0) for at, position in positions.items())


async def load_leaders(page: PageRequest, partitions: Iterable[TopicPartitionName]) -> None:
    """Request the metadata of the partitions' topics, so that the client knows the leaders."""
    topics = sorted({topic for topic, _ in partitions})
    if topics:
        await page.client.metadata(topics)


async def describe_lag(page: PageRequest, group: DescribedGroup) -> list[dict[str, Any]]:
    """Return a row for each partition with a committed offset (share group: start offset) or an owner, with its lag.

    Keys: ``topic``, ``partition``, ``position`` (that offset), ``end`` and ``lag`` (in records; these three are None if
    not known), and ``owner``: client id, or else id, of a member with the partition; "" without one, and always in
    streams groups.

    Raises:
        ProtocolError: the coordinator refused the request.
    """
    positions = await fetch_positions(group.channel, group.type, group.id)
    owners = {
        (topic, number): member["client"] or member["id"]
        for member in group.members
        if group.type != STREAMS
        for topic, numbers in member["assignment"].items()
        for number in numbers
    }
    partitions = sorted({*positions, *owners})
    await load_leaders(page, partitions)
    ends = await list_offsets(page.client, partitions, LATEST)
    rows = []
    for at in partitions:
        position, end = positions.get(at), ends.get(at)
        lag = None if position is None or end is None else max(end - position, 0)
        rows.append(
            {
                "topic": at[0],
                "partition": at[1],
                "position": position,
                "end": end,
                "lag": lag,
                "owner": owners.get(at, ""),
            }
        )
    return rows


async def add_lag_ms(page: PageRequest, rows: list[dict[str, Any]]) -> None:
    """Set ``lag_ms`` in each row: the age in ms of the next record to read; 0 without a lag, None if it is not known.

    It is the age of the newest record in the batch of the next record. At most `_MAX_TIMED_ROWS` batches are read for
    a page; timestamps are cached in its memory, so that a lag that does not change is not read again.
    """
    env, known = page.node.local.env, page.memory.setdefault("timestamps", {})
    kept: dict[TopicPartitionName, tuple[int, int | None]] = {}
    for row in rows:
        row["lag_ms"] = None if row["lag"] is None else 0
        if row["lag"] and row["position"] is not None:
            at = row["topic"], row["partition"]
            position, timestamp = known.get(at, (-1, None))
            if position != row["position"] and len(kept) < _MAX_TIMED_ROWS:
                position, timestamp = row["position"], await _timestamp_at(page, *at, row["position"])
            kept[at] = position, timestamp
            is_known = position == row["position"] and timestamp is not None
            row["lag_ms"] = max(env.now_ms() - (timestamp or 0), 0) if is_known else None
    page.memory["timestamps"] = kept


async def _timestamp_at(page: PageRequest, topic: str, partition: int, offset: int) -> int | None:
    """Return the largest timestamp in the batch of the first record from an offset on; None if it is not known."""
    scan = RecordScan(page.node.local.env, page.client, topic, [], RecordCriteria())
    try:
        raw = await scan.fetch(ScanRange(partition, offset, offset + 1), max_bytes=1)
        for _, header in legacy_records.iterate_any_batches(raw or b""):
            if header.next_offset > offset:
                return header.max_timestamp if header.max_timestamp >= 0 else None
    except (OSError, WireError):
        pass  # not authorized to read, or no leader: the page shows a dash
    return None


async def get_group_state(page: PageRequest) -> View:
    """Return the live block of the page: state, members and lag of the group in the field ``id``.

    Raises:
        ProtocolError: the group does not exist, or the session may not describe it.
    """
    group = await describe_group(page, page.text("id"))
    every = await describe_lag(page, group)
    rows, paging = paginate(page, every)
    await add_lag_ms(page, rows)
    known = [row["lag"] for row in every if row["lag"] is not None]
    values = {"group": group, "rows": rows, "paging": paging, "lag": sum(known) if known else None}
    is_local = group.coordinator == page.node.local.node_id
    values["rebalances"] = page.node.rebalances.find(group.id)[:_MAX_REBALANCES] if is_local else None
    return View("group.html", {**values, "members": group.members[:100], "member_count": len(group.members)})


async def get_group(page: PageRequest) -> View:
    """Return the page with state, members and lag of the group in the field ``id``; errors as `get_group_state`."""
    view = await get_group_state(page)
    return View("group.html", {"title": f"Group {page.text('id')}", **view.values})
