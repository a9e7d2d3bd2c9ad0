"""InitProducerId (22), v0-5: assign a producer id and epoch to an idempotent or transactional producer.

Behaviour: without a transactional id each request gets a new producer id with epoch 0, whatever producer id it has
(KIP-360 bumps epochs only of transactional producers); the controller allocates ids in blocks of 1,000. With a
transactional id its previous producer is fenced: an ongoing transaction is aborted, and CONCURRENT_TRANSACTIONS is
returned until that is complete. Up to v3 a fenced producer gets INVALID_PRODUCER_EPOCH.

Source: ``KafkaApis.handleInitProducerIdRequest``, ``TransactionCoordinator.handleInitProducerId`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.broker.metadata.producer_id_manager import ProducerIdUnavailable
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.broker.coordinator.pending_request import PendingBrokerRequest

_FENCED_ERROR_SINCE = 4
"""First version in which a producer knows the error PRODUCER_FENCED."""
E = ErrorCode


def _error_response(code: ErrorCode) -> Message:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


def handle(context: RequestContext, request: InitProducerIdRequest) -> HandlerResult:
    """Return a new producer id, or producer id and epoch of a transactional id from its coordinator."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not context.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return _error_response(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not context.may(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) and not context.may_any(
        AclOperation.WRITE, ResourceType.TOPIC
    ):
        return _error_response(E.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _error_response(E.INVALID_REQUEST)
    if transactional_id is not None:
        return _init_transactional(context, transactional_id, request)
    fresh = context.services.producer_ids.try_generate()
    if fresh is not None:
        return InitProducerIdResponse(producer_id=fresh, producer_epoch=0)
    return _allocate(context)


def _allocate(context: RequestContext) -> ResponseJob:
    try:
        fresh = yield context.services.producer_ids.generate()
    except ProtocolError as error:
        return _error_response(error.code)
    return InitProducerIdResponse(producer_id=fresh, producer_epoch=0)


def _init_transactional(
    context: RequestContext, transactional_id: str, request: InitProducerIdRequest
) -> HandlerResult:
    # lazy: 1.7 ms, 41 kB: only for transactional producers
    from ottla.broker.transactions import init_producer_id

    limit_ms = context.services.config.number("transaction.max.timeout.ms")
    code = init_producer_id.check_request(transactional_id, request.transaction_timeout_ms, limit_ms)
    return _submit(context, transactional_id, request) if code is E.NONE else _error_response(code)


def _submit(context: RequestContext, transactional_id: str, request: InitProducerIdRequest) -> ResponseJob:
    # lazy: 3.0 ms, 88 kB
    from ottla.broker.transactions.events import InitProducerId

    services = context.services
    expected = None if request.producer_id == -1 else (request.producer_id, request.producer_epoch)
    timeout_ms = request.transaction_timeout_ms

    def submit() -> PendingBrokerRequest:
        return services.transaction_coordinator.submit(
            transactional_id, lambda own: InitProducerId(own, transactional_id, timeout_ms, expected)
        )

    answer = yield submit().wait()
    # only needed for a new transactional id, or after exhausted epochs
    if isinstance(answer, ProducerIdUnavailable):
        try:
            yield services.producer_ids.wait_available()
        except ProducerIdUnavailable as error:
            return _error_response(error.code)
        answer = yield submit().wait()
    if isinstance(answer, ProtocolError):
        is_old = answer.code is E.PRODUCER_FENCED and context.version < _FENCED_ERROR_SINCE
        return _error_response(E.INVALID_PRODUCER_EPOCH if is_old else answer.code)
    producer_id, epoch = answer
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
