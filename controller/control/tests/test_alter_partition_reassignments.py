"""AlterPartitionReassignments and ListPartitionReassignments at the controller (R-284, R-294 to R-298)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.control import alter_partition_reassignments
from ottla.controller.control.controller_result import ControllerResult
from ottla.controller.control.tests.test_alter_partition import alter_partition
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.directory_id import UNASSIGNED
from ottla.controller.metadata.image import PartitionRegistration
from ottla.controller.tests.test_controller_state_machine import (
    create,
    directory,
    machine,
    register,
    send_heartbeat,
    submit,
)
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)
from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopicConfig
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from ottla.wire.messages.metadata_records import PartitionChangeRecord


def three(brokers: int = 5, **settings: str) -> ControllerStateMachine:
    """Return a controller with brokers 1 to 5 and topic ``t`` on 1, 2, 3."""
    out = machine(brokers)
    configs = [CreatableTopicConfig(k.replace("_", "."), v) for k, v in settings.items()]
    create(out, "t", -1, -1, assignments=[CreatableReplicaAssignment(0, [1, 2, 3])], configs=configs)
    return out


def part(controller: ControllerStateMachine) -> PartitionRegistration:
    return controller.image.topics["t"].partitions[0]


def shape(controller: ControllerStateMachine) -> tuple[Any, ...]:
    p = part(controller)
    return p.replicas, p.adding, p.removing, p.isr, p.leader


def move(
    controller: ControllerStateMachine, *replicas: int, topic: str = "t", number: int = 0, keep: bool = False
) -> ReassignablePartitionResponse:
    return reassign_row(controller, list(replicas), topic, number, keep)


def reassign_row(
    controller: ControllerStateMachine,
    replicas: list[int] | None,
    topic: str = "t",
    number: int = 0,
    keep: bool = False,
) -> ReassignablePartitionResponse:
    """Return the row of the response; the response itself has no error."""
    rows = [ReassignableTopic(topic, [ReassignablePartition(number, replicas)])]
    answer = submit(controller, AlterPartitionReassignmentsRequest(1000, not keep, rows), 1)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.allow_replication_factor_change == (not keep)
    assert answer.responses[0].name == topic
    row: ReassignablePartitionResponse = answer.responses[0].partitions[0]
    return row


def test_reassignment_adds_replicas_and_completes_when_they_are_in_sync() -> None:
    controller = three()
    before = part(controller)
    row = move(controller, 5, 4, 3)
    assert (row.partition_index, row.error_code, row.error_message) == (0, 0, None)
    assert shape(controller) == ((5, 4, 3, 1, 2), (4, 5), (1, 2), (1, 2, 3), 1)
    now = part(controller)
    assert (now.leader_epoch, now.partition_epoch) == (before.leader_epoch, before.partition_epoch + 1), (
        "no replica was removed"
    )
    assert now.directories == tuple(directory(i) for i in (5, 4, 3, 1, 2))
    assert alter_partition(controller, isr=(1, 2, 3, 4)).error_code == 0
    assert shape(controller)[:3] == ((5, 4, 3, 1, 2), (4, 5), (1, 2))
    row_of_leader = alter_partition(controller, isr=(1, 2, 3, 4, 5))
    assert row_of_leader.error_code == ErrorCode.NEW_LEADER_ELECTED, "the leader completes the reassignment and resigns"
    assert shape(controller) == ((5, 4, 3), (), (), (3, 4, 5), 5)
    assert part(controller).directories == tuple(directory(i) for i in (5, 4, 3))
    assert part(controller).leader_epoch == now.leader_epoch + 1


@pytest.mark.behaviour("R-284")
def test_completed_reassignment_bumps_epoch_of_same_leader() -> None:
    controller = three()
    move(controller, 1, 2, 4)
    before = part(controller)
    row = alter_partition(controller, isr=(1, 2, 3, 4))
    assert (row.error_code, row.leader_id, row.leader_epoch) == (0, 1, before.leader_epoch + 1)
    assert shape(controller) == ((1, 2, 4), (), (), (1, 2, 4), 1)


@pytest.mark.behaviour("R-295")
def test_reassignment_to_other_order_is_immediate_and_keeps_leader() -> None:
    controller = three()
    before = part(controller)
    assert move(controller, 3, 1, 2).error_code == 0
    assert shape(controller) == ((3, 1, 2), (), (), (1, 2, 3), 1)
    assert part(controller).leader_epoch == before.leader_epoch
    offset = controller.image.offset
    assert move(controller, 3, 1, 2).error_code == 0
    assert controller.image.offset == offset, "no record for an unchanged assignment"


def test_reassignment_to_fewer_in_sync_replicas_is_immediate() -> None:
    controller = three()
    move(controller, 2, 3)
    assert shape(controller) == ((2, 3), (), (), (2, 3), 2)


def test_reassignment_completes_when_awaited_replica_is_in_sync() -> None:
    """R-296: evaluated at each change of the partition."""
    controller = three()
    assert alter_partition(controller, isr=(1, 3)).error_code == 0
    move(controller, 2, 3)
    assert shape(controller)[:3] == ((2, 3, 1), (), (1,)), "2 is not in sync"
    send_heartbeat(controller, 1, want_fence=True)
    assert shape(controller) == ((2, 3, 1), (), (1,), (3,), 3), "3 is not in sync"
    assert alter_partition(controller, sender=3, isr=(3, 2)).error_code == 0
    assert shape(controller) == ((2, 3), (), (), (3, 2), 3)


def test_reassignment_to_broker_with_several_directories_is_unassigned() -> None:
    controller = three()
    register(controller, 4, directory(40))
    move(controller, 1, 2, 3, 4)
    assert part(controller).directories == (directory(1), directory(2), directory(3), UNASSIGNED)


WRONG: list[tuple[str, dict[str, Any], ErrorCode, str | None]] = [
    ("no topic", {"topic": "u"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named u."),
    ("no partition", {"number": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:7."),
    ("nothing to cancel", {}, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
    ("empty", {"replicas": []}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list"),
    ("twice", {"replicas": [1, 2, 2]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "more than once"),
    ("unknown", {"replicas": [1, 9]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker is registered"),
    ("more", {"replicas": [1, 2, 3, 4], "keep": True}, ErrorCode.INVALID_REPLICATION_FACTOR, "changed from 3 to 4"),
    ("wrong before more", {"replicas": [1, 9], "keep": True}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "registered"),
]


@pytest.mark.behaviour("R-294")
@pytest.mark.parametrize(("name", "fields", "code", "why"), WRONG, ids=[w[0] for w in WRONG])
def test_alter_partition_reassignments_invalid_row_returns_error(
    name: str, fields: dict[str, Any], code: ErrorCode, why: str | None
) -> None:
    controller = three()
    before = part(controller)
    row = reassign_row(controller, **{"replicas": None, **fields})
    assert row.error_code == code
    assert row.error_message is None if why is None else why in (row.error_message or "")
    assert part(controller) == before


@pytest.mark.behaviour("R-294")
def test_alter_partition_reassignments_replication_factor_counts_target_replicas() -> None:
    controller = three()
    move(controller, 1, 2, 4, 5)
    assert shape(controller)[:3] == ((1, 2, 4, 5, 3), (4, 5), (3,))
    assert move(controller, 1, 2, 4, keep=True).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(controller, 5, 4, 2, 1, keep=True).error_code == 0


@pytest.mark.behaviour("R-294")
def test_alter_partition_reassignments_to_fenced_broker_is_accepted() -> None:
    controller = three()
    send_heartbeat(controller, 4, want_fence=True)
    assert move(controller, 1, 2, 4).error_code == 0
    assert shape(controller)[:3] == ((1, 2, 4, 3), (4,), (3,))


@pytest.mark.behaviour("R-294")
def test_alter_partition_reassignments_without_topics_returns_empty_response() -> None:
    answer = submit(three(), AlterPartitionReassignmentsRequest(1000, False, []), 1)
    assert answer == AlterPartitionReassignmentsResponse()


@pytest.mark.behaviour("R-297")
def test_cancelled_reassignment_restores_replicas_and_bumps_leader_epoch() -> None:
    controller = three()
    move(controller, 1, 4, 5)
    alter_partition(controller, isr=(1, 2, 3, 4))
    before = part(controller)
    assert reassign_row(controller, None).error_code == 0
    assert shape(controller) == ((1, 2, 3), (), (), (1, 2, 3), 1)
    assert part(controller).leader_epoch == before.leader_epoch + 1, "new epoch for the removed replicas 4 and 5"


def with_only_added_replica_in_sync(unclean: str) -> ControllerStateMachine:
    """Return a reassignment from 1, 2, 3 to 1, 2, 4, 5 with only 4 in sync."""
    controller = three(unclean_leader_election_enable=unclean)
    move(controller, 1, 2, 4, 5)
    alter_partition(controller, isr=(1, 4))
    send_heartbeat(controller, 1, want_fence=True)
    assert shape(controller) == ((1, 2, 4, 5, 3), (4, 5), (3,), (4,), 4)
    return controller


@pytest.mark.behaviour("R-297")
def test_cancel_with_only_added_replica_in_sync_requires_unclean_election() -> None:
    row = reassign_row(with_only_added_replica_in_sync("false"), None)
    assert row.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "would require an unclean leader election" in (row.error_message or "")
    controller = with_only_added_replica_in_sync("true")
    assert reassign_row(controller, None).error_code == 0
    p = part(controller)
    assert (p.replicas, p.adding, p.removing, p.leader, p.recovering) == ((1, 2, 3), (), (), 2, 1)
    assert p.isr == (2,), "1 is fenced, 2 remains in sync"


def test_alter_partition_reassignments_above_record_limit_fails_remaining_rows() -> None:
    controller = machine(2)
    rows = [CreatableReplicaAssignment(n, [1]) for n in range(3)]
    create(controller, "t", -1, -1, assignments=rows)
    partitions = [ReassignablePartition(n, [2]) for n in range(3)]
    request = AlterPartitionReassignmentsRequest(1000, True, [ReassignableTopic("t", partitions)])
    limit, alter_partition_reassignments.MAX_RECORDS_PER_REQUEST = (
        alter_partition_reassignments.MAX_RECORDS_PER_REQUEST,
        2,
    )
    try:
        decision = run_to_end(controller.decide(request, 1))  # type: ignore[arg-type]
    finally:
        alter_partition_reassignments.MAX_RECORDS_PER_REQUEST = limit
    assert isinstance(decision, ControllerResult)
    assert len(decision.records) == 2
    assert [r.error_code for r in decision.response.responses[0].partitions] == [0, 0, -1]


def listed(controller: ControllerStateMachine, *topics: tuple[str, list[int]]) -> list[tuple[Any, ...]]:
    requested = [ListPartitionReassignmentsTopics(*t) for t in topics] if topics else None
    answer = submit(controller, ListPartitionReassignmentsRequest(1000, requested), 0)
    assert (answer.error_code, answer.error_message) == (0, None)
    return [
        (t.name, p.partition_index, p.replicas, p.adding_replicas, p.removing_replicas)
        for t in answer.topics
        for p in t.partitions
    ]


@pytest.mark.behaviour("R-298")
def test_list_partition_reassignments_returns_active_reassignments() -> None:
    controller = three()
    create(controller, "s", 2)
    assert listed(controller) == []
    move(controller, 1, 2, 4)
    row = ("t", 0, [1, 2, 4, 3], [4], [3])
    assert listed(controller) == [row]
    assert listed(controller, ("t", [0, 1]), ("s", [0]), ("x", [0])) == [row]
    assert listed(controller, ("t", [1])) == []
    empty = submit(controller, ListPartitionReassignmentsRequest(1000, []), 0)
    assert empty == ListPartitionReassignmentsResponse(error_message=None)


@pytest.mark.behaviour("R-298")
def test_list_partition_reassignments_excludes_uncommitted_changes() -> None:
    controller = three()
    topic = controller.image.topics["t"]
    controller.replay(99, PartitionChangeRecord(0, topic.id, replicas=[1, 2, 3, 4], adding_replicas=[4], leader=-2))
    run_to_end(controller.complete_append(99, 1))
    decision = run_to_end(controller.decide(ListPartitionReassignmentsRequest(1000, None)))  # type: ignore[arg-type]
    assert decision.response.topics == []
