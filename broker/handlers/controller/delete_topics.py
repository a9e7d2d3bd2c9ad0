"""DeleteTopics (20), v1-6, as a controller answers it.

`ottla.broker.handlers.admin.delete_topics` is the broker's side.

Source: ``ControllerApis.deleteTopics`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.admin.delete_topics import topic_deletion_disabled
from ottla.broker.handlers.controller import controller_requests
from ottla.wire.messages.delete_topics import DeleteTopicsRequest


def handle(context: RequestContext, request: DeleteTopicsRequest) -> HandlerResult:
    """Ask the controller in this process, unless its ``delete.topic.enable`` forbids it."""
    return topic_deletion_disabled(context, request) or controller_requests.handle(context, request)
