"""Large transaction requests: cost proportional to their size, and other tasks run in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from ottla.broker.handlers.transactions import (
    describe_producers,
    describe_transactions,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.broker.handlers.transactions.batched_add_partitions import add_or_verify_partitions
from ottla.broker.handlers.transactions.marker_writer import _MarkerWrites as Marking
from ottla.broker.handlers.transactions.tests.test_txn_handlers import DenyingAuthorizer, response_of
from ottla.broker.tests.handler_fixture import HandlerFixture, resolve, start
from ottla.broker.tests.transaction_coordinator_fixture import (
    FIRST_ID,
    TransactionCoordinatorNode,
    run,
    start_transaction,
)
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.time_slice import SLICE_MS
from ottla.log.producers.producer_table import ProducerStateEntry, ProducerTable
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

MANY = 100
PRODUCER = (FIRST_ID, 0)


class CountingList(list[Any]):
    """List that counts its visited elements."""

    looked_at = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self.looked_at += 1
            yield item

    def __contains__(self, item: object) -> bool:
        self.looked_at += len(self)
        return super().__contains__(item)


def in_turns(fixture: HandlerFixture, module: Any, key: ApiKey, version: int, request: Any) -> Any:
    """Return the handler's result when each step uses up a time slice."""
    return start(module.handle(fixture.context(key, version), request), SLICE_MS)


def test_describe_producers_visits_producers_one_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = HandlerFixture()
    replica = fixture.hosted.host("t")
    table = replica.log.producers.producers
    for pid in range(MANY):
        table[pid] = ProducerStateEntry(0)
    looked_up: list[int] = []
    of_table = ProducerTable.__getitem__

    def get(self: ProducerTable, pid: int) -> ProducerStateEntry:
        looked_up.append(pid)
        return of_table(self, pid)

    monkeypatch.setattr(ProducerTable, "__getitem__", get)
    steps = describe_producers._active(fixture.context(ApiKey.DESCRIBE_PRODUCERS, 0), "t", 0)
    next(steps)
    assert len(looked_up) == 1
    del table[50]
    rows: list[Any] = []

    def rest() -> Iterator[None]:
        rows.extend((yield from steps)[:])

    assert len(list(rest())) == MANY - 1
    assert [row.producer_id for row in rows] == [pid for pid in range(MANY) if pid != 50], "one went meanwhile"


class ComparisonCountingName(str):
    """Topic name that records its comparisons."""

    __slots__ = ()
    compared: ClassVar[list[int]] = []

    def __eq__(self, other: object) -> bool:
        self.compared.append(1)
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


def test_write_txn_markers_of_many_topics_takes_a_step_per_topic() -> None:
    ComparisonCountingName.compared.clear()
    topics = [WritableTxnMarkerTopic(ComparisonCountingName(f"t{number}"), []) for number in range(MANY)]
    request = WriteTxnMarkersRequest([WritableTxnMarker(7, 0, True, topics, 1)])
    response = WriteTxnMarkersResponse()
    steps = list(Marking(HandlerFixture().services).append_all(request, response))
    assert len(steps) >= MANY
    assert len(response.markers[0].topics) == MANY
    assert len(ComparisonCountingName.compared) <= MANY


def test_write_txn_markers_without_permission_is_refused_in_steps() -> None:
    fixture = HandlerFixture()
    fixture.services.authorizer = DenyingAuthorizer(
        (AclOperation.ALTER, ResourceType.CLUSTER), (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    )
    topics = [WritableTxnMarkerTopic("t", list(range(MANY)))]
    request = WriteTxnMarkersRequest([WritableTxnMarker(7, 0, True, topics, 1)])
    answer = in_turns(fixture, write_txn_markers, ApiKey.WRITE_TXN_MARKERS, 2, request)
    assert not isinstance(answer, Message), "it must rest"

    async def scenario() -> None:
        rows = (await resolve(answer)).markers[0].topics[0].partitions
        assert len(rows) == MANY
        assert {row.error_code for row in rows} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}

    run(TransactionCoordinatorNode(), scenario)


def test_add_partitions_to_txn_visits_partitions_in_steps() -> None:
    node = TransactionCoordinatorNode()
    numbers = CountingList([0, 1] * MANY)
    txn = AddPartitionsToTxnTransaction("x", *PRODUCER, True, [AddPartitionsToTxnTopic("t", numbers)])
    seen, most = 0, 0
    for _ in add_or_verify_partitions(node.fixture.services, [txn], 4, lambda topic: ErrorCode.NONE):
        seen, most = numbers.looked_at, max(most, numbers.looked_at - seen)
    assert most <= 2


def test_list_transactions_filters_are_not_scanned_per_transaction() -> None:
    node = TransactionCoordinatorNode()
    for number in range(5):
        node.init(f"x{number}")
    producers, states = CountingList(range(FIRST_ID, FIRST_ID + MANY)), CountingList(["Empty"] * MANY)
    context = node.fixture.context(ApiKey.LIST_TRANSACTIONS, 2)
    answer: Any = start(list_transactions.handle(context, ListTransactionsRequest(states, producers)))
    assert len(answer.transaction_states) == 5
    assert producers.looked_at <= MANY
    assert states.looked_at <= 2 * MANY


def test_describe_transactions_id_named_twice_is_described_once() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0, 1)
    request = DescribeTransactionsRequest(["x", "nobody", "x", "nobody"])
    answer: Any = start(describe_transactions.handle(node.fixture.context(ApiKey.DESCRIBE_TRANSACTIONS, 0), request))
    assert [(row.transactional_id, row.error_code) for row in answer.transaction_states] == [
        ("x", 0),
        ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
    ]


def test_txn_offset_commit_without_permission_is_refused_in_steps() -> None:
    node = TransactionCoordinatorNode()
    node.fixture.services.authorizer = DenyingAuthorizer((AclOperation.READ, ResourceType.TOPIC))
    node.fixture.services.groups = type("Groups", (), {"settings": type("S", (), {"max_metadata_bytes": 10})})
    parts = CountingList(TxnOffsetCommitRequestPartition(number, 0) for number in range(MANY))
    request = TxnOffsetCommitRequest("x", "g", *PRODUCER, topics=[TxnOffsetCommitRequestTopic("t", parts)])
    work = txn_offset_commit._TxnOffsetCommit(node.fixture.context(ApiKey.TXN_OFFSET_COMMIT, 3), request)
    seen, most = 0, 0
    for _ in work.validate():
        seen, most = parts.looked_at, max(most, parts.looked_at - seen)
    assert most <= 2
    answer: Any = response_of(node, ApiKey.TXN_OFFSET_COMMIT, 3, request)
    assert [row.error_code for row in answer.topics[0].partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * MANY
