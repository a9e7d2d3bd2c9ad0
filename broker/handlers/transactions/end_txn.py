"""EndTxn (26), v0-5: commit or abort a transaction.

Behaviour: the response is sent when PrepareCommit or PrepareAbort is committed to the log, before markers are written.
From v5 it has the producer id and epoch for the next transaction, and aborting without a transaction succeeds. Up to v1
a fenced producer gets INVALID_PRODUCER_EPOCH.

Source: ``KafkaApis.handleEndTxnRequest``, ``TransactionCoordinator.handleEndTransaction`` (apache/kafka 4.3.1).
An epoch for every transaction: KIP-890.
"""

from __future__ import annotations

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.broker.handlers.transactions.batched_add_partitions import error_for_version
from ottla.broker.transactions.events import EndTransaction
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_EPOCH_BUMP_SINCE = 5
E = ErrorCode


def handle(context: RequestContext, request: EndTxnRequest) -> HandlerResult:
    """Authorize the request and commit or abort the transaction in the transaction coordinator."""
    transactional_id = request.transactional_id
    if not context.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return EndTxnResponse(error_code=E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return EndTxnResponse(error_code=E.INVALID_REQUEST)
    producer_id, epoch, commits = request.producer_id, request.producer_epoch, request.committed
    bumps = context.version >= _EPOCH_BUMP_SINCE
    pending = context.services.transaction_coordinator.submit(
        transactional_id, lambda own: EndTransaction(own, transactional_id, producer_id, epoch, commits, bumps)
    )
    return (
        _response(pending, context.version)
        if pending.answer is not None
        else _wait_for_response(pending, context.version)
    )


def _response(pending: PendingBrokerRequest, version: int) -> Message:
    answer = pending.answer
    if isinstance(answer, ProtocolError):
        return EndTxnResponse(error_code=error_for_version(answer.code, version))
    producer_id, epoch = answer
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)


def _wait_for_response(pending: PendingBrokerRequest, version: int) -> ResponseJob:
    yield pending.wait()
    return _response(pending, version)
