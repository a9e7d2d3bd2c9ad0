"""Broker lifecycle: registration, heartbeats, re-registration, and controlled shutdown."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from msgspec.structs import replace as changed

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.metadata.broker_lifecycle import (
    CATCH_UP_INTERVAL_S,
    CONTROLLED_SHUTDOWN_TIMEOUT_S,
    RETRY_S,
    SHUTDOWN_RESPONSE_TIMEOUT_S,
    BrokerLifecycleManager,
    RegistrationRejected,
)
from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse, Listener
from ottla.wire.messages.metadata_records import RegisterBrokerRecord

ME = 5
BEAT_S = 2.0
SEEN_S = 0.001
"""Delay between a commit and its application on this node."""


class FakeLifecycleController:
    """Controller with the relevant rules, and this node's view of its commits."""

    def __init__(self, *, delay_s: float = SEEN_S, **values: str) -> None:
        self.env: Any = VirtualEnv()
        self.received: list[tuple[float, Any]] = []
        self.refusals: list[Any] = []
        """What is answered first, in order: an error, or None for silence."""
        self.truth = MetadataImage()
        self.committed = MetadataImage()
        """The metadata as far as this node has it, applied or not."""
        self.delay_s = delay_s
        self.next_epoch = 40
        self.state = "fenced"
        self.waits_for_others = 0
        self.cache: Any = SimpleNamespace(image=MetadataImage(), cluster_id="cluster")
        self.storage: Any = SimpleNamespace(
            online_ids=[b"b" * 16, b"a" * 16], clean_shutdown_epoch=33, cordoned_ids=[], cordon=self._cordon
        )
        self.cordoned = ""
        config = NodeConfig({k.replace("_", "."): v for k, v in values.items()}, node_id=ME, host="h", port=9092)
        applier: Any = self
        self.lifecycle = BrokerLifecycleManager(
            self.env, config, self, self.cache, applier, self.storage, lambda: self.committed
        )
        self.lifecycle.ports = {"PLAINTEXT": 1234}
        self.led: list[int] = []
        self.lifecycle.on_registered.append(self.led.append)
        self.nursery: trio.Nursery

    def _cordon(self, named: str) -> bool:
        before, self.cordoned = self.cordoned, named
        self.storage.cordoned_ids = [b"b" * 16, b"a" * 16][: len(named)]
        return before != named

    # part of the metadata publisher

    @property
    def offset(self) -> int:
        return self.cache.image.offset  # type: ignore[no-any-return]

    async def wait_applied(self) -> None:
        await trio.lowlevel.checkpoint()

    # part of the controller

    def commit(self, broker_id: int = ME, **fields: Any) -> None:
        """Commit a broker's record (removed when there are no fields); this node applies it a little later."""
        brokers = dict(self.truth.brokers)
        if fields:
            brokers[broker_id] = changed(brokers.get(broker_id, RegisterBrokerRecord(broker_id)), **fields)
        else:
            del brokers[broker_id]
        self.truth = image = replace(self.truth, offset=self.truth.offset + 1, brokers=brokers)

        async def see() -> None:
            self.committed = image
            await trio.sleep(self.delay_s)
            self.cache.image = image
            self.lifecycle.publish(image, MetadataDelta(brokers=frozenset({broker_id})))

        self.nursery.start_soon(see)

    async def submit(self, request: Any, version: int = 0) -> Any:
        await trio.lowlevel.checkpoint()
        self.received.append((trio.current_time(), request))
        if self.refusals:
            refusal = self.refusals.pop(0)
            if refusal is None:
                await trio.sleep_forever()
            if isinstance(refusal, Exception):
                raise refusal
            if isinstance(request, BrokerRegistrationRequest):
                return BrokerRegistrationResponse(error_code=refusal)
            return BrokerHeartbeatResponse(error_code=refusal)
        if isinstance(request, BrokerRegistrationRequest):
            self.next_epoch += 1
            self.commit(broker_epoch=self.next_epoch, fenced=True, incarnation_id=request.incarnation_id)
            return BrokerRegistrationResponse(broker_epoch=self.next_epoch)
        return self._respond(request)

    def _respond(self, beat: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        known = self.truth.brokers.get(ME)
        if known is None or known.broker_epoch != beat.broker_epoch:
            return BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        caught_up = beat.current_metadata_offset >= self.truth.offset or not known.fenced
        if beat.want_shut_down:
            self.waits_for_others -= 1
            if self.waits_for_others < 0:
                self.commit(fenced=True)
                return BrokerHeartbeatResponse(should_shut_down=True)
            if not known.in_controlled_shutdown:
                self.commit(in_controlled_shutdown=True)
        elif known.fenced and caught_up and not beat.want_fence:
            self.commit(fenced=False)
        return BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=self.truth.brokers[ME].fenced)

    def run_lifecycle(self, scenario: Callable[[], Awaitable[None]], *, keeps: bool = True) -> None:
        """Register, send heartbeats, and run the scenario beside them."""

        async def main() -> None:
            async with trio.open_nursery() as self.nursery:
                with trio.fail_after(10_000):
                    if keeps:
                        await self.lifecycle.register()
                        await self.lifecycle.unfence()
                        self.nursery.start_soon(self.lifecycle.run)
                    await scenario()
                self.nursery.cancel_scope.cancel()

        run_virtual(main)

    @property
    def beats(self) -> list[BrokerHeartbeatRequest]:
        return [x for _, x in self.received if isinstance(x, BrokerHeartbeatRequest)]

    @property
    def registrations(self) -> list[BrokerRegistrationRequest]:
        return [x for _, x in self.received if isinstance(x, BrokerRegistrationRequest)]


