"""Leader elections on request and by the controller (R-267, R-288, R-293)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.control import elect_leaders
from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.tests.test_controller_state_machine import create, machine, publish, send_heartbeat, submit
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopicConfig
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.wire.messages.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord

PREFERRED, UNCLEAN = 0, 1


def led(
    leader: int = 2, isr: tuple[int, ...] = (1, 2, 3), *, unclean: str = "false", topics: int = 1
) -> ControllerStateMachine:
    """Return brokers 1 to 3 with topics ``t0``, ... on all of them, with the given leader and ISR."""
    out = machine(3)
    for number in range(topics):
        create(
            out,
            f"t{number}",
            -1,
            -1,
            assignments=[CreatableReplicaAssignment(0, [1, 2, 3])],
            configs=[CreatableTopicConfig("unclean.leader.election.enable", unclean)],
        )
        topic = out.image.topics[f"t{number}"]
        offset = out.image.offset + 1
        out.replay(offset, PartitionChangeRecord(0, topic.id, list(isr), leader))
        publish(out, offset)
    return out


def leader(controller: ControllerStateMachine, topic: str = "t0") -> tuple[int, int, tuple[int, ...], int]:
    p = controller.image.topics[topic].partitions[0]
    return p.leader, p.leader_epoch, p.isr, p.recovering


def elect(controller: ControllerStateMachine, kind: int, *named: tuple[str, list[int]]) -> list[tuple[Any, ...]]:
    requested = [TopicPartitions(*n) for n in named] if named else None
    answer = submit(controller, ElectLeadersRequest(kind, requested), 2)
    assert answer.error_code == 0
    return [
        (t.topic, p.partition_id, p.error_code, p.error_message)
        for t in answer.replica_election_results
        for p in t.partition_result
    ]


NOT_NEEDED = (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
NO_PREFERRED = (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
NO_ELIGIBLE = (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
DONE = (0, None)
ROWS: list[tuple[str, int, int, tuple[int, ...], list[int], tuple[Any, Any], tuple[int, int]]] = [
    # name, election type, leader, ISR, fenced brokers, expected error, (leader, recovering) after it
    ("first replica leads", PREFERRED, 1, (1, 2, 3), [], NOT_NEEDED, (1, 0)),
    ("another replica leads", PREFERRED, 2, (1, 2, 3), [], DONE, (1, 0)),
    ("first replica not in sync", PREFERRED, 2, (2, 3), [], NO_PREFERRED, (2, 0)),
    ("no leader: another replica in sync", PREFERRED, -1, (3,), [], DONE, (3, 0)),
    ("unclean: has a leader", UNCLEAN, 2, (2,), [], NOT_NEEDED, (2, 0)),
    ("unclean: no leader, one in sync", UNCLEAN, -1, (3,), [], DONE, (3, 0)),
    ("unclean: no leader, none in sync", UNCLEAN, -1, (), [], DONE, (1, 1)),
    ("unclean: all fenced", UNCLEAN, -1, (), [1, 2, 3], NO_ELIGIBLE, (-1, 0)),
]


@pytest.mark.behaviour("R-293")
@pytest.mark.parametrize(("case", "kind", "leads", "isr", "fenced", "answer", "after"), ROWS, ids=[r[0] for r in ROWS])
def test_elect_leaders_elects_only_if_needed_and_possible(
    case: str, kind: int, leads: int, isr: tuple[int, ...], fenced: list[int], answer: Any, after: tuple[int, int]
) -> None:
    controller = led(leads, isr)
    offset = controller.image.offset
    for i in fenced:
        controller.replay(
            offset + 1, BrokerRegistrationChangeRecord(i, controller.image.brokers[i].broker_epoch, fenced=1)
        )
    publish(controller, offset + 1)
    epoch = leader(controller)[1]
    assert elect(controller, kind, ("t0", [0])) == [("t0", 0, *answer)]
    now = leader(controller)
    assert (now[0], now[3]) == after
    assert now[1] == epoch + (answer == DONE)
    if after[1]:
        assert now[2] == (after[0],)


@pytest.mark.behaviour("R-293")
def test_elect_leaders_unknown_partition_returns_error() -> None:
    rows = elect(led(), PREFERRED, ("t0", [1]), ("x", [0]))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rows == [("t0", 1, unknown, "No such partition as t0-1"), ("x", 0, unknown, "No such topic as x")]


@pytest.mark.behaviour("R-293")
def test_elect_leaders_all_partitions_omits_rows_without_election() -> None:
    controller = led(topics=3)
    elect(controller, PREFERRED, ("t1", [0]))
    assert elect(controller, PREFERRED) == [("t0", 0, 0, None), ("t2", 0, 0, None)]
    answer = submit(controller, ElectLeadersRequest(PREFERRED, None), 2)
    assert [(r.topic, r.partition_result) for r in answer.replica_election_results] == [
        (f"t{n}", []) for n in range(3)
    ], "topics are listed without rows"


@pytest.mark.behaviour("R-293")
def test_elect_leaders_unknown_election_type_fails_every_row() -> None:
    answer = submit(led(), ElectLeadersRequest(2, [TopicPartitions("t0", [0, 1])]), 2)
    why = (ErrorCode.INVALID_REQUEST, "Unknown election type 2")
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert [(r.error_code, r.error_message) for r in answer.replica_election_results[0].partition_result] == [why] * 2
    assert submit(led(), ElectLeadersRequest(2, []), 2) == ElectLeadersResponse(), "empty request"


@pytest.mark.behaviour("R-263")
def test_elect_leaders_above_record_limit_returns_policy_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elect_leaders, "MAX_RECORDS_PER_REQUEST", 2)
    controller = led(topics=3)
    named = [TopicPartitions(f"t{n}", [0]) for n in range(3)]
    answer = submit(controller, ElectLeadersRequest(PREFERRED, named), 2)
    assert answer.error_code == ErrorCode.POLICY_VIOLATION
    assert [r.partition_result[0].error_code for r in answer.replica_election_results] == [answer.error_code] * 3
    assert leader(controller)[0] == 2


def sweep(controller: ControllerStateMachine, steps: ControllerResultSteps) -> bool:
    offset = controller.image.offset + 1
    decision: ControllerResult = run_to_end(steps)
    for number, record in enumerate(decision.records):
        controller.replay(offset + number, record)
    publish(controller, offset + len(decision.records) - 1)
    return bool(decision.response)


@pytest.mark.behaviour("R-267", "P-54")
def test_balance_partition_leaders_elects_preferred_in_sync_leaders() -> None:
    controller = led(topics=2)
    send_heartbeat(controller, 1, want_fence=True)
    assert not sweep(controller, elect_leaders.balance_partition_leaders(controller.image, {}))
    assert leader(controller)[0] == 2, "1 is not in sync"
    for number in range(2):
        topic = controller.image.topics[f"t{number}"]
        offset = controller.image.offset + 1
        controller.replay(offset, PartitionChangeRecord(0, topic.id, [2, 3, 1], -2))
        publish(controller, offset)
    send_heartbeat(controller, 1)
    assert not sweep(controller, elect_leaders.balance_partition_leaders(controller.image, {}))
    assert [leader(controller, f"t{n}")[0] for n in range(2)] == [1, 1]


@pytest.mark.behaviour("R-267")
def test_balance_partition_leaders_elects_limited_number_per_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elect_leaders, "MAX_ELECTIONS_PER_RUN", 2)
    controller = led(topics=3)
    assert sweep(controller, elect_leaders.balance_partition_leaders(controller.image, {}))
    assert [leader(controller, f"t{n}")[0] for n in range(3)] == [1, 1, 2]
    assert not sweep(controller, elect_leaders.balance_partition_leaders(controller.image, {}))
    assert leader(controller, "t2")[0] == 1


@pytest.mark.behaviour("R-267")
@pytest.mark.parametrize(("unclean", "after"), [("true", 1), ("false", -1)])
def test_elect_unclean_leaders_requires_topic_config(unclean: str, after: int) -> None:
    controller = led(-1, (), unclean=unclean)
    assert not sweep(controller, elect_leaders.elect_unclean_leaders(controller.image, {}))
    assert leader(controller)[0] == after
    assert not run_to_end(elect_leaders.elect_unclean_leaders(led(2, unclean="true").image, {})).records, (
        "the partition has a leader"
    )
