"""FindCoordinator (10), v0-6: the broker that coordinates a group, a transactional id or a share partition.

Behaviour: the first look-up of a group starts the creation of `__consumer_offsets`, that of a transactional id of
`__transaction_state`, that of a share partition of `__share_group_state`; the error is then COORDINATOR_NOT_AVAILABLE,
and the client retries. From v4 a request may have several keys.
Version notes: from v6 brokers can find the coordinators of share partitions.

Source: ``KafkaApis.getCoordinator``, ``DefaultAutoTopicCreationManager`` (apache/kafka 4.3.1).
Several keys in one request: KIP-699.
"""

from __future__ import annotations

from ottla.broker.coordinator.runtime import partition_for_key
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.broker.metadata.controller_forwarder import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = range(3)
SHARE_SINCE = 6
UUID_CHARS = 22
COORDINATOR_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC, SHARE: SHARE_TOPIC}
COORDINATOR_RESOURCES = {
    GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    TRANSACTION: (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


def _error_coordinator(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key, -1, "", -1, code, message)


def _share_key_error(context: RequestContext, key: str) -> ErrorCode | None:
    """Return the error of a share partition's key ``group:topicId:partition``; None if it is valid.

    Only brokers, which have CLUSTER_ACTION, may ask for such keys.
    """
    if not context.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    parts = key.rsplit(":", 2)
    is_well_formed = len(parts) == 3 and all(parts) and len(parts[1]) == UUID_CHARS and parts[2].isdecimal()
    return None if context.version >= SHARE_SINCE and is_well_formed else ErrorCode.INVALID_REQUEST


def _find(context: RequestContext, key: str, kind: int) -> Coordinator:
    name = COORDINATOR_TOPICS.get(kind)
    if name is None:
        return _error_coordinator(key, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST.text)
    if kind == SHARE:
        refusal = _share_key_error(context, key)
        if refusal is not None:
            return _error_coordinator(key, refusal, refusal.text)
    elif not context.may(AclOperation.DESCRIBE, COORDINATOR_RESOURCES[kind][0], key):
        refusal = COORDINATOR_RESOURCES[kind][1]
        return _error_coordinator(key, refusal, refusal.text)
    services = context.services
    topic = context.image.topics.get(name)
    if topic is None:
        services.controller_forwarder.auto_create(name)
        return _error_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE.text)
    partition = topic.partitions[partition_for_key(key, len(topic.partitions))]
    for broker_id, host, port, _ in services.metadata.endpoints(context.peer):
        if broker_id == partition.leader:
            return Coordinator(key, broker_id, host, port, 0, "NONE" if context.version < 4 else "")
    return _error_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE.text)


def handle(context: RequestContext, request: FindCoordinatorRequest) -> HandlerResult:
    """Return the coordinator of each key; an error concerns only its key.

    The creation of a missing internal topic is started, and the error is COORDINATOR_NOT_AVAILABLE then, as without a
    live coordinator that has an endpoint on the client's listener.
    """
    if context.version >= 4:
        return _find_all(context, request)
    row = _find(context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=row.error_code, error_message=row.error_message, node_id=row.node_id, host=row.host, port=row.port
    )


def _find_all(context: RequestContext, request: FindCoordinatorRequest) -> ResponseJob:
    rows = context.response_array()
    for key in request.coordinator_keys:
        rows.append(_find(context, key, request.key_type))
        yield None
    return FindCoordinatorResponse(coordinators=rows)
