"""Share partition manager of a broker: share sessions, and the share partitions that it leads.

Source: ``SharePartitionManager.java``, ``SharePartitionCache.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import TypeVar

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.coordinator.timers import Timers
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.share_partitions.group_config_provider import ShareGroupConfigProvider
from ottla.broker.share_partitions.partition_metadata_client import PartitionMetadataClient
from ottla.broker.share_partitions.share_partition_leader import SharePartitionDependencies, SharePartitionLeader
from ottla.broker.share_partitions.share_sessions import ShareSessionCache, TopicIdPartition
from ottla.broker.share_state.coordinator import ShareCoordinator
from ottla.broker.share_state.persister import Persister
from ottla.broker.share_state.share_group_offsets import SharePartitionKey
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import Env
from ottla.jobs.bounded_concurrency import for_each_concurrently
from ottla.jobs.job import Job
from ottla.jobs.time_slice import BACKGROUND_SLICE_MS, TimeSlice
from ottla.wire.errors import ErrorCode, ProtocolError

H = TypeVar("H", bound=Hashable)


def _keys(group_id: str, places: Mapping[bytes, Iterable[int]]) -> Iterator[SharePartitionKey]:
    return (SharePartitionKey(group_id, topic_id, number) for topic_id in places for number in places[topic_id])


class SharePartitionManager:
    """Share partitions, share sessions and share group settings of this broker.

    Created with the first request about share groups, or the first led partition of `__share_group_state`.
    """

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        timers: Timers,
        replicas: ReplicaManager,
        persister: Persister,
        coordinator: ShareCoordinator,
        latest: PartitionMetadataClient,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        wake: Callable[[object], None],
        fail: DiskErrorHandler,
    ) -> None:
        self._replicas = replicas
        self.group_config = ShareGroupConfigProvider(env, config, lambda: replicas.image)
        self.sessions = ShareSessionCache(config.number("group.share.max.share.sessions"), self._on_session_released)
        self.sessions.group_closed_listeners.append(self._on_group_closed)
        self.persister = persister
        self.coordinator = coordinator
        self.metadata_client = latest
        self.start_task = start
        """Starts a background task."""
        self._dependencies = SharePartitionDependencies(
            env, timers, persister, self.group_config, start, wake, self._remove, fail
        )
        self._by_key: dict[SharePartitionKey, SharePartitionLeader] = {}
        self._by_group: dict[str, dict[SharePartitionKey, None]] = {}
        self._by_partition: dict[TopicIdPartition, dict[SharePartitionKey, None]] = {}
        self._env = env
        self._initializations: dict[str, list[list[ProtocolError]]] = {}
        """Running calls of `initialize_each` by group id: each a list; an error appended to it stops the call."""
        self._removals: deque[Job[None]] = deque()
        """Queue of removals of share partitions and releases of records; one runs at a time, in time slices."""
        replicas.on_resigned.append(self.on_resignation)

    async def run(self) -> None:
        """Run the share coordinator of this broker until cancelled; then close the connections to other brokers."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.coordinator.run)
                nursery.start_soon(self.coordinator.prune_periodically)
        finally:
            self.persister.close()
            self.metadata_client.close()

    def get(self, group_id: str, place: TopicIdPartition) -> SharePartitionLeader | None:
        """Return the share partition of a group, loaded or loading, even of an earlier leader epoch; else None."""
        return self._by_key.get(SharePartitionKey(group_id, *place))

    def get_or_load(self, group_id: str, place: TopicIdPartition) -> SharePartitionLeader:
        """Return the share partition of a group; create it and start to load its state if this leader has none yet.

        It may not be loaded yet. One of an earlier leader epoch is closed and replaced.

        Raises:
            ProtocolError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        key = SharePartitionKey(group_id, *place)
        replica = self.leader_replica(place)
        known = self._by_key.get(key)
        if known is not None and known.replica is replica and known.leader_epoch == replica.leader_epoch:
            return known
        if known is not None:
            self._remove(known)
        made = self._by_key[key] = SharePartitionLeader(self._dependencies, key, replica)
        self._by_group.setdefault(group_id, {})[key] = None
        self._by_partition.setdefault(place, {})[key] = None
        return made

    def leader_replica(self, place: TopicIdPartition) -> HostedPartition:
        """Return the replica of a partition that this broker leads.

        Raises:
            ProtocolError: as `get_or_load`.
        """
        name = self.topic_name(place)
        if name is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self._replicas.leader(name, place.partition)

    def topic_name(self, place: TopicIdPartition) -> str | None:
        """Return the topic name of a partition; None if the topic id is unknown."""
        return self._replicas.image.topic_names.get(place.topic_id)

    def partition_exists(self, place: TopicIdPartition) -> bool:
        """Return True if the partition is in the metadata image."""
        image: MetadataImage = self._replicas.image
        topic = image.topics.get(image.topic_names.get(place.topic_id, ""))
        return topic is not None and place.partition in topic.partitions

    async def initialize(
        self, group_id: str, epoch: int, places: Mapping[bytes, Iterable[int]], start_offset: int
    ) -> None:
        """Initialize the persisted state of a group's partitions at ``start_offset``; ``epoch``: state epoch.

        Wait until all writes are committed. A ``start_offset`` of -1 leaves it to the first leaders.

        Raises:
            ProtocolError: the first error of the persister; not all partitions are initialized.
        """
        failures: list[ProtocolError] = []
        keys = takewhile(lambda _: not failures, _keys(group_id, places))
        starts = ((key, start_offset) for key in keys)
        await self.initialize_each(group_id, epoch, starts, lambda _, error: failures.append(error))
        if failures:
            raise failures[0].with_traceback(None)

    async def initialize_each(
        self,
        group_id: str,
        epoch: int,
        starts: Iterable[tuple[SharePartitionKey, int]],
        failed: Callable[[SharePartitionKey, ProtocolError], None],
    ) -> None:
        """Initialize the persisted state of a group's partitions at individual offsets; call ``failed`` for each error.

        Wait until all writes are committed or failed. If `delete_state` is called for the group meanwhile, the
        remaining initializations fail with COORDINATOR_LOAD_IN_PROGRESS, since they would follow the deletion.
        ``epoch``: state epoch; ``starts``: share partition and start offset (-1: chosen by the first leader).
        """
        overtaken: list[ProtocolError] = []

        async def one(start: tuple[SharePartitionKey, int]) -> None:
            try:
                if overtaken:
                    raise overtaken[0].with_traceback(None)
                await self.persister.initialize(start[0], epoch, start[1])
            except ProtocolError as error:
                failed(start[0], error)

        underway = self._initializations.setdefault(group_id, [])
        underway.append(overtaken)
        try:
            await for_each_concurrently(starts, one)
        finally:
            underway[:] = [each for each in underway if each is not overtaken]
            if not underway:
                self._initializations.pop(group_id, None)

    async def delete_state(self, group_id: str, places: Mapping[bytes, Iterable[int]]) -> ProtocolError | None:
        """Delete the persisted state of a group's partitions; return the first error.

        None if all are deleted; after an error, those not yet deleted remain. Running initializations of the group's
        partitions are stopped, also of other ones.
        """
        for underway in self._initializations.get(group_id, ()):
            # its initialization would follow the deletion
            underway.append(ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        failures: list[ProtocolError] = []

        async def one(key: SharePartitionKey) -> None:
            try:
                if not failures:
                    await self.persister.delete(key)
            except ProtocolError as error:
                failures.append(error)

        await for_each_concurrently(_keys(group_id, places), one)
        return failures[0] if failures else None

    # ------------------------------------------------------------------ removal

    def _on_session_released(self, group_id: str, member_id: str, places: list[TopicIdPartition]) -> None:
        self._run_removal(self._release_all(group_id, member_id, places))

    def _release_all(self, group_id: str, member_id: str, places: list[TopicIdPartition]) -> Job[None]:
        for place in places:
            if self.sessions.is_open(group_id, member_id):
                return  # the member has a new session: its records are released when their locks expire
            shared = self.get(group_id, place)
            if shared is not None:
                shared.release(member_id)
            yield None

    def _on_group_closed(self, group_id: str) -> None:
        keys = list(self._by_group.get(group_id, ()))
        self._run_removal(self._remove_group(group_id, keys))

    def _remove_group(self, group_id: str, keys: list[SharePartitionKey]) -> Job[None]:
        for key in keys:
            if self.sessions.has_sessions(group_id):
                return
            shared = self._by_key.get(key)
            if shared is not None:
                self._remove(shared)
            yield None

    def _run_removal(self, removal: Job[None]) -> None:
        """Run a removal job for one time slice, and the rest in the background; queue it behind running removals."""
        self._removals.append(removal)
        if len(self._removals) == 1:
            rest = TimeSlice(self._env, BACKGROUND_SLICE_MS).start(self._run_removals())
            if rest is not None:
                self.start_task(lambda: rest)

    def _run_removals(self) -> Job[None]:
        while self._removals:
            try:
                yield from self._removals[0]
            finally:  # a failed removal must not block later ones
                self._removals.popleft()

    def on_resignation(self, replica: HostedPartition) -> None:
        """Close the share partitions (of all groups) of a partition that this broker no longer leads."""
        for key in list(self._by_partition.get(TopicIdPartition(replica.topic_id, replica.partition), ())):
            if self._by_key[key].replica is replica:
                self._remove(self._by_key[key])

    def _remove(self, shared: SharePartitionLeader) -> None:
        if self._by_key.get(shared.key) is shared:
            key = shared.key
            del self._by_key[key]
            _remove_key(self._by_group, key.group_id, key)
            _remove_key(self._by_partition, TopicIdPartition(key.topic_id, key.partition), key)
        shared.close()


def _remove_key(table: dict[H, dict[SharePartitionKey, None]], name: H, key: SharePartitionKey) -> None:
    keys = table[name]
    del keys[key]
    if not keys:
        del table[name]
