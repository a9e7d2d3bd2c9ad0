"""IncrementalAlterConfigs (44), v0-1, on the controller listener: log levels of this node, and settings.

Source: ``ControllerApis.handleIncrementalAlterConfigs`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.admin.incremental_alter_configs import alter_loggers_and_forward
from ottla.broker.handlers.controller.controller_requests import submit_to_controller
from ottla.controller.metadata.acl import AclOperation
from ottla.wire.codec.schema import Message
from ottla.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest


def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> ResponseJob:
    """Change the log levels of this node; submit the other resources to the controller in this process."""
    return alter_loggers_and_forward(context, request, _submit, AclOperation.CLUSTER_ACTION)


def _submit(context: RequestContext, request: Message) -> ResponseJob:
    return submit_to_controller(context, request, request)
