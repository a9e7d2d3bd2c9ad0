"""Transactions with a coordinator that moves, transaction timeouts, and expiration of transactional ids."""

from __future__ import annotations

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

# ---------------------------------------------------------------------- a coordinator that moves


@pytest.mark.behaviour("C-119")
def test_new_coordinator_sends_markers_when_prepared_state_is_committed() -> None:
    node = TransactionCoordinatorNode(followed=True)
    start_transaction(node, 0)
    node.end(A, commits=True)

    async def scenario() -> None:
        node.again()
        await wait_until_idle()
        assert node.marked == []
        assert response_of(node.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
        await trio.sleep(300)
        assert node.marked == [], "however long that takes"
        node.commit_log()
        await trio.sleep(1)
        assert len(node.marked) == 1
        node.commit_log()
        assert node.seen().state is S.COMPLETE_COMMIT
        assert node.end(A, commits=True).answer == (FIRST_ID, 1)

    run(node, scenario)


@pytest.mark.behaviour("C-119")
def test_new_coordinator_completes_empty_abort() -> None:
    node = TransactionCoordinatorNode(followed=True)
    node.init()
    node.commit_log()
    node.end(A, commits=False)

    async def scenario() -> None:
        node.again()
        node.commit_log()
        await trio.sleep(1)
        node.commit_log()
        assert (node.seen().state, node.seen().producer_epoch) == (S.COMPLETE_ABORT, 1)

    run(node, scenario)


@pytest.mark.behaviour("C-140")
def test_markers_are_not_sent_after_resignation() -> None:
    node = TransactionCoordinatorNode(followed=True)
    start_transaction(node, 0)

    async def scenario() -> None:
        node.end(A, commits=True)
        node.commit_log()
        node.transactions.on_resignation(node.replica)
        await trio.sleep(5)
        assert node.marked == []

    run(node, scenario)


@pytest.mark.behaviour("C-118")
def test_resignation_answers_pending_request_not_coordinator() -> None:
    node = TransactionCoordinatorNode(followed=True)
    pending = node.init()
    node.transactions.on_resignation(node.replica)
    assert response_of(pending) is ErrorCode.NOT_COORDINATOR
    assert response_of(node.init()) is ErrorCode.NOT_COORDINATOR


# ---------------------------------------------------------------------- timers


@pytest.mark.behaviour("C-137", "P-83")
@pytest.mark.parametrize("level", [1, 2])
def test_transaction_timeout_aborts_with_bumped_epoch(level: int) -> None:
    node = TransactionCoordinatorNode(level=level)
    start_transaction(node, 0)

    async def scenario() -> None:
        node.add(A, 1)
        await trio.sleep(9)
        assert node.seen().state is S.ONGOING
        await trio.sleep(1.5)
        assert (node.seen().state, node.seen().producer_epoch) == (S.COMPLETE_ABORT, 1)
        assert response_of(node.add(A, 2)) is ErrorCode.PRODUCER_FENCED
        assert response_of(node.end(A, commits=True)) is ErrorCode.INVALID_TXN_STATE

    run(node, scenario)


@pytest.mark.behaviour("C-137")
def test_refused_timeout_abort_is_retried_at_next_check() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0)

    async def scenario() -> None:
        well = fail_appends(node, ErrorCode.NOT_ENOUGH_REPLICAS)
        await trio.sleep(10.5)
        assert (node.seen().state, node.machine.pending_transitions) == (S.ONGOING, {})
        well()
        await trio.sleep(10)
        assert (node.seen().state, node.seen().producer_epoch) == (S.COMPLETE_ABORT, 1)

    run(node, scenario)


@pytest.mark.behaviour("C-137")
def test_transaction_timeout_works_after_partition_count_of_topic_changed() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0, 1)
    machine = node.machine
    node.partitions = 7
    assert node.transactions.partition_for("x") == 1

    async def scenario() -> None:
        await trio.sleep(30)
        found = machine.committed_transaction("x")
        assert found is not None
        assert (found.state, len(node.marked)) == (S.COMPLETE_ABORT, 1)

    run(node, scenario)


@pytest.mark.behaviour("C-124")
def test_two_phase_commit_transaction_never_times_out() -> None:
    node = TransactionCoordinatorNode()
    node.init(timeout=2**31 - 1)
    node.add(A, 0)

    async def scenario() -> None:
        await trio.sleep(2**31 / 1000 + 60)
        assert node.seen().state is S.ONGOING

    run(node, scenario)


@pytest.mark.behaviour("C-138")
def test_idle_transactional_id_expires_with_tombstone() -> None:
    node = TransactionCoordinatorNode(transactional_id_expiration_ms="7200000")
    node.init("idle")
    node.init("open")
    node.add((FIRST_ID + 1, 0), 0, transactional_id="open")

    async def scenario() -> None:
        await trio.sleep(3_601)
        assert node.machine.committed_transaction("idle") is not None
        node.init("young")
        await trio.sleep(3_600)
        assert node.machine.committed_transaction("idle") is None
        assert node.machine.committed_transaction("young") is not None
        assert states(node)[-1] == ("idle", None, -1)
        assert node.machine.transactional_ids() == ["open", "young"]
        assert node.machine.transactional_id_count == 2

    run(node, scenario)


@pytest.mark.behaviour("C-138")
def test_refused_expiration_tombstone_keeps_transactional_id() -> None:
    node = TransactionCoordinatorNode(transactional_id_expiration_ms="1000")
    node.init()

    async def scenario() -> None:
        well = fail_appends(node, ErrorCode.NOT_ENOUGH_REPLICAS)
        await trio.sleep(3_601)
        assert (node.seen().state, node.machine.pending_transitions) == (S.EMPTY, {})
        well()
        await trio.sleep(3_600)
        assert node.machine.committed_transaction("x") is None

    run(node, scenario)