async def at_once() -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.behaviour("R-280")
def test_registration_contains_endpoints_directories_and_features() -> None:
    fixture = FakeLifecycleController(broker_rack="r")
    fixture.run_lifecycle(at_once)
    (request,) = fixture.registrations
    assert (request.broker_id, request.cluster_id, request.rack) == (ME, "cluster", "r")
    assert request.listeners == [Listener("PLAINTEXT", "h", 9092, 0)]
    assert request.log_dirs == [b"a" * 16, b"b" * 16]
    reported = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    assert reported == SUPPORTED_FEATURES
    assert request.incarnation_id != bytes(16)
    assert fixture.led == [fixture.lifecycle.broker_epoch] == [41]


@pytest.mark.behaviour("R-272")
@pytest.mark.parametrize(
    ("brokers", "clean_epoch", "expected"),
    [
        ({}, 33, 33),
        ({}, -1, -1),
        ({ME: 17, 6: 18}, 33, 33),
        ({ME: 17, 6: 18}, -1, -1),
        ({ME: 17}, -1, 17),  # no other broker could lead its partitions
        ({6: 18}, -1, -1),
    ],
)
def test_registration_previous_epoch_comes_from_clean_shutdown_files(
    brokers: dict[int, int], clean_epoch: int, expected: int
) -> None:
    fixture = FakeLifecycleController()
    fixture.cache.image = fixture.committed = fixture.truth = MetadataImage(
        brokers={i: RegisterBrokerRecord(i, broker_epoch=epoch) for i, epoch in brokers.items()}
    )
    fixture.storage.clean_shutdown_epoch = clean_epoch
    fixture.run_lifecycle(at_once)
    assert fixture.registrations[0].previous_broker_epoch == expected


