"""Controller with its real rules and listener, and a broker on another node: registration, lease and shutdown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.dispatch.api_registry import CONTROLLER_APIS
from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.interbroker.broker_liveness_probe import BrokerLivenessProbe
from ottla.broker.interbroker.controller_channel import ControllerChannel
from ottla.broker.metadata.broker_lifecycle import BrokerLifecycleManager
from ottla.broker.network.acceptor import Acceptor
from ottla.broker.requests.peer import Peer
from ottla.broker.services import QuotaHolder
from ottla.broker.tests.handler_fixture import run_virtual
from ottla.broker.tests.memory_net import MemoryNet, MemoryStream
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.quorum_controller import QuorumController
from ottla.controller.tests.controller_fixture import ControllerFixture
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.framing import encode_request
from ottla.wire.messages import broker_heartbeat, create_topics, describe_quorum, unregister_broker

ME, CONTROLLER_PORT, BROKER_PORT = 2, 9093, 9094


class RemoteBroker:
    """Node 2: without a controller; metadata arrives a moment after it is committed."""

    def __init__(
        self, fixture: ControllerFixture, controller: QuorumController, net: MemoryNet, nursery: trio.Nursery
    ) -> None:
        self.env = fixture.env
        self.net = net
        self.image = MetadataImage()
        self.is_active = False
        self.node_id, self.leader_id = ME, 1
        self.config = NodeConfig(node_id=ME, host="h", port=BROKER_PORT)
        self.cache: Any = SimpleNamespace(image=self.image, cluster_id=fixture.identity.cluster_id)
        storage: Any = SimpleNamespace(
            online_ids=[b"d" * 16], cordoned_ids=[], clean_shutdown_epoch=-1, cordon=lambda _text: False
        )
        node: Any = self
        self.channel = ControllerChannel(self.env, ME, node, "CONTROLLER")
        self.lifecycle = BrokerLifecycleManager(
            self.env, self.config, self.channel, self.cache, node, storage, lambda: self.image
        )
        self.nursery = nursery
        self._epoch = 0
        controller.subscribe(self._hear)

    def _hear(self, image: MetadataImage, delta: MetadataDelta) -> None:
        async def later() -> None:
            await trio.sleep(0.002)
            self.image = self.cache.image = image
            self.lifecycle.publish(image, delta)

        self.nursery.start_soon(later)

    @property
    def offset(self) -> int:
        return self.image.offset

    async def wait_applied(self) -> None:
        await trio.lowlevel.checkpoint()

    def leader_address(self) -> tuple[str, int]:
        return "h", CONTROLLER_PORT

    async def submit(self, request: Any, version: int = 0) -> Any:
        raise AssertionError

    async def handle_raft_request(self, message: Any, version: int, listener: str) -> Any:
        raise AssertionError

    def record_heartbeat(self, broker_id: int, broker_epoch: int) -> None:
        raise AssertionError

    async def ask(self, request: Any, version: int) -> Any:
        """Return the response to a client of this node."""
        frame = encode_request(ApiKey(request.SPEC.key), version, 3, "client", request)[4:]
        asking = SimpleNamespace(version=version, peer=Peer("10.9.9.9", ("h", BROKER_PORT)), frame=frame)
        return await self.channel.forward(asking, request)

    async def live(self) -> None:
        """Register, and send heartbeats."""
        await self.net.listen("h", BROKER_PORT)
        await self.lifecycle.register()
        await self.lifecycle.unfence()
        self.nursery.start_soon(self.lifecycle.run)


class TwoNodeCluster:
    """Node 1 with controller and broker, node 2 with a broker."""

    def __init__(self) -> None:
        self.fixture = ControllerFixture()
        self.net = MemoryNet()
        self.controller: QuorumController
        self.broker: RemoteBroker
        self.accepted: list[MemoryStream] = []

    def play(self, scenario: Callable[[TwoNodeCluster], Awaitable[None]]) -> None:
        async def main() -> None:
            async with self.fixture.controller() as self.controller, trio.open_nursery() as nursery:
                self.fixture.env.net = self.net
                watch = BrokerLivenessProbe(self.fixture.env, 1, self.controller)  # type: ignore[arg-type]
                self.controller.subscribe(watch.publish)
                metadata = SimpleNamespace(image=self.controller.image, cluster_id="c", kraft_version=1)
                services: Any = SimpleNamespace(
                    env=self.fixture.env,
                    config=NodeConfig(),
                    controller=self.controller,
                    metadata=metadata,
                    log_creator=(),
                    authorizer=None,
                    quota_holder=QuotaHolder(),
                    liveness_probe=lambda: watch,
                )
                listener = await self.net.listen("h", CONTROLLER_PORT)
                nursery.start_soon(Acceptor(Dispatcher(services, CONTROLLER_APIS, "CONTROLLER")).run, listener)
                nursery.start_soon(watch.run)
                nursery.start_soon(self._own_heartbeats)
                self.broker = RemoteBroker(self.fixture, self.controller, self.net, nursery)
                with trio.fail_after(1000):
                    await self.broker.live()
                    await scenario(self)
                nursery.cancel_scope.cancel()

        run_virtual(main)

    async def _own_heartbeats(self) -> None:
        """Send heartbeats of broker 1 beside the controller."""
        epoch = self.controller.image.brokers[1].broker_epoch
        while True:
            self.controller.record_heartbeat(1, epoch)
            await self.controller.submit(
                broker_heartbeat.BrokerHeartbeatRequest(1, epoch, self.controller.image.offset)
            )
            await trio.sleep(0.1)

    def state(self, broker_id: int = ME) -> str:
        broker = self.controller.image.brokers[broker_id]
        return "fenced" if broker.fenced else "serves"


def test_remote_broker_registers_is_unfenced_and_keeps_its_lease() -> None:
    async def scenario(cluster: TwoNodeCluster) -> None:
        registered = cluster.controller.image.brokers[ME]
        assert [(e.name, e.host, e.port) for e in registered.end_points] == [("PLAINTEXT", "h", BROKER_PORT)]
        assert registered.broker_epoch == cluster.broker.lifecycle.broker_epoch
        offset = cluster.controller.image.offset
        await trio.sleep(60)
        assert cluster.state() == "serves"
        written = cluster.controller.image.offset - offset
        assert written <= 60 * 2 + 2  # the controller writes a no-op record; heartbeats write none

    TwoNodeCluster().play(scenario)


def test_client_requests_are_forwarded_to_controller() -> None:
    async def scenario(cluster: TwoNodeCluster) -> None:
        request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", 3, 2)], 5000)
        answer = await cluster.broker.ask(request, 7)
        assert [(t.name, t.error_code, t.num_partitions) for t in answer.topics] == [("t", 0, 3)]
        assert {p.replicas for p in cluster.controller.image.topics["t"].partitions.values()} <= {(1, 2), (2, 1)}
        again = await cluster.broker.ask(request, 2)
        assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        part = describe_quorum.DescribeQuorumRequestPartitionData(0)
        query = describe_quorum.DescribeQuorumRequest(
            [describe_quorum.DescribeQuorumRequestTopicData("__cluster_metadata", [part])]
        )
        row = (await cluster.broker.ask(query, 2)).topics[0].partitions[0]
        assert (row.error_code, row.leader_id, [v.replica_id for v in row.current_voters]) == (0, 1, [1])

    TwoNodeCluster().play(scenario)


def test_killed_broker_is_fenced_at_once() -> None:
    async def scenario(cluster: TwoNodeCluster) -> None:
        await trio.sleep(3)
        await cluster.broker.ask(create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", 4, 2)], 5000), 7)
        killed = trio.current_time()
        cluster.net.listeners[BROKER_PORT].close()
        cluster.broker.lifecycle._is_shutting_down = True
        cluster.net.accepted[0].peer_stream.close()  # the connection of its heartbeats
        await trio.sleep(0.05)
        assert cluster.state() == "fenced"
        assert {p.leader for p in cluster.controller.image.topics["t"].partitions.values()} == {1}
        assert trio.current_time() - killed < 0.1

    TwoNodeCluster().play(scenario)


def test_silent_broker_is_fenced_at_session_timeout() -> None:
    async def scenario(cluster: TwoNodeCluster) -> None:
        await trio.sleep(3)
        cluster.broker.lifecycle._is_shutting_down = True
        await trio.sleep(6)
        assert cluster.state() == "serves"
        await trio.sleep(6)
        assert cluster.state() == "fenced"
        assert cluster.state(1) == "serves"

    TwoNodeCluster().play(scenario)


@pytest.mark.parametrize("leads", [False, True])
def test_controlled_shutdown_moves_leadership_and_completes(leads: bool) -> None:
    async def scenario(cluster: TwoNodeCluster) -> None:
        if leads:
            await cluster.broker.ask(
                create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", 4, 2)], 5000), 7
            )
        began = trio.current_time()
        await cluster.broker.lifecycle.controlled_shutdown()
        assert trio.current_time() - began < 0.5
        assert cluster.state() == "fenced"
        topics = cluster.controller.image.topics.values()
        assert ME not in {p.leader for t in topics for p in t.partitions.values()}

    TwoNodeCluster().play(scenario)


def test_unregistered_broker_registers_again() -> None:
    async def scenario(cluster: TwoNodeCluster) -> None:
        before = cluster.broker.lifecycle.broker_epoch
        answer = await cluster.broker.ask(unregister_broker.UnregisterBrokerRequest(ME), 0)
        assert answer.error_code == 0
        await trio.sleep(0.5)
        assert cluster.state() == "serves"
        assert cluster.broker.lifecycle.broker_epoch > before

    TwoNodeCluster().play(scenario)
