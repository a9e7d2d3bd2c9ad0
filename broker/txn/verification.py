"""A leader asks a transaction's coordinator about its partitions before they are first written to.

The coordinator is in this process, or asked by AddPartitionsToTxn v4 and later: one request at a time to each broker,
with what came meanwhile, as far as there is room. Of one transactional id there is one question in it at most: a
producer that asks again has given the first up.

Source: ``ReplicaManager.maybeSendPartitionsToTransactionCoordinator``, ``AddPartitionsToTxnManager.java``
(apache/kafka 4.3.1).

From KIP-890.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.broker.config import NodeConfig
from ottla.broker.coordinator.ticket import Ticket
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.replica.replicas import ReplicaManager
from ottla.log.verification import VERIFICATION_DISABLED, TxnAppendContext
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import add_partitions_to_txn as m
from ottla.world.env import Env

if TYPE_CHECKING:
    from ottla.peers.client import Channel, Standing

logger = logging.getLogger("ottla.txn")
TOPIC = "__transaction_state"
TopicPartition = tuple[str, int]
Codes = dict[TopicPartition, ErrorCode]
_OF_BROKERS = 4
"""The first version brokers ask in."""
PARTITIONS_AT_ONCE = 1_000
"""A request with so many takes no more transactions: some 10 ms for the answer to be read."""


class Operation(Enum):
    """What is asked: by the version of the producer's request."""

    VERIFY = "verify"
    """Whether the partition was added; an old producer is told INVALID_TXN_STATE where it was not."""
    VERIFY_ABORTABLE = "verify, abortable"
    ADD = "add"
    """Add it: each transaction has an epoch of its own."""


class Wanted(NamedTuple):
    """A question: whose transaction, and the first sequence of what is written to each partition (-1 for none)."""

    transactional_id: str
    producer_id: int
    epoch: int
    sequences: Mapping[TopicPartition, int]
    operation: Operation


class Verified(NamedTuple):
    """An answer: what is wrong with some partitions, and the proof for appending to others."""

    refused: Codes
    txns: dict[TopicPartition, TxnAppendContext]


class Ground(NamedTuple):
    """What a verifier has of its node."""

    env: Env
    config: NodeConfig
    metadata: MetadataCache
    replicas: ReplicaManager
    partition_for: Callable[[str], int]
    """The partition of `__transaction_state` that holds a transactional id."""
    add: Callable[[m.AddPartitionsToTxnRequest, int], Awaitable[m.AddPartitionsToTxnResponse]]
    """Asks the coordinator in this process, in a version of the request."""


