"""SaslHandshake (api 17): choose a SASL mechanism.

Made by KIP-43; from version 1 on tokens come in SaslAuthenticate (KIP-152).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Message, MessageSpec, String, request, response, wire_field


class SaslHandshakeRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(17, "0-1", "none", "broker controller")
    mechanism: String = ""


class SaslHandshakeResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(17, "0-1", "none")
    error_code: Int16 = 0
    mechanisms: A[list[str], wire_field("[]string")] = field(default_factory=list)
