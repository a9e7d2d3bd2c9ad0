"""Columns with the sizes of topics and partitions: one DescribeLogDirs request to each broker that has replicas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ottla.cli.kafka_tools.reassignment_files import PartitionReplica
from ottla.cli.kafka_tools.replica_log_dirs import describe_log_dirs
from ottla.client.cluster_client import ClusterClient
from ottla.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

Row = dict[str, Any]


async def add_topic_sizes(client: ClusterClient, topics: Sequence[MetadataResponseTopic], rows: Sequence[Row]) -> None:
    """Add the bytes in log directories to the row of each topic.

    Keys: ``size``, the sum of the leaders' replicas, and ``total size``, that of all replicas. A sum is None if one of
    its replicas is on no live broker, or in a log directory that failed.

    Args:
        client: client of the cluster.
        topics: topics of a response to Metadata.
        rows: a row for each topic, in the same order.

    Raises:
        ProtocolError: DescribeLogDirs was refused; OSError: a broker cannot be reached.
    """
    sizes = await _fetch_sizes(client, topics)
    for topic, row in zip(topics, rows, strict=True):
        row |= _size_columns(sizes, topic, topic.partitions)


async def add_partition_sizes(client: ClusterClient, topic: MetadataResponseTopic, rows: Sequence[Row]) -> None:
    """Add the bytes in log directories to the row of each partition of ``topic``; as `add_topic_sizes`."""
    sizes = await _fetch_sizes(client, [topic])
    for partition, row in zip(topic.partitions, rows, strict=True):
        row |= _size_columns(sizes, topic, [partition])


async def _fetch_sizes(
    client: ClusterClient, topics: Iterable[MetadataResponseTopic]
) -> dict[PartitionReplica, int | None]:
    """Return the size in bytes of each replica on a live broker; None for one in a log directory that failed."""
    live = {broker.node_id for broker in (await client.metadata([])).brokers}
    replicas = [
        PartitionReplica(broker, topic.name or "", partition.partition_index)
        for topic in topics
        for partition in topic.partitions
        for broker in partition.replica_nodes
        if broker in live
    ]
    found = await describe_log_dirs(client, replicas)
    return {replica: each.size for replica, each in found.items()}


def _size_columns(
    sizes: dict[PartitionReplica, int | None],
    topic: MetadataResponseTopic,
    partitions: Collection[MetadataResponsePartition],
) -> dict[str, int | None]:
    def size(broker: int, partition: MetadataResponsePartition) -> int | None:
        return sizes.get(PartitionReplica(broker, topic.name or "", partition.partition_index))

    leaders = [size(partition.leader_id, partition) for partition in partitions]
    every = [size(broker, partition) for partition in partitions for broker in partition.replica_nodes]
    return {"size": _sum(leaders), "total size": _sum(every)}


def _sum(sizes: Collection[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
