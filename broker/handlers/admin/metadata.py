"""Metadata (3), v0-13: live brokers, and topics with leaders, replicas and ISR of their partitions.

Behaviour: in v0 an empty list means all topics; from v1 null means all and an empty list none. From v12 topics can be
requested by topic id: then all names, and topics without an id, are ignored; v10 and v11 have the field but reject ids.
A missing topic is created if both the client and ``auto.create.topics.enable`` allow it; this response still has
UNKNOWN_TOPIC_OR_PARTITION. A topic that the request names twice is returned once. The controller id is that of a random
live broker (KRaft).

Source: ``KafkaApis.handleTopicMetadataRequest``, ``KRaftMetadataCache.java`` (apache/kafka 4.3.1).
Topic ids: KIP-516; authorized operations: KIP-430; leader epochs: KIP-320.
"""

from __future__ import annotations

from collections.abc import Hashable

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.controller.control.create_and_delete_topics import topic_name_error
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.controller.metadata.directory_id import offline_replicas
from ottla.controller.metadata.image import MetadataImage, TopicImage
from ottla.jobs.job import Job
from ottla.jobs.sequences import sort_job
from ottla.wire.codec.response_array import PENDING_ROWS
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID_SINCE = 12
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def cluster_authorized_operations(context: RequestContext) -> int:
    """Return the client's authorized operations on the cluster as a bit field; 0 if the client may not DESCRIBE it."""
    return (
        context.authorized_operations(ResourceType.CLUSTER)
        if context.may(AclOperation.DESCRIBE, ResourceType.CLUSTER)
        else 0
    )


def _topic_response(
    context: RequestContext, image: MetadataImage, topic: TopicImage, request: MetadataRequest
) -> Job[MetadataResponseTopic]:
    row = MetadataResponseTopic(0, topic.name, topic.id, topic.name in INTERNAL_TOPICS)
    if len(topic.partitions) > PENDING_ROWS:  # a plain list would be encoded without a yield
        row.partitions = context.response_array()
    for number, p in sorted(topic.partitions.items()):
        code = ErrorCode.LEADER_NOT_AVAILABLE if p.leader < 0 else ErrorCode.NONE
        row.partitions.append(
            MetadataResponsePartition(
                code,
                number,
                p.leader,
                p.leader_epoch,
                list(p.replicas),
                list(p.isr),
                offline_replicas(image, p),
            )
        )
        yield None
    if request.include_topic_authorized_operations:
        row.topic_authorized_operations = context.authorized_operations(ResourceType.TOPIC, topic.name)
    return row


def _unauthorized_topic(name: str | None, topic_id: bytes = ZERO_UUID) -> MetadataResponseTopic:
    """Return a row with TOPIC_AUTHORIZATION_FAILED, which does not reveal whether the topic exists."""
    return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, topic_id)


def _unknown_topic(
    context: RequestContext, name: str, request: MetadataRequest, *, create: bool
) -> MetadataResponseTopic:
    """Return the row of a topic that does not exist: UNKNOWN_TOPIC_OR_PARTITION or INVALID_TOPIC_EXCEPTION.

    With ``create`` (request and configuration allow it) the creation is started; a client without CREATE gets
    TOPIC_AUTHORIZATION_FAILED instead.
    """
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_name_error(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif create:
        may_create = context.may(AclOperation.CREATE, ResourceType.CLUSTER) or context.may(
            AclOperation.CREATE, ResourceType.TOPIC, name
        )
        if not may_create:
            return _unauthorized_topic(name)
        context.services.controller_forwarder.auto_create(name)
    row = MetadataResponseTopic(code, name, ZERO_UUID, name in INTERNAL_TOPICS)
    if request.include_topic_authorized_operations:
        row.topic_authorized_operations = context.authorized_operations(ResourceType.TOPIC, name)
    return row


def _topic_by_id(
    context: RequestContext, wanted: MetadataRequestTopic, request: MetadataRequest
) -> Job[MetadataResponseTopic]:
    topic = context.image.topic_by_id(wanted.topic_id)
    if topic is None:
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None if context.version >= 12 else "", wanted.topic_id)
    if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
        return _unauthorized_topic(None if context.version >= 12 else "", wanted.topic_id)
    return (yield from _topic_response(context, context.image, topic, request))


def _names_topic_by_id_too_early(context: RequestContext, wanted: MetadataRequestTopic) -> bool:
    """Return True if ``wanted``, a topic of a request before v12, has a topic id or a null name, which is invalid."""
    return context.version < TOPIC_ID_SINCE and (wanted.name is None or wanted.topic_id != ZERO_UUID)


def _reject_request(context: RequestContext, request: MetadataRequest) -> Job[MetadataResponse]:
    """Return a response with INVALID_REQUEST for each topic, and without brokers, as a job."""
    refused = MetadataResponse(error_code=ErrorCode.INVALID_REQUEST, topics=context.response_array())
    for wanted in request.topics or ():
        refused.topics.append(MetadataResponseTopic(ErrorCode.INVALID_REQUEST, wanted.name or "", wanted.topic_id))
        yield None
    return refused


def handle(context: RequestContext, request: MetadataRequest) -> ResponseJob:
    """Return the requested topics and the live brokers of the metadata image; start the creation of missing topics.

    Brokers without an endpoint on the client's listener are left out.
    A requested topic that is not authorized or missing has an error in its row; if all are requested, topics that are
    not authorized are left out. Before v12 a topic id or a null name makes the whole request INVALID_REQUEST.
    """
    services = context.services
    image = context.image
    response = MetadataResponse(cluster_id=services.metadata.cluster_id, topics=context.response_array())
    response.brokers = [MetadataResponseBroker(*e) for e in services.metadata.endpoints(context.peer)]
    alive = image.unfenced_brokers()
    if alive:
        response.controller_id = alive[int(services.env.random() * len(alive))]
    create = request.allow_auto_topic_creation and services.config.flag("auto.create.topics.enable")
    if request.topics is None or (context.version == 0 and not request.topics):
        for name in (yield from sort_job(image.topics)):
            if context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_look=True):
                response.topics.append((yield from _topic_response(context, image, image.topics[name], request)))
            yield None
        return _add_authorized_operations(context, response, request)
    requested: set[Hashable] = set()
    by_id = False
    for wanted in request.topics:
        if _names_topic_by_id_too_early(context, wanted):
            return (yield from _reject_request(context, request))
        by_id = by_id or wanted.topic_id != ZERO_UUID
        yield None
    for wanted in request.topics:
        yield None
        key = wanted.topic_id if by_id or wanted.name is None else wanted.name
        if key in requested or (by_id and key == ZERO_UUID):
            continue
        requested.add(key)
        if by_id or wanted.name is None:
            row = yield from _topic_by_id(context, wanted, request)
        elif not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, wanted.name):
            row = _unauthorized_topic(wanted.name)
        elif wanted.name in image.topics:
            row = yield from _topic_response(context, image, image.topics[wanted.name], request)
        else:
            row = _unknown_topic(context, wanted.name, request, create=create)
        response.topics.append(row)
    return _add_authorized_operations(context, response, request)


def _add_authorized_operations(
    context: RequestContext, response: MetadataResponse, request: MetadataRequest
) -> MetadataResponse:
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_authorized_operations(context)
    return response
