"""Broker and controller registration, and heartbeats (R-269 to R-274, R-281 to R-282, R-286, R-290)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.control import broker_heartbeat, broker_registration
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.record_serde import CORDONED_DIRS_MIN_VERSION
from ottla.controller.tests.test_controller_state_machine import (
    assign_directories,
    create,
    directory,
    machine,
    publish,
    register,
    send_heartbeat,
    submit,
)
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import controller_registration
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.wire.messages.create_topics import CreatableReplicaAssignment
from ottla.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest

ID = bytes(13) + b"\x09\x09\x09"


def request(broker: int = 9, **values: Any) -> BrokerRegistrationRequest:
    features = [Feature(name, low, high) for name, (low, high) in broker_registration.SUPPORTED_FEATURES.items()]
    out = BrokerRegistrationRequest(broker, "", ID, [], features, None, log_dirs=[directory(broker)])
    for name, value in values.items():
        setattr(out, name, value)
    return out


def without(*names: str, **ranges: tuple[int, int]) -> list[Feature]:
    known = {**broker_registration.SUPPORTED_FEATURES, **{k.replace("_", "."): v for k, v in ranges.items()}}
    return [Feature(name, low, high) for name, (low, high) in known.items() if name not in names]


ROWS = [
    ({}, ErrorCode.NONE),
    ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
    ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
    ({"log_dirs": [bytes(15) + bytes([99])]}, ErrorCode.INVALID_REGISTRATION),
    ({"log_dirs": [bytes(15) + bytes([100])]}, ErrorCode.NONE),
    ({"log_dirs": [directory(9), directory(9)]}, ErrorCode.INVALID_REGISTRATION),
    ({"log_dirs": [n.to_bytes(16, "big") for n in range(100, 1101)]}, ErrorCode.INVALID_REGISTRATION),
    ({"log_dirs": [n.to_bytes(16, "big") for n in range(100, 1100)]}, ErrorCode.NONE),
    ({"listeners": [Listener(str(n), "h", 9, 0) for n in range(1001)]}, ErrorCode.INVALID_REGISTRATION),
    ({"log_dirs": [directory(9), directory(1)]}, ErrorCode.INVALID_REGISTRATION),
    ({"features": without("metadata.version")}, ErrorCode.INVALID_REGISTRATION),
    ({"features": without(metadata_version=(7, 29))}, ErrorCode.UNSUPPORTED_VERSION),
    ({"features": without(metadata_version=(31, 33))}, ErrorCode.UNSUPPORTED_VERSION),
    ({"features": without(metadata_version=(30, 30))}, ErrorCode.NONE),
    ({"features": without("eligible.leader.replicas.version")}, ErrorCode.UNSUPPORTED_VERSION),
    ({"features": without("kraft.version")}, ErrorCode.UNSUPPORTED_VERSION),
    ({"features": without("group.version")}, ErrorCode.NONE),  # not finalized here
    ({"features": [*without(), Feature("later.version", 3, 5)]}, ErrorCode.NONE),
    ({"cluster_id": "other", "log_dirs": []}, ErrorCode.INCONSISTENT_CLUSTER_ID),
]


@pytest.mark.behaviour("R-269")
@pytest.mark.parametrize(("values", "code"), ROWS)
def test_broker_registration_invalid_returns_error_code(values: dict[str, Any], code: ErrorCode) -> None:
    controller = machine()
    answer = submit(controller, request(**values))
    assert answer.error_code == code
    assert (9 in controller.image.brokers) == (code == ErrorCode.NONE)
    if code != ErrorCode.NONE:
        assert answer.broker_epoch == -1


@pytest.mark.behaviour("R-270")
def test_broker_registration_new_incarnation_is_fenced_with_new_epoch() -> None:
    controller = machine()
    offset = controller.image.offset + 1
    listeners = [Listener("PLAINTEXT", "h", 9, 0)]
    answer = submit(controller, request(listeners=listeners, rack="r"))
    known = controller.image.brokers[9]
    assert answer.broker_epoch == known.broker_epoch == offset
    assert (known.fenced, known.in_controlled_shutdown, known.rack, known.incarnation_id) == (True, False, "r", ID)
    assert [(e.name, e.host, e.port) for e in known.end_points] == [("PLAINTEXT", "h", 9)]
    assert {f.name for f in known.features} == set(broker_registration.SUPPORTED_FEATURES)


@pytest.mark.behaviour("R-271")
def test_broker_registration_same_incarnation_keeps_epoch_and_state() -> None:
    controller = machine()
    epoch = submit(controller, request()).broker_epoch
    send_heartbeat(controller, 9)
    answer = submit(controller, request(log_dirs=[directory(9), directory(8)]))
    known = controller.image.brokers[9]
    assert answer.broker_epoch == known.broker_epoch == epoch
    assert not known.fenced
    assert list(known.log_dirs) == [directory(9), directory(8)]


def led(clean: bool) -> ControllerStateMachine:
    """Return a controller after broker 1, sole leader of a topic, registered with a new incarnation."""
    controller = machine()
    create(controller, "t")
    epoch = controller.image.brokers[1].broker_epoch
    submit(controller, request(1, previous_broker_epoch=epoch if clean else epoch - 1))
    return controller


@pytest.mark.behaviour("R-270", "P-53")
def test_registration_after_unclean_shutdown_removes_broker_from_elr() -> None:
    stopped = led(clean=True).image.topics["t"].partitions[0]
    assert (stopped.leader, stopped.isr, stopped.elr) == (-1, (), (1,))
    lost = led(clean=False).image.topics["t"].partitions[0]
    assert (lost.leader, lost.isr, lost.elr, lost.last_known_elr) == (-1, (), (), (1,))


@pytest.mark.behaviour("R-270")
def test_registration_after_unclean_shutdown_clears_existing_elr() -> None:
    controller = machine()
    create(controller, "t")
    send_heartbeat(controller, 1, want_shut_down=True)
    assert controller.image.topics["t"].partitions[0].elr == (1,)
    submit(controller, request(1, previous_broker_epoch=-1))
    assert controller.image.topics["t"].partitions[0].elr == ()
    send_heartbeat(controller, 1)
    again = controller.image.topics["t"].partitions[0]
    assert (again.leader, again.isr, again.recovering) == (1, (1,), 1), (
        "last known leader is elected in recovering state"
    )


def controllable(state: str) -> ControllerStateMachine:
    """Return a controller with two brokers, broker 1 in the given state and broker 2 active."""
    controller = machine(2)
    if state != "leads nothing":
        placed = [CreatableReplicaAssignment(0, [1, 2])]
        create(controller, "t", assignments=placed, partitions=-1, factor=-1)
    match state:
        case "fenced":
            register(controller, 1, unfence=False)
        case "shutting down":
            send_heartbeat(controller, 1, want_shut_down=True)
        case "shutting down, caught up":
            send_heartbeat(controller, 1, want_shut_down=True)
            send_heartbeat(controller, 2)
        case _:
            pass
    return controller


FAR = 10**6
STATES = [
    # state, wants, (fenced, in controlled shutdown) after, should shut down
    ("fenced", {"want_shut_down": True}, (True, False), True),
    ("fenced", {"want_fence": True, "current_metadata_offset": FAR}, (True, False), False),
    ("fenced", {"current_metadata_offset": 0}, (True, False), False),
    ("fenced", {"current_metadata_offset": FAR}, (False, False), False),
    ("leads", {}, (False, False), False),
    ("leads", {"want_fence": True}, (True, False), False),
    ("leads", {"want_fence": True, "want_shut_down": True}, (True, False), True),
    ("leads", {"want_shut_down": True}, (False, True), False),
    ("leads nothing", {"want_shut_down": True}, (True, False), True),
    ("shutting down", {"want_shut_down": True}, (False, True), False),  # broker 2 has not applied it yet
    ("shutting down, caught up", {"want_shut_down": True}, (True, True), True),
]


@pytest.mark.behaviour("R-273", "P-55", "P-56")
@pytest.mark.parametrize(("state", "wants", "flags", "stops"), STATES)
def test_broker_heartbeat_changes_broker_state(
    state: str, wants: dict[str, Any], flags: tuple[bool, bool], stops: bool
) -> None:
    controller = controllable(state)
    answer = send_heartbeat(controller, 1, **wants)
    known = controller.image.brokers[1]
    assert (known.fenced, known.in_controlled_shutdown) == flags
    assert answer.should_shut_down == stops
    assert answer.is_fenced == known.fenced
    if state == "leads" and wants:
        partition = controller.image.topics["t"].partitions[0]
        assert (partition.leader, partition.isr) == (2, (2,))


def change(epoch: int, **fields: Any) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(1, epoch, **fields)


@pytest.mark.behaviour("R-286")
@pytest.mark.parametrize(
    ("state", "wants", "changed", "first"),
    [
        ("fenced", {"current_metadata_offset": FAR}, {"fenced": -1}, True),
        ("leads", {"want_fence": True}, {"fenced": 1}, False),
        ("leads", {"want_shut_down": True}, {"in_controlled_shutdown": 1}, True),
        ("leads nothing", {"want_shut_down": True}, {"fenced": 1}, False),
    ],
)
def test_broker_heartbeat_orders_registration_and_partition_changes(
    state: str, wants: dict[str, Any], changed: dict[str, int], first: bool
) -> None:
    controller = controllable(state)
    epoch = controller.image.brokers[1].broker_epoch
    decision = run_to_end(controller.decide(BrokerHeartbeatRequest(1, epoch, **wants)))  # type: ignore[arg-type]
    assert decision.records[0 if first else -1] == change(epoch, **changed)
    others = decision.records[1:] if first else decision.records[:-1]
    assert all(isinstance(r, PartitionChangeRecord) for r in others)
    assert bool(others) == (state != "leads nothing" and state != "fenced")


@pytest.mark.behaviour("R-276")
def test_fence_broker_moves_leadership_to_other_replicas() -> None:
    controller = controllable("leads")
    decision = run_to_end(broker_heartbeat.fence_broker(controller.image, 1, {}))
    epoch = controller.image.brokers[1].broker_epoch
    assert decision.records[-1] == change(epoch, fenced=1)
    assert [r.leader for r in decision.records if isinstance(r, PartitionChangeRecord)] == [2]


@pytest.mark.behaviour("R-273", "P-56")
def test_controlled_shutdown_waits_for_other_brokers_to_apply_it() -> None:
    controller = controllable("shutting down")
    offset = controller.image.offset
    assert not send_heartbeat(controller, 1, want_shut_down=True).should_shut_down
    assert controller.image.offset == offset, "no second record"
    send_heartbeat(controller, 2, current_metadata_offset=offset - 1)
    assert not send_heartbeat(controller, 1, want_shut_down=True).should_shut_down
    send_heartbeat(controller, 2, current_metadata_offset=offset)
    assert send_heartbeat(controller, 1, want_shut_down=True).should_shut_down


@pytest.mark.behaviour("R-274")
def test_broker_heartbeat_other_epoch_returns_stale_broker_epoch() -> None:
    controller = machine()
    epoch = controller.image.brokers[1].broker_epoch
    for broker, wrong in ((1, epoch + 1), (1, epoch - 1), (2, epoch)):
        assert submit(controller, BrokerHeartbeatRequest(broker, wrong)).error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.behaviour("R-274")
def test_broker_heartbeat_is_caught_up_after_own_registration() -> None:
    controller = machine()
    epoch = register(controller, 1, unfence=False)
    at = controller.heartbeat_state.registration_offsets[1]
    assert at >= epoch
    assert not send_heartbeat(controller, 1, want_fence=True, current_metadata_offset=at - 1).is_caught_up
    assert send_heartbeat(controller, 1, want_fence=True, current_metadata_offset=at).is_caught_up


@pytest.mark.behaviour("R-290")
def test_broker_heartbeat_offline_log_dirs_are_removed_once() -> None:
    controller = machine()
    register(controller, 1, directory(7))
    send_heartbeat(controller, 1, offline_log_dirs=[directory(7), directory(6)])
    assert list(controller.image.brokers[1].log_dirs) == [directory(1)]
    offset = controller.image.offset
    send_heartbeat(controller, 1, offline_log_dirs=[directory(7)])
    assert controller.image.offset == offset, "no second record"


@pytest.mark.behaviour("R-290")
def test_broker_without_failed_directory_does_not_lead_its_partitions() -> None:
    controller = machine(2)
    register(controller, 1, directory(7))
    create(controller, "t", -1, -1, assignments=[CreatableReplicaAssignment(n, [1, 2]) for n in range(2)])
    topic = controller.image.topics["t"]
    rows = [(directory(7), topic.id, 0), (directory(1), topic.id, 1)]
    assign_directories(controller, rows)
    for broker in (2, 1):
        send_heartbeat(controller, broker, want_fence=True)
    assert [p.leader for p in controller.image.topics["t"].partitions.values()] == [-1, -1]
    send_heartbeat(controller, 1, offline_log_dirs=[directory(7)])
    lost, kept = controller.image.topics["t"].partitions.values()
    assert (lost.leader, kept.leader) == (-1, 1)
    assert (lost.isr, kept.isr) == ((), (1,))


@pytest.mark.behaviour("R-290")
def test_offline_log_dir_updates_all_partitions_in_it() -> None:
    """A leader that must not lead any more is detected there as well."""
    controller = machine(2)
    create(controller, "t", -1, -1, assignments=[CreatableReplicaAssignment(0, [1, 2])])
    register(controller, 2, directory(8))
    topic = controller.image.topics["t"]
    for change in (
        PartitionChangeRecord(0, topic.id, [1], 1, directories=[directory(1), directory(8)]),
        BrokerRegistrationChangeRecord(1, controller.image.brokers[1].broker_epoch, fenced=1),
    ):
        offset = controller.image.offset + 1
        controller.replay(offset, change)
        publish(controller, offset)
    send_heartbeat(controller, 2, offline_log_dirs=[directory(8)])
    assert controller.image.topics["t"].partitions[0].leader == -1


@pytest.mark.behaviour("R-273")
def test_controlled_shutdown_waits_for_heartbeat_after_registration_change() -> None:
    controller = controllable("shutting down")
    send_heartbeat(controller, 2)
    epoch = controller.image.brokers[2].broker_epoch
    offset = controller.image.offset + 1
    controller.replay(offset, BrokerRegistrationChangeRecord(2, epoch, cordoned_log_dirs=[]))
    publish(controller, offset)
    assert not send_heartbeat(controller, 1, want_shut_down=True).should_shut_down
    send_heartbeat(controller, 2)
    assert send_heartbeat(controller, 1, want_shut_down=True).should_shut_down


@pytest.mark.behaviour("R-275")
def test_broker_fenced_during_controlled_shutdown_becomes_active_again() -> None:
    controller = controllable("shutting down")
    epoch = controller.image.brokers[1].broker_epoch
    offset = controller.image.offset + 1
    controller.replay(offset, BrokerRegistrationChangeRecord(1, epoch, fenced=1))
    publish(controller, offset)
    answer = send_heartbeat(controller, 1)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    assert not send_heartbeat(controller, 1).should_shut_down


def test_broker_heartbeat_cordoned_log_dirs_are_written_once() -> None:
    controller = machine()
    offset = controller.image.offset
    send_heartbeat(controller, 1, cordoned_log_dirs=[])
    assert list(controller.image.brokers[1].cordoned_log_dirs or ()) == []
    assert controller.image.offset == offset + 1
    send_heartbeat(controller, 1, cordoned_log_dirs=[])
    send_heartbeat(controller, 1)
    assert controller.image.offset == offset + 1


def test_broker_heartbeat_cordoned_log_dirs_require_metadata_version() -> None:
    for level, expected in ((CORDONED_DIRS_MIN_VERSION, [directory(1)]), (CORDONED_DIRS_MIN_VERSION - 1, None)):
        controller = machine()
        controller.replay(0, FeatureLevelRecord("metadata.version", level))
        run_to_end(controller.complete_append(controller.image.offset + 1, 1))
        run_to_end(controller.publish())
        send_heartbeat(controller, 1, cordoned_log_dirs=[directory(1)])
        found = controller.image.brokers[1].cordoned_log_dirs
        assert (list(found) if found else None) == expected


@pytest.mark.behaviour("R-281")
def test_unregister_broker_keeps_it_in_elr() -> None:
    controller = machine()
    create(controller, "t")
    answer = submit(controller, UnregisterBrokerRequest(1))
    assert answer.error_code == 0
    assert not controller.image.brokers
    partition = controller.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.elr, partition.replicas) == (-1, (), (1,), (1,))
    assert submit(controller, UnregisterBrokerRequest(1)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.behaviour("R-282")
def test_controller_registration_is_recorded() -> None:
    controller = machine()
    row = controller_registration.ControllerRegistrationRequest(
        5, ID, True, [controller_registration.Listener("C", "h", 1, 0)], [controller_registration.Feature("f", 1, 2)]
    )
    assert submit(controller, row).error_code == 0
    known = controller.image.controllers[5]
    assert (known.incarnation_id, known.zk_migration_ready) == (ID, True)
    assert [(e.name, e.host, e.port) for e in known.end_points] == [("C", "h", 1)]
    assert [(f.name, f.min_supported_version, f.max_supported_version) for f in known.features] == [("f", 1, 2)]