class Verifier:
    """Asks the coordinators of transactions for the leaders on this node."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._lines: dict[int, _Line] = {}
        config = ground.config
        self._is_enabled = config.flag("transaction.partition.verification.enable")
        longest = config.number("add.partitions.to.txn.retry.backoff.max.ms")
        self._patience_ms = min(longest, config.number("request.timeout.ms"))
        self._pause_s = config.number("add.partitions.to.txn.retry.backoff.ms") / 1000

    async def verify(self, wanted: Wanted) -> Verified:
        """`once`, and again for a while where the transaction before is still being ended and this one adds."""
        env = self._ground.env
        begun_ms = env.monotonic_ms()
        while True:
            answer = await self.once(wanted)
            again = wanted.operation is Operation.ADD and ErrorCode.CONCURRENT_TRANSACTIONS in answer.refused.values()
            if not again or env.monotonic_ms() - begun_ms >= self._patience_ms:
                return answer
            await env.sleep(self._pause_s)

    async def once(self, wanted: Wanted) -> Verified:
        """Make guards where the transaction is not open yet, and ask about those partitions."""
        refused: Codes = {}
        txns: dict[TopicPartition, TxnAppendContext] = {}
        adds = wanted.operation is Operation.ADD
        if not adds and not self._is_enabled:
            return Verified(refused, dict.fromkeys(wanted.sequences, TxnAppendContext(VERIFICATION_DISABLED)))
        now_ms = self._ground.env.now_ms()
        for at, sequence in wanted.sequences.items():
            try:
                log = self._ground.replicas.leader(*at).log
                guard = log.maybe_start_transaction_verification(
                    wanted.producer_id, wanted.epoch, sequence, now_ms, bumps=adds
                )
            except ProtocolError as error:
                refused[at] = error.code
            else:
                if guard is not None:
                    txns[at] = TxnAppendContext(guard)
        if txns:
            refused |= await self._ask(wanted, list(txns))
        if not self._is_enabled:
            txns = dict.fromkeys(wanted.sequences, TxnAppendContext(VERIFICATION_DISABLED))
        return Verified(refused, txns)

    async def _ask(self, wanted: Wanted, partitions: list[TopicPartition]) -> Codes:
        """Ask the coordinator; gives what is wrong with which partitions."""
        topics: dict[str, m.AddPartitionsToTxnTopic] = {}
        for topic, number in partitions:
            topics.setdefault(topic, m.AddPartitionsToTxnTopic(topic)).partitions.append(number)
        transaction = m.AddPartitionsToTxnTransaction(
            wanted.transactional_id,
            wanted.producer_id,
            wanted.epoch,
            wanted.operation is not Operation.ADD,
            list(topics.values()),
        )
        leader = self._coordinator(wanted.transactional_id)
        if leader is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if leader == self._ground.config.node_id:
            codes = await self._ask_here(transaction)
        else:
            line = self._lines.get(leader)
            if line is None:
                line = self._lines[leader] = _Line(self._ground, leader)
            codes = await line.ask(transaction)
        return {at: _told(code, wanted.operation) for at, code in codes.items()}

    async def _ask_here(self, transaction: m.AddPartitionsToTxnTransaction) -> Codes:
        answer = await self._ground.add(m.AddPartitionsToTxnRequest([transaction]), 5)
        return next(_codes(answer, [transaction]))

    def _coordinator(self, transactional_id: str) -> int | None:
        """The broker that leads a transactional id's partition; None where nobody does, or it is gone."""
        image = self._ground.metadata.image
        topic = image.topics.get(TOPIC)
        if topic is None:
            return None
        number = self._ground.partition_for(transactional_id)
        part = topic.partitions.get(number)
        known = None if part is None else image.brokers.get(part.leader)
        return None if part is None or known is None or known.fenced else part.leader

    def close(self) -> None:
        """Hang up everywhere."""
        for line in self._lines.values():
            line.close()


def _told(code: ErrorCode, operation: Operation) -> ErrorCode:
    """A coordinator's word, as a producer of that age understands it."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and operation is Operation.VERIFY:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _all(transaction: m.AddPartitionsToTxnTransaction, code: ErrorCode) -> Codes:
    return {(topic.name, number): code for topic in transaction.topics for number in topic.partitions}


def _codes(
    answer: m.AddPartitionsToTxnResponse, transactions: Iterable[m.AddPartitionsToTxnTransaction]
) -> Iterator[Codes]:
    """What an answer says is wrong with each transaction's partitions; what it does not name is right."""
    if answer.error_code:
        code = ErrorCode(answer.error_code)
        hidden = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # nothing a producer could make sense of
        for transaction in transactions:
            yield _all(transaction, ErrorCode.INVALID_TXN_STATE if hidden else code)
        return
    found = {row.transactional_id: row.topic_results for row in answer.results_by_transaction}
    for transaction in transactions:
        yield {
            (topic.name, row.partition_index): ErrorCode(row.partition_error_code)
            for topic in found.get(transaction.transactional_id, ())
            for row in topic.results_by_partition
            if row.partition_error_code
        }


class _Asked(NamedTuple):
    """A question in the queue."""

    transaction: m.AddPartitionsToTxnTransaction
    ticket: Ticket

    def refuse(self, code: ErrorCode) -> None:
        self.ticket.give(_all(self.transaction, code))


