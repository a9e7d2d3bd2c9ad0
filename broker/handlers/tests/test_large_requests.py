"""Requests with many rows yield to other tasks, and a topic requested twice is answered once."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import trio

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.fetch_sessions import fetch_session_cache
from ottla.broker.handlers.admin import describe_configs, describe_topic_partitions, metadata
from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.groups import find_coordinator
from ottla.broker.handlers.produce import produce
from ottla.broker.handlers.transactions import describe_producers
from ottla.broker.requests.peer import CloseConnection
from ottla.broker.tests.handler_fixture import (
    HandlerFixture,
    as_decoded,
    resolve,
    run_virtual,
    start,
    topic_id_of,
)
from ottla.jobs.time_slice import SLICE_MS
from ottla.log.tests.log_fixtures import NOW, make_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID, Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_producers import DescribeProducersRequest
from ottla.wire.messages.describe_producers import TopicRequest as ProducersOf
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.messages.describe_topic_partitions import TopicRequest as PartitionsOf
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


LONG: dict[str, tuple[ModuleType, ApiKey, int, Message]] = {
    "Metadata of many topics": (
        metadata,
        ApiKey.METADATA,
        12,
        MetadataRequest([MetadataRequestTopic(name=name) for name in names(100)], False),
    ),
    "Metadata of many partitions": (metadata, ApiKey.METADATA, 12, MetadataRequest(None)),
    "FindCoordinator": (find_coordinator, ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest("", 2, names(100))),
    "DescribeConfigs": (
        describe_configs,
        ApiKey.DESCRIBE_CONFIGS,
        4,
        DescribeConfigsRequest([DescribeConfigsResource(2, name) for name in names(100)]),
    ),
    "DescribeTopicPartitions": (
        describe_topic_partitions,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        DescribeTopicPartitionsRequest([PartitionsOf(name) for name in names(100)]),
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_request_with_many_rows_in_slices_equals_response_at_once(name: str) -> None:
    module, key, version, request = LONG[name]

    async def run() -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("t1", partitions=100)
        context = fixture.context(key, version)
        at_once = start(module.handle(context, request))
        assert isinstance(at_once, Message)
        in_turns = start(module.handle(context, request), SLICE_MS)
        assert not isinstance(in_turns, Message), "it must rest"
        assert await in_turns == at_once

    run_virtual(run)


def metadata_rows(context: RequestContext, topics: list[MetadataRequestTopic]) -> list[Any]:
    answer = start(metadata.handle(context, MetadataRequest(topics, False)))
    return [(row.error_code, row.name) for row in answer.topics]  # type: ignore[union-attr]


def test_metadata_topic_named_twice_is_answered_once() -> None:
    async def run() -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("a")
        fixture.hosted.host("b")
        by_name = [MetadataRequestTopic(ZERO_UUID, name) for name in ("a", "b", "a", "nowhere", "nowhere", "a")]
        assert metadata_rows(fixture.context(ApiKey.METADATA, 12), by_name) == [(0, "a"), (0, "b"), (3, "nowhere")]
        by_id = [MetadataRequestTopic(topic_id_of(name), None) for name in ("b", "a", "b")]
        assert metadata_rows(fixture.context(ApiKey.METADATA, 12), by_id) == [(0, "b"), (0, "a")]

    run_virtual(run)


@pytest.mark.behaviour("S-342")
def test_metadata_authorized_operations_are_returned_for_unknown_topics() -> None:
    async def run() -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("a")
        wanted = [MetadataRequestTopic(ZERO_UUID, name) for name in ("a", "nowhere")]
        request = MetadataRequest(wanted, False, include_topic_authorized_operations=True)
        answer: Any = start(metadata.handle(fixture.context(ApiKey.METADATA, 12), request))
        assert [(row.name, row.topic_authorized_operations) for row in answer.topics] == [
            ("a", 3576),
            ("nowhere", 3576),
        ]

    run_virtual(run)


# ---------------------------------------------------------------- repeated items and disconnected clients


def test_describe_configs_resource_named_twice_is_described_once() -> None:
    async def run() -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("a")
        twice = [DescribeConfigsResource(2, "a"), DescribeConfigsResource(2, "b"), DescribeConfigsResource(2, "a")]
        answer: Any = start(
            describe_configs.handle(
                fixture.context(ApiKey.DESCRIBE_CONFIGS, 4),
                DescribeConfigsRequest([*twice, DescribeConfigsResource(4, "b")]),
            )
        )
        assert [(row.resource_type, row.resource_name) for row in answer.results] == [(2, "a"), (2, "b"), (4, "b")]

    run_virtual(run)


def test_describe_producers_partition_named_twice_is_described_once() -> None:
    async def run() -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("a", partitions=3)
        requests = [ProducersOf("a", [1, 1, 7, 0]), ProducersOf("a", [1, 2, 7])]
        answer: Any = start(
            describe_producers.handle(fixture.context(ApiKey.DESCRIBE_PRODUCERS, 0), DescribeProducersRequest(requests))
        )
        rows = [[(row.partition_index, row.error_code) for row in topic.partitions] for topic in answer.topics]
        assert rows == [[(1, 0), (7, 3), (0, 0)], [(2, 0)]]

    run_virtual(run)


def produce_request(count: int, acks: int, *, bad: int = -1, corrupt: int = -1) -> ProduceRequest:
    parts = [PartitionProduceData(n, make_batch(0)) for n in range(count)]
    if bad >= 0:
        parts[bad].records = b""
    if corrupt >= 0:
        parts[corrupt].records = b"no batch at all, and longer than its beginning"
    return ProduceRequest(None, acks, 1000, [TopicProduceData("t", partition_data=parts)])


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_long_produce_of_disconnected_client_is_appended(acks: int) -> None:
    """With acks=0 the client disconnects when all is sent. Only the wait after the appends may be cancelled."""

    async def run() -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("t", partitions=100)
        context = fixture.context(ApiKey.PRODUCE, 11)
        answer = start(produce.handle(context, produce_request(100, acks)), SLICE_MS)
        context.peer.mark_disconnected()
        response = await resolve(answer)
        assert all(replica.log.log_end_offset == 3 for replica in fixture.hosted.replicas.values())
        if acks == 0:
            assert response is None
        else:
            rows = as_decoded(response, 11).responses[0].partition_responses
            assert [(row.index, row.error_code, row.base_offset) for row in rows] == [(n, 0, 0) for n in range(100)]

    run_virtual(run)


def test_long_produce_returns_same_rows_as_short_one() -> None:
    async def run() -> None:
        collected = []
        for count in (60, 600):
            fixture = HandlerFixture()
            fixture.hosted.host("t", partitions=50)
            request = produce_request(count, 1, bad=7)
            answer = await resolve(produce.handle(fixture.context(ApiKey.PRODUCE, 11), request))
            collected.append(as_decoded(answer, 11).responses[0].partition_responses)
        assert collected[1][:60] == collected[0]
        assert [row.error_code for row in collected[1]] == [0] * 7 + [87] + [0] * 42 + [3] * 550
        assert [row.index for row in collected[1]] == list(range(600))

    run_virtual(run)


def test_long_produce_with_invalid_batch_appends_none() -> None:
    async def run() -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("t", partitions=50)
        request = produce_request(600, 1, corrupt=599)
        answer = as_decoded(await resolve(produce.handle(fixture.context(ApiKey.PRODUCE, 11), request)), 11)
        assert {row.error_code for row in answer.responses[0].partition_responses} == {2}
        assert len({row.error_message for row in answer.responses[0].partition_responses}) == 1
        assert all(replica.log.log_end_offset == 0 for replica in fixture.hosted.replicas.values())
        with pytest.raises(CloseConnection):
            await resolve(produce.handle(fixture.context(ApiKey.PRODUCE, 11), produce_request(600, 0, corrupt=0)))

    run_virtual(run)


# ---------------------------------------------------------------- fetches of very many partitions


def long_fetch(version: int, *parts: tuple[int, int], epoch: int = -1) -> FetchRequest:
    topic = FetchTopic("", topic_id_of("t")) if version >= 13 else FetchTopic("t")
    topic.partitions = [FetchPartition(n, -1, offset, partition_max_bytes=1 << 20) for n, offset in parts]
    return FetchRequest(max_wait_ms=0, max_bytes=1 << 24, session_epoch=epoch, topics=[topic])


@pytest.mark.parametrize("version", [4, 12, 13, 16])
def test_long_fetch_returns_same_rows_as_short_one(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    async def run() -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("t", partitions=20)
        fixture.hosted.host("elsewhere", leader=2)
        for replica in fixture.hosted.replicas.values():
            replica.append(make_batch(0), NOW)
        requests = [*((n, n % 4) for n in range(40)), (3, 0), (5, 9), (99, 0), (99, 1)]
        collected = []
        for most in (10_000, 10):
            monkeypatch.setattr(fetch_session_cache, "MAX_FETCH_SESSION_PARTITIONS", most)
            context = fixture.context(ApiKey.FETCH, version)
            collected.append(as_decoded(start(fetch.handle(context, long_fetch(version, *requests))), version))
        assert collected[0] == collected[1]
        assert len(collected[1].responses[0].partitions) == 41, "what is asked for twice is read once"

    run_virtual(run)


def test_long_fetch_opens_no_session_and_sessions_do_not_grow_beyond_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session_cache, "MAX_FETCH_SESSION_PARTITIONS", 10)

    async def run() -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("t", partitions=20)

        def ask(*parts: tuple[int, int], epoch: int, session: int = 0) -> Any:
            request = long_fetch(13, *parts, epoch=epoch)
            request.session_id = session
            return start(fetch.handle(fixture.context(ApiKey.FETCH, 13), request))

        assert ask(*((n, 0) for n in range(11)), epoch=0).session_id == 0
        first = ask(*((n, 0) for n in range(10)), epoch=0)
        assert first.session_id
        assert ask((3, 0), epoch=1, session=first.session_id).error_code == 0
        assert ask((10, 0), epoch=2, session=first.session_id).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(fixture.services.fetch_sessions) == 0
        again = ask((0, 0), epoch=0).session_id
        assert ask(*((n, 0) for n in range(11)), epoch=0, session=again).session_id == 0
        assert len(fixture.services.fetch_sessions) == 0, "a full fetch ends the session it names"

    run_virtual(run)


def test_total_cached_fetch_partitions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session_cache, "MAX_CACHED_FETCH_PARTITIONS", 12)

    async def run() -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("t", partitions=20)

        def ask(*numbers: int, epoch: int = 0, session: int = 0) -> Any:
            request = long_fetch(13, *((n, 0) for n in numbers), epoch=epoch)
            request.session_id = session
            return start(fetch.handle(fixture.context(ApiKey.FETCH, 13), request))

        assert ask(*range(6)).session_id
        second = ask(*range(6)).session_id
        assert second
        assert ask(0).session_id == 0, "there is no room"
        assert ask(6, epoch=1, session=second).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(fixture.services.fetch_sessions) == 1
        await trio.sleep(fetch_session_cache.MIN_FETCH_SESSION_EVICTION_MS / 1000)
        assert ask(*range(8)).session_id, "one that was not used for two minutes makes room"
        assert len(fixture.services.fetch_sessions) == 1

    run_virtual(run)


def test_long_fetch_waits_for_min_bytes_as_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session_cache, "MAX_FETCH_SESSION_PARTITIONS", 10)

    async def run() -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("t", partitions=20)
        request = long_fetch(13, *((n, 0) for n in range(20)))
        request.max_wait_ms, request.min_bytes = 1000, 1
        began = trio.current_time()
        answer: Any = as_decoded(await start(fetch.handle(fixture.context(ApiKey.FETCH, 13), request)), 13)  # type: ignore[misc]
        assert trio.current_time() - began == 1
        assert len(answer.responses[0].partitions) == 20
        async with trio.open_nursery() as nursery:

            async def append() -> None:
                await trio.sleep(0.25)
                fixture.hosted.replicas["t", 17].append(make_batch(0), NOW)

            nursery.start_soon(append)
            answer = as_decoded(await start(fetch.handle(fixture.context(ApiKey.FETCH, 13), request)), 13)  # type: ignore[misc]
        assert trio.current_time() - began == 1.25
        assert [len(row.records) > 0 for row in answer.responses[0].partitions].index(True) == 17

    run_virtual(run)
