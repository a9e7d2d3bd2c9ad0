"""What the controller does every now and then: brokers nobody hears are fenced, and tasks that fail are tried again."""

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


async def another_broker(controller: QuorumController, ground: ControllerFixture) -> None:
    """Broker 2 registers and may lead."""
    features = [Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()]
    request = BrokerRegistrationRequest(2, ground.identity.cluster_id, bytes([2] * 16), [], features, None)
    request.log_dirs = [bytes([2] * 16)]
    epoch = (await controller.submit(request)).broker_epoch
    await controller.submit(BrokerHeartbeatRequest(2, epoch, controller.image.offset, False, False))
    assert controller.image.unfenced_brokers() == [1, 2]


@virtual
async def test_brokers_nobody_hears_are_fenced_after_a_session_and_a_stop_waits_for_none_of_them() -> None:
    """A directory of a larger cluster: its other brokers count as alive until their leases are over (R-277)."""
    ground = ControllerFixture()
    rows = [CreatableReplicaAssignment(0, [2, 1]), CreatableReplicaAssignment(1, [1, 2])]
    both = CreatableTopic("t", -1, -1, rows)
    async with ground.controller() as controller:
        await another_broker(controller, ground)
        assert code(await controller.submit(CreateTopicsRequest([both], 1000), 7)) == 0
        assert [p.leader for p in controller.image.topics["t"].partitions.values()] == [2, 1]
        heard = 0

        def hear(image: MetadataImage, delta: MetadataDelta) -> None:
            nonlocal heard
            heard += 1

        controller.subscribe(hear)
        heard = 0
        assert await shut_down_broker(controller) == 10, "it would wait for broker 2"
        assert heard == 1
        assert not controller.image.brokers[1].fenced
    async with ground.controller() as controller:
        await trio.sleep(5)
        await send_heartbeat(controller, controller.image.brokers[1].broker_epoch)
        await trio.sleep(3.9)
        assert controller.image.unfenced_brokers() == [1, 2]
        await trio.sleep(1.5)
        assert controller.image.unfenced_brokers() == [1]
        assert [p.leader for p in controller.image.topics["t"].partitions.values()] == [-1, -1]
        assert await shut_down_broker(controller) == 1
        assert controller.image.brokers[1].fenced


async def refusals(code: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When a chore is tried in ten minutes that is due each second and always refused so."""
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


@virtual
async def test_a_chore_that_is_refused_is_told_and_tried_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = await refusals(ErrorCode.INVALID_REPLICA_ASSIGNMENT, monkeypatch)
    assert len(tried) == 2
    assert tried[1] - tried[0] == ERROR_RETRY_MS
    assert caplog.text.count("Failed to do as told, retrying") == 2
    assert "not like that" in caplog.text
    caplog.clear()
    assert len(await refusals(ErrorCode.NOT_CONTROLLER, monkeypatch)) > 500
    assert not caplog.text


@virtual
async def test_a_broken_invariant_in_a_chore_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: PeriodicTaskContext) -> ControllerResult:
        raise AssertionError("this cannot be")

    task = PeriodicTask("do what cannot be", lambda static: 1_000, broken)
    monkeypatch.setattr("ottla.controller.quorum_controller.PERIODIC_TASKS", (task,))
    with pytest.RaisesGroup(pytest.RaisesExc(AssertionError, match="this cannot be"), flatten_subgroups=True):
        async with ControllerFixture().controller():
            await trio.sleep(600)
