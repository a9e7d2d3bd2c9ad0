"""Transaction coordinator on a real log, in virtual time: responses and markers by state."""

from __future__ import annotations

import pytest
import trio

from ottla.broker.tests.handler_fixture import NOW_MS
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
from ottla.controller.metadata.image import PartitionRegistration
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic

# ---------------------------------------------------------------------- InitProducerId


def test_init_producer_id_allocates_and_bumps_epoch() -> None:
    node = TransactionCoordinatorNode()
    assert node.init().answer == A
    assert node.init().answer == (FIRST_ID, 1)
    assert node.init(expected=(FIRST_ID, 1)).answer == (FIRST_ID, 2)
    assert node.init(expected=(FIRST_ID, 1)).answer == (FIRST_ID, 2), "asked again, it hears the same"
    assert response_of(node.init(expected=(FIRST_ID, 0))) is ErrorCode.PRODUCER_FENCED
    assert node.init("y").answer == (FIRST_ID + 1, 0)
    assert states(node)[0] == ("x", S.EMPTY, 0)


@pytest.mark.behaviour("C-113")
def test_init_producer_id_retry_after_failover_returns_producer_fenced() -> None:
    node = TransactionCoordinatorNode()
    node.init()
    assert node.init(expected=A).answer == (FIRST_ID, 1)

    async def scenario() -> None:
        node.again()
        await wait_until_idle()
        assert response_of(node.init(expected=A)) is ErrorCode.PRODUCER_FENCED
        assert node.init(expected=(FIRST_ID, 1)).answer == (FIRST_ID, 2)

    run(node, scenario)


