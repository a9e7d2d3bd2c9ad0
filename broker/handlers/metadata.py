"""Metadata (3), v0-13: brokers, and leaders of partitions.

Behaviour: v0 an empty list means all topics; from v1 null does and an empty list means none. From v10 topics may be
named by id (v12 for real). A missing topic is created when both the client and ``auto.create.topics.enable`` allow
it; this answer still says UNKNOWN_TOPIC_OR_PARTITION. A topic that is asked for twice is answered once. The controller
id is that of a live broker (KRaft).

Source: ``KafkaApis.handleTopicMetadataRequest``, ``KRaftMetadataCache.java`` (apache/kafka 4.3.1).

Topic ids: KIP-516; authorized operations: KIP-430; leader epochs: KIP-320.
"""

from __future__ import annotations

from collections.abc import Hashable

from ottla.broker.server.dispatch import Answer, Context
from ottla.broker.turn import Steps
from ottla.controller.directories import offline_replicas
from ottla.controller.image import Image, Topic
from ottla.controller.topics import name_error
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.schema import ZERO_UUID
from ottla.wire.written import Written

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
# Bits of every operation a topic or the cluster knows: without an authorizer all are allowed (AclEntry.java).
ALL_TOPIC_OPERATIONS = 3576
ALL_CLUSTER_OPERATIONS = 8096


def _row(image: Image, topic: Topic, request: MetadataRequest) -> Steps[MetadataResponseTopic]:
    row = MetadataResponseTopic(0, topic.name, topic.id, topic.name in INTERNAL_TOPICS)
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
        yield
    if request.include_topic_authorized_operations:
        row.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    return row


def _missing(context: Context, name: str, *, create: bool) -> MetadataResponseTopic:
    """The row of a topic that is not there, which may begin to exist because of it."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if name_error(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif create:
        context.services.admin.auto_create(name)
    return MetadataResponseTopic(code, name, ZERO_UUID, name in INTERNAL_TOPICS)


def _by_id(context: Context, wanted: MetadataRequestTopic, request: MetadataRequest) -> Steps[MetadataResponseTopic]:
    topic = context.image.topic_by_id(wanted.topic_id)
    if topic is None:
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None if context.version >= 12 else "", wanted.topic_id)
    return (yield from _row(context.image, topic, request))


def _named(wanted: MetadataRequestTopic) -> Hashable:
    """What tells a topic asked for from others."""
    if wanted.name is None:
        return wanted.topic_id
    return wanted.name if wanted.topic_id == ZERO_UUID else (wanted.name, wanted.topic_id)


def handle(context: Context, request: MetadataRequest) -> Answer:
    """Answer from the metadata image."""
    return context.turn.go(_answer(context, request))


def _answer(context: Context, request: MetadataRequest) -> Steps[Answer]:
    services = context.services
    image = context.image
    response = MetadataResponse(
        cluster_id=services.metadata.cluster_id, topics=Written(MetadataResponse, context.version)
    )
    response.brokers = [MetadataResponseBroker(*e) for e in services.metadata.endpoints(context.peer)]
    alive = image.unfenced()
    if alive:
        response.controller_id = alive[int(services.env.random() * len(alive))]
    create = request.allow_auto_topic_creation and services.config.flag("auto.create.topics.enable")
    if request.topics is None or (context.version == 0 and not request.topics):
        for topic in (image.topics[name] for name in sorted(image.topics)):
            response.topics.append((yield from _row(image, topic, request)))
        return _authorized(response, request)
    asked: set[Hashable] = set()
    for wanted in request.topics:
        yield
        what = _named(wanted)
        if what in asked:
            continue
        asked.add(what)
        if wanted.topic_id != ZERO_UUID and wanted.name is not None and context.version >= 10:
            row = MetadataResponseTopic(ErrorCode.INVALID_REQUEST, wanted.name, wanted.topic_id)
        elif wanted.name is None or wanted.topic_id != ZERO_UUID:
            row = yield from _by_id(context, wanted, request)
        elif wanted.name in image.topics:
            row = yield from _row(image, image.topics[wanted.name], request)
        else:
            row = _missing(context, wanted.name, create=create)
        response.topics.append(row)
    return _authorized(response, request)


def _authorized(response: MetadataResponse, request: MetadataRequest) -> MetadataResponse:
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response
