"""Transactions whose coordinator moves, whose time is over, whose partitions do not answer."""

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
    states,
    wait_until_idle,
)
from ottla.broker.transactions.transaction_metadata import S
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

E = ErrorCode


# ---------------------------------------------------------------------- a coordinator that moves


def test_fact_119_what_was_decided_is_carried_on_with_when_it_cannot_be_lost() -> None:
    node = TransactionCoordinatorNode(followed=True)
    start_transaction(node, 0)
    node.end(A, commits=True)

    async def story() -> None:
        node.again()
        await wait_until_idle()
        assert node.marked == []
        assert response_of(node.init()) is E.CONCURRENT_TRANSACTIONS
        await trio.sleep(300)
        assert node.marked == [], "however long that takes"
        node.commit_log()
        await trio.sleep(1)
        assert len(node.marked) == 1
        node.commit_log()
        assert node.seen().state is S.COMPLETE_COMMIT
        assert node.end(A, commits=True).answer == (FIRST_ID, 1)

    run(node, story)


def test_fact_119_so_is_an_abort_of_nothing_and_a_change_of_producer_ids() -> None:
    node = TransactionCoordinatorNode(followed=True)
    node.init()
    node.commit_log()
    node.end(A, commits=False)

    async def story() -> None:
        node.again()
        node.commit_log()
        await trio.sleep(1)
        node.commit_log()
        assert (node.seen().state, node.seen().producer_epoch) == (S.COMPLETE_ABORT, 1)

    run(node, story)


def test_fact_140_markers_of_a_partition_that_moved_away_are_not_sent() -> None:
    node = TransactionCoordinatorNode(followed=True)
    start_transaction(node, 0)

    async def story() -> None:
        node.end(A, commits=True)
        node.commit_log()
        node.transactions.on_resignation(node.replica)
        await trio.sleep(5)
        assert node.marked == []

    run(node, story)


def test_fact_118_whoever_waits_when_it_moves_is_told_to_look_elsewhere() -> None:
    node = TransactionCoordinatorNode(followed=True)
    ticket = node.init()
    node.transactions.on_resignation(node.replica)
    assert response_of(ticket) is E.NOT_COORDINATOR
    assert response_of(node.init()) is E.NOT_COORDINATOR


# ---------------------------------------------------------------------- timers


@pytest.mark.parametrize("level", [1, 2])
def test_fact_137_what_is_open_for_too_long_is_aborted(level: int) -> None:
    node = TransactionCoordinatorNode(level=level)
    start_transaction(node, 0)

    async def story() -> None:
        node.add(A, 1)
        await trio.sleep(9)
        assert node.seen().state is S.ONGOING
        await trio.sleep(1.5)
        assert (node.seen().state, node.seen().producer_epoch) == (S.COMPLETE_ABORT, 1)
        assert response_of(node.add(A, 2)) is E.PRODUCER_FENCED
        assert response_of(node.end(A, commits=True)) is E.INVALID_TXN_STATE

    run(node, story)


def test_fact_137_a_refused_abort_is_tried_at_the_next_look() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0)

    async def story() -> None:
        well = fail_appends(node, E.NOT_ENOUGH_REPLICAS)
        await trio.sleep(10.5)
        assert (node.seen().state, node.machine.pending_transitions) == (S.ONGOING, {})
        well()
        await trio.sleep(10)
        assert (node.seen().state, node.seen().producer_epoch) == (S.COMPLETE_ABORT, 1)

    run(node, story)


def test_fact_137_what_is_open_is_aborted_though_its_id_belongs_elsewhere_since_there_are_more_partitions() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0, 1)
    machine = node.machine
    node.partitions = 7
    assert node.transactions.partition_for("x") == 1

    async def story() -> None:
        await trio.sleep(30)
        found = machine.committed_transaction("x")
        assert found is not None
        assert (found.state, len(node.marked)) == (S.COMPLETE_ABORT, 1)

    run(node, story)


def test_fact_124_a_transaction_in_two_phases_is_left_alone() -> None:
    node = TransactionCoordinatorNode()
    node.init(timeout=2**31 - 1)
    node.add(A, 0)

    async def story() -> None:
        await trio.sleep(2**31 / 1000 + 60)
        assert node.seen().state is S.ONGOING

    run(node, story)


