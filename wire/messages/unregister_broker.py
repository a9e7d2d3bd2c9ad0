"""UnregisterBroker (api 64): forget a broker.

Made by KIP-631.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, request, response, wire_field


class UnregisterBrokerRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(64, "0", "0+", "broker controller")
    broker_id: Int32 = 0


class UnregisterBrokerResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(64, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = ""
