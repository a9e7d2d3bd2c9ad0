"""Controller listener: committed metadata, also on a node without the broker role."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.components import endpoints
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.services import BrokerServices, QuotaHolder
from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.broker.tests.memory_net import MemoryNet
from ottla.client.channel import Channel
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import RESOURCE_BROKER, MetadataImage
from ottla.controller.metadata.subscriptions import MetadataSubscriptions
from ottla.wire.messages.api_versions import ApiVersionsRequest


async def _forever() -> None:
    await trio.sleep_forever()


class EndpointFixture:
    """Part of a controller-only node that its listener needs."""

    def __init__(self, config: NodeConfig, image: MetadataImage) -> None:
        self.env: Any = VirtualEnv()
        self.subscriptions = MetadataSubscriptions(lambda: image)
        self.controller: Any = SimpleNamespace(
            run=_forever, subscribe=self.subscriptions.subscribe, image=image, kraft_version=1
        )
        idle: Any = SimpleNamespace(publish=lambda image, delta: None, run=_forever)
        parts: Any = dict.fromkeys(BrokerServices.__dataclass_fields__)
        parts |= {"env": self.env, "config": config, "controller": self.controller, "log_creator": ()}
        cache: Any = SimpleNamespace(cluster_id="c", image=MetadataImage())
        self.made: Any = SimpleNamespace(
            services=BrokerServices(**parts | {"quota_holder": QuotaHolder()}),
            controller=self.controller,
            cache=cache,
            controller_registration=lambda: idle,
            run_liveness_probe=_forever,
            acceptors=[],
            request_observers=[],
        )

    def serve(self, listener: Any, nursery: trio.Nursery) -> None:
        listening: Any = SimpleNamespace(controllers={"CONTROLLER": listener}, clients={}, metrics=None)
        endpoints.start_controller_endpoints(self.env, self.made, listening, nursery)

    def commit(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.subscriptions.publish(image, delta)


def test_controller_only_node_returns_committed_feature_levels() -> None:
    net, fixture = MemoryNet(), EndpointFixture(NodeConfig(), MetadataImage())

    async def main() -> None:
        listener = await net.listen("h", 9093)
        async with trio.open_nursery() as nursery:
            fixture.serve(listener, nursery)
            fixture.commit(MetadataImage(7, features={"metadata.version": 30}), MetadataDelta(features=True))
            channel = Channel(await net.connect("h", 9093))
            answer = await channel.call(ApiVersionsRequest("ottla", "1"), 4)
            levels = {f.name: f.max_version_level for f in answer.finalized_features}
            assert levels == {"metadata.version": 30, "kraft.version": 1}
            assert answer.finalized_features_epoch == 7
            nursery.cancel_scope.cancel()

    run_virtual(main)


@pytest.mark.behaviour("S-307")
def test_controller_only_node_reloads_committed_certificates() -> None:
    """A controller-only node has no broker that applies metadata changes."""
    shown: list[str] = []
    keys = "listener.name.controller.ssl.keystore.location"
    settings = {"listeners": "CONTROLLER://h:9093", "controller.listener.names": "CONTROLLER"}
    settings |= {"process.roles": "controller", "listener.security.protocol.map": "CONTROLLER:SSL", keys: "first.pem"}
    own = (RESOURCE_BROKER, "7")
    fixture = EndpointFixture(NodeConfig(settings, node_id=7), MetadataImage(3, configs={own: {keys: "before.pem"}}))

    async def main() -> None:
        listener: Any = SimpleNamespace(reload_tls=lambda tls: shown.append(tls.keystore.location), accept=_forever)
        async with trio.open_nursery() as nursery:
            fixture.serve(listener, nursery)
            assert shown == ["before.pem"], "what was set before this start"
            fixture.commit(MetadataImage(configs={own: {keys: "next.pem"}}), MetadataDelta(configs=frozenset({own})))
            nursery.cancel_scope.cancel()

    run_virtual(main)
    assert shown == ["before.pem", "next.pem"]
