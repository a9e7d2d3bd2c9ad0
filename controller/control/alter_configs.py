"""AlterConfigs and IncrementalAlterConfigs on the active controller: topics, brokers, groups and client metrics.

Source: ``ConfigurationControlManager.java`` (apache/kafka 4.3.1).
Incremental changes: KIP-339; settings of brokers: KIP-226.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from ottla.controller.config import config_validation
from ottla.controller.config.config_keys import GROUP_KEYS, TOPIC_KEYS, ConfigKey, broker_key, check_value, topic_key
from ottla.controller.config.java_values import parse_integer, split
from ottla.controller.control.controller_result import ControllerDefaults, ControllerResult, ControllerResultSteps
from ottla.controller.control.create_and_delete_topics import topic_name_error
from ottla.controller.limits import MAX_RECORDS_PER_REQUEST
from ottla.controller.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
)
from ottla.controller.metadata.record_serde import ELR_VERSION
from ottla.controller.partitions.partition_assignment import (
    TOO_MANY_RECORDS,
    RequestTooLarge,
    check_batch_limits,
    refuse_all_job,
    utf8_size,
)
from ottla.jobs.job import Job
from ottla.jobs.sequences import collect_job, find_duplicates_job, first_occurrences
from ottla.wire.codec.compiler import response_array
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.wire.messages.incremental_alter_configs import AlterableConfig as IncrementalAlterableConfig
from ottla.wire.messages.incremental_alter_configs import AlterConfigsResource as IncrementalAlterConfigsResource
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalAlterConfigsResourceResponse,
)
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.metadata_records import ClearElrRecord, ConfigRecord

CLIENT_METRICS_KEYS = {
    "metrics": ConfigKey("metrics", "LIST", "", "list"),
    "interval.ms": ConfigKey("interval.ms", "INT", "300000", "-"),
    "match": ConfigKey("match", "LIST", "", "list"),
}


class AlterConfigOp(IntEnum):
    """Operation on a setting, with Kafka's code: set, delete, append or subtract."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = frozenset(AlterConfigOp)


def key_for_broker_plugin(name: str) -> ConfigKey:
    """Return the definition of a broker setting; type UNKNOWN (sensitive) for an unknown name, as of a plug-in."""
    return broker_key(name) or ConfigKey(name, "UNKNOWN", None)


_TABLES: dict[int, Callable[[str], ConfigKey | None]] = {
    RESOURCE_TOPIC: topic_key,
    RESOURCE_GROUP: GROUP_KEYS.get,
    RESOURCE_CLIENT_METRICS: CLIENT_METRICS_KEYS.get,
    RESOURCE_BROKER: key_for_broker_plugin,
}
_KINDS_WITH_LIST_VALUES = (RESOURCE_TOPIC, RESOURCE_BROKER)
"""Resource types with settings of type LIST that can be appended to: those of ``KafkaConfigSchema``."""
_UNKNOWN_KEY_ERRORS = {
    RESOURCE_TOPIC: (ErrorCode.INVALID_CONFIG, "Unknown topic config name: "),
    RESOURCE_GROUP: (ErrorCode.INVALID_CONFIG, "Unknown group config name: "),
    RESOURCE_CLIENT_METRICS: (ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: "),
}


_EMPTY_NAME_ERRORS = {
    RESOURCE_TOPIC: "Default topic resources are not allowed.",
    RESOURCE_GROUP: "Default group resources are not allowed.",
    RESOURCE_CLIENT_METRICS: "Subscription name can't be empty",
}


def _check_name(kind: int, name: str) -> None:
    """Check the name of a resource of type ``kind`` (``ControllerConfigurationValidator``).

    A broker's name is its id, or empty for the cluster-wide default; other resources need a name.

    Raises ProtocolError: INVALID_REQUEST; INVALID_TOPIC_EXCEPTION for an illegal topic name.
    """
    if kind == RESOURCE_TOPIC and name:
        wrong = topic_name_error(name)
        if wrong is not None:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    if kind != RESOURCE_BROKER and not name:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, _EMPTY_NAME_ERRORS[kind])
    if kind == RESOURCE_BROKER and name:
        try:
            number = parse_integer(name, 32)
        except ValueError:
            why = "Unable to parse broker name as a base 10 number."
            raise ProtocolError(ErrorCode.INVALID_REQUEST, why) from None
        if number < 0:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")


