"""DescribeTransactions (65), v0: state of transactional ids.

Behaviour: an unknown id is TRANSACTIONAL_ID_NOT_FOUND; while a transaction is completing, the partitions without a
marker so far are returned. Topics that the client may not describe are left out.
Deviation: an id that occurs twice in the request is returned once, as it may have very many partitions.

Source: ``KafkaApis.handleDescribeTransactionsRequest``, ``TransactionCoordinator.handleDescribeTransactions``
(apache/kafka 4.3.1).
From KIP-664.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.item_results import distinct
from ottla.broker.transactions.coordinator import state_machine_of
from ottla.broker.transactions.transaction_metadata import TransactionMetadata
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import Job
from ottla.jobs.sequences import sort_job
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

E = ErrorCode


def handle(context: RequestContext, request: DescribeTransactionsRequest) -> ResponseJob:
    """Describe the committed state of each distinct transactional id; an error concerns only its id."""
    rows = context.response_array()
    for transactional_id in distinct(request.transactional_ids):
        yield None
        if transactional_id is None:
            continue
        try:
            row = yield from _describe(context, transactional_id)
        except ProtocolError as error:
            row = TransactionState(error.code, transactional_id)
        rows.append(row)
    return DescribeTransactionsResponse(transaction_states=rows)


def _describe(context: RequestContext, transactional_id: str) -> Job[TransactionState]:
    if not context.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise ProtocolError(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        raise ProtocolError(E.INVALID_REQUEST)
    txn = state_machine_of(context.services.transaction_coordinator.shard_for(transactional_id)).committed_transaction(
        transactional_id
    )
    if txn is None:
        raise ProtocolError(E.TRANSACTIONAL_ID_NOT_FOUND)
    return TransactionState(
        E.NONE,
        transactional_id,
        txn.state.state_name,
        txn.timeout_ms,
        txn.start_ms,
        txn.producer_id,
        txn.producer_epoch,
        (yield from _topics(context, txn)),
    )


def _topics(context: RequestContext, txn: TransactionMetadata) -> Job[list[TopicData]]:
    topics: list[TopicData] = context.response_array()
    for topic, parts in groupby((yield from sort_job(txn.partitions)), key=itemgetter(0)):
        if context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.append(TopicData(topic, [number for _, number in parts]))
        yield None
    return topics
