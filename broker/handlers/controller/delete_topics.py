"""DeleteTopics (20), v1-6, on the controller listener.

`ottla.broker.handlers.admin.delete_topics` handles it on a broker.

Source: ``ControllerApis.deleteTopics`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.admin.delete_topics import topic_deletion_disabled
from ottla.broker.handlers.controller import controller_requests
from ottla.wire.messages.delete_topics import DeleteTopicsRequest


def handle(context: RequestContext, request: DeleteTopicsRequest) -> HandlerResult:
    """Submit the request to the controller in this process, unless ``delete.topic.enable`` is false; return a job.

    If it is false, the job only returns a response with an error for each topic.
    """
    return topic_deletion_disabled(context, request) or controller_requests.handle(context, request)