@pytest.mark.behaviour("R-278")
@pytest.mark.parametrize(
    "refusals",
    [
        [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 3,
        [ProtocolError(ErrorCode.REQUEST_TIMED_OUT)] * 2,
        [ErrorCode.INVALID_REGISTRATION, ProtocolError(ErrorCode.UNSUPPORTED_VERSION)],
    ],
)
def test_refused_registration_is_retried_with_same_incarnation_id(refusals: list[Any]) -> None:
    fixture = FakeLifecycleController()
    fixture.refusals = list(refusals)
    fixture.run_lifecycle(at_once)
    times = [at for at, x in fixture.received if isinstance(x, BrokerRegistrationRequest)]
    assert times == pytest.approx([n * RETRY_S for n in range(len(refusals) + 1)])
    assert len({x.incarnation_id for x in fixture.registrations}) == 1
    assert fixture.led == [41]


def test_registration_refused_for_a_minute_raises_registration_rejected() -> None:
    fixture = FakeLifecycleController()
    fixture.refusals = [ErrorCode.INCONSISTENT_CLUSTER_ID] * 1000

    async def scenario() -> None:
        with pytest.raises(
            RegistrationRejected,
            match="Unable to register broker 5 with the controller quorum: INCONSISTENT_CLUSTER_ID",
        ):
            await fixture.lifecycle.register()
        assert trio.current_time() == pytest.approx(60, abs=1)

    fixture.run_lifecycle(scenario, keeps=False)


@pytest.mark.behaviour("R-278", "R-279", "P-55")
def test_heartbeats_want_fence_until_registration_is_applied() -> None:
    fixture = FakeLifecycleController(delay_s=0.035)
    fixture.run_lifecycle(at_once)
    beats = fixture.beats
    assert [b.want_fence for b in beats] == [True] * (len(beats) - 1) + [False]
    assert {b.broker_epoch for b in beats} == {41}
    assert beats[-1].current_metadata_offset >= 0
    first, second = [at for at, x in fixture.received if isinstance(x, BrokerHeartbeatRequest)][:2]
    assert second - first == pytest.approx(CATCH_UP_INTERVAL_S)


@pytest.mark.behaviour("R-279")
def test_registration_completes_when_unfencing_is_applied() -> None:
    fixture = FakeLifecycleController(delay_s=0.5)

    async def scenario() -> None:
        assert not fixture.cache.image.brokers[ME].fenced

    fixture.run_lifecycle(scenario)


def test_standalone_node_is_unfenced_without_waiting() -> None:
    """The local controller publishes a result before it returns."""
    fixture = FakeLifecycleController(delay_s=0)

    async def scenario() -> None:
        assert trio.current_time() < CATCH_UP_INTERVAL_S * 2
        assert len(fixture.received) <= 3

    fixture.run_lifecycle(scenario)


@pytest.mark.behaviour("R-278", "P-55")
def test_heartbeat_every_two_seconds_contains_applied_offset() -> None:
    fixture = FakeLifecycleController()

    async def scenario() -> None:
        fixture.received.clear()
        await trio.sleep(3 * BEAT_S + 0.5)
        times = [at for at, _ in fixture.received]
        assert [b - a for a, b in itertools.pairwise(times)] == pytest.approx([BEAT_S] * 2, abs=0.01)
        assert len(times) == 3
        assert {(b.current_metadata_offset, b.want_fence, b.want_shut_down) for b in fixture.beats} == {
            (fixture.truth.offset, False, False)
        }

    fixture.run_lifecycle(scenario)


def test_fenced_broker_is_unfenced_by_its_next_heartbeat() -> None:
    fixture = FakeLifecycleController()

    async def scenario() -> None:
        fixture.commit(fenced=True)
        await trio.sleep(BEAT_S + 0.1)
        assert not fixture.truth.brokers[ME].fenced
        assert len(fixture.registrations) == 1

    fixture.run_lifecycle(scenario)


def test_failed_heartbeat_is_followed_by_another() -> None:
    fixture = FakeLifecycleController()

    async def scenario() -> None:
        fixture.refusals = [ProtocolError(ErrorCode.REQUEST_TIMED_OUT), ErrorCode.NOT_CONTROLLER]
        fixture.received.clear()
        await trio.sleep(3 * BEAT_S)
        assert len(fixture.received) >= 3
        assert len(fixture.registrations) == 0

    fixture.run_lifecycle(scenario)


def test_unregistered_broker_registers_at_once_with_new_epoch() -> None:
    fixture = FakeLifecycleController()

    async def scenario() -> None:
        before = trio.current_time()
        fixture.commit()
        again = trio.Event()
        fixture.lifecycle.on_registered.append(lambda _: again.set())
        await again.wait()
        assert trio.current_time() - before < 0.1
        assert fixture.led == [41, 42]
        assert len({x.incarnation_id for x in fixture.registrations}) == 1

    fixture.run_lifecycle(scenario)


def test_shutdown_of_another_broker_triggers_heartbeat() -> None:
    fixture = FakeLifecycleController()

    async def scenario() -> None:
        fixture.received.clear()
        fixture.commit(7, fenced=False, broker_epoch=3)
        await trio.sleep(0.1)
        assert fixture.received == []
        fixture.commit(7, in_controlled_shutdown=True)
        await trio.sleep(0.1)
        assert len(fixture.beats) == 1

    fixture.run_lifecycle(scenario)


@pytest.mark.parametrize(("waits", "beats"), [(0, 1), (1, 2), (4, 5)])
def test_controlled_shutdown_sends_heartbeats_until_allowed(waits: int, beats: int) -> None:
    fixture = FakeLifecycleController()
    fixture.waits_for_others = waits

    async def scenario() -> None:
        fixture.received.clear()
        began = trio.current_time()
        await fixture.lifecycle.controlled_shutdown()
        assert [b.want_shut_down for b in fixture.beats] == [True] * beats
        assert trio.current_time() - began == pytest.approx(max(0, beats - 2) * 0.05, abs=0.01)
        await trio.sleep(3 * BEAT_S)
        assert len(fixture.beats) == beats  # no heartbeat follows the shutdown

    fixture.run_lifecycle(scenario)


def test_controlled_shutdown_without_controller_times_out() -> None:
    """All nodes are stopped at once: the last ones have no quorum."""
    fixture = FakeLifecycleController()

    async def scenario() -> None:
        fixture.commit(7, fenced=False)
        await trio.sleep(0.1)
        fixture.refusals = [None] * 100
        began = trio.current_time()
        await fixture.lifecycle.controlled_shutdown()
        assert trio.current_time() - began == pytest.approx(SHUTDOWN_RESPONSE_TIMEOUT_S)

    fixture.run_lifecycle(scenario)


def test_controlled_shutdown_ends_at_its_timeout() -> None:
    fixture = FakeLifecycleController()
    fixture.waits_for_others = 10**9

    async def scenario() -> None:
        began = trio.current_time()
        await fixture.lifecycle.controlled_shutdown()
        assert trio.current_time() - began == pytest.approx(CONTROLLED_SHUTDOWN_TIMEOUT_S, abs=0.1)

    fixture.run_lifecycle(scenario)


def test_controlled_shutdown_before_registration_sends_no_request() -> None:
    fixture = FakeLifecycleController()

    async def scenario() -> None:
        await fixture.lifecycle.controlled_shutdown()
        assert fixture.received == []

    fixture.run_lifecycle(scenario, keeps=False)