def test_fact_138_ids_nobody_uses_are_forgotten() -> None:
    node = TransactionCoordinatorNode(transactional_id_expiration_ms="7200000")
    node.init("idle")
    node.init("open")
    node.add((FIRST_ID + 1, 0), 0, transactional_id="open")

    async def story() -> None:
        await trio.sleep(3_601)
        assert node.machine.committed_transaction("idle") is not None
        node.init("young")
        await trio.sleep(3_600)
        assert node.machine.committed_transaction("idle") is None
        assert node.machine.committed_transaction("young") is not None
        assert states(node)[-1] == ("idle", None, -1)
        assert node.machine.transactional_ids() == ["open", "young"]

    run(node, story)


def test_fact_138_a_refused_tombstone_forgets_nothing() -> None:
    node = TransactionCoordinatorNode(transactional_id_expiration_ms="1000")
    node.init()

    async def story() -> None:
        well = fail_appends(node, E.NOT_ENOUGH_REPLICAS)
        await trio.sleep(3_601)
        assert (node.seen().state, node.machine.pending_transitions) == (S.EMPTY, {})
        well()
        await trio.sleep(3_600)
        assert node.machine.committed_transaction("x") is None

    run(node, story)


# ---------------------------------------------------------------------- markers


@pytest.mark.parametrize(
    "code",
    [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_LEADER_OR_FOLLOWER,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_SERVER_ERROR,
    ],
)
def test_fact_141_a_partition_that_cannot_take_its_marker_is_asked_again(code: ErrorCode) -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0, 1)
    node.codes["t", 1] = [code, code]

    async def story() -> None:
        node.end(A, commits=True)
        await wait_until_idle()
        assert (node.seen().state, node.seen().partitions) == (S.PREPARE_COMMIT, {("t", 1)})
        await trio.sleep(1)
        assert node.seen().state is S.COMPLETE_COMMIT
        assert [[m.topics[0].partition_indexes for m in q.markers] for q in node.marked] == [[[0, 1]], [[1]], [[1]]]

    run(node, story)


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_fact_141_somebody_newer_ends_it_for_good(code: ErrorCode) -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0)
    node.codes["t", 0] = [code]

    async def story() -> None:
        node.end(A, commits=True)
        await trio.sleep(100)
        assert (node.seen().state, len(node.marked)) == (S.PREPARE_COMMIT, 1)
        assert response_of(node.init()) is E.CONCURRENT_TRANSACTIONS

    run(node, story)


@pytest.mark.parametrize("code", [E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION])
def test_fact_141_who_cannot_know_markers_needs_none(code: ErrorCode) -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0)
    node.codes["t", 0] = [code]

    async def story() -> None:
        node.end(A, commits=True)
        await wait_until_idle()
        assert node.seen().state is S.COMPLETE_COMMIT

    run(node, story)


def test_fact_141_a_leader_that_does_not_answer_is_asked_again_for_ever() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0)
    node.silent = True

    async def story() -> None:
        node.end(A, commits=True)
        await trio.sleep(120)
        assert 100 < len(node.marked) < 140, "once a second at last"
        node.silent = False
        await trio.sleep(2)
        assert node.seen().state is S.COMPLETE_COMMIT

    run(node, story)


def test_fact_140_a_topic_that_is_gone_needs_no_marker() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0, 1)
    image = node.stage.hosted.image
    topics = {name: topic for name, topic in image.topics.items() if name != "t"}
    object.__setattr__(node.stage.hosted, "image", type(image)(topics=topics))

    async def story() -> None:
        node.end(A, commits=False)
        await wait_until_idle()
        assert (node.seen().state, node.marked) == (S.COMPLETE_ABORT, [])

    run(node, story)


def test_fact_142_the_last_record_is_written_again_where_it_is_refused() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0)

    async def story() -> None:
        node.end(A, commits=True)
        well = fail_appends(node, E.NOT_ENOUGH_REPLICAS)
        await trio.sleep(3)
        assert node.seen().state is S.PREPARE_COMMIT
        assert response_of(node.init()) is E.CONCURRENT_TRANSACTIONS
        well()
        await trio.sleep(1)
        assert (node.seen().state, len(node.marked)) == (S.COMPLETE_COMMIT, 1)

    run(node, story)


