"""Clients that copy records in transactions and commit their offsets with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import add_offsets_to_txn, offset_fetch, txn_offset_commit
from sim.checkers.history import HistoryPartition, OperationOutcome
from sim.workload.clients import ClusterService, RetriableError
from sim.workload.isolation_reader import fetch_isolated
from sim.workload.transactional_clients import (
    GROUP_KEY_TYPE,
    SOURCE,
    TransactionalClient,
    raise_transaction_error,
)

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

COPY_GROUP = "copy"
TARGET = ("y", 0)
MAX_COPIED_RECORDS = 5
REPLACED_SHARE = 0.03
"""Share of a copier's reads, also without records, after which another process takes over its transactional id."""

TaskStarter = Callable[[Callable[[], Awaitable[None]]], None]


class TransactionalCopier(TransactionalClient):
    """Copier of one partition, a few records per transaction, with committed offsets.

    Another process may take over its transactional id, and this one continues until it is fenced.
    """

    def __init__(
        self,
        simulation: Simulation,
        number: int,
        service: ClusterService,
        version: int,
        start: TaskStarter | None = None,
        run_number: int = 0,
    ) -> None:
        """Create the copier of partition ``number``.

        Args:
            simulation: The run.
            number: Partition of the source topic.
            service: The cluster.
            version: Version of the transaction protocol, 1 or 2.
            start: Starts the task of a copier that takes over; None: no takeover.
            run_number: Number of takeovers before this copier.
        """
        super().__init__(simulation, f"copier-{number}.{run_number}", f"copier-{number}", service, version)
        self._number, self._incarnation = number, run_number
        self._start = start
        self._place: HistoryPartition = (SOURCE, number)
        self._replaced = False

    async def run(self) -> None:
        """Copy records until the simulation is draining, or until it is fenced after a takeover."""
        while not self.simulation.draining:
            if self.producer_id < 0:
                if self._replaced:
                    break
                await self.init()
                position = await self.retry_until_done(self.position)
            try:
                seen = await fetch_isolated(self, self._place, position, 100, committed=True)
            except RetriableError:
                self.invalidate_leaders()
                continue
            if seen.records:
                position = await self._copy(position, seen.records[:MAX_COPIED_RECORDS])
            else:
                position = max(position, seen.next_offset)
            await self.sleep(self.simulation.rng.random() * 0.3)
            if self._start is not None and not self._replaced and self.simulation.rng.random() < REPLACED_SHARE:
                self._replaced = True
                heir = TransactionalCopier(
                    self.simulation, self._number, self.service, self._version, self._start, self._incarnation + 1
                )
                heir._lost_init_s = self._lost_init_s  # a late InitProducerId of this client may fence it
                self._start(heir.run)
        self.close_connections()

    def _may_have_ended(self) -> bool:
        """Return True also after a takeover, which ends the transaction."""
        return self._replaced or super()._may_have_ended()

    async def _copy(self, position: int, records: list[tuple[int, int | None]]) -> int:
        """Copy records in one transaction, with their end as committed offset; return the next offset to copy.

        It is ``position`` unless the transaction was certainly committed. A pending offset that is visible too early
        is reported as ``undecided-read``.
        """
        values = [value for _, value in records if value is not None]
        end = records[-1][0] + 1

        async def body() -> None:
            await self.write(TARGET, values)
            await self._positions(end)
            with suppress(RetriableError):
                code, stored = await self._row()
                if not code and not self._may_have_ended():
                    problem = f"{self.name} epoch {self.epoch} reads committed offset {stored} while {end} is undecided"
                    self.simulation.ledger.report_violation("undecided-read", problem)

        outcome = await self.transact(body, commit=self.simulation.rng.random() < 0.9, requested=lambda: None)
        self.simulation.trace_event(f"{self.name} epoch {self.epoch} {outcome.value} {values}")
        if outcome is OperationOutcome.INFO:
            self.producer_id = -1
        return end if outcome is OperationOutcome.OK else position

    async def _positions(self, offset: int) -> None:
        """Commit ``offset`` for the group in the transaction, retried until it succeeds; then it is pending.

        Raises:
            ProducerFenced: a code of `FENCED_ERRORS`; TransactionBroken: a code of `ABORTABLE_ERRORS`.
        """
        added = self._version >= 2

        async def once() -> None:
            nonlocal added
            if not added:
                answer = await self._coordinator_response(
                    add_offsets_to_txn.AddOffsetsToTxnRequest(self._id, self.producer_id, self.epoch, COPY_GROUP), 3
                )
                raise_transaction_error(answer.error_code, "add offsets")
                added = True
            part = txn_offset_commit.TxnOffsetCommitRequestPartition(
                self._place[1], offset, self.leader_epoch(*self._place)
            )
            topic = txn_offset_commit.TxnOffsetCommitRequestTopic(self._place[0], [part])
            request = txn_offset_commit.TxnOffsetCommitRequest(
                self._id, COPY_GROUP, self.producer_id, self.epoch, topics=[topic]
            )
            answer = await self._coordinator_response(
                request, 5 if self._version >= 2 else 3, GROUP_KEY_TYPE, COPY_GROUP
            )
            raise_transaction_error(answer.topics[0].partitions[0].error_code, "positions")

        await self.retry_until_done(once)

    async def position(self) -> int:
        """Return the committed offset of the copied partition; 0 without one.

        Raises:
            RetriableError: no response, or a pending transaction.
        """
        code, stored = await self._row()
        if code:
            raise RetriableError(ErrorCode(code).name)
        return max(stored, 0)

    async def _row(self) -> tuple[int, int]:
        """Return error code and committed offset of an OffsetFetch with ``require_stable``; -1 without an offset.

        Raises:
            RetriableError: no response.
        """
        topic = offset_fetch.OffsetFetchRequestTopic(SOURCE, [self._place[1]])
        request = offset_fetch.OffsetFetchRequest(COPY_GROUP, [topic], require_stable=True)
        answer = await self._coordinator_response(request, 7, GROUP_KEY_TYPE, COPY_GROUP)
        rows = answer.topics[0].partitions if answer.topics else []
        code = answer.error_code or (rows[0].error_code if rows else 0)
        if rows:
            self.require_leader_epoch(*self._place, rows[0].committed_leader_epoch)
        return code, rows[0].committed_offset if rows else -1
