"""ListTransactions (api 66): which transactions a coordinator holds.

Made by KIP-664; version 1 asks for how long (KIP-994), 2 for ids by pattern (KIP-1152).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class ListTransactionsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(66, "0-2", "0+", "broker")
    state_filters: A[list[str], wire_field("[]string")] = field(default_factory=list)
    producer_id_filters: A[list[int], wire_field("[]int64")] = field(default_factory=list)
    duration_filter: A[int, wire_field("int64", "1+")] = -1
    transactional_id_pattern: A[str | None, wire_field("string", "2+", nullable="2+")] = None


class TransactionState(Message):
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(66, "0-2", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: A[list[str], wire_field("[]string")] = field(default_factory=list)
    transaction_states: A[list[TransactionState], wire_field("[]struct")] = field(default_factory=list)
