"""ListConfigResources (74), v0-1: names of all topics and brokers, and of groups and client metrics with settings.

Behaviour: v0 lists only client metrics subscriptions; v1 the requested resource types, or all. An unknown type is
UNSUPPORTED_VERSION.

Source: ``KafkaApis.handleListConfigResources`` (apache/kafka 4.3.1).
Client metrics: KIP-714; all resource types: KIP-1142.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.config.broker_loggers import RESOURCE_BROKER_LOGGER
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.controller.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
)
from ottla.jobs.job import Job
from ottla.jobs.sequences import YIELD_EVERY, sort_job
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

RESOURCE_TYPES = (RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP)


def _names(image: MetadataImage, kind: int) -> Job[list[str]]:
    if kind == RESOURCE_TOPIC:
        return (yield from sort_job(image.topics))
    if kind in (RESOURCE_BROKER, RESOURCE_BROKER_LOGGER):
        return [str(broker) for broker in sorted(image.brokers)]
    names: list[str] = []
    for number, (resource, name) in enumerate(image.configs, 1):
        if resource == kind:
            names.append(name)
        if number % YIELD_EVERY == 0:
            yield None
    return (yield from sort_job(names))


def handle(context: RequestContext, request: ListConfigResourcesRequest) -> HandlerResult:
    """Return the names of the resources of each requested type; no types: all, in v0 only client metrics.

    An unknown type makes the whole response UNSUPPORTED_VERSION.
    """
    kinds = request.resource_types or (RESOURCE_TYPES if context.version >= 1 else [RESOURCE_CLIENT_METRICS])
    if any(kind not in RESOURCE_TYPES for kind in kinds):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return _list(context.image, dict.fromkeys(kinds))


def _list(image: MetadataImage, kinds: Iterable[int]) -> ResponseJob:
    response = ListConfigResourcesResponse()
    for kind in kinds:
        for name in (yield from _names(image, kind)):
            response.config_resources.append(ConfigResource(name, kind))
            yield None
    return response
