"""ApiVersions (API 18): APIs, versions and features of a node; the first request of a client."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Message, MessageSpec, request, response, wire_field


class ApiVersionsRequest(Message):
    """Request of a client for the APIs and versions that the node supports, the first on a connection."""

    SPEC: ClassVar[MessageSpec] = request(18, "0-4", "3+", "broker controller")
    """Version 3 is flexible, adds the name of the client (KIP-511) and features (KIP-584). The response header is that
    of version 0 in all versions. A version that the node does not support is answered in version 0 with
    UNSUPPORTED_VERSION, so that a newer client can step down (KIP-511). Version 4 permits 0 as the minimum of a
    supported feature.

    Flow: The first request of a client on each connection. The client then uses, for each API, the highest version that
    both sides have. A broker responds to an unknown version with UNSUPPORTED_VERSION in the layout of version 0, and
    the client repeats the request with a lower one. It is permitted before authentication.
    """
    client_software_name: Annotated[str, wire_field("string", "3+", ignorable=True)] = ""
    """Name of the client library, such as `apache-kafka-java`; letters, digits, `-` and `.`, at most 1,000 characters,
    else INVALID_REQUEST. Reported in metrics.
    """
    client_software_version: Annotated[str, wire_field("string", "3+", ignorable=True)] = ""
    """Version of the client library; the same characters as in the name."""


class ApiVersion(Message):
    """API key in an ApiVersions response, with the range of versions that the node supports."""

    api_key: Int16 = 0
    """Key of the API, as in the request header."""
    min_version: Int16 = 0
    """Lowest supported version."""
    max_version: Int16 = 0
    """Highest supported version. A client uses the highest version that both sides support."""


class SupportedFeatureKey(Message):
    """Feature such as `metadata.version`, with the range of levels that the node supports."""

    name: Annotated[str, wire_field("string", "3+")] = ""
    """Feature name, such as `metadata.version` or `group.version`."""
    min_version: Annotated[int, wire_field("int16", "3+")] = 0
    """Lowest supported level."""
    max_version: Annotated[int, wire_field("int16", "3+")] = 0
    """Highest supported level."""


class FinalizedFeatureKey(Message):
    """Feature such as `metadata.version`, with its finalized level in the cluster."""

    name: Annotated[str, wire_field("string", "3+")] = ""
    """Feature name."""
    max_version_level: Annotated[int, wire_field("int16", "3+")] = 0
    """Level of the feature in the cluster, set with UpdateFeatures."""
    min_version_level: Annotated[int, wire_field("int16", "3+")] = 0
    """Equal to `max_version_level` since KRaft has one level for each feature."""


class ApiVersionsResponse(Message):
    """API versions and feature levels of a node, and the finalized features of the cluster."""

    SPEC: ClassVar[MessageSpec] = response(18, "0-4", "3+")
    error_code: Int16 = 0
    """0, UNSUPPORTED_VERSION (`api_keys` then has the range of ApiVersions alone) or INVALID_REQUEST."""
    api_keys: Annotated[list[ApiVersion], wire_field("[]struct")] = field(default_factory=list)
    """APIs of this listener with their versions. GetTelemetrySubscriptions and PushTelemetry are in the list only if
    the node exports client metrics.
    """
    throttle_time_ms: Annotated[int, wire_field("int32", "1+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    supported_features: Annotated[
        list[SupportedFeatureKey], wire_field("[]struct", "3+", tagged="3+", tag=0, ignorable=True)
    ] = field(default_factory=list)
    """Features that the node supports. Up to version 3, those with a minimum of 0 are left out, since older clients
    reject them.
    """
    finalized_features_epoch: Annotated[int, wire_field("int64", "3+", tagged="3+", tag=1, ignorable=True)] = -1
    """Offset of the metadata that the finalized features are taken from; -1 if unknown. A client keeps the features
    with the highest epoch.
    """
    finalized_features: Annotated[
        list[FinalizedFeatureKey], wire_field("[]struct", "3+", tagged="3+", tag=2, ignorable=True)
    ] = field(default_factory=list)
    """Features with a level above 0 in the cluster."""
    zk_migration_ready: Annotated[bool, wire_field("bool", "3+", tagged="3+", tag=3, ignorable=True)] = False
    """Always false: the migration from ZooKeeper ended with Apache Kafka 3.9."""
