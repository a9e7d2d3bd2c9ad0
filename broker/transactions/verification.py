"""Verification of transactional writes: the partition leader asks the transaction coordinator before the first write.

If the coordinator is another broker, AddPartitionsToTxn v4 or later is sent: one request at a time to each broker, with
the transactions that were queued meanwhile. A request has at most one entry for a transactional id: a producer that
retries has abandoned its first request.

Source: ``ReplicaManager.maybeSendPartitionsToTransactionCoordinator``, ``AddPartitionsToTxnManager.java`` (apache/kafka
4.3.1).

From KIP-890.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import NamedTuple

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.interbroker.connections import BrokerConnections
from ottla.broker.interbroker.credentials import inter_broker_access
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.client.channel import Channel
from ottla.env.env import Env
from ottla.log.producers.transaction_verification import VERIFICATION_DISABLED, TxnAppendContext
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import add_partitions_to_txn

logger = logging.getLogger("ottla.txn")
TOPIC = "__transaction_state"
TopicPartition = tuple[str, int]
ErrorsByPartition = dict[TopicPartition, ErrorCode]
_MIN_BATCHED_VERSION = 4
"""First version of AddPartitionsToTxn for brokers, with several transactions in a request."""
MAX_PARTITIONS_PER_REQUEST = 1_000
"""Number of partitions from which no further transaction is added to a request: its response takes some 10 ms."""


class TransactionSupportedOperation(Enum):
    """Operation requested from the coordinator, by the version of the producer's request."""

    VERIFY = "verify"
    """Verify that the partition was added; otherwise an old producer gets INVALID_TXN_STATE."""
    VERIFY_ABORTABLE = "verify, abortable"
    """Verify that the partition was added; otherwise the producer gets TRANSACTION_ABORTABLE."""
    ADD = "add"
    """Add the partition: the producer has a new epoch for each transaction (transaction.version 2)."""


class VerificationRequest(NamedTuple):
    """Transactional write to verify: first sequence of the batch by partition, -1 for a partition without one."""

    transactional_id: str
    producer_id: int
    epoch: int
    sequences: Mapping[TopicPartition, int]
    operation: TransactionSupportedOperation


class VerificationResult(NamedTuple):
    """Result of a verification: error codes of rejected partitions, and contexts (guards) for the append.

    ``txns`` has the context of each partition whose log had no open transaction; others are appended without one. While
    verification is disabled, it has the context `VERIFICATION_DISABLED` for all partitions.
    """

    errors: ErrorsByPartition
    txns: dict[TopicPartition, TxnAppendContext]


class TransactionVerifierDependencies(NamedTuple):
    """Functions and components of the node that the verifier uses."""

    env: Env
    config: NodeConfig
    metadata: MetadataCache
    replicas: ReplicaManager
    partition_for: Callable[[str], int]
    """Returns the partition of `__transaction_state` that holds a transactional id."""
    add_partitions: Callable[
        [add_partitions_to_txn.AddPartitionsToTxnRequest, int],
        Awaitable[add_partitions_to_txn.AddPartitionsToTxnResponse],
    ]
    """Handles an AddPartitionsToTxn request of the given version with the coordinator in this process."""


