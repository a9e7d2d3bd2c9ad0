"""Processing of AddPartitionsToTxn for the transactions of brokers or of a producer, and of the coordinator's results.

Brokers send their requests over the network, or in this process.

Source: ``KafkaApis.handleAddPartitionsToTxnRequest`` (apache/kafka 4.3.1).
Requests of brokers for several transactions: KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.handlers.item_results import wait_for_result
from ottla.broker.services import BrokerServices
from ottla.broker.transactions.events import AddPartitions, VerifyPartitions
from ottla.broker.transactions.transaction_metadata import EPOCH_BUMP_VERSION, TopicPartition
from ottla.jobs.job import Job
from ottla.jobs.sequences import free_job
from ottla.jobs.time_slice import TimeSlice
from ottla.wire.codec.response_array import changeable_array
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FIRST_BATCHED_VERSION = 4
"""First version that only brokers send, for producers with an epoch per transaction (KIP-890)."""
FIRST_PRODUCER_FENCED_VERSION = 2
"""First version in which a producer knows the error PRODUCER_FENCED."""
E = ErrorCode
TopicCheck = Callable[[str], ErrorCode]
"""Function that returns the error code of a topic; NONE if its partitions may be added."""
PartitionErrors = Callable[[TopicPartition], ErrorCode]


async def add_partitions(
    services: BrokerServices, request: AddPartitionsToTxnRequest, version: int
) -> AddPartitionsToTxnResponse:
    """Add or verify the partitions of a broker's request (v4-5) in time slices; authorization is not checked."""
    rows: list[AddPartitionsToTxnResult] = await TimeSlice(services.env).run(
        add_or_verify_partitions(services, request.transactions, version, lambda topic: E.NONE)
    )
    return AddPartitionsToTxnResponse(results_by_transaction=rows)


def add_or_verify_partitions(
    services: BrokerServices, transactions: Iterable[AddPartitionsToTxnTransaction], version: int, refuse: TopicCheck
) -> Job[list[AddPartitionsToTxnResult]]:
    """Add or verify the partitions of each transaction in its coordinator; return a row for each transaction; as a job.

    The rows of transactions with an invalid partition come first; nothing is submitted for them.

    Args:
        services: Services of the broker.
        transactions: Transactions with their partitions.
        version: API version of the request, which decides the error codes.
        refuse: Returns the error code of a topic; NONE if its partitions may be added.
    """
    submitted: list[tuple[AddPartitionsToTxnTransaction, PendingBrokerRequest]] = []
    rows: list[AddPartitionsToTxnResult] = changeable_array()
    for txn in transactions:
        partitions: set[TopicPartition] = set()
        codes = yield from _partition_errors(services, txn, refuse, partitions)
        if codes:
            rows.append((yield from build_transaction_result(txn, partial(_error_or_not_attempted, codes))))
        else:
            submitted.append((txn, _submit(services, txn, frozenset(partitions), version)))
        yield None
    for txn, pending in submitted:
        yield pending.wait() if pending.answer is None else None
        rows.append((yield from build_transaction_result(txn, partial(_to_partition_error, pending.answer, version))))
    yield from free_job(submitted)
    return rows


def _partition_errors(
    services: BrokerServices, txn: AddPartitionsToTxnTransaction, refuse: TopicCheck, partitions: set[TopicPartition]
) -> Job[dict[TopicPartition, ErrorCode]]:
    """Return the errors of partitions that cannot be added, as a job; a single one prevents that any is added.

    The other partitions are added to the set ``partitions``. ``refuse`` returns the error code of a topic.
    """
    out: dict[TopicPartition, ErrorCode] = {}
    for topic in txn.topics:
        code, known = refuse(topic.name), services.metadata.image.topics.get(topic.name)
        for number in topic.partitions:
            if code is not E.NONE:
                out[topic.name, number] = code
            elif known is None or number not in known.partitions:
                out[topic.name, number] = E.UNKNOWN_TOPIC_OR_PARTITION
            else:
                partitions.add((topic.name, number))
            yield None
        yield None
    return out


def _error_or_not_attempted(codes: dict[TopicPartition, ErrorCode], at: TopicPartition) -> ErrorCode:
    return codes.get(at, E.OPERATION_NOT_ATTEMPTED)


def _submit(
    services: BrokerServices, txn: AddPartitionsToTxnTransaction, partitions: frozenset[TopicPartition], version: int
) -> PendingBrokerRequest:
    transactional_id, producer_id, epoch = txn.transactional_id, txn.producer_id, txn.producer_epoch
    if not transactional_id:
        pending = PendingBrokerRequest()
        pending.deliver(ProtocolError(E.INVALID_REQUEST))
        return pending
    if txn.verify_only:
        return services.transaction_coordinator.submit(
            transactional_id, lambda own: VerifyPartitions(own, transactional_id, producer_id, epoch, partitions)
        )
    client_version = EPOCH_BUMP_VERSION if version >= FIRST_BATCHED_VERSION else 0
    return services.transaction_coordinator.submit(
        transactional_id,
        lambda own: AddPartitions(own, transactional_id, producer_id, epoch, partitions, client_version),
    )


def _to_partition_error(answer: Any, version: int, at: TopicPartition) -> ErrorCode:
    if isinstance(answer, ProtocolError):
        return error_for_version(answer.code, version)
    if isinstance(answer, frozenset) and at not in answer:
        return E.TRANSACTION_ABORTABLE
    return E.NONE


def error_for_version(code: ErrorCode, version: int, fenced_since: int = FIRST_PRODUCER_FENCED_VERSION) -> ErrorCode:
    """Return INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED before version ``fenced_since``, or ``code`` itself."""
    return E.INVALID_PRODUCER_EPOCH if code is E.PRODUCER_FENCED and version < fenced_since else code


def wait_for_transaction(
    pending: PendingBrokerRequest, version: int, fenced_since: int = FIRST_PRODUCER_FENCED_VERSION
) -> Job[Any]:
    """Wait for the result of a request to the transaction coordinator and return it, as a job.

    ``version`` is that of the client's request, ``fenced_since`` the first one with the error PRODUCER_FENCED.

    Raises:
        ProtocolError: The request failed; the error code is adapted by `error_for_version`.
    """
    answer = yield from wait_for_result(pending)
    if isinstance(answer, ProtocolError):
        raise ProtocolError(error_for_version(answer.code, version, fenced_since))
    return answer


def build_transaction_result(
    txn: AddPartitionsToTxnTransaction, code_of: PartitionErrors
) -> Job[AddPartitionsToTxnResult]:
    """Build a transaction's row of the response, with the error code from ``code_of`` for each partition, as a job."""
    out = AddPartitionsToTxnResult(txn.transactional_id, changeable_array())
    for topic in txn.topics:
        parts = AddPartitionsToTxnTopicResult(topic.name, changeable_array())
        out.topic_results.append(parts)
        for number in topic.partitions:
            parts.results_by_partition.append(AddPartitionsToTxnPartitionResult(number, code_of((topic.name, number))))
            yield None
        yield None
    return out
