"""Requests about open transactions in partitions: DescribeProducers, and WriteTxnMarkers with abort markers."""

from __future__ import annotations

from typing import Any

from ottla.client.cluster_client import ClusterClient
from ottla.wire.messages import write_txn_markers
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest


async def describe_producers(client: ClusterClient, topic: str, partition: int, broker: int | None = None) -> Any:
    """Return the row of a partition in a DescribeProducers response of ``broker``, or of the leader if that is None.

    The error code of the row is not checked.
    """
    channel = await (client.leader(topic, partition) if broker is None else client.broker(broker))
    answer = await channel.call(DescribeProducersRequest([TopicRequest(topic, [partition])]))
    return answer.topics[0].partitions[0]


async def write_abort_marker(
    client: ClusterClient, topic: str, partition: int, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> int:
    """Send WriteTxnMarkers with an abort marker to the leader of a partition; return the partition's error code.

    The code is 0 if the marker was written. ``coordinator_epoch`` is below 0 if the partition has no earlier marker of
    the producer; it is sent as 0.
    """
    topics = [write_txn_markers.WritableTxnMarkerTopic(topic, [partition])]
    marker = write_txn_markers.WritableTxnMarker(producer_id, producer_epoch, False, topics, max(coordinator_epoch, 0))
    channel = await client.leader(topic, partition)
    answer = await channel.call(write_txn_markers.WriteTxnMarkersRequest([marker]))
    return int(answer.markers[0].topics[0].partitions[0].error_code)
