"""ShareFetch and related APIs with very many partitions: other tasks run in between."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing

from ottla.broker.quotas.client_quotas import QuotaManagers
from ottla.broker.share_partitions.share_partition_leader import SharePartitionLeader
from ottla.broker.share_partitions.share_sessions import TopicIdPartition
from ottla.broker.share_state.share_group_offsets import SharePartitionKey
from ottla.broker.tests.share_group_fixture import ShareGroupNode, T
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.bounded_concurrency import MAX_CONCURRENT
from ottla.jobs.job import run_to_end
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponsePartition,
)
from ottla.wire.messages.metadata_records import ClientQuotaRecord, EntityData
from ottla.wire.messages.share_fetch import ShareFetchResponse

MANY = 400
"""Number of partitions; the event loop completes at least one round for so many persister calls:"""
BEGUN = 16


def rows(answer: ShareFetchResponse) -> dict[int, tuple[int, int]]:
    """Return error and number of records by partition."""
    return {
        row.partition_index: (
            row.error_code,
            sum(each.last_offset - each.first_offset + 1 for each in row.acquired_records),
        )
        for topic in answer.responses
        for row in topic.partitions
    }


def test_share_session_of_many_partitions_is_loaded_in_portions() -> None:
    node = ShareGroupNode(MANY)

    async def scenario() -> None:
        node.produce(7)
        answers = []

        async def fetch() -> None:
            answers.append(await node.fetch(0, *range(MANY), max_wait_ms=1000))

        assert await node.rounds_in(fetch) >= MANY // BEGUN - 3
        assert len(node.persister.calls) >= MANY - BEGUN
        assert rows(answers[0])[7] == (0, 5)

    node.run(scenario)


def test_record_append_checks_only_its_partition_in_delayed_fetch() -> None:
    """A write to one partition must not cost a scan of all partitions of a delayed fetch."""
    node = ShareGroupNode(MANY)
    looked: list[int] = []

    async def scenario() -> None:
        await node.fetch(0, *range(MANY))
        async with trio.open_nursery() as nursery:
            answers: list[ShareFetchResponse] = []

            async def parked() -> None:
                answers.append(await node.fetch(1, max_wait_ms=10_000, min_bytes=200))

            nursery.start_soon(parked)
            while not node.fixture.services.purgatory._operations_by_key:
                await trio.lowlevel.checkpoint()
            whole = SharePartitionLeader.next_fetch_offset

            def counted(shared: SharePartitionLeader) -> int | None:
                looked.append(shared.key.partition)
                return whole(shared)

            SharePartitionLeader.next_fetch_offset = counted  # type: ignore[method-assign]
            try:
                node.produce(3, 1)
                assert set(looked) == {3}, "and that is not enough"
            finally:
                SharePartitionLeader.next_fetch_offset = whole  # type: ignore[method-assign]
            node.produce(4, 40)
        assert {number: row[1] for number, row in rows(answers[0]).items()} == {3: 1, 4: 40}

    node.run(scenario)


def test_share_fetch_reads_no_more_partitions_than_max_records_needs() -> None:
    node = ShareGroupNode(3)

    async def scenario() -> None:
        await node.fetch(0, 0, 1, 2)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(3):
            node.produce(number)
        await node.fetch(1, max_records=1)
        counts = [
            shared.share_partition.in_flight_count
            for shared in node.fixture.services.share_partition_manager._by_key.values()
        ]
        assert counts == [0, 5, 0], "who comes first goes round with the epoch"

    node.run(scenario)


def test_share_fetch_of_disconnected_client_acquires_no_records() -> None:
    node = ShareGroupNode()

    async def scenario() -> None:
        await node.fetch(0, 0, max_wait_ms=1000)
        await trio.testing.wait_all_tasks_blocked()
        node.produce(0)
        shared = node.fixture.services.share_partition_manager._by_key["g", T, 0]
        node.peer.is_disconnected = True
        await node.fetch(1)
        assert shared.share_partition.in_flight_count == 0

    node.run(scenario)


def test_unavailable_share_partition_returns_error_and_others_are_read() -> None:
    node = ShareGroupNode(2)

    async def scenario() -> None:
        node.produce(0)
        assert rows(await node.fetch(0, 0, 1, 2))[2] == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        node.persister.refusal = ProtocolError(ErrorCode.NOT_COORDINATOR)
        shares = node.fixture.services.share_partition_manager
        for shared in list(shares._by_key.values()):
            shares._remove(shared)
        assert rows(await node.fetch(1, max_wait_ms=10))[0] == (ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)

    node.run(scenario)


def test_share_state_of_many_partitions_is_initialized_and_deleted_in_steps() -> None:
    node = ShareGroupNode()

    async def scenario() -> None:
        shares, places = node.fixture.services.share_partition_manager, {T: range(2 * MAX_CONCURRENT)}
        assert await node.rounds_in(lambda: shares.initialize("g", 1, places, -1)) >= 2 * MAX_CONCURRENT
        assert await node.rounds_in(lambda: shares.delete_state("g", places)) >= 2 * MAX_CONCURRENT
        assert len(node.persister.calls) == 4 * MAX_CONCURRENT
        node.persister.calls.clear()
        node.persister.refusal = ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        failure = await shares.delete_state("g", places)
        assert failure is not None
        assert failure.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(node.persister.calls) < MAX_CONCURRENT, "once it is known nobody else is asked"

    node.run(scenario)


def test_describe_share_group_offsets_of_many_partitions_keeps_order() -> None:
    node = ShareGroupNode(MANY)

    async def scenario() -> None:
        class Latest:
            async def high_watermark(self, topic: str, partition: int) -> int:
                return partition

        node.fixture.services.share_partition_manager.metadata_client = Latest()
        topic = DescribeShareGroupOffsetsRequestTopic("t", list(range(MANY)))
        request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup("g", [topic])])
        answers = []

        async def describe() -> None:
            answers.append(await node.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request))

        assert await node.rounds_in(describe) >= MANY
        parts = answers[0].groups[0].topics[0].partitions
        assert [(part.partition_index, part.lag) for part in parts] == [(n, n) for n in range(MANY)]

    node.run(scenario)


@pytest.mark.behaviour("C-213")
def test_describe_share_group_offsets_of_unknown_partition_sends_no_request() -> None:
    node = ShareGroupNode(1)

    async def scenario() -> None:
        topic = DescribeShareGroupOffsetsRequestTopic("t", [7, -1])
        request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup("g", [topic])])
        node.persister.refusal = ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        answer = await node.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request)
        rows = answer.groups[0].topics[0].partitions
        assert rows == [DescribeShareGroupOffsetsResponsePartition(n, -1, 0, -1) for n in (7, -1)], "as Kafka's"
        assert node.persister.calls == []

    node.run(scenario)


def test_delayed_share_fetch_returns_not_leader_after_leader_change() -> None:
    node = ShareGroupNode(2)

    async def scenario() -> None:
        await node.fetch(0, 0, 1)
        await trio.testing.wait_all_tasks_blocked()
        answers: list[ShareFetchResponse] = []

        async def parked() -> None:
            answers.append(await node.fetch(1, max_wait_ms=600_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(parked)
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            replica = node.fixture.hosted.replicas["t", 1]
            registration = replace(node.fixture.hosted.image.topics["t"].partitions[1], leader=2, leader_epoch=9)
            replica.apply_partition_state(1, registration, 0)
            node.fixture.services.share_partition_manager.on_resignation(replica)
        assert trio.current_time() == began
        assert rows(answers[0]) == {1: (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)}
        assert [key.partition for key in node.fixture.services.share_partition_manager._by_key] == [0]

    node.run(scenario)


def test_last_session_end_removes_share_partitions_of_its_group() -> None:
    node = ShareGroupNode(2)

    async def scenario() -> None:
        shares = node.fixture.services.share_partition_manager
        await node.fetch(0, 0, 1)
        await trio.testing.wait_all_tasks_blocked()
        node.produce(0)
        await node.fetch(1)
        shares.get_or_load("other", TopicIdPartition(T, 0))
        node.peer.mark_disconnected()
        assert [key.group_id for key in shares._by_key] == ["other"]
        await trio.testing.wait_all_tasks_blocked()
        assert ("write", SharePartitionKey("g", T, 0)) in node.persister.calls, "that it was handed out is kept"

    node.run(scenario)


def test_new_leader_epoch_reloads_share_partition() -> None:
    node = ShareGroupNode()

    async def scenario() -> None:
        shares = node.fixture.services.share_partition_manager
        old = shares.get_or_load("g", TopicIdPartition(T, 0))
        assert shares.get_or_load("g", TopicIdPartition(T, 0)) is old
        old.leader_epoch -= 1
        new = shares.get_or_load("g", TopicIdPartition(T, 0))
        assert (new is old, old.is_closed, new.is_closed) == (False, True, False)
        shares._remove(old)
        assert shares.get("g", TopicIdPartition(T, 0)) is new

    node.run(scenario)


def test_share_fetch_over_quota_returns_records_and_throttles_afterwards() -> None:
    node = ShareGroupNode()
    quotas = QuotaManagers(node.fixture.env)  # type: ignore[arg-type]
    draft = ImageBuilder(MetadataImage())
    draft.replay(ClientQuotaRecord([EntityData("user", "ANONYMOUS")], "consumer_byte_rate", 10, False))
    quotas.publish(run_to_end(draft.image(1, 1)), run_to_end(draft.delta(run_to_end(draft.image(1, 1)))))
    node.fixture.services.quota_holder.quotas = quotas

    async def scenario() -> None:
        node.produce(0)
        answer = await node.fetch(0, 0, max_wait_ms=1000)
        assert rows(answer)[0] == (0, 5)
        assert answer.throttle_time_ms == node.peer.throttle_ms > 0

    node.run(scenario)


def sent(answer: ShareFetchResponse) -> dict[int, int]:
    """Return the bytes of records by partition."""
    return {row.partition_index: len(row.records) for topic in answer.responses for row in topic.partitions}


def test_only_first_partition_may_exceed_its_share_of_max_bytes() -> None:
    node = ShareGroupNode(4)

    async def scenario() -> None:
        await node.fetch(0, 0, 1, 2, 3)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(1, 4):
            node.produce(number, 100)
        size = node.fixture.hosted.replicas["t", 1].log.segments[-1].size_bytes
        answer = await node.fetch(1, max_bytes=100)
        assert sent(answer) == {1: size}, "whose first batch is larger than all that was asked for"
        in_flight = [
            shared.share_partition.in_flight_count
            for shared in node.fixture.services.share_partition_manager._by_key.values()
        ]
        assert in_flight == [0, 100, 0, 0], "of the others nothing is anybody's"
        assert sent(await node.fetch(2, max_bytes=4 * size)) == {2: size, 3: size}

    node.run(scenario)


def test_share_fetch_rotates_first_partition_between_requests() -> None:
    node = ShareGroupNode(3)

    async def scenario() -> None:
        await node.fetch(0, 0, 1, 2)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(3):
            node.produce(number, 100)
        assert sorted([list(sent(await node.fetch(epoch, max_bytes=100))) for epoch in (1, 2, 3)]) == [[0], [1], [2]]

    node.run(scenario)


def test_bytes_read_of_one_partition_reduce_those_of_others() -> None:
    node = ShareGroupNode(2)

    async def scenario() -> None:
        await node.fetch(0, 0, 1)
        await trio.testing.wait_all_tasks_blocked()
        node.produce(1, 300)
        node.produce(0, 1)
        small, big = (node.fixture.hosted.replicas["t", number].log.segments[-1].size_bytes for number in range(2))
        assert sent(await node.fetch(1, max_bytes=big + small - 1)) == {1: big}, "though it is less than its half"

    node.run(scenario)
