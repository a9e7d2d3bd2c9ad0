"""DeleteTopics (20), v1-6, as a controller answers it: `ottla.broker.handlers.delete_topics` is the broker's side.

Source: ``ControllerApis.deleteTopics`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.handlers.delete_topics import topic_deletion_disabled
from ottla.broker.handlers.quorum import decided
from ottla.broker.server.dispatch import HandlerResult, RequestContext
from ottla.wire.messages.delete_topics import DeleteTopicsRequest


def handle(context: RequestContext, request: DeleteTopicsRequest) -> HandlerResult:
    """Ask the controller in this process, unless its ``delete.topic.enable`` forbids it."""
    return topic_deletion_disabled(context, request) or decided.handle(context, request)
