"""Verification of a transactional Produce request by the transaction coordinator.

Up to v11 the coordinator verifies that the partitions were added to the transaction, unless
``transaction.partition.verification.enable`` is false; from v12 it adds them. No request is sent for partitions in
which the transaction is ongoing already. From v12, while the coordinator completes the previous transaction, the
request is retried (``add.partitions.to.txn.retry.backoff.ms``, 20 ms, for at most ``...backoff.max.ms``, 100 ms).

Source: ``ReplicaManager.handleProduceAppend``, ``ReplicaManager.maybeSendPartitionsToTransactionCoordinator``
(apache/kafka 4.3.1).
From KIP-890.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.handlers.admin.metadata import INTERNAL_TOPICS
from ottla.broker.handlers.produce.batch_precheck import ADMIN_CLIENT_ID, topic_name
from ottla.broker.transactions.verification import TopicPartition, TransactionSupportedOperation, VerificationRequest
from ottla.controller.metadata import acl
from ottla.jobs.job import Job
from ottla.log.log_validator import parse_single_batch
from ottla.log.producers.transaction_verification import TxnAppendContext
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.produce import ProduceRequest

_ADDS_SINCE = 12
_ABORTABLE_SINCE = 11
_RETRIABLE_ERRORS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionVerification(NamedTuple):
    """Result of the verification of a request: errors of rejected partitions, and the verifier's append contexts."""

    refused: Mapping[TopicPartition, ProtocolError]
    txns: Mapping[TopicPartition, TxnAppendContext]


class _TransactionalBatches(NamedTuple):
    """Transactional batches of a request: producer id and epoch (-1 without any), first sequence by partition."""

    producer_id: int
    epoch: int
    sequences: dict[TopicPartition, int]


def _may_write(context: RequestContext, name: str) -> bool:
    """Return True if the client may write to a topic; to an internal one only with the client id of the admin tools.

    A topic without this permission is not added to the transaction, so that no transaction marker is written to it.
    """
    is_open = name not in INTERNAL_TOPICS or context.client_id == ADMIN_CLIENT_ID
    return is_open and context.may(acl.AclOperation.WRITE, acl.ResourceType.TOPIC, name)


def _collect_batches(context: RequestContext, request: ProduceRequest) -> Job[_TransactionalBatches]:
    """Return the transactional batches for existing and authorized partitions, as a job; the append rejects the others.

    Raises:
        ProtocolError: INVALID_PRODUCER_ID_MAPPING if the batches have more than one producer.
    """
    producers: set[tuple[int, int]] = set()
    sequences: dict[TopicPartition, int] = {}
    for topic in request.topic_data:
        name = topic_name(context, topic)
        known = None if name is None or not _may_write(context, name) else context.image.topics.get(name)
        for part in topic.partition_data:
            yield None
            if name is None or known is None or part.index not in known.partitions or not part.records:
                continue
            try:
                header = parse_single_batch(part.records)
            except ProtocolError:
                continue
            if header.is_transactional and header.producer_id >= 0:
                producers.add((header.producer_id, header.producer_epoch))
                sequences[name, part.index] = header.base_sequence
        yield None
    if len(producers) > 1:
        text = "Transactional records contained more than one producer ID"
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
    return _TransactionalBatches(*(producers.pop() if producers else (-1, -1)), sequences)


def _to_produce_error(code: ErrorCode, operation: TransactionSupportedOperation) -> ProtocolError:
    """Return the error for the producer by the transaction coordinator's error code and the failed operation."""
    if code in _RETRIABLE_ERRORS or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and operation is not TransactionSupportedOperation.ADD
    ):
        return ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS)  # older producers retry on it without a metadata update
    if code is ErrorCode.INVALID_TXN_STATE:
        return ProtocolError(code, "Partition was not added to the transaction")
    return ProtocolError(code)


def verify_transaction(context: RequestContext, request: ProduceRequest) -> Job[TransactionVerification]:
    """Have the transaction coordinator verify or add the partitions of transactional batches, as a job.

    Raises:
        ProtocolError: The whole request is rejected, no batch is appended: TRANSACTIONAL_ID_AUTHORIZATION_FAILED or
            INVALID_PRODUCER_ID_MAPPING.
    """
    transactional_id, version = request.transactional_id, context.version
    may = context.may(acl.AclOperation.WRITE, acl.ResourceType.TRANSACTIONAL_ID, transactional_id or "")
    if transactional_id is None or not may:
        raise ProtocolError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    begun = yield from _collect_batches(context, request)
    if not begun.sequences:
        return TransactionVerification({}, {})
    operation = TransactionSupportedOperation.VERIFY
    if version >= _ABORTABLE_SINCE:
        operation = (
            TransactionSupportedOperation.ADD
            if version >= _ADDS_SINCE
            else TransactionSupportedOperation.VERIFY_ABORTABLE
        )
    services = context.services
    answer = yield services.transaction_verifier().verify(VerificationRequest(transactional_id, *begun, operation))
    context.now_ms = services.env.now_ms()
    return TransactionVerification(
        {at: _to_produce_error(code, operation) for at, code in answer.errors.items()}, answer.txns
    )
