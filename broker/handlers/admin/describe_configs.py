"""DescribeConfigs (32), v1-4, on brokers and controllers: effective settings with their source, synonyms and type.

Behaviour: null or empty keys mean all. A topic setting defaults to the broker's setting, then to Kafka's default. For a
broker id all broker settings of Kafka are returned, also those that have no effect in Ottla, for the empty name only
the cluster-wide dynamic ones. Sensitive values are null. Values of Kafka's public settings are normalized, except
cluster-wide dynamic broker defaults, which are returned as they were sent.
Deviation: a resource that occurs twice in the request is described once, with the keys of its first occurrence.

Source: ``ConfigHelper.scala`` (apache/kafka 4.3.1).
From KIP-133; synonyms: KIP-226; types and documentation: KIP-569.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import dropwhile

from ottla.broker.config.broker_loggers import RESOURCE_BROKER_LOGGER, get_logger_levels
from ottla.broker.config.key_docs import BROKER_DOCS, GROUP_DOCS, TOPIC_DOCS
from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import (
    AUTHORIZER_KEYS,
    GROUP_KEYS,
    INTERNAL_TOPIC_KEYS,
    OWN_TOPIC_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    canonical_value,
    synonyms_of,
)
from ottla.controller.config.config_values import base_name
from ottla.controller.config.java_values import parse_integer
from ottla.controller.control.alter_configs import CLIENT_METRICS_KEYS, key_for_broker_plugin
from ottla.controller.control.create_and_delete_topics import topic_name_error
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP, RESOURCE_TOPIC
from ottla.jobs.job import Job
from ottla.jobs.sequences import collect_distinct_job
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

CONFIG_TYPES = {
    "UNKNOWN": 0,
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}
TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT, BROKER_LOGGER, CLIENT_METRICS, GROUP = range(1, 9)
RESOURCE_TYPES = (2, 4, 8, 16, 32)
"""Types of resources with settings in Kafka; any other type in a request makes every resource INVALID_REQUEST."""


def _row(
    key: ConfigKey,
    value: str | None,
    synonyms: list[DescribeConfigsSynonym],
    request: DescribeConfigsRequest,
    docs: Mapping[str, str],
    *,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    source = synonyms[0].source if synonyms else DEFAULT
    sensitive = key.type in ("PASSWORD", "UNKNOWN")  # a setting of unknown type may be a secret
    if sensitive:
        synonyms = [DescribeConfigsSynonym(x.name, None, x.source) for x in synonyms]
    return DescribeConfigsResourceResult(
        key.name,
        None if sensitive else value,
        read_only,
        source,
        sensitive,
        synonyms if request.include_synonyms else [],
        CONFIG_TYPES[key.type],
        docs.get(key.name) if request.include_documentation else None,
    )


def _broker_synonyms(context: RequestContext, key_name: str) -> list[DescribeConfigsSynonym]:
    """Return the values of a broker setting by source and synonym, highest precedence first; null values are left out.

    The sources are dynamic settings of this broker and of all, the configuration file, and Kafka's default. Synonyms
    that precede the setting's own name are left out, as in Kafka.
    """
    services = context.services
    names = list(dict.fromkeys((*(name for name, _ in synonyms_of(key_name)), base_name(key_name))))
    sources: list[tuple[Mapping[str, str | None], int]] = [
        (context.image.config(RESOURCE_BROKER, str(services.config.node_id)), DYNAMIC_BROKER),
        (context.image.config(RESOURCE_BROKER, ""), DYNAMIC_DEFAULT),
        (services.config.static_values, STATIC_BROKER),
        ({name: BROKER_KEYS[name].default for name in names if name in BROKER_KEYS}, DEFAULT),
    ]
    found = [
        DescribeConfigsSynonym(name, values[name], source)
        for values, source in sources
        for name in names
        if values.get(name) is not None
    ]
    # Like Kafka, which means to drop listener-prefixed settings: synonyms before the setting's own name are omitted.
    return list(dropwhile(lambda synonym: synonym.name != key_name, found))


def _topic(
    context: RequestContext, name: str, request: DescribeConfigsRequest
) -> Iterable[DescribeConfigsResourceResult]:
    wrong = topic_name_error(name)
    if wrong is not None:
        raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    if name not in context.image.topics:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    own = context.image.config(RESOURCE_TOPIC, name)
    hidden = {**INTERNAL_TOPIC_KEYS, **OWN_TOPIC_KEYS}  # described only if they are set
    for key in [*TOPIC_KEYS.values(), *(hidden[x] for x in own if x in hidden)]:
        synonyms = (
            [DescribeConfigsSynonym(key.name, canonical_value(key, own[key.name]), TOPIC)] if key.name in own else []
        )
        if key.broker_key is not None:
            synonyms += _broker_synonyms(context, key.broker_key)
        value = context.services.config.topic_text(context.image, name, key)
        if key.name in INTERNAL_TOPIC_KEYS:  # returned as it was sent
            value, synonyms[0].value = own[key.name], own[key.name]
        yield _row(key, value, synonyms, request, TOPIC_DOCS, read_only=False)


def _broker(
    context: RequestContext, name: str, request: DescribeConfigsRequest
) -> Iterable[DescribeConfigsResourceResult]:
    if name:
        _check_broker_id(context, name, " or empty string,")
    else:
        for key_name, value in context.image.config(RESOURCE_BROKER, "").items():
            synonyms = [DescribeConfigsSynonym(key_name, value, DYNAMIC_DEFAULT)]
            yield _row(key_for_broker_plugin(key_name), value, synonyms, request, BROKER_DOCS, read_only=False)
        return
    for key_name, known in BROKER_KEYS.items():
        synonyms = _broker_synonyms(context, key_name)
        own = next((s.value for s in synonyms if s.name == key_name), known.default)
        key = key_for_broker_plugin(key_name)
        own = None if own is None else canonical_value(key, own)
        yield _row(key, own, synonyms, request, BROKER_DOCS, read_only=not known.is_dynamic)
    for key_name, value in _undocumented_settings(context).items():
        synonyms = _broker_synonyms(context, key_name)
        key = ConfigKey(key_name, "UNKNOWN", None) if key_name in AUTHORIZER_KEYS else key_for_broker_plugin(key_name)
        yield _row(key, value, synonyms, request, BROKER_DOCS, read_only=True)


def _undocumented_settings(context: RequestContext) -> dict[str, str]:
    """Return effective values, by name, of the broker settings outside Kafka's public definitions that are set.

    These are settings with a listener prefix, settings of plug-ins, and internal ones.
    """
    config = context.services.config
    own, everyone = config.dynamic_values(context.image)
    return {name: value for name, value in {**config.values, **everyone, **own}.items() if name not in BROKER_KEYS}


def _check_broker_id(context: RequestContext, name: str, alternatives: str) -> None:
    """Check that a resource names this node.

    Args:
        context: Context of the request.
        name: Resource name.
        alternatives: Text for the error message: other names that are allowed.

    Raises:
        ProtocolError: INVALID_REQUEST for another node id or a name that is no integer.
    """
    node_id = context.services.config.node_id
    try:
        number = parse_integer(name, 32)
    except ValueError:
        text = f"Broker id must be an integer, but it is: {name}"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, text) from None
    if number != node_id:
        text = f"Unexpected broker id, expected {node_id}{alternatives} but received {name}"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, text)


def _loggers(context: RequestContext, name: str) -> Iterable[DescribeConfigsResourceResult]:
    if not name:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    _check_broker_id(context, name, "")
    for logger, level in get_logger_levels().items():
        yield DescribeConfigsResourceResult(logger, level, config_source=BROKER_LOGGER)


def _resource_configs(
    context: RequestContext, kind: int, name: str, request: DescribeConfigsRequest
) -> Iterable[DescribeConfigsResourceResult]:
    keys, source = (GROUP_KEYS, GROUP) if kind == RESOURCE_GROUP else (CLIENT_METRICS_KEYS, CLIENT_METRICS)
    if not name:
        subject = "Group name" if kind == RESOURCE_GROUP else "Client metrics subscription name"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{subject} must not be empty")
    own = context.image.config(kind, name)
    own = {name: canonical_value(keys.get(name), value) for name, value in own.items()}
    for key in keys.values():
        synonyms = [DescribeConfigsSynonym(key.name, own[key.name], source)] if key.name in own else []
        default = key.default
        if kind == RESOURCE_GROUP and f"group.{key.name}" in BROKER_KEYS:
            synonyms += _broker_synonyms(context, f"group.{key.name}")
            default = context.services.config.effective_value(context.image, f"group.{key.name}")
        elif kind == RESOURCE_GROUP:
            synonyms.append(DescribeConfigsSynonym(key.name, default, DEFAULT))
        yield _row(key, own.get(key.name, default), synonyms, request, GROUP_DOCS, read_only=False)


def _describe(
    context: RequestContext, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> Job[list[DescribeConfigsResourceResult]]:
    match resource.resource_type:
        case 2:
            rows = _topic(context, resource.resource_name, request)
        case 4:
            rows = _broker(context, resource.resource_name, request)
        case 8:
            rows = _loggers(context, resource.resource_name)
        case 16 | 32:
            rows = _resource_configs(context, resource.resource_type, resource.resource_name, request)
        case kind:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
    wanted = yield from collect_distinct_job(resource.configuration_keys or ())
    return [row for row in rows if not wanted or row.name in wanted]


assert (RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP) == (2, 4, 16, 32)
assert RESOURCE_BROKER_LOGGER == 8


def handle(context: RequestContext, request: DescribeConfigsRequest) -> ResponseJob:
    """Describe each distinct resource; an error concerns only its resource.

    A resource type that is not in `RESOURCE_TYPES` makes every resource INVALID_REQUEST.
    """
    response = DescribeConfigsResponse(results=context.response_array())
    names_by_type: dict[int, set[str]] = {}
    refused = False
    for resource in request.resources:
        refused = refused or resource.resource_type not in RESOURCE_TYPES
        yield None
    for resource in request.resources:
        yield None
        names = names_by_type.setdefault(resource.resource_type, set())
        if resource.resource_name in names:
            continue
        names.add(resource.resource_name)
        result = DescribeConfigsResult(0, "", resource.resource_type, resource.resource_name)
        try:
            if refused:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST.text)
            result.configs = yield from _describe(context, resource, request)
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, error.message or ""
        response.results.append(result)
    return response
