"""Members of groups in the simulator: what their books must flag, and its legal twins; and seeds that break nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

from ottla.broker.groups.consumer import consumer_group as cs
from ottla.broker.groups.streams import streams_group as ss
from ottla.broker.share_partitions.acquisition import AcquireRequest, FetchedOffsets, acquire_records
from ottla.broker.share_partitions.in_flight import RecordState as R
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
    """A group's book, in the words of its members."""

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


def given_while_another_has_it(told: AssignmentEvents) -> None:
    told.assign("a", 1, P)
    told.assign("b", 2, P)
    told.heartbeat("a")


def given_once_it_was_given_up(told: AssignmentEvents) -> None:
    told.assign("a", 1, P)
    told.assignment_checker.on_revoked("a", [P])
    told.assign("b", 2, P)
    told.heartbeat("a")


def given_when_its_member_was_fenced(told: AssignmentEvents) -> None:
    told.assign("a", 1, P)
    told.assign("b", 2, P)
    told.assignment_checker.on_member_removed("a")
    told.assign("a", 3, Q)
    told.heartbeat("a")


def heard_of_by_an_answer_that_was_under_way(told: AssignmentEvents) -> None:
    told.assign("a", 1, P)
    began = told.assignment_checker.next_event()
    told.assign("b", 2, P)
    told.assignment_checker.on_heartbeat("a", began)


def told_late_of_what_another_has_by_now(told: AssignmentEvents) -> None:
    began = told.assignment_checker.next_event()
    told.assign("a", 2, P)
    told.assign("b", 1, P, began=began)
    told.heartbeat("a")


def given_again_after_a_power_cut(told: AssignmentEvents) -> None:
    told.assign("a", 1, P)
    told.assign("b", 2, P)
    told.ledger.record_power_cut({})
    told.heartbeat("a")
    told.assign("a", 2, P)


def two_in_one_epoch(told: AssignmentEvents) -> None:
    told.assign("a", 4, P)
    told.assignment_checker.on_revoked("a", [P])
    told.assign("b", 4, P)


def one_that_came_back_under_its_name(told: AssignmentEvents) -> None:
    told.assign("a", 4, P, name="somebody")
    told.assignment_checker.on_member_removed("a")
    told.assign("b", 4, P, name="somebody")


def again_in_a_group_made_anew(told: AssignmentEvents) -> None:
    told.assign("a", 2, P)
    told.assignment_checker.on_member_removed("a")
    told.assignment_checker.allow_epoch_reset()
    told.assign("b", 2, P)


def again_where_others_were_given_up(told: AssignmentEvents) -> None:
    told.assign("a", 2, P)
    told.now_s += 5.0
    told.assignment_checker.allow_epoch_reset()
    told.assign("b", 2, P)


def again_as_one_of_the_newer_protocol(told: AssignmentEvents, after_s: float = 5.0) -> None:
    told.assign("a", 2, P)
    told.now_s += after_s
    told.assignment_checker.on_join()
    told.assign("b", 2, P)


def again_beside_one_who_is_there(told: AssignmentEvents) -> None:
    told.assign("a", 2, P)
    told.assign("c", 2, Q)
    told.assignment_checker.on_member_removed("a")
    told.assignment_checker.allow_epoch_reset()
    told.assign("b", 2, P)


ONE_OWNER = "OneOwnerPerPartitionPerEpoch"
NOT_REVOKED = "NoAssignmentBeforeRevocation"


@pytest.mark.parametrize(
    ("story", "flagged"),
    [
        (given_while_another_has_it, [NOT_REVOKED]),
        (given_once_it_was_given_up, []),
        (given_when_its_member_was_fenced, []),
        (heard_of_by_an_answer_that_was_under_way, []),
        (told_late_of_what_another_has_by_now, []),
        (given_again_after_a_power_cut, []),
        (two_in_one_epoch, [ONE_OWNER]),
        (again_in_a_group_made_anew, []),
        (again_where_others_were_given_up, []),
        (again_as_one_of_the_newer_protocol, []),
        (partial(again_as_one_of_the_newer_protocol, after_s=1.0), [ONE_OWNER]),
        (again_beside_one_who_is_there, [ONE_OWNER]),
        (one_that_came_back_under_its_name, []),
    ],
)
def test_what_two_members_may_be_told_of_one_partition(
    story: Callable[[AssignmentEvents], None], flagged: list[str]
) -> None:
    told = AssignmentEvents()
    story(told)
    assert [name for name, _ in told.ledger.violations] == flagged


