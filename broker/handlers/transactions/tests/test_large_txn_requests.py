"""Requests about transactions cost what they hold, and let others run in between, whatever they name."""

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
from ottla.broker.handlers.transactions.tests.test_txn_handlers import DenyingAuthorizer, asked
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
from ottla.wire.errors import ErrorCode as E
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
WHO = (FIRST_ID, 0)


class CountingList(list[Any]):
    """A list that counts how much of it was looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self.looked_at += 1
            yield item

    def __contains__(self, item: object) -> bool:
        self.looked_at += len(self)
        return super().__contains__(item)


def in_turns(stage: HandlerFixture, module: Any, key: ApiKey, version: int, request: Any) -> Any:
    """What a handler gives where each step uses a turn up."""
    return start(module.handle(stage.context(key, version), request), SLICE_MS)


def test_producers_are_looked_up_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = HandlerFixture()
    replica = stage.hosted.host("t")
    table = replica.log.producers.producers
    for pid in range(MANY):
        table[pid] = ProducerStateEntry(0)
    looked_up: list[int] = []
    of_table = ProducerTable.__getitem__

    def get(self: ProducerTable, pid: int) -> ProducerStateEntry:
        looked_up.append(pid)
        return of_table(self, pid)

    monkeypatch.setattr(ProducerTable, "__getitem__", get)
    steps = describe_producers._active(stage.context(ApiKey.DESCRIBE_PRODUCERS, 0), "t", 0)
    next(steps)
    assert len(looked_up) == 1
    del table[50]
    rows: list[Any] = []

    def rest() -> Iterator[None]:
        rows.extend((yield from steps)[:])

    assert len(list(rest())) == MANY - 1
    assert [row.producer_id for row in rows] == [pid for pid in range(MANY) if pid != 50], "one went meanwhile"


class ComparisonCountingName(str):
    """A topic's name that counts what it is compared with."""

    __slots__ = ()
    compared: ClassVar[list[int]] = []

    def __eq__(self, other: object) -> bool:
        self.compared.append(1)
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


def test_markers_of_many_topics_are_a_step_each_and_are_not_compared_with_each_other() -> None:
    ComparisonCountingName.compared.clear()
    topics = [WritableTxnMarkerTopic(ComparisonCountingName(f"t{number}"), []) for number in range(MANY)]
    request = WriteTxnMarkersRequest([WritableTxnMarker(7, 0, True, topics, 1)])
    response = WriteTxnMarkersResponse()
    steps = list(Marking(HandlerFixture().services).append_all(request, response))
    assert len(steps) >= MANY
    assert len(response.markers[0].topics) == MANY
    assert len(ComparisonCountingName.compared) <= MANY


def test_markers_nobody_may_write_are_refused_in_turns() -> None:
    stage = HandlerFixture()
    stage.services.authorizer = DenyingAuthorizer(
        (AclOperation.ALTER, ResourceType.CLUSTER), (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    )
    topics = [WritableTxnMarkerTopic("t", list(range(MANY)))]
    request = WriteTxnMarkersRequest([WritableTxnMarker(7, 0, True, topics, 1)])
    answer = in_turns(stage, write_txn_markers, ApiKey.WRITE_TXN_MARKERS, 2, request)
    assert not isinstance(answer, Message), "it must rest"

    async def story() -> None:
        rows = (await resolve(answer)).markers[0].topics[0].partitions
        assert len(rows) == MANY
        assert {row.error_code for row in rows} == {E.CLUSTER_AUTHORIZATION_FAILED}

    run(TransactionCoordinatorNode(), story)


def test_partitions_to_be_added_are_looked_at_in_steps() -> None:
    node = TransactionCoordinatorNode()
    numbers = CountingList([0, 1] * MANY)
    txn = AddPartitionsToTxnTransaction("x", *WHO, True, [AddPartitionsToTxnTopic("t", numbers)])
    seen, most = 0, 0
    for _ in add_or_verify_partitions(node.stage.services, [txn], 4, lambda topic: E.NONE):
        seen, most = numbers.looked_at, max(most, numbers.looked_at - seen)
    assert most <= 2


def test_what_is_asked_for_is_not_gone_through_for_each_transaction() -> None:
    node = TransactionCoordinatorNode()
    for number in range(5):
        node.init(f"x{number}")
    producers, states = CountingList(range(FIRST_ID, FIRST_ID + MANY)), CountingList(["Empty"] * MANY)
    context = node.stage.context(ApiKey.LIST_TRANSACTIONS, 2)
    answer: Any = start(list_transactions.handle(context, ListTransactionsRequest(states, producers)))
    assert len(answer.transaction_states) == 5
    assert producers.looked_at <= MANY
    assert states.looked_at <= 2 * MANY


def test_an_id_that_is_asked_for_twice_is_described_once() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0, 1)
    request = DescribeTransactionsRequest(["x", "nobody", "x", "nobody"])
    answer: Any = start(describe_transactions.handle(node.stage.context(ApiKey.DESCRIBE_TRANSACTIONS, 0), request))
    assert [(row.transactional_id, row.error_code) for row in answer.transaction_states] == [
        ("x", 0),
        ("nobody", E.TRANSACTIONAL_ID_NOT_FOUND),
    ]


def test_positions_nobody_may_commit_are_refused_in_steps() -> None:
    node = TransactionCoordinatorNode()
    node.stage.services.authorizer = DenyingAuthorizer((AclOperation.READ, ResourceType.TOPIC))
    node.stage.services.groups = type("Groups", (), {"settings": type("S", (), {"max_metadata_bytes": 10})})
    parts = CountingList(TxnOffsetCommitRequestPartition(number, 0) for number in range(MANY))
    request = TxnOffsetCommitRequest("x", "g", *WHO, topics=[TxnOffsetCommitRequestTopic("t", parts)])
    work = txn_offset_commit._TxnOffsetCommit(node.stage.context(ApiKey.TXN_OFFSET_COMMIT, 3), request)
    seen, most = 0, 0
    for _ in work.validate():
        seen, most = parts.looked_at, max(most, parts.looked_at - seen)
    assert most <= 2
    answer: Any = asked(node, ApiKey.TXN_OFFSET_COMMIT, 3, request)
    assert [row.error_code for row in answer.topics[0].partitions] == [E.TOPIC_AUTHORIZATION_FAILED] * MANY
