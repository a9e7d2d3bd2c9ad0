"""Transactional producers of the workload, and the base class of clients with a transactional id.

A client uses version 1 of the protocol, or version 2 (KIP-890). It retries every request without a response on a new
connection, and the old request may still arrive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import add_partitions_to_txn, end_txn, find_coordinator, init_producer_id, produce
from ottla.wire.record_batch import records
from sim.checkers.history import HistoryPartition, OperationOutcome, SendStep
from sim.workload.clients import Address, ClusterService, RetriableError, SimClient, UnknownOutcome
from sim.workload.coordinator_lookup import is_coordinator_agreed
from sim.workload.isolation_reader import TRANSACTIONAL_BIT

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

TRANSACTION_MS = 8_000
RETRY_TIMEOUT_S = 5.0
"""Time in seconds after which a client ends a transaction to which it cannot write."""
SOURCE = "x"
COMMITTED_SHARE = 0.65
"""Share of transactions that a producer commits; it aborts the others."""
ABANDONED_SHARE = 0.03
"""Share of transactions that the producer leaves open."""
GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE = 0, 1
MAX_REQUEST_DELAY_S = 30.0
"""Maximum delay of a request in seconds."""
FENCED_ERRORS = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
ABORTABLE_ERRORS = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


class ProducerFenced(Exception):
    """Raised if the producer was fenced by another one, or by the transaction timeout."""


class TransactionBroken(Exception):
    """Raised if the transaction can no longer be committed."""


def raise_transaction_error(code: int, operation: str) -> None:
    """Raise the error that a response code means for a transaction; return for 0.

    ``operation``: name of the request for the message.

    Raises:
        ProducerFenced: a code of `FENCED_ERRORS`.
        TransactionBroken: a code of `ABORTABLE_ERRORS`.
        RetriableError: any other code.
    """
    if code in FENCED_ERRORS:
        raise ProducerFenced(f"{operation}: {ErrorCode(code).name}")
    if code in ABORTABLE_ERRORS:
        raise TransactionBroken(f"{operation}: {ErrorCode(code).name}")
    if code:
        raise RetriableError(f"{operation}: {ErrorCode(code).name}")


class TransactionalClient(SimClient):
    """Client with a transactional id that executes one transaction after the other."""

    def __init__(
        self, simulation: Simulation, name: str, transactional_id: str, service: ClusterService, version: int
    ) -> None:
        super().__init__(simulation, name, service)
        self._id = transactional_id
        self._version = version
        self.producer_id, self.epoch = -1, -1
        self._sequences: dict[HistoryPartition, int] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._added: dict[HistoryPartition, None] = {}
        """Partitions that the coordinator has added to the current transaction."""
        self._wrote = False
        """True if a leader has appended a record of the current transaction."""
        self._began_s = 0.0
        self._lost_init_s = -MAX_REQUEST_DELAY_S
        """Time of the last InitProducerId without a response."""

    # ------------------------------------------------------------------ coordinator

    async def _coordinator(self, kind: int, key: str) -> Address:
        known = self._coordinators.get((kind, key))
        if known is None:
            answer = await self.call(find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
            found = answer.coordinators[0]
            if found.error_code:
                raise RetriableError(ErrorCode(found.error_code).name)
            known = self._coordinators[kind, key] = (found.host, found.port)
        return known

    def invalidate_leaders(self) -> None:
        """Forget the leaders and the coordinators."""
        super().invalidate_leaders()
        self._coordinators.clear()

    async def _coordinator_response(
        self, request: Any, version: int, kind: int = TRANSACTION_KEY_TYPE, key: str = ""
    ) -> Any:
        return await self.call(request, version, await self._coordinator(kind, key or self._id))

    # ------------------------------------------------------------------ transaction

    async def init(self) -> None:
        """Get producer id and epoch for the transactional id; retry until the request succeeds.

        An older producer of the id is fenced, and its open transaction aborted.
        """

        async def once() -> None:
            try:
                answer = await self._coordinator_response(
                    init_producer_id.InitProducerIdRequest(self._id, TRANSACTION_MS), 4
                )
            except UnknownOutcome:
                self._lost_init_s = self.simulation.now_s()
                raise
            if answer.error_code:
                raise RetriableError(ErrorCode(answer.error_code).name)
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

        await self.retry_until_done(once)
        self._sequences = {}
        self.simulation.trace_event(f"{self.name} has producer {self.producer_id} epoch {self.epoch}")

    async def write(self, place: HistoryPartition, values: list[int]) -> int:
        """Write one batch of the transaction, retried until acknowledged; return the offset of its first record.

        In version 1 of the protocol the partition is added to the transaction before. After an error the batch may
        have been appended. ``values``: one for each record.

        Raises:
            ProducerFenced: a code of `FENCED_ERRORS`; TransactionBroken: a code of `ABORTABLE_ERRORS`.
        """

        async def once() -> int:
            if self._version < 2 and place not in self._added:
                await self._add(place)
            return await self._produce(place, values)

        offset: int = await self.retry_until_done(once)
        self._sequences[place] = self._sequences.get(place, 0) + len(values)
        self._wrote = True
        return offset

    async def _add(self, place: HistoryPartition) -> None:
        topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(place[0], [place[1]])]
        answer = await self._coordinator_response(
            add_partitions_to_txn.AddPartitionsToTxnRequest([], self._id, self.producer_id, self.epoch, topics), 3
        )
        raise_transaction_error(
            answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, "add"
        )
        self._added[place] = None

    async def _produce(self, place: HistoryPartition, values: list[int]) -> int:
        topic, partition = place
        now = self.process.env.now_ms()
        raw = records.build_batch(
            [records.NewRecord(self.name.encode(), self.service.pack(place, v), now) for v in values],
            attributes=TRANSACTIONAL_BIT,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences.get(place, 0),
        )
        data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(partition, raw)])
        request = produce.ProduceRequest(self._id, -1, 5000, [data])
        answer = await self.call(request, 12 if self._version >= 2 else 11, await self.leader(topic, partition))
        row = answer.responses[0].partition_responses[0]
        raise_transaction_error(row.error_code, "produce")
        return int(row.base_offset)

    async def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction; retry until there is a final response.

        INVALID_TXN_STATE for a transaction that has records and cannot have ended is reported as ``txn-refused``.

        Raises:
            ProducerFenced: a code of `FENCED_ERRORS`; TransactionBroken: a code of `ABORTABLE_ERRORS`.
        """

        async def once() -> None:
            request = end_txn.EndTxnRequest(self._id, self.producer_id, self.epoch, commit)
            answer = await self._coordinator_response(request, 5 if self._version >= 2 else 3)
            refused = answer.error_code == ErrorCode.INVALID_TXN_STATE and self._wrote and not self._may_have_ended()
            if refused and await is_coordinator_agreed(
                self, self._id, self._coordinators.get((TRANSACTION_KEY_TYPE, self._id))
            ):
                text = f"{self.name}: epoch {self.epoch}, commit {commit}"
                self.simulation.ledger.report_violation("txn-refused", text)
            raise_transaction_error(answer.error_code, "end")
            if self._version >= 2:
                self.producer_id, self.epoch, self._sequences = answer.producer_id, answer.producer_epoch, {}

        await self.retry_until_done(once)

    def _may_have_ended(self) -> bool:
        """Return True if the coordinator may have ended the transaction.

        It does so after the transaction timeout by its own clock, or when a late InitProducerId of this producer
        arrives.
        """
        if self.simulation.now_s() < self._lost_init_s + MAX_REQUEST_DELAY_S:
            return True
        clocks_are_right = all(host.clock.offset_ms == 0 for host in self.simulation.hosts.values())
        return not clocks_are_right or self.simulation.now_s() - self._began_s > TRANSACTION_MS / 1000 * 0.9

    async def transact(
        self, body: Callable[[], Awaitable[None]], *, commit: bool, requested: Callable[[], None]
    ) -> OperationOutcome:
        """Run one transaction and return its outcome: OK if committed, FAIL if aborted, INFO if unknown.

        If ``body`` raises TransactionBroken, or takes longer than `RETRY_TIMEOUT_S`, the transaction is aborted. If it
        raises ProducerFenced, the outcome is FAIL without a further request. After all of these, and if the end is
        refused, `producer_id` is -1, and `init` must be called again.

        Args:
            body: Writes the records of the transaction.
            commit: False to abort in any case.
            requested: Called before a commit request is sent.
        """
        self._added, self._wrote, self._began_s = {}, False, self.simulation.now_s()
        done = False
        try:
            with self.process.env.timeout(RETRY_TIMEOUT_S):
                await body()
                done = True
        except ProducerFenced:
            self.producer_id = -1
            return OperationOutcome.FAIL
        except TransactionBroken:
            pass
        commit = commit and done
        if commit:
            requested()
        try:
            await self.end(commit=commit)
        except (ProducerFenced, TransactionBroken):
            self.producer_id = -1
            return OperationOutcome.INFO if commit else OperationOutcome.FAIL
        if not done:
            self.producer_id = -1
        return OperationOutcome.OK if commit else OperationOutcome.FAIL


