"""AllocateProducerIds (api 67): a broker fetches a block of producer ids.

Made by KIP-730.
"""

from __future__ import annotations

from typing import ClassVar

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, request, response


class AllocateProducerIdsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(67, "0", "0+", "controller")
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(67, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
