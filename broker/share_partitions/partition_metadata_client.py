"""Client for the high watermark of a partition on any leader, from which the lag of a share group is computed.

Source: ``NetworkPartitionMetadataClient.java`` (apache/kafka 4.3.1), KIP-1226.
"""

from __future__ import annotations

from ottla.broker.interbroker.connections import BrokerConnections, InterBrokerDependencies
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LATEST_TIMESTAMP = -1


class PartitionMetadataClient:
    """Client for high watermarks of partitions that this or another broker leads."""

    def __init__(self, around: InterBrokerDependencies, replicas: ReplicaManager) -> None:
        self._dependencies = around
        self._replicas = replicas
        self._connections = BrokerConnections(around.env, "share-lag", around.address, around.access)
        self.close = self._connections.close

    async def high_watermark(self, topic: str, partition: int) -> int:
        """Return the high watermark of a partition, with ListOffsets if another broker leads it.

        Raises:
            ProtocolError: UNKNOWN_TOPIC_OR_PARTITION (also without a leader), NETWORK_EXCEPTION (no valid response), or
                the error of the leader.
        """
        known = self._dependencies.image().topics.get(topic)
        registration = None if known is None else known.partitions.get(partition)
        if registration is None or registration.leader < 0:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if registration.leader == self._dependencies.node_id:
            return self._replicas.leader(topic, partition).log.high_watermark
        try:
            return await self._fetch_remote(registration.leader, topic, partition)
        except (OSError, WireError) as error:
            raise ProtocolError(ErrorCode.NETWORK_EXCEPTION, str(error)) from None

    async def _fetch_remote(self, broker_id: int, topic: str, partition: int) -> int:
        wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=LATEST_TIMESTAMP)])
        answer = await self._connections.call(broker_id, ListOffsetsRequest(-1, 0, [wanted]), 10)
        row = next((row for topic in answer.topics for row in topic.partitions), None)
        if row is None:
            raise WireError(f"invalid response of broker {broker_id}: the requested partition is missing")
        if row.error_code:
            raise ProtocolError(ErrorCode(row.error_code))
        return int(row.offset)
