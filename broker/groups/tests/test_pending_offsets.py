"""Visibility of offsets of open transactions: C-154, C-155, C-157.

Source: ``OffsetMetadataManager.java``.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
import trio
import trio.testing

from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.consumer.consumer_group import ConsumerGroupMember as Consumer
from ottla.broker.groups.expiration import expire_groups_and_offsets
from ottla.broker.groups.state_machine import DeleteGroup, DeleteOffsets
from ottla.broker.groups.tests.pending_offsets_fixture import PendingOffsetsNode
from ottla.broker.tests.group_coordinator_fixture import run
from ottla.wire.errors import ErrorCode


class PendingOffsetCase(NamedTuple):
    """Sequence of commits: ``a`` and ``b`` in transactions, ``p`` without; upper case ends the transaction."""

    description: str
    seen: int


ORDERS = [
    PendingOffsetCase("aA", 1),
    PendingOffsetCase("aAbB", 2),
    PendingOffsetCase("abAB", 2),
    PendingOffsetCase("abBA", 2),
    PendingOffsetCase("apA", 9),
    PendingOffsetCase("paA", 1),
    PendingOffsetCase("abApB", 9),
]


@pytest.mark.behaviour("C-155")
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("again", [True, False])
def test_committed_offset_is_that_of_record_with_highest_log_offset(order: PendingOffsetCase, *, again: bool) -> None:
    fixture = PendingOffsetsNode()
    identity = {"a": 1, "b": 2}

    async def scenario() -> None:
        for step in order.description:
            if step == "p":
                fixture.commit(offset=9)
            elif step in identity:
                assert await fixture.txn_commit(identity[step], pid=identity[step]) == 0
            else:
                assert await fixture.end(pid=identity[step.lower()]) == 0
        if again:
            fixture.reload()
            await trio.testing.wait_all_tasks_blocked()
        assert await fixture.fetch(stable=True) == (order.seen, 0)

    run(fixture, scenario)


@pytest.mark.behaviour("C-155")
def test_tombstone_removes_pending_offsets() -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        await fixture.txn_commit(5)
        pending = fixture.groups.submit("g", lambda own: DeleteOffsets(own, "g", [("t", 0)]))
        assert pending.answer == set()
        assert await fixture.fetch(stable=True) == (-1, 0)
        await fixture.end()
        assert await fixture.fetch(stable=True) == (-1, 0)

    run(fixture, scenario)


def test_delete_group_removes_pending_offsets() -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        await fixture.txn_commit(5)
        assert fixture.groups.submit("g", lambda own: DeleteGroup(own, "g")).answer == ErrorCode.NONE
        assert not fixture.machine.offsets.pending.has_group("g")
        await fixture.end()
        assert await fixture.fetch(stable=True) == (-1, 0)

    run(fixture, scenario)


@pytest.mark.behaviour("C-157")
def test_pending_offsets_prevent_expiration_of_offset_and_group() -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        fixture.commit(offset=2)
        await fixture.txn_commit(5)
        machine = fixture.machine
        later = fixture.fixture.env.now_ms() + 10**9
        assert not [
            r for r in expire_groups_and_offsets(machine.classic_groups, machine.offsets, 1000, later) if r is not None
        ]
        await fixture.end(commits=False)
        gone = [
            r for r in expire_groups_and_offsets(machine.classic_groups, machine.offsets, 1000, later) if r is not None
        ]
        assert len(gone) == 2, "the position, then the group"

    run(fixture, scenario)


@pytest.mark.behaviour("C-154")
def test_txn_offset_commit_checks_epoch_of_consumer_group_member() -> None:
    fixture = PendingOffsetsNode()

    async def scenario() -> None:
        group = fixture.machine.consumer_groups.groups["g"] = ConsumerGroup("g")
        group.members["m"] = Consumer("m", epoch=4)
        assert await fixture.txn_commit(generation=3, member="m") == ErrorCode.ILLEGAL_GENERATION
        assert await fixture.txn_commit(generation=5, member="m") == ErrorCode.ILLEGAL_GENERATION
        assert await fixture.txn_commit(generation=4, member="n") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await fixture.txn_commit(generation=4, member="m") == ErrorCode.NONE
        assert await fixture.txn_commit() == ErrorCode.NONE
        later = fixture.fixture.env.now_ms() + 10**9
        machine = fixture.machine
        group.members.clear()
        assert not [
            x
            for x in expire_groups_and_offsets(machine.classic_groups, machine.offsets, 1000, later, [group])
            if x is not None
        ]
        await fixture.end(commits=False)
        assert [
            x
            for x in expire_groups_and_offsets(machine.classic_groups, machine.offsets, 1000, later, [group])
            if x is not None
        ]

    run(fixture, scenario)
