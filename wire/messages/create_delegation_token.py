"""CreateDelegationToken (API 38): issue a delegation token (KIP-48)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    request,
    response,
    wire_field,
)


class CreatableRenewers(Message):
    """Principal that may renew the new delegation token, besides its owner."""

    principal_type: String = ""
    """Type of the principal. Other types than `User` are rejected with INVALID_PRINCIPAL_TYPE."""
    principal_name: String = ""
    """Name of the renewer."""


class CreateDelegationTokenRequest(Message):
    """Request to issue a delegation token. The connection must be authenticated, but not by a token."""

    SPEC: ClassVar[MessageSpec] = request(38, "1-3", "2+", "broker controller")
    """Version 2 is flexible, version 3 adds an owner other than the requester (KIP-373). Version 0 was removed in
    Apache Kafka 4.0.

    Flow: An authenticated client sends it to any broker, which forwards it with its principal to the active controller.
    The token authenticates further clients with SCRAM, until it expires.

    Errors: RECORD_LIST_TOO_LARGE: The list of renewers is too long for a record of the metadata log.
    """
    owner_principal_type: Annotated[str | None, wire_field("string", "3+", nullable="3+")] = ""
    """Type of the principal that the token is for. Only read if there is a name."""
    owner_principal_name: Annotated[str | None, wire_field("string", "3+", nullable="3+")] = ""
    """Name of the principal that the token is for; null or empty for the requester. Another owner requires the right to
    create tokens for that user.
    """
    renewers: Annotated[list[CreatableRenewers], wire_field("[]struct")] = field(default_factory=list)
    """Principals that may renew and expire the token besides its owner."""
    max_lifetime_ms: Int64 = 0
    """Time in ms after which the token cannot be renewed any more, at most `delegation.token.max.lifetime.ms`; 0 or
    negative for this limit.
    """


class CreateDelegationTokenResponse(Message):
    """New delegation token: id, HMAC, owner and times; or an error code."""

    SPEC: ClassVar[MessageSpec] = response(38, "1-3", "2+")
    error_code: Int16 = 0
    """0, or DELEGATION_TOKEN_AUTH_DISABLED (no secret key configured), DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (connection
    not authenticated, or with a token), INVALID_PRINCIPAL_TYPE, DELEGATION_TOKEN_AUTHORIZATION_FAILED.
    """
    principal_type: String = ""
    """Type of the owner."""
    principal_name: String = ""
    """Name of the owner. Clients that log in with the token have its rights."""
    token_requester_principal_type: Annotated[str, wire_field("string", "3+")] = ""
    """Type of the principal that requested the token."""
    token_requester_principal_name: Annotated[str, wire_field("string", "3+")] = ""
    """Name of the principal that requested the token."""
    issue_timestamp_ms: Int64 = 0
    """Time of issue in ms since the epoch; -1 with an error."""
    expiry_timestamp_ms: Int64 = 0
    """Time in ms since the epoch when the token expires unless it is renewed (`delegation.token.expiry.time.ms` after
    its issue); -1 with an error.
    """
    max_timestamp_ms: Int64 = 0
    """Time in ms since the epoch up to which the token can be renewed; -1 with an error."""
    token_id: String = ""
    """Id of the token, the user name of a SCRAM login with it."""
    hmac: Bytes = b""
    """Secret of the token: HMAC of its id under the secret key of the brokers. In base64 it is the password of a SCRAM
    login.
    """
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
