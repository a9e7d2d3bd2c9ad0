"""DescribeDelegationToken (API 41): list delegation tokens (KIP-48)."""

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


class DescribeDelegationTokenOwner(Message):
    """Owner in a DescribeDelegationToken request: the tokens of this principal are listed."""

    principal_type: String = ""
    """Type of the principal; `User`."""
    principal_name: String = ""
    """Name of the principal. Tokens match if it is their owner, requester or renewer."""


class DescribeDelegationTokenRequest(Message):
    """Request for the delegation tokens that the principal may describe, optionally of some owners."""

    SPEC: ClassVar[MessageSpec] = request(41, "1-3", "2+", "broker controller")
    """Version 2 is flexible, version 3 adds the requester (KIP-373). Version 0 was removed in Apache Kafka 4.0.

    Flow: An authenticated client sends it to any broker, which responds from its copy of the metadata.
    """
    owners: Annotated[list[DescribeDelegationTokenOwner] | None, wire_field("[]struct", nullable="0+")] = field(
        default_factory=list
    )
    """Principals with tokens to list; null for all, empty for none."""


class DescribedDelegationTokenRenewer(Message):
    """Principal that may renew the described delegation token, besides its owner."""

    principal_type: String = ""
    """Type of the principal; `User`."""
    principal_name: String = ""
    """Name of the renewer."""


class DescribedDelegationToken(Message):
    """Delegation token in a response: id, HMAC, owner, requester, renewers and times."""

    principal_type: String = ""
    """Type of the owner."""
    principal_name: String = ""
    """Name of the owner. Clients that log in with the token have its rights."""
    token_requester_principal_type: Annotated[str, wire_field("string", "3+")] = ""
    """Type of the principal that requested the token."""
    token_requester_principal_name: Annotated[str, wire_field("string", "3+")] = ""
    """Name of the principal that requested the token."""
    issue_timestamp: Int64 = 0
    """Time of issue in ms since the epoch."""
    expiry_timestamp: Int64 = 0
    """Time in ms since the epoch when the token expires unless it is renewed."""
    max_timestamp: Int64 = 0
    """Time in ms since the epoch up to which the token can be renewed."""
    token_id: String = ""
    """Id of the token, the user name of a SCRAM login with it."""
    hmac: Bytes = b""
    """Secret of the token. In base64 it is the password of a SCRAM login."""
    renewers: Annotated[list[DescribedDelegationTokenRenewer], wire_field("[]struct")] = field(default_factory=list)
    """Principals that may renew and expire the token besides its owner."""


class DescribeDelegationTokenResponse(Message):
    """Delegation tokens that the principal may describe, or an error code."""

    SPEC: ClassVar[MessageSpec] = response(41, "1-3", "2+")
    error_code: Int16 = 0
    """0, or DELEGATION_TOKEN_AUTH_DISABLED (no secret key configured), DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (connection
    not authenticated, or with a token).
    """
    tokens: Annotated[list[DescribedDelegationToken], wire_field("[]struct")] = field(default_factory=list)
    """Tokens that are owned, requested or renewable by the principal, or that ACLs permit it to describe."""
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
