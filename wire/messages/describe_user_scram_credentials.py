"""DescribeUserScramCredentials (API 50): list SCRAM credentials of users, without secrets (KIP-554)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int8, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class UserName(Message):
    """Name of a user of which to list the SCRAM credentials."""

    name: String = ""
    """Name of the user."""


class DescribeUserScramCredentialsRequest(Message):
    """Request for the SCRAM mechanisms and iterations of users."""

    SPEC: ClassVar[MessageSpec] = request(50, "0", "0+", "broker controller")
    """Flow: An admin client sends it to any broker, which responds from its copy of the metadata. Salts and keys are
    never returned.
    """
    users: Annotated[list[UserName] | None, wire_field("[]struct", nullable="0+")] = field(default_factory=list)
    """Users to describe; null or empty for all that have credentials."""


class CredentialInfo(Message):
    """SCRAM credential of a user without its secrets: mechanism and number of iterations."""

    mechanism: Int8 = 0
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    iterations: Int32 = 0
    """Iterations of the key derivation."""


class DescribeUserScramCredentialsResult(Message):
    """User with its SCRAM credentials, or its error code."""

    user: String = ""
    """User name."""
    error_code: Int16 = 0
    """0, or RESOURCE_NOT_FOUND (no credential), DUPLICATE_RESOURCE (user twice in the request)."""
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""
    credential_infos: Annotated[list[CredentialInfo], wire_field("[]struct")] = field(default_factory=list)
    """Credentials of the user, by mechanism."""


class DescribeUserScramCredentialsResponse(Message):
    """SCRAM mechanisms and iterations of each user, without secrets."""

    SPEC: ClassVar[MessageSpec] = response(50, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """Error of the whole request: CLUSTER_AUTHORIZATION_FAILED. 0 if the users have their own."""
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error of the whole request, null if there is none."""
    results: Annotated[list[DescribeUserScramCredentialsResult], wire_field("[]struct")] = field(default_factory=list)
    """Results, one for each user."""
