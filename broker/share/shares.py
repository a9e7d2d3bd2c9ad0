"""Everything of share groups that this node serves: its sessions, the partitions it leads for them, their settings.

Source: ``SharePartitionManager.java``, ``SharePartitionCache.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import TypeVar

import trio

from ottla.broker.config import NodeConfig
from ottla.broker.coordinator.timers import Timers
from ottla.broker.replica.replica import HostedPartition
from ottla.broker.replica.replicas import ReplicaManager
from ottla.broker.replica.storage import DiskErrorHandler
from ottla.broker.share.coordinator import ShareCoordinator
from ottla.broker.share.group_rules import ShareGroupRules
from ottla.broker.share.latest import Latest
from ottla.broker.share.persister import Persister
from ottla.broker.share.sessions import Place, ShareSessions
from ottla.broker.share.several import AT_ONCE, for_each
from ottla.broker.share.shared import Ground, Shared
from ottla.broker.share.state import SharePartitionKey
from ottla.broker.turn import BACKGROUND_SLICE_MS, Job, TimeSlice
from ottla.controller.image import MetadataImage
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.world.env import Env

H = TypeVar("H", bound=Hashable)


def _keys(group_id: str, places: Mapping[bytes, Iterable[int]]) -> Iterator[SharePartitionKey]:
    return (SharePartitionKey(group_id, topic_id, number) for topic_id in places for number in places[topic_id])


class Shares:
    """Made when a share group first comes."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        timers: Timers,
        replicas: ReplicaManager,
        persister: Persister,
        coordinator: ShareCoordinator,
        latest: Latest,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        wake: Callable[[object], None],
        fail: DiskErrorHandler,
    ) -> None:
        self._replicas = replicas
        self.rules = ShareGroupRules(env, config, lambda: replicas.image)
        self.sessions = ShareSessions(config.number("group.share.max.share.sessions"), self._released)
        self.sessions.on_group_gone.append(self._forget_group)
        self.persister = persister
        self.coordinator = coordinator
        self.latest = latest
        self.start = start
        """Runs something beside the requests."""
        self._ground = Ground(env, timers, persister, self.rules, start, wake, self._forget, fail)
        self._by_key: dict[SharePartitionKey, Shared] = {}
        self._by_group: dict[str, dict[SharePartitionKey, None]] = {}
        self._by_place: dict[Place, dict[SharePartitionKey, None]] = {}
        self._env = env
        self._beginning: dict[str, list[list[ProtocolError]]] = {}
        """By group, what is being begun: each stops where it hears of a failure."""
        self._going: deque[Job[None]] = deque()
        """What is let go of in turns."""
        replicas.on_resigned.append(self.resigned)

    async def run(self) -> None:
        """Keep the states this node leads, until cancelled; then hang up on the others."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.coordinator.run)
                nursery.start_soon(self.coordinator.prune_now_and_then)
        finally:
            self.persister.close()
            self.latest.close()

    def get(self, group_id: str, place: Place) -> Shared | None:
        """A share partition that is served here now."""
        return self._by_key.get(SharePartitionKey(group_id, *place))

    def serve(self, group_id: str, place: Place) -> Shared:
        """The same; it is fetched from the persister if it is not here yet.

        Raises:
            ProtocolError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        key = SharePartitionKey(group_id, *place)
        replica = self.replica(place)
        known = self._by_key.get(key)
        if known is not None and known.replica is replica and known.leader_epoch == replica.leader_epoch:
            return known
        if known is not None:
            self._forget(known)
        made = self._by_key[key] = Shared(self._ground, key, replica)
        self._by_group.setdefault(group_id, {})[key] = None
        self._by_place.setdefault(place, {})[key] = None
        return made

    def replica(self, place: Place) -> HostedPartition:
        """The partition itself, led here. Raises: ProtocolError, as `serve`."""
        name = self.name_of(place)
        if name is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self._replicas.leader(name, place.partition)

    def name_of(self, place: Place) -> str | None:
        """The name of its topic; None where the id is unknown."""
        return self._replicas.image.topic_names.get(place.topic_id)

    def exists(self, place: Place) -> bool:
        """Whether the cluster has such a partition."""
        image: MetadataImage = self._replicas.image
        topic = image.topics.get(image.topic_names.get(place.topic_id, ""))
        return topic is not None and place.partition in topic.partitions

    async def initialize(
        self, group_id: str, epoch: int, places: Mapping[bytes, Iterable[int]], start_offset: int
    ) -> None:
        """Have the persister begin a group's partitions. Raises: ProtocolError: not all of them could be."""
        failures: list[ProtocolError] = []
        keys = takewhile(lambda _: not failures, _keys(group_id, places))
        starts = ((key, start_offset) for key in keys)
        await self.begin(group_id, epoch, starts, lambda _, error: failures.append(error))
        if failures:
            raise failures[0].with_traceback(None)

    async def begin(
        self,
        group_id: str,
        epoch: int,
        starts: Iterable[tuple[SharePartitionKey, int]],
        failed: Callable[[SharePartitionKey, ProtocolError], None],
    ) -> None:
        """Have the persister begin partitions of a group, each at an offset; ``failed`` hears of those it does not.

        What is deleted of the group meanwhile refuses the rest, which would come behind the deletion.
        """
        overtaken: list[ProtocolError] = []

        async def one(start: tuple[SharePartitionKey, int]) -> None:
            try:
                if overtaken:
                    raise overtaken[0].with_traceback(None)
                await self.persister.initialize(start[0], epoch, start[1])
            except ProtocolError as error:
                failed(start[0], error)

        underway = self._beginning.setdefault(group_id, [])
        underway.append(overtaken)
        try:
            await for_each(starts, one)
        finally:
            underway[:] = [each for each in underway if each is not overtaken]
            if not underway:
                self._beginning.pop(group_id, None)

    async def forget(self, group_id: str, places: Mapping[bytes, Iterable[int]]) -> ProtocolError | None:
        """Have the persister forget a group's partitions; gives what went wrong first."""
        for underway in self._beginning.get(group_id, ()):
            underway.append(ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))  # it would come behind
        failures: list[ProtocolError] = []

        async def one(key: SharePartitionKey) -> None:
            try:
                if not failures:
                    await self.persister.delete(key)
            except ProtocolError as error:
                failures.append(error)

        await for_each(_keys(group_id, places), one)
        return failures[0] if failures else None

    # ------------------------------------------------------------------ what goes

    def _released(self, group_id: str, member_id: str, places: list[Place]) -> None:
        self._do(self._releasing(group_id, member_id, places), len(places))

    def _releasing(self, group_id: str, member_id: str, places: list[Place]) -> Job[None]:
        for place in places:
            if self.sessions.is_open(group_id, member_id):
                return  # it is back, and may have got others meanwhile: what it had is its own until the locks end
            shared = self.get(group_id, place)
            if shared is not None:
                shared.release(member_id)
            yield

    def _forget_group(self, group_id: str) -> None:
        keys = list(self._by_group.get(group_id, ()))
        self._do(self._forgetting(group_id, keys), len(keys))

    def _forgetting(self, group_id: str, keys: list[SharePartitionKey]) -> Job[None]:
        for key in keys:
            if self.sessions.has_any(group_id):
                return
            shared = self._by_key.get(key)
            if shared is not None:
                self._forget(shared)
            yield

    def _do(self, steps: Job[None], rows: int) -> None:
        """Now, or where there are many in turns beside the requests; one after the other, in this order."""
        if rows <= AT_ONCE and not self._going:
            for _ in steps:
                pass
            return
        self._going.append(steps)
        if len(self._going) == 1:
            self.start(self._work_off)

    async def _work_off(self) -> None:
        turn = TimeSlice(self._env, BACKGROUND_SLICE_MS)
        while self._going:
            await turn.run(self._going[0])
            self._going.popleft()

    def resigned(self, replica: HostedPartition) -> None:
        """A partition is led here no longer, or gone."""
        for key in list(self._by_place.get(Place(replica.topic_id, replica.partition), ())):
            if self._by_key[key].replica is replica:
                self._forget(self._by_key[key])

    def _forget(self, shared: Shared) -> None:
        if self._by_key.get(shared.key) is shared:
            key = shared.key
            del self._by_key[key]
            _take_out(self._by_group, key.group_id, key)
            _take_out(self._by_place, Place(key.topic_id, key.partition), key)
        shared.close()


def _take_out(table: dict[H, dict[SharePartitionKey, None]], name: H, key: SharePartitionKey) -> None:
    keys = table[name]
    del keys[key]
    if not keys:
        del table[name]
