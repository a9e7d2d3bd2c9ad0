"""The partitions this node hosts: opened, made, led and removed as the metadata image says.

Source: ``ReplicaManager.scala``, ``Partition.scala``, ``BrokerMetadataPublisher.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from functools import cache, partial

from ottla.broker.config import NodeConfig
from ottla.broker.replica.replica import IsrRules, Replica
from ottla.broker.replica.storage import Fail, Storage
from ottla.controller.directories import MIGRATING, UNASSIGNED, directory_of
from ottla.controller.image import RESOURCE_BROKER, RESOURCE_TOPIC, Image, Topic
from ottla.log.checkpoints import CorruptFile
from ottla.log.directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.settings import LogSettings
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.primitives import uuid_text
from ottla.world.disk import is_passing
from ottla.world.env import Env

logger = logging.getLogger("ottla.replicas")

TopicPartition = tuple[str, int]


class Replicas:
    """All hosted partitions, by name and number."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        storage: Storage,
        wake: Callable[[Hashable], None],
        flush_due: Callable[[Replica], None],
        fail: Fail,
    ) -> None:
        self._flush_due = flush_due
        self._env = env
        self._rules = IsrRules(config.number("replica.lag.time.max.ms"), self._may_join)
        self._wake = wake
        self._config = config
        self._storage = storage
        self._fail = fail
        self._hosted: dict[TopicPartition, Replica] = {}
        self._offline: set[TopicPartition] = set()
        """Partitions of this node in directories that have failed."""
        self._starting = True
        """Until the first image: what is not found then may lie in a directory that has failed."""
        self._half_made: dict[TopicPartition, LogDirectory] = {}
        self.unmade = False
        """Whether some partition could not be made for want of something that may come back."""
        self.places: dict[tuple[bytes, int], bytes] = {}
        """(topic id, partition) -> directory, where the controller does not know it yet."""
        self.on_placed: Callable[[], None] = lambda: None
        self._image = Image()
        self.on_leader: list[Callable[[Replica], None]] = []
        """Called when this node begins to lead a partition under a new epoch."""
        self.on_removed: list[Callable[[Replica], None]] = []
        self.on_doomed: list[Callable[[str], None]] = []
        """Called with a directory that was renamed for deletion and must be removed later."""

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._hosted.values())

    def _may_join(self, broker: int, broker_epoch: int) -> bool:
        """Whether the image lets a broker into an ISR: alive, and the process whose fetches were seen (KIP-903)."""
        known = self._image.brokers.get(broker)
        alive = known is not None and not known.fenced and not known.in_controlled_shutdown
        return alive and known is not None and broker_epoch in (-1, known.broker_epoch)

    @property
    def offline_count(self) -> int:
        """Partitions of this node in directories that have failed."""
        return len(self._offline)

    def get(self, topic: str, partition: int) -> Replica | None:
        """A hosted partition."""
        return self._hosted.get((topic, partition))

    def leader(self, topic: str, partition: int) -> Replica:
        """A partition this node leads.

        Raises:
            ProtocolError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        replica = self._hosted.get((topic, partition))
        if replica is None:
            if (topic, partition) in self._offline:
                raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR)
            known = self._image.topics.get(topic)
            elsewhere = known is not None and partition in known.partitions
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER if elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not replica.is_leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def _settings(self, image: Image) -> Callable[[str], LogSettings]:
        """Settings by topic, made once for all its partitions."""
        return cache(partial(self._config.log_settings, image))

    def load(self, image: Image) -> None:
        """Open what lies in the directories and belongs to the image; what belongs to no topic becomes ``-stray``.

        Raises:
            CorruptFile: a partition cannot be read, or lies in two directories; OSError: no directory is left.
        """
        settings_of = self._settings(image)
        for directory in self._storage.online:
            try:
                self._load(directory, image, settings_of)
            except OSError as error:
                if not self._storage.can_lose(directory):
                    raise
                self.lose(self._storage.take_out(directory, error))

    def _load(self, directory: LogDirectory, image: Image, settings_of: Callable[[str], LogSettings]) -> None:
        for (topic, number), path in directory.partition_dirs().items():
            known = image.topics.get(topic)
            if known is not None and number in known.partitions:
                log = directory.open_partition(topic, number, settings_of(topic), self._env.now_ms())
                for note in log.notes:
                    logger.warning("%s", note)
                if log.topic_id == bytes(16):
                    log.adopt_topic_id(known.id)
                if log.topic_id == known.id:
                    twin = self._hosted.get((topic, number))
                    if twin is not None:
                        raise CorruptFile(f"{topic}-{number} lies twice: in {twin.log.directory} and in {path}")
                    self._hosted[topic, number] = Replica(log, known.id, self._wake, self._flush_due, self._rules)
                    continue
                log.close_files()
            target = directory.rename_for_deletion(topic, number, uuid_text(self._env.uuid()), "stray")
            logger.warning("%s belongs to no topic of the cluster; kept as %s", path, target)
        for path in directory.leftovers():
            self._env.disk.rmtree(path)

    def lose(self, logs: list[PartitionLog]) -> None:
        """Stop serving logs whose directory has failed."""
        for log in logs:
            at = (log.topic, log.partition)
            self._offline.add(at)
            replica = self._hosted.pop(at, None)
            if replica is not None:
                replica.resign()
                for callback in self.on_removed:
                    callback(replica)
                replica.changed()

    def _make(self, topic: Topic, number: int, directory_id: bytes, settings: LogSettings) -> Replica | None:
        """Make a partition that is not there yet; None where it may lie in a directory that is out of service."""
        storage, at = self._storage, (topic.name, number)
        placed = directory_id not in (MIGRATING, UNASSIGNED)
        known = next((d for d in storage.online if d.id == directory_id), None)
        lies_elsewhere = known is None and (placed or (self._starting and bool(storage.failed)))
        if at in self._offline or lies_elsewhere:
            self._offline.add(at)
            return None
        directory = known or self._half_made.get(at) or storage.roomiest()
        try:
            log = directory.create_partition(topic.name, number, topic.id, settings, self._env.now_ms())
        except OSError as error:
            self._fail(error, directory)
            if is_passing(error):
                self.unmade = True
                self._half_made[at] = directory
            else:
                self._offline.add(at)
            return None
        self._half_made.pop(at, None)
        replica = self._hosted[at] = Replica(log, topic.id, self._wake, self._flush_due, self._rules)
        return replica

    def publish(self, old: Image, new: Image) -> None:
        """Follow the image: remove, create, lead, take new settings."""
        self._image = new
        self.unmade = False
        for name, topic in old.topics.items():
            successor = new.topics.get(name)
            if successor is None or successor.id != topic.id:
                for number in topic.partitions:
                    self._remove(name, number)
        for name, topic in new.topics.items():
            if old.topics.get(name) is not topic:
                self._follow(topic, new)
        if old.configs is not new.configs:
            self._reconfigure(old, new)
        self._starting = False
        if self.places or self.unmade:
            self.on_placed()

    def _follow(self, topic: Topic, image: Image) -> None:
        node = self._config.node_id
        settings_of = self._settings(image)
        for number, partition in topic.partitions.items():
            if node not in partition.replicas:
                continue
            replica = self._hosted.get((topic.name, number))
            place = directory_of(partition, node)
            replica = replica or self._make(topic, number, place, settings_of(topic.name))
            if replica is None:
                continue
            actual = self._storage.of(replica.log).id
            if actual != place:
                self.places[topic.id, number] = actual
            if replica.follow_image(node, partition, self._env.now_ms()):
                log = replica.log
                try:
                    log.begin_epoch(partition.leader_epoch)
                except OSError as error:
                    self._fail(error, log)  # in memory it is assigned; the next one written takes it along
                    if not is_passing(error):
                        continue
                replica.advance(log.log_end_offset, self._env.now_ms())
                for callback in self.on_leader:
                    callback(replica)

    def _remove(self, topic: str, number: int) -> None:
        self._offline.discard((topic, number))
        replica = self._hosted.pop((topic, number), None)
        if replica is None:
            return
        replica.resign()
        replica.changed()
        for callback in self.on_removed:
            callback(replica)
        directory = self._storage.of(replica.log)
        try:
            path = directory.rename_for_deletion(topic, number, uuid_text(self._env.uuid()))
        except OSError as error:
            self._fail(error, directory)
            return
        for doomed in self.on_doomed:
            doomed(path)

    def _reconfigure(self, old: Image, new: Image) -> None:
        """Give logs whose settings changed their new ones. A broker-wide change touches all."""
        wide = any(
            old.config(RESOURCE_BROKER, r) is not new.config(RESOURCE_BROKER, r)
            for r in ("", str(self._config.node_id))
        )
        settings_of = self._settings(new)
        for (topic, _), replica in self._hosted.items():
            if wide or old.config(RESOURCE_TOPIC, topic) is not new.config(RESOURCE_TOPIC, topic):
                replica.log.update_settings(settings_of(topic))
