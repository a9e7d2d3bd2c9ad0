"""Fetch: records, errors and delayed responses. Sources: ``ReplicaManager``, ``DelayedFetch`` (4.3.1)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest
import trio

from ottla.broker.handlers.fetch import fetch
from ottla.broker.tests.handler_fixture import NOW_MS, HandlerFixture, run_virtual, start, topic_id_of
from ottla.log.log_config import LogConfig
from ottla.log.tests.log_fixtures import append_committed, make_batch, make_marker, make_transactional_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic, PartitionData

NEWEST = 18
SIZE = len(make_batch(10))


def request(*parts: tuple[str, int, int], **more: Any) -> FetchRequest:
    """Return a request for (topic, partition, offset) of each partition."""
    topics = [
        FetchTopic(
            name,
            topic_id_of(name),
            [
                FetchPartition(
                    number,
                    fetch_offset=offset,
                    partition_max_bytes=more.get("each", 1 << 20),
                    current_leader_epoch=more.get("epoch", -1),
                    last_fetched_epoch=more.get("last_epoch", -1),
                )
            ],
        )
        for name, number, offset in parts
    ]
    return FetchRequest(
        replica_id=more.get("replica", -1),
        max_wait_ms=more.get("wait", 0),
        min_bytes=more.get("least", 1),
        max_bytes=more.get("most", 1 << 24),
        isolation_level=more.get("isolation", 0),
        session_epoch=-1,
        topics=topics,
    )


def send(
    fixture: HandlerFixture, request: FetchRequest, version: int = NEWEST, meanwhile: Any = None
) -> tuple[Any, float]:
    """Send a request; return the response and the seconds it took."""

    async def main() -> tuple[Any, float]:
        async with trio.open_nursery() as nursery:
            if meanwhile is not None:
                nursery.start_soon(meanwhile)
            answer: Any = start(fetch.handle(fixture.context(ApiKey.FETCH, version), request))
            answer = await answer if isinstance(answer, Awaitable) else answer
            took = trio.current_time()
            nursery.cancel_scope.cancel()
        return answer, took

    return run_virtual(main)


def rows_of(answer: Any) -> list[PartitionData]:
    return [row for topic in answer.responses for row in topic.partitions]


def row(fixture: HandlerFixture, *parts: tuple[str, int, int], version: int = NEWEST, **more: Any) -> PartitionData:
    (out,) = rows_of(send(fixture, request(*parts, **more), version)[0])
    return out


@pytest.fixture
def fixture() -> HandlerFixture:
    """Return a node with topic t of four batches of three records each."""
    out = HandlerFixture()
    replica = out.hosted.host("t")
    for _ in range(4):
        replica.append(make_batch(10), 1_000_000)
    return out


READS = [
    # offset, each, most, least bytes -> whole batches' bytes
    pytest.param(0, 1 << 20, 1 << 20, 4 * SIZE, id="everything"),
    pytest.param(4, 1 << 20, 1 << 20, 3 * SIZE, id="from the batch that holds the offset"),
    pytest.param(0, 2 * SIZE, 1 << 20, 2 * SIZE, id="up to the partition's limit"),
    pytest.param(0, 1 << 20, 2 * SIZE, 2 * SIZE, id="up to the request's limit"),
    pytest.param(0, 1, 1, SIZE, id="the first batch comes whole above both limits"),
    pytest.param(0, SIZE + 10, 1 << 20, SIZE + 10, id="a trailing batch may be cut"),
    pytest.param(12, 1 << 20, 1 << 20, 0, id="nothing at the end"),
]


@pytest.mark.parametrize(("offset", "each", "most", "size"), READS)
def test_fetch_returns_whole_batches_within_limits(
    fixture: HandlerFixture, offset: int, each: int, most: int, size: int
) -> None:
    got = row(fixture, ("t", 0, offset), each=each, most=most)
    assert (got.error_code, len(got.records)) == (0, size)
    assert (got.high_watermark, got.last_stable_offset, got.log_start_offset) == (12, 12, 0)


def test_only_first_partition_with_records_may_exceed_limits(fixture: HandlerFixture) -> None:
    fixture.hosted.host("empty")
    fixture.hosted.host("u").append(make_batch(10), 1_000_000)
    answer, _ = send(fixture, request(("empty", 0, 0), ("t", 0, 0), ("u", 0, 0), each=1, most=1 << 20))
    assert [len(r.records) for r in rows_of(answer)] == [0, SIZE, 0]


LIMITS = [
    # each, most -> bytes of t (4 batches), u (1 batch), v (2 batches)
    pytest.param(SIZE - 1, 1 << 20, [SIZE, 0, 0], id="each below a batch"),
    pytest.param(SIZE, 1 << 20, [SIZE, SIZE, SIZE], id="each a batch"),
    pytest.param(SIZE + 1, 1 << 20, [SIZE + 1, SIZE, SIZE + 1], id="each above a batch"),
    pytest.param(1 << 20, 1, [SIZE, 0, 0], id="all below a batch"),
    pytest.param(1 << 20, 4 * SIZE, [4 * SIZE, 0, 0], id="all used up by the first"),
    pytest.param(1 << 20, 5 * SIZE - 1, [4 * SIZE, 0, 0], id="the rest below a batch"),
    pytest.param(1 << 20, 5 * SIZE, [4 * SIZE, SIZE, 0], id="the rest a batch"),
    pytest.param(1 << 20, 6 * SIZE + 7, [4 * SIZE, SIZE, SIZE + 7], id="a second batch cut off"),
    pytest.param(2 * SIZE, 3 * SIZE - 1, [2 * SIZE, 0, 0], id="both, too little for another"),
    pytest.param(2 * SIZE - 1, 3 * SIZE, [2 * SIZE - 1, SIZE, 0], id="both, one goes, one does not"),
]


@pytest.mark.parametrize(
    "reader",
    [
        pytest.param({"version": version, "isolation": isolation}, id=f"consumer v{version} isolation {isolation}")
        for version in (4, 7, 10, 12, 18)
        for isolation in (0, 1)
    ]
    + [pytest.param({"version": version, "replica": 2}, id=f"follower v{version}") for version in (4, 12, 14)],
)
@pytest.mark.parametrize(("each", "most", "sizes"), LIMITS)
def test_fetch_with_limits_below_the_first_batch_returns_no_records(
    reader: dict[str, Any], each: int, most: int, sizes: list[int]
) -> None:
    fixture = HandlerFixture()
    for topic, batches in (("t", 4), ("u", 1), ("v", 2)):
        replica = fixture.hosted.host(topic, replicas=(1, 2))
        for _ in range(batches):
            replica.append(make_batch(10), 1_000_000)
    more = {"each": each, "most": most, **reader}
    answer, _ = send(fixture, request(("t", 0, 0), ("u", 0, 0), ("v", 0, 0), **more), more["version"])
    assert [len(r.records) for r in rows_of(answer)] == sizes


REFUSED = [
    pytest.param("t", 0, 13, {}, ErrorCode.OFFSET_OUT_OF_RANGE, id="beyond the end"),
    pytest.param("t", 0, -1, {}, ErrorCode.OFFSET_OUT_OF_RANGE, id="below the start"),
    pytest.param("t", 7, 0, {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="no such partition"),
    pytest.param("nowhere", 0, 0, {}, ErrorCode.UNKNOWN_TOPIC_ID, id="no such topic id"),
    pytest.param("nowhere", 0, 0, {"version": 12}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="no such topic"),
    pytest.param("t", 0, 0, {"epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH, id="an older leader epoch"),
    pytest.param("t", 0, 0, {"epoch": 4}, ErrorCode.UNKNOWN_LEADER_EPOCH, id="a leader epoch of the future"),
    pytest.param("t", 0, 0, {"epoch": 3}, ErrorCode.NONE, id="the leader epoch"),
    pytest.param("elsewhere", 0, 0, {"version": 10}, ErrorCode.NOT_LEADER_OR_FOLLOWER, id="led elsewhere, before v11"),
    pytest.param("elsewhere", 0, 0, {"replica": 2, "version": 14}, ErrorCode.NOT_LEADER_OR_FOLLOWER, id="by a broker"),
    pytest.param("t", 0, 0, {"replica": 2, "version": 14}, ErrorCode.NOT_LEADER_OR_FOLLOWER, id="no replica there"),
]


@pytest.mark.parametrize(("topic", "partition", "offset", "more", "code"), REFUSED)
def test_fetch_invalid_partition_returns_error_at_once(
    fixture: HandlerFixture, topic: str, partition: int, offset: int, more: dict[str, Any], code: ErrorCode
) -> None:
    fixture.hosted.host("elsewhere", leader=2, isr=(2,), replicas=(1, 2))
    more = {"wait": 5000 if code else 0, **more}
    version = more.pop("version", NEWEST)
    answer, took = send(fixture, request((topic, partition, offset), **more), version)
    assert ([r.error_code for r in rows_of(answer)], took) == ([code], 0)
    if code:
        assert len(rows_of(answer)[0].records) == 0


def test_fetch_counts_the_traffic_of_topics(fixture: HandlerFixture) -> None:
    traffic, unknown = fixture.hosted.replicas["t", 0].traffic, fixture.hosted.unknown_traffic
    send(fixture, request(("t", 0, 0), ("t", 9, 0), each=2 * SIZE))
    assert (traffic.bytes_out, traffic.fetches, traffic.failed_fetches) == (2 * SIZE, 1, 0)
    assert (unknown.fetches, unknown.failed_fetches) == (0, 0)
    send(fixture, request(("t", 0, 13)))
    send(fixture, request(("t", 0, 0), epoch=9))
    assert (traffic.bytes_out, traffic.fetches, traffic.failed_fetches) == (2 * SIZE, 3, 0)


def test_fetch_that_waits_for_more_bytes_is_counted_once(fixture: HandlerFixture) -> None:
    answer, took = send(fixture, request(("t", 0, 0), least=10 * SIZE, wait=1000))
    assert (len(rows_of(answer)[0].records), took) == (4 * SIZE, 1)
    assert fixture.hosted.replicas["t", 0].traffic.fetches == 1
    assert fixture.hosted.replicas["t", 0].traffic.bytes_out == 4 * SIZE


def test_fetch_with_former_topic_id_returns_inconsistent_topic_id(fixture: HandlerFixture) -> None:
    body = request(("t", 0, 0))
    fixture.hosted.image = fixture.hosted.image.__class__(
        topics={"t": fixture.hosted.image.topics["t"].__class__("t", b"\x09" * 16, {})},
        topic_names={topic_id_of("t"): "t", b"\x09" * 16: "t"},
    )
    assert rows_of(send(fixture, body)[0])[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_fetch_from_v16_leadership_error_names_the_leader(fixture: HandlerFixture) -> None:
    fixture.hosted.host("elsewhere", leader=1, isr=(1,), replicas=(1, 2))
    fixture.hosted.replicas["elsewhere", 0].resign()
    for version, leader, nodes in ((16, 1, [1]), (15, -1, [])):
        answer, _ = send(fixture, request(("elsewhere", 0, 0), epoch=2), version)
        assert rows_of(answer)[0].current_leader.leader_id == leader
        assert [node.node_id for node in answer.node_endpoints] == nodes


def test_fetch_with_diverged_epoch_returns_diverging_epoch() -> None:
    fixture = HandlerFixture()
    replica = fixture.hosted.host("t")
    replica.append(make_batch(10), 0)  # epoch 3
    replica.leader_epoch = 5
    replica.append(make_batch(10), 0)
    got = row(fixture, ("t", 0, 4), last_epoch=3)
    assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset, len(got.records)) == (3, 3, 0)
    got = row(fixture, ("t", 0, 3), last_epoch=4)
    assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (3, 3)
    assert len(row(fixture, ("t", 0, 3), last_epoch=3).records) == SIZE
    assert row(fixture, ("t", 0, 3), last_epoch=9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert replica.traffic.fetches == 4


def test_read_committed_fetch_ends_at_last_stable_offset_with_aborted() -> None:
    fixture = HandlerFixture()
    replica = fixture.hosted.host("t")
    log = replica.log
    append_committed(log, make_batch(0))
    append_committed(log, make_transactional_batch(7, 0))
    append_committed(log, make_marker(7, 0))
    append_committed(log, make_transactional_batch(8, 0))
    replica.advance_high_watermark(log.log_end_offset, 0)
    free, committed = row(fixture, ("t", 0, 0)), row(fixture, ("t", 0, 0), isolation=1)
    assert free.aborted_transactions is None
    assert len(committed.records) < len(free.records)
    assert committed.last_stable_offset < committed.high_watermark
    assert committed.aborted_transactions is not None
    assert [(a.producer_id, a.first_offset) for a in committed.aborted_transactions] == [(7, 3)]


@pytest.mark.parametrize(
    ("each", "most", "offset", "aborted"),
    [
        pytest.param(1 << 20, 1 << 20, 0, [], id="room for all"),
        pytest.param(SIZE - 1, 1 << 20, 0, None, id="less than a batch"),
        pytest.param(1 << 20, 4 * SIZE + 1, 0, None, id="less than a batch left"),
        pytest.param(1 << 20, 4 * SIZE, 0, [], id="nothing left"),
        pytest.param(SIZE - 1, 1 << 20, 3, [], id="no records left"),
    ],
)
def test_fetch_read_committed_without_room_for_first_batch_returns_null_aborted(
    fixture: HandlerFixture, each: int, most: int, offset: int, aborted: list[AbortedTransaction] | None
) -> None:
    """Source: ``ReplicaManager.readFromLog`` (firstEntryIncomplete), ``LocalLog.read``; compared with Kafka 4.3.1."""
    fixture.hosted.host("u").append(make_batch(10), 1_000_000)
    answer, _ = send(fixture, request(("t", 0, 0), ("u", 0, offset), each=each, most=most, isolation=1), NEWEST)
    assert rows_of(answer)[1].aborted_transactions == aborted


def test_fetch_disk_error_returns_kafka_storage_error_and_is_reported(fixture: HandlerFixture) -> None:
    log = fixture.hosted.replicas["t", 0].log
    log.segments.active.close()
    fixture.env.disk.fault = lambda call, path: OSError(5, "broken")
    assert row(fixture, ("t", 0, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert fixture.failures


# ---------------------------------------------------------------------- waiting


def append_after(fixture: HandlerFixture, *times: float, topic: str = "t") -> Any:
    async def work() -> None:
        for at in times:
            await trio.sleep_until(at)
            fixture.hosted.replicas[topic, 0].append(make_batch(10), 1_000_000)

    return work


@pytest.mark.parametrize(
    ("least", "wait", "times", "size", "took"),
    [
        pytest.param(1, 500, (0.2,), SIZE, 0.2, id="until something is there"),
        pytest.param(1, 500, (), 0, 0.5, id="until the time is over"),
        pytest.param(2 * SIZE, 5000, (0.2, 0.3), 2 * SIZE, 0.3, id="until enough is there"),
        pytest.param(2 * SIZE, 400, (0.2,), SIZE, 0.4, id="what there is when the time is over"),
        pytest.param(1, 0, (), 0, 0, id="not at all without a time"),
        pytest.param(0, 5000, (), 0, 0, id="not at all where nothing is asked for"),
        pytest.param(1 << 30, 5000, (), 0, 5, id="for ever longer than it takes"),
    ],
)
def test_fetch_waits_for_min_bytes_or_max_wait(
    fixture: HandlerFixture, least: int, wait: int, times: tuple[float, ...], size: int, took: float
) -> None:
    answer, after = send(
        fixture, request(("t", 0, 12), least=least, wait=wait), meanwhile=append_after(fixture, *times)
    )
    assert (len(rows_of(answer)[0].records), after) == (size, took)
    assert len(fixture.services.purgatory) == 0


class CountingAllowance:
    """Quota that is never reached; it records the times at which bytes are counted."""

    def __init__(self) -> None:
        self.at_ms = list[float]()

    def max_fetch_bytes(self, _peer: Any, _client_id: str, most_bytes: int) -> int:
        return most_bytes

    def fetch_throttle_ms(self, _peer: Any, _client_id: str, _size_bytes: float, about_ms: float) -> int:
        self.at_ms.append(about_ms)
        return 0


@pytest.mark.behaviour("S-349")
@pytest.mark.parametrize(("wait", "at_s"), [(0, 0), (5000, 0.2)])
def test_fetch_quota_is_counted_when_the_response_is_sent(fixture: HandlerFixture, wait: int, at_s: float) -> None:
    fixture.services.quota_holder.quotas = counting = CountingAllowance()
    send(fixture, request(("t", 0, 12), wait=wait), meanwhile=append_after(fixture, 0.2))
    assert counting.at_ms == [NOW_MS + at_s * 1000]


def test_fetch_adds_up_bytes_of_several_partitions(fixture: HandlerFixture) -> None:
    fixture.hosted.host("u")

    async def both() -> None:
        for at, topic in ((0.1, "t"), (0.2, "t"), (0.3, "u")):
            await trio.sleep_until(at)
            fixture.hosted.replicas[topic, 0].append(make_batch(10), 1_000_000)

    answer, took = send(fixture, request(("t", 0, 12), ("u", 0, 0), least=3 * SIZE, wait=5000), meanwhile=both)
    assert ([len(r.records) for r in rows_of(answer)], took) == ([2 * SIZE, SIZE], pytest.approx(0.3))


def test_delayed_fetch_is_answered_when_its_partition_is_removed(fixture: HandlerFixture) -> None:
    async def go() -> None:
        await trio.sleep(0.2)
        replica = fixture.hosted.replicas.pop(("t", 0))
        replica.resign()
        replica.notify_waiters()

    answer, took = send(fixture, request(("t", 0, 12), wait=5000), meanwhile=go)
    assert (rows_of(answer)[0].error_code, took) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0.2)


def test_fetch_of_older_segment_does_not_wait_for_min_bytes() -> None:
    fixture = HandlerFixture()
    replica = fixture.hosted.host("t", settings=LogConfig(segment_bytes=SIZE + 1))
    for _ in range(3):
        replica.append(make_batch(10), 1_000_000)
    assert len(replica.log.segments) == 3
    _, took = send(fixture, request(("t", 0, 0), least=1000 * SIZE, wait=5000))
    assert took == 0
