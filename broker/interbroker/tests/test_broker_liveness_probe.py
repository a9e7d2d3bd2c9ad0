"""Probe of brokers with a lost connection: targets, times, and reports to the controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.interbroker.broker_liveness_probe import (
    CONNECT_RETRY_S,
    CONNECT_TIMEOUT_S,
    FIRST_HEARTBEAT_WAIT_S,
    PROBE_DELAYS_S,
    BrokerLivenessProbe,
)
from ottla.broker.requests.peer import Peer
from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.broker.tests.memory_net import MemoryNet
from ottla.controller.control.fast_fencing import BrokerConnectionRefused, BrokerProbes
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.metadata_records import BrokerEndpoint, RegisterBrokerRecord

ME, OTHER, PORT, EPOCH = 1, 2, 9092, 50


def broker(broker_id: int, epoch: int = EPOCH, *, fenced: bool = False) -> RegisterBrokerRecord:
    ends = [BrokerEndpoint("PLAINTEXT", f"h{broker_id}", PORT + broker_id, 0), BrokerEndpoint("OUT", "no", 1, 0)]
    return RegisterBrokerRecord(broker_id, broker_epoch=epoch, end_points=ends, fenced=fenced)


class LivenessProbeFixture:
    """Controller with brokers, a network, and the probe."""

    def __init__(self, *brokers: RegisterBrokerRecord) -> None:
        self.env: Any = VirtualEnv()
        self.env.net = self.net = MemoryNet()
        self.image = MetadataImage(brokers={b.broker_id: b for b in brokers})
        self.is_active = True
        self.epoch = 1
        self.machine = SimpleNamespace(probes=BrokerProbes())
        self.reported: list[tuple[float, BrokerConnectionRefused]] = []
        self.error: Exception | None = None
        watched: Any = self
        self.probe = BrokerLivenessProbe(self.env, ME, watched)

    async def submit(self, request: BrokerConnectionRefused, version: int = 0) -> bool:
        await trio.lowlevel.checkpoint()
        self.reported.append((trio.current_time(), request))
        if self.error is not None:
            raise self.error
        return True

    @property
    def probes(self) -> BrokerProbes:
        return self.machine.probes  # type: ignore[no-any-return]

    def play(self, scenario: Callable[[], Awaitable[None]], *, opens: tuple[int, ...] = (OTHER,)) -> None:
        async def main() -> None:
            for broker_id in opens:
                await self.net.listen("h", PORT + broker_id)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.probe.run)
                await trio.sleep(1)  # the probes after the election are complete
                with trio.fail_after(1000):
                    await scenario()
                nursery.cancel_scope.cancel()

        run_virtual(main)

    def dies(self, broker_id: int = OTHER) -> None:
        self.net.listeners.pop(PORT + broker_id, None)


def peer() -> Peer:
    return Peer("10.0.0.2", ("here", 1), "CONTROLLER")


def test_active_controller_connects_once_to_each_other_unfenced_broker() -> None:
    fixture = LivenessProbeFixture(broker(ME), broker(2), broker(3), broker(4, fenced=True))
    fixture.is_active = False

    async def scenario() -> None:
        await trio.sleep(10 * CONNECT_RETRY_S)
        assert [fixture.probes.has_reached(i, EPOCH) for i in (ME, 2, 3, 4)] == [False, True, False, False]
        dialled = fixture.net.connect_attempts
        assert dialled.count(("h2", PORT + 2)) == 1
        assert dialled.count(("h3", PORT + 3)) >= 10  # the connection is refused, and retried
        assert {host for host, _ in dialled} == {"h2", "h3"}
        assert fixture.reported == []

    fixture.play(scenario)


def test_broker_registered_again_is_connected_again() -> None:
    fixture = LivenessProbeFixture(broker(ME), broker(2))

    async def scenario() -> None:
        fixture.image = MetadataImage(brokers={ME: broker(ME), 2: broker(2, EPOCH + 1)})
        await trio.sleep(2 * CONNECT_RETRY_S)
        assert fixture.probes.has_reached(2, EPOCH + 1)

    fixture.play(scenario)


def test_refused_connection_after_disconnect_is_reported_at_once() -> None:
    fixture = LivenessProbeFixture(broker(ME), broker(2))

    async def scenario() -> None:
        connection = peer()
        for _ in range(3):
            fixture.probe.on_heartbeat(connection, 2, EPOCH)
        fixture.reported.clear()
        began = trio.current_time()
        fixture.dies()
        connection.mark_disconnected()
        await trio.sleep(5)
        ((at, gone),) = fixture.reported
        assert at - began < 0.01
        assert (gone.broker_id, gone.broker_epoch) == (2, EPOCH)
        assert gone.probe_started_ms == pytest.approx(began * 1000, abs=5)

    fixture.play(scenario)


def test_port_closed_shortly_after_disconnect_is_probed_again() -> None:
    fixture = LivenessProbeFixture(broker(ME), broker(2))

    async def scenario() -> None:
        connection = peer()
        fixture.probe.on_heartbeat(connection, 2, EPOCH)
        fixture.reported.clear()
        connection.mark_disconnected()
        await trio.sleep(0.2)
        fixture.dies()
        await trio.sleep(5)
        assert len(fixture.reported) == 1

    fixture.play(scenario)


def test_broker_that_reconnects_is_not_reported() -> None:
    fixture = LivenessProbeFixture(broker(ME), broker(2))

    async def scenario() -> None:
        await trio.sleep(2)
        fixture.net.connect_attempts.clear()
        connection = peer()
        fixture.probe.on_heartbeat(connection, 2, EPOCH)
        connection.mark_disconnected()
        await trio.sleep(5)
        assert fixture.reported == []
        assert len(fixture.net.connect_attempts) == len(PROBE_DELAYS_S)

    fixture.play(scenario)


@pytest.mark.parametrize("error", [TimeoutError(110, "no answer"), OSError(113, "no route"), None])
def test_connect_timeout_is_not_reported_as_refusal(error: OSError | None) -> None:
    fixture = LivenessProbeFixture(broker(ME), broker(2))

    async def connect(host: str, port: int) -> Any:
        if error is None:
            await trio.sleep(CONNECT_TIMEOUT_S * 100)
        await trio.lowlevel.checkpoint()
        raise error or AssertionError

    async def scenario() -> None:
        connection = peer()
        fixture.probe.on_heartbeat(connection, 2, EPOCH)
        fixture.reported.clear()
        fixture.env.net.connect = connect
        connection.mark_disconnected()
        await trio.sleep(20)
        assert fixture.reported == []

    fixture.play(scenario)


def test_elected_controller_probes_all_brokers_once_per_epoch() -> None:
    fixture = LivenessProbeFixture(broker(ME), broker(2), broker(3), broker(4, fenced=True))
    fixture.is_active = False

    async def scenario() -> None:
        await trio.sleep(3)
        assert fixture.reported == []
        fixture.is_active, fixture.epoch = True, 7
        began = trio.current_time()
        await trio.sleep(3)
        assert [(gone.broker_id, at - began < 0.2) for at, gone in fixture.reported] == [(3, True)]
        fixture.epoch = 8
        await trio.sleep(3)
        assert [gone.broker_id for _, gone in fixture.reported] == [3, 3]

    fixture.play(scenario)


def test_broker_failure_before_first_heartbeat_is_reported_at_once() -> None:
    fixture = LivenessProbeFixture(broker(ME), broker(2))

    async def scenario() -> None:
        (connection,) = (side for side in fixture.net.accepted if not side.peer_stream.is_closed)
        assert fixture.reported == []
        began = trio.current_time()
        fixture.dies()
        connection.close()
        await trio.sleep(3)
        ((at, gone),) = fixture.reported
        assert at - began < 0.01
        assert (gone.broker_id, gone.broker_epoch) == (2, EPOCH)

    fixture.play(scenario)


def test_probe_connection_is_closed_after_first_heartbeat() -> None:
    fixture = LivenessProbeFixture(broker(ME), broker(2))

    async def scenario() -> None:
        connections = [side for side in fixture.net.accepted if not side.peer_stream.is_closed]
        assert len(connections) == 1
        fixture.probe.on_heartbeat(peer(), 2, EPOCH)
        await trio.sleep(0.01)
        assert connections[0].peer_stream.is_closed
        fixture.net.connect_attempts.clear()
        await trio.sleep(2 * FIRST_HEARTBEAT_WAIT_S)
        assert fixture.net.connect_attempts == []

    fixture.play(scenario)


def test_broker_added_during_a_probe_is_connected_next() -> None:
    fixture = LivenessProbeFixture(broker(ME), broker(2))
    fixture.is_active = False
    connect = fixture.net.connect

    async def delayed_connect(host: str, port: int) -> Any:
        if host == "h2":
            await trio.sleep(CONNECT_TIMEOUT_S / 2)
        return await connect(host, port)

    fixture.env.net.connect = delayed_connect

    async def scenario() -> None:
        await trio.sleep(2)
        fixture.image = MetadataImage(brokers={ME: broker(ME), 2: broker(2, EPOCH + 1)})
        fixture.probe.publish(fixture.image, MetadataDelta(brokers=frozenset({2})))
        await trio.sleep(CONNECT_TIMEOUT_S / 4)
        fixture.image = MetadataImage(brokers={ME: broker(ME), 2: broker(2, EPOCH + 1), 3: broker(3)})
        fixture.probe.publish(fixture.image, MetadataDelta(brokers=frozenset({3})))
        await trio.sleep(CONNECT_TIMEOUT_S / 4 + 0.1)
        assert fixture.probes.has_reached(3, EPOCH)

    fixture.play(scenario, opens=(2, 3))


def test_inactive_controller_reports_no_failure() -> None:
    fixture = LivenessProbeFixture(broker(ME), broker(2))
    fixture.is_active = False

    async def scenario() -> None:
        connection = peer()
        fixture.probe.on_heartbeat(connection, 2, EPOCH)
        fixture.dies()
        connection.mark_disconnected()
        await trio.sleep(5)
        assert fixture.reported == []

    fixture.play(scenario)


@pytest.mark.parametrize("error", [ProtocolError(ErrorCode.NOT_CONTROLLER), OSError("gone")], ids=repr)
def test_failure_report_error_does_not_stop_the_probe(error: Exception) -> None:
    fixture = LivenessProbeFixture(broker(ME), broker(2))
    fixture.error = error

    async def scenario() -> None:
        for _ in range(2):
            connection = peer()
            fixture.probe.on_heartbeat(connection, 2, EPOCH)
            fixture.dies()
            connection.mark_disconnected()
            await trio.sleep(2)
        assert len(fixture.reported) >= 2

    fixture.play(scenario)


def test_node_without_other_brokers_is_idle() -> None:
    fixture = LivenessProbeFixture(broker(ME))
    clock: list[float] = []

    async def scenario() -> None:
        wakes = trio.lowlevel.current_statistics()
        assert wakes.tasks_runnable == 0
        assert wakes.seconds_to_next_deadline > 500  # no timer is armed but that of the test
        fixture.image = MetadataImage(brokers={ME: broker(ME), 2: broker(2)})
        fixture.probe.publish(fixture.image, MetadataDelta(brokers=frozenset({2})))
        await trio.sleep(0.5)
        assert fixture.probes.has_reached(2, EPOCH)
        clock.append(trio.current_time())

    fixture.play(scenario)
    assert clock
