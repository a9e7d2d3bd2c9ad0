"""UpdateFeatures (api 57): raise or lower finalized features.

Made by KIP-584; version 1 brings trials and downgrades (KIP-778).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Int16, Int32, Message, Spec, String, request, response, w


class FeatureUpdateKey(Message):
    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: A[bool, w("bool", "0")] = False
    upgrade_type: A[int, w("int8", "1+")] = 1


class UpdateFeaturesRequest(Message):
    SPEC: ClassVar[Spec] = request(57, "0-2", "0+", "broker controller")
    timeout_ms: Int32 = 60000
    feature_updates: A[list[FeatureUpdateKey], w("[]struct")] = field(default_factory=list)
    validate_only: A[bool, w("bool", "1+")] = False


class UpdatableFeatureResult(Message):
    feature: String = ""
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = ""


class UpdateFeaturesResponse(Message):
    SPEC: ClassVar[Spec] = response(57, "0-2", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = ""
    results: A[list[UpdatableFeatureResult], w("[]struct", "0-1", ignorable=True)] = field(default_factory=list)
