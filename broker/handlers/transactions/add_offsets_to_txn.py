"""AddOffsetsToTxn (25), v0-4: add a group's `__consumer_offsets` partition to a transaction.

Behaviour: the errors are those of AddPartitionsToTxn. Up to v1 a fenced producer gets INVALID_PRODUCER_EPOCH. Producers
with an epoch per transaction (KIP-890) do not send it.

Source: ``KafkaApis.handleAddOffsetsToTxnRequest`` (apache/kafka 4.3.1).
From KIP-98.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.transactions.batched_add_partitions import wait_for_transaction
from ottla.broker.metadata.controller_forwarder import OFFSETS_TOPIC
from ottla.broker.requests.error_responses import with_error_response
from ottla.broker.transactions.events import AddPartitions
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

E = ErrorCode


@with_error_response
def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> ResponseJob:
    """Authorize the request and add the group's `__consumer_offsets` partition to the transaction.

    The coordinator's error is the error code of the response.
    """
    transactional_id = request.transactional_id
    if not context.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise ProtocolError(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise ProtocolError(E.GROUP_AUTHORIZATION_FAILED)
    if not transactional_id:
        raise ProtocolError(E.INVALID_REQUEST)
    partitions = frozenset({(OFFSETS_TOPIC, context.services.groups.partition_for(request.group_id))})
    producer_id, epoch = request.producer_id, request.producer_epoch
    pending = context.services.transaction_coordinator.submit(
        transactional_id, lambda own: AddPartitions(own, transactional_id, producer_id, epoch, partitions, 0)
    )
    yield from wait_for_transaction(pending, context.version)
    return AddOffsetsToTxnResponse()
