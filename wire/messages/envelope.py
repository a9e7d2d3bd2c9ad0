"""Envelope (api 58): a client's request, forwarded by a broker to the controller.

Made by KIP-590.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from ottla.wire.codec.schema import Bytes, Int16, Message, MessageSpec, request, response, wire_field


class EnvelopeRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(58, "0", "0+", "controller")
    request_data: Bytes = b""
    request_principal: A[bytes | None, wire_field("bytes", nullable="0+")] = b""
    client_host_address: Bytes = b""


class EnvelopeResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(58, "0", "0+")
    response_data: A[bytes | None, wire_field("bytes", nullable="0+")] = None
    error_code: Int16 = 0