class TxnProducer(TransactionalClient):
    """Producer that writes numbered records to several partitions in one transaction, and aborts some of them."""

    def __init__(self, simulation: Simulation, name: str, first: int, service: ClusterService, version: int) -> None:
        super().__init__(simulation, name, name, service, version)
        self._next = first
        self._ids = 0

    async def run(self) -> None:
        """Run random transactions until the simulation is draining."""
        while not self.simulation.draining:
            if self.producer_id < 0:
                await self.init()
            await self._produce_transaction()
            await self.sleep(self.simulation.rng.random() * 0.4)
        self.close_connections()

    async def _produce_transaction(self) -> None:
        rng, history, now_s = self.simulation.rng, self.simulation.history, self.simulation.now_s
        number = history.start(self.name, "txn", now_s=now_s())
        sent: list[SendStep] = []

        async def body() -> None:
            for _ in range(1 + int(rng.random() * 3)):
                place = (SOURCE, int(rng.random() * self.service.partitions))
                values = list(range(self._next, self._next + 1 + int(rng.random() * 3)))
                self._next += len(values)
                history.add_sends(number, [SendStep(place, v) for v in values])
                sent.extend(SendStep(place, v) for v in values)
                offset = await self.write(place, values)
                sent[-len(values) :] = [SendStep(place, v, offset + index) for index, v in enumerate(values)]
                await self.sleep(rng.random() * 0.4)

        if rng.random() < ABANDONED_SHARE:
            outcome = await self._abandon(body)
        else:
            commit = rng.random() < COMMITTED_SHARE
            outcome = await self.transact(body, commit=commit, requested=lambda: history.request_commit(number))
        self.simulation.trace_event(
            f"{self.name} epoch {self.epoch} {outcome.value} {[(x.place[1], x.value) for x in sent]}"
        )
        history.end(number, outcome, now_s(), sent)

    async def _abandon(self, body: Callable[[], Awaitable[None]]) -> OperationOutcome:
        """Write records of a transaction and leave it open; return FAIL, since the coordinator aborts it by timeout.

        The producer goes on with another transactional id, so that it does not fence the old one.
        """
        self._added, self._wrote = {}, False
        with suppress(ProducerFenced, TransactionBroken), self.process.env.timeout(RETRY_TIMEOUT_S):
            await body()
        self._ids += 1
        self._id, self.producer_id = f"{self.name}.{self._ids}", -1
        return OperationOutcome.FAIL
