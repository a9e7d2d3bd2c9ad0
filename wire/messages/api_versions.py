"""ApiVersions (api 18): which APIs, versions and features the node speaks; a client's first request.

Version 3 brings the client's name and features (KIP-511, KIP-584); its answer keeps the oldest header, and an unknown
version is answered in version 0, so that any client can fall back (KIP-511).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Message, MessageSpec, request, response, wire_field


class ApiVersionsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(18, "0-4", "3+", "broker controller")
    client_software_name: A[str, wire_field("string", "3+", ignorable=True)] = ""
    client_software_version: A[str, wire_field("string", "3+", ignorable=True)] = ""


class ApiVersion(Message):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Message):
    name: A[str, wire_field("string", "3+")] = ""
    min_version: A[int, wire_field("int16", "3+")] = 0
    max_version: A[int, wire_field("int16", "3+")] = 0


class FinalizedFeatureKey(Message):
    name: A[str, wire_field("string", "3+")] = ""
    max_version_level: A[int, wire_field("int16", "3+")] = 0
    min_version_level: A[int, wire_field("int16", "3+")] = 0


class ApiVersionsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(18, "0-4", "3+")
    error_code: Int16 = 0
    api_keys: A[list[ApiVersion], wire_field("[]struct")] = field(default_factory=list)
    throttle_time_ms: A[int, wire_field("int32", "1+", ignorable=True)] = 0
    supported_features: A[
        list[SupportedFeatureKey], wire_field("[]struct", "3+", tagged="3+", tag=0, ignorable=True)
    ] = field(default_factory=list)
    finalized_features_epoch: A[int, wire_field("int64", "3+", tagged="3+", tag=1, ignorable=True)] = -1
    finalized_features: A[
        list[FinalizedFeatureKey], wire_field("[]struct", "3+", tagged="3+", tag=2, ignorable=True)
    ] = field(default_factory=list)
    zk_migration_ready: A[bool, wire_field("bool", "3+", tagged="3+", tag=3, ignorable=True)] = False
