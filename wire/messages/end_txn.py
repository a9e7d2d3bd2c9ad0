"""EndTxn (api 26): commit or abort a transaction.

From version 5 on each transaction has an epoch of its own, told in the answer (KIP-890).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from ottla.wire.codec.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    request,
    response,
    wire_field,
)


class EndTxnRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(26, "0-5", "3+", "broker")
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(26, "0-5", "3+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: A[int, wire_field("int64", "5+", ignorable=True)] = -1
    producer_epoch: A[int, wire_field("int16", "5+", ignorable=True)] = -1
