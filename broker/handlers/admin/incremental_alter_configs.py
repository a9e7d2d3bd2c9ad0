"""IncrementalAlterConfigs (44), v0-1, of a broker: it changes the levels of its loggers, and checks its settings.

Behaviour: a resource of type BROKER_LOGGER must name this node; its changes are applied together or not at all, and are
not stored. Its row of the answer comes after those of the controller. A controller asks for CLUSTER_ACTION, a broker
for ALTER_CONFIGS on the cluster.

Source: ``ConfigAdminManager.preprocess``, ``ControllerApis.handleIncrementalAlterConfigs`` (apache/kafka 4.3.1).

From KIP-339; loggers: KIP-412.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.config import broker_loggers
from ottla.broker.config.broker_loggers import RESOURCE_BROKER_LOGGER
from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.admin import alter_configs
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import Job
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ForwardHandler = Callable[[RequestContext, Any], ResponseJob]


def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> ResponseJob:
    """Change levels of loggers here; ask the controller for all else."""
    return alter_loggers_and_forward(context, request, alter_configs.handle, AclOperation.ALTER_CONFIGS)


def alter_loggers_and_forward(
    context: RequestContext, request: IncrementalAlterConfigsRequest, forward: ForwardHandler, operation: AclOperation
) -> ResponseJob:
    """Apply changes of loggers and hand on the rest of the request.

    Args:
        context: of the request.
        request: with resources of any type.
        forward: answers what is not about loggers.
        operation: what a client must be allowed to do to the cluster in order to change loggers.
    """
    counts: dict[str, int] = {}
    own_places = set()
    for place, resource in enumerate(request.resources):
        yield None
        if resource.resource_type == RESOURCE_BROKER_LOGGER:
            counts[resource.resource_name] = counts.get(resource.resource_name, 0) + 1
            own_places.add(place)
    if not own_places:
        return (yield from forward(context, request))
    rows = []
    for place, resource in enumerate(request.resources):
        yield None
        count = counts.pop(resource.resource_name, 0) if place in own_places else 0
        if not count:
            continue
        code, text = yield from _alter_loggers(
            context, resource, operation, is_twice=count > 1, validate_only=request.validate_only
        )
        for _ in range(count):
            yield None
            rows.append(AlterConfigsResourceResponse(code, text, RESOURCE_BROKER_LOGGER, resource.resource_name))
    if len(own_places) == len(request.resources):
        return IncrementalAlterConfigsResponse(responses=rows)
    answer: Any = yield from forward(*(yield from alter_configs.select_resources(context, request, own_places)))
    answer.responses.extend(rows)
    return answer  # type: ignore[no-any-return]


def _alter_loggers(
    context: RequestContext,
    resource: AlterConfigsResource,
    operation: AclOperation,
    *,
    is_twice: bool,
    validate_only: bool,
) -> Job[tuple[ErrorCode, str | None]]:
    """Change the loggers of one resource; return its error and message."""
    changes = resource.configs
    try:
        if is_twice:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        yield from alter_configs.check_no_duplicates(changes)
        if not context.may(operation, ResourceType.CLUSTER):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            raise ProtocolError(code, code.text if operation is AclOperation.CLUSTER_ACTION else None)
        broker_loggers.check_node_id(resource.resource_name, context.services.config.node_id)
        for change in changes:
            yield None
            broker_loggers.check_logger_change(change)
    except ProtocolError as error:
        return error.code, error.message
    if not validate_only:
        broker_loggers.apply_logger_changes(changes)
    return ErrorCode.NONE, None
