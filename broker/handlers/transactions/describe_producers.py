"""DescribeProducers (61), v0: producer state of partitions, for idempotent and transactional producers.

Behaviour: only the leader returns it, with the first offset of each ongoing transaction (-1 for none) and the epoch of
the coordinator that completed the last one (-1 for none), by which tools find hanging transactions. Each partition has
its own error; an invalid topic name is INVALID_TOPIC_EXCEPTION (17).
Deviation: a partition that occurs twice in the request is returned once.

Source: ``ReplicaManager.activeProducerState`` (apache/kafka 4.3.1).
From KIP-664.
"""

from __future__ import annotations

from collections import defaultdict

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.controller.control.create_and_delete_topics import topic_name_error
from ottla.jobs.job import Job
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def _active(context: RequestContext, topic: str, number: int) -> Job[list[ProducerState]]:
    active: list[ProducerState] = context.response_array()
    known = context.services.replica_manager.leader(topic, number).log.producers.producers
    for pid in list(known):
        p = known.get(pid)
        if p is not None:  # None: it has expired meanwhile
            active.append(
                ProducerState(pid, p.epoch, p.last_sequence, p.timestamp_ms, p.coordinator_epoch, p.txn_first_offset)
            )
        yield None
    return active


def handle(context: RequestContext, request: DescribeProducersRequest) -> ResponseJob:
    """Return the active producers of each partition that this broker leads; an error concerns only its partition."""
    response = DescribeProducersResponse(topics=context.response_array())
    requested: defaultdict[str, set[int]] = defaultdict(set)
    for topic in request.topics:
        known = topic.name in context.image.topics
        wrong = None if known else topic_name_error(topic.name)
        text = None if known else wrong or "This server does not host this topic-partition."
        rows = context.response_array()
        before = requested[topic.name]
        for number in topic.partition_indexes:
            yield None
            if number in before:
                continue
            before.add(number)
            if wrong is not None:
                rows.append(PartitionResponse(number, ErrorCode.INVALID_TOPIC_EXCEPTION, text))
                continue
            try:
                rows.append(
                    PartitionResponse(number, active_producers=(yield from _active(context, topic.name, number)))
                )
            except ProtocolError as error:
                rows.append(PartitionResponse(number, error.code, text))
        response.topics.append(TopicResponse(topic.name, rows))
        yield None
    return response
