"""Lookup of offsets by timestamp at the leaders of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.console.in_process import SessionClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import WireError
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LATEST, EARLIEST = -1, -2
TopicPartitionName = tuple[str, int]
"""Topic name and partition number."""
_VERSION_WITH_NAMES = 10


async def list_offsets(
    client: SessionClient, partitions: Iterable[TopicPartitionName], timestamp: int
) -> dict[TopicPartitionName, int]:
    """Return the offset of each partition for a timestamp; -1 if no record is that recent.

    ``timestamp`` is `EARLIEST`, `LATEST`, or milliseconds since 1970. Partitions without a leader or with an error are
    left out. The client must have requested the metadata of the topics before.
    """
    by_leader: dict[int, tuple[Any, dict[str, list[int]]]] = {}
    for topic, number in partitions:
        leader = client.find_leader_id(topic, number)
        if leader >= 0:
            if leader not in by_leader:
                by_leader[leader] = (await client.leader(topic, number), {})
            by_leader[leader][1].setdefault(topic, []).append(number)
    out = {}
    for channel, topics in by_leader.values():
        rows = [
            ListOffsetsTopic(topic, [ListOffsetsPartition(number, timestamp=timestamp) for number in numbers])
            for topic, numbers in topics.items()
        ]
        version = channel.version_for(ApiKey.LIST_OFFSETS, _VERSION_WITH_NAMES)
        try:
            response = await channel.call(ListOffsetsRequest(-1, 0, rows), version)
        except (OSError, WireError):
            continue  # leader not reachable: the page shows a dash
        for found in response.topics:
            out.update({(found.name, p.partition_index): p.offset for p in found.partitions if not p.error_code})
    return out