def _check_existence(image: MetadataImage, kind: int, name: str) -> None:
    """Raise ProtocolError UNKNOWN_TOPIC_OR_PARTITION or BROKER_ID_NOT_REGISTERED for an unknown topic or node."""
    if kind == RESOURCE_TOPIC and name not in image.topics:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if kind == RESOURCE_BROKER and name:
        number = parse_integer(name, 32)
        if number not in image.brokers and number not in image.controllers:
            raise ProtocolError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")


def apply_list_change(op: AlterConfigOp, current: str | None, default: str, text: str) -> str:
    """Return the new text of a LIST setting: elements appended to, or subtracted from, its current value.

    An element that is there already is not appended again; each subtracted one removes its first occurrence. As in
    Kafka, nothing is trimmed: blanks belong to their element, and an empty one can be appended; present empty ones are
    dropped.

    Args:
        op: APPEND or SUBTRACT.
        current: Current value; None if ``default`` applies.
        default: Default of the setting.
        text: Elements to append or subtract, separated by commas.
    """
    items = [x for x in split(default if current is None else current) if x]
    if op is AlterConfigOp.APPEND:
        there = set(items)
        for element in split(text):
            if element not in there:
                there.add(element)
                items.append(element)
        return ",".join(items)
    gone = Counter(split(text))  # each subtracts the first equal element
    left = []
    for item in items:
        if gone[item] > 0:
            gone[item] -= 1
        else:
            left.append(item)
    return ",".join(left)


def _next_value(
    key: ConfigKey | None, op: AlterConfigOp, current: str | None, change: IncrementalAlterableConfig
) -> str | None:
    """Return the value of a setting after one operation of IncrementalAlterConfigs; None: the setting is removed.

    Raises ProtocolError: INVALID_REQUEST for a null value, INVALID_CONFIG to APPEND to or SUBTRACT from another type.
    """
    if op is AlterConfigOp.DELETE:
        return None
    if change.value is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    if op is AlterConfigOp.SET:
        return change.value
    if key is None or key.type != "LIST":
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG, f"Can't {op.name} to key {change.name} because its type is not LIST."
        )
    return apply_list_change(op, current, key.default or "", change.value)


def _alter_resource(
    image: MetadataImage, resource: IncrementalAlterConfigsResource, defaults: ControllerDefaults
) -> Job[list[Message]]:
    """As a job, return the ConfigRecords of one resource (a broker: also unchanged ones), or raise ProtocolError."""
    kind, name = resource.resource_type, resource.resource_name
    table = _TABLES.get(kind)
    if table is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    if kind == RESOURCE_BROKER and len(resource.configs) > MAX_RECORDS_PER_REQUEST:
        raise RequestTooLarge(TOO_MANY_RECORDS)  # settings of plug-ins may have any name
    names: set[str] = set()
    is_twice = False
    for change in resource.configs:
        config_validation.check_size(change.value)
        if change.config_operation not in _OPERATIONS:
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka fails with an unexpected exception
        is_twice = is_twice or change.name in names
        names.add(change.name)
        yield None
    if is_twice:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    values = image.config(kind, name)
    changed: dict[str, str | None] = {}
    for change in resource.configs:
        yield None
        op = AlterConfigOp(change.config_operation)
        key = table(change.name) if kind in _KINDS_WITH_LIST_VALUES else None
        value = changed[change.name] = _next_value(key, op, values.get(change.name), change)
        config_validation.check_size(value)
    yield from _check_together(image, resource, changed, defaults)
    _check_existence(image, kind, name)
    made: Iterable[Message] = (
        ConfigRecord(kind, name, key, value)
        for key, value in changed.items()
        if value != values.get(key) or kind == RESOURCE_BROKER  # same key store: read again (KAFKA-14136)
    )
    return (yield from collect_job(made))


