"""Broker sessions and periodic tasks of the controller (R-267, R-269, R-275 to R-277)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.control import elect_leaders
from ottla.controller.control.broker_heartbeat_tracker import BrokerHeartbeatTracker
from ottla.controller.control.controller_result import ControllerDefaults, ControllerResult
from ottla.controller.control.tests.test_broker_registration import request
from ottla.controller.control.tests.test_elect_leaders import leader, led
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.periodic_tasks import (
    BALANCE_LEADERS,
    ELECT_UNCLEAN_LEADERS,
    FENCE_STALE_BROKERS,
    PERIODIC_TASKS,
    WRITE_NO_OP_RECORD,
    PeriodicTask,
)
from ottla.controller.tests.test_controller_state_machine import create, machine, publish, send_heartbeat
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.create_topics import CreatableReplicaAssignment
from ottla.wire.messages.metadata_records import PartitionChangeRecord

SESSION = 9_000


def epoch_of(controller: ControllerStateMachine, broker: int) -> int:
    return controller.image.brokers[broker].broker_epoch


def touch_session(controller: ControllerStateMachine, broker: int, now_ms: float) -> None:
    controller.heartbeat_tracker.touch(broker, epoch_of(controller, broker), now_ms)


def next_expired(controller: ControllerStateMachine, now_ms: float) -> int | None:
    return controller.heartbeat_tracker.next_expired_broker(controller.image, now_ms)


@pytest.mark.behaviour("R-276")
def test_broker_session_expires_after_last_heartbeat() -> None:
    controller = machine(2)
    assert next_expired(controller, 10**9) is None, "registration starts no session"
    touch_session(controller, 1, 1_000)
    touch_session(controller, 2, 1_500)
    touch_session(controller, 1, 3_000)
    rows = [(now, next_expired(controller, now)) for now in (10_500, 10_501, 12_000)]
    assert rows == [(10_500, None), (10_501, 2), (12_000, 2)]
    touch_session(controller, 2, 12_000)
    assert [next_expired(controller, now) for now in (12_000, 12_001)] == [None, 1]


@pytest.mark.behaviour("R-276")
def test_heartbeat_with_other_epoch_does_not_extend_session() -> None:
    controller = machine(2)
    touch_session(controller, 1, 0)
    controller.heartbeat_tracker.touch(1, epoch_of(controller, 1) - 1, 8_000)
    controller.heartbeat_tracker.touch(7, 3, 0)
    assert next_expired(controller, SESSION + 1) == 1
    assert controller.heartbeat_tracker.last_contact_ms(7, 3) == 0, "ordered by first heartbeat"
    touch_session(controller, 1, SESSION)
    assert next_expired(controller, SESSION + 1) is None
    assert controller.heartbeat_tracker.last_contact_ms(7, 3) is None, "unknown broker epoch"


@pytest.mark.behaviour("R-277")
def test_fenced_broker_has_no_session() -> None:
    controller = machine(2)
    touch_session(controller, 1, 0)
    send_heartbeat(controller, 1, want_fence=True)
    assert next_expired(controller, SESSION + 1) is None
    assert controller.heartbeat_tracker.last_contact_ms(1, epoch_of(controller, 1)) is None


@pytest.mark.behaviour("R-277")
def test_activate_starts_full_session_for_each_unfenced_broker() -> None:
    controller = machine(3)
    send_heartbeat(controller, 2, want_fence=True)
    controller.heartbeat_tracker.touch(9, 9, 0)
    controller.activate(5_000)
    found = [controller.heartbeat_tracker.last_contact_ms(i, epoch_of(controller, i)) for i in (1, 2, 3)]
    assert found == [5_000, None, 5_000]
    assert controller.heartbeat_tracker.last_contact_ms(9, 9) is None
    controller.activate(6_000, own=3)
    assert controller.heartbeat_tracker.last_contact_ms(3, epoch_of(controller, 3)) is None, (
        "the former process has ended"
    )
    assert controller.heartbeat_tracker.last_contact_ms(1, epoch_of(controller, 1)) == 6_000


def register_again(controller: ControllerStateMachine, now_ms: float, broker: int = 1, **values: Any) -> ErrorCode:
    """Return the error code of a broker's registration at a given time."""
    decided = controller.decide(request(broker, **values), 4, controller.image.offset + 1, now_ms)
    return ErrorCode(run_to_end(decided).response.error_code)  # type: ignore[arg-type]


@pytest.mark.behaviour("R-269")
def test_registration_of_active_broker_id_returns_duplicate_broker_registration() -> None:
    controller = machine()
    assert register_again(controller, 0) == ErrorCode.NONE, "no heartbeat since registration"
    touch_session(controller, 1, 0)
    assert register_again(controller, SESSION) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert register_again(controller, SESSION + 1) == ErrorCode.NONE
    same = controller.image.brokers[1].incarnation_id
    assert register_again(controller, 0, incarnation_id=same) == ErrorCode.NONE, "same incarnation id"
    assert register_again(controller, 0, cluster_id="x") == ErrorCode.INCONSISTENT_CLUSTER_ID, (
        "cluster id is checked first"
    )
    assert register_again(controller, 0, log_dirs=[]) == ErrorCode.DUPLICATE_BROKER_REGISTRATION, (
        "log directories are checked last"
    )


def test_registration_after_controlled_shutdown_is_accepted_at_once() -> None:
    controller = machine()
    touch_session(controller, 1, 0)
    assert send_heartbeat(controller, 1, want_shut_down=True).should_shut_down
    assert register_again(controller, 1) == ErrorCode.NONE


