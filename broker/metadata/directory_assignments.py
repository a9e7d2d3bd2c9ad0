"""Reports to the controller: directories of this node's replicas, and failed directories.

A single task sends them; other tasks only queue them. A failed report is repeated.

Source: ``AssignmentsManager.java``, ``BrokerLifecycleManager.java`` (apache/kafka 4.3.1; KIP-858).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.controller_forwarder import RequestSubmitter
from ottla.broker.storage.log_dirs import LogDirs
from ottla.env.env import Env
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from ottla.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

logger = logging.getLogger("ottla.directories")
RETRY_S = 1.0
MAX_ASSIGNMENTS_PER_REQUEST = 2250
"""Maximum number of replicas in one AssignReplicasToDirs request, as in Kafka."""


class DirectoryAssignments:
    """Queue and sender of directory assignments and failed directories."""

    def __init__(
        self, env: Env, node_id: int, controller: RequestSubmitter, cache: MetadataCache, storage: LogDirs
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._controller = controller
        self._cache = cache
        self._log_dirs = storage
        self._pending: dict[tuple[bytes, int], bytes] = {}
        self._wakeup = trio.Event()

    def assign(self, topic_id: bytes, number: int, directory_id: bytes) -> None:
        """Queue the assignment of the replica of partition ``number`` to a directory id, replacing an unsent one."""
        self._pending[topic_id, number] = directory_id
        self._wakeup.set()

    def wake(self) -> None:
        """Wake the sender after a directory failure or a registration."""
        self._wakeup.set()

    async def run(self) -> None:
        """Send pending reports, with retries, until cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            try:
                await self._send_pending()
            except (OSError, ProtocolError) as error:
                logger.warning("Unable to send AssignReplicasToDirs to the controller, retrying: %s", error)
                await self._env.sleep(RETRY_S)
                self._wakeup.set()

    async def _send_pending(self) -> None:
        """Send failed directories and pending assignments; nothing before the broker is registered.

        At most `MAX_ASSIGNMENTS_PER_REQUEST` assignments are sent; if more are pending, `run` is woken for them. An
        assignment whose row in the response has an error is not repeated.

        Raises:
            ProtocolError, OSError: error for the whole request, or no response; the assignments stay queued.
        """
        known = self._cache.image.brokers.get(self._node_id)
        if known is None:
            return
        offline = set(known.log_dirs) - set(self._log_dirs.online_ids)
        if offline:
            beat = BrokerHeartbeatRequest(self._node_id, known.broker_epoch, self._cache.image.offset, known.fenced)
            beat.offline_log_dirs = sorted(offline)
            _check_response(await self._controller.submit(beat))
        places = dict(itertools.islice(self._pending.items(), MAX_ASSIGNMENTS_PER_REQUEST))
        if places:
            _check_response(
                await self._controller.submit(build_assignment_request(self._node_id, known.broker_epoch, places))
            )
            for at, place in places.items():
                if self._pending.get(at) == place:
                    del self._pending[at]
        if self._pending:
            self._wakeup.set()


def _check_response(answer: BrokerHeartbeatResponse | AssignReplicasToDirsResponse) -> None:
    """Raise ProtocolError with the top-level error of a response, if any, so that the report is repeated."""
    if answer.error_code:
        raise ProtocolError(ErrorCode(answer.error_code))


def build_assignment_request(
    node_id: int, broker_epoch: int, places: Mapping[tuple[bytes, int], bytes]
) -> AssignReplicasToDirsRequest:
    """Return the AssignReplicasToDirs request; ``places``: directory ids by (topic id, partition)."""
    # lazy: 0.8 ms, 27 kB: only on a node with several log directories
    from ottla.wire.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsRequestDirectoryData,
        AssignReplicasToDirsRequestPartitionData,
        AssignReplicasToDirsRequestTopicData,
    )

    rows: dict[bytes, dict[bytes, list[int]]] = {}
    for (topic_id, number), directory_id in places.items():
        rows.setdefault(directory_id, {}).setdefault(topic_id, []).append(number)
    return AssignReplicasToDirsRequest(
        node_id,
        broker_epoch,
        [
            AssignReplicasToDirsRequestDirectoryData(
                directory_id,
                [
                    AssignReplicasToDirsRequestTopicData(
                        topic_id, [AssignReplicasToDirsRequestPartitionData(n) for n in numbers]
                    )
                    for topic_id, numbers in topics.items()
                ],
            )
            for directory_id, topics in rows.items()
        ],
    )
