"""AddOffsetsToTxn (api 25): enlist a group's offsets in a transaction.

Version 2 tells a producer that it is fenced (KIP-588), 4 that it must abort (KIP-890).
"""

from __future__ import annotations

from typing import ClassVar

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response


class AddOffsetsToTxnRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(25, "0-4", "3+", "broker")
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(25, "0-4", "3+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
