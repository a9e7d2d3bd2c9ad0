"""Acknowledgement of produced batches: they must be below the high watermark of the leader that appended them.

Deviation: if the leadership moves to a live broker, Kafka returns NOT_LEADER_OR_FOLLOWER at once, though the batch is
usually replicated to the new leader: a producer without idempotence then writes it twice, and so does librdkafka with
idempotence if it has bumped its epoch meanwhile. Here the response waits briefly for the new leader: if a batch is
still in the local log below the new leader's high watermark, it is the same batch and committed.

Source: ``DelayedProduce.java``, ``Partition.checkEnoughReplicasReachOffset`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.replication.delayed_produce import DelayedProduce, wait_for_completion
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.requests.peer import wait_while_connected
from ottla.jobs.job import Job
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse


def _failure_code(context: RequestContext, replica: HostedPartition) -> ErrorCode:
    """Return the error code for a batch whose partition lost its leader here while the batch waited.

    It is NOT_LEADER_OR_FOLLOWER also if this broker leads the partition again.
    """
    try:
        context.services.replica_manager.leader(replica.topic, replica.partition)
    except ProtocolError as error:
        return error.code
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def wait_for_acks(
    context: RequestContext, request: ProduceRequest, response: ProduceResponse, waiting: list[DelayedProduce]
) -> Job[ProduceResponse]:
    """Wait until all batches are acknowledged or have failed, set errors of rows and return ``response``, as a job.

    A batch that is not acknowledged within the request's timeout remains in the log and has REQUEST_TIMED_OUT; a batch
    in a too small ISR has NOT_ENOUGH_REPLICAS_AFTER_APPEND (acks=-1). A failed batch (`DelayedProduce.is_failed`) has
    NOT_LEADER_OR_FOLLOWER, or the error of an unknown or offline partition.
    """
    yield wait_while_connected(
        context.peer, wait_for_completion(context.services.purgatory, waiting, request.timeout_ms)
    )
    for one in waiting:
        if one.is_failed:
            one.response.error_code = _failure_code(context, one.replica)
        elif not one.is_completed:
            one.response.error_code = ErrorCode.REQUEST_TIMED_OUT
        elif request.acks == -1 and not one.is_led_elsewhere and not one.replica.has_enough_replicas():
            one.response.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return response
