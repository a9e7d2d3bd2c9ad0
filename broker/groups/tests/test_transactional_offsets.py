"""Offsets committed in transactions: C-104, C-106, C-153 to C-157.

Sources: ``OffsetMetadataManager.java``, ``CoordinatorRuntime.java``, ``KafkaApis.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import trio
import trio.testing

from ottla.broker.groups.classic.classic_group import ClassicGroup, ClassicGroupMember, ClassicGroupState
from ottla.broker.groups.coordinator import TOPIC
from ottla.broker.groups.state_machine import EndOffsetsTransaction
from ottla.broker.groups.tests.pending_offsets_fixture import PID, PendingOffsetsNode
from ottla.broker.tests.group_coordinator_fixture import run
from ottla.broker.tests.handler_fixture import resolve
from ottla.jobs.state_machine import RECORDS_PER_STEP, TransactionCompletion
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import txn_offset_commit
from ottla.wire.record_batch.batch_header import TRANSACTIONAL_BIT
from ottla.wire.record_batch.control_record import ControlRecordType, EndTransactionMarker


@pytest.mark.behaviour("P-81")
def test_pending_offsets_become_visible_on_commit() -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        assert await fixture.txn_commit(5) == 0
        assert await fixture.fetch() == (-1, 0)
        assert await fixture.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await fixture.end() == 0
        assert await fixture.fetch() == await fixture.fetch(stable=True) == (5, 0)

    run(fixture, scenario)


@pytest.mark.behaviour("P-81")
def test_pending_offsets_of_aborted_transaction_are_never_visible() -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        fixture.commit(offset=2)
        await fixture.txn_commit(5)
        assert await fixture.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await fixture.fetch(stable=True, every=True) == [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
        assert await fixture.fetch() == (2, 0)
        assert await fixture.end(commits=False) == 0
        assert await fixture.fetch(stable=True) == (2, 0)

    run(fixture, scenario)


@pytest.mark.behaviour("C-106")
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("ended", [True, False])
def test_pending_offsets_are_restored_by_reload(*, commits: bool, ended: bool) -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        fixture.commit(offset=2)
        await fixture.txn_commit(5)
        await fixture.txn_commit(9, partition=1, pid=8)
        if ended:
            await fixture.end(commits=commits)
        before = await fixture.fetch(), await fixture.fetch(stable=True), await fixture.fetch(stable=True, partition=1)
        fixture.reload()
        await trio.testing.wait_all_tasks_blocked()
        assert before == (
            await fixture.fetch(),
            await fixture.fetch(stable=True),
            await fixture.fetch(stable=True, partition=1),
        )
        if not ended:
            await fixture.end(commits=commits)
        assert await fixture.fetch(stable=True) == ((5, 0) if commits else (2, 0))
        assert await fixture.fetch(stable=True, partition=1) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)

    run(fixture, scenario)


@pytest.mark.behaviour("C-104")
def test_txn_offset_commit_writes_one_transactional_batch() -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        parts = [txn_offset_commit.TxnOffsetCommitRequestPartition(n, n, -1, "") for n in range(3)]
        request = txn_offset_commit.TxnOffsetCommitRequest(
            "x", "g", PID, 4, topics=[txn_offset_commit.TxnOffsetCommitRequestTopic("t", parts)]
        )
        await resolve(fixture.ask(ApiKey.TXN_OFFSET_COMMIT, 5, request))
        (header,) = [header for header, _ in fixture.replica.log.segments.batches()]
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (PID, 4, 0)
        assert (header.records_count, header.attributes) == (3, TRANSACTIONAL_BIT)
        (requested,) = fixture.coordinator.requested
        assert [(t.name, t.partitions) for t in requested.topics] == [(TOPIC, [0])]

    run(fixture, scenario)


def test_txn_offset_commit_of_many_offsets_in_slices_precedes_marker() -> None:
    fixture, rows = PendingOffsetsNode(), 2 * RECORDS_PER_STEP + 1

    async def scenario() -> None:
        parts = [txn_offset_commit.TxnOffsetCommitRequestPartition(n % 3, n, -1, "") for n in range(rows)]
        request = txn_offset_commit.TxnOffsetCommitRequest(
            "x", "g", PID, 0, topics=[txn_offset_commit.TxnOffsetCommitRequestTopic("t", parts)]
        )
        ends: list[int] = []

        async def end() -> None:
            while not fixture.replica.log.log_end_offset:
                await trio.lowlevel.checkpoint()
            ends.append(fixture.replica.log.log_end_offset)
            assert await fixture.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            await fixture.end()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            await resolve(fixture.ask(ApiKey.TXN_OFFSET_COMMIT, 5, request))
        assert ends in ([RECORDS_PER_STEP], [2 * RECORDS_PER_STEP]), (
            "others had the loop behind a slice: which one is up to the scheduler"
        )
        batches = [header for header, _ in fixture.replica.log.segments.batches()]
        assert [header.records_count for header in batches] == [RECORDS_PER_STEP, RECORDS_PER_STEP, 1, 1]
        assert {(header.producer_id, header.attributes) for header in batches[:-1]} == {(PID, TRANSACTIONAL_BIT)}
        assert batches[-1].is_control
        last = [max(range(n, rows, 3)) for n in range(3)]
        assert [await fixture.fetch(stable=True, partition=n) for n in range(3)] == [(offset, 0) for offset in last]

    run(fixture, scenario)


class VerificationErrorCase(NamedTuple):
    version: int
    received: ErrorCode
    reported: ErrorCode


VERIFICATION_ERRORS = [
    VerificationErrorCase(3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
    VerificationErrorCase(4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    VerificationErrorCase(5, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    VerificationErrorCase(5, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    VerificationErrorCase(5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
    VerificationErrorCase(5, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    VerificationErrorCase(2, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    VerificationErrorCase(1, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    VerificationErrorCase(0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    VerificationErrorCase(3, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    VerificationErrorCase(5, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
]


@pytest.mark.behaviour("C-153")
@pytest.mark.parametrize("row", VERIFICATION_ERRORS, ids=str)
def test_txn_offset_commit_maps_verification_errors(
    row: VerificationErrorCase,
) -> None:
    fixture = PendingOffsetsNode(row.received)

    async def scenario() -> None:
        assert await fixture.txn_commit(version=row.version) == row.reported
        assert fixture.replica.log.log_end_offset == 0
        assert len(fixture.coordinator.requested) == (row.received is not ErrorCode.NOT_COORDINATOR), (
            "51 is not asked about again"
        )
        assert all(requested.verify_only is (row.version < 5) for requested in fixture.coordinator.requested)

    run(fixture, scenario)


REFUSED = [
    ({"topic": "none"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ({"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
    ({"generation": 1, "member": "m"}, ErrorCode.ILLEGAL_GENERATION),
    ({"metadata": "longer"}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
]


@pytest.mark.behaviour("C-153")
@pytest.mark.parametrize(("fields", "code"), REFUSED, ids=str)
def test_txn_offset_commit_invalid_request_returns_error_code(fields: dict[str, Any], code: ErrorCode) -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        assert await fixture.txn_commit(**fields) == code
        assert fixture.replica.log.log_end_offset == 0

    run(fixture, scenario)


MEMBERS = [
    (-1, "", ErrorCode.NONE, "as old producers do"),
    (4, "m", ErrorCode.NONE, "a member in its generation"),
    (3, "m", ErrorCode.ILLEGAL_GENERATION, "a generation that is over"),
    (4, "n", ErrorCode.UNKNOWN_MEMBER_ID, "somebody else"),
    (-1, "m", ErrorCode.ILLEGAL_GENERATION, "a member without its generation"),
]


@pytest.mark.behaviour("C-153", "C-154")
@pytest.mark.parametrize(
    ("generation", "member", "code", "label"), MEMBERS, ids=lambda x: x if isinstance(x, str) else ""
)
def test_txn_offset_commit_checks_member_of_group_with_members(
    generation: int, member: str, code: ErrorCode, label: str
) -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        group = fixture.machine.classic_groups.groups["g"] = ClassicGroup("g")
        group.state, group.generation = ClassicGroupState.COMPLETING_REBALANCE, 4
        group.members["m"] = ClassicGroupMember("m", None, "client", "/host", 0, 0, [])
        assert await fixture.txn_commit(generation=generation, member=member) == code, label

    run(fixture, scenario)


def test_txn_offset_commit_fenced_producer_is_refused_before_verification() -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        await fixture.end(epoch=5)
        assert await fixture.txn_commit(epoch=4) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert not fixture.coordinator.requested

    run(fixture, scenario)


def test_txn_offset_commit_verified_after_abort_returns_invalid_txn_state() -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        def abort() -> None:
            ends = TransactionCompletion(PID, 0, EndTransactionMarker(ControlRecordType.ABORT, 0), 1)
            fixture.groups.submit_to_partition(0, lambda own: EndOffsetsTransaction(own, ends))

        fixture.coordinator.meanwhile = abort
        assert await fixture.txn_commit(version=4) == ErrorCode.INVALID_TXN_STATE
        assert await fixture.fetch(stable=True) == (-1, 0)

    run(fixture, scenario)


@pytest.mark.behaviour("C-143")
def test_end_transaction_of_partition_not_led_returns_not_leader_or_follower() -> None:
    fixture = PendingOffsetsNode(led=False)

    async def scenario() -> None:
        assert await fixture.end() == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(fixture, scenario)


def test_end_transaction_completes_when_marker_is_committed() -> None:
    fixture = PendingOffsetsNode(followed=True)

    async def scenario() -> None:
        done: list[Any] = []

        async def committing() -> None:
            done.append(await fixture.txn_commit(5))
            done.append(await fixture.end())
            done.append(await fixture.fetch())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(committing)
            for count in range(3):
                await trio.testing.wait_all_tasks_blocked()
                assert len(done) == count
                if count == 1:
                    assert fixture.replica.log.last_stable_offset == 0
                fixture.commit_log()
                await trio.testing.wait_all_tasks_blocked()
                if count == 1:
                    break
        assert done == [0, 0, (5, 0)]

    run(fixture, scenario)


def test_end_transaction_marker_refused_by_log_changes_no_offset() -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        await fixture.txn_commit(5, epoch=5)
        assert await fixture.end(epoch=4) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await fixture.end(epoch=5, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH, "a late one"
        assert await fixture.fetch(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await fixture.end(epoch=6, version=2) == 0
        assert await fixture.fetch(stable=True) == (5, 0)

    run(fixture, scenario)
