"""Delayed fetch: conditions of the wait and of its end, and limits below zero. Sources: ``DelayedFetch.scala``,
``KafkaApis.handleFetchRequest`` (4.3.1).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.handlers.fetch.tests.test_fetch import CountingAllowance, append_after, request, row, rows_of, send
from ottla.broker.tests.handler_fixture import HandlerFixture
from ottla.controller.metadata.image import PartitionRegistration
from ottla.log.log_config import LogConfig
from ottla.log.tests.log_fixtures import append_committed, make_batch, make_transactional_batch
from ottla.wire.errors import ErrorCode

SIZE = len(make_batch(10))


@pytest.fixture
def fixture() -> HandlerFixture:
    """Return a node with topic t of four batches of three records each, and topic empty."""
    out = HandlerFixture()
    out.hosted.host("empty")
    replica = out.hosted.host("t")
    for _ in range(4):
        replica.append(make_batch(10), 1_000_000)
    return out


class WindowAllowance(CountingAllowance):
    """Quota that allows a number of bytes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.max_bytes = most

    def max_fetch_bytes(self, _peer: Any, _client_id: str, most_bytes: int) -> int:
        return min(self.max_bytes, most_bytes)


@pytest.mark.parametrize("replica", [-1, 2])
def test_fetch_min_bytes_above_fetch_max_bytes_of_the_broker_does_not_wait(replica: int) -> None:
    fixture = HandlerFixture()
    leader = fixture.hosted.host("t", replicas=(1, 2))
    for _ in range(4):
        leader.append(make_batch(10), 1_000_000)
    leader.log.set_high_watermark(12)
    fixture.services.fetch_max_bytes = 2 * SIZE
    answer, took = send(fixture, request(("t", 0, 0), least=1 << 20, wait=5000, replica=replica), 14)
    assert ([len(r.records) for r in rows_of(answer)], took) == ([2 * SIZE], 0)


def test_fetch_min_bytes_above_the_quota_window_does_not_wait(fixture: HandlerFixture) -> None:
    fixture.services.quota_holder.quotas = WindowAllowance(2 * SIZE)
    answer, took = send(fixture, request(("t", 0, 0), least=1 << 20, wait=5000))
    assert ([len(r.records) for r in rows_of(answer)], took) == ([2 * SIZE], 0)


def test_fetch_min_bytes_above_the_available_bytes_waits(fixture: HandlerFixture) -> None:
    fixture.services.fetch_max_bytes = 5 * SIZE
    answer, took = send(fixture, request(("t", 0, 0), least=1 << 20, wait=5000), meanwhile=append_after(fixture, 0.2))
    assert ([len(r.records) for r in rows_of(answer)], took) == ([5 * SIZE], 0.2)


UNREADABLE = [
    pytest.param(("t", 7, 0), 18, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="no such partition"),
    pytest.param(("nowhere", 0, 0), 18, ErrorCode.UNKNOWN_TOPIC_ID, id="no such topic id"),
    pytest.param(("nowhere", 0, 0), 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="no such topic"),
    pytest.param(("secret", 0, 0), 18, ErrorCode.TOPIC_AUTHORIZATION_FAILED, id="not authorized"),
]


@pytest.mark.parametrize(("part", "version", "code"), UNREADABLE)
def test_fetch_of_unreadable_partition_waits_only_with_other_partitions(
    fixture: HandlerFixture, part: tuple[str, int, int], version: int, code: ErrorCode
) -> None:
    fixture.hosted.host("secret").append(make_batch(10), 1_000_000)
    fixture.services.authorizer = SimpleNamespace(may_read=lambda context, topic: topic != "secret")
    answer, took = send(fixture, request(part, wait=500), version)
    assert ([(r.error_code, r.aborted_transactions) for r in rows_of(answer)], took) == ([(code, [])], 0)
    answer, took = send(fixture, request(part, ("empty", 0, 0), wait=500), version)
    assert (sorted(r.error_code for r in rows_of(answer)), took) == ([0, code], 0.5)
    arrives = append_after(fixture, 0.2, topic="empty")
    answer, took = send(fixture, request(part, ("empty", 0, 0), wait=500), version, meanwhile=arrives)
    assert (sorted(len(r.records) for r in rows_of(answer)), took) == ([0, SIZE], 0.2)


@pytest.mark.parametrize("long", [False, True])
def test_fetch_with_many_unknown_partitions_waits_for_the_others(fixture: HandlerFixture, *, long: bool) -> None:
    unknown = [("t", number, 0) for number in range(1, 10_002 if long else 40)]
    arrives = append_after(fixture, 0.2, topic="empty")
    wanted = request(*unknown, ("empty", 0, 0), ("t", 0, 12), wait=500)
    answer, took = send(fixture, wanted, meanwhile=arrives)
    assert took == 0.2
    assert sum(len(topic.partitions) for topic in answer.responses) == len(unknown) + 2


@pytest.mark.parametrize(("topic", "offset", "epoch"), [("t", 13, -1), ("t", 12, 2), ("elsewhere", 0, -1)])
def test_fetch_with_error_of_readable_partition_is_answered_at_once(
    fixture: HandlerFixture, topic: str, offset: int, epoch: int
) -> None:
    fixture.hosted.host("elsewhere", leader=2, isr=(2,), replicas=(1, 2))
    answer, took = send(fixture, request(("empty", 0, 0), (topic, 0, offset), wait=500, epoch=epoch), 10)
    assert (any(r.error_code for r in rows_of(answer)), took) == (True, 0)


