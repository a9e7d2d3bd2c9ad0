"""Description of a group of any type: members, assignments, targets and lag.

Source: ``ConsumerGroupCommand.java``, ``ShareGroupCommand.java``, ``StreamsGroupCommand.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.cli.common import find_coordinator
from ottla.cli.errors import raise_for_error
from ottla.cli.group_admin.offsets import EARLIEST, LATEST, TopicPartitionKey, fetch_committed_offsets, list_offsets
from ottla.cli.group_admin.share_offsets import describe_share_offsets
from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
INACTIVE = ("Empty", "Dead")
_OTHER_TYPE_ERRORS = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
_PROTOCOLS = {0: CLASSIC, 1: CONSUMER}
AssignedPartitions = Mapping[str, list[int]]
"""Partition numbers by topic, or task numbers by subtopology id."""


class GroupDescription(NamedTuple):
    """Group with its type, its element of the Describe response, and its coordinator.

    Attributes:
        group_type: ``classic``, ``consumer``, ``share`` or ``streams``.
        response: row of the group in the Describe response of its type.
        node: node id of the coordinator.
        channel: connection to the coordinator.
    """

    id: str
    group_type: str
    response: Any
    node: int
    channel: Channel

    @property
    def state(self) -> str:
        """State of the group as Kafka names it, such as ``Stable``."""
        return str(self.response.group_state)


def _group_types() -> Iterator[tuple[str, ApiKey, Any]]:
    """Yield group type, API key and request class of each Describe API except DescribeGroups (classic groups).

    A class is imported when it is yielded, so only if the APIs before it did not know the group.
    """
    yield CONSUMER, ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest
    yield SHARE, ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest
    yield STREAMS, ApiKey.STREAMS_GROUP_DESCRIBE, StreamsGroupDescribeRequest


async def describe_group(client: ClusterClient, group_id: str) -> GroupDescription | None:
    """Describe a group of any type; return None if the group does not exist.

    Raises:
        CommandFailed: no coordinator is available, or it refuses a request, such as without authorization.
    """
    node, channel = await find_coordinator(client, group_id)
    for kind, key, request in _group_types():
        if key not in channel.versions:
            continue
        row = (await channel.call(request([group_id]))).groups[0]
        if row.error_code not in _OTHER_TYPE_ERRORS:
            raise_for_error(row.error_code, row.error_message, group_id)
            return GroupDescription(group_id, kind, row, node, channel)
    row = (await channel.call(DescribeGroupsRequest([group_id]))).groups[0]
    if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND or row.group_state == "Dead":
        return None
    raise_for_error(row.error_code, row.error_message, group_id)
    return GroupDescription(group_id, CLASSIC, row, node, channel)


async def describe_consumer_group(client: ClusterClient, group_id: str) -> GroupDescription:
    """Describe a consumer group, or a classic group of any protocol type, such as Kafka Connect's.

    Before version 6 of DescribeGroups a group that does not exist is returned as a classic group in state ``Dead``.

    Raises:
        ProtocolError: the group does not exist or is of another type, or the client is not authorized.
        CommandFailed: no coordinator is available.
    """
    node, channel = await find_coordinator(client, group_id)
    if ApiKey.CONSUMER_GROUP_DESCRIBE in channel.versions:
        row = (await channel.call(ConsumerGroupDescribeRequest([group_id]))).groups[0]
        if row.error_code not in _OTHER_TYPE_ERRORS:
            if row.error_code:
                raise ProtocolError(ErrorCode(row.error_code), row.error_message)
            return GroupDescription(group_id, CONSUMER, row, node, channel)
    classic = (await channel.call(DescribeGroupsRequest([group_id]))).groups[0]
    if classic.error_code:
        raise ProtocolError(ErrorCode(classic.error_code), classic.error_message)
    return GroupDescription(group_id, CLASSIC, classic, node, channel)


async def describe_group_of_type(client: ClusterClient, group_id: str, group_type: str) -> GroupDescription:
    """Describe a group of one type: consumer (without classic), share or streams.

    Raises:
        ProtocolError: the group does not exist or is of another type, or the client is not authorized.
        CommandFailed: no coordinator is available.
    """
    node, channel = await find_coordinator(client, group_id)
    request = next(request for kind, _, request in _group_types() if kind == group_type)
    row = (await channel.call(request([group_id]))).groups[0]
    if row.error_code:
        raise ProtocolError(ErrorCode(row.error_code), row.error_message)
    return GroupDescription(group_id, group_type, row, node, channel)


def summarize_group(group: GroupDescription) -> dict[str, Any]:
    """Return the output row of a group: type, state, epochs, assignor, and node id of the coordinator.

    Keys: ``group``, ``type``, ``state``, ``epoch``, ``target_epoch`` (of the target assignment), ``assignor`` and
    ``coordinator``. The epochs are None for a classic group, the assignor is None if there is none.
    """
    row = group.response
    return {
        "group": group.id,
        "type": group.group_type,
        "state": group.state,
        "epoch": getattr(row, "group_epoch", None),
        "target_epoch": getattr(row, "assignment_epoch", None),
        "assignor": (row.protocol_data if group.group_type == CLASSIC else getattr(row, "assignor_name", None)) or None,
        "coordinator": group.node,
    }


# ---------------------------------------------------------------------- members


def _partitions(assignment: Any) -> AssignedPartitions:
    return {row.topic_name: sorted(row.partitions) for row in assignment.topic_partitions}


def _classic_assignment(seen: GroupDescription, member: Any) -> AssignedPartitions | None:
    """Return the partitions assigned to a member of a classic group.

    Returns:
        The partitions; None if the group is not one of consumers, or the member has no decodable assignment.
    """
    if seen.response.protocol_type != CONSUMER or len(member.member_assignment) < 2:
        return None
    raw = member.member_assignment
    version = min(int.from_bytes(raw[:2], "big"), 3)
    try:
        assignment = compiler.decode(ConsumerProtocolAssignment, version, raw, 2)[0]
    except WireError:
        return None
    return {row.topic: sorted(row.partitions) for row in assignment.assigned_partitions}


def _tasks(rows: Iterable[Any]) -> AssignedPartitions:
    return {row.subtopology_id: sorted(row.partitions) for row in rows}


def _member(seen: GroupDescription, m: Any) -> dict[str, Any]:
    common = {"member": m.member_id, "client": m.client_id, "host": m.client_host}
    if seen.group_type == CLASSIC:
        return {**common, "instance": m.group_instance_id, "assignment": _classic_assignment(seen, m)}
    if seen.group_type == SHARE:
        return {**common, "epoch": m.member_epoch, "assignment": _partitions(m.assignment)}
    known = {**common, "instance": m.instance_id, "epoch": m.member_epoch}
    if seen.group_type == CONSUMER:
        has, target = _partitions(m.assignment), _partitions(m.target_assignment)
        return {**known, "protocol": _PROTOCOLS.get(m.member_type), "assignment": has, "target": target}
    tasks = {
        f"{when}{role}": _tasks(getattr(assigned, f"{role}_tasks"))
        for when, assigned in (("", m.assignment), ("target_", m.target_assignment))
        for role in ("active", "standby", "warmup")
    }
    return {**known, "process": m.process_id, "topology_epoch": m.topology_epoch, **tasks}


def describe_members(group: GroupDescription) -> list[dict[str, Any]]:
    """Return an output row for each member of a group, sorted by member id; its columns depend on the group's type.

    Keys: ``member``, ``client`` and ``host``; ``instance`` (not share; None for a dynamic member); ``epoch`` (not
    classic); ``assignment`` (not streams; None if that of a classic member is not a consumer's). A consumer group adds
    ``protocol`` and ``target``; a streams group ``process``, ``topology_epoch``, and the tasks ``active``, ``standby``,
    ``warmup`` and ``target_active`` to ``target_warmup``.
    """
    return [_member(group, member) for member in sorted(group.response.members, key=lambda x: str(x.member_id))]


# ---------------------------------------------------------------------- positions


def describe_topology(group: GroupDescription) -> list[dict[str, Any]]:
    """Return a row for each subtopology of a streams group: its source, repartition and changelog topics.

    Keys: ``subtopology``, ``reads`` (source topics), ``writes`` and ``repartition`` (repartition topics that it writes
    and reads; output topics are not known) and ``changelogs``; all but the first are lists of topic names. There are
    no rows if the group has no topology.
    """
    topology = group.response.topology
    return [
        {
            "subtopology": row.subtopology_id,
            "reads": list(row.source_topics),
            "writes": list(row.repartition_sink_topics),
            "repartition": [topic.name for topic in row.repartition_source_topics],
            "changelogs": [topic.name for topic in row.state_changelog_topics],
        }
        for row in (topology.subtopologies or () if topology is not None else ())
    ]


def partition_owners(group: GroupDescription) -> dict[TopicPartitionKey, str]:
    """Return the member id of the owner of each assigned partition of a classic, consumer or streams group.

    In a streams group this is the member with the active task of a subtopology that reads the partition.
    """
    if group.group_type != STREAMS:
        return {
            (topic, number): row["member"]
            for row in describe_members(group)
            for topic, numbers in (row["assignment"] or {}).items()
            for number in numbers
        }
    read = {row["subtopology"]: [*row["reads"], *row["repartition"]] for row in describe_topology(group)}
    return {
        (topic, number): row["member"]
        for row in describe_members(group)
        for name, numbers in row["active"].items()
        for topic in read.get(name, ())
        for number in numbers
    }


async def describe_offsets(client: ClusterClient, group: GroupDescription) -> list[dict[str, Any]]:
    """Return an output row for each partition that has a committed offset or an owner, with its lag in records.

    Keys: ``topic``, ``partition``, ``position`` (committed offset), ``end``, ``lag`` and ``member`` (owner), the last
    four None if there is none or it is not known. Without a committed offset the lag is None, but in a streams group
    counted from the start of the log. For a share group the rows are those of `describe_share_offsets`.

    Raises:
        CommandFailed: the coordinator refused a request.
    """
    if group.group_type == SHARE:
        return await describe_share_offsets(client, group)
    stored, read_by = await fetch_committed_offsets(group.channel, group.id), partition_owners(group)
    places = sorted(stored.keys() | read_by.keys())
    ends = await list_offsets(client, places, LATEST)
    fresh = [at for at in places if at not in stored] if group.group_type == STREAMS else []
    starts = await list_offsets(client, fresh, EARLIEST) if fresh else {}
    rows = []
    for at in places:
        at_or_start = stored.get(at, starts.get(at))
        lag = None if at_or_start is None or at not in ends else ends[at] - at_or_start
        rows.append(
            {
                "topic": at[0],
                "partition": at[1],
                "position": stored.get(at),
                "end": ends.get(at),
                "lag": lag,
                "member": read_by.get(at),
            }
        )
    return rows
