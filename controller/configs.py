"""Settings of topics, brokers, groups and client metrics: change them.

Source: ``ConfigurationControlManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from ottla.controller import config_rules
from ottla.controller.config_keys import GROUP_KEYS, ConfigKey, broker_key, check_value, topic_key
from ottla.controller.decision import Decision, Defaults
from ottla.controller.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    Image,
)
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import alter_configs as ac
from ottla.wire.messages import incremental_alter_configs as ia
from ottla.wire.messages import metadata_records as m
from ottla.wire.schema import Message

CLIENT_METRICS_KEYS = {
    "metrics": ConfigKey("metrics", "LIST", ""),
    "interval.ms": ConfigKey("interval.ms", "INT", "300000", "-"),
    "match": ConfigKey("match", "LIST", ""),
}


class Op(IntEnum):
    """What an incremental change does to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def any_broker_key(name: str) -> ConfigKey:
    """A broker's own plug-ins may have settings of any name: those are texts."""
    return broker_key(name) or ConfigKey(name, "STRING", None)


_TABLES: dict[int, Callable[[str], ConfigKey | None]] = {
    RESOURCE_TOPIC: topic_key,
    RESOURCE_GROUP: GROUP_KEYS.get,
    RESOURCE_CLIENT_METRICS: CLIENT_METRICS_KEYS.get,
    RESOURCE_BROKER: any_broker_key,
}
_UNKNOWN = {
    RESOURCE_TOPIC: (ErrorCode.INVALID_CONFIG, "Unknown topic config name: "),
    RESOURCE_GROUP: (ErrorCode.INVALID_CONFIG, "Unknown group config name: "),
    RESOURCE_CLIENT_METRICS: (ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: "),
}


def _check_resource(image: Image, kind: int, name: str) -> Callable[[str], ConfigKey | None]:
    """The key table of a resource that exists.

    Raises:
        ProtocolError: no such kind, topic or broker.
    """
    table = _TABLES.get(kind)
    if table is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    if kind == RESOURCE_TOPIC and name not in image.topics:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if kind == RESOURCE_BROKER and name:
        if not name.lstrip("-").isdigit():
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Invalid broker name {name}: it must be a number.")
        if int(name) not in image.brokers:
            raise ProtocolError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} found.")
    if kind in (RESOURCE_GROUP, RESOURCE_CLIENT_METRICS) and not name:
        group = kind == RESOURCE_GROUP
        why = "Default resources are not allowed." if group else "Subscription name can't be empty"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, why)
    return table


def _next_value(kind: int, key: ConfigKey, op: Op, current: str | None, change: ia.AlterableConfig) -> str | None:
    """A setting after one change; None removes it."""
    if op is Op.DELETE:
        return None
    if change.value is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    if op is Op.SET:
        return change.value
    if key.type != "LIST" and kind == RESOURCE_BROKER:
        what = f"Config value {op.name.lower()} is not allowed for config key: {key.name}"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, what)
    if key.type != "LIST":
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG, f"Can't {op.name} to key {key.name} because its type is not LIST."
        )
    items = [x for x in ((key.default if current is None else current) or "").split(",") if x]
    asked = [x for x in change.value.split(",") if x]
    if op is Op.APPEND:
        items += [x for x in asked if x not in items]
    else:
        items = [x for x in items if x not in asked]
    return ",".join(items)