class TransactionVerifier:
    """Verifier of transactional writes: has coordinators verify that partitions are in a transaction, or add them."""

    def __init__(self, dependencies: TransactionVerifierDependencies) -> None:
        self._dependencies = dependencies
        config = dependencies.config
        self._connections = BrokerConnections(
            dependencies.env,
            f"broker-{config.node_id}-transactions",
            lambda broker_id: dependencies.metadata.image.unfenced_broker_address(
                broker_id, config.inter_broker_listener
            ),
            partial(inter_broker_access, config),
            config.number("request.timeout.ms") / 1000,
        )
        self.close = self._connections.close
        self._queues: dict[int, _CoordinatorQueue] = {}
        self._is_enabled = config.flag("transaction.partition.verification.enable")
        longest = config.number("add.partitions.to.txn.retry.backoff.max.ms")
        self._max_wait_ms = min(longest, config.number("request.timeout.ms"))
        self._retry_backoff_s = config.number("add.partitions.to.txn.retry.backoff.ms") / 1000

    async def verify(self, request: VerificationRequest) -> VerificationResult:
        """Verify as `verify_once`; repeat an ADD while the previous transaction causes CONCURRENT_TRANSACTIONS.

        It is repeated up to `add.partitions.to.txn.retry.backoff.max.ms`, at most `request.timeout.ms`.
        """
        env = self._dependencies.env
        begun_ms = env.monotonic_ms()
        while True:
            answer = await self.verify_once(request)
            again = (
                request.operation is TransactionSupportedOperation.ADD
                and ErrorCode.CONCURRENT_TRANSACTIONS in answer.errors.values()
            )
            if not again or env.monotonic_ms() - begun_ms >= self._max_wait_ms:
                return answer
            await env.sleep(self._retry_backoff_s)

    async def verify_once(self, request: VerificationRequest) -> VerificationResult:
        """Verify with the coordinator (or ADD) the partitions whose log has no open transaction of the producer.

        For each of them a verification guard is created in its log; the append must present it. Rejected partitions are
        in ``errors`` of the result. Without `transaction.partition.verification.enable` only an ADD is sent.
        """
        refused: ErrorsByPartition = {}
        txns: dict[TopicPartition, TxnAppendContext] = {}
        adds = request.operation is TransactionSupportedOperation.ADD
        if not adds and not self._is_enabled:
            return VerificationResult(
                refused, dict.fromkeys(request.sequences, TxnAppendContext(VERIFICATION_DISABLED))
            )
        now_ms = self._dependencies.env.now_ms()
        for at, sequence in request.sequences.items():
            try:
                log = self._dependencies.replicas.leader(*at).log
                guard = log.producers.maybe_start_verification(
                    request.producer_id, request.epoch, sequence, now_ms, bumps=adds
                )
            except ProtocolError as error:
                refused[at] = error.code
            else:
                if guard is not None:
                    txns[at] = TxnAppendContext(guard)
        if txns:
            refused |= await self._verify_with_coordinator(request, list(txns))
        if not self._is_enabled:
            txns = dict.fromkeys(request.sequences, TxnAppendContext(VERIFICATION_DISABLED))
        return VerificationResult(refused, txns)

    async def _verify_with_coordinator(
        self, wanted: VerificationRequest, partitions: list[TopicPartition]
    ) -> ErrorsByPartition:
        """Have the coordinator verify the partitions; return the error codes of rejected ones, for the producer."""
        topics: dict[str, add_partitions_to_txn.AddPartitionsToTxnTopic] = {}
        for topic, number in partitions:
            topics.setdefault(topic, add_partitions_to_txn.AddPartitionsToTxnTopic(topic)).partitions.append(number)
        transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
            wanted.transactional_id,
            wanted.producer_id,
            wanted.epoch,
            wanted.operation is not TransactionSupportedOperation.ADD,
            list(topics.values()),
        )
        leader = self._coordinator(wanted.transactional_id)
        if leader is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if leader == self._dependencies.config.node_id:
            codes = await self._verify_locally(transaction)
        else:
            queue = self._queues.get(leader)
            if queue is None:
                queue = self._queues[leader] = _CoordinatorQueue(self._connections, leader)
            codes = await queue.verify(transaction)
        return {at: _to_producer_error(code, wanted.operation) for at, code in codes.items()}

    async def _verify_locally(
        self, transaction: add_partitions_to_txn.AddPartitionsToTxnTransaction
    ) -> ErrorsByPartition:
        answer = await self._dependencies.add_partitions(
            add_partitions_to_txn.AddPartitionsToTxnRequest([transaction]), 5
        )
        return next(_errors_by_transaction(answer, [transaction]))

    def _coordinator(self, transactional_id: str) -> int | None:
        """Return the id of the broker that coordinates a transactional id; None without an unfenced one."""
        image = self._dependencies.metadata.image
        topic = image.topics.get(TOPIC)
        if topic is None:
            return None
        number = self._dependencies.partition_for(transactional_id)
        part = topic.partitions.get(number)
        known = None if part is None else image.brokers.get(part.leader)
        return None if part is None or known is None or known.fenced else part.leader


def _to_producer_error(code: ErrorCode, operation: TransactionSupportedOperation) -> ErrorCode:
    """Return the coordinator's error code in the form that the producer's version understands.

    PRODUCER_FENCED becomes INVALID_PRODUCER_EPOCH; for VERIFY, TRANSACTION_ABORTABLE becomes INVALID_TXN_STATE.
    """
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and operation is TransactionSupportedOperation.VERIFY:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _same_error_for_all(
    transaction: add_partitions_to_txn.AddPartitionsToTxnTransaction, code: ErrorCode
) -> ErrorsByPartition:
    return {(topic.name, number): code for topic in transaction.topics for number in topic.partitions}


def _errors_by_transaction(
    answer: add_partitions_to_txn.AddPartitionsToTxnResponse,
    transactions: Iterable[add_partitions_to_txn.AddPartitionsToTxnTransaction],
) -> Iterator[ErrorsByPartition]:
    """Yield for each of ``transactions``, in order, the error codes in a response; omitted partitions succeeded.

    An error of the whole response is that of all partitions, CLUSTER_AUTHORIZATION_FAILED as INVALID_TXN_STATE.
    """
    if answer.error_code:
        code = ErrorCode(answer.error_code)
        hidden = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # not meaningful to a producer
        for transaction in transactions:
            yield _same_error_for_all(transaction, ErrorCode.INVALID_TXN_STATE if hidden else code)
        return
    found = {row.transactional_id: row.topic_results for row in answer.results_by_transaction}
    for transaction in transactions:
        yield {
            (topic.name, row.partition_index): ErrorCode(row.partition_error_code)
            for topic in found.get(transaction.transactional_id, ())
            for row in topic.results_by_partition
            if row.partition_error_code
        }


