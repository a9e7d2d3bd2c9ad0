"""When a refused probe ends a broker's lease."""

from __future__ import annotations

import errno

import pytest

from ottla.controller.control.fast_fencing import BrokerConnectionRefused, BrokerProbes, is_connection_refused
from ottla.controller.control.tests.test_broker_heartbeat_tracker import again, epoch_of, heard
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.tests.test_controller_state_machine import create, machine, publish, register, send_heartbeat
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableReplicaAssignment


def serving() -> ControllerStateMachine:
    """Brokers 1 and 2 share a topic that 1 leads; both were heard at 1,000 and reached."""
    controller = machine(2)
    create(controller, "t", -1, -1, assignments=[CreatableReplicaAssignment(0, [1, 2])])
    for broker in (1, 2):
        heard(controller, broker, 1_000)
        controller.probes.record_reached(broker, epoch_of(controller, broker))
    return controller


def refused(controller: ControllerStateMachine, at_ms: float, epoch: int | None = None, broker: int = 1) -> bool:
    """A probe that began then was refused: whether the broker is fenced for it."""
    offset = controller.image.offset + 1
    gone = BrokerConnectionRefused(broker, epoch_of(controller, broker) if epoch is None else epoch, at_ms)
    decision = run_to_end(controller.decide(gone, 0, offset, at_ms + 5))  # type: ignore[arg-type]
    for number, record in enumerate(decision.records):
        controller.replay(offset + number, record)
    publish(controller, offset + len(decision.records) - 1)
    return bool(decision.response)


def test_who_refuses_after_it_was_heard_last_is_fenced_and_others_lead() -> None:
    controller = serving()
    assert refused(controller, 1_000)
    assert controller.image.brokers[1].fenced
    assert controller.image.topics["t"].partitions[0].leader == 2
    assert again(controller, 1_001) == ErrorCode.NONE, "it may come back at once"
    offset = controller.image.offset
    assert not refused(controller, 1_002), "once is enough"
    assert controller.image.offset == offset


def test_whoever_was_heard_since_the_probe_began_lives() -> None:
    controller = serving()
    heard(controller, 1, 2_001)
    assert not refused(controller, 2_000)
    assert not controller.image.brokers[1].fenced


def test_a_refusal_counts_only_where_this_process_was_reached_before() -> None:
    controller = serving()
    former = epoch_of(controller, 1)
    assert send_heartbeat(controller, 1, want_fence=True, want_shut_down=True).should_shut_down
    register(controller, 1)
    heard(controller, 1, 3_000)
    assert not refused(controller, 4_000), "it may not listen yet"
    assert not refused(controller, 4_000, epoch=former), "that process is none of the cluster's any more"
    controller.probes.record_reached(1, epoch_of(controller, 1))
    assert refused(controller, 4_000)


def test_a_broker_nobody_knows_is_not_fenced() -> None:
    controller = serving()
    controller.probes.record_reached(9, 9)
    assert not refused(controller, 4_000, epoch=9, broker=9)


def test_a_new_active_controller_may_end_leases_it_has_just_given() -> None:
    controller = serving()
    controller.activate(5_000)
    assert refused(controller, 5_000)


def test_who_serves_is_probed_until_it_is_reached() -> None:
    controller = machine(3)
    send_heartbeat(controller, 2, want_fence=True)
    probes = BrokerProbes()
    assert probes.brokers_to_probe(controller.image) == [1, 3]
    probes.record_reached(3, epoch_of(controller, 3))
    assert probes.brokers_to_probe(controller.image) == [1]
    register(controller, 3)
    assert probes.brokers_to_probe(controller.image) == [1, 3], "a new process"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "no"), True),
        (OSError(errno.EHOSTUNREACH, "no"), False),
        (TimeoutError(), False),
    ],
)
def test_only_a_refusal_is_one(error: OSError, expected: bool) -> None:
    assert is_connection_refused(error) == expected
