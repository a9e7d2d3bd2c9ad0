"""IncrementalAlterConfigs (44), v0-1: log levels of a broker or a controller; a broker forwards other changes.

Behaviour: a resource of type BROKER_LOGGER must name this node; all of its changes are applied, or none; they are not
stored. Results of BROKER_LOGGER resources come last in the response, after those of the controller. Log levels of a
controller require CLUSTER_ACTION on the cluster, those of a broker ALTER_CONFIGS.

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
    """Change the log levels of this broker; validate and forward the other resources to the controller."""
    return alter_loggers_and_forward(context, request, alter_configs.handle, AclOperation.ALTER_CONFIGS)


def alter_loggers_and_forward(
    context: RequestContext, request: IncrementalAlterConfigsRequest, forward: ForwardHandler, operation: AclOperation
) -> ResponseJob:
    """Change the log levels of BROKER_LOGGER resources; pass the other resources to ``forward``; return all results.

    All changes of a logger resource are applied, or none; none if the request only validates. Results of logger
    resources come last.

    Args:
        context: Context of the request.
        request: Request with resources of any type.
        forward: Handler for the resources of the other types; it is not called without such resources.
        operation: Operation on the cluster that a client must be authorized for to change log levels.
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
    """Change the log levels of one resource, as a job; return its error code and message.

    Args:
        context: Context of the request.
        resource: Resource of type BROKER_LOGGER.
        operation: Operation on the cluster that the client must be authorized for.
        is_twice: The request has the resource more than once: INVALID_REQUEST.
        validate_only: Check the changes without applying them.
    """
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
