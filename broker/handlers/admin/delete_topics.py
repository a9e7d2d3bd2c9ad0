"""DeleteTopics (20), v1-6, by name, from v6 also by topic id, on a broker: forwarded to the controller.

The directories of the partitions are renamed when a broker applies the deletion, and removed after the broker's
``log.segment.delete.delay.ms``.

Source: ``ReplicationControlManager.deleteTopics``, ``ControllerApis.deleteTopics`` (apache/kafka 4.3.1).
From KIP-4; by id: KIP-516.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.admin import forward_to_controller
from ottla.broker.requests.error_responses import build_error_response
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_topics import DeleteTopicsRequest


def handle(context: RequestContext, request: DeleteTopicsRequest) -> HandlerResult:
    """Forward the request to the controller; if ``delete.topic.enable`` is false only return an error for each topic.

    The result is a job.
    """
    return topic_deletion_disabled(context, request) or forward_to_controller.handle(context, request)


def topic_deletion_disabled(context: RequestContext, request: DeleteTopicsRequest) -> HandlerResult:
    """Return a job for the response with an error for each topic if ``delete.topic.enable`` is false; otherwise None.

    The error is TOPIC_DELETION_DISABLED, before v3 INVALID_REQUEST.
    """
    if context.services.config.flag("delete.topic.enable"):
        return None
    code = ErrorCode.INVALID_REQUEST if context.version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
    return build_error_response(context, request, code)
