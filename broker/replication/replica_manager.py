"""Manager of the partitions hosted on this node: lookup, leadership changes, and removal.

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
    """Return the purgatory key of a follower's delayed Fetches; completed when this node becomes leader of a partition.

    The follower's next Fetch may contain that partition.
    """
    return "follower", broker


class ReplicaManager:
    """Partitions hosted on this node, from opening to removal, with their image states, callbacks and counters."""

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
        """Numbers of ISR changes that the controller committed (expands, shrinks) and rejected (failures)."""
        self.traffic: dict[str, TopicTraffic] = {}
        """Traffic of the topics with a hosted partition, by name."""
        self.removed_traffic = TopicTraffic()
        """Traffic of topics no longer hosted, so that the sum over all topics does not decrease."""
        self.unknown_traffic = TopicTraffic()
        """Traffic of failed requests for topics without a hosted partition."""
        self.offline_partitions: set[TopicPartition] = set()
        """Partitions of this node without a usable log: it is, or may be, in a failed directory, or was not created."""
        self.image = MetadataImage()
        """Newest metadata image that this node has begun to apply; set by the metadata publisher only."""
        self.on_leader: list[Callable[[HostedPartition], None]] = []
        """Callbacks when this node becomes leader of a partition in a new leader epoch."""
        self.on_high_watermark_moved: list[Callable[[HostedPartition], None]] = []
        """Callbacks when a follower's fetch, an ISR change or the image may have advanced a high watermark."""
        self.on_isr_change: list[Callable[[PendingIsrChange], None]] = []
        """Callbacks with an ISR change to request from the controller."""
        self.on_follower: list[Callable[[HostedPartition, int, int], None]] = []
        """Callbacks with (replica, leader, leader epoch) when the image sets the leader of a followed partition."""
        self.on_resigned: list[Callable[[HostedPartition], None]] = []
        """Callbacks when this node no longer leads or hosts a partition."""
        self.on_delete_scheduled: list[Callable[[str], None]] = []
        """Callbacks with the path of a directory that was renamed for deletion."""
        self.on_directory_changed: Callable[[bytes, int, bytes], None] = lambda topic_id, number, directory_id: None
        """Callback with (topic id, partition, directory id) of a replica, to be reported to the controller."""
        self.future_logs: dict[TopicPartition, PartitionLog] = {}
        """Future logs of hosted partitions: copies in other log directories, to replace the current logs (R-342)."""
        self.has_leftover_future_logs = False
        """True if an earlier process left future logs; `load` does not open them."""
        self.on_future_log_resumed: Callable[[HostedPartition], None] = lambda replica: None
        """Callback when the copy to a future log of an earlier process is resumed."""

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(self._hosted.values())

    def __len__(self) -> int:
        return len(self._hosted)

    @cached_property
    def leader_quota(self) -> ReplicationQuota:
        """Leader replication quota: of bytes sent to followers (R-341)."""
        return self._new_quota("leader")

    @cached_property
    def follower_quota(self) -> ReplicationQuota:
        """Follower replication quota: of bytes received from leaders."""
        return self._new_quota("follower")

    def _new_quota(self, side: str) -> ReplicationQuota:
        # lazy: 0.9 ms, 19 kB: only in a cluster
        from ottla.broker.quotas.replication_quota import ReplicationQuota

        return ReplicationQuota(side, self._config.node_id)

    def _is_eligible_for_isr(self, broker: int, broker_epoch: int) -> bool:
        """Return True if a broker may join an ISR: unfenced, not shutting down, with a current broker epoch (KIP-903).

        ``broker_epoch`` is that of its last Fetch; -1 is not checked.
        """
        known = self.image.brokers.get(broker)
        alive = known is not None and not known.fenced and not known.in_controlled_shutdown
        return alive and known is not None and broker_epoch in (-1, known.broker_epoch)

    def _broker_epoch_of(self, broker: int) -> int:
        """Return the broker epoch of a broker that is unfenced by the image, -1 for any other."""
        known = self.image.brokers.get(broker)
        return -1 if known is None or known.fenced else known.broker_epoch

    def _submit_isr_change(self, pending: PendingIsrChange) -> None:
        for callback in self.on_isr_change:
            callback(pending)

    def _on_high_watermark_moved(self, replica: HostedPartition) -> None:
        for callback in self.on_high_watermark_moved:
            callback(replica)

    def get(self, topic: str, partition: int) -> HostedPartition | None:
        """Return a hosted partition; None if this node does not host it."""
        return self._hosted.get((topic, partition))

    def topic_traffic(self, topic: str) -> TopicTraffic:
        """Return the traffic of a topic; `unknown_traffic` if this node hosts no partition of it."""
        return self.traffic.get(topic, self.unknown_traffic)

    def topic_id_of(self, topic_partition: TopicPartition) -> bytes | None:
        """Return the topic id of a hosted partition; None if this node does not host it."""
        replica = self._hosted.get(topic_partition)
        return None if replica is None else replica.topic_id

    def leader(self, topic: str, partition: int) -> HostedPartition:
        """Return a partition that this node leads.

        Raises:
            ProtocolError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER; KAFKA_STORAGE_ERROR if it is offline.
        """
        replica = self._hosted.get((topic, partition)) or self.hosted(topic, partition)
        if not replica.is_leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def hosted(self, topic: str, partition: int) -> HostedPartition:
        """Return a hosted partition, as leader or follower.

        Raises:
            ProtocolError: UNKNOWN_TOPIC_OR_PARTITION: not in the image; NOT_LEADER_OR_FOLLOWER: only on other brokers,
                or its log is not created yet; KAFKA_STORAGE_ERROR: in `offline_partitions`.
        """
        replica = self._hosted.get((topic, partition))
        if replica is None:
            if (topic, partition) in self.offline_partitions:
                raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR)
            known = self.image.topics.get(topic)
            elsewhere = known is not None and partition in known.partitions
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER if elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return replica

    # ------------------------------------------------------------------ startup

    def load(self, image: MetadataImage) -> Job[None]:
        """Open and host the logs that the image assigns to this node, as a job; rename other logs to ``-stray``.

        The older of two logs of a partition is renamed so, too; directories of deleted partitions are deleted. A
        directory with a disk error goes offline. The partitions follow the image only once `apply_partition_state` is
        called.

        Raises:
            CorruptFile: a log cannot be read, or no rule decides between two (`quarantine_older`).
            OSError: the node cannot run without the failed directory, or the error is transient (no descriptors).
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
            registration = None if known is None else known.partitions.get(number)
            if known is not None and registration is not None and self._config.node_id in registration.replicas:
                log = directory.open_partition(topic, number, settings_of(topic), self._env.now_ms())
                yield log
                if log.topic_id == known.id:  # a log without a topic id was never written to (``LogManager.scala``)
                    duplicate = self._hosted.get((topic, number))
                    if duplicate is not None and self._quarantine_older(duplicate.log, log, registration) is log:
                        continue
                    self.host(log, known.id)
                    continue
                log.close_files()
            elif not contains_partition_files(directory.disk, path):
                logger.warning("Found directory without files of a partition: %r (left unchanged)", path)
                continue
            target = directory.rename_for_deletion(topic, number, self._env.uuid().hex(), STRAY_DIR_SUFFIX)
            elsewhere = registration is not None and self._config.node_id not in registration.replicas
            why = "the replica assignment does not contain this broker" if elsewhere else "its topic does not exist"
            logger.warning("Found stray log dir %s: %s; renamed to %s", path, why, target)
        self._clean_up_directory(directory)
        self.has_leftover_future_logs |= bool(list_suffixed_dirs(directory.disk, directory.path, FUTURE_DIR_SUFFIX))

    def _clean_up_directory(self, directory: LogDirectory) -> None:
        """Delete directories of deleted partitions that an earlier process left; log failures and foreign entries."""
        for _, path in list_suffixed_dirs(directory.disk, directory.path, DELETE_DIR_SUFFIX):
            try:
                delete_partition_dir(directory.disk, path)
            except OSError as error:  # such as a mount point or an immutable file: the directory stays in use
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

    # ------------------------------------------------------------------ changes from the image

    def host(self, log: PartitionLog, topic_id: bytes) -> None:
        """Add an open log to the hosted partitions, as follower without a leader until `apply_partition_state`.

        It replaces a hosted partition of that name.
        """
        at = (log.topic, log.partition)
        is_new = at not in self._hosted
        replica = self._hosted[at] = HostedPartition(log, topic_id, self._wake, self._flush_due, self._isr)
        replica.traffic = self.traffic.setdefault(log.topic, replica.traffic)
        replica.traffic.hosted_count += is_new

    def _release_traffic(self, replica: HostedPartition) -> None:
        """Add a topic's traffic to `removed_traffic` when its last hosted partition is removed."""
        replica.traffic.hosted_count -= 1
        if replica.traffic.hosted_count == 0:
            self.removed_traffic.add(self.traffic.pop(replica.topic))

    def apply_partition_state(self, topic_partition: TopicPartition, registration: PartitionRegistration) -> None:
        """Apply the image's state of a hosted partition, as leader or follower, and call the callbacks.

        A new leader assigns the start offset of its leader epoch and recovers its high watermark. The callbacks of
        a follower, and those for the high watermark of a leader, are called even if nothing has changed.
        """
        replica, node = self._hosted[topic_partition], self._config.node_id
        actual, place = self._log_dirs.directory_of(replica.log).id, directory_id_of(registration, node)
        future = self.future_logs.get(topic_partition)
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

    def remove(self, topic_partition: TopicPartition) -> None:
        """Stop hosting a partition that was deleted or reassigned; its directory is renamed for deletion.

        Waiting requests are completed, and a move to another log directory is cancelled.
        """
        self.offline_partitions.discard(topic_partition)
        replica = self._hosted.pop(topic_partition, None)
        if replica is None:
            return
        self._release_traffic(replica)
        future = self.future_logs.pop(topic_partition, None)
        if future is not None:
            self.discard(future)
        replica.resign()
        replica.notify_waiters()
        for callback in self.on_resigned:
            callback(replica)
        self.discard(replica.log)

    def discard(self, log: PartitionLog) -> None:
        """Rename the directory of a log that is no longer hosted for deletion; its files are deleted later.

        A disk error is passed to ``fail``.
        """
        directory = self._log_dirs.directory_of(log)
        try:
            path = directory.rename_for_deletion(log.topic, log.partition, self._env.uuid().hex())
        except OSError as error:
            self._fail(error, directory)
            return
        self._schedule_delete(path)

    def _schedule_delete(self, path: str) -> None:
        """Schedule the deletion of a renamed directory."""
        for doomed in self.on_delete_scheduled:
            doomed(path)

    def mark_logs_offline(self, logs: list[PartitionLog]) -> None:
        """Stop hosting the logs of a failed directory, mark their partitions offline and complete waiting requests.

        Moves to or from the directory are cancelled; the partition of a future log in it stays online.
        """
        for log in logs:
            at = (log.topic, log.partition)
            if log.is_future:
                self.abandon_future_log(at)
                continue
            self.offline_partitions.add(at)
            if at in self.future_logs:
                self.abandon_future_log(at)  # its files stay on the disk until the next start
            replica = self._hosted.pop(at, None)
            if replica is not None:
                self._release_traffic(replica)
                replica.resign()
                for callback in self.on_resigned:
                    callback(replica)
                replica.notify_waiters()

    # ------------------------------------------------------------------ moves between log directories

    def abandon_future_log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Cancel the move of a partition and return its future log, or None without a move.

        The current directory is reported to the controller again. The files of the future log are not deleted.
        """
        future, replica = self.future_logs.pop(topic_partition, None), self._hosted.get(topic_partition)
        if future is not None and replica is not None:
            replica.log.set_has_future_log(begins=False)
            self.on_directory_changed(replica.topic_id, replica.partition, self._log_dirs.directory_of(replica.log).id)
        return future

    def promote_future_log(self, replica: HostedPartition, future: PartitionLog) -> None:
        """Replace a partition's log by its renamed future log; the former log is renamed for deletion.

        Waiting requests are completed.
        """
        current, replica.log = replica.log, future
        self.future_logs.pop((replica.topic, replica.partition), None)
        self.discard(current)
        replica.notify_waiters()