def test_fact_139_markers_of_several_transactions_go_together() -> None:
    node = TransactionCoordinatorNode()
    node.takes_s = 1.0
    for number, name in enumerate("xyz"):
        node.init(name)
        node.add((FIRST_ID + number, 0), 0, transactional_id=name)

    async def story() -> None:
        for number, name in enumerate("xyz"):
            node.end((FIRST_ID + number, 0), commits=True, transactional_id=name)
            await wait_until_idle()
        await trio.sleep(3)
        assert [len(q.markers) for q in node.marked] == [1, 2], "what comes while one is asked waits for it"
        assert {node.seen(name).state for name in "xyz"} == {S.COMPLETE_COMMIT}

    run(node, story)


class RemoteLeaderConnection:
    """The way to a broker elsewhere, which leads nothing any more."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.broken = 0

    async def channel_to(self, address: tuple[str, int] | None, who: str) -> Any:
        if self.broken:
            self.broken -= 1
            raise OSError("refused")
        return self

    async def call(self, request: Any) -> Any:
        self.asked.append(request)
        await trio.lowlevel.checkpoint()
        row = WritableTxnMarkerPartitionResult(0, E.NOT_LEADER_OR_FOLLOWER)
        topics = [WritableTxnMarkerTopicResult("t", [row])]
        return WriteTxnMarkersResponse([WritableTxnMarkerResult(request.markers[0].producer_id, topics)])

    def close(self) -> None:
        pass


class SilentLeaderConnection(RemoteLeaderConnection):
    """One whose host is cut off: nothing comes back from there."""

    async def call(self, request: Any) -> Any:
        self.asked.append(request)
        await trio.sleep_forever()


def led_by(node: TransactionCoordinatorNode, broker: int) -> None:
    """Another broker leads the topic from now on."""
    image = node.stage.hosted.image
    topic = image.topics["t"]
    parts = {number: replace(part, leader=broker) for number, part in topic.partitions.items()}
    node.stage.hosted.image = replace(image, topics={**image.topics, "t": replace(topic, partitions=parts)})


def test_fact_140_a_leader_that_moves_is_looked_for_again() -> None:
    node, far = TransactionCoordinatorNode(), RemoteLeaderConnection()
    node.transactions = node.coordinator(
        node.around._replace(address=lambda broker: ("far", 9) if broker == 2 else None)
    )
    node.transactions.on_election(node.replica)
    node.transactions._markers._connections[2] = far  # type: ignore[assignment]
    start_transaction(node, 0)
    led_by(node, 3)

    async def story() -> None:
        node.end(A, commits=True)
        await trio.sleep(5)
        assert (far.asked, node.marked) == ([], []), "nobody knows where broker 3 is"
        far.broken = 2
        led_by(node, 2)
        await trio.sleep(5)
        assert len(far.asked) > 2
        assert far.asked[0].markers[0].coordinator_epoch == 3
        assert node.seen().state is S.PREPARE_COMMIT
        led_by(node, 1)
        await trio.sleep(2)
        assert (node.seen().state, len(node.marked)) == (S.COMPLETE_COMMIT, 1)

    run(node, story)


def test_fact_140_who_waits_for_a_leader_that_is_gone_looks_for_the_next_one() -> None:
    node, far, there = TransactionCoordinatorNode(), SilentLeaderConnection(), {2}
    node.transactions = node.coordinator(
        node.around._replace(address=lambda broker: ("far", 9) if broker in there else None)
    )
    node.transactions.on_election(node.replica)
    node.transactions._markers._connections[2] = far  # type: ignore[assignment]
    start_transaction(node, 0)
    led_by(node, 2)

    async def story() -> None:
        node.end(A, commits=True)
        await trio.sleep(9)
        assert len(far.asked) == 1, "as long as it is there it is waited for"
        led_by(node, 1)
        there.clear()
        await trio.sleep(2.5)
        assert (node.seen().state, len(node.marked)) == (S.COMPLETE_COMMIT, 1)

    run(node, story)
