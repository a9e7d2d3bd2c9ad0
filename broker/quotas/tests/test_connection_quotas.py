"""Connection limits and rates (S-355 and S-356), and their enforcement by listeners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.components import endpoints
from ottla.broker.config.limits import MAX_CONNECTION_THROTTLE_MS
from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.config.reconfiguration import validate_reconfiguration
from ottla.broker.config.startup_checks import check_startup_values
from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.network.acceptor import Acceptor
from ottla.broker.quotas.connection_quotas import ConnectionLimits, ConnectionQuotas, normalize_host, parse_overrides
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, FakeListener, frame, in_virtual_time
from ottla.broker.tests.run_steps import run_steps
from ottla.controller.metadata.image import RESOURCE_BROKER, MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.controller.metadata.subscriptions import MetadataSubscriptions
from ottla.jobs.job import run_to_end
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import metadata_records
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

BEAT = ApiKey.HEARTBEAT
HOST = "10.0.0.9"


def quotas(protected: str | None = None, **limits: Any) -> ConnectionQuotas:
    out = ConnectionQuotas(protected)
    out.limits = ConnectionLimits(**limits)
    return out


# ---------------------------------------------------------------- the rules


@pytest.mark.parametrize(
    ("limits", "protected", "here", "there", "capacity"),
    [
        ({}, None, 100, 100, True),
        ({"total": 5}, None, 2, 2, True),
        ({"total": 5}, None, 3, 2, False),
        ({"total": 5}, "A", 4, 9, True),
        ({"total": 5}, "A", 5, 0, False),  # the total limit also applies to each listener
        ({"total": 5}, "B", 3, 2, False),
        ({"listeners": {"A": (2, 9)}}, None, 1, 50, True),
        ({"listeners": {"A": (2, 9)}}, None, 2, 0, False),
        ({"listeners": {"A": (2, 9)}}, "A", 2, 0, False),
        ({"total": 5, "listeners": {"A": (9, 9)}}, "A", 8, 9, True),
    ],
)
def test_connection_slot_is_available_below_total_and_listener_limit(
    limits: dict[str, Any], protected: str | None, here: int, there: int, *, capacity: bool
) -> None:
    kept = quotas(protected, **limits)
    for listener, count in (("A", here), ("B", there)):
        for _ in range(count):
            assert kept.increment(listener, HOST)
    assert kept.is_slot_available("A") is capacity


def test_connections_per_ip_are_counted_over_all_listeners() -> None:
    kept = quotas(per_ip=2, overrides={"10.0.0.7": 1})
    assert [kept.increment(x, HOST) for x in "ABA"] == [True, True, False]
    assert [kept.increment("A", "10.0.0.7"), kept.increment("A", "10.0.0.7")] == [True, False]
    assert kept.increment("A", "10.0.0.8")
    kept.decrement("B", HOST)
    assert [kept.increment("A", HOST), kept.increment("A", HOST)] == [True, False]


def test_connection_rate_throttles_for_at_most_one_second() -> None:
    kept = quotas(rate=2)
    assert [kept.record_and_get_throttle_ms("A", 0) for _ in range(20)] == [0] * 20
    assert kept.record_and_get_throttle_ms("A", 0) == 500
    assert kept.record_and_get_throttle_ms("B", 0) == 1000, "all listeners together"
    assert [kept.record_and_get_throttle_ms("B", 0) for _ in range(9)] == [1000] * 9


def test_total_connection_rate_does_not_bind_inter_broker_listener() -> None:
    kept = quotas("A", rate=1)
    for _ in range(10):
        assert kept.record_and_get_throttle_ms("B", 0) == 0
    assert kept.record_and_get_throttle_ms("B", 0) > 0
    assert [kept.record_and_get_throttle_ms("A", 0) for _ in range(10)] == [0] * 10
    assert kept.record_and_get_throttle_ms("A", 0) > 0, "but its own rate does"
    wide = quotas(rate=1, listeners={"B": (9, 100)})
    assert [wide.record_and_get_throttle_ms("B", 0) for _ in range(11)] == [0] * 10 + [1000], (
        "the rate of all binds it still"
    )


def test_ip_throttled_connections_are_not_counted() -> None:
    kept = quotas(rate=100, ip_rates={None: 1, "10.0.0.7": 2})
    for number in range(30):
        kept.record_and_get_throttle_ms("A", 0)
        assert (kept.ip_throttle_ms("A", HOST, 0) > 0) is (number >= 10)
    assert kept._ip_rates.counter((HOST, ""), 0).measure(0)[0] == 1.0, "nor for itself"
    assert kept._rate.measure(0)[0] == 1.0
    assert kept._rates["A"].measure(0)[0] == 1.0
    for number in range(25):
        kept.record_and_get_throttle_ms("A", 0)
        assert (kept.ip_throttle_ms("A", "10.0.0.7", 0) > 0) is (number >= 20)
    assert quotas().ip_throttle_ms("A", HOST, 0) == 0


def test_excess_connections_must_be_closed_for_inter_broker_listener() -> None:
    kept = quotas("A", total=2)
    for listener in "BBAA":
        kept.increment(listener, HOST)
    assert kept.excess == 2
    kept.decrement("B", HOST)
    assert kept.excess == 1


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", {}),
        ("10.0.0.1:5, 10.0.0.2:0", {"10.0.0.1": 5, "10.0.0.2": 0}),
        ("::1:7", {"::1": 7}),
        ("2001:DB8::1:7", {"2001:db8::1": 7}),
    ],
)
def test_parse_overrides_returns_limits_by_address(text: str, read: dict[str, int]) -> None:
    assert parse_overrides(text) == read


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:x", "10.0.0.1:1_0"])
def test_parse_overrides_invalid_text_raises(text: str) -> None:
    with pytest.raises(ValueError):
        parse_overrides(text)


def test_normalize_host_maps_spellings_of_an_address() -> None:
    assert normalize_host("0:0:0:0:0:0:0:1") == normalize_host("::1")
    assert normalize_host("::ffff:10.0.0.1") == "10.0.0.1"


def test_connection_limits_precedence_is_broker_cluster_static() -> None:
    static = {"max.connections": "9", "max.connection.creation.rate": "8", "max.connections.per.ip": "7"}
    draft = ImageBuilder(MetadataImage())
    for name, key, value in (
        ("", "max.connections", "6"),
        ("3", "max.connections", "5"),
        ("", "listener.name.a.max.connections", "4"),
    ):
        draft.replay(metadata_records.ConfigRecord(RESOURCE_BROKER, name, key, value))
    draft.replay(
        metadata_records.ClientQuotaRecord(
            [metadata_records.EntityData("ip", None)], "connection_creation_rate", 2, False
        )
    )
    found = ConnectionLimits.from_config(NodeConfig(static, node_id=3), run_to_end(draft.image(1, 1)), ["A", "B"])
    assert found == ConnectionLimits(5, 8, 7, {}, {"A": (4, 8)}, {None: 2})
    assert found.listener_limits("B") == (5, 8)


def test_connection_limits_ignore_invalid_stored_configs_and_quotas() -> None:
    draft = ImageBuilder(MetadataImage())
    draft.replay(metadata_records.ConfigRecord(RESOURCE_BROKER, "", "max.connections", "6"))
    draft.replay(metadata_records.ConfigRecord(RESOURCE_BROKER, "1", "max.connections.per.ip.overrides", "x"))
    entities: list[list[tuple[str, str]]]
    entities = [[("user", "u")], [("ip", "a"), ("user", "u")], [], [("ip", "b")], [("ip", "c")]]
    for entity, rate in zip(entities, (5.0, 5.0, 5.0, float("nan"), -1.0), strict=True):
        draft.replay(
            metadata_records.ClientQuotaRecord(
                [metadata_records.EntityData(*x) for x in entity], "connection_creation_rate", rate, False
            )
        )
    assert ConnectionLimits.from_config(NodeConfig(), run_to_end(draft.image(1, 1)), ["A"]) == ConnectionLimits(total=6)


@pytest.mark.parametrize("bound", [5e-324, 0.0, float("inf")])
def test_ip_connection_rate_of_any_stored_value_yields_bounded_delay(bound: float) -> None:
    quotas = ConnectionQuotas()
    quotas.limits = ConnectionLimits(ip_rates={"10.0.0.1": bound})
    quotas.record_and_get_throttle_ms("A", 5.0)
    assert 0 <= quotas.ip_throttle_ms("A", "10.0.0.1", 5.0) <= MAX_CONNECTION_THROTTLE_MS


# ---------------------------------------------------------------- listeners


def beat() -> bytes:
    return frame(BEAT, 0, 1, HeartbeatRequest("g", 0, "m"))


class ConnectionQuotaNode:
    """Listeners with their acceptors, and settings that change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str, **static: str) -> None:
        self.fixture = DispatcherFixture(monkeypatch)
        self.fixture.serve(BEAT, lambda context, request: HeartbeatResponse())
        config = NodeConfig({k.replace("_", "."): v for k, v in static.items()})
        self.fixture.services.config = config
        self.listeners = {name: FakeListener() for name in names or ("A",)}
        self.acceptors = {name: self._acceptor(name) for name in self.listeners}
        self.subscriptions = MetadataSubscriptions(lambda: self.controller.image)
        self.controller: Any = SimpleNamespace(image=MetadataImage(), subscribe=self.subscriptions.subscribe)
        made: Any = SimpleNamespace(services=self.fixture.services, controller=self.controller)
        endpoints._limit_connections(self.fixture.env, made, self.acceptors, "A")  # type: ignore[arg-type]

    def _acceptor(self, name: str) -> Acceptor:
        return Acceptor(Dispatcher(self.fixture.services, self.fixture.apis, name))

    async def come(self, name: str = "A", host: str = HOST, count: int = 1) -> list[ClientStream]:
        """Connect, and send a request."""
        streams = []
        for _ in range(count):
            stream = ClientStream()
            stream.peer = host
            stream.send_bytes(beat())
            await self.listeners[name].send.send(stream)
            streams.append(stream)
        await trio.sleep(0.001)
        return streams

    def publish(self, *records: Any) -> None:
        """Publish a metadata change."""
        before = self.controller.image
        draft = ImageBuilder(before)
        for record in records:
            draft.replay(record)
        self.controller.image = after = run_to_end(draft.image(before.offset + 1, 1))
        self.subscriptions.publish(after, run_to_end(draft.delta(after)))

    def set(self, key: str, value: str) -> None:
        self.publish(metadata_records.ConfigRecord(RESOURCE_BROKER, "", key, value))

    def play(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            async with trio.open_nursery() as nursery:
                for name, acceptor in self.acceptors.items():
                    nursery.start_soon(acceptor.run, self.listeners[name])
                await scenario()
                nursery.cancel_scope.cancel()

        in_virtual_time(main)


def served(streams: list[ClientStream]) -> int:
    return sum(bool(stream.sends) for stream in streams)


def test_connection_over_total_limit_waits_for_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    node = ConnectionQuotaNode(monkeypatch, max_connections="2")

    async def scenario() -> None:
        streams = await node.come(count=4)
        assert served(streams) == 2
        await trio.sleep(60)
        assert served(streams) == 2
        assert not any(stream.is_closed for stream in streams)
        streams[0].disconnect()
        await trio.sleep(0.001)
        assert [bool(stream.sends) for stream in streams] == [True, True, True, False]
        node.set("max.connections", "9")
        await trio.sleep(0.001)
        assert served(streams) == 4

    node.play(scenario)


def test_connection_over_per_ip_limit_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    node = ConnectionQuotaNode(monkeypatch, max_connections_per_ip="2")

    async def scenario() -> None:
        streams = await node.come(count=3)
        assert [(bool(x.sends), x.is_closed) for x in streams] == [(True, False), (True, False), (False, True)]
        assert served(await node.come(host="10.0.0.8")) == 1
        streams[1].disconnect()
        await trio.sleep(0.001)
        assert served(await node.come(count=2)) == 1

    node.play(scenario)


def test_connection_over_rate_is_delayed_and_over_ip_rate_closed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = ConnectionQuotaNode(monkeypatch, max_connection_creation_rate="10")

    async def scenario() -> None:
        began = trio.current_time()
        streams = await node.come(count=100)
        assert served(streams) == 100
        late = await node.come(count=5)
        while served(late) < 5:  # noqa: ASYNC110
            await trio.sleep(0.01)
        assert trio.current_time() - began == pytest.approx(0.5, abs=0.1), "ten a second"
        node.set("max.connection.creation.rate", "1000000")
        quota = [metadata_records.EntityData("ip", "10.0.0.8")]
        node.publish(metadata_records.ClientQuotaRecord(quota, "connection_creation_rate", 1, False))
        await trio.sleep(2)
        others = await node.come(host="10.0.0.8", count=11)
        assert served(others) == 10
        held = others[-1]
        await trio.sleep(0.9)
        assert (held.is_closed, held.receives) == (False, 0)
        await trio.sleep(0.2)
        assert (held.is_closed, held.receives) == (True, 0)

    node.play(scenario)


def test_inter_broker_connection_closes_longest_idle_client(monkeypatch: pytest.MonkeyPatch) -> None:
    node = ConnectionQuotaNode(monkeypatch, "A", "B", max_connections="3")

    async def scenario() -> None:
        streams = [(await node.come("B"))[0] for _ in range(3)]
        await trio.sleep(1)
        streams[0].send_bytes(beat())
        await trio.sleep(1)
        streams[2].send_bytes(beat())
        await trio.sleep(1)
        (broker,) = await node.come("A")
        assert broker.sends
        await trio.sleep(0.001)
        assert [stream.is_closed for stream in streams] == [False, True, False]
        assert not (await node.come("B"))[0].sends, "there are three"

    node.play(scenario)


def test_connections_before_a_limit_was_set_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    node = ConnectionQuotaNode(monkeypatch)
    assert node.acceptors["A"].connection_limiter is None

    async def scenario() -> None:
        streams = await node.come(count=5)
        assert served(streams) == 5
        node.set("num.io.threads", "7")
        assert node.acceptors["A"].connection_limiter is None
        node.set("max.connections", "3")
        await trio.sleep(0.001)
        assert sum(stream.is_closed for stream in streams) == 2
        assert served(await node.come()) == 0

    node.play(scenario)


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("max.connections", "0", True),
        ("max.connections", " 00", True),
        ("max.connection.creation.rate", "+0", True),
        ("max.connections", "1", False),
        ("listener.name.plaintext.max.connections", "0", True),
        ("max.connection.creation.rate", "0", True),
        ("max.connections.per.ip", "0", True),
        ("max.connections.per.ip.overrides", "10.0.0.1:5,::1:6", False),
        ("max.connections.per.ip.overrides", "10.0.0.1", True),
    ],
)
def test_connection_limits_of_zero_are_refused(key: str, value: str, *, refused: bool) -> None:
    with pytest.raises(ProtocolError) if refused else nullcontext():
        run_steps(validate_reconfiguration(NodeConfig(), MetadataImage(), "", {key: value}))


def test_invalid_overrides_fail_startup() -> None:
    with pytest.raises(ConfigException, match="Error parsing configuration property"):
        check_startup_values({"max.connections.per.ip.overrides": "everybody"})
