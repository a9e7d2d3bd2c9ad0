"""DeleteTopics (20), v1-6: by name, from v6 also by id. The files are renamed at once and removed a minute later.

Source: ``ReplicationControlManager.deleteTopics``, ``ControllerApis.deleteTopics`` (apache/kafka 4.3.1).

From KIP-4; by id: KIP-516.
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse


def handle(context: Context, request: DeleteTopicsRequest) -> Answer:
    """Ask the controller, unless ``delete.topic.enable`` forbids it."""
    if not context.services.config.flag("delete.topic.enable"):
        code = ErrorCode.INVALID_REQUEST if context.version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        rows = [DeletableTopicResult(name, error_code=code) for name in request.topic_names]
        rows += (DeletableTopicResult(t.name, t.topic_id, code) for t in request.topics)
        return DeleteTopicsResponse(responses=rows)
    return context.services.admin.submit(request, context.version)
