"""UpdateFeatures at the controller (``FeatureControlManager``)."""

from __future__ import annotations

import pytest

from ottla.controller.control.tests.test_alter_configs import SET, B, T, alter, with_topic
from ottla.controller.control.tests.test_broker_registration import request, without
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.tests.test_controller_state_machine import create, machine, publish, submit
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.incremental_alter_configs import AlterableConfig as IncrementalAlterableConfig
from ottla.wire.messages.incremental_alter_configs import AlterConfigsResource as IncrementalAlterConfigsResource
from ottla.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.metadata_records import (
    ConfigRecord,
    ControllerFeature,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterControllerRecord,
)
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

UP, SAFE, UNSAFE = 1, 2, 3
WRONG = ErrorCode.INVALID_UPDATE_VERSION


def update(
    controller: ControllerStateMachine, *rows: tuple[str, int, int], version: int = 2, check: bool = False
) -> int:
    updates = [FeatureUpdateKey(name, level, upgrade_type=kind) for name, level, kind in rows]
    return int(submit(controller, UpdateFeaturesRequest(60_000, updates, check), version).error_code)


def with_feature_levels() -> ControllerStateMachine:
    controller = machine()
    for name, level in (("metadata.version", 27), ("group.version", 1)):
        controller.replay(0, FeatureLevelRecord(name, level))
    publish(controller, controller.image.offset + 2)
    return controller


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([("share.version", 1, UP)], 0),
        ([("share.version", 2, UP)], WRONG),
        ([("share.version", -1, UP)], WRONG),
        ([("share.version", 1, 0)], WRONG),
        ([("share.version", 1, 4)], WRONG),
        ([("share.version", 1, SAFE)], WRONG),
        ([("group.version", 0, UP)], WRONG),
        ([("group.version", 0, SAFE)], 0),
        ([("group.version", 0, UNSAFE)], 0),
        ([("group.version", 1, UP)], 0),
        ([("no.such", 1, UP)], WRONG),
        ([("no.such", 0, UP)], WRONG),
        ([("kraft.version", 1, UP)], 0),
        ([("kraft.version", 0, UNSAFE)], WRONG),
        ([("metadata.version", 30, UP)], 0),
        ([("metadata.version", 31, UP)], WRONG),
        ([("metadata.version", 26, SAFE)], 0),
        ([("metadata.version", 23, SAFE)], 0),
        ([("metadata.version", 22, SAFE)], WRONG),
        ([("metadata.version", 22, UNSAFE)], WRONG),
        ([("share.version", 1, UP), ("no.such", 1, UP)], WRONG),
    ],
)
def test_update_features_returns_kafkas_error_code(rows: list[tuple[str, int, int]], code: int) -> None:
    for check in (True, False):
        controller = with_feature_levels()
        before = dict(controller.image.features)
        assert update(controller, *rows, check=check) == code
        expected = before if code or check else {**before, **{n: v for n, v, _ in rows if n != "kraft.version"}}
        assert controller.image.features == {n: v for n, v in expected.items() if v}


def upgrade_error(controller: ControllerStateMachine, name: str, level: int) -> str | None:
    """Return the error message of a feature upgrade."""
    request = UpdateFeaturesRequest(60_000, [FeatureUpdateKey(name, level, upgrade_type=UP)], True)
    answer = submit(controller, request, 2)
    assert answer.error_code == (0 if answer.error_message is None else WRONG)
    return str(answer.error_message).rpartition(f"for feature {name}. ")[2] if answer.error_message else None


def registered_controller(node: int, low: int, high: int, name: str = "share.version") -> RegisterControllerRecord:
    return RegisterControllerRecord(node, bytes(16), False, [], [ControllerFeature(name, low, high)])


