"""Transaction markers, sent until each partition has a final result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio

from ottla.broker.tests.transaction_coordinator_fixture import (
    FIRST_ID,
    A,
    TransactionCoordinatorNode,
    fail_appends,
    response_of,
    run,
    start_transaction,
    wait_until_idle,
)
from ottla.broker.transactions.transaction_metadata import S
from ottla.client.node_connection import NodeConnection
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)


@pytest.mark.behaviour("C-141")
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_marker_retriable_error_is_retried_for_that_partition(code: ErrorCode) -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0, 1)
    node.codes["t", 1] = [code, code]

    async def scenario() -> None:
        node.end(A, commits=True)
        await wait_until_idle()
        assert (node.seen().state, node.seen().partitions) == (S.PREPARE_COMMIT, {("t", 1)})
        await trio.sleep(1)
        assert node.seen().state is S.COMPLETE_COMMIT
        assert [[m.topics[0].partition_indexes for m in q.markers] for q in node.marked] == [[[0, 1]], [[1]], [[1]]]

    run(node, scenario)


@pytest.mark.behaviour("C-141")
@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_marker_fenced_error_stops_completion(code: ErrorCode) -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0)
    node.codes["t", 0] = [code]

    async def scenario() -> None:
        node.end(A, commits=True)
        await trio.sleep(100)
        assert (node.seen().state, len(node.marked)) == (S.PREPARE_COMMIT, 1)
        assert response_of(node.init()) is ErrorCode.CONCURRENT_TRANSACTIONS

    run(node, scenario)


@pytest.mark.behaviour("C-141")
@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
def test_marker_unsupported_by_partition_counts_as_written(code: ErrorCode) -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0)
    node.codes["t", 0] = [code]

    async def scenario() -> None:
        node.end(A, commits=True)
        await wait_until_idle()
        assert node.seen().state is S.COMPLETE_COMMIT

    run(node, scenario)


@pytest.mark.behaviour("C-141")
def test_marker_request_without_response_is_retried_every_second() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0)
    node.silent = True

    async def scenario() -> None:
        node.end(A, commits=True)
        await trio.sleep(120)
        assert 100 < len(node.marked) < 140, "once a second at last"
        node.silent = False
        await trio.sleep(2)
        assert node.seen().state is S.COMPLETE_COMMIT

    run(node, scenario)


@pytest.mark.behaviour("C-140")
def test_marker_of_deleted_topic_is_not_sent() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0, 1)
    image = node.fixture.hosted.image
    topics = {name: topic for name, topic in image.topics.items() if name != "t"}
    object.__setattr__(node.fixture.hosted, "image", type(image)(topics=topics))

    async def scenario() -> None:
        node.end(A, commits=False)
        await wait_until_idle()
        assert (node.seen().state, node.marked) == (S.COMPLETE_ABORT, [])

    run(node, scenario)


@pytest.mark.behaviour("C-142")
def test_refused_completion_record_is_written_again() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0)

    async def scenario() -> None:
        node.end(A, commits=True)
        well = fail_appends(node, ErrorCode.NOT_ENOUGH_REPLICAS)
        await trio.sleep(3)
        assert node.seen().state is S.PREPARE_COMMIT
        assert response_of(node.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
        well()
        await trio.sleep(1)
        assert (node.seen().state, len(node.marked)) == (S.COMPLETE_COMMIT, 1)

    run(node, scenario)


@pytest.mark.behaviour("C-139")
def test_markers_of_several_transactions_are_batched() -> None:
    node = TransactionCoordinatorNode()
    node.takes_s = 1.0
    for number, name in enumerate("xyz"):
        node.init(name)
        node.add((FIRST_ID + number, 0), 0, transactional_id=name)

    async def scenario() -> None:
        for number, name in enumerate("xyz"):
            node.end((FIRST_ID + number, 0), commits=True, transactional_id=name)
            await wait_until_idle()
        await trio.sleep(3)
        assert [len(q.markers) for q in node.marked] == [1, 2], "what comes while one is asked waits for it"
        assert {node.seen(name).state for name in "xyz"} == {S.COMPLETE_COMMIT}

    run(node, scenario)


class RemoteLeaderConnection:
    """Connection to another broker that leads no partition any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requested: list[Any] = []
        self.broken = 0
        monkeypatch.setattr(NodeConnection, "_connect", self.connect)

    async def connect(self, address: tuple[str, int]) -> Any:
        if self.broken:
            self.broken -= 1
            raise OSError("refused")
        return self

    async def call(self, request: Any, version: int | None) -> Any:
        self.requested.append(request)
        await trio.lowlevel.checkpoint()
        row = WritableTxnMarkerPartitionResult(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        topics = [WritableTxnMarkerTopicResult("t", [row])]
        return WriteTxnMarkersResponse([WritableTxnMarkerResult(request.markers[0].producer_id, topics)])

    def close(self) -> None:
        pass


class SilentLeaderConnection(RemoteLeaderConnection):
    """Connection to an isolated host, without responses."""

    async def call(self, request: Any, version: int | None) -> Any:
        self.requested.append(request)
        await trio.sleep_forever()


def led_by(node: TransactionCoordinatorNode, broker: int) -> None:
    """Make another broker the leader of the topic."""
    image = node.fixture.hosted.image
    topic = image.topics["t"]
    parts = {number: replace(part, leader=broker) for number, part in topic.partitions.items()}
    node.fixture.hosted.image = replace(image, topics={**image.topics, "t": replace(topic, partitions=parts)})


@pytest.mark.behaviour("C-140")
def test_marker_of_moved_partition_is_sent_to_new_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    node, remote = TransactionCoordinatorNode(), RemoteLeaderConnection(monkeypatch)
    node.transactions = node.coordinator(
        node.dependencies._replace(address=lambda broker: ("far", 9) if broker == 2 else None)
    )
    node.transactions.on_election(node.replica)
    start_transaction(node, 0)
    led_by(node, 3)

    async def scenario() -> None:
        node.end(A, commits=True)
        await trio.sleep(5)
        assert (remote.requested, node.marked) == ([], []), "nobody knows where broker 3 is"
        remote.broken = 2
        led_by(node, 2)
        await trio.sleep(5)
        assert len(remote.requested) > 2
        assert remote.requested[0].markers[0].coordinator_epoch == 3
        assert node.seen().state is S.PREPARE_COMMIT
        led_by(node, 1)
        await trio.sleep(2)
        assert (node.seen().state, len(node.marked)) == (S.COMPLETE_COMMIT, 1)

    run(node, scenario)


@pytest.mark.behaviour("C-140")
def test_marker_waiting_for_removed_leader_is_sent_to_new_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    node, remote, there = TransactionCoordinatorNode(), SilentLeaderConnection(monkeypatch), {2}
    node.transactions = node.coordinator(
        node.dependencies._replace(address=lambda broker: ("far", 9) if broker in there else None)
    )
    node.transactions.on_election(node.replica)
    start_transaction(node, 0)
    led_by(node, 2)

    async def scenario() -> None:
        node.end(A, commits=True)
        await trio.sleep(9)
        assert len(remote.requested) == 1, "as long as it is there it is waited for"
        led_by(node, 1)
        there.clear()
        await trio.sleep(2.5)
        assert (node.seen().state, len(node.marked)) == (S.COMPLETE_COMMIT, 1)

    run(node, scenario)
