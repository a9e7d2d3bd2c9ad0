"""AlterConfigs (33), v0-2: settings are checked as far as this broker knows them, then forwarded.

Also those of IncrementalAlterConfigs (44), v0-1.

Behaviour: settings of brokers are held against this broker's own configuration, and are refused for another broker: a
client has to send them to that one. The resources that are left go to the controller, which checks topics, groups and
client metrics. Deviation: rows that were refused here stand behind those of the controller.

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
"""Before a frame."""


def handle(context: RequestContext, request: Any) -> ResponseJob:
    """Refuse what this broker refuses, and forward the rest."""
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
    """Return the context and the request without some resources: what is sent to another node in an envelope.

    Args:
        context: of the request.
        request: AlterConfigs or IncrementalAlterConfigs.
        left_out: places of resources, from 0.
    """
    left = Remainder(request.resources, left_out)
    part = replace_struct(request, resources=left)
    if not context.frame:
        return context, part
    head = parse_request(memoryview(context.frame))
    frame = yield from encode_request_job(head.key, head.version, head.correlation_id, head.client_id, part)
    return replace(context, frame=frame[_SIZE_BYTES:]), part


def check_no_duplicates(changes: Any) -> Job[None]:
    """Check that no setting is named twice, and that none but one that is deleted has a null value.

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
    """Check one resource.

    Raises:
        ProtocolError: it is not to be forwarded.
    """
    changes = resource.configs
    yield from check_no_duplicates(changes)
    if resource.resource_type != RESOURCE_BROKER:
        return
    name = resource.resource_name
    if name:
        _check_is_here(name, context.services.config.node_id)
    if len(changes) > MAX_RECORDS_PER_REQUEST:
        return  # the controller refuses it
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
    """``validateResourceNameIsCurrentNodeId``."""
    try:
        number = parse_integer(name, 32)
    except ValueError:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if number != node_id:
        why = f"Unexpected broker id, expected {node_id}, but received {name}"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, why)


def _apply(stored: dict[str, str], change: Any) -> None:
    """Apply one change to the settings that are stored (``prepareIncrementalConfigs``)."""
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
            what = f"Config value {op.name.lower()} is not allowed for config key: {name}"
            raise ProtocolError(ErrorCode.INVALID_CONFIG, what)
        stored[name] = apply_list_change(op, stored.get(name), known.default or "", change.value)
