"""Authorization of the resources that a request names: split into authorized ones and error rows of denied ones.

Also of the configs in the rows of created topics, which are hidden from clients that may not describe them.

Source: ``AuthHelper.scala``, ``ControllerApis.deleteTopics``, ``ControllerApis.authorizeAlterResource``,
``ConfigHelper.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, Protocol

from msgspec.structs import replace

from ottla.broker.api_spec import ApiSpec, AuthorizationRule, ConfigResourceRule, DeleteTopicsRule, ResourceRule
from ottla.broker.config.broker_loggers import RESOURCE_BROKER_LOGGER
from ottla.broker.requests.error_responses import ErrorResultBuilder
from ottla.controller.metadata.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.controller.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
)
from ottla.jobs.job import Job
from ottla.jobs.sequences import collect_job, find_duplicates_job
from ottla.wire.api_keys import response_class
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode

DENIAL_ERRORS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""Error code of a denial, by resource type."""
_CLUSTER_RESOURCES = (RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS)
SplitRequest = tuple[Any, list[Any]]
"""Request without the denied resources, and the response rows of those."""


class AuthorizableRequest(Protocol):
    """Request to authorize: its API, version, metadata image and client; implemented by `RequestContext`."""

    version: int

    @property
    def spec(self) -> ApiSpec:
        """Specification of the request's API."""

    @property
    def image(self) -> MetadataImage:
        """Metadata image by which the request is authorized."""

    def may(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return True if the client is authorized for an operation on a resource."""


def split_request(context: AuthorizableRequest, request: Any, rule: AuthorizationRule) -> Job[SplitRequest]:
    """Return a copy of a request without the resources that a rule denies, and their error rows, as a job.

    Without a denial the request itself and no rows are returned, also for a rule that is not about listed resources,
    which is not checked here. Resources that the handler must reject for another reason (duplicate, unknown id) stay in
    the request; a DescribeConfigs request with an unknown resource type stays whole.
    """
    match rule:
        case ResourceRule():
            return (yield from _split_resources(context, request, rule))
        case ConfigResourceRule():
            return (yield from _split_configs(context, request, rule.operation))
        case DeleteTopicsRule():
            return (yield from _split_topic_deletions(context, request))
    return request, []


def _row_builder(
    asking: AuthorizableRequest, resource: ResourceType, message: str | None, number: int = 0
) -> ErrorResultBuilder:
    """Return the builder of error rows for denied resources of a type; ``message``: text in the rows, None for none.

    ``number``: index of the result list in the API's error response.
    """
    spec = asking.spec
    layout = spec.error_response.results[number]
    return ErrorResultBuilder(response_class(spec.key), layout, asking.version, DENIAL_ERRORS[resource], message)


def _split_resources(asking: AuthorizableRequest, request: Any, rule: ResourceRule) -> Job[SplitRequest]:
    if rule.cluster_operation is not None and asking.may(rule.cluster_operation, ResourceType.CLUSTER):
        return request, []
    layout = asking.spec.error_response.results[0]
    builder = _row_builder(asking, rule.resource, rule.denial_message)
    elements, name_field = getattr(request, layout.request_list), layout.copied[0]
    twice = (yield from find_duplicates_job(x.name for x in elements)) if rule.rejects_duplicates else set()
    has_ids = rule.ids_since is not None and asking.version >= rule.ids_since
    left: list[Any] = []
    denied: dict[Any, Any] = {}
    for element in elements:
        yield None
        if isinstance(element, str):
            name: str | None = element
        elif has_ids:
            name = asking.image.topic_names.get(element.topic_id)  # the handler returns the error of an unknown id
        else:
            name = getattr(element, name_field)
        if name is None or name in twice or asking.may(rule.operation, rule.resource, name):
            left.append(element)
        else:
            row = yield from builder.build(element)
            denied[name if layout.nested is None else len(denied)] = row
    return (replace(request, **{layout.request_list: left}) if denied else request), list(denied.values())


def _config_resource(kind: int, name: str) -> tuple[ResourceType, str] | None:
    """Return the ACL resource (type, name) that protects a configuration; None for an unknown type ``kind``.

    Brokers, broker loggers and client metrics are protected by the cluster.
    """
    if kind in _CLUSTER_RESOURCES:
        return ResourceType.CLUSTER, CLUSTER_NAME
    known = {RESOURCE_TOPIC: ResourceType.TOPIC, RESOURCE_GROUP: ResourceType.GROUP}.get(kind)
    return None if known is None else (known, name)


def _split_configs(asking: AuthorizableRequest, request: Any, operation: AclOperation) -> Job[SplitRequest]:
    is_change = operation is AclOperation.ALTER_CONFIGS
    keys = ((r.resource_type, r.resource_name) for r in request.resources)
    twice = (yield from find_duplicates_job(keys)) if is_change else set()
    builders: dict[ResourceType, ErrorResultBuilder] = {}
    left, denied = [], {}
    for element in request.resources:
        yield None
        key = element.resource_type, element.resource_name
        owner = _config_resource(*key)
        if element.resource_type == RESOURCE_BROKER_LOGGER and is_change:
            owner = None  # the handler authorizes after it has validated the changes
        if owner is None and not is_change:
            return request, []  # the handler rejects all of them
        if owner is None or key in twice or asking.may(operation, *owner):
            left.append(element)
        else:
            builder = builders.get(owner[0]) or _row_builder(asking, owner[0], DENIAL_ERRORS[owner[0]].text)
            builders[owner[0]] = builder
            denied[key] = yield from builder.build(element)
    return (replace(request, resources=left) if denied else request), list(denied.values())


def _split_topic_deletions(asking: AuthorizableRequest, request: Any) -> Job[SplitRequest]:
    """Split a DeleteTopics request, as a job.

    The row of a denied topic id has the topic's name only if the client may describe it.
    """
    if asking.may(AclOperation.DELETE, ResourceType.CLUSTER):
        return request, []
    message = ErrorCode.TOPIC_AUTHORIZATION_FAILED.text
    builders = [_row_builder(asking, ResourceType.TOPIC, message, number) for number in range(2)]
    named: Iterable[tuple[str | None, Any]] = ((name, None) for name in request.topic_names)
    elements = yield from collect_job(chain(named, ((t.name, t) for t in request.topics)))
    twice = yield from find_duplicates_job((name, b"" if t is None else t.topic_id) for name, t in elements)
    names, topics, denied = [], [], {}
    for name, topic in elements:
        yield None
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        shown = _denied_topic_name(asking, name, topic_id)
        if shown is None or (name, b"" if topic is None else topic_id) in twice:
            topics.append(topic) if topic is not None else names.append(name)
        else:
            row = yield from builders[topic is not None].build(name if topic is None else topic)
            (row.name,) = shown
            denied[name, topic_id] = row
    if not denied:
        return request, []
    return replace(request, topic_names=names, topics=topics), list(denied.values())


def _denied_topic_name(asking: AuthorizableRequest, name: str | None, topic_id: bytes) -> tuple[str | None] | None:
    """Return the name for the error row of a topic that the client may not delete, as a 1-tuple.

    Its element is None if the client identified the topic by id and may not describe it. Instead of a tuple, None: the
    client may delete the topic, or the handler has to respond (both name and id given, unknown id, topic does not
    exist).
    """
    if name is not None and topic_id != ZERO_UUID:
        return None
    real = asking.image.topic_names.get(topic_id) if name is None else name
    if real is None:
        return None
    may_see = asking.may(AclOperation.DESCRIBE, ResourceType.TOPIC, real)
    may_delete = asking.may(AclOperation.DELETE, ResourceType.TOPIC, real)
    if name is None:
        return None if may_delete else (real if may_see else None,)
    if not may_see:
        return (real,)
    return None if may_delete or real not in asking.image.topics else (real,)


def hide_created_configs(context: AuthorizableRequest, rows: Iterable[Any]) -> Job[None]:
    """Hide the configs in the rows of created topics that the client may not describe (KIP-525), as a job.

    Such a row gets TOPIC_AUTHORIZATION_FAILED as ``topic_config_error_code``, no configs, and -1 as number of
    partitions and replication factor. Rows with an error are left unchanged.
    """
    for row in rows:
        yield None
        if not row.error_code and not context.may(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, row.name):
            row.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            row.configs, row.num_partitions, row.replication_factor = [], -1, -1
