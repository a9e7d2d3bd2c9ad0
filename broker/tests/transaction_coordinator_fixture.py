"""Transaction coordinator that leads `__transaction_state` in virtual time, partition leaders, and handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import trio
import trio.testing

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.coordinator.timers import Timers
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.dispatch.dispatcher import load_handler
from ottla.broker.metadata.producer_id_manager import ProducerIdUnavailable
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.tests.coordinator_runtime_fixture import FailingReplica
from ottla.broker.tests.handler_fixture import HandlerFixture, run_virtual, start
from ottla.broker.transactions import events
from ottla.broker.transactions.coordinator import TOPIC, TransactionCoordinator, state_machine_of
from ottla.broker.transactions.marker_sender import MarkerSenderDependencies
from ottla.broker.transactions.records import decode
from ottla.broker.transactions.state_machine import TransactionStateMachine
from ottla.broker.transactions.transaction_metadata import TransactionMetadata, TransactionState
from ottla.log.log_config import LogConfig
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.record_batch.records import iterate_records

E = ErrorCode
FIRST_ID = 7_000
A = (FIRST_ID, 0)
"""First producer, with its first epoch."""


class ProducerIdSequence:
    """Consecutive producer ids; ``remaining`` of them, where it is set."""

    def __init__(self) -> None:
        self.issued = 0
        self.remaining: int | None = None

    def next_id(self) -> int:
        if self.remaining == 0:
            raise ProducerIdUnavailable
        if self.remaining is not None:
            self.remaining -= 1
        self.issued += 1
        return FIRST_ID + self.issued - 1

    async def wait_available(self) -> None:
        if self.remaining == 0:
            raise ProducerIdUnavailable


class TransactionCoordinatorNode:
    """Coordinator of all of `__transaction_state`; with ``followed``, a test commits its records."""

    def __init__(
        self, *, followed: bool = False, led: bool = True, level: int = 2, min_isr: int = 1, **settings: str
    ) -> None:
        self.fixture = HandlerFixture(**settings)
        isr, log = (1, 2) if followed else (1,), LogConfig(min_insync_replicas=min_isr)
        self.replica: HostedPartition = self.fixture.hosted.host(TOPIC, isr=isr, replicas=isr, settings=log)
        self.fixture.hosted.host("t", partitions=3)
        self.level = level
        self.partitions = 1
        """How many the topic has, as far as anybody says: one is led."""
        env: Any = self.fixture.env
        self.timers = Timers(env)
        self.ids = ProducerIdSequence()
        self.failures: list[Any] = []
        self.marked: list[WriteTxnMarkersRequest] = []
        """What leaders were told."""
        self.codes: dict[tuple[str, int], list[ErrorCode]] = {}
        """What they say, one after the other; NONE when that is over."""
        self.silent = False
        self.takes_s = 0.0
        self.dependencies = MarkerSenderDependencies(
            1, lambda: self.fixture.hosted.image, lambda broker: None, self._here, 30.0
        )
        self.transactions = self.coordinator(self.dependencies)
        self.fixture.services.transaction_coordinator = self.transactions
        self.fixture.services.producer_ids = self.ids
        if led:
            self.transactions.on_election(self.replica)

    def coordinator(self, dependencies: MarkerSenderDependencies) -> TransactionCoordinator:
        """Return another coordinator on such a node."""
        env: Any = self.fixture.env
        return TransactionCoordinator(
            env,
            self.fixture.config,
            self.timers,
            lambda *expected: self.failures.append(expected),
            self._image,
            lambda: self.level,
            self.ids.next_id,
            dependencies,
        )

    def _image(self) -> Any:
        """Return the image of the node, with ``partitions`` partitions of `__transaction_state`."""
        image = self.fixture.hosted.image
        topic = image.topics[TOPIC]
        counted = replace(topic, partitions=dict.fromkeys(range(self.partitions), topic.partitions[0]))
        return replace(image, topics={**image.topics, TOPIC: counted})

    def again(self) -> None:
        """Resign and elect the partition again, and load its log."""
        self.transactions.on_resignation(self.replica)
        self.transactions.on_election(self.replica)

    async def _here(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self.marked.append(request)
        if self.silent:
            raise OSError("no answer")
        await trio.sleep(self.takes_s)
        rows = []
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                parts = [
                    WritableTxnMarkerPartitionResult(number, self._next_code(topic.name, number))
                    for number in topic.partition_indexes
                ]
                topics.append(WritableTxnMarkerTopicResult(topic.name, parts))
            rows.append(WritableTxnMarkerResult(marker.producer_id, topics))
        return WriteTxnMarkersResponse(rows)

    def _next_code(self, topic: str, number: int) -> ErrorCode:
        codes = self.codes.get((topic, number))
        return codes.pop(0) if codes else E.NONE

    # ------------------------------------------------------------------ requests

    @property
    def machine(self) -> TransactionStateMachine:
        return state_machine_of(self.transactions.shard_for("any"))

    def seen(self, transactional_id: str = "x") -> TransactionMetadata:
        found = self.machine.committed_transaction(transactional_id)
        assert found is not None
        return found

    def init(
        self, transactional_id: str = "x", expected: tuple[int, int] | None = None, timeout: int = 9_000
    ) -> PendingBrokerRequest:
        return self.transactions.submit(
            transactional_id, lambda own: events.InitProducerId(own, transactional_id, timeout, expected)
        )

    def add(
        self, client: tuple[int, int], *numbers: int, transactional_id: str = "x", version: int = 2
    ) -> PendingBrokerRequest:
        parts = frozenset(("t", number) for number in numbers)
        return self.transactions.submit(
            transactional_id, lambda own: events.AddPartitions(own, transactional_id, *client, parts, version)
        )

    def verify(self, client: tuple[int, int], *numbers: int, transactional_id: str = "x") -> PendingBrokerRequest:
        parts = frozenset(("t", number) for number in numbers)
        return self.transactions.submit(
            transactional_id, lambda own: events.VerifyPartitions(own, transactional_id, *client, parts)
        )

    def end(
        self, client: tuple[int, int], *, commits: bool, bumps: bool = True, transactional_id: str = "x"
    ) -> PendingBrokerRequest:
        return self.transactions.submit(
            transactional_id, lambda own: events.EndTransaction(own, transactional_id, *client, commits, bumps)
        )

    def api(self, key: ApiKey, version: int, request: Any) -> Any:
        """Return the response of a handler, or its awaitable."""
        return start(
            load_handler(BROKER_APIS[key].endpoint(at_controller=False).handler_module)(
                self.fixture.context(key, version), request
            )
        )

    def commit_log(self) -> None:
        self.replica.log.set_high_watermark(self.replica.log.log_end_offset)
        self.transactions.on_high_watermark_updated(self.replica)


async def wait_until_idle() -> None:
    """Run until no task can continue."""
    await trio.testing.wait_all_tasks_blocked()


def run(node: TransactionCoordinatorNode, scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario beside the coordinator's own tasks."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.transactions.run)
            nursery.start_soon(node.timers.run)
            await wait_until_idle()
            await scenario()
            nursery.cancel_scope.cancel()

    run_virtual(main)


def response_of(pending: PendingBrokerRequest) -> Any:
    """Return a response, or the code of a refusal."""
    return pending.answer.code if isinstance(pending.answer, ProtocolError) else pending.answer


def states(node: TransactionCoordinatorNode) -> list[tuple[str, TransactionState | None, int]]:
    """Return the records of the log: id, state (None for a tombstone), epoch."""
    out = []
    for header, raw in node.replica.log.segments.batches(0):
        for record in iterate_records(raw, header):
            found = decode(record.key, record.value)
            assert found is not None
            txn = found.transaction
            out.append((found.transactional_id, *((txn.state, txn.producer_epoch) if txn else (None, -1))))
    return out


def fail_appends(node: TransactionCoordinatorNode, error: ErrorCode) -> Callable[[], None]:
    """Let the log refuse appends; return the function that ends this."""
    shard = node.transactions.shard_for("x")
    shard.replica = FailingReplica(node.replica, ProtocolError(error))  # type: ignore[assignment]

    def well() -> None:
        shard.replica = node.replica

    return well


def start_transaction(node: TransactionCoordinatorNode, *numbers: int, version: int = 2) -> None:
    """Start a transaction, and commit its records."""
    node.init()
    node.commit_log()
    node.add(A, *numbers, version=version)
    node.commit_log()
