"""ApiVersions (18), v0-4: supported version ranges of the APIs of the listener, and feature levels.

Behaviour: APIs whose required setting is not set are left out. The dispatcher, not this handler, responds to an unknown
version: encoded as v0 with UNSUPPORTED_VERSION (35) and only the version range of ApiVersions itself, so that a newer
client can retry with a supported version. The response header is always v0.
Below v4 supported features with minimum level 0 are left out, since older clients reject them. From v3 an invalid
client software name or version is INVALID_REQUEST.

Source: ``ApiVersionsRequest.java``, ``ApiVersionsResponse.java``, ``KafkaApis.scala`` (apache/kafka 4.3.1).
From KIP-35; client name and version: KIP-511; feature levels: KIP-584.
"""

from __future__ import annotations

import re

from ottla.broker.config.limits import MAX_SOFTWARE_CHARS
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.metadata.record_serde import KRAFT_VERSION
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: ApiVersionsRequest) -> HandlerResult:
    """Return the supported API versions and features; from v3 record the client's software name on its connection.

    An invalid name or version of the software is INVALID_REQUEST.
    """
    if context.version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(len(name) <= MAX_SOFTWARE_CHARS and _SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
        context.peer.software_name, context.peer.software_version = names
    image = context.image
    levels = dict(image.features)
    settings = context.services.config.values
    levels[KRAFT_VERSION] = context.services.metadata.kraft_version
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(key, route.min_version, route.max_version)
            for key, route in sorted(context.apis.items())
            if route.required_config is None or settings.get(route.required_config)
        ],
        supported_features=[
            SupportedFeatureKey(name, low, high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            if low > 0 or context.version >= 4
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in levels.items() if level > 0],
    )
