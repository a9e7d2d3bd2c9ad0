"""Very many transactions that end at once by timeout or failover, and large transactions."""

from __future__ import annotations

import itertools

import pytest
import trio

from ottla.broker.tests.coordinator_runtime_fixture import FailingReplica
from ottla.broker.tests.handler_fixture import NOW_MS, run_virtual
from ottla.broker.tests.transaction_coordinator_fixture import (
    FIRST_ID,
    TransactionCoordinatorNode,
    run,
    wait_until_idle,
)
from ottla.broker.transactions import marker_sender
from ottla.broker.transactions.coordinator import state_machine_of
from ottla.broker.transactions.records import TransactionRecord, encode
from ottla.broker.transactions.transaction_metadata import S, TransactionMetadata, TransactionState
from ottla.jobs.state_machine import RECORDS_PER_STEP
from ottla.log.log_validator import AppendOrigin
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.records import NewRecord, build_batch

MANY = 1_100
A_TURN = 200


def written(node: TransactionCoordinatorNode, state: TransactionState, *numbers: int, committed: bool = True) -> None:
    """Append ``MANY`` transactions in a state, long past their timeout, and load the log."""
    parts = frozenset(("t", number) for number in numbers)
    items = []
    for number in range(MANY):
        txn = TransactionMetadata(
            number, 1, 1_000, state, parts, NOW_MS - 5_000, NOW_MS - 5_000, client_transaction_version=2
        )
        key, value = encode(TransactionRecord(f"x-{number}", txn), 2)
        items.append(NewRecord(key, value, NOW_MS))
    node.replica.append(bytearray(build_batch(items)), NOW_MS, AppendOrigin.COORDINATOR)
    if committed:
        node.replica.log.set_high_watermark(node.replica.log.log_end_offset)
    node.transactions.on_election(node.replica)


def letters(node: TransactionCoordinatorNode) -> int:
    """Return the transactions with markers that are queued and not yet assigned to a request."""
    return len(node.transactions._markers._inbox)


def test_timeout_of_many_transactions_is_processed_in_slices() -> None:
    node = TransactionCoordinatorNode(followed=True, led=False)
    written(node, S.ONGOING, 0)

    async def scenario() -> None:
        await trio.sleep(11)
        assert len(node.machine.pending_transitions) == MANY
        node.commit_log()
        assert letters(node) <= A_TURN
        while node.machine.pending_transitions:
            await wait_until_idle()
            node.commit_log()
        assert {txn.state for txn in node.machine._transactions.values()} == {S.COMPLETE_ABORT}

    run(node, scenario)


def test_failover_of_many_transactions_is_processed_in_slices() -> None:
    node = TransactionCoordinatorNode(followed=True, led=False)
    written(node, S.PREPARE_ABORT, 0)
    machine = state_machine_of(next(iter(node.transactions)))
    seen: list[tuple[int, int]] = []

    async def watch() -> None:
        while True:
            seen.append((len(machine.pending_transitions), letters(node)))
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            nursery.start_soon(node.transactions.run)
            nursery.start_soon(node.timers.run)
            while not node.marked or node.machine.pending_transitions:
                node.commit_log()
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    run_virtual(main)
    assert max(pending for pending, _ in seen) == MANY
    assert max(b[0] - a[0] for a, b in itertools.pairwise(seen)) <= 2 * RECORDS_PER_STEP
    assert max(b[1] - a[1] for a, b in itertools.pairwise(seen)) <= 2 * A_TURN
    assert {txn.state for txn in machine._transactions.values()} == {S.COMPLETE_ABORT}


def test_completion_refused_for_some_transactions_is_retried_for_all() -> None:
    node = TransactionCoordinatorNode(followed=True, led=False)
    written(node, S.PREPARE_ABORT, committed=False)

    async def scenario() -> None:
        await wait_until_idle()
        shard = node.transactions.shard_for("x")
        shard.replica = FailingReplica(node.replica, ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS), 2)  # type: ignore[assignment]
        node.commit_log()
        shard.on_high_watermark_updated()
        await wait_until_idle()
        shard.replica = node.replica
        node.commit_log()
        await wait_until_idle()
        assert len(node.machine.pending_transitions) == MANY - 2 * A_TURN
        await trio.sleep(1)
        node.commit_log()
        await wait_until_idle()
        assert node.machine.pending_transitions == {}
        assert {txn.state for txn in node.machine._transactions.values()} == {S.COMPLETE_ABORT}

    run(node, scenario)


def test_partitions_of_one_transaction_are_split_into_several_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(marker_sender, "MAX_PARTITIONS_PER_REQUEST", 2)
    node = TransactionCoordinatorNode()
    node.codes["t", 1] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    names = ("x", "y")
    for number, name in enumerate(names):
        node.init(name)
        node.add((FIRST_ID + number, 0), *range(3 - number), transactional_id=name)

    async def scenario() -> None:
        for number, name in enumerate(names):
            node.end((FIRST_ID + number, 0), commits=True, transactional_id=name)
        assert [len(letter.partitions) for letter in node.transactions._markers._inbox] == [2, 1, 2]
        await trio.sleep(1)
        reported = [
            [
                (marker.producer_id - FIRST_ID, *topic.partition_indexes)
                for marker in q.markers
                for topic in marker.topics
            ]
            for q in node.marked
        ]
        assert reported == [[(0, 0, 1)], [(0, 2)], [(1, 0, 1)], [(0, 1)]]
        assert {node.seen(name).state for name in names} == {S.COMPLETE_COMMIT}

    run(node, scenario)
