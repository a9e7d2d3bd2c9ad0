"""InitProducerId (22), v0-5: assign a producer id and epoch to an idempotent or transactional producer.

Behaviour: without a transactional id each request gets a new producer id with epoch 0, also one with an id (KIP-360
bumps epochs only of transactional producers); the controller allocates ids in blocks of 1,000. With a transactional id
its previous producer is fenced: an ongoing transaction is aborted, and CONCURRENT_TRANSACTIONS is returned until that
is complete. Up to v3 a fenced producer gets INVALID_PRODUCER_EPOCH.

Source: ``KafkaApis.handleInitProducerIdRequest``, ``TransactionCoordinator.handleInitProducerId`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.item_results import wait_for_result
from ottla.broker.handlers.transactions.batched_add_partitions import wait_for_transaction
from ottla.broker.metadata.producer_id_manager import ProducerIdUnavailable
from ottla.broker.requests.error_responses import with_error_response
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.broker.coordinator.pending_request import PendingBrokerRequest

_FENCED_ERROR_SINCE = 4
"""First version in which a producer knows the error PRODUCER_FENCED."""
E = ErrorCode


@with_error_response
def handle(context: RequestContext, request: InitProducerIdRequest) -> ResponseJob:
    """Return a new producer id; with a transactional id, producer id and epoch from its transaction coordinator.

    The request waits while no producer ids are available from the controller.
    """
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not context.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            raise ProtocolError(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not context.may(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) and not context.may_any(
        AclOperation.WRITE, ResourceType.TOPIC
    ):
        raise ProtocolError(E.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise ProtocolError(E.INVALID_REQUEST)
    if transactional_id is not None:
        return (yield from _init_transactional(context, transactional_id, request))
    fresh = context.services.producer_ids.try_generate()
    if fresh is None:
        fresh = yield context.services.producer_ids.generate()
    return InitProducerIdResponse(producer_id=fresh, producer_epoch=0)


def _init_transactional(context: RequestContext, transactional_id: str, request: InitProducerIdRequest) -> ResponseJob:
    # lazy: 0.3 ms, 8 kB: only for transactional producers
    from ottla.broker.transactions import init_producer_id
    from ottla.broker.transactions.events import InitProducerId

    services = context.services
    limit_ms = services.config.number("transaction.max.timeout.ms")
    code = init_producer_id.check_request(transactional_id, request.transaction_timeout_ms, limit_ms)
    if code is not E.NONE:
        raise ProtocolError(code)
    expected = None if request.producer_id == -1 else (request.producer_id, request.producer_epoch)
    timeout_ms = request.transaction_timeout_ms

    def submit() -> PendingBrokerRequest:
        return services.transaction_coordinator.submit(
            transactional_id, lambda own: InitProducerId(own, transactional_id, timeout_ms, expected)
        )

    pending = submit()
    # only needed for a new transactional id, or after exhausted epochs
    if isinstance((yield from wait_for_result(pending)), ProducerIdUnavailable):
        yield services.producer_ids.wait_available()
        pending = submit()
    producer_id, epoch = yield from wait_for_transaction(pending, context.version, _FENCED_ERROR_SINCE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
