"""AlterConfigs (33), v0-2: preliminary validation on the broker, then forwarding to the controller.

Also the preliminary validation of IncrementalAlterConfigs (44), v0-1.

Behaviour: BROKER resources are validated against this broker's own configuration and refused if they name another
broker: a client has to send them to that broker. Of other types only resources that occur twice, or have a duplicate or
null setting, are refused here. The rest is forwarded to the controller, which validates topics, groups and client
metrics. Deviation: results of resources refused here follow those of the controller in the response.

Source: ``ConfigAdminManager.scala``, ``KafkaApis.handleIncrementalAlterConfigsRequest`` (apache/kafka 4.3.1); KIP-339,
KIP-226.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as replace_struct

from ottla.broker.config.dynamic_config import select_applicable
from ottla.broker.config.reconfiguration import validate_reconfiguration
from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_validation import check_size
from ottla.controller.config.internal_broker_config_keys import INTERNAL_BROKER_KEYS
from ottla.controller.config.java_values import parse_integer
from ottla.controller.control.alter_configs import AlterConfigOp, apply_list_change, resource_key
from ottla.controller.limits import MAX_RECORDS_PER_REQUEST
from ottla.controller.metadata.image import RESOURCE_BROKER
from ottla.jobs.job import Job
from ottla.jobs.sequences import Remainder, find_duplicates_job
from ottla.wire.api_keys import ApiKey, response_class
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.framing import encode_request_job, parse_request

_NAMES_SHOWN = 20
_SIZE_BYTES = 4
"""Bytes of the length prefix of a request frame."""


def handle(context: RequestContext, request: Any) -> ResponseJob:
    """Validate each resource; forward the valid ones to the controller and add the other results to its response.

    A resource that the request has twice is INVALID_REQUEST. Nothing is forwarded if every resource is invalid.
    """
    row_class = sys.modules[type(request).__module__].AlterConfigsResourceResponse
    twice = yield from find_duplicates_job(map(resource_key, request.resources))
    refused, refused_places = [], set()
    for place, resource in enumerate(request.resources):
        yield None
        try:
            if resource_key(resource) in twice:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            yield from _preprocess(context, resource)
        except ProtocolError as error:
            refused.append(row_class(error.code, error.message, resource.resource_type, resource.resource_name))
            refused_places.add(place)
    if not refused:
        return (yield context.services.controller_forwarder.forward(context, request))  # type: ignore[no-any-return]
    if len(refused) == len(request.resources):
        return response_class(ApiKey(request.SPEC.key))(responses=refused)
    context, part = yield from select_resources(context, request, refused_places)
    answer: Any = yield context.services.controller_forwarder.forward(context, part)
    answer.responses.extend(refused)
    return answer  # type: ignore[no-any-return]


def select_resources(context: RequestContext, request: Any, left_out: set[int]) -> Job[tuple[RequestContext, Any]]:
    """Return a copy of a request without some resources, and a context with its encoded frame, as a job.

    The frame is forwarded to another node in an Envelope.

    Args:
        context: Context of the complete request.
        request: AlterConfigs or IncrementalAlterConfigs; it is not changed.
        left_out: Indices of the resources to leave out, from 0.
    """
    left = Remainder(request.resources, left_out)
    part = replace_struct(request, resources=left)
    if not context.frame:
        return context, part
    head = parse_request(memoryview(context.frame))
    frame = yield from encode_request_job(head.key, head.version, head.correlation_id, head.client_id, part)
    return replace(context, frame=frame[_SIZE_BYTES:]), part


def check_no_duplicates(changes: Any) -> Job[None]:
    """Check the changes of one resource, as a job: no setting twice, and a null value only for a DELETE operation.

    ``changes``: settings of IncrementalAlterConfigs, or of AlterConfigs, which count as SET.

    Raises:
        ProtocolError: INVALID_REQUEST.
    """
    names: set[str] = set()
    empty: list[str] = []
    for change in changes:
        yield None
        names.add(change.name)
        if change.value is None and _operation(change) != AlterConfigOp.DELETE:
            empty.append(change.name)
    if len(names) < len(changes):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if empty:
        why = f"Null value not supported for : {', '.join(empty[:_NAMES_SHOWN])}"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, why)


def _preprocess(context: RequestContext, resource: Any) -> Job[None]:
    """Validate the changes of one resource, as far as the broker does this before forwarding, as a job.

    For every type: no duplicate setting, and a null value only for DELETE. For BROKER also: the resource names this
    node or is the cluster-wide default (empty name), and the broker's settings are valid with the changes, which for
    AlterConfigs replace the dynamic ones; more changes than a request may have are left to the controller. Nothing is
    applied.

    Raises:
        ProtocolError: The resource must not be forwarded; INVALID_REQUEST or INVALID_CONFIG.
    """
    changes = resource.configs
    yield from check_no_duplicates(changes)
    if resource.resource_type != RESOURCE_BROKER:
        return
    name = resource.resource_name
    if name:
        _check_is_here(name, context.services.config.node_id)
    if len(changes) > MAX_RECORDS_PER_REQUEST:
        return  # the controller rejects the request
    for change in changes:
        yield None
        check_size(change.value)
    stored: dict[str, str] = {}
    if changes and hasattr(changes[0], "config_operation"):
        stored = select_applicable(context.image.config(RESOURCE_BROKER, name), per_broker=bool(name))
    for change in changes:
        yield None
        _apply(stored, change)
    yield from validate_reconfiguration(context.services.config, context.image, name, stored)


def _operation(change: Any) -> int:
    return int(getattr(change, "config_operation", AlterConfigOp.SET))


def _check_is_here(name: str, node_id: int) -> None:
    """Check that a BROKER resource names this node (``validateResourceNameIsCurrentNodeId``).

    Raises:
        ProtocolError: INVALID_REQUEST for another node id or a name that is no integer.
    """
    try:
        number = parse_integer(name, 32)
    except ValueError:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if number != node_id:
        why = f"Unexpected broker id, expected {node_id}, but received {name}"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, why)


def _apply(stored: dict[str, str], change: Any) -> None:
    """Apply one change to ``stored``, a copy of the broker's dynamic settings by name (``prepareIncrementalConfigs``).

    Raises:
        ProtocolError: INVALID_REQUEST for an unknown operation; INVALID_CONFIG for APPEND or SUBTRACT on a setting that
            is unknown or not a list.
    """
    operation, name = _operation(change), change.name
    if operation not in tuple(AlterConfigOp):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    op = AlterConfigOp(operation)
    if op is AlterConfigOp.DELETE:
        stored.pop(name, None)
    elif op is AlterConfigOp.SET:
        stored[name] = change.value
    else:
        known = BROKER_KEYS.get(name) or INTERNAL_BROKER_KEYS.get(name)
        if known is None:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
        if known.type != "LIST":
            problem = f"Config value {op.name.lower()} is not allowed for config key: {name}"
            raise ProtocolError(ErrorCode.INVALID_CONFIG, problem)
        stored[name] = apply_list_change(op, stored.get(name), known.default or "", change.value)
