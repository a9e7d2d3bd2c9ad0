"""AddPartitionsToTxn (24), v0-5: add partitions to a transaction before records are written to them.

Behaviour: up to v3 a producer sends it for one transaction; from v4 a broker for several, possibly only to verify:
TRANSACTION_ABORTABLE for partitions that were not added. If one partition is rejected none is added, and the others get
OPERATION_NOT_ATTEMPTED; producers cannot add internal topics. Up to v1 a fenced producer gets INVALID_PRODUCER_EPOCH.

Source: ``KafkaApis.handleAddPartitionsToTxnRequest`` (apache/kafka 4.3.1).
Transactions: KIP-98; from brokers: KIP-890.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.broker.handlers.transactions.batched_add_partitions import (
    FIRST_BATCHED_VERSION,
    add_or_verify_partitions,
    build_transaction_result,
)
from ottla.broker.metadata.controller_forwarder import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})
E = ErrorCode


def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> HandlerResult:
    """Add or verify the partitions of each transaction in its coordinator; return an error code for each partition.

    From v4 a sender that is no broker (CLUSTER_ACTION) gets only CLUSTER_AUTHORIZATION_FAILED.
    """
    if context.version < FIRST_BATCHED_VERSION:
        return _add_for_producer(context, request)
    if not context.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return AddPartitionsToTxnResponse(error_code=E.CLUSTER_AUTHORIZATION_FAILED)
    return _add_for_brokers(context, request)


def _add_for_brokers(context: RequestContext, request: AddPartitionsToTxnRequest) -> ResponseJob:
    rows = yield from add_or_verify_partitions(
        context.services, request.transactions, context.version, lambda topic: E.NONE
    )
    return AddPartitionsToTxnResponse(results_by_transaction=rows)


def _add_for_producer(context: RequestContext, request: AddPartitionsToTxnRequest) -> ResponseJob:
    txn = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )

    def refuse(topic: str) -> ErrorCode:
        may = topic not in INTERNAL_TOPICS and context.may(AclOperation.WRITE, ResourceType.TOPIC, topic)
        return E.NONE if may else E.TOPIC_AUTHORIZATION_FAILED

    rows: list[AddPartitionsToTxnResult]
    if context.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, txn.transactional_id):
        rows = yield from add_or_verify_partitions(context.services, [txn], context.version, refuse)
    else:
        rows = [(yield from build_transaction_result(txn, lambda at: E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows[0].topic_results)
