"""IncrementalAlterConfigs (44), v0-1, of a controller: it changes the levels of its own loggers, and decides all else.

Source: ``ControllerApis.handleIncrementalAlterConfigs`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.handlers.incremental_alter_configs import changed
from ottla.broker.handlers.quorum.decided import submitted
from ottla.broker.server.dispatch import HandlerResult, RequestContext
from ottla.controller.acl import AclOperation
from ottla.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.schema import Message


def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> HandlerResult:
    """Change levels of loggers of this node; submit the rest to the controller in this process."""
    return context.time_slice.start(changed(context, request, _submit, AclOperation.CLUSTER_ACTION))


async def _submit(context: RequestContext, request: Message) -> Message:
    return await submitted(context, request, request)
