"""Configs set to their current value (KAFKA-14136)."""

from __future__ import annotations

from typing import Any

from ottla.controller.control.alter_configs import incremental_alter_configs
from ottla.controller.control.controller_result import ControllerDefaults
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.image import RESOURCE_BROKER
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.controller.tests.test_controller_state_machine import machine
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.wire.messages.incremental_alter_configs import AlterableConfig as IncrementalAlterableConfig
from ottla.wire.messages.incremental_alter_configs import AlterConfigsResource as IncrementalAlterConfigsResource
from ottla.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.metadata_records import RegisterControllerRecord

KEY = "listener.name.tls.ssl.keystore.location"
SET, DELETE = 0, 1


def changed_configs(controller: ControllerStateMachine, request: Any) -> frozenset[tuple[int, str]]:
    """Return the resources with published config changes."""
    decision = run_to_end(controller.decide(request, 1, controller.image.offset + 1))
    for number, record in enumerate(decision.records, controller.image.offset + 1):
        controller.replay(number, record)
    run_to_end(controller.complete_append(controller.image.offset + len(decision.records), 1))
    return run_to_end(controller.publish())[1].configs


def test_alter_configs_unchanged_broker_config_is_published_again() -> None:
    for name in ("1", ""):
        controller = machine()
        for operation, value in ((SET, "k.pem"), (SET, "k.pem")):
            resource = IncrementalAlterConfigsResource(
                RESOURCE_BROKER, name, [IncrementalAlterableConfig(KEY, operation, value)]
            )
            request = IncrementalAlterConfigsRequest([resource])
            assert changed_configs(controller, request) == {(RESOURCE_BROKER, name)}
        whole = AlterConfigsResource(RESOURCE_BROKER, name, [AlterableConfig(KEY, "k.pem")])
        assert changed_configs(controller, AlterConfigsRequest([whole])) == {(RESOURCE_BROKER, name)}
        assert controller.image.config(RESOURCE_BROKER, name) == {KEY: "k.pem"}


def test_alter_configs_node_id_requires_registered_broker_or_controller() -> None:
    controller = machine()
    draft = ImageBuilder(controller.image)
    draft.replay(RegisterControllerRecord(3000))
    for name, code, why in (
        ("3000", 0, None),
        ("3001", ErrorCode.BROKER_ID_NOT_REGISTERED, "No node with id 3001 found."),
    ):
        resource = IncrementalAlterConfigsResource(
            RESOURCE_BROKER, name, [IncrementalAlterableConfig(KEY, SET, "k.pem")]
        )
        image = run_to_end(draft.image(controller.image.offset + 1, 1))
        steps = incremental_alter_configs(image, IncrementalAlterConfigsRequest([resource]), 1, ControllerDefaults())
        (row,) = run_to_end(steps).response.responses
        assert (row.error_code, row.error_message) == (code, why)
