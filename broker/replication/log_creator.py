"""Creation of the logs of hosted partitions in threads, those awaited by requests first.

A creation takes several blocking calls, so the application of the metadata does not wait for it: a batch of logs is
created in a thread, and each is hosted on the event loop. A request for a partition without a log moves it to the
front, and waits briefly.

Source: ``LogManager.getOrCreateLog``, ``Partition.createLogIfNotExists`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import NamedTuple

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.replication.replica_manager import ReplicaManager, TopicPartition
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.controller.metadata.directory_id import MIGRATING, UNASSIGNED, directory_id_of
from ottla.controller.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from ottla.env.disk import is_transient
from ottla.env.env import Env, ThreadPool
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.log.directory.log_directory import METADATA_TOPIC, LogDirectory
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog

logger = logging.getLogger("ottla.making")
LOG_CREATION_WORKERS = 2
"""Number of threads that create logs: two share commits of the file system; more only contend for the interpreter."""
CREATION_BATCH_SIZE = 16
RETRY_S = 1.0
GROWTH_NOTIFICATION_INTERVAL = 500
MAX_PREFERRED_DIRS = 10_000
"""Maximum number of preferred directories of partitions without a log; the oldest are removed first."""


class LogCreationRequest(NamedTuple):
    """Pending creation of a partition's log: topic, partition, log directory and settings."""

    topic: str
    partition: int
    topic_id: bytes
    directory: LogDirectory
    settings: LogConfig

    @property
    def topic_partition(self) -> TopicPartition:
        """Name of the topic and number of the partition, the key under which the request is queued."""
        return self.topic, self.partition


def create_logs(jobs: list[LogCreationRequest], now_ms: int) -> list[PartitionLog | OSError]:
    """Create the directories and files of partitions; return the log or error of each. It blocks: call it in a thread.

    After a disk error the remaining partitions of the same directory have that error, too; an existing path is none.
    """
    out: list[PartitionLog | OSError] = []
    broken: dict[str, OSError] = {}
    for job in jobs:
        path = job.directory.path
        try:
            if path in broken:
                raise broken[path]
            out.append(
                job.directory.create_partition_files(job.topic, job.partition, job.topic_id, job.settings, now_ms)
            )
        except FileExistsError as error:  # no disk failure: the path exists
            out.append(error)
        except OSError as error:
            broken[path] = error
            out.append(error)
    return out


