"""Metadata of remote segments in a topic: its creation, the replay on this broker, and writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import trio
import trio.testing

from ottla.broker.remote_log.tests.metadata_topic_fixture import MemoryMetadataTopic
from ottla.broker.remote_log.topic_based_metadata_manager import (
    DELIVERY_TIMEOUT_MS,
    TopicBasedRemoteLogMetadataManager,
)
from ottla.broker.storage.tiered.remote_log_manager_config import RemoteLogMetadataTopicConfig
from ottla.broker.storage.tiered.remote_log_metadata import (
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    encode_remote_log_metadata,
    metadata_partition,
)
from ottla.broker.storage.tiered.remote_storage import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.env.env import Env
from ottla.wire.errors import ErrorCode, ProtocolError

TOPIC_ID, OTHER_ID = b"an id of a topic", b"another topic id"
KEY, OTHER_KEY = (TOPIC_ID, 0), (OTHER_ID, 0)
Work = Callable[[TopicBasedRemoteLogMetadataManager, MemoryMetadataTopic], Awaitable[None]]


def _segment(number: int, topic_id: bytes = TOPIC_ID) -> RemoteLogSegmentMetadata:
    """Return the metadata of a segment of ten records whose copy began."""
    segment_id = RemoteLogSegmentId(topic_id, "t", 0, number.to_bytes(16, "big"))
    start = 10 * number
    return RemoteLogSegmentMetadata(segment_id, start, start + 9, 1, 1, 1, 100, {0: start})


def _finished(number: int, topic_id: bytes = TOPIC_ID) -> RemoteLogSegmentMetadataUpdate:
    segment_id = _segment(number, topic_id).segment_id
    return RemoteLogSegmentMetadataUpdate(segment_id, 2, None, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 1)


def _run(work: Work, topic: MemoryMetadataTopic, partitions: int = 1, consume_wait_ms: int = 5000) -> list[str]:
    """Run a manager while ``work`` runs; return the topics that it created."""
    created: list[str] = []

    def create() -> None:
        created.append("created")
        topic.count = partitions

    async def main() -> None:
        config = RemoteLogMetadataTopicConfig(num_partitions=partitions, consume_wait_ms=consume_wait_ms)
        manager = TopicBasedRemoteLogMetadataManager(cast("Env", VirtualEnv()), topic, config, create)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.run)
            await work(manager, topic)
            nursery.cancel_scope.cancel()
        assert topic.is_closed

    run_virtual(main)
    return created


def _starts(manager: TopicBasedRemoteLogMetadataManager, key: tuple[bytes, int] = KEY) -> list[int]:
    """Return the start offsets of the readable segments of a partition."""
    cache = manager.cache(key)
    assert cache is not None
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    return sorted(each.start_offset for each in cache.list_segments() if each.state is finished)


def test_missing_topic_is_created() -> None:
    async def work(manager: TopicBasedRemoteLogMetadataManager, _: MemoryMetadataTopic) -> None:
        manager.assign(KEY)
        await manager.wait_ready(KEY)

    assert _run(work, MemoryMetadataTopic(None)) == ["created"]


def test_topic_with_another_number_of_partitions_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    async def work(manager: TopicBasedRemoteLogMetadataManager, topic: MemoryMetadataTopic) -> None:
        manager.assign(KEY)
        await trio.sleep(60)
        assert manager.cache(KEY) is None
        assert not topic.fetches

    assert _run(work, MemoryMetadataTopic(4), partitions=3) == []
    assert caplog.text.count("is not same as the expected partition count") == 1


def test_partition_is_ready_after_the_records_that_existed_at_its_assignment() -> None:
    topic = MemoryMetadataTopic()
    for number in range(5):
        topic.add(encode_remote_log_metadata(_segment(number)))
        topic.add(encode_remote_log_metadata(_finished(number)))
    seen: list[object] = []

    async def work(manager: TopicBasedRemoteLogMetadataManager, topic: MemoryMetadataTopic) -> None:
        topic.on_fetch = lambda: seen.append(manager.cache(KEY))
        manager.assign(KEY)
        assert manager.cache(KEY) is None
        await manager.wait_ready(KEY)
        assert _starts(manager) == [0, 10, 20, 30, 40]
        topic.add(encode_remote_log_metadata(_segment(5)))
        topic.add(encode_remote_log_metadata(_finished(5)))
        await trio.testing.wait_all_tasks_blocked()
        assert _starts(manager) == [0, 10, 20, 30, 40, 50]

    _run(work, topic)
    assert seen[:4] == [None] * 4  # ten records, three in each fetch


def test_partition_assigned_later_gets_the_earlier_records_and_others_none_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = MemoryMetadataTopic()
    for topic_id in (TOPIC_ID, OTHER_ID):
        topic.add(encode_remote_log_metadata(_segment(1, topic_id)))
        topic.add(encode_remote_log_metadata(_finished(1, topic_id)))

    async def work(manager: TopicBasedRemoteLogMetadataManager, topic: MemoryMetadataTopic) -> None:
        manager.assign(KEY)
        await manager.wait_ready(KEY)
        assert manager.cache(OTHER_KEY) is None
        manager.assign(OTHER_KEY)
        assert manager.cache(KEY) is not None
        await manager.wait_ready(OTHER_KEY)
        assert _starts(manager) == _starts(manager, OTHER_KEY) == [10]
        manager.unassign(OTHER_KEY)
        assert manager.cache(OTHER_KEY) is None

    _run(work, topic)
    assert not caplog.records  # a repeated COPY_SEGMENT_STARTED would be logged


def test_records_that_cannot_be_applied_are_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    topic = MemoryMetadataTopic()
    for value in (b"", b"\x09\x09\x09", None, b"\xff" * 50):
        topic.add(value)
    deleted = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    topic.add(encode_remote_log_metadata(RemotePartitionDeleteMetadata(TOPIC_ID, "t", 0, deleted, 1, 1)))
    topic.add(encode_remote_log_metadata(_segment(1)))
    topic.add(encode_remote_log_metadata(_finished(1)))

    async def work(manager: TopicBasedRemoteLogMetadataManager, topic: MemoryMetadataTopic) -> None:
        manager.assign(KEY)
        await manager.wait_ready(KEY)
        topic.add(encode_remote_log_metadata(_finished(7)))  # of an unknown segment
        topic.add(encode_remote_log_metadata(_segment(2)))
        topic.add(encode_remote_log_metadata(_finished(2)))
        await trio.testing.wait_all_tasks_blocked()
        assert _starts(manager) == [10, 20]

    _run(work, topic)
    assert sum("Skipped the record" in each.message for each in caplog.records) == 5


def test_write_returns_once_the_record_is_replayed_here() -> None:
    async def work(manager: TopicBasedRemoteLogMetadataManager, _: MemoryMetadataTopic) -> None:
        manager.assign(KEY)
        await manager.wait_ready(KEY)
        await manager.write(_segment(1))
        cache = manager.cache(KEY)
        assert cache is not None
        assert len(cache.list_segments()) == 1
        await manager.write(_finished(1))
        assert _starts(manager) == [10]

    _run(work, MemoryMetadataTopic())


def test_append_is_repeated_after_errors_that_may_pass() -> None:
    topic = MemoryMetadataTopic()
    topic.failures = [ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER), OSError("closed"), OSError("closed")]

    async def work(manager: TopicBasedRemoteLogMetadataManager, topic: MemoryMetadataTopic) -> None:
        manager.assign(KEY)
        await manager.write(_segment(1))
        assert not topic.failures
        topic.failures = [ProtocolError(ErrorCode.MESSAGE_TOO_LARGE)]
        with pytest.raises(RemoteStorageError, match="__remote_log_metadata-0"):
            await manager.write(_finished(1))

    _run(work, topic)


def test_append_fails_after_the_delivery_timeout() -> None:
    async def work(manager: TopicBasedRemoteLogMetadataManager, topic: MemoryMetadataTopic) -> None:
        manager.assign(KEY)
        topic.failures = [OSError("closed")] * DELIVERY_TIMEOUT_MS
        with pytest.raises(RetriableRemoteStorageError):
            await manager.write(_segment(1))
        assert DELIVERY_TIMEOUT_MS <= trio.current_time() * 1000 < 2 * DELIVERY_TIMEOUT_MS

    _run(work, MemoryMetadataTopic())


def test_write_that_is_not_read_back_in_time_fails() -> None:
    async def work(manager: TopicBasedRemoteLogMetadataManager, topic: MemoryMetadataTopic) -> None:
        manager.assign(KEY)
        await manager.wait_ready(KEY)
        topic.read_failures = [OSError("closed")] * 100
        with pytest.raises(RetriableRemoteStorageError, match="catching up"):
            await manager.write(_segment(1))

    _run(work, MemoryMetadataTopic())


def test_write_of_a_partition_that_is_not_assigned_fails() -> None:
    async def work(manager: TopicBasedRemoteLogMetadataManager, topic: MemoryMetadataTopic) -> None:
        with pytest.raises(RemoteStorageError):
            await manager.write(_segment(1))
        manager.assign(KEY)
        await manager.wait_ready(KEY)
        topic.read_failures = [OSError("closed")] * 100
        async with trio.open_nursery() as nursery:

            async def unassign() -> None:
                await trio.sleep(1)
                manager.unassign(KEY)

            nursery.start_soon(unassign)
            with pytest.raises(RemoteStorageError, match="not assigned any more"):
                await manager.write(_segment(1))

    _run(work, MemoryMetadataTopic())


def test_each_leader_is_read_and_a_new_one_after_a_change() -> None:
    partitions = 50
    numbers = [metadata_partition(topic_id, 0, partitions) for topic_id in (TOPIC_ID, OTHER_ID)]
    assert numbers[0] != numbers[1]
    topic = MemoryMetadataTopic(partitions)
    topic.leaders = {numbers[1]: 2}

    async def work(manager: TopicBasedRemoteLogMetadataManager, topic: MemoryMetadataTopic) -> None:
        for key in (KEY, OTHER_KEY):
            manager.assign(key)
            await manager.wait_ready(key)
        await manager.write(_segment(1, OTHER_ID))
        topic.leaders[numbers[1]] = 3
        await manager.write(_finished(1, OTHER_ID))
        assert _starts(manager, OTHER_KEY) == [10]

    _run(work, topic, partitions)
    assert {leader for leader, _ in topic.fetches} == {1, 2, 3}


def test_reading_continues_after_deleted_records_and_after_a_truncation() -> None:
    topic = MemoryMetadataTopic()
    topic.start[0] = 4
    topic.add(encode_remote_log_metadata(_segment(1)))
    topic.add(encode_remote_log_metadata(_finished(1)))

    async def work(manager: TopicBasedRemoteLogMetadataManager, topic: MemoryMetadataTopic) -> None:
        manager.assign(KEY)
        await manager.wait_ready(KEY)
        assert _starts(manager) == [10]
        for number in (2, 3):
            await manager.write(_segment(number))
        del topic.records[0][6], topic.records[0][7]  # an unclean election
        await trio.sleep(2)
        topic.add(encode_remote_log_metadata(_segment(4)))
        topic.add(encode_remote_log_metadata(_finished(4)))
        await trio.testing.wait_all_tasks_blocked()
        assert _starts(manager) == [10, 40]

    _run(work, topic)
