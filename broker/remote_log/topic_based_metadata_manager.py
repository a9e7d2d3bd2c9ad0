"""Manager of the metadata of remote segments in the topic `__remote_log_metadata`: its creation, writer and readers.

For each broker that leads metadata partitions which this broker needs, one task reads them all.

Source: ``TopicBasedRemoteLogMetadataManager.java``, ``ConsumerManager.java``, ``ConsumerTask.java`` (apache/kafka
4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import trio

from ottla.broker.remote_log.metadata_topic_client import EARLIEST, LATEST, MetadataBatches
from ottla.broker.storage.tiered.remote_log_manager_config import RemoteLogMetadataTopicConfig
from ottla.broker.storage.tiered.remote_log_metadata import (
    REMOTE_LOG_METADATA_TOPIC,
    RemoteLogMetadata,
    RemoteLogSegmentMetadataUpdate,
    encode_remote_log_metadata,
)
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_partition_metadata_store import (
    AssignedPartition,
    MetadataPartition,
    RemotePartitionMetadataStore,
    TopicIdPartition,
)
from ottla.broker.storage.tiered.remote_storage import (
    RemoteLogSegmentMetadata,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import Env
from ottla.wire.errors import ErrorCode, ProtocolError, WireError

logger = logging.getLogger("ottla.tiered")
DELIVERY_TIMEOUT_MS = 120_000
"""Time in ms within which an append is repeated after an error: ``delivery.timeout.ms`` of Kafka's producer."""
MIN_RETRY_BACKOFF_S = 0.1
MAX_RETRY_BACKOFF_S = 1.0
MAX_CREATION_BACKOFF_S = 10.0
RECORDS_PER_SLICE = 32
"""Records that are replayed between two yields to the event loop."""


class RemoteLogMetadataTopic(Protocol):
    """Interface of the client of the metadata topic: `ottla.broker.remote_log.metadata_topic_client`.

    Its asynchronous methods raise ProtocolError, OSError or WireError; after such an error of `append` the record may
    be committed all the same.
    """

    def partition_count(self) -> int | None:
        """Return the number of partitions of the metadata topic; None if it does not exist."""

    def leader_of(self, partition: int) -> int:
        """Return the id of the broker that leads a metadata partition, -1 if there is none."""

    async def append(self, partition: int, value: bytes) -> int:
        """Append a record to a metadata partition; return its offset once it is committed."""

    async def find_offset(self, leader: int, partition: int, timestamp: int) -> int:
        """Return the first offset (timestamp -2) or the high watermark (-1) of a metadata partition from its leader."""

    async def fetch(self, leader: int, positions: dict[int, int]) -> dict[int, MetadataBatches]:
        """Wait shortly for a record; return the committed records of metadata partitions from their positions on."""

    def wake(self) -> None:
        """End the wait of a `fetch` in this process."""

    def close(self) -> None:
        """Close all connections."""


