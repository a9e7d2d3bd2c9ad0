"""WriteTxnMarkers: C-143. Source: ``KafkaApis.handleWriteTxnMarkersRequest`` (apache/kafka 4.3.1)."""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from ottla.broker.handlers.transactions import write_txn_markers
from ottla.broker.tests.handler_fixture import HandlerFixture, resolve, run_virtual
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin
from ottla.log.tests.log_fixtures import UNVERIFIED_TXN, make_transactional_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.record_batch.control_record import parse_end_transaction_marker
from ottla.wire.record_batch.records import iterate_records

PID = 7


def led_fixture() -> HandlerFixture:
    fixture = HandlerFixture()
    fixture.hosted.host("t", partitions=2)
    fixture.hosted.host("u")
    return fixture


def marker(
    *topics: tuple[str, list[int]], pid: int = PID, epoch: int = 0, commits: bool = True, version: int = 0, by: int = 4
) -> WritableTxnMarker:
    return WritableTxnMarker(
        pid, epoch, commits, [WritableTxnMarkerTopic(name, numbers) for name, numbers in topics], by, version
    )


def send(fixture: HandlerFixture, *markers: WritableTxnMarker) -> Any:
    context = fixture.context(ApiKey.WRITE_TXN_MARKERS, 2)
    return run_virtual(partial(resolve, write_txn_markers.handle(context, WriteTxnMarkersRequest(list(markers)))))


def results_of(answer: Any) -> list[tuple[int, str, int, int]]:
    return [
        (result.producer_id, topic.name, row.partition_index, row.error_code)
        for result in answer.markers
        for topic in result.topics
        for row in topic.partitions
    ]


def opened(fixture: HandlerFixture, topic: str, number: int = 0) -> None:
    fixture.hosted.replicas[topic, number].append(
        make_transactional_batch(PID, 0), 5, AppendOrigin.CLIENT, txn=UNVERIFIED_TXN
    )


def test_write_txn_markers_appends_marker_per_partition_and_ends_transaction() -> None:
    fixture = led_fixture()
    for topic, number in (("t", 0), ("t", 1), ("u", 0)):
        opened(fixture, topic, number)
    answer = send(fixture, marker(("t", [0, 1]), ("u", [0]), commits=False))
    assert results_of(answer) == [(PID, "t", 0, 0), (PID, "t", 1, 0), (PID, "u", 0, 0)]
    log = fixture.hosted.replicas["t", 1].log
    assert (log.last_stable_offset, log.log_end_offset) == (2, 2)
    assert [tuple(a) for a in log.segments.collect_aborted_txns(0, 2)] == [(PID, 0, 1, 2)]
    header, raw = list(log.segments.batches(1))[-1]
    assert [parse_end_transaction_marker(record) for record in iterate_records(raw, header)] == [(0, 4)]


def test_write_txn_markers_empty_request_returns_empty_response() -> None:
    assert results_of(send(led_fixture())) == []


def test_write_txn_markers_returns_result_per_producer_and_partition() -> None:
    fixture = led_fixture()
    fixture.hosted.host("away", leader=2, isr=(2,), replicas=(1, 2))
    send(fixture, marker(("t", [0]), epoch=5, by=9))
    answer = send(
        fixture,
        marker(("t", [0]), ("none", [0]), ("away", [0]), epoch=4),
        marker(("t", [1]), pid=8),
        marker(("u", [0]), epoch=6, version=2),
        marker(("t", [0]), pid=9, by=3),
    )
    assert results_of(answer) == [
        (PID, "t", 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (PID, "none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (PID, "away", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (PID, "u", 0, 0),
        (8, "t", 1, 0),
        (9, "t", 0, 0),
    ]
    assert results_of(send(fixture, marker(("t", [0]), epoch=5, by=8))) == [
        (PID, "t", 0, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    ]


def replicated_fixture(min_isr: int = 1, isr: tuple[int, ...] = (1, 2)) -> HandlerFixture:
    from dataclasses import replace

    fixture = HandlerFixture(request_timeout_ms="3000")
    fixture.hosted.host("t", isr=isr, replicas=(1, 2), settings=replace(LogConfig(), min_insync_replicas=min_isr))
    return fixture


def test_write_txn_markers_completes_when_followers_have_the_marker() -> None:
    fixture = replicated_fixture()
    replica = fixture.hosted.replicas["t", 0]
    opened(fixture, "t")

    async def main() -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            return await resolve(
                write_txn_markers.handle(
                    fixture.context(ApiKey.WRITE_TXN_MARKERS, 2), WriteTxnMarkersRequest([marker(("t", [0]))])
                )
            ), trio.current_time()

    began = 0.0

    async def follow() -> None:
        nonlocal began
        began = trio.current_time()
        await trio.sleep(2)
        assert replica.log.last_stable_offset == 0, "released at the marker's high watermark, not when it is appended"
        replica.update_follower_fetch_state(2, -1, 2, 0, 2, fixture.env.now_ms())

    answer, at = run_virtual(main)
    assert results_of(answer) == [(PID, "t", 0, 0)]
    assert round(at - began) == 2
    assert replica.log.last_stable_offset == 2


def test_write_txn_markers_without_followers_times_out() -> None:
    fixture = replicated_fixture()
    assert results_of(send(fixture, marker(("t", [0])))) == [(PID, "t", 0, ErrorCode.REQUEST_TIMED_OUT)]


def test_write_txn_markers_under_min_isr_returns_not_enough_replicas() -> None:
    fixture = replicated_fixture(min_isr=2, isr=(1,))
    assert results_of(send(fixture, marker(("t", [0])))) == [(PID, "t", 0, ErrorCode.NOT_ENOUGH_REPLICAS)]
    assert fixture.hosted.replicas["t", 0].log.log_end_offset == 0


def test_write_txn_markers_leader_change_returns_not_leader_or_follower() -> None:
    fixture = replicated_fixture()

    async def main() -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
            return await resolve(
                write_txn_markers.handle(
                    fixture.context(ApiKey.WRITE_TXN_MARKERS, 2), WriteTxnMarkersRequest([marker(("t", [0]))])
                )
            )

    async def leave() -> None:
        await trio.sleep(1)
        replica = fixture.hosted.replicas["t", 0]
        replica.resign()
        replica.notify_waiters()

    assert results_of(run_virtual(main)) == [(PID, "t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
