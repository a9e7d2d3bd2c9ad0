"""ConsumerGroupHeartbeat (68), v0-1: join a consumer group (KIP-848), stay in it, or leave it.

Behaviour: in v0 the coordinator may generate the member id; from v1 a member may subscribe by a regular expression. If
the consumer protocol is disabled (``group.coordinator.rebalance.protocols``, the feature group.version) the error is
UNSUPPORTED_VERSION. `broker.groups.consumer` has the state machine.

Source: ``KafkaApis.handleConsumerGroupHeartbeat``, ``GroupCoordinatorService``, ``GroupMetadataManager`` (apache/kafka
4.3.1).
From KIP-848.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.groups.group_requests import kafka_uuid, submit_group_request
from ottla.broker.requests.error_responses import with_error_response
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import as_job
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MANY_TOPICS = 1_000
"""Number of subscribed topic names above which the subscription is processed in time slices."""
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


def is_served(context: RequestContext) -> bool:
    """Return whether the consumer group protocol (KIP-848) is enabled by configuration and group.version."""
    protocols = context.services.config.text("group.coordinator.rebalance.protocols")
    return "consumer" in protocols.split(",") and context.image.features.get("group.version", 0) >= 1


def validate(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Check the fields of a heartbeat; in version 0 a member that joins need not have a member id.

    Nor need a static member that leaves for a while. ``assignors`` are the names of the server-side assignors.

    Raises:
        ProtocolError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch

    def unless(holds: object, why: str) -> None:
        if not holds:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, why)

    named = version >= 1 or epoch > 0 or epoch == LEAVE_EPOCH
    unless(not named or request.member_id.strip(), "MemberId can't be empty.")
    unless(request.group_id.strip(), "GroupId can't be empty.")
    unless(request.instance_id is None or request.instance_id.strip(), "InstanceId can't be empty.")
    unless(request.rack_id is None or request.rack_id.strip(), "RackId can't be empty.")
    if epoch == 0:
        unless(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        unless(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        unless(
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == STATIC_LEAVE_EPOCH:
        unless(request.instance_id is not None, "InstanceId can't be null.")
    unless(epoch >= STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        why = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        raise ProtocolError(ErrorCode.UNSUPPORTED_ASSIGNOR, why)


@with_error_response
def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ResponseJob:
    """Authorize and validate the heartbeat, submit it to the group coordinator and return the response.

    An error is the error code of the response.
    """
    if not is_served(context):
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    if not context.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise ProtocolError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = request.subscribed_topic_names or []
    if len(names) > MANY_TOPICS:
        # lazy: 1.8 ms, 79 kB
        from ottla.broker.handlers.groups.large_subscriptions import check_subscription

        request.subscribed_topic_names = yield from check_subscription(context, request.group_id, names)
    elif context.has_authorizer and not all(
        context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names
    ):
        raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    validate(request, context.version, context.services.groups.settings.consumer.assignors)
    sees = partial(context.may, AclOperation.DESCRIBE, ResourceType.TOPIC) if context.has_authorizer else None
    return (yield from as_job(submit_group_request(context, request, None, kafka_uuid, sees)))
