"""Start offsets of a share group, and the delivery state of the records from these offsets on.

Source: ``ShareGroupCommand.java``, ``ShareCoordinatorService.java`` (apache/kafka 4.3.1), KIP-932, KIP-1226.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ottla.cli.common import find_coordinator
from ottla.cli.errors import raise_for_error
from ottla.cli.group_admin.offsets import LATEST, TopicPartitionKey, list_offsets
from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.wire.codec.primitives import uuid_to_string
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_share_group_offsets
from ottla.wire.messages.read_share_group_state import PartitionData, ReadShareGroupStateRequest, ReadStateData

SHARE_PARTITION = 2
"""Key type of a share partition in FindCoordinator."""
NO_EPOCH = -1
"""Leader epoch of a reader that is not the share partition's leader: it fences no leader."""
STATES = {0: "available", 1: "acquired", 2: "acknowledged", 3: "archiving", 4: "archived"}


class ShareGroupHandle(Protocol):
    """Share group and the connection to its coordinator."""

    @property
    def id(self) -> str:
        """Id of the share group."""

    @property
    def channel(self) -> Channel:
        """Connection to the share group's coordinator."""


async def described_share_offsets(
    group: ShareGroupHandle,
) -> list[describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic]:
    """Return the topics of a share group with the start offset, leader epoch and lag of each partition.

    Raises:
        CommandFailed: an error of the group or a partition.
    """
    wanted = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group.id, None)
    answer = (await group.channel.call(describe_share_group_offsets.DescribeShareGroupOffsetsRequest([wanted]))).groups[
        0
    ]
    raise_for_error(answer.error_code, answer.error_message, group.id)
    for topic in answer.topics:
        for row in topic.partitions:
            raise_for_error(row.error_code, row.error_message, f"{topic.topic_name}-{row.partition_index}")
    return list(answer.topics)


async def start_offsets(group: ShareGroupHandle) -> dict[TopicPartitionKey, int]:
    """Return the start offset of each share partition of a group; -1 if not initialized.

    Raises:
        CommandFailed: an error of the group or a partition.
    """
    return {
        (t.topic_name, row.partition_index): row.start_offset
        for t in await described_share_offsets(group)
        for row in t.partitions
    }


async def describe_share_offsets(client: ClusterClient, group: ShareGroupHandle) -> list[dict[str, Any]]:
    """Return an output row for each share partition: start offset, end offset, ``lag`` and ``done``.

    Keys: ``topic``, ``partition``, ``start``, ``end``, ``lag`` and ``done``. ``lag`` counts the records from the start
    offset on that are neither acknowledged nor archived, ``done`` those that are one of these. Each of these four is
    None if unknown.

    Raises:
        CommandFailed: an error of the group or a partition.
    """
    described = await described_share_offsets(group)
    ends = await list_offsets(
        client, [(t.topic_name, row.partition_index) for t in described for row in t.partitions], LATEST
    )
    rows = []
    for topic in sorted(described, key=lambda x: x.topic_name):
        for row in sorted(topic.partitions, key=lambda x: x.partition_index):
            start, end = row.start_offset, ends.get((topic.topic_name, row.partition_index))
            lag = row.lag if row.lag >= 0 else None
            done = None if lag is None or end is None or start < 0 else max(end - start - lag, 0)
            rows.append(
                {
                    "topic": topic.topic_name,
                    "partition": row.partition_index,
                    "start": start if start >= 0 else None,
                    "end": end,
                    "lag": lag,
                    "done": done,
                }
            )
    return rows


async def describe_in_flight_records(client: ClusterClient, group: ShareGroupHandle) -> list[dict[str, Any]]:
    """Return an output row for each batch from the start offset on whose state the share coordinator stores.

    Keys: ``topic``, ``partition``, ``first`` and ``last`` offset of the batch, ``state`` (a name of `STATES`, or the
    number of another one), and ``deliveries``. Rows are sorted by topic, partition and offset.

    Raises:
        CommandFailed: an error of the group or a partition.
    """
    rows = []
    for topic in await described_share_offsets(group):
        for number in sorted(row.partition_index for row in topic.partitions if row.start_offset >= 0):
            batches = await _read_share_state(client, group.id, topic.topic_id, number)
            rows += [
                {
                    "topic": topic.topic_name,
                    "partition": number,
                    "first": batch.first_offset,
                    "last": batch.last_offset,
                    "state": STATES.get(batch.delivery_state, str(batch.delivery_state)),
                    "deliveries": batch.delivery_count,
                }
                for batch in batches
            ]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["first"]))


async def _read_share_state(client: ClusterClient, group_id: str, topic_id: bytes, number: int) -> Iterable[Any]:
    """Return the state batches of a share partition from its share coordinator, without changing its state.

    There are none if the share partition is not initialized.

    Raises:
        CommandFailed: the coordinator refused ReadShareGroupState.
    """
    _, channel = await find_coordinator(client, f"{group_id}:{uuid_to_string(topic_id)}:{number}", SHARE_PARTITION)
    wanted = ReadStateData(topic_id, [PartitionData(number, NO_EPOCH)])
    answer = await channel.call(ReadShareGroupStateRequest(group_id, [wanted]))
    row = answer.results[0].partitions[0]
    if row.error_code == ErrorCode.INVALID_REQUEST:
        return []  # not initialized
    raise_for_error(row.error_code, row.error_message, f"{group_id}: partition {number}")
    return list(row.state_batches)
