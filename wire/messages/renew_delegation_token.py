"""RenewDelegationToken (API 39): extend a delegation token before it expires (KIP-48)."""

from __future__ import annotations

from typing import ClassVar

from ottla.wire.codec.schema import Bytes, Int16, Int32, Int64, Message, MessageSpec, request, response


class RenewDelegationTokenRequest(Message):
    """Request of the owner or a renewer to postpone the expiry of a delegation token."""

    SPEC: ClassVar[MessageSpec] = request(39, "1-2", "2+", "broker controller")
    """Version 2 is flexible. Version 0 was removed in Apache Kafka 4.0.

    Flow: Owner or renewer of a token send it to any broker, which forwards it to the active controller. The expiry time
    never exceeds the maximum lifetime of the token.
    """
    hmac: Bytes = b""
    """Secret of the token, which identifies it."""
    renew_period_ms: Int64 = 0
    """Time in ms from now until the token expires, at most `delegation.token.expiry.time.ms`; 0 or negative for this
    limit. The longest lifetime of the token limits it as well.
    """


class RenewDelegationTokenResponse(Message):
    """New expiry time of the delegation token, or an error code."""

    SPEC: ClassVar[MessageSpec] = response(39, "1-2", "2+")
    error_code: Int16 = 0
    """0, or DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH (neither owner nor
    renewer), DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    expiry_timestamp_ms: Int64 = 0
    """Time in ms since the epoch when the token expires."""
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
