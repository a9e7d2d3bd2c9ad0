"""Offsets of groups and partitions: committed, start and end offsets; partition lists and text tables of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.cli.errors import CommandFailed, raise_for_error
from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import offset_fetch
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

TopicPartitionKey = tuple[str, int]
"""Topic name and partition number."""
LATEST, EARLIEST = -1, -2
MIN_TIMESTAMP = -6
"""Lowest special value of a timestamp in ListOffsets; brokers refuse lower ones."""
LAST_VERSION_WITH_NAMES = 9
"""Last version of OffsetFetch and OffsetCommit that identifies topics by name."""


async def fetch_committed_entries(
    channel: Channel, group_id: str
) -> dict[TopicPartitionKey, offset_fetch.OffsetFetchResponsePartitions]:
    """Return the OffsetFetch row of each partition in which a group has a committed offset.

    ``channel``: connection to the group's coordinator.

    Raises:
        CommandFailed: the coordinator refused OffsetFetch. OSError, WireError: as `Channel.call`.
    """
    wanted = offset_fetch.OffsetFetchRequestGroup(group_id, topics=None)
    version = channel.version_for(ApiKey.OFFSET_FETCH, LAST_VERSION_WITH_NAMES)
    stored = (await channel.call(offset_fetch.OffsetFetchRequest(groups=[wanted]), version)).groups[0]
    raise_for_error(stored.error_code, None, group_id)
    return {
        (topic.name, row.partition_index): row
        for topic in stored.topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }


async def fetch_committed_offsets(channel: Channel, group_id: str) -> dict[TopicPartitionKey, int]:
    """Return the committed offset of each partition in which a group has one.

    Raises:
        CommandFailed: the coordinator refused OffsetFetch.
    """
    rows = await fetch_committed_entries(channel, group_id)
    return {at: row.committed_offset for at, row in rows.items()}


async def _by_leader(
    client: ClusterClient, partitions: Iterable[TopicPartitionKey]
) -> list[tuple[Channel, list[TopicPartitionKey]]]:
    """Request the leaders of partitions; return a connection to each leader with the partitions that it leads.

    Partitions without a leader or that do not exist are left out.
    """
    partitions = list(partitions)
    if partitions:
        await client.metadata(sorted({topic for topic, _ in partitions}))
    out: dict[int, tuple[Channel, list[TopicPartitionKey]]] = {}
    for at in partitions:
        try:
            channel = await client.leader(*at)
        except ProtocolError:
            continue
        out.setdefault(id(channel), (channel, []))[1].append(at)
    return list(out.values())


async def list_offsets(
    client: ClusterClient, partitions: Iterable[TopicPartitionKey], timestamp: int
) -> dict[TopicPartitionKey, int]:
    """Return the offset of each partition for a timestamp; -1 if all its records are older.

    ``timestamp`` is `EARLIEST`, `LATEST`, or milliseconds since 1970. Partitions whose leader returns an error or that
    have no leader are left out.
    """
    out = {}
    for channel, some in await _by_leader(client, partitions):
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, number in some:
            topics.setdefault(topic, []).append(ListOffsetsPartition(number, timestamp=timestamp))
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(*item) for item in topics.items()])
        answer = await channel.call(request, channel.version_for(ApiKey.LIST_OFFSETS, 11))
        for topic_row in answer.topics:
            out.update(
                {
                    (topic_row.name, row.partition_index): row.offset
                    for row in topic_row.partitions
                    if not row.error_code
                }
            )
    return out


def parse_partitions(items: Sequence[str], there: Mapping[str, Sequence[int]]) -> list[TopicPartitionKey]:
    """Return the partitions that items name, each once and sorted.

    Args:
        items: ``TOPIC`` for all of its partitions, or ``TOPIC:0,1``.
        there: the partition numbers of each existing topic.

    Raises:
        CommandFailed: an item has another form, or a topic or partition does not exist.
    """
    out: dict[TopicPartitionKey, None] = {}
    for item in items:
        name, separator, numbers = item.partition(":")
        known = there.get(name, ())
        if not separator:
            out.update(dict.fromkeys((name, number) for number in known))
        for number in numbers.split(",") if separator else ():
            if not number.strip().isdecimal():
                raise CommandFailed(f"TOPIC or TOPIC:0,1,2 expected: {item}")
            out[name, int(number)] = None
        missing = [number for topic, number in out if topic == name and number not in known]
        if not known:
            raise CommandFailed(f"topic {name} does not exist")
        if missing:
            raise CommandFailed(f"partition {missing[0]} of topic {name} does not exist (it has 0 to {max(known)})")
    return sorted(out)


async def resolve_partitions(client: ClusterClient, items: Sequence[str]) -> list[TopicPartitionKey]:
    """Return the partitions that items such as ``TOPIC`` or ``TOPIC:0,1`` name, looked up in the cluster's metadata.

    Raises:
        CommandFailed: an item has another form, or a topic or partition does not exist; so for any error of a topic.
    """
    answer = await client.metadata(sorted({item.partition(":")[0] for item in items}))
    there = {
        topic.name or "": sorted(row.partition_index for row in topic.partitions)
        for topic in answer.topics
        if not topic.error_code
    }
    return parse_partitions(items, there)


def group_by_topic(offsets: Mapping[TopicPartitionKey, int]) -> dict[str, dict[int, int]]:
    """Return offsets by topic, and of each topic by partition number; both sorted, as the rows of a request."""
    out: dict[str, dict[int, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        out.setdefault(topic, {})[number] = offset
    return out


def format_cell(value: Any) -> Any:
    """Return a table cell: partitions by topic (a dict) as ``t:0,1;u:2``, a list with commas, ``-`` for None.

    An empty dict, list or text is ``-``, too; topics are sorted. Any other value is returned unchanged.
    """
    if isinstance(value, dict):
        value = ";".join(f"{name}:{','.join(map(str, numbers))}" for name, numbers in sorted(value.items()))
    elif isinstance(value, list):
        value = ",".join(map(str, value))
    return "-" if value is None or value == "" else value


def format_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows for a text table, with cells by `format_cell`, without the columns that are empty in all rows."""
    full = {head for row in rows for head, value in row.items() if format_cell(value) != "-"}
    return [{head: format_cell(value) for head, value in row.items() if head in full} for row in rows]
