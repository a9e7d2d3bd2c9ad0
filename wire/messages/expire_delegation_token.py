"""ExpireDelegationToken (API 40): expire a delegation token, or change its expiry time (KIP-48)."""

from __future__ import annotations

from typing import ClassVar

from ottla.wire.codec.schema import Bytes, Int16, Int32, Int64, Message, MessageSpec, request, response


class ExpireDelegationTokenRequest(Message):
    """Request of the owner or a renewer to expire a delegation token now or at another time."""

    SPEC: ClassVar[MessageSpec] = request(40, "1-2", "2+", "broker controller")
    """Version 2 is flexible. Version 0 was removed in Apache Kafka 4.0.

    Flow: Owner or renewer of a token send it to any broker, which forwards it to the active controller. A negative
    period expires the token at once; connections that it authenticated stay open.
    """
    hmac: Bytes = b""
    """Secret of the token, which identifies it."""
    expiry_time_period_ms: Int64 = 0
    """Time in ms from now until the token expires, limited by its longest lifetime; negative to delete it at once."""


class ExpireDelegationTokenResponse(Message):
    """New expiry time of the delegation token, or an error code."""

    SPEC: ClassVar[MessageSpec] = response(40, "1-2", "2+")
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
