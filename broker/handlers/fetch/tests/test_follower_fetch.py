"""Follower fetch at the leader (R-324 to R-332, R-339, R-340)."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.fetch.tests.test_fetch import request, row, rows_of, send
from ottla.broker.handlers.offsets import list_offsets
from ottla.broker.replication.hosted_partition import HostedPartition, IsrDependencies, PendingIsrChange
from ottla.broker.replication.partition_state import AlterPartitionOutcome, AlterPartitionResult, LeaderState
from ottla.broker.replication.replica_manager import follower_fetch_key
from ottla.broker.tests.broker_storage_fixture import NODE_ID, BrokerStorageFixture, led_topic
from ottla.broker.tests.handler_fixture import NOW_MS, HandlerFixture, resolve, run_virtual, start
from ottla.broker.tests.scripted_leader_fixture import leader_batch
from ottla.controller.metadata.image import PartitionRegistration
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.fetch import FetchRequest, ReplicaState
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

SIZE = len(make_batch(10))
EPOCH_OF_2 = 70


class LeaderPartitionFixture(HandlerFixture):
    """Partition led by this node, with four batches of three records; broker 2 is in sync, broker 3 is not."""

    def __init__(self, epochs: tuple[int, ...] = (3, 3, 3, 3)) -> None:
        super().__init__()
        self.requested: list[PendingIsrChange] = []
        self.committed: list[int] = []
        self.eligible = {2: True, 3: True}
        self.replica: HostedPartition = self.hosted.host("t", isr=(1, 2), replicas=(1, 2, 3))
        self.replica._isr = IsrDependencies(
            30_000,
            lambda broker, epoch: self.eligible[broker],
            self.requested.append,
            lambda replica: self.committed.append(replica.log.high_watermark),
            lambda broker: EPOCH_OF_2 if broker == 2 else -1,
        )
        for self.replica.leader_epoch in epochs:
            self.replica.append(make_batch(10), NOW_MS)

    @property
    def leading(self) -> LeaderState:
        assert isinstance(self.replica.state, LeaderState)
        return self.replica.state


def by(broker: int, offset: int, broker_epoch: int = -1, log_start: int = 0, **more: Any) -> FetchRequest:
    """Return a follower's request in version 15 or later."""
    body = request(("t", 0, offset), **more)
    body.replica_state = ReplicaState(broker, broker_epoch)
    body.topics[0].partitions[0].log_start_offset = log_start
    return body


