"""The partitions this node hosts: opened, made, led and removed as the metadata image says.

Source: ``ReplicaManager.scala``, ``Partition.scala``, ``BrokerMetadataPublisher.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from functools import cache, partial

from ottla.broker.config import NodeConfig
from ottla.controller.image import RESOURCE_BROKER, RESOURCE_TOPIC, Image, Topic
from ottla.log.directory import LogDirectory
from ottla.log.env import Env
from ottla.log.partition_log import Appended, PartitionLog
from ottla.log.settings import LogSettings
from ottla.log.validate import Origin
from ottla.wire.batch import BatchHeader
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.primitives import uuid_text

logger = logging.getLogger("ottla.replicas")

TopicPartition = tuple[str, int]


class Replica:
    """One hosted partition: its log, and what the controller last said of it."""

    __slots__ = (
        "_fetch_key",
        "_flush_due",
        "_hw_key",
        "_wake",
        "flushing",
        "in_sync_alone",
        "is_leader",
        "leader_epoch",
        "log",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        log: PartitionLog,
        topic_id: bytes,
        wake: Callable[[Hashable], None],
        flush_due: Callable[[Replica], None] = lambda replica: None,
    ) -> None:
        self._wake = wake
        self._flush_due = flush_due
        self._fetch_key = ("fetch", log.topic, log.partition)
        self._hw_key = ("hw", log.topic, log.partition)
        self.log = log
        self.topic = log.topic
        self.partition = log.partition
        self.topic_id = topic_id
        self.is_leader = False
        self.leader_epoch = -1
        self.in_sync_alone = False
        self.flushing = False
        """Whether a sync that answers wait for is under way: what is appended behind it is committed by the next."""

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Hold a client's idea of the leader epoch against ours; -1 is no idea.

        Raises:
            ProtocolError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        if current_leader_epoch == -1 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def append(
        self,
        data: bytearray | memoryview,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        header: BatchHeader | None = None,
    ) -> Appended:
        """Append as leader. Alone in the ISR, what is appended is committed. ``header``: as `PartitionLog.append`.

        Raises:
            ProtocolError: refused; OSError: the disk failed.
        """
        log = self.log
        done = log.append(data, self.leader_epoch, now_ms, origin, header=header)
        if self.in_sync_alone and not done.duplicate:
            if log.unflushed_records >= log.settings.flush_messages:
                self._flush_due(self)  # committed once it is on the disk
            elif not self.flushing:
                log.high_watermark = log.log_end_offset
                self._wake(self._fetch_key)
        return done

    def flushed(self, end: int) -> None:
        """Everything below ``end`` is on the disk: alone in the ISR, it is committed."""
        if self.in_sync_alone and self.log.set_high_watermark(end):
            self.changed()

    def changed(self) -> None:
        """Leadership or the log's ends changed: whoever waits here looks again."""
        self._wake(self._fetch_key)
        self._wake(self._hw_key)


class Replicas:
    """All hosted partitions, by name and number."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        directory: LogDirectory,
        wake: Callable[[Hashable], None],
        flush_due: Callable[[Replica], None],
    ) -> None:
        self._flush_due = flush_due
        self._env = env
        self._wake = wake
        self._config = config
        self._directory = directory
        self._hosted: dict[TopicPartition, Replica] = {}
        self._image = Image()
        self.on_leader: list[Callable[[Replica], None]] = []
        """Called when this node begins to lead a partition under a new epoch."""
        self.on_removed: list[Callable[[Replica], None]] = []
        self.on_doomed: list[Callable[[str], None]] = []
        """Called with a directory that was renamed for deletion and must be removed later."""

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._hosted.values())

    def get(self, topic: str, partition: int) -> Replica | None:
        """A hosted partition."""
        return self._hosted.get((topic, partition))

    def leader(self, topic: str, partition: int) -> Replica:
        """A partition this node leads.

        Raises:
            ProtocolError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
        """
        replica = self._hosted.get((topic, partition))
        if replica is None:
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
        """Open what lies in the directory and belongs to the image; what belongs to no topic becomes ``-stray``."""
        settings_of = self._settings(image)
        for (topic, number), path in self._directory.partition_dirs().items():
            known = image.topics.get(topic)
            mine = known is not None and number in known.partitions
            if mine:
                assert known is not None
                log = self._directory.open_partition(topic, number, settings_of(topic), self._env.now_ms())
                if log.topic_id == bytes(16):
                    log.topic_id = known.id
                if log.topic_id == known.id:
                    self._hosted[topic, number] = Replica(log, known.id, self._wake, self._flush_due)
                    continue
                log.close_files()
            target = self._directory.rename_for_deletion(topic, number, uuid_text(self._env.uuid()), "stray")
            logger.warning("%s belongs to no topic of the cluster; kept as %s", path, target)
        for path in self._directory.leftovers():
            self._env.disk.rmtree(path)

    def publish(self, old: Image, new: Image) -> None:
        """Follow the image: remove, create, lead, take new settings."""
        self._image = new
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

    def _follow(self, topic: Topic, image: Image) -> None:
        node = self._config.node_id
        settings_of = self._settings(image)
        for number, partition in topic.partitions.items():
            if node not in partition.replicas:
                continue
            replica = self._hosted.get((topic.name, number))
            if replica is None:
                now = self._env.now_ms()
                log = self._directory.create_partition(topic.name, number, topic.id, settings_of(topic.name), now)
                replica = self._hosted[topic.name, number] = Replica(log, topic.id, self._wake, self._flush_due)
            leads = partition.leader == node
            newly = leads and (not replica.is_leader or replica.leader_epoch != partition.leader_epoch)
            replica.is_leader = leads
            replica.leader_epoch = partition.leader_epoch
            replica.in_sync_alone = partition.isr == (node,)
            if not leads:
                replica.changed()
            if newly:
                log = replica.log
                log.epochs.assign(partition.leader_epoch, log.log_end_offset)
                if replica.in_sync_alone:
                    log.set_high_watermark(log.log_end_offset)
                for callback in self.on_leader:
                    callback(replica)

    def _remove(self, topic: str, number: int) -> None:
        replica = self._hosted.pop((topic, number), None)
        if replica is None:
            return
        replica.is_leader = False
        replica.changed()
        path = self._directory.rename_for_deletion(topic, number, uuid_text(self._env.uuid()))
        for callback in self.on_removed:
            callback(replica)
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