def _alter_one(image: Image, resource: ia.AlterConfigsResource, defaults: Defaults) -> list[Message]:
    kind = resource.resource_type
    table = _check_resource(image, kind, resource.resource_name)
    counts = Counter(c.name for c in resource.configs)
    if any(times > 1 for times in counts.values()):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    values = image.config(kind, resource.resource_name)
    changed: dict[str, str | None] = {}
    keys = [table(change.name) for change in resource.configs]
    for key, change in zip(keys, resource.configs, strict=True):
        if key is None:
            code, text = _UNKNOWN[kind]
            raise ProtocolError(code, text + change.name)
        if change.config_operation not in tuple(Op):
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka trips over it
    for key, change in zip(keys, resource.configs, strict=True):
        assert key is not None
        op = Op(change.config_operation)
        value = changed[change.name] = _next_value(kind, key, op, values.get(change.name), change)
        wrong = check_value(key, value) if value is not None and kind != RESOURCE_BROKER else None
        if wrong is not None:
            metrics = kind == RESOURCE_CLIENT_METRICS
            raise ProtocolError(ErrorCode.INVALID_REQUEST if metrics else ErrorCode.INVALID_CONFIG, wrong)
    _check_together(image, resource, changed, defaults)
    return [
        m.ConfigRecord(kind, resource.resource_name, name, value)
        for name, value in changed.items()
        if value != values.get(name)
    ]


def _check_together(
    image: Image, resource: ia.AlterConfigsResource, changed: Mapping[str, str | None], defaults: Defaults
) -> None:
    """Hold what a resource's settings would become against the rules of its kind."""
    kind, name = resource.resource_type, resource.resource_name
    values = {**image.config(kind, name), **changed}
    new = {k: v for k, v in values.items() if v is not None}
    if kind == RESOURCE_BROKER:
        config_rules.check_broker(name, new)
        config_rules.check_min_isr(image, name, changed)
    elif kind == RESOURCE_GROUP:
        config_rules.check_group(new, defaults.broker)
    elif kind == RESOURCE_CLIENT_METRICS:
        config_rules.check_client_metrics(new)
    config_rules.check_size(changed)


def _replace_one(image: Image, resource: ac.AlterConfigsResource, defaults: Defaults) -> list[Message]:
    """A resource's settings become exactly what is named; the rest goes back to the defaults."""
    wanted = {c.name: c.value for c in resource.configs}
    changes = [ia.AlterableConfig(name, Op.SET, value) for name, value in wanted.items()]
    if len(wanted) != len(resource.configs):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    old = image.config(resource.resource_type, resource.resource_name)
    changes += [ia.AlterableConfig(name, Op.DELETE, None) for name in old if name not in wanted]
    return _alter_one(image, ia.AlterConfigsResource(resource.resource_type, resource.resource_name, changes), defaults)


Resource = ac.AlterConfigsResource | ia.AlterConfigsResource
Outcome = tuple[ErrorCode, str | None, int, str]
"""Error code, message, resource type, resource name: the fields of an answer's row."""


def _each(
    image: Image,
    resources: Sequence[Resource],
    defaults: Defaults,
    decide: Callable[[Image, Any, Defaults], list[Message]],
) -> tuple[list[Outcome], list[Message]]:
    """Decide on each resource by itself: it changes wholly or not at all."""
    rows: list[Outcome] = []
    records: list[Message] = []
    counts = Counter((r.resource_type, r.resource_name) for r in resources)
    for resource in {(r.resource_type, r.resource_name): r for r in resources}.values():
        code, message = ErrorCode.NONE, None
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            records += decide(image, resource, defaults)
        except ProtocolError as error:
            code, message = error.code, error.message
        rows.append((code, message, resource.resource_type, resource.resource_name))
    return rows, records


def legacy_alter(image: Image, request: ac.AlterConfigsRequest, defaults: Defaults) -> Decision:
    """Replace settings as a whole."""
    rows, records = _each(image, request.resources, defaults, _replace_one)
    response = ac.AlterConfigsResponse(responses=[ac.AlterConfigsResourceResponse(*row) for row in rows])
    return Decision(response, [] if request.validate_only else records)


def incremental_alter(image: Image, request: ia.IncrementalAlterConfigsRequest, defaults: Defaults) -> Decision:
    """Change settings one by one."""
    rows, records = _each(image, request.resources, defaults, _alter_one)
    response = ia.IncrementalAlterConfigsResponse(responses=[ia.AlterConfigsResourceResponse(*row) for row in rows])
    return Decision(response, [] if request.validate_only else records)
