"""Periodic tasks of the controller: fencing of brokers without heartbeats, and retries after failures."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.control.controller_result import ControllerResult
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.periodic_tasks import ERROR_RETRY_MS, PeriodicTask, PeriodicTaskContext
from ottla.controller.quorum_controller import QuorumController
from ottla.controller.tests.controller_fixture import (
    ControllerFixture,
    send_heartbeat,
    shut_down_broker,
)
from ottla.controller.tests.test_quorum_controller import code, virtual
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest, Feature
from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest


async def another_broker(controller: QuorumController, fixture: ControllerFixture) -> None:
    """Register and unfence broker 2."""
    features = [Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()]
    request = BrokerRegistrationRequest(2, fixture.identity.cluster_id, bytes([2] * 16), [], features, None)
    request.log_dirs = [bytes([2] * 16)]
    epoch = (await controller.submit(request)).broker_epoch
    await controller.submit(BrokerHeartbeatRequest(2, epoch, controller.image.offset, False, False))
    assert controller.image.unfenced_brokers() == [1, 2]


@virtual
async def test_brokers_without_heartbeat_are_fenced_and_do_not_delay_shutdown() -> None:
    """Directory of a larger cluster: its other brokers count as active until their sessions expire (R-277)."""
    fixture = ControllerFixture()
    rows = [CreatableReplicaAssignment(0, [2, 1]), CreatableReplicaAssignment(1, [1, 2])]
    both = CreatableTopic("t", -1, -1, rows)
    async with fixture.controller() as controller:
        await another_broker(controller, fixture)
        assert code(await controller.submit(CreateTopicsRequest([both], 1000), 7)) == 0
        assert [p.leader for p in controller.image.topics["t"].partitions.values()] == [2, 1]
        publications = 0

        def count_publication(image: MetadataImage, delta: MetadataDelta) -> None:
            nonlocal publications
            publications += 1

        controller.subscribe(count_publication)
        publications = 0
        assert await shut_down_broker(controller) == 10, "broker 2 would delay the shutdown"
        assert publications == 1
        assert not controller.image.brokers[1].fenced
    async with fixture.controller() as controller:
        await trio.sleep(5)
        await send_heartbeat(controller, controller.image.brokers[1].broker_epoch)
        await trio.sleep(3.9)
        assert controller.image.unfenced_brokers() == [1, 2]
        await trio.sleep(1.5)
        assert controller.image.unfenced_brokers() == [1]
        assert [p.leader for p in controller.image.topics["t"].partitions.values()] == [-1, -1]
        assert await shut_down_broker(controller) == 1
        assert controller.image.brokers[1].fenced


async def failed_run_times(code: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the times at which a task due every second runs within ten minutes, if it always fails with a code."""
    tried: list[float] = []

    def refuse(sight: PeriodicTaskContext) -> ControllerResult:
        tried.append(sight.now_ms)
        raise ProtocolError(code, "not like that")

    task = PeriodicTask("do as told", lambda static: 1_000, refuse)
    monkeypatch.setattr("ottla.controller.quorum_controller.PERIODIC_TASKS", (task,))
    async with ControllerFixture().controller() as controller:
        assert controller.is_active
        await trio.sleep(600)
    return tried


@pytest.mark.behaviour("R-268")
@virtual
async def test_failed_periodic_task_is_logged_and_retried_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = await failed_run_times(ErrorCode.INVALID_REPLICA_ASSIGNMENT, monkeypatch)
    assert len(tried) == 2
    assert tried[1] - tried[0] == ERROR_RETRY_MS
    assert caplog.text.count("Failed to do as told, retrying") == 2
    assert "not like that" in caplog.text
    caplog.clear()
    assert len(await failed_run_times(ErrorCode.NOT_CONTROLLER, monkeypatch)) > 500
    assert not caplog.text


@virtual
async def test_assertion_error_in_periodic_task_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: PeriodicTaskContext) -> ControllerResult:
        raise AssertionError("this cannot be")

    task = PeriodicTask("do what cannot be", lambda static: 1_000, broken)
    monkeypatch.setattr("ottla.controller.quorum_controller.PERIODIC_TASKS", (task,))
    with pytest.RaisesGroup(pytest.RaisesExc(AssertionError, match="this cannot be"), flatten_subgroups=True):
        async with ControllerFixture().controller():
            await trio.sleep(600)
