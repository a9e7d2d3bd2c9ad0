"""Fencing of a broker after a refused connection."""

from __future__ import annotations

import errno

import pytest

from ottla.controller.control.fast_fencing import BrokerConnectionRefused, BrokerProbes, is_connection_refused
from ottla.controller.control.tests.test_broker_heartbeat_tracker import epoch_of, register_again, touch_session
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.tests.test_controller_state_machine import create, machine, publish, register, send_heartbeat
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableReplicaAssignment


def serving() -> ControllerStateMachine:
    """Return a controller with brokers 1 and 2, a topic led by 1, and sessions and probes of both at 1,000."""
    controller = machine(2)
    create(controller, "t", -1, -1, assignments=[CreatableReplicaAssignment(0, [1, 2])])
    for broker in (1, 2):
        touch_session(controller, broker, 1_000)
        controller.probes.record_reached(broker, epoch_of(controller, broker))
    return controller


def refused(controller: ControllerStateMachine, at_ms: float, epoch: int | None = None, broker: int = 1) -> bool:
    """Apply a refused connection; return True if the broker was fenced for it."""
    offset = controller.image.offset + 1
    gone = BrokerConnectionRefused(broker, epoch_of(controller, broker) if epoch is None else epoch, at_ms)
    decision = run_to_end(controller.decide(gone, 0, offset, at_ms + 5))  # type: ignore[arg-type]
    for number, record in enumerate(decision.records):
        controller.replay(offset + number, record)
    publish(controller, offset + len(decision.records) - 1)
    return bool(decision.response)


def test_connection_refused_after_last_heartbeat_fences_broker() -> None:
    controller = serving()
    assert refused(controller, 1_000)
    assert controller.image.brokers[1].fenced
    assert controller.image.topics["t"].partitions[0].leader == 2
    assert register_again(controller, 1_001) == ErrorCode.NONE, "registration is accepted at once"
    offset = controller.image.offset
    assert not refused(controller, 1_002), "a second refusal is ignored"
    assert controller.image.offset == offset


def test_connection_refused_before_later_heartbeat_is_ignored() -> None:
    controller = serving()
    touch_session(controller, 1, 2_001)
    assert not refused(controller, 2_000)
    assert not controller.image.brokers[1].fenced


def test_connection_refused_requires_earlier_reached_incarnation() -> None:
    controller = serving()
    former = epoch_of(controller, 1)
    assert send_heartbeat(controller, 1, want_fence=True, want_shut_down=True).should_shut_down
    register(controller, 1)
    touch_session(controller, 1, 3_000)
    assert not refused(controller, 4_000), "the listener may not be open yet"
    assert not refused(controller, 4_000, epoch=former), "the former epoch is no longer registered"
    controller.probes.record_reached(1, epoch_of(controller, 1))
    assert refused(controller, 4_000)


def test_connection_refused_unknown_broker_is_ignored() -> None:
    controller = serving()
    controller.probes.record_reached(9, 9)
    assert not refused(controller, 4_000, epoch=9, broker=9)


def test_connection_refused_after_activation_fences_broker() -> None:
    controller = serving()
    controller.activate(5_000)
    assert refused(controller, 5_000)


def test_has_reached_new_registration_of_reached_broker_returns_false() -> None:
    controller, probes = machine(3), BrokerProbes()
    probes.record_reached(3, epoch_of(controller, 3))
    assert probes.has_reached(3, epoch_of(controller, 3))
    register(controller, 3)
    assert not probes.has_reached(3, epoch_of(controller, 3))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "no"), True),
        (OSError(errno.EHOSTUNREACH, "no"), False),
        (TimeoutError(), False),
    ],
)
def test_is_connection_refused_accepts_only_econnrefused(error: OSError, expected: bool) -> None:
    assert is_connection_refused(error) == expected
