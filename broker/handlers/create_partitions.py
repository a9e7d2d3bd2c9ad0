"""CreatePartitions (37), v0-3: handed to the controller.

Source: ``ReplicationControlManager.createPartitions`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.messages.create_partitions import CreatePartitionsRequest


def handle(context: Context, request: CreatePartitionsRequest) -> Answer:
    """Ask the controller."""
    return context.services.admin.submit(request, context.version)