@pytest.mark.behaviour("C-123")
def test_init_producer_id_without_id_block_returns_coordinator_load_in_progress() -> None:
    node = TransactionCoordinatorNode()
    node.ids.remaining = 0
    assert response_of(node.init()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert node.machine.committed_transaction("x") is None
    node.ids.remaining = None
    assert node.init().answer == A


@pytest.mark.behaviour("C-120", "P-82")
@pytest.mark.parametrize(("level", "epochs"), [(0, (1, 1)), (1, (1, 1)), (2, (1, 1))])
def test_init_producer_id_with_ongoing_transaction_fences_and_aborts_it(level: int, epochs: tuple[int, int]) -> None:
    node = TransactionCoordinatorNode(level=level)
    start_transaction(node, 0, version=level)

    async def scenario() -> None:
        pending = node.init()
        assert response_of(pending) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert response_of(node.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
        await wait_until_idle()
        assert node.seen().state is S.COMPLETE_ABORT
        assert [m.producer_epoch for q in node.marked for m in q.markers] == [epochs[0]]
        assert [m.transaction_version for q in node.marked for m in q.markers] == [2 if level == 2 else 0]
        assert node.init().answer == (FIRST_ID, epochs[1] + 1)

    run(node, scenario)
    assert states(node)[1:4] == [("x", S.ONGOING, 0), ("x", S.PREPARE_ABORT, 1), ("x", S.COMPLETE_ABORT, 1)]


# ---------------------------------------------------------------------- pending transitions


@pytest.mark.behaviour("C-112")
def test_pending_transition_returns_concurrent_transactions() -> None:
    node = TransactionCoordinatorNode(followed=True)
    first = node.init()
    assert first.answer is None
    for pending in (node.init(), node.init(expected=A), node.add(A, 0), node.end(A, commits=True)):
        assert response_of(pending) is ErrorCode.CONCURRENT_TRANSACTIONS, "at once, whatever the high watermark does"
    node.commit_log()
    assert first.answer == A
    adding = node.add(A, 0, 1)
    assert response_of(node.add(A, 0)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert node.seen().state is S.EMPTY, "what is not committed is not seen"
    node.commit_log()
    assert (response_of(adding), node.seen().state) == (ErrorCode.NONE, S.ONGOING)
    ending = node.end(A, commits=True)
    for pending in (node.end(A, commits=True), node.init(), node.add(A, 2)):
        assert response_of(pending) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert node.verify(A, 0).answer == {("t", 0)}, "C-129: nothing is pending for who only asks"
    node.commit_log()
    assert ending.answer == (FIRST_ID, 1)


@pytest.mark.behaviour("C-117")
def test_append_error_leaves_transaction_unchanged() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0)
    well = fail_appends(node, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert response_of(node.end(A, commits=True)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert response_of(node.init("new")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (node.seen().state, node.machine.pending_transitions) == (S.ONGOING, {})
    assert node.machine.committed_transaction("new") is None
    well()
    assert node.end(A, commits=True).answer == (FIRST_ID, 1)


@pytest.mark.behaviour("C-117")
def test_append_below_min_isr_returns_coordinator_not_available_at_once() -> None:
    node = TransactionCoordinatorNode(followed=True, min_isr=2)
    start_transaction(node, 0)
    node.commit_log()
    written = node.replica.log.log_end_offset
    node.replica.apply_partition_state(1, PartitionRegistration((1, 2), (1,), 1, 3, 1), NOW_MS)
    assert response_of(node.end(A, commits=True)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert response_of(node.init("new")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert node.replica.log.log_end_offset == written
    assert node.machine.pending_transitions == {}
    node.replica.apply_partition_state(1, PartitionRegistration((1, 2), (1, 2), 1, 3, 2), NOW_MS)
    ending = node.end(A, commits=True)
    node.commit_log()
    assert ending.answer == (FIRST_ID, 1)


@pytest.mark.behaviour("C-122", "C-136")
@pytest.mark.parametrize("level", [1, 2])
def test_fence_refused_by_log_is_retried_with_same_epoch(level: int) -> None:
    node = TransactionCoordinatorNode(level=level)
    start_transaction(node, 0)
    well = fail_appends(node, ErrorCode.NOT_ENOUGH_REPLICAS)
    for _ in range(3):
        assert response_of(node.init()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    well()
    node.init()
    assert states(node)[-1] == ("x", S.PREPARE_ABORT, 1)


def test_write_timeout_keeps_transition_pending_until_commit() -> None:
    node = TransactionCoordinatorNode(followed=True)
    start_transaction(node, 0)

    async def scenario() -> None:
        pending = node.end(A, commits=True)
        await trio.sleep(61)
        assert response_of(pending) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert response_of(node.end(A, commits=True)) is ErrorCode.CONCURRENT_TRANSACTIONS, "it may yet be committed"
        assert node.marked == [], "and nobody is told before it is"
        await trio.sleep(200)
        node.commit_log()
        await wait_until_idle()
        assert len(node.marked) == 1
        node.commit_log()
        assert node.seen().state is S.COMPLETE_COMMIT
        assert node.end(A, commits=True).answer == (FIRST_ID, 1), "a retry hears how it ended"

    run(node, scenario)


# ---------------------------------------------------------------------- stages of a transaction


@pytest.mark.behaviour("C-133")
@pytest.mark.parametrize(("commits", "title"), [(True, "COMMIT"), (False, "ABORT")])
def test_end_txn_response_precedes_markers(commits: bool, title: str) -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0, 2)

    async def scenario() -> None:
        assert node.end(A, commits=commits).answer == (FIRST_ID, 1)
        assert node.marked == []
        assert node.seen().state is S[f"PREPARE_{title}"]
        assert response_of(node.end(A, commits=commits)) is ErrorCode.CONCURRENT_TRANSACTIONS
        await wait_until_idle()
        topic = WritableTxnMarkerTopic("t", [0, 2])
        assert [q.markers for q in node.marked] == [[WritableTxnMarker(FIRST_ID, 1, commits, [topic], 3, 2)]]
        assert node.seen().state is S[f"COMPLETE_{title}"]
        assert node.seen().partitions == frozenset()
        assert node.end(A, commits=commits).answer == (FIRST_ID, 1), "a retry"
        assert response_of(node.end(A, commits=not commits)) is ErrorCode.INVALID_TXN_STATE
        assert response_of(node.add(A, 1)) is ErrorCode.PRODUCER_FENCED
        assert response_of(node.add((FIRST_ID, 1), 1)) is ErrorCode.NONE

    run(node, scenario)
    assert [state for _, state, _ in states(node)] == [
        S.EMPTY,
        S.ONGOING,
        S[f"PREPARE_{title}"],
        S[f"COMPLETE_{title}"],
        S.ONGOING,
    ]


@pytest.mark.behaviour("C-131")
def test_end_txn_version_1_returns_no_ids_and_accepts_retry() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0, version=0)

    async def scenario() -> None:
        assert node.end(A, commits=True, bumps=False).answer == (-1, -1)
        assert response_of(node.end(A, commits=True, bumps=False)) is ErrorCode.CONCURRENT_TRANSACTIONS
        await wait_until_idle()
        assert (node.seen().state, node.seen().producer_epoch, node.seen().client_transaction_version) == (
            S.COMPLETE_COMMIT,
            0,
            0,
        )
        assert node.end(A, commits=True, bumps=False).answer == (-1, -1)
        assert response_of(node.end(A, commits=False, bumps=False)) is ErrorCode.INVALID_TXN_STATE
        assert [m.transaction_version for q in node.marked for m in q.markers] == [0]

    run(node, scenario)


@pytest.mark.behaviour("C-134")
def test_end_txn_abort_without_partitions_completes_at_once() -> None:
    node = TransactionCoordinatorNode()
    node.init()
    assert node.end(A, commits=False).answer == (FIRST_ID, 1)
    assert node.seen().state is S.COMPLETE_ABORT
    assert node.end((FIRST_ID, 1), commits=False).answer == (FIRST_ID, 2)
    assert node.marked == []
    assert response_of(node.end((FIRST_ID, 2), commits=True)) is ErrorCode.INVALID_TXN_STATE


def test_unknown_or_wrong_producer_id_returns_error() -> None:
    node = TransactionCoordinatorNode()
    assert response_of(node.end(A, commits=True)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert response_of(node.add(A, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert response_of(node.verify(A, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    start_transaction(node, 0)
    assert response_of(node.end((1, 0), commits=True)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert response_of(node.verify((FIRST_ID, 1), 0)) is ErrorCode.PRODUCER_FENCED
    assert node.verify(A, 0, 1).answer == {("t", 0)}


@pytest.mark.behaviour("C-127")
def test_add_partitions_already_present_writes_no_record() -> None:
    node = TransactionCoordinatorNode()
    start_transaction(node, 0, 1)
    count = len(states(node))
    assert response_of(node.add(A, 1)) is ErrorCode.NONE
    assert len(states(node)) == count
    assert response_of(node.add(A, 1, 2)) is ErrorCode.NONE
    assert node.seen().partitions == {("t", 0), ("t", 1), ("t", 2)}


def test_add_partitions_read_but_not_committed_waits_for_commit() -> None:
    node = TransactionCoordinatorNode(followed=True)
    start_transaction(node, 0)

    async def scenario() -> None:
        node.add(A, 1)
        node.again()
        await wait_until_idle()
        pending = node.add(A, 1)
        assert pending.answer is None, "it could still get lost"
        node.commit_log()
        assert response_of(pending) is ErrorCode.NONE

    run(node, scenario)
