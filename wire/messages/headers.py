"""Request and response headers: what stands before every body."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, data, wire_field


class RequestHeader(Message):
    SPEC: ClassVar[MessageSpec] = data("header", "1-2", "2+")
    request_api_key: Int16 = 0
    request_api_version: Int16 = 0
    correlation_id: Int32 = 0
    client_id: A[str | None, wire_field("string", "1+", nullable="1+", never_compact=True)] = ""


class ResponseHeader(Message):
    SPEC: ClassVar[MessageSpec] = data("header", "0-1", "1+")
    correlation_id: Int32 = 0
