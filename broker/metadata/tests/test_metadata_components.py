"""Components around the metadata: advertised endpoints, automatic topic creation, and producer ids."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.config.limits import MAX_TOPICS_IN_CREATION
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.controller_forwarder import ControllerForwarder
from ottla.broker.metadata.directory_assignments import (
    MAX_ASSIGNMENTS_PER_REQUEST,
    RETRY_S,
    DirectoryAssignments,
    build_assignment_request,
)
from ottla.broker.metadata.producer_id_manager import ProducerIdManager
from ottla.broker.metadata.publisher import CREATION_WAIT_S, MAX_AWAITED_PARTITIONS
from ottla.broker.requests.peer import Peer
from ottla.broker.tests.broker_storage_fixture import NODE_ID, BrokerStorageFixture, led_topic
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import create_topics
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from ottla.wire.messages.metadata_records import BrokerEndpoint, RegisterBrokerRecord


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    trio.run(scenario, clock=trio.testing.MockClock(autojump_threshold=0))


# ------------------------------------------------------------------ advertised endpoints


def broker(number: int, *ends: BrokerEndpoint, **more: Any) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(number, end_points=list(ends), **{"fenced": False, "rack": None, **more})


def end(name: str, host: str, port: int) -> BrokerEndpoint:
    return BrokerEndpoint(name, host, port, 0)


DIALLED = Peer("h", ("dialled", 5))
OTHERS = {
    3: broker(3, end("PLAINTEXT", "three", 3), rack="r"),
    1: broker(1, end("PLAINTEXT", "stored", 1)),
    2: broker(2, end("SSL", "no", 0), end("PLAINTEXT", "two", 2)),
}


@pytest.mark.parametrize(
    ("brokers", "values", "fenced", "expected"),
    [
        (OTHERS, {}, False, [(1, "dialled", 5, None), (2, "two", 2, None), (3, "three", 3, "r")]),
        ({1: OTHERS[1]}, {"advertised.listeners": "PLAINTEXT://told:7"}, False, [(1, "told", 7, None)]),
        ({1: broker(1, fenced=True)}, {}, False, []),
        ({1: broker(1, fenced=True)}, {}, True, [(1, "dialled", 5, None)]),
        ({1: broker(1, in_controlled_shutdown=True)}, {}, False, []),
        ({1: broker(1, in_controlled_shutdown=True)}, {}, True, [(1, "dialled", 5, None)]),
        ({1: broker(1)}, {"listeners": "PLAINTEXT://here.org:1"}, False, [(1, "here.org", 5, None)]),
        ({2: broker(2)}, {}, False, []),  # it has no listener of this name
        ({2: broker(2, end("CONTROLLER", "no", 0))}, {}, False, []),
        ({}, {}, True, []),
    ],
)
def test_endpoints_are_those_of_reachable_brokers_in_order(
    brokers: dict[int, RegisterBrokerRecord], values: dict[str, str], expected: list[Any], *, fenced: bool
) -> None:
    config = NodeConfig(values, node_id=NODE_ID)
    config.host, _ = config.first_listener
    cache = MetadataCache(config, "c", lambda: 1)
    cache.image = MetadataImage(brokers=brokers)
    assert cache.endpoints(DIALLED, fenced=fenced) == expected
    if not fenced:
        assert cache.endpoints(DIALLED) == expected


def test_endpoints_are_those_of_the_listener_name() -> None:
    values = {"advertised.listeners": "INSIDE://told-inside:7,OUTSIDE://told-outside:8"}
    values |= {
        "listeners": "INSIDE://:1,OUTSIDE://:2",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    }
    cache = MetadataCache(NodeConfig(values, node_id=NODE_ID), "c", lambda: 1)
    other = broker(2, end("INSIDE", "two-inside", 3), end("OUTSIDE", "two-outside", 4))
    cache.image = MetadataImage(brokers={1: broker(1), 2: other})
    for name in ("INSIDE", "OUTSIDE"):
        ends = cache.endpoints(Peer("h", ("dialled", 5), name))
        assert [x[1] for x in ends] == [f"told-{name.lower()}", f"two-{name.lower()}"]


# ------------------------------------------------------------------ automatic topic creation


class FakeTopicCreator:
    """Controller that answers topic creations when it is released."""

    def __init__(self, answer: Any = None) -> None:
        self.requested: list[tuple[Any, int]] = []
        self.may = trio.Event()
        self.answer = answer

    async def forward(self, asking: Any, request: Any) -> Any:
        return await self.submit(request, asking)

    async def submit(self, request: Any, version: int = 0) -> Any:
        self.requested.append((request, version))
        await self.may.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or create_topics.CreateTopicsResponse(topics=[create_topics.CreatableTopicResult("x")])


def created(requested: FakeTopicCreator) -> list[tuple[str, int, int]]:
    return [
        (t.name, t.num_partitions, t.replication_factor) for request, _ in requested.requested for t in request.topics
    ]


def with_admin(
    controller: FakeTopicCreator, scenario: Callable[[ControllerForwarder], Awaitable[None]], **values: str
) -> list[str]:
    stable_at: list[str] = []

    async def wait_until_stable() -> None:
        stable_at.append("settled")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            config = NodeConfig({k.replace("_", "."): v for k, v in values.items()})
            await scenario(ControllerForwarder(controller, config, nursery.start_soon, wait_until_stable))

    play(main)
    return stable_at


def test_forwarded_response_waits_until_metadata_is_applied() -> None:
    controller = FakeTopicCreator("answer")
    controller.may.set()

    async def scenario(admin: ControllerForwarder) -> None:
        assert await admin.forward("who asks", "request") == "answer"  # type: ignore[arg-type]

    assert with_admin(controller, scenario) == ["settled"]
    assert controller.requested == [("request", "who asks")]


def test_auto_create_sends_one_request_per_topic_at_a_time() -> None:
    controller = FakeTopicCreator()

    async def scenario(admin: ControllerForwarder) -> None:
        for name in ("a", "b", "a"):
            admin.auto_create(name)
        await trio.sleep(1)
        assert created(controller) == [("a", -1, -1), ("b", -1, -1)] or created(controller)[0][0] == "b"
        assert {(request.timeout_ms, version) for request, version in controller.requested} == {(60_000, 7)}
        controller.may.set()
        await trio.sleep(1)
        admin.auto_create("a")

    with_admin(controller, scenario)
    assert sorted(name for name, _, _ in created(controller)) == ["a", "a", "b"]


def test_auto_create_ignores_metadata_topic() -> None:
    controller = FakeTopicCreator()
    controller.may.set()

    async def scenario(admin: ControllerForwarder) -> None:
        admin.auto_create("__cluster_metadata")
        admin.auto_create("a")

    with_admin(controller, scenario)
    assert created(controller) == [("a", -1, -1)]


def test_auto_create_of_offsets_topic_uses_its_settings() -> None:
    controller = FakeTopicCreator()
    controller.may.set()

    async def scenario(admin: ControllerForwarder) -> None:
        admin.auto_create("__consumer_offsets")

    with_admin(controller, scenario, offsets_topic_num_partitions="7", offsets_topic_segment_bytes="99")
    assert created(controller) == [("__consumer_offsets", 7, 1)]
    settings = {c.name: c.value for c in controller.requested[0][0].topics[0].configs}
    assert settings == {"compression.type": "producer", "cleanup.policy": "compact", "segment.bytes": "99"}


def test_auto_create_limits_topics_in_creation() -> None:
    controller = FakeTopicCreator()

    async def scenario(admin: ControllerForwarder) -> None:
        for number in range(MAX_TOPICS_IN_CREATION + 5):
            admin.auto_create(f"t{number}")
        await trio.sleep(1)
        assert len(created(controller)) == MAX_TOPICS_IN_CREATION == 1_000
        controller.may.set()
        await trio.sleep(1)
        admin.auto_create("later")

    with_admin(controller, scenario)
    assert len(created(controller)) == MAX_TOPICS_IN_CREATION + 1


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.INVALID_REPLICATION_FACTOR])
def test_auto_create_failure_is_logged_and_may_be_retried(code: ErrorCode, caplog: pytest.LogCaptureFixture) -> None:
    controller = FakeTopicCreator(
        create_topics.CreateTopicsResponse(topics=[create_topics.CreatableTopicResult("a", error_code=code)])
    )
    controller.may.set()

    async def scenario(admin: ControllerForwarder) -> None:
        for _ in range(2):
            admin.auto_create("a")
            await trio.sleep(1)

    with_admin(controller, scenario)
    assert len(created(controller)) == 2
    warned = [
        r for r in caplog.records if r.message.startswith(f"Auto topic creation failed for a with error {code.name}")
    ]
    assert len(warned) == (2 if code else 0)


def test_auto_create_of_existing_topic_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    row = create_topics.CreatableTopicResult(
        "a", error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message="Topic 'a' already exists."
    )
    controller = FakeTopicCreator(create_topics.CreateTopicsResponse(topics=[row]))
    controller.may.set()
    caplog.set_level(logging.INFO, "ottla.admin")

    async def scenario(admin: ControllerForwarder) -> None:
        admin.auto_create("a")
        await trio.sleep(1)

    with_admin(controller, scenario)
    assert [(r.levelname, r.message) for r in caplog.records] == [
        ("INFO", "Auto topic creation of a: another broker has created it")
    ]


@pytest.mark.parametrize("error", [OSError("gone"), ProtocolError(ErrorCode.REQUEST_TIMED_OUT)], ids=repr)
def test_auto_create_without_response_is_ignored(error: Exception) -> None:
    controller = FakeTopicCreator(error)
    controller.may.set()

    async def scenario(admin: ControllerForwarder) -> None:
        admin.auto_create("a")

    with_admin(controller, scenario)
    assert len(created(controller)) == 1


# ------------------------------------------------------------------ producer ids


class FakeIdBlockController:
    """Assigns blocks of three from 1,000 on, or refuses."""

    def __init__(self) -> None:
        self.requested: list[AllocateProducerIdsRequest] = []
        self.refusal: ErrorCode | ProtocolError | None = None

    async def submit(self, request: Any, version: int = 0) -> Any:
        await trio.lowlevel.checkpoint()
        if isinstance(self.refusal, ProtocolError):
            raise self.refusal
        if self.refusal is not None:
            return AllocateProducerIdsResponse(error_code=self.refusal)
        self.requested.append(request)
        return AllocateProducerIdsResponse(producer_id_start=997 + 3 * len(self.requested), producer_id_len=3)


def test_producer_ids_come_from_consecutive_blocks() -> None:
    blocks = FakeIdBlockController()
    ids = ProducerIdManager(blocks, 5, lambda work: None)
    found: list[int] = []

    async def one() -> None:
        found.append(await ids.generate())

    async def scenario() -> None:
        assert ids.try_generate() is None
        await one()
        assert [ids.try_generate() for _ in range(3)] == [1001, 1002, None]
        ids.set_broker_epoch(9)
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(one)

    play(scenario)
    assert sorted(found) == [1000, 1003, 1004, 1005, 1006]
    assert blocks.requested == [AllocateProducerIdsRequest(5, epoch) for epoch in (-1, 9, 9)]
    assert [ids.try_generate() for _ in range(3)] == [1007, 1008, None]


@pytest.mark.parametrize(
    "refusal", [ErrorCode.STALE_BROKER_EPOCH, ProtocolError(ErrorCode.NOT_CONTROLLER)], ids=["answer", "raised"]
)
def test_producer_id_without_block_returns_coordinator_load_in_progress(refusal: ErrorCode | ProtocolError) -> None:
    """A broker that was unregistered a moment ago gets no ids: that must not end it."""
    blocks = FakeIdBlockController()
    ids = ProducerIdManager(blocks, 5, lambda work: None)

    async def scenario() -> None:
        blocks.refusal = refusal
        for _ in range(2):
            with pytest.raises(ProtocolError) as caught:
                await ids.generate()
            assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert ids.try_generate() is None
        blocks.refusal = None
        assert await ids.generate() == 1000

    play(scenario)


# ------------------------------------------------------------------ waits and limits


@pytest.mark.parametrize(("count", "waits"), [(MAX_AWAITED_PARTITIONS, True), (MAX_AWAITED_PARTITIONS + 1, False)])
def test_wait_created_applies_only_to_few_partitions(count: int, *, waits: bool) -> None:
    fixture = BrokerStorageFixture()
    assert (MAX_AWAITED_PARTITIONS, CREATION_WAIT_S) == (128, 1.0)
    waited: list[float] = []

    async def scenario() -> None:
        fixture.break_disk("/a/", 24)  # too many open files: the creation is retried
        fixture.commit_topics(led_topic("t", count))
        began = trio.current_time()
        await fixture.publisher.wait_applied_and_created()
        waited.append(trio.current_time() - began)

    fixture.run(scenario)
    assert (waited[0] == pytest.approx(CREATION_WAIT_S)) == waits
    assert waits or waited[0] < 0.1


def test_assign_replicas_to_dirs_rows_per_request_are_limited() -> None:
    fixture = BrokerStorageFixture("/a,/b")
    reported: list[int] = []

    class Counting:
        async def submit(self, request: Any, version: int = 0) -> Any:
            await trio.lowlevel.checkpoint()
            reported.append(sum(len(t.partitions) for d in request.directories for t in d.topics))
            return AssignReplicasToDirsResponse()

    directories = DirectoryAssignments(fixture.env, NODE_ID, Counting(), fixture.cache, fixture.log_dirs)

    async def scenario() -> None:
        record = RegisterBrokerRecord(NODE_ID, broker_epoch=7, fenced=False, log_dirs=fixture.log_dirs.online_ids)
        fixture.cache.image = MetadataImage(brokers={NODE_ID: record})
        for number in range(MAX_ASSIGNMENTS_PER_REQUEST + 1):
            directories.assign(b"t" * 16, number, b"d" * 16)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(directories.run)
            await trio.sleep(RETRY_S / 2)
            nursery.cancel_scope.cancel()

    fixture.run(scenario)
    assert reported == [MAX_ASSIGNMENTS_PER_REQUEST, 1] == [2250, 1]
    assert RETRY_S == 1.0


def test_assign_replicas_to_dirs_groups_by_directory_and_topic() -> None:
    a, b, t, u = (bytes([n]) * 16 for n in range(4))
    request = build_assignment_request(NODE_ID, 7, {(t, 0): a, (t, 1): b, (u, 5): a, (t, 2): a})
    assert (request.broker_id, request.broker_epoch) == (NODE_ID, 7)
    rows = {
        d.id: {x.topic_id: [p.partition_index for p in x.partitions] for x in d.topics} for d in request.directories
    }
    assert rows == {a: {t: [0, 2], u: [5]}, b: {t: [1]}}
