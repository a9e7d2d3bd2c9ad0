"""SaslAuthenticate (api 36): carry one SASL token.

Made by KIP-152; version 1 brings how long a session lasts (KIP-368).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from ottla.wire.codec.schema import Bytes, Int16, Message, MessageSpec, request, response, wire_field


class SaslAuthenticateRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(36, "0-2", "2+", "broker controller")
    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(36, "0-2", "2+")
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: A[int, wire_field("int64", "1+", ignorable=True)] = 0
