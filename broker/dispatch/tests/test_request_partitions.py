"""Pending partitions are created before a request that names them is handled."""

from __future__ import annotations

from types import GeneratorType, SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio

from ottla.broker.dispatch.api_registry import API_SPECS, BROKER_APIS
from ottla.broker.dispatch.dispatcher import LOG_CREATION_TIMEOUT_S
from ottla.broker.dispatch.request_partitions import partitions_to_create
from ottla.broker.requests.peer import Peer
from ottla.broker.tests.connection_fixture import DispatcherFixture, frame, in_virtual_time
from ottla.broker.tests.handler_fixture import resolve
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import parse_request
from ottla.wire.messages import delete_records, describe_producers, fetch, find_coordinator, list_offsets, produce
from ottla.wire.messages import offset_for_leader_epoch as ole
from ottla.wire.messages.heartbeat import HeartbeatRequest

ID = b"i" * 16
T = TopicImage("t", ID, dict.fromkeys(range(3), PartitionRegistration((1,), (1,), 1, 0, 0)))
OFFSETS = TopicImage("__consumer_offsets", b"o" * 16, {0: PartitionRegistration((1,), (1,), 1, 0, 0)})
IMAGE = MetadataImage(topics={"t": T, OFFSETS.name: OFFSETS}, topic_names={ID: "t"})


class PendingLogCreator:
    """Two pending partitions, and one of coordinators."""

    def __init__(self) -> None:
        self.left = {("t", 1), ("t", 2), (OFFSETS.name, 0)}
        self.requested: list[Any] = []

    def __len__(self) -> int:
        return len(self.left)

    def __contains__(self, at: Any) -> bool:
        return at in self.left

    async def wait_created(self, requested: Any, patience_s: float) -> bool:
        assert patience_s == LOG_CREATION_TIMEOUT_S
        self.requested.append(list(requested))
        await trio.sleep(2)
        return True


def parts(make: Any, *numbers: int) -> list[Any]:
    return [make(n) for n in numbers]


BY_NAME = produce.TopicProduceData("t", partition_data=parts(produce.PartitionProduceData, 0, 1, 1))
BY_ID = produce.TopicProduceData("", ID, parts(produce.PartitionProduceData, 1))
OF_UNKNOWN_TOPIC = produce.TopicProduceData("", b"?" * 16, parts(produce.PartitionProduceData, 1))
FETCHED = fetch.FetchTopic("t", partitions=parts(fetch.FetchPartition, 1, 7))
FETCHED_BY_ID = fetch.FetchTopic("", ID, parts(fetch.FetchPartition, 0, 1))
LISTED = list_offsets.ListOffsetsTopic("t", parts(list_offsets.ListOffsetsPartition, 1))
EPOCHS = ole.OffsetForLeaderTopic("t", parts(ole.OffsetForLeaderPartition, 1))
DELETED = delete_records.DeleteRecordsTopic("t", parts(delete_records.DeleteRecordsPartition, 1))
NAMED = [
    (ApiKey.PRODUCE, 9, produce.ProduceRequest(None, 1, 1, [BY_NAME])),
    (ApiKey.PRODUCE, 13, produce.ProduceRequest(None, 1, 1, [BY_ID, OF_UNKNOWN_TOPIC])),
    (ApiKey.FETCH, 12, fetch.FetchRequest(topics=[FETCHED])),
    (ApiKey.FETCH, 13, fetch.FetchRequest(topics=[FETCHED_BY_ID])),
    (ApiKey.LIST_OFFSETS, 5, list_offsets.ListOffsetsRequest(topics=[LISTED])),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, ole.OffsetForLeaderEpochRequest(topics=[EPOCHS])),
    (ApiKey.DELETE_RECORDS, 1, delete_records.DeleteRecordsRequest([DELETED])),
    (
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        describe_producers.DescribeProducersRequest([describe_producers.TopicRequest("t", [0, 1])]),
    ),
]
OF_COORDINATORS = [
    (ApiKey.FIND_COORDINATOR, 1, find_coordinator.FindCoordinatorRequest("g")),
    (ApiKey.FIND_COORDINATOR, 4, find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"])),
]
ROWS = [(*row, [("t", 1)]) for row in NAMED] + [(*row, [(OFFSETS.name, 0)]) for row in OF_COORDINATORS]


@pytest.mark.parametrize(("key", "version", "body", "requested"), ROWS)
@pytest.mark.parametrize("left", ["one", "others"])
def test_request_waits_for_creation_of_its_partitions(
    monkeypatch: pytest.MonkeyPatch, key: ApiKey, version: int, body: Any, requested: list[Any], left: str
) -> None:
    assert {row[0] for row in ROWS} == {spec.key for spec in API_SPECS if spec.partitions is not None}

    async def run() -> None:
        fixture, creation = DispatcherFixture(monkeypatch), PendingLogCreator()
        if left == "others":
            creation.left -= set(requested)
        fixture.services.log_creator, fixture.services.replica_manager = (
            creation,
            type("Replicas", (), {"image": IMAGE}),
        )
        fixture.serve(key, lambda context, request: context.now_ms, 0, 20, partitions=BROKER_APIS[key].partitions)
        request = parse_request(memoryview(frame(key, version, 1, body))[4:])
        result = fixture.dispatcher.handle_request(Peer("h", ("a", 1)), request)
        assert isinstance(result, GeneratorType)
        began = fixture.env.now_ms()
        assert await resolve(result) == fixture.env.now_ms(), "the handler's time is that after the waiting"
        assert fixture.env.now_ms() - began == (2000 if left == "one" else 0)
        assert creation.requested == ([requested] if left == "one" else [])

    in_virtual_time(run)


def test_request_without_pending_partitions_is_handled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        fixture, creation = DispatcherFixture(monkeypatch), PendingLogCreator()
        fixture.services.log_creator, fixture.services.replica_manager = (
            creation,
            type("Replicas", (), {"image": IMAGE}),
        )
        fixture.serve(ApiKey.HEARTBEAT, lambda context, request: "at once")
        fields = BROKER_APIS[ApiKey.FETCH].partitions
        fixture.serve(ApiKey.FETCH, lambda context, request: "at once", 0, 20, partitions=fields)
        peer = Peer("h", ("a", 1))

        def answer(key: ApiKey, version: int, body: Any) -> Any:
            return fixture.dispatcher.handle_request(peer, parse_request(memoryview(frame(key, version, 1, body))[4:]))

        assert answer(ApiKey.HEARTBEAT, 0, HeartbeatRequest()) == "at once"
        assert isinstance(answer(*NAMED[2]), GeneratorType)
        creation.left.clear()
        assert answer(*NAMED[2]) == "at once"

    in_virtual_time(run)


@pytest.mark.parametrize(("key", "version", "body"), NAMED)
def test_partitions_of_topics_without_partitions_yields_for_each_topic(key: ApiKey, version: int, body: Any) -> None:
    topics = getattr(body, "topic_data", None) or body.topics
    (field,) = (name for name in type(topics[0]).__struct_fields__ if name.startswith("partition"))
    topic = msgspec.structs.replace(topics[0], **{field: []})
    services: Any = SimpleNamespace(log_creator=PendingLogCreator(), replica_manager=SimpleNamespace(image=IMAGE))
    request: Any = SimpleNamespace(topics=[topic] * 100, topic_data=[topic] * 100)
    assert sum(1 for _ in partitions_to_create(BROKER_APIS[key], request, services)) >= 100
