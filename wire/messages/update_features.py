"""UpdateFeatures (api 57): raise or lower finalized features.

Made by KIP-584; version 1 brings trials and downgrades (KIP-778).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class FeatureUpdateKey(Message):
    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: A[bool, wire_field("bool", "0")] = False
    upgrade_type: A[int, wire_field("int8", "1+")] = 1


class UpdateFeaturesRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(57, "0-2", "0+", "broker controller")
    timeout_ms: Int32 = 60000
    feature_updates: A[list[FeatureUpdateKey], wire_field("[]struct")] = field(default_factory=list)
    validate_only: A[bool, wire_field("bool", "1+")] = False


class UpdatableFeatureResult(Message):
    feature: String = ""
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""


class UpdateFeaturesResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(57, "0-2", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    results: A[list[UpdatableFeatureResult], wire_field("[]struct", "0-1", ignorable=True)] = field(
        default_factory=list
    )
