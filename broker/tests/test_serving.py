"""A controller's listener speaks of what is committed, also where no broker applies it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import trio

from ottla.broker import serving
from ottla.broker.config import NodeConfig
from ottla.broker.services import Metering, Services
from ottla.broker.tests.memory_net import MemoryNet
from ottla.broker.tests.world import VirtualEnv, virtually
from ottla.controller.delta import Delta
from ottla.controller.image import Image
from ottla.peers.client import Channel
from ottla.wire.messages.api_versions import ApiVersionsRequest


async def _forever() -> None:
    await trio.sleep_forever()


def test_a_controller_alone_tells_the_levels_that_are_committed() -> None:
    env: Any = VirtualEnv()
    net = MemoryNet()
    controller: Any = SimpleNamespace(run=_forever, listeners=[], image=Image(), kraft_version=1)
    idle: Any = SimpleNamespace(publish=lambda image, delta: None, run=_forever)
    parts: Any = dict.fromkeys(Services.__dataclass_fields__)
    parts |= {"env": env, "config": NodeConfig(), "controller": controller, "making": (), "metering": Metering()}
    cache: Any = SimpleNamespace(cluster_id="c", image=Image())
    made: Any = SimpleNamespace(
        services=Services(**parts),
        controller=controller,
        cache=cache,
        registration=lambda: idle,
        look_after=_forever,
        acceptors=[],
    )

    async def main() -> None:
        listener = await net.listen("h", 9093)
        async with trio.open_nursery() as nursery:
            listening: Any = SimpleNamespace(controllers={"CONTROLLER": listener}, clients={}, metrics=None)
            serving.controllers(env, made, listening, nursery)
            image = Image(7, features={"metadata.version": 30})
            for hear in controller.listeners:
                hear(image, Delta(features=True))
            channel = Channel(await net.connect("h", 9093))
            answer = await channel.call(ApiVersionsRequest("ottla", "1"), 4)
            levels = {f.name: f.max_version_level for f in answer.finalized_features}
            assert levels == {"metadata.version": 30, "kraft.version": 1}
            assert answer.finalized_features_epoch == 7
            nursery.cancel_scope.cancel()

    virtually(main)
