"""EndTxn (26), v0-5: commit or abort a transaction.

Behaviour: the response is sent when PrepareCommit or PrepareAbort is committed to the log, before markers are written.
From v5 it has the producer id and epoch for the next transaction, and aborting without a transaction succeeds. Up to v1
a fenced producer gets INVALID_PRODUCER_EPOCH.

Source: ``KafkaApis.handleEndTxnRequest``, ``TransactionCoordinator.handleEndTransaction`` (apache/kafka 4.3.1).
An epoch for every transaction: KIP-890.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.transactions.batched_add_partitions import wait_for_transaction
from ottla.broker.requests.error_responses import with_error_response
from ottla.broker.transactions.events import EndTransaction
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_EPOCH_BUMP_SINCE = 5
E = ErrorCode


@with_error_response
def handle(context: RequestContext, request: EndTxnRequest) -> ResponseJob:
    """Authorize the request and commit or abort the transaction; respond once the decision is stored."""
    transactional_id = request.transactional_id
    if not context.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise ProtocolError(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        raise ProtocolError(E.INVALID_REQUEST)
    producer_id, epoch, commits = request.producer_id, request.producer_epoch, request.committed
    bumps = context.version >= _EPOCH_BUMP_SINCE
    pending = context.services.transaction_coordinator.submit(
        transactional_id, lambda own: EndTransaction(own, transactional_id, producer_id, epoch, commits, bumps)
    )
    producer_id, epoch = yield from wait_for_transaction(pending, context.version)
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