class _Line:
    """The way to one coordinator elsewhere. Whoever finds it free sends what waits, the oldest first."""

    def __init__(self, ground: Ground, broker: int) -> None:
        self._ground = ground
        self._broker = broker
        self._queue: dict[str, _Asked] = {}
        self._sending: trio.Event | None = None
        self._standing: Standing | None = None

    async def ask(self, transaction: m.AddPartitionsToTxnTransaction) -> Codes:
        """What is wrong with a transaction's partitions."""
        mine = _Asked(transaction, Ticket())
        self._queue_up(mine)
        while mine.ticket.answer is None:
            if self._sending is not None:
                await self._sending.wait()
            else:
                await self._send()
        codes: Codes = mine.ticket.answer
        return codes

    def _queue_up(self, mine: _Asked) -> None:
        """Of one id the newest question counts: one before it was given up, or is of a producer that is fenced."""
        known = self._queue.get(mine.transaction.transactional_id)
        if known is not None:
            epoch, older = mine.transaction.producer_epoch, known.transaction.producer_epoch
            if older > epoch:
                mine.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            known.refuse(ErrorCode.NETWORK_EXCEPTION if older == epoch else ErrorCode.INVALID_PRODUCER_EPOCH)
        self._queue[mine.transaction.transactional_id] = mine

    async def _send(self) -> None:
        from ottla.broker.coordinator.patience import while_there

        self._sending = done = trio.Event()
        asked = self._next()
        transactions = [one.transaction for one in asked]
        try:
            request = m.AddPartitionsToTxnRequest(transactions)
            answer = await while_there(self._ground.env, self._is_there, lambda: self._call(request))
            told = ({} for _ in asked) if answer is None else _codes(answer, transactions)
            for one, codes in zip(asked, told, strict=True):
                one.ticket.give(codes)
        except (OSError, WireError) as error:
            logger.warning("broker %d did not say whose transactions these are: %s", self._broker, error)
        finally:
            self._sending = None
            for one in asked:
                if one.ticket.answer is None:
                    one.refuse(ErrorCode.NETWORK_EXCEPTION)
            done.set()

    def _next(self) -> list[_Asked]:
        """Take what goes into one request out of the queue."""
        asked: list[_Asked] = []
        count = 0
        for one in self._queue.values():
            if count >= PARTITIONS_AT_ONCE:
                break
            asked.append(one)
            count += sum(len(topic.partitions) for topic in one.transaction.topics)
        for one in asked:
            del self._queue[one.transaction.transactional_id]
        return asked

    async def _call(self, request: m.AddPartitionsToTxnRequest) -> m.AddPartitionsToTxnResponse | None:
        """Its answer; None where it is too old to be asked: nothing is confirmed then.

        Raises:
            OSError: it is not there; WireError: its answer does not parse.
        """
        channel = await self._channel()
        if channel.versions.get(ApiKey.ADD_PARTITIONS_TO_TXN, (0, -1))[1] < _OF_BROKERS:
            logger.warning("broker %d cannot be asked about transactions: nothing is confirmed", self._broker)
            return None
        answer: m.AddPartitionsToTxnResponse = await channel.call(request)
        return answer

    def _is_there(self) -> bool:
        known = self._ground.metadata.image.brokers.get(self._broker)
        return known is not None and not known.fenced

    async def _channel(self) -> Channel:
        from ottla.broker.auth.ways import inter_broker_access
        from ottla.peers.client import Standing

        ground, config = self._ground, self._ground.config
        if self._standing is None:
            timeout_s = config.number("request.timeout.ms") / 1000
            client_id, access = f"broker-{config.node_id}-transactions", inter_broker_access(config)
            self._standing = Standing(ground.env, client_id, timeout_s, access=access)
        address = ground.metadata.image.broker_address(self._broker, config.inter_broker_listener)
        return await self._standing.to(address, f"broker {self._broker}")

    def close(self) -> None:
        """Hang up."""
        if self._standing is not None:
            self._standing.close()
