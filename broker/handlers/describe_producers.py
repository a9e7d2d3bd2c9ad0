"""DescribeProducers (61), v0: idempotent and transactional producers a partition remembers.

Source: ``ReplicaManager.activeProducerState`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from functools import partial

from ottla.broker.handlers.rows import each
from ottla.broker.server.dispatch import Answer, Context
from ottla.broker.turn import Steps
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def _one(context: Context, topic: str, number: int) -> PartitionResponse:
    producers = context.services.replicas.leader(topic, number).log.producers.producers
    active = [
        ProducerState(pid, p.epoch, p.last_sequence, p.timestamp_ms, p.coordinator_epoch, p.txn_first_offset)
        for pid, p in producers.items()
    ]
    return PartitionResponse(number, active_producers=active)


def _answer(context: Context, request: DescribeProducersRequest) -> Steps[Answer]:
    response = DescribeProducersResponse()
    for topic in request.topics:
        known = topic.name in context.image.topics
        text = None if known else "This server does not host this topic-partition."

        def refused(number: int, error: ProtocolError, text: str | None = text) -> PartitionResponse:
            return PartitionResponse(number, error.code, text)

        rows = yield from each(topic.partition_indexes, partial(_one, context, topic.name), refused)
        response.topics.append(TopicResponse(topic.name, rows))
    return response


def handle(context: Context, request: DescribeProducersRequest) -> Answer:
    """Answer each partition on its own."""
    return context.turn.go(_answer(context, request))
