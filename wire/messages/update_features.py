"""UpdateFeatures (API 57): change the finalized levels of features such as `metadata.version` (KIP-584)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class FeatureUpdateKey(Message):
    """Feature with the finalized level to set, in an UpdateFeatures request."""

    feature: String = ""
    """Name of the feature, such as `metadata.version`, `transaction.version` or `kraft.version`."""
    max_version_level: Int16 = 0
    """New finalized level; 0 disables the feature. All brokers and controllers must support it, else
    INVALID_UPDATE_VERSION.
    """
    allow_downgrade: Annotated[bool, wire_field("bool", "0")] = False
    """True to allow a downgrade, in version 0. The controller ignores it: version 0 can only upgrade."""
    upgrade_type: Annotated[int, wire_field("int8", "1+")] = 1
    """1 upgrade, 2 safe downgrade, 3 unsafe downgrade, which may lose metadata. A lower level needs type 2 or 3.
    `kraft.version` cannot be downgraded, and `metadata.version` not below a level that changed records.
    """


class UpdateFeaturesRequest(Message):
    """Request to change the finalized levels of features."""

    SPEC: ClassVar[MessageSpec] = request(57, "0-2", "0+", "broker controller")
    """Version 1 adds the upgrade type and `validate_only` (KIP-778). Version 2 has no results by feature, since all
    updates succeed or fail together.

    Flow: An admin client sends it to any broker, which forwards it to the active controller. All registered nodes have
    to support the new level.
    """
    timeout_ms: Int32 = 60000
    """Time in ms that the client waits. Ottla ignores it: the response follows once the change is committed."""
    feature_updates: Annotated[list[FeatureUpdateKey], wire_field("[]struct")] = field(default_factory=list)
    """Features to change. If an update is invalid, none takes effect."""
    validate_only: Annotated[bool, wire_field("bool", "1+")] = False
    """True to check the request and change no level."""


class UpdatableFeatureResult(Message):
    """Error code of a feature, up to version 1; always 0, as errors concern the whole request."""

    feature: String = ""
    """Name of the feature from the request."""
    error_code: Int16 = 0
    """0; an error is reported for the whole request."""
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """`NONE`; an error is reported for the whole request."""


class UpdateFeaturesResponse(Message):
    """Error code of UpdateFeatures; 0 if all levels were changed."""

    SPEC: ClassVar[MessageSpec] = response(57, "0-2", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or INVALID_UPDATE_VERSION (a level is not supported, or the downgrade is not allowed),
    CLUSTER_AUTHORIZATION_FAILED.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error with the first feature that failed, null if there is none."""
    results: Annotated[list[UpdatableFeatureResult], wire_field("[]struct", "0-1", ignorable=True)] = field(
        default_factory=list
    )
    """Results by feature, up to version 1. Empty with an error."""
