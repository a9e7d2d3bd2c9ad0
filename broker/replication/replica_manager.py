"""Hosted partitions of this node: lookup, leadership, and removal.

Source: ``ReplicaManager.scala``, ``Partition.scala``, ``BrokerMetadataPublisher.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.replication.hosted_partition import HostedPartition, IsrDependencies, PendingIsrChange, TopicTraffic
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.controller.metadata.directory_id import directory_id_of
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration
from ottla.env.disk import is_transient
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.log.directory.directory_listing import (
    contains_partition_files,
    delete_partition_dir,
    list_foreign_entries,
    list_suffixed_dirs,
)
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.file_names import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.wire.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from ottla.broker.quotas.replication_quota import ReplicationQuota

logger = logging.getLogger("ottla.replicas")

TopicPartition = tuple[str, int]


def follower_fetch_key(broker: int) -> Hashable:
    """Woken, a fetch of that follower waits no longer: the next one may name a partition that is led from here now."""
    return "follower", broker


class ReplicaManager:
    """Hosted partitions, by topic and number."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        storage: LogDirs,
        wake: Callable[[Hashable], None],
        flush_due: Callable[[HostedPartition], None],
        fail: DiskErrorHandler,
    ) -> None:
        self._flush_due = flush_due
        self._env = env
        lag_max_ms = config.number("replica.lag.time.max.ms")
        self._isr = IsrDependencies(
            lag_max_ms,
            self._is_eligible_for_isr,
            self._submit_isr_change,
            self._on_high_watermark_moved,
            self._broker_epoch_of,
        )
        self._wake = wake
        self._config = config
        self._log_dirs = storage
        self._fail = fail
        self._hosted: dict[TopicPartition, HostedPartition] = {}
        self.isr_expands = self.isr_shrinks = self.isr_failures = 0
        """Changes of the ISR that the controller has taken, and those it has not."""
        self.traffic: dict[str, TopicTraffic] = {}
        """Traffic of the topics with a hosted partition."""
        self.removed_traffic = TopicTraffic()
        """Traffic of topics that are not hosted any more: the sum over all topics must not fall."""
        self.unknown_traffic = TopicTraffic()
        """Failed requests for partitions that are not hosted."""
        self.offline_partitions: set[TopicPartition] = set()
        """Partitions of this node in directories that have failed."""
        self.image = MetadataImage()
        """The metadata the partitions follow; only whoever applies it assigns to it."""
        self.on_leader: list[Callable[[HostedPartition], None]] = []
        """Called when this node begins to lead a partition under a new epoch."""
        self.on_high_watermark_moved: list[Callable[[HostedPartition], None]] = []
        """Called when a follower, or the image, may have moved a high watermark."""
        self.on_isr_change: list[Callable[[PendingIsrChange], None]] = []
        """Called with a change of the ISR the controller is to be asked for."""
        self.on_follower: list[Callable[[HostedPartition, int, int], None]] = []
        """Called with (replica, leader, leader epoch) when the image says who leads a partition this node follows."""
        self.on_resigned: list[Callable[[HostedPartition], None]] = []
        """Called when this node leads a partition no more, or has it no more."""
        self.on_delete_scheduled: list[Callable[[str], None]] = []
        """Called with a directory that was renamed for deletion and must be removed later."""
        self.on_directory_changed: Callable[[bytes, int, bytes], None] = lambda topic_id, number, directory_id: None
        """Called with (topic id, partition, directory) where the controller knows another place, or none."""
        self.future_logs: dict[TopicPartition, PartitionLog] = {}
        """Copies of hosted partitions in other directories that are to take their places (R-342)."""
        self.has_leftover_future_logs = False
        """True if an earlier process has left some: `load` does not touch them."""
        self.on_future_log_resumed: Callable[[HostedPartition], None] = lambda replica: None
        """Called where a copy is found that an earlier process has begun."""

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(self._hosted.values())

    def __len__(self) -> int:
        return len(self._hosted)

    @cached_property
    def leader_quota(self) -> ReplicationQuota:
        """For what followers get here (R-341)."""
        return self._new_quota("leader")

    @cached_property
    def follower_quota(self) -> ReplicationQuota:
        """For what comes from leaders elsewhere."""
        return self._new_quota("follower")

    def _new_quota(self, side: str) -> ReplicationQuota:
        # lazy: 0.9 ms, 19 kB: only in a cluster
        from ottla.broker.quotas.replication_quota import ReplicationQuota

        return ReplicationQuota(side, self._config.node_id)

    def _is_eligible_for_isr(self, broker: int, broker_epoch: int) -> bool:
        """Return True if a broker may join an ISR: alive, and with the broker epoch of its fetches (KIP-903)."""
        known = self.image.brokers.get(broker)
        alive = known is not None and not known.fenced and not known.in_controlled_shutdown
        return alive and known is not None and broker_epoch in (-1, known.broker_epoch)

    def _broker_epoch_of(self, broker: int) -> int:
        """Return the epoch of a broker that is alive, -1 for none."""
        known = self.image.brokers.get(broker)
        return -1 if known is None or known.fenced else known.broker_epoch

    def _submit_isr_change(self, asked: PendingIsrChange) -> None:
        for callback in self.on_isr_change:
            callback(asked)

    def _on_high_watermark_moved(self, replica: HostedPartition) -> None:
        for callback in self.on_high_watermark_moved:
            callback(replica)

    def get(self, topic: str, partition: int) -> HostedPartition | None:
        """Return a hosted partition."""
        return self._hosted.get((topic, partition))

    def topic_id_of(self, at: TopicPartition) -> bytes | None:
        """Return the id of the topic a hosted partition belongs to; None where it is not hosted."""
        replica = self._hosted.get(at)
        return None if replica is None else replica.topic_id

    def leader(self, topic: str, partition: int) -> HostedPartition:
        """Return a partition this node leads.

        Raises:
            ProtocolError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        replica = self._hosted.get((topic, partition)) or self.hosted(topic, partition)
        if not replica.is_leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def hosted(self, topic: str, partition: int) -> HostedPartition:
        """Return a hosted partition, as leader or follower.

        Raises:
            ProtocolError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        replica = self._hosted.get((topic, partition))
        if replica is None:
            if (topic, partition) in self.offline_partitions:
                raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR)
            known = self.image.topics.get(topic)
            elsewhere = known is not None and partition in known.partitions
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER if elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return replica

    # ------------------------------------------------------------------ start

    def load(self, image: MetadataImage) -> Job[None]:
        """Open what lies in the directories and belongs to the image; what belongs to no topic becomes ``-stray``.

        The image is followed once this is done.

        Raises:
            CorruptFile: a partition cannot be read, or lies in two directories; OSError: no directory is left, or
                the node is short of descriptors.
        """
        settings_of = cache(partial(self._config.log_settings, image))
        for directory in self._log_dirs.online:
            try:
                for opened in self._load(directory, image, settings_of):
                    for note in opened.recovery_notes:
                        logger.warning("%s", note)
                    yield None
            except OSError as error:
                self.mark_logs_offline(self._log_dirs.mark_offline_at_startup(directory, error))

    def _load(
        self, directory: LogDirectory, image: MetadataImage, settings_of: Callable[[str], LogConfig]
    ) -> Iterator[PartitionLog]:
        directory.remove_clean_shutdown_file()
        for (topic, number), path in directory.partition_dirs().items():
            known = image.topics.get(topic)
            told = None if known is None else known.partitions.get(number)
            if known is not None and told is not None and self._config.node_id in told.replicas:
                log = directory.open_partition(topic, number, settings_of(topic), self._env.now_ms())
                yield log
                if log.topic_id == known.id:  # a log without a topic id was never written to (``LogManager.scala``)
                    twin = self._hosted.get((topic, number))
                    if twin is not None and self._quarantine_older(twin.log, log, told) is log:
                        continue
                    self.host(log, known.id)
                    continue
                log.close_files()
            elif not contains_partition_files(directory.disk, path):
                logger.warning("Found directory without files of a partition: %r (left unchanged)", path)
                continue
            target = directory.rename_for_deletion(topic, number, self._env.uuid().hex(), STRAY_DIR_SUFFIX)
            elsewhere = told is not None and self._config.node_id not in told.replicas
            why = "the replica assignment does not contain this broker" if elsewhere else "its topic does not exist"
            logger.warning("Found stray log dir %s: %s; renamed to %s", path, why, target)
        self._clean_up_directory(directory)
        self.has_leftover_future_logs |= bool(list_suffixed_dirs(directory.disk, directory.path, FUTURE_DIR_SUFFIX))

    def _clean_up_directory(self, directory: LogDirectory) -> None:
        """Remove the directories of deleted partitions that an earlier process left, and log the foreign ones."""
        for _, path in list_suffixed_dirs(directory.disk, directory.path, DELETE_DIR_SUFFIX):
            try:
                delete_partition_dir(directory.disk, path)
            except OSError as error:  # a mount point, an immutable file: no reason to do without the other partitions
                if is_transient(error):
                    self._schedule_delete(path)
                    continue
                logger.warning("Failed to delete the directory of a deleted partition: %r (%s)", path, error)
        for path in list_foreign_entries(directory.disk, directory.path):
            logger.warning("Found directory that is not in the form of topic-partition: %r (left unchanged)", path)

    def _quarantine_older(
        self, one: PartitionLog, other: PartitionLog, registration: PartitionRegistration
    ) -> PartitionLog:
        # lazy: 0.6 ms, 6 kB: only where two directories hold the same partition
        from ottla.broker.storage.duplicate_logs import quarantine_older

        return quarantine_older(self._log_dirs, one, other, registration, self._config.node_id, self._env.uuid().hex())

    # ------------------------------------------------------------------ following the image

    def host(self, log: PartitionLog, topic_id: bytes) -> None:
        """Take an open log among the hosted partitions; it is led once it follows the image."""
        at = (log.topic, log.partition)
        is_new = at not in self._hosted
        replica = self._hosted[at] = HostedPartition(log, topic_id, self._wake, self._flush_due, self._isr)
        replica.traffic = self.traffic.setdefault(log.topic, replica.traffic)
        replica.traffic.hosted_count += is_new

    def _release_traffic(self, replica: HostedPartition) -> None:
        """Keep the traffic of a topic in the sum alone when its last hosted partition goes."""
        replica.traffic.hosted_count -= 1
        if replica.traffic.hosted_count == 0:
            self.removed_traffic.add(self.traffic.pop(replica.topic))

    def apply_partition_state(self, at: TopicPartition, registration: PartitionRegistration) -> None:
        """Apply the image's state of a hosted partition, and become leader if it says so."""
        replica, node = self._hosted[at], self._config.node_id
        actual, place = self._log_dirs.directory_of(replica.log).id, directory_id_of(registration, node)
        future = self.future_logs.get(at)
        if actual != place and (future is None or self._log_dirs.directory_of(future).id != place):
            self.on_directory_changed(replica.topic_id, replica.partition, actual)
        led = replica.is_leader
        begins = replica.apply_partition_state(node, registration, self._env.now_ms())
        if led and not replica.is_leader:
            for callback in self.on_resigned:
                callback(replica)
        if not replica.is_leader:
            for follows in self.on_follower:
                follows(replica, registration.leader, registration.leader_epoch)
        if begins:
            replica.log.assign_epoch_start_offset(registration.leader_epoch)
            replica.recover_high_watermark(self._env.now_ms())
            for callback in self.on_leader:
                callback(replica)
            for broker in registration.replicas:
                if broker != node:
                    self._wake(follower_fetch_key(broker))
        if replica.is_leader:
            for callback in self.on_high_watermark_moved:
                callback(replica)

    def remove(self, at: TopicPartition) -> None:
        """Stop serving a partition that was deleted or moved away; its directory is renamed."""
        self.offline_partitions.discard(at)
        replica = self._hosted.pop(at, None)
        if replica is None:
            return
        self._release_traffic(replica)
        future = self.future_logs.pop(at, None)
        if future is not None:
            self.discard(future)
        replica.resign()
        replica.notify_waiters()
        for callback in self.on_resigned:
            callback(replica)
        self.discard(replica.log)

    def discard(self, log: PartitionLog) -> None:
        """Rename the directory of an unserved log; its files are removed later."""
        directory = self._log_dirs.directory_of(log)
        try:
            path = directory.rename_for_deletion(log.topic, log.partition, self._env.uuid().hex())
        except OSError as error:
            self._fail(error, directory)
            return
        self._schedule_delete(path)

    def _schedule_delete(self, path: str) -> None:
        """Have the directory of a deleted partition removed later."""
        for doomed in self.on_delete_scheduled:
            doomed(path)

    def mark_logs_offline(self, logs: list[PartitionLog]) -> None:
        """Stop serving logs in a failed directory."""
        for log in logs:
            at = (log.topic, log.partition)
            if log.is_future:
                self.abandon_future_log(at)
                continue
            self.offline_partitions.add(at)
            if at in self.future_logs:
                self.abandon_future_log(at)  # the copy stays on its disk until the next start
            replica = self._hosted.pop(at, None)
            if replica is not None:
                self._release_traffic(replica)
                replica.resign()
                for callback in self.on_resigned:
                    callback(replica)
                replica.notify_waiters()

    # ------------------------------------------------------------------ moves between directories

    def abandon_future_log(self, at: TopicPartition) -> PartitionLog | None:
        """Abandon a partition's future log and return it. The controller may have its assignment."""
        future, replica = self.future_logs.pop(at, None), self._hosted.get(at)
        if future is not None and replica is not None:
            replica.log.set_has_future_log(begins=False)
            self.on_directory_changed(replica.topic_id, replica.partition, self._log_dirs.directory_of(replica.log).id)
        return future

    def promote_future_log(self, replica: HostedPartition, future: PartitionLog) -> None:
        """Replace the log by its renamed future log; the old one is removed later."""
        current, replica.log = replica.log, future
        self.future_logs.pop((replica.topic, replica.partition), None)
        self.discard(current)
        replica.notify_waiters()
