"""Tells the controller where this node's replicas lie, and which of its directories it has lost.

One task tells all of it: whoever finds something to tell notes it and goes on. What could not be told is told again.

Source: ``AssignmentsManager.java``, ``BrokerLifecycleManager.java`` (apache/kafka 4.3.1; KIP-858).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping

import trio

from ottla.broker.metadata.admin import Submits
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.replica.storage import Storage
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import assign_replicas_to_dirs as ad
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.world.env import Env

logger = logging.getLogger("ottla.directories")
RETRY_S = 1.0
ROWS_A_REQUEST = 2250
"""Kafka's own limit for one AssignReplicasToDirs."""


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
        offline = set(known.log_dirs) - set(self._storage.online_ids)
        if offline:
            beat = BrokerHeartbeatRequest(self._node_id, known.broker_epoch, self._cache.image.offset, known.fenced)
            beat.offline_log_dirs = sorted(offline)
            _check(await self._controller.submit(beat))
        places = dict(itertools.islice(self._places.items(), ROWS_A_REQUEST))
        if places:
            _check(await self._controller.submit(assignment(self._node_id, known.broker_epoch, places)))
            for at, place in places.items():
                if self._places.get(at) == place:
                    del self._places[at]
        if self._places:
            self._more.set()


def _check(answer: BrokerHeartbeatResponse | ad.AssignReplicasToDirsResponse) -> None:
    """Raise what the controller answered, so that it is told again."""
    if answer.error_code:
        raise ProtocolError(ErrorCode(answer.error_code))


def assignment(
    node_id: int, broker_epoch: int, places: Mapping[tuple[bytes, int], bytes]
) -> ad.AssignReplicasToDirsRequest:
    """The request that tells where replicas lie: ``(topic id, partition) -> directory``."""
    rows: dict[bytes, dict[bytes, list[int]]] = {}
    for (topic_id, number), directory_id in places.items():
        rows.setdefault(directory_id, {}).setdefault(topic_id, []).append(number)
    return ad.AssignReplicasToDirsRequest(
        node_id,
        broker_epoch,
        [
            ad.AssignReplicasToDirsRequestDirectoryData(
                directory_id,
                [
                    ad.AssignReplicasToDirsRequestTopicData(
                        topic_id, [ad.AssignReplicasToDirsRequestPartitionData(n) for n in numbers]
                    )
                    for topic_id, numbers in topics.items()
                ],
            )
            for directory_id, topics in rows.items()
        ],
    )