class _QueuedTransaction(NamedTuple):
    """Queued transaction to verify, and the pending request that receives the errors of its partitions."""

    transaction: add_partitions_to_txn.AddPartitionsToTxnTransaction
    pending_request: PendingBrokerRequest

    def fail_all(self, code: ErrorCode) -> None:
        self.pending_request.deliver(_same_error_for_all(self.transaction, code))


class _CoordinatorQueue:
    """Queue of transactions to verify with the coordinator on another broker.

    If no request is in flight, the calling task sends the queued transactions, oldest first.
    """

    def __init__(self, connections: BrokerConnections, broker: int) -> None:
        self._connections = connections
        self._broker = broker
        self._queue: dict[str, _QueuedTransaction] = {}
        self._sending: trio.Event | None = None

    async def verify(self, transaction: add_partitions_to_txn.AddPartitionsToTxnTransaction) -> ErrorsByPartition:
        """Enqueue a transaction, wait for its result, and return the error codes of its rejected partitions.

        All have NETWORK_EXCEPTION if there is no valid response; or it, or INVALID_PRODUCER_EPOCH, if another request
        with the transactional id replaces this one (`_enqueue`). None has an error if the broker is too old (`_call`).
        """
        mine = _QueuedTransaction(transaction, PendingBrokerRequest())
        self._enqueue(mine)
        while mine.pending_request.answer is None:
            if self._sending is not None:
                await self._sending.wait()
            else:
                await self._send()
        codes: ErrorsByPartition = mine.pending_request.answer
        return codes

    def _enqueue(self, mine: _QueuedTransaction) -> None:
        """Enqueue a transaction; it replaces an older entry of its transactional id, unless that has a newer epoch.

        The older request was abandoned by its producer (NETWORK_EXCEPTION) or is fenced (INVALID_PRODUCER_EPOCH).
        """
        known = self._queue.get(mine.transaction.transactional_id)
        if known is not None:
            epoch, older = mine.transaction.producer_epoch, known.transaction.producer_epoch
            if older > epoch:
                mine.fail_all(ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            known.fail_all(ErrorCode.NETWORK_EXCEPTION if older == epoch else ErrorCode.INVALID_PRODUCER_EPOCH)
        self._queue[mine.transaction.transactional_id] = mine

    async def _send(self) -> None:
        self._sending = done = trio.Event()
        queued = self._next()
        transactions = [one.transaction for one in queued]
        try:
            request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions)
            answer = await self._connections.exchange(self._broker, lambda channel: self._call(channel, request))
            results = ({} for _ in queued) if answer is None else _errors_by_transaction(answer, transactions)
            for one, codes in zip(queued, results, strict=True):
                one.pending_request.deliver(codes)
        except (OSError, WireError) as error:
            logger.warning("AddPartitionsToTxn request to broker %d failed, retrying: %s", self._broker, error)
        finally:
            self._sending = None
            for one in queued:
                if one.pending_request.answer is None:
                    one.fail_all(ErrorCode.NETWORK_EXCEPTION)
            done.set()

    def _next(self) -> list[_QueuedTransaction]:
        """Remove and return the transactions for the next request."""
        queued: list[_QueuedTransaction] = []
        count = 0
        for one in self._queue.values():
            if count >= MAX_PARTITIONS_PER_REQUEST:
                break
            queued.append(one)
            count += sum(len(topic.partitions) for topic in one.transaction.topics)
        for one in queued:
            del self._queue[one.transaction.transactional_id]
        return queued

    async def _call(
        self, channel: Channel, request: add_partitions_to_txn.AddPartitionsToTxnRequest
    ) -> add_partitions_to_txn.AddPartitionsToTxnResponse | None:
        """Return the response; None if the broker is too old, in which case verification is skipped, as in Kafka.

        Raises:
            OSError: no connection; WireError: invalid response.
        """
        if channel.versions.get(ApiKey.ADD_PARTITIONS_TO_TXN, (0, -1))[1] < _MIN_BATCHED_VERSION:
            logger.warning(
                "Transaction verification failed: broker %d does not support AddPartitionsToTxn version 4", self._broker
            )
            return None
        answer: add_partitions_to_txn.AddPartitionsToTxnResponse = await channel.call(request)
        return answer
