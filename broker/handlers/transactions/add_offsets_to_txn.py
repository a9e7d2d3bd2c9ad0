"""AddOffsetsToTxn (25), v0-4: add a group's `__consumer_offsets` partition to a transaction.

Behaviour: the errors are those of AddPartitionsToTxn. Up to v1 a fenced producer gets INVALID_PRODUCER_EPOCH. Producers
with an epoch per transaction (KIP-890) do not send it.

Source: ``KafkaApis.handleAddOffsetsToTxnRequest`` (apache/kafka 4.3.1).
From KIP-98.
"""

from __future__ import annotations

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.broker.handlers.transactions.batched_add_partitions import error_for_version
from ottla.broker.metadata.controller_forwarder import OFFSETS_TOPIC
from ottla.broker.transactions.events import AddPartitions
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

E = ErrorCode


def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> HandlerResult:
    """Authorize the request and add the group's `__consumer_offsets` partition to the transaction."""
    transactional_id = request.transactional_id
    if not context.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return AddOffsetsToTxnResponse(error_code=E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=E.GROUP_AUTHORIZATION_FAILED)
    if not transactional_id:
        return AddOffsetsToTxnResponse(error_code=E.INVALID_REQUEST)
    partitions = frozenset({(OFFSETS_TOPIC, context.services.groups.partition_for(request.group_id))})
    producer_id, epoch = request.producer_id, request.producer_epoch
    pending = context.services.transaction_coordinator.submit(
        transactional_id, lambda own: AddPartitions(own, transactional_id, producer_id, epoch, partitions, 0)
    )
    return (
        _response(pending, context.version)
        if pending.answer is not None
        else _wait_for_response(pending, context.version)
    )


def _response(pending: PendingBrokerRequest, version: int) -> Message:
    answer = pending.answer
    code = answer.code if isinstance(answer, ProtocolError) else E.NONE
    return AddOffsetsToTxnResponse(error_code=error_for_version(code, version))


def _wait_for_response(pending: PendingBrokerRequest, version: int) -> ResponseJob:
    yield pending.wait()
    return _response(pending, version)
