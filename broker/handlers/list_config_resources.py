"""ListConfigResources (74), v0-1: which resources have settings.

Behaviour: v0 lists client metrics only; v1 the kinds asked for, or all. A kind nobody knows is UNSUPPORTED_VERSION.

Source: ``KafkaApis.handleListConfigResources`` (apache/kafka 4.3.1).

From KIP-714 made it for client metrics, KIP-1142 for all resources.
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.controller.image import RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP, RESOURCE_TOPIC
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

BROKER_LOGGER = 8
KINDS = (RESOURCE_TOPIC, RESOURCE_BROKER, BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP)


def _names(context: Context, kind: int) -> list[str]:
    image = context.image
    if kind == RESOURCE_TOPIC:
        return sorted(image.topics)
    if kind in (RESOURCE_BROKER, BROKER_LOGGER):
        return [str(broker) for broker in sorted(image.brokers)]
    return sorted(name for resource, name in image.configs if resource == kind)


def handle(context: Context, request: ListConfigResourcesRequest) -> Answer:
    """List names, kind by kind."""
    kinds = request.resource_types or (KINDS if context.version >= 1 else [RESOURCE_CLIENT_METRICS])
    if any(kind not in KINDS for kind in kinds):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    rows = [ConfigResource(name, kind) for kind in dict.fromkeys(kinds) for name in _names(context, kind)]
    return ListConfigResourcesResponse(config_resources=rows)
