"""Tells the controller where this node's replicas lie, and which of its directories it has lost.

One task tells all of it: whoever finds something to tell notes it and goes on. What could not be told is told again.

Source: ``AssignmentsManager.java``, ``BrokerLifecycleManager.java`` (apache/kafka 4.3.1; KIP-858).
"""

from __future__ import annotations

import logging

import trio

from ottla.broker.metadata.admin import Submits
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.replica.storage import Storage
from ottla.controller.brokers import Assign, DirectoriesOffline
from ottla.wire.errors import ProtocolError
from ottla.world.env import Env

logger = logging.getLogger("ottla.directories")
RETRY_S = 1.0


class Directories:
    """What is still to be told."""

    def __init__(self, env: Env, node_id: int, controller: Submits, cache: MetadataCache, storage: Storage) -> None:
        self._env = env
        self._node_id = node_id
        self._controller = controller
        self._cache = cache
        self._storage = storage
        self._places: dict[tuple[bytes, int], bytes] = {}
        self._more = trio.Event()

    def place(self, topic_id: bytes, number: int, directory_id: bytes) -> None:
        """A replica lies elsewhere than the controller knows."""
        self._places[topic_id, number] = directory_id
        self._more.set()

    def changed(self) -> None:
        """A directory was lost, or the broker has registered: look again at what is to be told."""
        self._more.set()

    async def run(self) -> None:
        """Tell it, until cancelled."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            try:
                await self._tell()
            except (OSError, ProtocolError) as error:
                logger.warning("the controller was not told of directories, and is told again: %s", error)
                await self._env.sleep(RETRY_S)
                self._more.set()

    async def _tell(self) -> None:
        """Tell what there is; a broker the controller does not know registers first, and then tells."""
        known = self._cache.image.brokers.get(self._node_id)
        if known is None:
            return
        online = self._storage.online_ids
        if set(known.log_dirs) != set(online):
            await self._controller.submit(DirectoriesOffline(self._node_id, online))
        places = dict(self._places)
        if places:
            await self._controller.submit(Assign(self._node_id, list(places.items())))
            for at, place in places.items():
                if self._places.get(at) == place:
                    del self._places[at]