class LogCreator:
    """Creator of missing logs: `request_log` queues partitions; `run` creates the files in threads and hosts the logs.

    It is true while creations are pending, and contains the partitions that await one.
    """

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        storage: LogDirs,
        replicas: ReplicaManager,
        fail: DiskErrorHandler,
    ) -> None:
        self._env = env
        self._config = config
        self._log_dirs = storage
        self._replica_manager = replicas
        self._fail = fail
        self._requested: dict[TopicPartition, None] = {}
        self._prioritized: dict[TopicPartition, None] = {}
        self._in_progress: dict[TopicPartition, bool] = {}
        """Partitions whose files are being created; False if the partition was removed meanwhile."""
        self._partly_created: dict[TopicPartition, LogDirectory] = {}
        self._in_progress_by_directory: Counter[str] = Counter()
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        """Directories requested by AlterReplicaLogDirs for partitions without a log."""
        self._wakeup = trio.Event()
        self._progress = trio.Event()
        self._created_since_notification = 0
        self._settings_image: MetadataImage | None = None
        self._settings_by_topic: dict[str, LogConfig] = {}
        self.is_starting = True
        """True until the first image is applied: a log not found by then may be in a failed directory."""
        self.on_log_count_grown: Callable[[], None] = lambda: None
        """Callback after each `GROWTH_NOTIFICATION_INTERVAL` created logs."""

    def __len__(self) -> int:
        return len(self._requested) + len(self._in_progress)

    def __contains__(self, at: TopicPartition) -> bool:
        return at in self._requested or at in self._in_progress

    # ------------------------------------------------------------------ requests

    def request_log(
        self, topic_partition: TopicPartition, topic_id: bytes, registration: PartitionRegistration
    ) -> None:
        """Request the creation of a partition's log, unless an unavailable directory may contain it.

        Then the partition is marked offline, otherwise no longer. No effect if the log exists, its creation is pending,
        or the topic has the name of the metadata topic, which is logged.
        """
        if self._in_progress.get(topic_partition) or self._replica_manager.topic_id_of(topic_partition) == topic_id:
            return  # pending, or created meanwhile
        if topic_partition[0] == METADATA_TOPIC:  # an older controller may have created it
            logger.error(
                "Skipping creation of logs of topic %s: it has the name of the metadata log. Delete it",
                topic_partition[0],
            )
            return
        if self._may_be_in_unavailable_directory(topic_partition, registration):
            if not self._replica_manager.offline_partitions:
                logger.warning(
                    "Skipping creation of log %s-%d: an offline log directory may have it, and further ones",
                    *topic_partition,
                )
            self._replica_manager.offline_partitions.add(topic_partition)
            return
        self._replica_manager.offline_partitions.discard(topic_partition)
        self._requested[topic_partition] = None
        self._wakeup.set()

    def _may_be_in_unavailable_directory(self, at: TopicPartition, registration: PartitionRegistration) -> bool:
        """Return True if a missing log must not be created, since a failed directory may contain it.

        Without a failed directory, an unknown directory id is that of a replaced or removed disk: the log is created
        and filled while another replica leads. If none leads, or this one is to lead, it is not created: the empty
        replica would lead, and the others would truncate their logs. Kafka creates it then, too.
        """
        place, node_id = directory_id_of(registration, self._config.node_id), self._config.node_id
        placed = place not in (MIGRATING, UNASSIGNED)
        unknown = placed and all(d.id != place for d in self._log_dirs.online)
        if self._log_dirs.offline:
            return at in self._replica_manager.offline_partitions or unknown or (self.is_starting and not placed)
        return unknown and registration.leader in (NO_LEADER, node_id)

    def set_preferred_directory(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Set the directory in which a partition's missing log will be created, if it is online then."""
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = directory
        if len(self._preferred) > MAX_PREFERRED_DIRS:
            del self._preferred[next(iter(self._preferred))]

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Cancel the creation of a partition's log; files that are being created are deleted."""
        self._requested.pop(topic_partition, None)
        self._prioritized.pop(topic_partition, None)
        self._partly_created.pop(topic_partition, None)
        if topic_partition in self._in_progress:
            self._in_progress[topic_partition] = False

    async def wait_created(self, partitions: Iterable[TopicPartition], patience_s: float) -> bool:
        """Create the pending logs of some partitions first and wait for them, at most ``patience_s`` seconds.

        Return True if none is pending any more: each was created, or its creation failed, was cancelled or never
        requested.
        """
        left = [at for at in partitions if at in self]
        for at in left:
            if at in self._requested:
                self._prioritized[at] = None
        with self._env.timeout(patience_s):
            while left := [at for at in left if at in self]:
                await self._progress.wait()
        return not left

    async def wait_all_created(self, at_most: int, patience_s: float) -> None:
        """Wait at most ``patience_s`` seconds for all pending creations; not at all for more than ``at_most``."""
        if 0 < len(self) <= at_most:
            await self.wait_created([*self._requested, *self._in_progress], patience_s)

    # ------------------------------------------------------------------ creation

    async def run(self) -> None:
        """Create the requested logs in batches, prioritized ones first, until cancelled."""
        while True:
            jobs = self._next_batch()
            if jobs is None:
                if self._wakeup.is_set():
                    self._wakeup = trio.Event()
                await self._wakeup.wait()
                continue
            if not jobs:
                await trio.lowlevel.checkpoint()
                continue
            results = await self._env.in_thread(partial(create_logs, jobs, self._env.now_ms()), ThreadPool.FILES)
            passing = await run_in_background(self._env, self._process_results(jobs, results))
            self._notify_waiters()
            if passing:
                await self._env.sleep(RETRY_S)  # the shortage may pass; faster retries would prolong it

    def _notify_waiters(self) -> None:
        """Wake the tasks that wait for created logs."""
        self._progress.set()
        self._progress = trio.Event()

    def _next_batch(self) -> list[LogCreationRequest] | None:
        """Remove and return the next creations, awaited partitions first, then the oldest; None if none is requested.

        The batch is empty if all its partitions were deleted or their directories failed.
        """
        picked: dict[TopicPartition, None] = {}
        for at in chain(self._prioritized, self._requested):
            if len(picked) == CREATION_BATCH_SIZE:
                break
            if at in self._requested and at not in self._in_progress:
                picked[at] = None
        jobs: list[LogCreationRequest] = []
        for at in picked:
            self._prioritized.pop(at, None)
            del self._requested[at]
            topic = self._topic_of(at)
            directory = None if topic is None else self._directory_for(at, topic)
            if topic is not None and directory is not None:
                self._in_progress[at] = True
                self._in_progress_by_directory[directory.path] += 1
                jobs.append(LogCreationRequest(*at, topic.id, directory, self._settings(at[0])))
        if len(jobs) < len(picked):
            self._notify_waiters()
        return jobs if picked else None

    def _settings(self, topic: str) -> LogConfig:
        """Return a topic's log configuration by the newest image, cached for all its partitions."""
        if self._settings_image is not self._replica_manager.image:
            self._settings_image, self._settings_by_topic = self._replica_manager.image, {}
        known = self._settings_by_topic.get(topic)
        if known is None:
            known = self._settings_by_topic[topic] = self._config.log_settings(self._replica_manager.image, topic)
        return known

    def _topic_of(self, at: TopicPartition) -> TopicImage | None:
        """Return the topic of a partition; None if the image no longer assigns the partition to this node."""
        topic = self._replica_manager.image.topics.get(at[0])
        registration = None if topic is None else topic.partitions.get(at[1])
        return topic if registration is not None and self._config.node_id in registration.replicas else None

    def _directory_for(self, at: TopicPartition, topic: TopicImage) -> LogDirectory | None:
        """Return the directory for a new log; None if a failed one may have the log, which is marked offline then."""
        registration = topic.partitions[at[1]]
        if self._may_be_in_unavailable_directory(at, registration):
            self._replica_manager.offline_partitions.add(at)
            return None
        place = directory_id_of(registration, self._config.node_id)
        preferred = self._preferred.get(at)
        if preferred is not None and preferred in self._log_dirs.online:
            return preferred
        known = next((d for d in self._log_dirs.online if d.id == place), None)
        return known or self._partly_created.get(at) or self._log_dirs.select_directory(self._in_progress_by_directory)

    def _process_results(self, jobs: list[LogCreationRequest], results: list[PartitionLog | OSError]) -> Job[bool]:
        """Host the created logs of a batch and handle errors, as a job; return True after a transient error.

        The creation is requested again then.
        """
        passing = False
        logged_error: OSError | None = None
        for job, result in zip(jobs, results, strict=True):
            still_wanted = self._in_progress.pop(job.topic_partition)
            self._in_progress_by_directory[job.directory.path] -= 1
            if not isinstance(result, OSError):
                passing |= self._adopt(job, result, still_wanted=still_wanted)
            else:
                if isinstance(result, FileExistsError):
                    logger.error(
                        "Error while creating log for %s-%d, which is offline: %s", *job.topic_partition, result
                    )
                elif result is not logged_error:
                    self._fail(result, job.directory)
                logged_error = result
                if still_wanted:
                    passing |= self._on_creation_failed(job, result)
            yield None
        return passing

    def _on_creation_failed(self, job: LogCreationRequest, error: OSError) -> bool:
        """Handle a failed creation: request it again after a transient error and return True; else mark it offline."""
        if is_transient(error):
            self._partly_created[job.topic_partition] = job.directory
            self._requested[job.topic_partition] = None
            return True
        self._mark_offline(job)
        return False

    def _mark_offline(self, job: LogCreationRequest) -> None:
        """Mark a partition offline and report its failed directory to the controller, so that it is not elected."""
        self._replica_manager.offline_partitions.add(job.topic_partition)
        self._replica_manager.on_directory_changed(job.topic_id, job.partition, job.directory.id)

    def _adopt(self, job: LogCreationRequest, log: PartitionLog, *, still_wanted: bool) -> bool:
        """Host a created log and apply the image's state, or discard it if its partition was removed meanwhile.

        Return True after a transient error, after which the creation is retried.
        """
        replicas, at = self._replica_manager, job.topic_partition
        self._partly_created.pop(at, None)
        if self._preferred:
            self._preferred.pop(at, None)
        if job.directory.path in self._log_dirs.offline:
            log.close_files()
            if still_wanted:
                self._mark_offline(job)
            return False
        try:
            job.directory.add_log(log)
        except OSError as error:
            log.close_files()
            self._fail(error, job.directory)
            return still_wanted and self._on_creation_failed(job, error)
        topic = self._topic_of(at)
        if not still_wanted or topic is None or topic.id != job.topic_id:
            replicas.discard(log)
            return False
        replicas.host(log, job.topic_id)
        settings = self._settings(at[0])
        if settings is not job.settings:
            log.update_config(settings)  # changed during the creation
        replicas.apply_partition_state(at, topic.partitions[at[1]])
        self._created_since_notification += 1
        if self._created_since_notification >= GROWTH_NOTIFICATION_INTERVAL:
            self._created_since_notification = 0
            self.on_log_count_grown()
        return False
