"""Checker of acquired records: cases that it must flag, and legal counterparts."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.share_partitions.share_sessions import TopicIdPartition as SharedPlace
from sim.checkers.acquisition_locks import ACCEPT, RELEASE, AcquiredRecord, AcquisitionLocks, ServerState
from sim.checkers.delivery_checker import DeliveryChecker

TOPIC_ID = b"s" * 16
KEY = SharedPlace(TOPIC_ID, 0)
S = ("s0", 0)


class FakeSharePartitionLeader:
    """Share partition at one of its leaders."""

    share_partition = object()


class FakeShareServer:
    """Two nodes with one share partition, which members fetch from the first: locks last ten seconds."""

    def __init__(self) -> None:
        self.ledger = DeliveryChecker()
        self.now_s = 0.0
        self.host = "n1"
        self.sessions: dict[tuple[str, str], object] = {("g", "a"): object(), ("g", "b"): object()}
        self.shared = FakeSharePartitionLeader()
        shares = SimpleNamespace(
            get=lambda group, place: self.shared, sessions=SimpleNamespace(_by_member=self.sessions)
        )
        parts: Any = SimpleNamespace(share_partition_manager=shares)
        there = {"n1": parts, "n2": parts}
        self.locks = AcquisitionLocks(self.ledger, "g", 3, lambda: there, lambda host: self.now_s, lambda: self.now_s)

    def acquire(self, member: str, first: int, last: int, count: int = 1, requested_s: float | None = None) -> None:
        requested = self.now_s if requested_s is None else requested_s
        self.now_s += 0.1
        hold = AcquiredRecord(
            member, self.host, requested + 10.0, self.locks.server_state(self.host, KEY, member), self.now_s
        )
        self.locks.on_acquired(hold, S, KEY, [(first, last, count)], requested)
        self.now_s += 0.1

    def acknowledge(self, member: str, types: dict[int, int], *, takes: bool = True) -> None:
        holds = self.locks.on_acknowledging(member, S, types)
        if takes:
            self.locks.on_acknowledged(S, types, holds)
        else:
            self.locks.on_refused(KEY, S, types, holds)
        self.now_s += 0.1


def acquired_by_two_members(node: FakeShareServer) -> None:
    node.acquire("a", 0, 4)
    node.acquire("b", 3, 3)


def acquired_after_lock_timeout(node: FakeShareServer) -> None:
    node.acquire("a", 0, 4)
    node.now_s += 10.0
    node.acquire("b", 3, 3, 2)


def acquired_after_release(node: FakeShareServer) -> None:
    node.acquire("a", 3, 3)
    node.acknowledge("a", {3: RELEASE})
    node.acquire("b", 3, 3, 2)


def acquired_after_restart(node: FakeShareServer) -> None:
    node.acquire("a", 0, 4)
    node.shared = FakeSharePartitionLeader()
    node.acquire("b", 3, 3)


def acquired_from_another_node(node: FakeShareServer) -> None:
    node.acquire("a", 0, 4)
    node.host = "n2"
    node.acquire("b", 3, 3)


def acquired_after_session_end(node: FakeShareServer) -> None:
    node.acquire("a", 0, 4)
    del node.sessions["g", "a"]
    node.acquire("b", 3, 3, 2)


def acquired_by_older_response(node: FakeShareServer) -> None:
    node.acquire("a", 0, 4, 2)
    node.acquire("b", 3, 3, 1, requested_s=0.05)


def acknowledgement_rejected(node: FakeShareServer) -> None:
    node.acquire("a", 0, 4)
    node.acknowledge("a", {2: ACCEPT}, takes=False)


def acknowledgement_rejected_after_lock_timeout(node: FakeShareServer) -> None:
    node.acquire("a", 0, 4)
    node.now_s += 10.0
    node.acknowledge("a", {2: ACCEPT}, takes=False)


def acknowledgement_rejected_with_foreign_record(node: FakeShareServer) -> None:
    node.acquire("a", 0, 4)
    node.acknowledge("a", {2: ACCEPT, 7: ACCEPT}, takes=False)


def redelivered_after_accept(node: FakeShareServer) -> None:
    node.acquire("a", 0, 4)
    node.acknowledge("a", {2: ACCEPT})
    node.acquire("b", 2, 2, 2)


def redelivered_by_later_leader(node: FakeShareServer) -> None:
    node.acquire("a", 0, 4)
    node.acknowledge("a", {2: ACCEPT})
    node.shared = FakeSharePartitionLeader()
    node.acquire("b", 2, 2, 1)


def redelivered_by_former_leader(node: FakeShareServer) -> None:
    old = node.shared
    node.acquire("b", 5, 5)
    node.shared = FakeSharePartitionLeader()
    node.acquire("a", 0, 4)
    node.acknowledge("a", {2: ACCEPT})
    node.shared = old
    node.acquire("b", 2, 2, 1)


def redelivered_after_power_cut(node: FakeShareServer) -> None:
    node.acquire("a", 0, 4)
    node.acknowledge("a", {2: ACCEPT})
    node.ledger.record_power_cut({})
    node.acquire("b", 2, 2, 1)


def delivered_beyond_limit(node: FakeShareServer) -> None:
    node.acquire("a", 0, 0, 4)


@pytest.mark.parametrize(
    ("scenario", "flagged"),
    [
        (acquired_by_two_members, ["LockedToOne"]),
        (acquired_after_lock_timeout, []),
        (acquired_after_release, []),
        (acquired_after_restart, []),
        (acquired_from_another_node, []),
        (acquired_after_session_end, []),
        (acquired_by_older_response, []),
        (acknowledgement_rejected, ["HolderIsHeard"]),
        (acknowledgement_rejected_after_lock_timeout, []),
        (acknowledgement_rejected_with_foreign_record, []),
        (redelivered_after_accept, ["AcceptedIsFinal"]),
        (redelivered_by_later_leader, ["AcceptedIsFinal"]),
        (redelivered_by_former_leader, []),
        (redelivered_after_power_cut, []),
        (delivered_beyond_limit, ["share-overdelivered"]),
    ],
)
def test_acquisition_locks_of_legal_and_illegal_scenarios_report_violations(
    scenario: Callable[[FakeShareServer], None], flagged: list[str]
) -> None:
    node = FakeShareServer()
    scenario(node)
    assert [name for name, _ in node.ledger.violations] == flagged


def test_server_state_of_unchanged_leader_returns_same_objects() -> None:
    node = FakeShareServer()
    before, after = node.locks.server_state("n1", KEY, "a"), node.locks.server_state("n1", KEY, "a")
    assert isinstance(before, ServerState)
    assert after is not None
    assert after.share_partition is before.share_partition
    assert node.locks.server_state("n3", KEY, "a") is None