ROWS = [
    # broker, its epoch, offset, more -> error, bytes
    pytest.param(2, 70, 0, {}, ErrorCode.NONE, 4 * SIZE, id="up to the log end, whatever is committed"),
    pytest.param(2, -1, 9, {}, ErrorCode.NONE, SIZE, id="without a broker epoch"),
    pytest.param(2, 71, 9, {}, ErrorCode.NONE, SIZE, id="a broker epoch this node does not know yet"),
    pytest.param(2, 69, 0, {}, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, id="an earlier process of the broker"),
    pytest.param(3, 1, 0, {}, ErrorCode.NONE, 4 * SIZE, id="of a broker that is not alive no epoch is known"),
    pytest.param(4, -1, 0, {}, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, id="not a replica"),
    pytest.param(
        4, -1, 0, {"epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH, 0, id="not a replica yet, and it names the epoch"
    ),
    pytest.param(4, -1, 0, {"epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH, 0, id="the leader epoch comes before that"),
    pytest.param(2, -1, 13, {}, ErrorCode.OFFSET_OUT_OF_RANGE, 0, id="beyond the end"),
    pytest.param(2, -1, 12, {}, ErrorCode.NONE, 0, id="at the end"),
    pytest.param(2, -1, 12, {"isolation": 1}, ErrorCode.NONE, 0, id="read committed means nothing"),
    pytest.param(2, -1, 12, {"last_epoch": 9}, ErrorCode.OFFSET_OUT_OF_RANGE, 0, id="an epoch nobody knows"),
]


@pytest.mark.behaviour("R-325", "R-326")
@pytest.mark.parametrize(("broker", "broker_epoch", "offset", "more", "code", "size"), ROWS)
def test_follower_fetch_returns_records_or_error(
    broker: int, broker_epoch: int, offset: int, more: dict[str, Any], code: ErrorCode, size: int
) -> None:
    led = LeaderPartitionFixture()
    answer, _ = send(led, by(broker, offset, broker_epoch, **more))
    (got,) = rows_of(answer)
    assert (got.error_code, len(got.records), got.aborted_transactions) == (code, size, None)
    assert answer.node_endpoints == [], "R-325"
    moved = led.leading.followers[broker].end_offset if broker in led.leading.followers else -1
    assert moved == (offset if code is ErrorCode.NONE else -1)


@pytest.mark.parametrize(("limit", "size"), [(1, SIZE), (2 * SIZE, 2 * SIZE), (1 << 20, 4 * SIZE)])
def test_fetch_of_a_follower_is_limited_by_fetch_max_bytes_of_the_broker(limit: int, size: int) -> None:
    led = LeaderPartitionFixture()
    led.services.fetch_max_bytes = limit
    (got,) = rows_of(send(led, by(2, 0))[0])
    assert len(got.records) == size


@pytest.mark.behaviour("R-326")
def test_follower_fetch_with_diverged_epoch_is_not_counted() -> None:
    led = LeaderPartitionFixture(epochs=(2, 2, 3, 3))
    for offset, last_epoch, expected in ((7, 2, (2, 6)), (50, 3, (3, 12)), (50, 2, (2, 6))):
        (got,) = rows_of(send(led, by(2, offset, last_epoch=last_epoch))[0])
        assert (got.error_code, got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (
            ErrorCode.NONE,
            *expected,
        )
        assert len(got.records) == 0
        assert led.leading.followers[2].end_offset == -1
    led.replica.log.follow_high_watermark(6)
    assert led.replica.log.maybe_increment_log_start_offset(5)
    assert rows_of(send(led, by(2, 4, last_epoch=2))[0])[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE, (
        "below the log start"
    )


@pytest.mark.behaviour("R-327")
def test_follower_fetch_updates_high_watermark_after_its_own_row() -> None:
    led = LeaderPartitionFixture()
    waiting: list[int] = []
    for offset, expected, then in ((3, 0, 3), (3, 3, 3), (12, 3, 12)):
        (got,) = rows_of(send(led, by(2, offset, log_start=1))[0])
        assert (got.high_watermark, led.replica.log.high_watermark) == (expected, then)
        waiting.append(then)
    assert led.committed == [3, 12]
    follower = led.leading.followers[2]
    assert (follower.end_offset, follower.log_start_offset, follower.broker_epoch) == (12, 1, -1)


@pytest.mark.behaviour("R-331")
def test_caught_up_follower_joins_isr_one_change_at_a_time() -> None:
    led = LeaderPartitionFixture()
    send(led, by(2, 12))
    led.eligible[3] = False
    send(led, by(3, 12, 30))
    assert led.requested == []
    led.eligible[3] = True
    send(led, by(3, 11, 30))
    assert led.requested == [], "below the high watermark"
    for _ in range(2):
        send(led, by(3, 12, 30))
    (requested,) = led.requested
    assert (requested.change.isr, requested.change.broker_epochs) == ((1, 2, 3), (-1, -1, 30))
    assert requested.is_current
    led.replica.apply_partition_state(1, PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 3, 1), NOW_MS)
    assert not requested.is_current, "the image was quicker"


LESS, MORE = AlterPartitionResult(0, 3, 1, (1,)), AlterPartitionResult(0, 3, 1, (1, 2))


@pytest.mark.behaviour("R-334")
@pytest.mark.parametrize(
    ("answer", "outcome", "isr", "committed"),
    [
        pytest.param(LESS, AlterPartitionOutcome.APPLIED, (1,), [12], id="who has nothing holds nothing up any more"),
        pytest.param(MORE, AlterPartitionOutcome.APPLIED, (1, 2), [], id="it is as it was"),
        pytest.param(
            AlterPartitionResult(ErrorCode.OPERATION_NOT_ATTEMPTED),
            AlterPartitionOutcome.REVERTED,
            (1, 2),
            [],
            id="not now",
        ),
    ],
)
def test_alter_partition_result_may_advance_high_watermark(
    answer: AlterPartitionResult, outcome: AlterPartitionOutcome, isr: tuple[int, ...], committed: list[int]
) -> None:
    led = LeaderPartitionFixture()
    led.replica.maybe_shrink_isr(NOW_MS + 30_001)
    (requested,) = led.requested
    assert led.replica.handle_alter_partition_result(requested, answer, NOW_MS + 30_001) is outcome
    assert (led.leading.isr.maximal_isr, led.committed) == (isr, committed)
    assert (
        led.replica.handle_alter_partition_result(requested, LESS, NOW_MS + 30_001) is AlterPartitionOutcome.IGNORED
    ), "it is about a change of the past"
    assert led.committed == committed


@pytest.mark.behaviour("R-334")
def test_alter_partition_result_after_image_is_ignored() -> None:
    led = LeaderPartitionFixture()
    led.replica.maybe_shrink_isr(NOW_MS + 30_001)
    (requested,) = led.requested
    led.replica.apply_partition_state(1, PartitionRegistration((1, 2, 3), (1, 2), 1, 4, 1), NOW_MS)
    led.replica.maybe_shrink_isr(NOW_MS + 60_002)
    assert not requested.is_current
    assert (
        led.replica.handle_alter_partition_result(requested, AlterPartitionResult(0, 4, 2, (1,)), NOW_MS + 60_002)
        is AlterPartitionOutcome.IGNORED
    )
    assert led.committed == []


BEGINS = [
    # offsets of the batch -> log start and log end after it
    pytest.param(3, 7, 3, 8, id="the leader's log starts within the batch"),
    pytest.param(3, 5, 3, 6, id="with its last record"),
    pytest.param(5, 7, 5, 8, id="with its first"),
    pytest.param(6, 8, 5, 9, id="behind it there is a hole"),
    pytest.param(3, 4, None, 5, id="all of it lies before: refused"),
]


@pytest.mark.behaviour("R-319")
@pytest.mark.parametrize(("first", "last", "begins", "ends"), BEGINS)
def test_append_to_empty_follower_log_starts_with_whole_batch(
    first: int, last: int, begins: int | None, ends: int
) -> None:
    fixture = HandlerFixture()
    replica = fixture.hosted.host("t", leader=2, isr=(2,), replicas=(1, 2))
    replica.log.truncate_fully_and_start_at(5, NOW_MS)
    batch = leader_batch(first, last - first + 1)
    if begins is None:
        with pytest.raises(ProtocolError, match="OFFSET_OUT_OF_RANGE"):
            replica.append_as_follower(batch, NOW_MS)
    else:
        assert not replica.append_as_follower(batch, NOW_MS)
        assert replica.log.segments.base_offsets == [begins]
    assert replica.log.log_end_offset == ends


def test_delayed_fetch_of_follower_waits_for_records_and_of_consumer_for_commit() -> None:
    led = LeaderPartitionFixture()
    came: list[tuple[str, float, int]] = []

    async def ask(client: str, body: FetchRequest) -> None:
        answer = await resolve(fetch.handle(led.context(ApiKey.FETCH, 18), body))
        came.append((client, trio.current_time(), len(rows_of(answer)[0].records)))

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "follower", by(2, 12, wait=500))
            await trio.sleep(0.05)
            nursery.start_soon(ask, "consumer", request(("t", 0, 12), wait=5000))
            await trio.sleep(0.05)
            assert came == []
            assert led.replica.log.high_watermark == 12
            led.replica.append(make_batch(10), NOW_MS)
            await trio.sleep(0.1)
            assert came == [("follower", 0.1, SIZE)]
            assert led.leading.followers[2].end_offset == 12, "R-327: not counted again when its answer leaves"
            nursery.start_soon(ask, "follower", by(2, 15, wait=500))
            await trio.sleep(0.1)
            assert came[1:] == [("consumer", 0.2, SIZE)]

    led.leading.followers.pop(3)
    run_virtual(scenario)


def test_delayed_follower_fetch_ends_when_another_partition_is_led_here() -> None:
    led = LeaderPartitionFixture()
    came: list[tuple[str, float, int]] = []

    async def ask(client: str, body: FetchRequest) -> None:
        answer = await resolve(fetch.handle(led.context(ApiKey.FETCH, 18), body))
        came.append((client, trio.current_time(), rows_of(answer)[0].error_code))

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            for broker in (2, 3):
                nursery.start_soon(ask, f"follower {broker}", by(broker, 12, wait=500))
            await trio.sleep(0.05)
            nursery.start_soon(ask, "consumer", request(("t", 0, 12), wait=450))
            await trio.sleep(0.05)
            led.services.purgatory.check_and_complete(follower_fetch_key(2))
            await trio.sleep(0.1)
            assert came == [("follower 2", 0.1, 0)]

    run_virtual(scenario)
    assert sorted(came[1:]) == [("consumer", 0.5, 0), ("follower 3", 0.5, 0)]


def test_new_leader_completes_delayed_fetches_of_its_followers() -> None:
    """The change names no partition; a follower that waits for it would otherwise start half a second later."""
    storage = BrokerStorageFixture()

    async def scenario() -> None:
        storage.commit_topics(led_topic("t", 1, leader=2, replicas=(NODE_ID, 2, 3), partition_epoch=0))
        await storage.publisher.wait_applied_and_created()
        assert not {follower_fetch_key(2), follower_fetch_key(3)} & set(storage.woken)
        storage.commit_topics(led_topic("t", 1, leader_epoch=1, replicas=(NODE_ID, 2, 3), partition_epoch=1))
        await storage.publisher.wait_applied_and_created()
        assert [k for k in storage.woken if k[0] == "follower"] == [follower_fetch_key(2), follower_fetch_key(3)]  # type: ignore[index]
        storage.woken.clear()
        storage.commit_topics(led_topic("t", 1, leader_epoch=1, replicas=(NODE_ID, 2, 3), partition_epoch=2))
        await storage.publisher.wait_applied_and_created()
        assert not {follower_fetch_key(2), follower_fetch_key(3)} & set(storage.woken), "it led before"

    storage.run(scenario)


@pytest.mark.behaviour("R-340")
def test_consumer_fetch_at_follower_reads_up_to_its_high_watermark() -> None:
    fixture = HandlerFixture()
    replica = fixture.hosted.host("t", leader=2, isr=(1, 2), replicas=(1, 2))
    for n in range(2):
        batch = make_batch(10)
        batch[7] = 3 * n
        replica.append_as_follower(batch, NOW_MS)
    replica.update_leader_offsets(3, 0)
    got = row(fixture, ("t", 0, 0), version=11)
    assert (got.error_code, len(got.records), got.high_watermark) == (ErrorCode.NONE, SIZE, 3)
    assert row(fixture, ("t", 0, 0), version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def later() -> None:
        await trio.sleep(0.2)
        replica.update_leader_offsets(6, 0)

    answer, took = send(fixture, request(("t", 0, 3), wait=5000), meanwhile=later)
    assert (len(rows_of(answer)[0].records), took) == (SIZE, 0.2)


@pytest.mark.behaviour("R-330")
@pytest.mark.parametrize(("replica_id", "which", "offset"), [(2, -1, 12), (2, -2, 0), (-1, -1, 0), (-1, -2, 0)])
def test_list_offsets_of_replica_returns_log_end_offset(replica_id: int, which: int, offset: int) -> None:
    led = LeaderPartitionFixture()
    wanted = ListOffsetsTopic("t", [ListOffsetsPartition(0, 3, which)])
    answer: Any = start(
        list_offsets.handle(led.context(ApiKey.LIST_OFFSETS, 7), ListOffsetsRequest(replica_id, 0, [wanted]))
    )
    (found,) = answer.topics[0].partitions
    assert (found.error_code, found.offset) == (ErrorCode.NONE, offset)


@pytest.mark.behaviour("P-43")
@pytest.mark.parametrize(
    ("version", "timestamp", "code"),
    [
        (11, -1, ErrorCode.OFFSET_NOT_AVAILABLE),
        (4, -1, ErrorCode.LEADER_NOT_AVAILABLE),
        (5, 0, ErrorCode.OFFSET_NOT_AVAILABLE),
        (5, NOW_MS * 9, ErrorCode.OFFSET_NOT_AVAILABLE),
        (7, -3, ErrorCode.OFFSET_NOT_AVAILABLE),
        (5, -2, ErrorCode.NONE),
    ],
)
def test_list_offsets_at_new_leader_is_unavailable_until_commit_is_known(
    version: int, timestamp: int, code: ErrorCode
) -> None:
    led = LeaderPartitionFixture()
    led.replica.apply_partition_state(1, PartitionRegistration((1, 2, 3), (1, 2), 1, 4, 1), NOW_MS)
    wanted = ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])
    request = ListOffsetsRequest(-1, 0, [wanted])
    for expected in (code, ErrorCode.NONE):
        answer: Any = start(list_offsets.handle(led.context(ApiKey.LIST_OFFSETS, version), request))
        assert answer.topics[0].partitions[0].error_code == expected
        send(led, by(2, 12))
