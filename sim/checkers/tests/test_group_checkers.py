"""Checkers of groups: cases that they must flag with legal counterparts, and seeds without a violation."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember
from ottla.broker.groups.streams import streams_group
from ottla.broker.share_partitions.acquisition import AcquireRequest, FetchedOffsets, acquire_records
from ottla.broker.share_partitions.in_flight import RecordState
from ottla.broker.share_partitions.share_partition import SharePartition, SharePartitionLimits
from ottla.broker.share_state.state_batches import PersisterStateBatch
from sim.checkers.assignment_checker import AssignmentChecker
from sim.checkers.delivery_checker import DeliveryChecker
from sim.checkers.group_invariants import (
    duplicate_assignments,
    duplicate_tasks,
    epochs_out_of_order,
    inconsistent_counts,
)
from sim.scenarios.tests.test_single_node import run_module, run_sim
from sim.tests.seeded_faults.seeded_groups import CI_FAULTS, SEEDED_FAULTS

P, Q = ("k0", 0), ("k0", 1)
TOPIC_ID = b"s" * 16


class AssignmentEvents:
    """Events of an assignment checker."""

    def __init__(self) -> None:
        self.ledger = DeliveryChecker()
        self.now_s = 0.0
        self.assignment_checker = AssignmentChecker(self.ledger, "g", lambda: self.now_s)

    def assign(
        self, member: str, epoch: int, *places: tuple[str, int], began: int | None = None, name: str = ""
    ) -> None:
        began = self.assignment_checker.next_event() if began is None else began
        self.assignment_checker.on_assigned(member, name or member, epoch, places, began, self.ledger.power_cuts)
        for place in places:
            self.assignment_checker.on_owned(member, place)

    def heartbeat(self, member: str) -> None:
        self.assignment_checker.on_heartbeat(member, self.assignment_checker.next_event())


def assigned_while_owned_by_another(events: AssignmentEvents) -> None:
    events.assign("a", 1, P)
    events.assign("b", 2, P)
    events.heartbeat("a")


def assigned_after_revocation(events: AssignmentEvents) -> None:
    events.assign("a", 1, P)
    events.assignment_checker.on_revoked("a", [P])
    events.assign("b", 2, P)
    events.heartbeat("a")


def assigned_after_fencing(events: AssignmentEvents) -> None:
    events.assign("a", 1, P)
    events.assign("b", 2, P)
    events.assignment_checker.on_member_removed("a")
    events.assign("a", 3, Q)
    events.heartbeat("a")


def assigned_with_response_in_flight(events: AssignmentEvents) -> None:
    events.assign("a", 1, P)
    began = events.assignment_checker.next_event()
    events.assign("b", 2, P)
    events.assignment_checker.on_heartbeat("a", began)


def assigned_by_late_response(events: AssignmentEvents) -> None:
    began = events.assignment_checker.next_event()
    events.assign("a", 2, P)
    events.assign("b", 1, P, began=began)
    events.heartbeat("a")


def assigned_again_after_power_cut(events: AssignmentEvents) -> None:
    events.assign("a", 1, P)
    events.assign("b", 2, P)
    events.ledger.record_power_cut({})
    events.heartbeat("a")
    events.assign("a", 2, P)


def owned_twice_in_one_epoch(events: AssignmentEvents) -> None:
    events.assign("a", 4, P)
    events.assignment_checker.on_revoked("a", [P])
    events.assign("b", 4, P)


def owned_by_static_member_after_rejoin(events: AssignmentEvents) -> None:
    events.assign("a", 4, P, name="somebody")
    events.assignment_checker.on_member_removed("a")
    events.assign("b", 4, P, name="somebody")


def owned_again_in_new_group(events: AssignmentEvents) -> None:
    events.assign("a", 2, P)
    events.assignment_checker.on_member_removed("a")
    events.assignment_checker.allow_epoch_reset()
    events.assign("b", 2, P)


def owned_again_after_other_revocation(events: AssignmentEvents) -> None:
    events.assign("a", 2, P)
    events.now_s += 5.0
    events.assignment_checker.allow_epoch_reset()
    events.assign("b", 2, P)


def owned_again_after_upgrade(events: AssignmentEvents, after_s: float = 5.0) -> None:
    events.assign("a", 2, P)
    events.now_s += after_s
    events.assignment_checker.on_join()
    events.assign("b", 2, P)


def owned_again_beside_member(events: AssignmentEvents) -> None:
    events.assign("a", 2, P)
    events.assign("c", 2, Q)
    events.assignment_checker.on_member_removed("a")
    events.assignment_checker.allow_epoch_reset()
    events.assign("b", 2, P)


ONE_OWNER = "OneOwnerPerPartitionPerEpoch"
NOT_REVOKED = "NoAssignmentBeforeRevocation"


@pytest.mark.parametrize(
    ("scenario", "flagged"),
    [
        (assigned_while_owned_by_another, [NOT_REVOKED]),
        (assigned_after_revocation, []),
        (assigned_after_fencing, []),
        (assigned_with_response_in_flight, []),
        (assigned_by_late_response, []),
        (assigned_again_after_power_cut, []),
        (owned_twice_in_one_epoch, [ONE_OWNER]),
        (owned_again_in_new_group, []),
        (owned_again_after_other_revocation, []),
        (owned_again_after_upgrade, []),
        (partial(owned_again_after_upgrade, after_s=1.0), [ONE_OWNER]),
        (owned_again_beside_member, [ONE_OWNER]),
        (owned_by_static_member_after_rejoin, []),
    ],
)
def test_assignment_checker_in_legal_and_illegal_scenarios_reports_violations(
    scenario: Callable[[AssignmentEvents], None], flagged: list[str]
) -> None:
    events = AssignmentEvents()
    scenario(events)
    assert [name for name, _ in events.ledger.violations] == flagged


def consumer_group(*members: ConsumerGroupMember, epoch: int = 5, target: int = 5) -> list[str]:
    group = ConsumerGroup("g")
    group.members = {member.id: member for member in members}
    group.epoch, group.target_epoch = epoch, target
    return [name for name, _ in (*duplicate_assignments(group), *epochs_out_of_order(group))]


def test_consumer_group_with_partition_of_two_members_is_reported() -> None:
    one, two = {TOPIC_ID: {0: 4}}, {TOPIC_ID: {1: 4}}
    a = ConsumerGroupMember("a", 5, assigned=one)
    assert consumer_group(a, ConsumerGroupMember("b", 5, assigned=two)) == []
    assert consumer_group(a, ConsumerGroupMember("b", 5, assigned=one)) == ["OneHolder"]
    assert consumer_group(a, ConsumerGroupMember("b", 4, revoking=one)) == ["OneHolder"]


def test_consumer_group_with_epochs_out_of_order_is_reported() -> None:
    a = ConsumerGroupMember("a", 5)
    assert consumer_group(a, epoch=6) == []
    assert consumer_group(a, epoch=6, target=4) == ["EpochsInOrder"]
    assert consumer_group(a, epoch=4, target=5) == ["EpochsInOrder"]


def thread(
    name: str, process: str, active: tuple[int, ...] = (), standby: tuple[int, ...] = ()
) -> streams_group.StreamsGroupMember:
    has = streams_group.TasksTupleWithEpochs(
        {"0": dict.fromkeys(active, 4)} if active else {}, {"0": frozenset(standby)} if standby else {}
    )
    return streams_group.StreamsGroupMember(name, 5, process_id=process, assigned=has)


@pytest.mark.parametrize(
    ("other", "flagged"),
    [
        (thread("b", "p1", (1,), (0,)), []),
        (thread("b", "p0", (1,)), []),
        (thread("b", "p1", (0,)), ["OneHolder"]),
        (thread("b", "p0", (), (0,)), ["OneHolder"]),
    ],
    ids=["a standby elsewhere", "another task", "active twice", "two roles in a process"],
)
def test_streams_group_with_duplicate_tasks_is_reported(
    other: streams_group.StreamsGroupMember, flagged: list[str]
) -> None:
    group = streams_group.StreamsGroup("app")
    group.members = {"a": thread("a", "p0", (0,)), "b": other}
    assert [name for name, _ in duplicate_tasks(group)] == flagged


def test_share_partition_with_inconsistent_counts_is_reported() -> None:
    share = SharePartition(
        0, [PersisterStateBatch(1, 1, 1, RecordState.ACKNOWLEDGED)], SharePartitionLimits(max_delivery_count=3)
    )
    acquire_records(share, AcquireRequest("a", 100, 100), FetchedOffsets(0, [(0, 9)]), 0)
    assert list(inconsistent_counts(share)) == []
    share.delivery_complete_count += 1
    assert [x for x in inconsistent_counts(share) if "count as done" in x]
    share.delivery_complete_count -= 1
    share.limits = SharePartitionLimits(max_delivery_count=0)
    assert [x for x in inconsistent_counts(share) if "went out" in x]


def test_2_seeds_with_groups_have_no_violation() -> None:
    lines = run_sim("--groups", "--seed", "1000", "--seeds", "2")
    assert len(lines) == 2
    assert all(line.endswith(" ok") for line in lines)
    assert all("member-" in line for line in lines)


def test_groups_after_coordinator_kills_recover_within_3_s() -> None:
    (line,) = run_sim("--kills", "3", "--seed", "1")
    assert line.endswith(" ok")
    assert "killed=3" in line
    assert int(line.split("slowest-ms=")[1].split()[0]) < 3000


@pytest.mark.parametrize("bug", list(SEEDED_FAULTS) if os.environ.get("OTTLA_PLANTS") else CI_FAULTS)
def test_planted_bug_in_groups_is_found(bug: str) -> None:
    run_module("sim.tests.seeded_faults.seeded_groups", bug)
