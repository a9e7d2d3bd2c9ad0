"""CreateTopics (19), v2-7: handed to the controller; the answer leaves once the topics are committed and led.

Source: ``ReplicationControlManager.createTopics`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.messages.create_topics import CreateTopicsRequest


def handle(context: Context, request: CreateTopicsRequest) -> Answer:
    """Ask the controller."""
    return context.services.admin.submit(request, context.version)