@pytest.mark.behaviour("R-275")
def test_controlled_shutdown_resumes_after_controller_change_without_second_record() -> None:
    controller = machine(2)
    create(controller, "t", -1, -1, assignments=[CreatableReplicaAssignment(0, [1, 2])])
    send_heartbeat(controller, 1, want_shut_down=True)
    assert controller.image.brokers[1].in_controlled_shutdown
    topic = controller.image.topics["t"]
    offset = controller.image.offset + 1
    controller.replay(
        offset, PartitionChangeRecord(0, topic.id, [1, 2], 1)
    )  # as if a part of the shutdown had been lost
    publish(controller, offset)
    controller.activate(0)
    assert not send_heartbeat(controller, 1).should_shut_down, "no shutdown request at this controller"
    epoch = epoch_of(controller, 1)
    decided = controller.decide(BrokerHeartbeatRequest(1, epoch, offset, False, True), 1, offset + 1)
    records = run_to_end(decided).records  # type: ignore[arg-type]
    assert [type(r) for r in records] == [PartitionChangeRecord]
    assert controller.heartbeat_state.controlled_shutdown_offsets == {1: offset + 1}


def run_task(controller: ControllerStateMachine, task: PeriodicTask, now_ms: float = 0) -> tuple[bool, list[str]]:
    """Run a periodic task and apply its records; return its response and the record types."""
    offset = controller.image.offset + 1
    decided = controller.decide(task, 0, offset, now_ms)
    decision = decided if isinstance(decided, ControllerResult) else run_to_end(decided)
    for number, record in enumerate(decision.records):
        controller.replay(offset + number, record)
    publish(controller, offset + len(decision.records) - 1)
    return decision.response, [type(r).__name__ for r in decision.records]


@pytest.mark.behaviour("R-267")
def test_fence_stale_brokers_fences_one_broker_per_run() -> None:
    controller = machine(3)
    create(controller, "t", -1, -1, assignments=[CreatableReplicaAssignment(0, [1, 2, 3])])
    for broker in (1, 2, 3):
        touch_session(controller, broker, 0 if broker < 3 else 5_000)
    assert run_task(controller, FENCE_STALE_BROKERS, SESSION) == (False, [])
    changed = ["PartitionChangeRecord", "BrokerRegistrationChangeRecord"]
    because = "because its session has timed out"
    epochs = {i: broker.broker_epoch for i, broker in controller.image.brokers.items()}
    first, second = (f"Fencing broker {i} at epoch {epochs[i]} {because}" for i in (1, 2))
    assert run_task(controller, FENCE_STALE_BROKERS, SESSION + 1) == (first, changed)
    assert [b.fenced for b in controller.image.brokers.values()] == [True, False, False]
    assert run_task(controller, FENCE_STALE_BROKERS, SESSION + 1) == (second, changed)
    assert leader(controller, "t")[0] == 3
    assert run_task(controller, FENCE_STALE_BROKERS, SESSION + 1) == (False, [])


@pytest.mark.behaviour("R-267")
def test_write_no_op_record_writes_one_record() -> None:
    assert run_task(machine(), WRITE_NO_OP_RECORD) == (False, ["NoOpRecord"])


@pytest.mark.behaviour("R-267")
def test_leader_balancing_and_unclean_election_tasks_change_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elect_leaders, "MAX_ELECTIONS_PER_RUN", 1)
    controller = led(2, topics=2)
    assert run_task(controller, BALANCE_LEADERS) == (True, ["PartitionChangeRecord"])
    assert run_task(controller, BALANCE_LEADERS) == (True, ["PartitionChangeRecord"])
    assert run_task(controller, BALANCE_LEADERS) == (False, [])
    assert run_task(led(-1, (), unclean="true"), ELECT_UNCLEAN_LEADERS) == (True, ["PartitionChangeRecord"])


EVERY = [
    ({}, (500, 1_125, 300_000, 300_000)),
    ({"metadata.max.idle.interval.ms": "0"}, (0, 1_125, 300_000, 300_000)),
    ({"broker.session.timeout.ms": "6000"}, (500, 750, 300_000, 300_000)),
    ({"broker.session.timeout.ms": "7"}, (500, 1, 300_000, 300_000)),
    ({"auto.leader.rebalance.enable": "FALSE"}, (500, 1_125, 0, 300_000)),
    ({"leader.imbalance.check.interval.seconds": "7"}, (500, 1_125, 7_000, 300_000)),
    ({"unclean.leader.election.interval.ms": "8"}, (500, 1_125, 300_000, 8)),
]


@pytest.mark.behaviour("R-267")
@pytest.mark.parametrize(("static", "every"), EVERY)
def test_periodic_tasks_have_configured_periods(static: dict[str, str], every: tuple[int, ...]) -> None:
    assert PERIODIC_TASKS[:4] == (WRITE_NO_OP_RECORD, FENCE_STALE_BROKERS, BALANCE_LEADERS, ELECT_UNCLEAN_LEADERS)
    assert tuple(task.period_ms(static) for task in PERIODIC_TASKS[:4]) == every


def test_broker_session_timeout_is_configurable() -> None:
    assert BrokerHeartbeatTracker().session_ms == SESSION
    assert (
        ControllerStateMachine(
            ControllerDefaults(static_config={"broker.session.timeout.ms": "70"}), lambda: b""
        ).heartbeat_tracker.session_ms
        == 70
    )
    tracker = BrokerHeartbeatTracker(100)
    tracker.touch(1, 1, 0)
    assert [tracker.has_valid_session(1, 1, now) for now in (100, 101)] == [True, False]