def _in_order(kind: int, values: Mapping[str, str]) -> list[str]:
    """Return the names of settings in the order of Kafka's definitions, unknown ones last."""
    table = {RESOURCE_TOPIC: TOPIC_KEYS, RESOURCE_GROUP: GROUP_KEYS}.get(kind, CLIENT_METRICS_KEYS)
    return [*(name for name in table if name in values), *(name for name in values if name not in table)]


def _check_together(
    image: MetadataImage,
    resource: IncrementalAlterConfigsResource,
    changed: Mapping[str, str | None],
    defaults: ControllerDefaults,
) -> Job[None]:
    """Validate the settings of a resource as they would be after the request, as a job.

    ``changed``: None removes a setting. Values of broker settings are validated by the broker
    (`ottla.broker.config.reconfiguration`), except min.insync.replicas and cordoned.log.dirs.

    Raises ProtocolError with the error of the first invalid setting, or of the resource's name.
    """
    kind, name = resource.resource_type, resource.resource_name
    if kind == RESOURCE_BROKER:
        config_validation.check_min_isr(image, name, changed)
        config_validation.check_cordoned(image, changed)
        _check_name(kind, name)
        return
    _check_name(kind, name)
    values = {**image.config(kind, name), **changed}
    new = {k: v for k, v in values.items() if v is not None}
    for key_name in new:
        yield None
        if _TABLES[kind](key_name) is None:
            code, text = _UNKNOWN_KEY_ERRORS[kind]
            raise ProtocolError(code, text + key_name)
    for key_name in _in_order(kind, new):
        yield None
        key = _TABLES[kind](key_name)
        wrong = None if key is None else check_value(key, new[key_name])
        if wrong is not None:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, wrong)
    wide = {**defaults.static_config, **image.config(RESOURCE_BROKER, "")}
    if kind == RESOURCE_TOPIC:
        config_validation.check_topic(new, wide, image.config(kind, name))
    elif kind == RESOURCE_GROUP:
        config_validation.check_group(new, wide)
    elif kind == RESOURCE_CLIENT_METRICS:
        config_validation.check_client_metrics(new)


def _replace_resource(
    image: MetadataImage, resource: AlterConfigsResource, defaults: ControllerDefaults
) -> Job[list[Message]]:
    """Return the ConfigRecords that replace all settings of a resource, as a job; missing settings are removed."""
    wanted: dict[str, str | None] = {}
    for config in resource.configs:
        wanted[config.name] = config.value
        yield None
    changes = yield from collect_job(
        IncrementalAlterableConfig(name, AlterConfigOp.SET, value) for name, value in wanted.items()
    )
    if len(wanted) != len(resource.configs):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    old = image.config(resource.resource_type, resource.resource_name)
    changes += [IncrementalAlterableConfig(name, AlterConfigOp.DELETE, None) for name in old if name not in wanted]
    altered = IncrementalAlterConfigsResource(resource.resource_type, resource.resource_name, changes)
    return (yield from _alter_resource(image, altered, defaults))


AlterConfigsResourceMessage = AlterConfigsResource | IncrementalAlterConfigsResource
DecideResource = Callable[[MetadataImage, Any, ControllerDefaults], Job[list[Message]]]
MakeResultRow = Callable[[ErrorCode, str | None, int, str], Any]
"""Returns a response row for an error code, error message, resource type and resource name."""


