"""ShareGroupHeartbeat (76), v1: join a share group, stay in it, or leave it.

Behaviour: the member generates its own member id. The share state of topics that are new to the group is initialized in
the background first: their partitions are assigned by a later heartbeat. If the feature share.version is 0, the error
is UNSUPPORTED_VERSION. `broker.groups.share` has the state machine.

Source: ``KafkaApis.handleShareGroupHeartbeat``, ``GroupCoordinatorService.shareGroupHeartbeat`` (apache/kafka 4.3.1).
From KIP-932.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.config.limits import MAX_SHARE_MEMBER_ID_CHARS
from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.share.groups import ShareGroups, TopicIdPartitions
from ottla.broker.groups.share.heartbeat import ShareHeartbeatResult, heartbeat
from ottla.broker.groups.state_machine import ShareGroupCommand
from ottla.broker.handlers.groups.large_subscriptions import check_subscription
from ottla.broker.handlers.item_results import wait_for_success
from ottla.broker.handlers.share.share_acknowledgements import is_served
from ottla.broker.requests.error_responses import with_error_response
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

MANY_TOPICS = 1_000
"""Number of subscribed topic names above which the subscription is processed in time slices."""
LEAVE_EPOCH = -1


def validate(request: ShareGroupHeartbeatRequest) -> None:
    """Check the fields of a heartbeat (C-208).

    Raises:
        ProtocolError: INVALID_REQUEST.
    """

    def unless(holds: object, why: str) -> None:
        if not holds:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, why)

    unless(request.member_id.strip(), "MemberId can't be empty.")
    unless(request.group_id.strip(), "GroupId can't be empty.")
    unless(request.rack_id is None or request.rack_id.strip(), "RackId can't be empty.")
    unless(
        request.member_epoch != 0 or request.subscribed_topic_names,
        "SubscribedTopicNames must be set in first request.",
    )
    unless(request.member_epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")


@with_error_response
def handle(context: RequestContext, request: ShareGroupHeartbeatRequest) -> ResponseJob:
    """Submit the heartbeat to the group coordinator and return its response.

    The initialization of new partitions' share state is started, but not awaited.
    """
    if not is_served(context):
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    if not context.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise ProtocolError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not 0 < len(request.member_id) <= MAX_SHARE_MEMBER_ID_CHARS:
        raise ProtocolError(ErrorCode.INVALID_REQUEST)
    names = request.subscribed_topic_names or []
    if len(names) > MANY_TOPICS:
        request.subscribed_topic_names = yield from check_subscription(context, request.group_id, names)
    elif not all(context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    validate(request)
    call = GroupRequest(None, request, context.version, context.client_id, context.peer.host)
    rule = partial(heartbeat, call=call)
    answer = yield from wait_for_success(
        context.services.groups.submit(request.group_id, lambda own: ShareGroupCommand(own, rule))
    )
    assert isinstance(answer, ShareHeartbeatResult)
    if answer.partitions_to_initialize:
        shares = context.services.share_partition_manager
        shares.start_task(
            partial(initialize_share_state, context, request.group_id, answer.epoch, answer.partitions_to_initialize)
        )
    return answer.response


async def initialize_share_state(
    context: RequestContext, group_id: str, epoch: int, places: TopicIdPartitions, start_offset: int = -1
) -> None:
    """Initialize the share state of a group's partitions; report success or failure to the group coordinator.

    An error of the persister is only reported. ``epoch``: group epoch, which becomes the state epoch; ``start_offset``
    -1 leaves the start offset to the partitions' leaders.
    """
    shares, done = context.services.share_partition_manager, True
    try:
        await shares.initialize(group_id, epoch, places, start_offset)
    except ProtocolError:
        done = False
    await report_initialization(context, group_id, places, done=done)


async def report_initialization(
    context: RequestContext, group_id: str, places: TopicIdPartitions, *, done: bool
) -> None:
    """Report the result of InitializeShareGroupState to the group coordinator and wait until it has been recorded.

    ``done`` is False if the initialization failed.
    """
    rule = partial(_initialized, group_id=group_id, places=places, done=done)
    await context.services.groups.submit(group_id, lambda own: ShareGroupCommand(own, rule)).wait()


def _initialized(
    groups: ShareGroups, pending: Any, _: int, *, group_id: str, places: TopicIdPartitions, done: bool
) -> GroupEffects:
    return groups.on_initialized(pending, group_id, places, done=done)
