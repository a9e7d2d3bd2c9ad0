"""SaslAuthenticate (api 36): carry one SASL token.

Made by KIP-152; version 1 brings how long a session lasts (KIP-368).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from ottla.wire.schema import Bytes, Int16, Message, Spec, request, response, w


class SaslAuthenticateRequest(Message):
    SPEC: ClassVar[Spec] = request(36, "0-2", "2+", "broker controller")
    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(Message):
    SPEC: ClassVar[Spec] = response(36, "0-2", "2+")
    error_code: Int16 = 0
    error_message: A[str | None, w("string", nullable="0+")] = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: A[int, w("int64", "1+", ignorable=True)] = 0
