"""AllocateProducerIds (API 67): assign a block of producer ids to a broker (KIP-730)."""

from __future__ import annotations

from typing import ClassVar

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, request, response


class AllocateProducerIdsRequest(Message):
    """Request of a broker to the controller for a block of producer ids to use in InitProducerId."""

    SPEC: ClassVar[MessageSpec] = request(67, "0", "0+", "controller")
    """Flow: A broker sends it to the active controller when it has used up its block of producer ids. The controller
    appends a ProducerIdsRecord, so that no id is given out twice.
    """
    broker_id: Int32 = 0
    """Node id of the broker."""
    broker_epoch: Int64 = -1
    """Broker epoch from the registration of the broker. Another one than the current epoch is rejected with
    STALE_BROKER_EPOCH.
    """


class AllocateProducerIdsResponse(Message):
    """Block of producer ids for the sender: first id and length. The controller assigns an id only once."""

    SPEC: ClassVar[MessageSpec] = response(67, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the controller reads no further request from this connection, because a quota is exceeded; 0
    if none is.
    """
    error_code: Int16 = 0
    """0, or STALE_BROKER_EPOCH if the broker is not registered with this epoch, or NOT_CONTROLLER."""
    producer_id_start: Int64 = 0
    """First producer id of the block."""
    producer_id_len: Int32 = 0
    """Number of producer ids in the block; 1,000."""
