"""InitProducerId (22), v0-5: a producer id for an idempotent producer.

Behaviour: without a transactional id every request gets a fresh id, epoch 0, whatever it names (KIP-360 raises epochs
only for transactional producers). Ids come from the controller in blocks of 1,000.
Deviation: with a transactional id INVALID_REQUEST until transactions are served.

Source: ``TransactionCoordinator.handleInitProducerId`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.schema import Message


def handle(context: Context, request: InitProducerIdRequest) -> Answer:
    """Hand out the next producer id."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    fresh = context.services.producer_ids.next_nowait()
    if fresh is not None:
        return InitProducerIdResponse(producer_id=fresh, producer_epoch=0)
    return _allocate(context)


async def _allocate(context: Context) -> Message:
    try:
        fresh = await context.services.producer_ids.next()
    except ProtocolError as error:
        return InitProducerIdResponse(error_code=error.code)
    return InitProducerIdResponse(producer_id=fresh, producer_epoch=0)