def consumer_group(*members: cs.ConsumerGroupMember, epoch: int = 5, target: int = 5) -> list[str]:
    group = cs.ConsumerGroup("g")
    group.members = {member.id: member for member in members}
    group.epoch, group.target_epoch = epoch, target
    return [name for name, _ in (*duplicate_assignments(group), *epochs_out_of_order(group))]


def test_a_partition_stands_with_one_member_of_a_consumer_group() -> None:
    one, two = {TOPIC_ID: {0: 4}}, {TOPIC_ID: {1: 4}}
    a = cs.ConsumerGroupMember("a", 5, assigned=one)
    assert consumer_group(a, cs.ConsumerGroupMember("b", 5, assigned=two)) == []
    assert consumer_group(a, cs.ConsumerGroupMember("b", 5, assigned=one)) == ["OneHolder"]
    assert consumer_group(a, cs.ConsumerGroupMember("b", 4, revoking=one)) == ["OneHolder"]


def test_no_member_is_ahead_of_its_group() -> None:
    a = cs.ConsumerGroupMember("a", 5)
    assert consumer_group(a, epoch=6) == []
    assert consumer_group(a, epoch=6, target=4) == ["EpochsInOrder"]
    assert consumer_group(a, epoch=4, target=5) == ["EpochsInOrder"]


def thread(
    name: str, process: str, active: tuple[int, ...] = (), standby: tuple[int, ...] = ()
) -> ss.StreamsGroupMember:
    has = ss.TasksTupleWithEpochs(
        {"0": dict.fromkeys(active, 4)} if active else {}, {"0": frozenset(standby)} if standby else {}
    )
    return ss.StreamsGroupMember(name, 5, process_id=process, assigned=has)


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
def test_a_task_is_done_once_and_a_process_has_it_in_one_role(other: ss.StreamsGroupMember, flagged: list[str]) -> None:
    group = ss.StreamsGroup("app")
    group.members = {"a": thread("a", "p0", (0,)), "b": other}
    assert [name for name, _ in duplicate_tasks(group)] == flagged


def test_what_is_in_flight_adds_up() -> None:
    share = SharePartition(
        0, [PersisterStateBatch(1, 1, 1, R.ACKNOWLEDGED)], SharePartitionLimits(max_delivery_count=3)
    )
    acquire_records(share, AcquireRequest("a", 100, 100), FetchedOffsets(0, [(0, 9)]), 0)
    assert list(inconsistent_counts(share)) == []
    share.delivery_complete_count += 1
    assert [x for x in inconsistent_counts(share) if "count as done" in x]
    share.delivery_complete_count -= 1
    share.limits = SharePartitionLimits(max_delivery_count=0)
    assert [x for x in inconsistent_counts(share) if "went out" in x]


def test_2_seeds_with_groups_break_no_promise() -> None:
    lines = run_sim("--groups", "--seed", "1000", "--seeds", "2")
    assert len(lines) == 2
    assert all(line.endswith(" ok") for line in lines)
    assert all("member-" in line for line in lines)


def test_groups_go_on_within_3_s_after_another_node_has_read_their_log() -> None:
    (line,) = run_sim("--kills", "3", "--seed", "1")
    assert line.endswith(" ok")
    assert "killed=3" in line
    assert int(line.split("slowest-ms=")[1].split()[0]) < 3000


@pytest.mark.parametrize("bug", list(SEEDED_FAULTS) if os.environ.get("OTTLA_PLANTS") else CI_FAULTS)
def test_a_bug_planted_in_groups_is_found(bug: str) -> None:
    run_module("sim.tests.seeded_faults.seeded_groups", bug)
