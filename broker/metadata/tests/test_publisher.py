"""Publication of metadata: in order, in slices, and visible to handlers when applied."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from ottla.broker.metadata.directory_assignments import RETRY_S, DirectoryAssignments, build_assignment_request
from ottla.broker.tests.broker_storage_fixture import NODE_ID, BrokerStorageFixture, led_topic
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.metadata_records import RegisterBrokerRecord


def test_image_is_visible_when_applied_and_subscribers_are_called_in_order() -> None:
    fixture = BrokerStorageFixture()
    received: list[tuple[int, bool]] = []
    fixture.publisher.subscribe(
        lambda image, delta: received.append(
            (image.offset, fixture.cache.image is image is fixture.replica_manager.image)
        )
    )

    async def scenario() -> None:
        assert fixture.publisher.offset == -1
        fixture.commit_topics(led_topic("t", 1))
        fixture.commit_topics(led_topic("u", 1))
        fixture.commit_topics(gone=("t",))
        assert fixture.publisher.offset == -1
        await fixture.publisher.wait_applied()
        assert fixture.publisher.offset == 2
        await fixture.publisher.wait_applied()  # no publication is left: the call returns at once

    fixture.run(scenario)
    assert received == [(0, True), (1, True), (2, True)]


def test_wait_applied_and_created_waits_only_for_few_partitions() -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(led_topic("few", 128))
        await fixture.publisher.wait_applied_and_created()
        assert len(fixture.hosted()) == 128
        fixture.commit_topics(led_topic("many", 129))
        await fixture.publisher.wait_applied_and_created()
        assert len(fixture.hosted()) < 257
        assert fixture.publisher.offset == 1

    fixture.run(scenario)


def test_wait_applied_and_created_times_out_when_creation_fails() -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.break_disk("/a/t-", 24)  # EMFILE
        fixture.commit_topics(led_topic("t", 1))
        await fixture.publisher.wait_applied_and_created()
        assert trio.current_time() == pytest.approx(1.0)

    fixture.run(scenario)


def test_hosted_partition_follows_leader_and_is_removed_with_topic() -> None:
    fixture = BrokerStorageFixture()
    resigned: list[tuple[str, int]] = []
    fixture.replica_manager.on_resigned.append(lambda r: resigned.append((r.topic, r.partition)))

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 2))
        await fixture.publisher.wait_applied_and_created()
        replica = fixture.replica_manager.get("t", 0)
        assert replica is not None
        assert replica.is_leader
        fixture.commit_topics(led_topic("t", 2, leader=-1, leader_epoch=1))
        await fixture.publisher.wait_applied_and_created()
        assert not replica.is_leader
        fixture.commit_topics(led_topic("t", 2, leader_epoch=2))
        await fixture.publisher.wait_applied_and_created()
        assert replica.is_leader
        assert replica.log.epochs.latest_epoch() == 2
        fixture.commit_topics(gone=("t",))
        await fixture.publisher.wait_applied_and_created()
        assert not replica.is_leader
        assert replica.log.closed
        with pytest.raises(ProtocolError) as unknown:
            fixture.replica_manager.leader("t", 0)
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    fixture.run(scenario)
    assert fixture.led == [("t", 0), ("t", 1)] * 2
    assert resigned == [("t", 0), ("t", 1)] * 2
    assert ("fetch", "t", 0) in fixture.woken
    assert len(fixture.scheduled_deletes) == 2


def test_partition_not_yet_created_returns_not_leader_or_follower() -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 1))
        await fixture.publisher.wait_applied()
        with pytest.raises(ProtocolError) as waiting:
            fixture.replica_manager.leader("t", 0)
        assert waiting.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await fixture.publisher.wait_applied_and_created()
        assert fixture.replica_manager.leader("t", 0).is_leader

    fixture.run(scenario)


def test_config_change_reaches_only_the_affected_logs() -> None:
    fixture = BrokerStorageFixture()

    def retention(name: str) -> int:
        replica = fixture.replica_manager.get(name, 0)
        assert replica is not None
        return replica.log.config.retention_ms

    async def scenario() -> None:
        fixture.commit_topics(led_topic("a", 1), led_topic("b", 1))
        await fixture.publisher.wait_applied_and_created()
        before = {name: id(r.log.config) for name in "ab" if (r := fixture.replica_manager.get(name, 0))}
        settings: Any = {(RESOURCE_TOPIC, "a"): {"retention.ms": "5"}}
        fixture.commit_topics(configs=settings)
        await fixture.publisher.wait_applied_and_created()
        assert (retention("a"), retention("b")) == (5, 604_800_000)
        other = fixture.replica_manager.get("b", 0)
        assert other is not None
        assert id(other.log.config) == before["b"]
        settings = {**settings, (RESOURCE_BROKER, ""): {"log.retention.ms": "9"}}
        fixture.commit_topics(configs=settings)
        await fixture.publisher.wait_applied_and_created()
        assert (retention("a"), retention("b")) == (5, 9)
        settings = {**settings, (RESOURCE_BROKER, str(NODE_ID)): {"log.retention.ms": "10"}}
        fixture.commit_topics(configs=settings)
        await fixture.publisher.wait_applied_and_created()
        assert (retention("a"), retention("b")) == (5, 10)
        fixture.commit_topics(configs={**settings, (RESOURCE_TOPIC, "unknown"): {"retention.ms": "1"}})
        await fixture.publisher.wait_applied_and_created()

    fixture.run(scenario)


def test_large_publication_yields_to_event_loop() -> None:
    fixture = BrokerStorageFixture()
    turns = [0]
    clock = [0.0]

    def ticking() -> float:  # every look at the clock costs a tenth of a millisecond
        clock[0] += 0.1
        return clock[0]

    async def scenario() -> None:
        fixture.env.monotonic_ms = ticking

        async def other() -> None:
            while True:
                turns[0] += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            fixture.commit_topics(led_topic("t", 1000, leader=2, replicas=(2,)), led_topic("u", 1000))
            await fixture.publisher.wait_applied()
            nursery.cancel_scope.cancel()

    fixture.run(scenario)
    assert turns[0] >= 45


def test_exception_while_applying_ends_the_node() -> None:
    fixture = BrokerStorageFixture()

    def broken(image: MetadataImage, delta: MetadataDelta) -> None:
        raise ValueError("a bug")

    fixture.publisher.subscribe(broken)

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 1))
        await trio.sleep(1)

    with pytest.raises(BaseExceptionGroup) as caught:
        fixture.run(scenario)
    assert caught.group_contains(ValueError, match="a bug")


class FakeAssignmentController:
    """Accepts requests after refusing a number of them."""

    def __init__(self, refuses: int = 0) -> None:
        self.reported: list[Any] = []
        self.refuses = refuses

    async def submit(self, request: Any, version: int = 0) -> Any:
        await trio.lowlevel.checkpoint()
        beats = isinstance(request, BrokerHeartbeatRequest)
        answer = BrokerHeartbeatResponse() if beats else AssignReplicasToDirsResponse()
        if self.refuses:
            self.refuses -= 1
            if self.refuses % 2:
                raise ProtocolError(ErrorCode.NOT_CONTROLLER)
            answer.error_code = ErrorCode.STALE_BROKER_EPOCH
            return answer
        self.reported.append(request)
        return answer


def registered(fixture: BrokerStorageFixture) -> None:
    record = RegisterBrokerRecord(NODE_ID, broker_epoch=7, fenced=False, log_dirs=fixture.log_dirs.online_ids)
    fixture.cache.image = MetadataImage(brokers={NODE_ID: record})


@pytest.mark.parametrize("refuses", [0, 2])
def test_directory_assignments_and_offline_directories_are_retried(refuses: int) -> None:
    fixture = BrokerStorageFixture("/a,/b")
    controller = FakeAssignmentController(refuses)
    directories = DirectoryAssignments(fixture.env, NODE_ID, controller, fixture.cache, fixture.log_dirs)

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(directories.run)
            directories.assign(b"t" * 16, 0, b"d" * 16)
            await trio.sleep(RETRY_S / 2)
            assert controller.reported == []  # this broker is not registered yet
            registered(fixture)
            directories.assign(b"t" * 16, 0, b"e" * 16)
            directories.assign(b"t" * 16, 1, b"e" * 16)
            fixture.log_dirs.mark_offline(fixture.log_dirs.directories[1], OSError(5, "gone"))
            directories.wake()
            await trio.sleep(RETRY_S * (refuses + 0.5))
            nursery.cancel_scope.cancel()

    fixture.run(scenario)
    assert controller.reported == [
        BrokerHeartbeatRequest(
            NODE_ID, 7, fixture.cache.image.offset, offline_log_dirs=[fixture.log_dirs.directories[1].id]
        ),
        build_assignment_request(NODE_ID, 7, {(b"t" * 16, 0): b"e" * 16, (b"t" * 16, 1): b"e" * 16}),
    ]


def test_directory_assignment_is_sent_once() -> None:
    fixture = BrokerStorageFixture()
    controller = FakeAssignmentController()
    directories = DirectoryAssignments(fixture.env, NODE_ID, controller, fixture.cache, fixture.log_dirs)

    async def scenario() -> None:
        registered(fixture)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(directories.run)
            directories.assign(b"t" * 16, 0, b"e" * 16)
            await trio.sleep(1)
            directories.wake()
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    fixture.run(scenario)
    assert len(controller.reported) == 1