@pytest.mark.parametrize(("offset", "took"), [(0, 0), (3, 0), (6, 0), (9, 5)])
def test_fetch_of_older_segment_is_answered_for_any_partition_limit(offset: int, took: float) -> None:
    fixture = HandlerFixture()
    replica = fixture.hosted.host("t", settings=LogConfig(segment_bytes=SIZE + 1))
    for _ in range(4):
        replica.append(make_batch(10), 1_000_000)
    assert replica.log.segments.base_offsets == [0, 3, 6, 9]
    assert send(fixture, request(("t", 0, offset), least=1 << 20, each=SIZE, wait=5000))[1] == took


def test_fetch_waits_for_bytes_below_the_high_watermark() -> None:
    fixture = HandlerFixture()
    replica = fixture.hosted.host("t", isr=(1, 2), replicas=(1, 2))
    for _ in range(4):
        replica.append(make_batch(10), 1_000_000)
    replica.log.set_high_watermark(3)

    async def commit() -> None:
        for at in (6, 9):
            await trio.sleep(0.1)
            replica.log.set_high_watermark(at)
            replica.notify_waiters()

    answer, took = send(fixture, request(("t", 0, 0), least=3 * SIZE, wait=5000), meanwhile=commit)
    assert (len(rows_of(answer)[0].records), took) == (3 * SIZE, pytest.approx(0.2))


@pytest.mark.parametrize(
    ("offset", "isolation", "took"),
    [(0, 1, 0), (3, 1, 0.5), (4, 1, 0), (5, 1, 0), (5, 0, 0.5), (4, 0, 0)],
)
def test_fetch_above_the_last_stable_offset_is_answered_at_once(offset: int, isolation: int, took: float) -> None:
    fixture = HandlerFixture()
    log = fixture.hosted.host("t").log
    append_committed(log, make_batch(0))
    append_committed(log, make_transactional_batch(7, 0))
    append_committed(log, make_transactional_batch(7, 1))
    assert (log.last_stable_offset, log.high_watermark) == (3, 5)
    answer, after = send(fixture, request(("t", 0, offset), isolation=isolation, wait=500))
    assert (rows_of(answer)[0].error_code, after) == (0, took)
    assert (len(rows_of(answer)[0].records) > 0) == (offset < (3 if isolation else 5))


def test_delayed_fetch_is_answered_when_its_leader_epoch_is_fenced(fixture: HandlerFixture) -> None:
    async def elect() -> None:
        await trio.sleep(0.2)
        replica = fixture.hosted.replicas["t", 0]
        replica.apply_partition_state(1, PartitionRegistration((1,), (1,), 1, 4, 1), 1_000_000)
        replica.notify_waiters()

    answer, took = send(fixture, request(("t", 0, 12), wait=5000, epoch=3), meanwhile=elect)
    assert (rows_of(answer)[0].error_code, took) == (ErrorCode.FENCED_LEADER_EPOCH, 0.2)
    assert row(fixture, ("t", 0, 12), epoch=-7).error_code == 0, "any negative epoch is none"


@pytest.mark.parametrize(
    ("each", "most", "expected"),
    [
        pytest.param(-1, 1 << 20, [(ErrorCode.UNKNOWN_SERVER_ERROR, 0)] * 2, id="partition"),
        pytest.param(1 << 20, -1, [(ErrorCode.UNKNOWN_SERVER_ERROR, 0), (0, SIZE)], id="request"),
        pytest.param(1 << 20, -(2**31), [(ErrorCode.UNKNOWN_SERVER_ERROR, 0), (0, SIZE)], id="request, lowest"),
        pytest.param(0, 0, [(0, SIZE), (0, 0)], id="zero"),
    ],
)
def test_fetch_with_negative_limit_is_answered_as_by_kafka(
    fixture: HandlerFixture, each: int, most: int, expected: list[tuple[int, int]]
) -> None:
    fixture.hosted.host("u").append(make_batch(10), 1_000_000)
    answer, took = send(fixture, request(("t", 0, 0), ("u", 0, 0), each=each, most=most, wait=5000))
    assert ([(r.error_code, len(r.records)) for r in rows_of(answer)], took) == (expected, 0)
    answer, _ = send(fixture, request(("empty", 0, 0), each=each, most=most))
    assert rows_of(answer)[0].error_code == 0, "where nothing is to be read the limit is not looked at"


@pytest.mark.parametrize(("version", "rows"), [(4, 1), (12, 1), (13, 0), (18, 0)])
@pytest.mark.parametrize("isolation", [-1, 2])
def test_fetch_with_unknown_isolation_level_is_refused_as_a_whole(
    fixture: HandlerFixture, isolation: int, version: int, rows: int
) -> None:
    answer, took = send(fixture, request(("t", 0, 0), isolation=isolation, wait=5000), version)
    assert (answer.error_code, took) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    assert [(r.error_code, r.aborted_transactions) for r in rows_of(answer)] == [
        (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    ] * rows


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)]
)
def test_fetch_before_v6_returns_not_leader_for_storage_error(
    fixture: HandlerFixture, version: int, code: ErrorCode
) -> None:
    fixture.hosted.replicas["t", 0].log.segments.active.close()
    fixture.env.disk.fault = lambda call, path: OSError(5, "broken")
    assert row(fixture, ("t", 0, 0), version=version).error_code == code
