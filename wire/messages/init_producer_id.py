"""InitProducerId (api 22): get a producer id and epoch, and fence the older owner of a transactional id.

Version 3 lets a producer go on after its epoch was refused (KIP-360), 4 tells it that it is fenced (KIP-588), 6
brings two-phase commit (KIP-939).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, request, response, wire_field


class InitProducerIdRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(22, "0-6", "2+", "broker", latest_unstable=True)
    transactional_id: A[str | None, wire_field("string", nullable="0+")] = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: A[int, wire_field("int64", "3+")] = -1
    producer_epoch: A[int, wire_field("int16", "3+")] = -1
    enable2_pc: A[bool, wire_field("bool", "6+")] = False
    keep_prepared_txn: A[bool, wire_field("bool", "6+")] = False


class InitProducerIdResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(22, "0-6", "2+")
    throttle_time_ms: A[int, wire_field("int32", ignorable=True)] = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: A[int, wire_field("int64", "6+")] = -1
    ongoing_txn_producer_epoch: A[int, wire_field("int16", "6+")] = -1
