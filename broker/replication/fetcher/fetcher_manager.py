"""Manager of replica fetchers: each followed partition is assigned to one fetcher of its leader.

A single-node cluster has no fetchers, and does not load their modules.

Source: ``AbstractFetcherManager.scala``, ``ReplicaFetcherManager.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.replica_manager import ReplicaManager, TopicPartition
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.controller.metadata.record_serde import METADATA_VERSION, OLDEST_METADATA_VERSION
from ottla.env.env import FOREVER_S, Env

if TYPE_CHECKING:
    from ottla.broker.replication.fetcher.leader_endpoint import FetcherDependencies, RemoteLog
    from ottla.broker.replication.fetcher.replica_fetcher import ReplicaFetcher

SKIP_TIERED_OFFSETS = "follower.fetch.last.tiered.offset.enable"


def fetcher_index(topic: str, partition: int, count: int) -> int:
    """Return the 0-based index of a partition's fetcher among ``count`` of a leader, by Java's String hash (R-310)."""
    name = 0
    for letter in topic.encode():
        name = 31 * name + letter
    value = (31 * name + partition) % 2**32
    signed = value - 2**32 if value >= 2**31 else value
    return (0 if signed == -(2**31) else abs(signed)) % count


class ReplicaFetcherManager:
    """Replica fetchers of this node, by leader id and index. They send requests only while `run` is active."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        replicas: ReplicaManager,
        broker_epoch: Callable[[], int],
        fail: DiskErrorHandler,
        listener: str = "PLAINTEXT",
    ) -> None:
        """Create a manager; ``listener`` is the name of the inter-broker listener."""
        self._env = env
        self._replica_manager = replicas
        self._listener = listener
        self._fail = fail
        self._fetchers_per_leader = config.number("num.replica.fetchers")
        self._config = config
        self._broker_epoch = broker_epoch
        self._cached_dependencies: FetcherDependencies | None = None
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._assignments: dict[TopicPartition, tuple[HostedPartition, tuple[int, int]]] = {}
        self._nursery: trio.Nursery | None = None
        self._remote_log: RemoteLog | None = None

    def set_remote_log(self, remote_log: RemoteLog) -> None:
        """Set the tiered storage of this broker, for followers whose leader's local log starts above their log end.

        Leader epochs and producers are read from it, not records.
        """
        self._remote_log = remote_log

    def _dependencies(self) -> FetcherDependencies:
        """Return the common dependencies of all fetchers, created for the first of them."""
        if self._cached_dependencies is None:
            # lazy: 11.4 ms, 294 kB
            from ottla.broker.interbroker.credentials import inter_broker_access
            from ottla.broker.replication.fetcher.leader_endpoint import FetcherDependencies, fetch_limits_of

            env, config, replicas = self._env, self._config, self._replica_manager
            self._cached_dependencies = FetcherDependencies(
                env,
                config.node_id,
                config.number("replica.socket.timeout.ms") / 1000,
                self._broker_epoch,
                self._metadata_version,
                self._address,
                self._fail,
                fetch_limits_of(config),
                self._is_throttled,
                self._count_throttled,
                lambda: replicas.follower_quota.is_exceeded(replicas.image, env.monotonic_ms()),
                inter_broker_access(config),
                lambda: self._remote_log,
                lambda: config.effective_value(replicas.image, SKIP_TIERED_OFFSETS) == "true",
            )
        return self._cached_dependencies

    def _metadata_version(self) -> int:
        return self._replica_manager.image.features.get(METADATA_VERSION, OLDEST_METADATA_VERSION)

    def _address(self, broker: int) -> tuple[str, int] | None:
        return self._replica_manager.image.broker_address(broker, self._listener)

    def _is_throttled(self, replica: HostedPartition) -> bool:
        return self._replica_manager.follower_quota.is_throttled(
            self._replica_manager.image, replica.topic, replica.partition
        )

    def _count_throttled(self, size_bytes: int) -> None:
        self._replica_manager.follower_quota.record(size_bytes, self._env.monotonic_ms())

    # ------------------------------------------------------------------ followed partitions

    def add_partition(self, replica: HostedPartition, leader_id: int, leader_epoch: int) -> None:
        """Fetch a partition from a leader in a leader epoch, with no effect if unchanged; leader -1 stops fetching it.

        A partition that was fetched from another leader is removed there. A log without the epoch of its last record
        is truncated to its high watermark before. An I/O error of the log is passed to ``fail``; the partition is not
        fetched then.
        """
        at = (replica.topic, replica.partition)
        if leader_id < 0:
            self.remove_partition(at)
            return
        where = (leader_id, fetcher_index(*at, self._fetchers_per_leader))
        known = self._assignments.get(at)
        if known is not None and known != (replica, where):
            self.remove_partition(at)
        try:
            _prepare_follower_log(replica, self._env.now_ms())
        except OSError as error:
            self._fail(error, replica.log)
            return
        fetcher = self._fetchers.get(where)
        if fetcher is None:
            # lazy: 11.9 ms, 345 kB
            from ottla.broker.replication.fetcher.replica_fetcher import ReplicaFetcher

            fetcher = self._fetchers[where] = ReplicaFetcher(self._dependencies(), *where)
            if self._nursery is not None:
                self._nursery.start_soon(fetcher.run)
        self._assignments[at] = (replica, where)
        fetcher.add_partition(replica, leader_epoch)

    def remove_partition(self, topic_partition: TopicPartition) -> None:
        """Stop fetching a partition; a fetcher without partitions is stopped."""
        known = self._assignments.pop(topic_partition, None)
        if known is None:
            return
        replica, where = known
        fetcher = self._fetchers[where]
        fetcher.remove_partition(replica)
        if not len(fetcher):
            fetcher.stop()
            del self._fetchers[where]

    async def run(self) -> None:
        """Run all fetchers, including those added later, until cancelled.

        An exception of one ends all of them and is raised; `run` may be called again.
        """
        try:
            async with trio.open_nursery() as self._nursery:
                for fetcher in self._fetchers.values():
                    self._nursery.start_soon(fetcher.run)
                await self._env.sleep(FOREVER_S)
        finally:
            self._nursery = None


def _prepare_follower_log(replica: HostedPartition, now_ms: int) -> None:
    """Truncate a log that lacks the epoch of its last record to its high watermark, before it is fetched (R-317).

    Raises:
        OSError: the disk failed.
    """
    log = replica.log
    if log.epochs.latest_epoch() < 0 and log.log_end_offset > log.high_watermark:
        log.truncate_to(log.high_watermark, now_ms)
