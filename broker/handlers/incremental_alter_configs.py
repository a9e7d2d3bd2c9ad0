"""IncrementalAlterConfigs (44), v0-1: handed to the controller; new settings hold when the answer leaves.

Source: ``ConfigurationControlManager.incrementalAlterConfigs`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest


def handle(context: Context, request: IncrementalAlterConfigsRequest) -> Answer:
    """Ask the controller."""
    return context.services.admin.submit(request, context.version)
