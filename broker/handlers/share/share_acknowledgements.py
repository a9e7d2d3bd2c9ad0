"""Acknowledgements in ShareFetch and ShareAcknowledge requests: validation and submission to their share partitions.

Source: ``KafkaApis.handleAcknowledgements``, ``KafkaApis.validateAcknowledgementBatches`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.broker.config.limits import MAX_SHARE_MEMBER_ID_CHARS
from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.share_partitions.acknowledgement import RENEW, ShareAcknowledgementBatch
from ottla.broker.share_partitions.share_sessions import TopicIdPartition
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import Job
from ottla.jobs.sequences import collect_job
from ottla.wire.errors import ErrorCode, ProtocolError

RENEW_SINCE = 2
"""First version of ShareFetch and ShareAcknowledge that can renew acquisition locks (KIP-1222)."""
LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def is_served(context: RequestContext) -> bool:
    """Return True if share groups are enabled by the feature share.version."""
    return context.image.features.get("share.version", 0) >= 1


def check_request(context: RequestContext, group_id: str | None, member_id: str | None) -> None:
    """Check group and member id of a request, and that the client may read the group.

    Raises:
        ProtocolError: UNSUPPORTED_VERSION if share groups are disabled, INVALID_REQUEST for an invalid id,
            GROUP_AUTHORIZATION_FAILED.
    """
    if not is_served(context):
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    if group_id is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST)
    if not context.may(AclOperation.READ, ResourceType.GROUP, group_id):
        raise ProtocolError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not member_id or len(member_id) > MAX_SHARE_MEMBER_ID_CHARS:
        raise ProtocolError(ErrorCode.INVALID_REQUEST)


_TYPES_PER_STEP = 4096


def _is_invalid(batches: Iterable[Any], *, renews: bool, is_renewal: bool) -> Job[bool]:
    """Return True if a partition's acknowledgement batches are invalid (C-219), as a job.

    Valid batches ascend (one may begin at the last offset of the previous one), have one type for all offsets or one
    for each, and only known types.

    ``renews``: the version has the type RENEW. ``is_renewal``: the request's flag allows it.
    """
    previous = -1
    most = RENEW if renews else RENEW - 1
    for batch in batches:
        types, span = batch.acknowledge_types, batch.last_offset - batch.first_offset
        if span < 0 or batch.first_offset < previous or not types or (len(types) > 1 and span != len(types) - 1):
            return True
        for at in range(0, len(types), _TYPES_PER_STEP):
            some = types[at : at + _TYPES_PER_STEP]
            if min(some) < 0 or max(some) > most or (not is_renewal and RENEW in some):
                return True
            yield None
        previous = batch.last_offset
    return False


def submit_acknowledgements(
    context: RequestContext, request: Any, batches: dict[TopicIdPartition, list[Any]]
) -> Job[list[tuple[TopicIdPartition, PendingBrokerRequest]]]:
    """Submit the acknowledgements of each partition to its share partition, as a job.

    A valid partition without batches is left out, unless another one has valid batches for a partition that exists.

    Returns:
        Partitions with pending results, in the order of ``batches``; a rejected partition has an error as its result.
    """
    submitted, is_looked_at = [], False
    shares, group_id, member_id = context.services.share_partition_manager, request.group_id, request.member_id
    renews = context.version >= RENEW_SINCE
    for place, partition_batches in batches.items():
        pending = PendingBrokerRequest()
        is_wrong = yield from _is_invalid(partition_batches, renews=renews, is_renewal=renews and request.is_renew_ack)
        name = shares.topic_name(place)
        shared = shares.get(group_id, place)
        if name is None:
            pending.deliver(ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID))
        elif is_wrong:
            pending.deliver(ProtocolError(ErrorCode.INVALID_REQUEST))
        elif not context.may(AclOperation.READ, ResourceType.TOPIC, name):
            pending.deliver(ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif not shares.partition_exists(place):
            pending.deliver(ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif not partition_batches:
            pending.deliver(True)
        elif shared is None:
            is_looked_at = True
            pending.deliver(ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            is_looked_at = True
            rows = yield from collect_job(
                ShareAcknowledgementBatch(x.first_offset, x.last_offset, x.acknowledge_types) for x in partition_batches
            )
            pending = shared.acknowledge(member_id, rows)
        submitted.append((place, pending))
        yield None
    return submitted if is_looked_at else [each for each in submitted if each[1].answer is not True]


def leader_of(context: RequestContext, place: TopicIdPartition) -> tuple[int, int]:
    """Return leader id and leader epoch of a partition by the metadata image; -1 each if it is unknown."""
    name = context.services.share_partition_manager.topic_name(place)
    topic = None if name is None else context.image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(place.partition)
    return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)