class TopicBasedRemoteLogMetadataManager:
    """Remote segments of the assigned partitions, replayed from the metadata topic, and writer of that topic."""

    def __init__(
        self,
        env: Env,
        topic: RemoteLogMetadataTopic,
        config: RemoteLogMetadataTopicConfig,
        create_topic: Callable[[], None],
    ) -> None:
        """Create the manager; `run` reads the topic, and creates it by ``create_topic`` if it does not exist."""
        self._env = env
        self._topic = topic
        self._config = config
        self._create_topic = create_topic
        self._store = RemotePartitionMetadataStore(config.num_partitions)
        self._leaders_in_progress: set[int] = set()
        """Brokers from which a task reads."""
        self._changed = trio.Event()

    # ------------------------------------------------------------------ assigned partitions

    def assign(self, key: TopicIdPartition) -> None:
        """Start to track the remote segments of a partition of this broker; no effect if it is tracked."""
        if self._store.assign(key):
            self._on_change()

    def unassign(self, key: TopicIdPartition) -> None:
        """Stop tracking a partition that is not hosted or not tiered any more, and drop its remote segments."""
        self._store.unassign(key)

    def cache(self, key: TopicIdPartition) -> RemoteLogMetadataCache | None:
        """Return the remote segments of a partition, None while they are not loaded, or if it is not assigned."""
        assigned = self._store.get(key)
        return assigned.cache if assigned is not None and assigned.cache.is_initialized else None

    async def wait_ready(self, key: TopicIdPartition) -> RemoteLogMetadataCache | None:
        """Wait until the remote segments of a partition are loaded, and return them; None if it is not assigned.

        If it is unassigned during the wait, the wait does not end: the caller cancels it.
        """
        assigned = self._store.get(key)
        if assigned is None:
            return None
        await assigned.ready.wait()
        return assigned.cache

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Handle a metadata publication: the leaders of the metadata partitions may have changed."""
        if REMOTE_LOG_METADATA_TOPIC in delta.topics:
            self._on_change()

    def _on_change(self) -> None:
        self._changed.set()
        self._topic.wake()

    # ------------------------------------------------------------------ writer

    async def write(self, record: RemoteLogMetadata) -> None:
        """Append a record of a segment or of its update; return once it is committed and replayed on this broker.

        Raises:
            RemoteStorageError: It is not known to be committed, its partition is not assigned to this broker, or it was
                not replayed within ``consume.wait.ms``.
        """
        assert isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate)
        segment_id = record.segment_id
        assigned = self._store.get((segment_id.topic_id, segment_id.partition))
        if assigned is None:
            raise RemoteStorageError(f"partition is not assigned: {segment_id.topic}-{segment_id.partition}")
        offset = await self._append(assigned.metadata_partition, encode_remote_log_metadata(record))
        with self._env.timeout(self._config.consume_wait_ms / 1000):
            while assigned.replayed_offset < offset:
                if self._store.get(assigned.key) is not assigned:
                    raise RemoteStorageError(f"partition is not assigned any more: {segment_id.topic}")
                await assigned.progress.wait()
        if assigned.replayed_offset < offset:
            raise RetriableRemoteStorageError("Timed out in catching up with the expected offset by consumer")

    async def _append(self, partition: int, value: bytes) -> int:
        """Append a record to a metadata partition; return its offset once it is committed.

        Errors that may pass are retried for `DELIVERY_TIMEOUT_MS`, so that the record may be appended twice.

        Raises:
            RemoteStorageError: It is not known to be committed.
        """
        deadline_ms = self._env.monotonic_ms() + DELIVERY_TIMEOUT_MS
        backoff_s = MIN_RETRY_BACKOFF_S
        while True:
            try:
                return await self._topic.append(partition, value)
            except ProtocolError as error:
                if not error.code.retriable:
                    raise RemoteStorageError(_append_failure(partition, error)) from error
                failure: Exception = error
            except (OSError, WireError) as error:
                failure = error
            if self._env.monotonic_ms() >= deadline_ms:
                raise RetriableRemoteStorageError(_append_failure(partition, failure)) from failure
            await self._env.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, MAX_RETRY_BACKOFF_S)

    # ------------------------------------------------------------------ readers

    async def run(self) -> None:
        """Create the topic if it does not exist, then read it until cancelled, with a task for each leader."""
        self._leaders_in_progress.clear()
        try:
            await self._ensure_topic()
            async with trio.open_nursery() as nursery:
                while True:
                    self._changed = trio.Event()
                    needed = {self._topic.leader_of(number) for number in self._store.metadata_partitions}
                    for leader in sorted(needed - self._leaders_in_progress - {-1}):
                        self._leaders_in_progress.add(leader)
                        nursery.start_soon(self._read_from, leader)
                    await self._changed.wait()
        finally:
            self._topic.close()

    async def _ensure_topic(self) -> None:
        """Wait until the topic exists with the configured number of partitions; create it if it does not exist.

        With another number of partitions it is not used: an error is logged, and the wait continues.
        """
        expected, is_logged = self._config.num_partitions, False
        backoff_s = max(self._config.initialization_retry_ms / 1000, MIN_RETRY_BACKOFF_S)
        while (count := self._topic.partition_count()) != expected:
            if count is None:
                self._create_topic()
            elif not is_logged:
                is_logged = True
                logger.error(
                    "Existing topic partition count %d is not same as the expected partition count %d: %s is not used",
                    *(count, expected, REMOTE_LOG_METADATA_TOPIC),
                )
            await self._env.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, MAX_CREATION_BACKOFF_S)

    def _parts_of(self, leader: int) -> list[MetadataPartition]:
        parts = self._store.metadata_partitions.values()
        return [part for part in parts if self._topic.leader_of(part.number) == leader]

    async def _read_from(self, leader: int) -> None:
        """Read the metadata partitions that a broker leads until it leads none; the body of a task.

        Errors are retried.
        """
        backoff_s = MIN_RETRY_BACKOFF_S
        try:
            while parts := self._parts_of(leader):
                try:
                    is_ok = await self._read_once(leader, parts)
                except (OSError, WireError, ProtocolError) as error:
                    logger.info(
                        "Reading %s from broker %d failed, retrying: %s", REMOTE_LOG_METADATA_TOPIC, leader, error
                    )
                    is_ok = False
                if is_ok:
                    backoff_s = MIN_RETRY_BACKOFF_S
                else:
                    await self._env.sleep(backoff_s)
                    backoff_s = min(2 * backoff_s, MAX_RETRY_BACKOFF_S)
        finally:
            self._leaders_in_progress.discard(leader)
            self._changed.set()

    async def _read_once(self, leader: int, parts: list[MetadataPartition]) -> bool:
        """Read and replay the next records of metadata partitions of one leader; return False if one of them failed.

        Raises:
            OSError, WireError, ProtocolError: There is no valid response.
        """
        for part in parts:
            if part.needs_end_offset:
                assigned: list[AssignedPartition] = [x for x in part.assigned.values() if x.end_offset is None]
                part.set_end_offset(assigned, await self._topic.find_offset(leader, part.number, LATEST))
                part.advance(part.position)
        await trio.lowlevel.checkpoint()
        restarts = {part.number: part.restarts for part in parts}
        results = await self._topic.fetch(leader, {part.number: part.position for part in parts})
        is_ok = True
        for part in parts:
            read = results.get(part.number)
            if read is None or part.restarts != restarts[part.number]:
                continue  # no records, or another position was set meanwhile
            if read.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._reset(leader, part)
            elif read.error_code:
                is_ok = False
                error = read.error_code.name
                logger.debug("Reading %s-%d failed, retrying: %s", REMOTE_LOG_METADATA_TOPIC, part.number, error)
            else:
                await self._replay(part, read)
        return is_ok

    async def _replay(self, part: MetadataPartition, read: MetadataBatches) -> None:
        restarts = part.restarts
        for number, (offset, value) in enumerate(read.records, 1):
            self._store.replay(part, offset, value)
            if number % RECORDS_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()
                if part.restarts != restarts:
                    return
        part.advance(read.next_offset)

    async def _reset(self, leader: int, part: MetadataPartition) -> None:
        """Set the position of a metadata partition to its first offset.

        Called if records at the position were deleted, or if the log was truncated below it.

        Raises:
            OSError, WireError, ProtocolError: There is no valid response.
        """
        restarts = part.restarts
        first = await self._topic.find_offset(leader, part.number, EARLIEST)
        end = await self._topic.find_offset(leader, part.number, LATEST)
        if part.restarts == restarts:
            logger.info("Reset position of %s-%d to offset %d", REMOTE_LOG_METADATA_TOPIC, part.number, first)
            part.on_truncated(end)
            part.advance(first)


def _append_failure(partition: int, error: Exception) -> str:
    return f"cannot append to {REMOTE_LOG_METADATA_TOPIC}-{partition}: {error}"