def _decide_each(
    image: MetadataImage,
    resources: Iterable[AlterConfigsResourceMessage],
    defaults: ControllerDefaults,
    decide: DecideResource,
    row: MakeResultRow,
    rows: list[Any],
) -> Job[list[Message]]:
    """Decide on each resource by ``decide``, as a job: all of its changes or none; return the records of all resources.

    ``decide`` raises ProtocolError to reject a resource. ``rows`` gets a row (from ``row``) for each, INVALID_REQUEST
    if it is named twice. ClearElrRecords follow if min.insync.replicas changes.

    Raises:
        RequestTooLarge: too many records or bytes; the request must be rejected as a whole, and ``rows`` is incomplete.
    """
    records: list[Message] = []
    size = 0
    twice = yield from find_duplicates_job(map(resource_key, resources))
    for found in first_occurrences(resources, resource_key, twice):
        yield None
        if found is None:
            continue
        resource, is_again = found
        code, message = ErrorCode.NONE, None
        try:
            if is_again:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            made = yield from decide(image, resource, defaults)
            records += made
            size += utf8_size(text for r in made if isinstance(r, ConfigRecord) for text in (r.name, r.value))
        except ProtocolError as error:
            code, message = error.code, error.message
        rows.append(row(code, message, resource.resource_type, resource.resource_name))
        check_batch_limits(len(records), size)
    records += _clear_elr_records(image, records)
    check_batch_limits(len(records), size)
    return records


def _refuse_all(
    resources: Iterable[AlterConfigsResourceMessage], error: RequestTooLarge, row: MakeResultRow, rows: list[Any]
) -> Job[None]:
    twice = yield from find_duplicates_job(map(resource_key, resources))
    refused = lambda resource: row(error.code, str(error), resource.resource_type, resource.resource_name)  # noqa: E731
    yield from refuse_all_job(resources, resource_key, twice, refused, rows)


def resource_key(resource: Any) -> str:
    """Return a string that identifies the type and name of a request's resource, to find duplicates in the request."""
    return f"{resource.resource_type} {resource.resource_name}"  # the garbage collector does not visit a string


def _clear_elr_records(image: MetadataImage, records: Sequence[Message]) -> list[Message]:
    """Return a ClearElrRecord for each of ``records`` that changes min.insync.replicas; none if ELR is not enabled.

    With a lower minimum, records may have been acknowledged that an eligible leader does not have
    (``createClearElrRecordsAsNeeded``, KIP-966).
    """
    if not image.features.get(ELR_VERSION):
        return []
    changed = [r for r in records if isinstance(r, ConfigRecord) and r.name == config_validation.MIN_ISR]
    return [ClearElrRecord(r.resource_name if r.resource_type == RESOURCE_TOPIC else "") for r in changed]


def alter_configs(
    image: MetadataImage, request: AlterConfigsRequest, version: int, defaults: ControllerDefaults
) -> ControllerResultSteps:
    """Return the records and response of AlterConfigs, which replaces all settings of each resource, as a job.

    Each resource is changed as a whole, or has an error in its row. A request that is too large gets its error in every
    row. With ``validate_only`` there are no records.
    """
    row, response = AlterConfigsResourceResponse, AlterConfigsResponse()
    return _alter(image, request, defaults, _replace_resource, row, response, version)


def incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, version: int, defaults: ControllerDefaults
) -> ControllerResultSteps:
    """Return records and response of IncrementalAlterConfigs as a job; ``validate_only``, limits: `alter_configs`."""
    row, response = IncrementalAlterConfigsResourceResponse, IncrementalAlterConfigsResponse()
    return _alter(image, request, defaults, _alter_resource, row, response, version)


def _alter(
    image: MetadataImage,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    defaults: ControllerDefaults,
    decide: DecideResource,
    row: MakeResultRow,
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse,
    version: int,
) -> ControllerResultSteps:
    rows = response_array(type(response), version)
    try:
        records = yield from _decide_each(image, request.resources, defaults, decide, row, rows)
    except RequestTooLarge as error:
        records, rows = [], response_array(type(response), version)
        yield from _refuse_all(request.resources, error, row, rows)
    response.responses = rows
    return ControllerResult(response, [] if request.validate_only else records)
