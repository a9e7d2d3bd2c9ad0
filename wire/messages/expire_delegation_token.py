"""ExpireDelegationToken (api 40): end a delegation token.

Made by KIP-48.
"""

from __future__ import annotations

from typing import ClassVar

from ottla.wire.codec.schema import Bytes, Int16, Int32, Int64, Message, MessageSpec, request, response


class ExpireDelegationTokenRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(40, "1-2", "2+", "broker controller")
    hmac: Bytes = b""
    expiry_time_period_ms: Int64 = 0


class ExpireDelegationTokenResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(40, "1-2", "2+")
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
