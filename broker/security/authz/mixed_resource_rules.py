"""Requests whose rows need more than one rule: which of them may be, and the rows of those that may not.

Source: ``ControllerApis.deleteTopics``, ``ControllerApis.authorizeAlterResource``, ``ConfigHelper.scala``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Protocol

from msgspec.structs import replace

from ottla.broker.config.broker_loggers import RESOURCE_BROKER_LOGGER
from ottla.broker.security.authz.authorization_rules import DENIAL_ERRORS
from ottla.controller.metadata.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.controller.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
)
from ottla.jobs.steps import collect_steps, find_duplicates_steps
from ottla.jobs.time_slice import Job
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode

_CLUSTER_RESOURCES = (RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS)


class PermissionContext(Protocol):
    """Who asks, and what there is."""

    @property
    def image(self) -> MetadataImage:
        """The newest committed metadata."""

    def may(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether who asks may do something."""


SplitRequest = tuple[Any, list[Any]]
"""What is left of a request, and the rows of the answer for the rest."""
RequestSplitter = Callable[[Any, Any], Job[SplitRequest]]


def _config_resource(kind: int, name: str) -> tuple[ResourceType, str] | None:
    """What settings belong to; None for a kind nobody knows, which the handler tells."""
    if kind in _CLUSTER_RESOURCES:
        return ResourceType.CLUSTER, CLUSTER_NAME
    known = {RESOURCE_TOPIC: ResourceType.TOPIC, RESOURCE_GROUP: ResourceType.GROUP}.get(kind)
    return None if known is None else (known, name)


def _config_splitter(operation: AclOperation, row_class_name: str) -> RequestSplitter:
    """The rows of a request about settings."""

    def split(asking: PermissionContext, request: Any) -> Job[SplitRequest]:
        row_class = getattr(sys.modules[type(request).__module__], row_class_name)
        keys = ((r.resource_type, r.resource_name) for r in request.resources)
        twice = (yield from find_duplicates_steps(keys)) if operation is AclOperation.ALTER_CONFIGS else set()
        left, refused = [], {}
        for asked in request.resources:
            yield
            at = asked.resource_type, asked.resource_name
            of = _config_resource(*at)
            if asked.resource_type == RESOURCE_BROKER_LOGGER and operation is AclOperation.ALTER_CONFIGS:
                of = None  # the handler asks, after it has looked at the form of the changes
            if of is None and operation is AclOperation.DESCRIBE_CONFIGS:
                return request, []  # then nothing is told of any
            if of is None or at in twice or asking.may(operation, *of):
                left.append(asked)
                continue
            code = DENIAL_ERRORS[of[0]]
            refused[at] = row_class(code, code.text, *at)
        return (replace(request, resources=left) if refused else request), list(refused.values())

    return split


def _split_delete_topics(asking: PermissionContext, request: Any) -> Job[SplitRequest]:
    """Topics to be deleted, by name or id: the name behind an id is only told to who may see it."""
    if asking.may(AclOperation.DELETE, ResourceType.CLUSTER):
        return request, []
    row_class = sys.modules[type(request).__module__].DeletableTopicResult
    named: Iterable[tuple[str | None, Any]] = ((name, None) for name in request.topic_names)
    asked = yield from collect_steps(chain(named, ((t.name, t) for t in request.topics)))
    twice = yield from find_duplicates_steps((name, b"" if t is None else t.topic_id) for name, t in asked)
    names, topics, refused = [], [], {}
    for name, topic in asked:
        yield
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        told = _denied_topic_name(asking, name, topic_id)
        if told is None or (name, b"" if topic is None else topic_id) in twice:
            topics.append(topic) if topic is not None else names.append(name)
        else:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refused[name, topic_id] = row_class(told[0], topic_id, code, code.text)
    if not refused:
        return request, []
    return replace(request, topic_names=names, topics=topics), list(refused.values())


def _denied_topic_name(asking: PermissionContext, name: str | None, topic_id: bytes) -> tuple[str | None] | None:
    """Under which name a topic is refused; None where it is not: it may be deleted, or is none."""
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


REQUEST_SPLITTERS: dict[ApiKey, tuple[str, RequestSplitter]] = {
    ApiKey.DESCRIBE_CONFIGS: ("results", _config_splitter(AclOperation.DESCRIBE_CONFIGS, "DescribeConfigsResult")),
    ApiKey.ALTER_CONFIGS: ("responses", _config_splitter(AclOperation.ALTER_CONFIGS, "AlterConfigsResourceResponse")),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        "responses",
        _config_splitter(AclOperation.ALTER_CONFIGS, "AlterConfigsResourceResponse"),
    ),
    ApiKey.DELETE_TOPICS: ("responses", _split_delete_topics),
}
"""The answer's list, and who takes the request apart."""


def hide_configs(asking: PermissionContext, rows: Iterable[Any]) -> Job[None]:
    """A topic that was made is told with its settings only to who may see those (KIP-525)."""
    for row in rows:
        yield
        if not row.error_code and not asking.may(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, row.name):
            row.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            row.configs, row.num_partitions, row.replication_factor = [], -1, -1
