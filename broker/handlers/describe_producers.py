"""DescribeProducers (61), v0: idempotent and transactional producers a partition remembers.

Source: ``ReplicaManager.activeProducerState`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(context: Context, request: DescribeProducersRequest) -> Answer:
    """Answer each partition on its own."""
    response = DescribeProducersResponse()
    for topic in request.topics:
        rows = []
        for number in topic.partition_indexes:
            row = PartitionResponse(number)
            try:
                producers = context.services.replicas.leader(topic.name, number).log.producers.producers
                row.active_producers = [
                    ProducerState(
                        pid, p.epoch, p.last_sequence, p.timestamp_ms, p.coordinator_epoch, p.txn_first_offset
                    )
                    for pid, p in producers.items()
                ]
            except ProtocolError as error:
                row.error_code = error.code
                if topic.name not in context.image.topics:
                    row.error_message = "This server does not host this topic-partition."
            rows.append(row)
        response.topics.append(TopicResponse(topic.name, rows))
    return response