@pytest.mark.behaviour("R-283")
def test_update_features_requires_support_of_all_brokers_and_controllers() -> None:
    controller = machine(2)
    assert upgrade_error(controller, "share.version", 1) is None
    older = request(2, features=without("share.version"), incarnation_id=controller.image.brokers[2].incarnation_id)
    submit(controller, older)
    assert upgrade_error(controller, "share.version", 1) == "Broker 2 does not support this feature."
    submit(controller, request(2, features=without(), incarnation_id=controller.image.brokers[2].incarnation_id))
    for low, high, why in (
        (0, 1, None),
        (2, 3, "Controller 5 only supports versions 2-3"),
        (2, 2, "Controller 5 only supports versions 2"),
        (0, 0, "Controller 5 does not support this feature."),
    ):
        controller.replay(0, registered_controller(5, low, high))
        controller.replay(0, registered_controller(controller.node_id, 0, 0))  # the own registration is not consulted
        publish(controller, controller.image.offset + 2)
        assert upgrade_error(controller, "share.version", 1) == why


@pytest.mark.behaviour("R-283")
def test_update_features_requires_registration_of_static_voters() -> None:
    controller = machine()
    controller.static_voters = (controller.node_id, 6)
    why = "controller 6 has not registered, and may not support this feature"
    assert upgrade_error(controller, "share.version", 1) == why
    controller.replay(0, registered_controller(6, 0, 1))
    publish(controller, controller.image.offset + 1)
    assert upgrade_error(controller, "share.version", 1) is None


def test_update_features_version_0_downgrade_is_rejected() -> None:
    assert update(with_feature_levels(), ("group.version", 0, SAFE), version=0) == WRONG


def test_enabling_elr_moves_min_insync_replicas_to_cluster_config() -> None:
    controller = machine()
    update(controller, ("eligible.leader.replicas.version", 0, SAFE))
    assert alter(controller, B, "1", ("min.insync.replicas", SET, "2")) == 0
    assert update(controller, ("eligible.leader.replicas.version", 1, UP)) == 0
    assert controller.image.config(B, "1") == {}
    assert controller.image.config(B, "") == {"min.insync.replicas": "1"}
    update(controller, ("eligible.leader.replicas.version", 0, SAFE))
    alter(controller, B, "", ("min.insync.replicas", SET, "3"))
    update(controller, ("eligible.leader.replicas.version", 1, UP))
    assert controller.image.config(B, "") == {"min.insync.replicas": "3"}


def test_changed_min_insync_replicas_clears_eligible_leader_replicas() -> None:
    """KIP-966: with a lower minimum, records may be acknowledged that an eligible leader does not have."""
    controller = with_topic()
    create(controller, "u", 2)
    image = controller.image
    for name in ("t", "u"):
        for number in image.topics[name].partitions:
            change = PartitionChangeRecord(number, image.topics[name].id, eligible_leader_replicas=[5])
            controller.replay(0, change)
    publish(controller, image.offset + 3)

    def eligible() -> list[tuple[int, ...]]:
        return [p.elr for name in ("t", "u") for p in controller.image.topics[name].partitions.values()]

    alter(controller, T, "t", ("retention.ms", SET, "5"))
    assert eligible() == [(5,)] * 3
    alter(controller, T, "t", ("min.insync.replicas", SET, "1"), check=True)
    assert eligible() == [(5,)] * 3
    alter(controller, T, "u", ("min.insync.replicas", SET, "1"))
    assert eligible() == [(5,), (), ()]
    alter(controller, B, "", ("min.insync.replicas", SET, "2"))
    assert eligible() == [()] * 3
    update(controller, ("eligible.leader.replicas.version", 0, SAFE))
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(T, "t", [])])
    request.resources[0].configs.append(IncrementalAlterableConfig("min.insync.replicas", SET, "2"))
    decision = run_to_end(controller.decide(request))  # type: ignore[arg-type]
    assert decision.records == [ConfigRecord(T, "t", "min.insync.replicas", "2")], (
        "no eligible leader replicas without the feature"
    )
