"""AlterConfigs (33), v0-2: replace a resource's settings as a whole; handed to the controller.

Source: ``ConfigurationControlManager.legacyAlterConfigs`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.messages.alter_configs import AlterConfigsRequest


def handle(context: Context, request: AlterConfigsRequest) -> Answer:
    """Ask the controller."""
    return context.services.admin.submit(request, context.version)
