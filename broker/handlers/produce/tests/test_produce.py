"""Produce: responses and their time. Sources: ``KafkaApis.handleProduceRequest``, ``ReplicaManager`` (4.3.1)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from ottla.broker.handlers.produce import produce
from ottla.broker.requests.peer import CloseConnection
from ottla.broker.tests.handler_fixture import HandlerFixture, resolve, run_virtual, start, topic_id_of
from ottla.jobs.time_slice import SLICE_MS
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import PIECE_BYTES
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import NOW, make_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID, Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from ottla.wire.record_batch import records
from ottla.wire.record_batch.batch_header import TRANSACTIONAL_BIT
from ottla.wire.record_batch.compression import CompressionType

NEWEST = 13


def request(*parts: tuple[str, int, Any], acks: int = -1, timeout_ms: int = 1000) -> ProduceRequest:
    topics = [
        TopicProduceData(name, topic_id_of(name), [PartitionProduceData(number, raw)]) for name, number, raw in parts
    ]
    return ProduceRequest(None, acks, timeout_ms, topics)


def send(fixture: HandlerFixture, request: ProduceRequest, version: int = NEWEST, client_id: str = "client") -> Any:
    answer = start(produce.handle(fixture.context(ApiKey.PRODUCE, version, client_id), request))
    if answer is None or isinstance(answer, Message):
        return answer
    return run_virtual(partial(resolve, answer))


def row_of(answer: Any) -> PartitionProduceResponse:
    row: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return row


@pytest.fixture
def fixture() -> HandlerFixture:
    out = HandlerFixture()
    out.hosted.host("t")
    return out


def test_produce_returns_base_offset_and_log_start_offset(fixture: HandlerFixture) -> None:
    assert row_of(send(fixture, request(("t", 0, make_batch(0))))).base_offset == 0
    row = row_of(send(fixture, request(("t", 0, make_batch(3)))))
    assert (row.index, row.error_code, row.base_offset, row.log_append_time_ms, row.log_start_offset) == (
        0,
        0,
        3,
        -1,
        0,
    )
    assert fixture.hosted.replicas["t", 0].log.high_watermark == 6


REFUSED = [
    pytest.param("t", 0, None, -1, 11, ErrorCode.INVALID_RECORD, id="null records"),
    pytest.param("t", 0, b"", -1, 11, ErrorCode.INVALID_RECORD, id="no batch"),
    pytest.param("t", 1, "batch", -1, 11, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="no such partition"),
    pytest.param("u", 0, "batch", -1, 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="no such topic"),
    pytest.param("u", 0, "batch", -1, 13, ErrorCode.UNKNOWN_TOPIC_ID, id="trap: no such topic id from v13"),
    pytest.param("t", 0, "batch", 2, 11, ErrorCode.INVALID_REQUIRED_ACKS, id="acks 2"),
    pytest.param("t", 0, "batch", -2, 11, ErrorCode.INVALID_REQUIRED_ACKS, id="acks -2"),
    pytest.param("t", 0, "zstd", -1, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="zstd below v7"),
    pytest.param("t", 0, "zstd", -1, 7, ErrorCode.NONE, id="zstd from v7"),
    pytest.param(
        "t", 0, "transactional", -1, 11, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, id="a transaction of nobody's"
    ),
    pytest.param("t", 0, "torn", -1, 11, ErrorCode.CORRUPT_MESSAGE, id="a bad checksum"),
    pytest.param("elsewhere", 0, "batch", -1, 11, ErrorCode.NOT_LEADER_OR_FOLLOWER, id="led elsewhere"),
    pytest.param("__consumer_offsets", 0, "batch", -1, 11, ErrorCode.INVALID_TOPIC_EXCEPTION, id="an internal topic"),
    pytest.param(
        "__consumer_offsets", 0, "batch", 9, 11, ErrorCode.INVALID_REQUIRED_ACKS, id="acks are looked at first"
    ),
    pytest.param("__transaction_state", 0, "batch", -1, 11, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="one that is not"),
]


def bytes_of(batch: Any) -> Any:
    match batch:
        case "batch":
            return make_batch(0)
        case "zstd":
            return make_batch(0, codec=CompressionType.ZSTD)
        case "transactional":
            return make_batch(0, attributes=TRANSACTIONAL_BIT, producer_id=1, producer_epoch=0, base_sequence=0)
        case "torn":
            raw = make_batch(0)
            raw[-1] ^= 1
            return raw
    return batch


@pytest.mark.parametrize(("topic", "partition", "data", "acks", "version", "code"), REFUSED)
def test_produce_refused_batch_returns_error_and_appends_none(
    fixture: HandlerFixture, topic: str, partition: int, data: Any, acks: int, version: int, code: ErrorCode
) -> None:
    fixture.hosted.host("elsewhere", leader=2, isr=(2,), replicas=(1, 2))
    fixture.hosted.host("__consumer_offsets")
    row = row_of(send(fixture, request((topic, partition, bytes_of(data)), acks=acks), version))
    assert row.error_code == code
    if code:
        assert row.base_offset == -1
        assert all(replica.log.log_end_offset == 0 for replica in fixture.hosted.replicas.values())


def test_produce_to_internal_topic_requires_admin_client_id(fixture: HandlerFixture) -> None:
    fixture.hosted.host("__consumer_offsets")
    body = request(("__consumer_offsets", 0, make_batch(0)))
    assert row_of(send(fixture, body, 11, "__admin_client")).error_code == 0
    assert row_of(send(fixture, body, 11, "__admin_client2")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_produce_from_v10_leadership_error_names_the_leader(fixture: HandlerFixture) -> None:
    fixture.hosted.host("elsewhere", leader=2, isr=(2,), replicas=(1, 2))
    row = row_of(send(fixture, request(("elsewhere", 0, make_batch(0))), 10))
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 3)
    assert row_of(send(fixture, request(("elsewhere", 0, make_batch(0))), 9)).current_leader.leader_id == -1


NO_BATCH = [
    (8, (-12).to_bytes(4, "big", signed=True), "Record size -12 is less than the minimum record overhead (14)"),
    (8, (13).to_bytes(4, "big"), "Record size 13 is less than the minimum record overhead (14)"),
    (16, b"\x09", "Invalid magic found in record: 9"),
    (16, b"\xff", "Invalid magic found in record: -1"),
]


@pytest.mark.parametrize(("at", "data", "text"), NO_BATCH)
def test_produce_with_invalid_batch_header_refuses_whole_request(
    fixture: HandlerFixture, at: int, data: bytes, text: str
) -> None:
    bad = make_batch(0)
    bad[at : at + len(data)] = data
    answer = send(fixture, request(("t", 0, make_batch(0)), ("t", 0, bad)), 11)
    rows = [r for t in answer.responses for r in t.partition_responses]
    assert [(r.error_code, r.error_message) for r in rows] == [(ErrorCode.CORRUPT_MESSAGE, text)] * 2
    assert fixture.hosted.replicas["t", 0].log.log_end_offset == 0


@pytest.mark.parametrize("bad", [make_batch(0)[:40], make_batch(0)[:8] + (25).to_bytes(4, "big") + make_batch(0)[12:]])
def test_produce_incomplete_batch_is_refused_alone(fixture: HandlerFixture, bad: bytearray) -> None:
    answer = send(fixture, request(("t", 0, make_batch(0)), ("t", 0, bad)), 11)
    codes = [r.error_code for t in answer.responses for r in t.partition_responses]
    assert codes == [0, ErrorCode.INVALID_RECORD if len(bad) == 40 else ErrorCode.CORRUPT_MESSAGE]


def test_produce_error_returns_log_start_offset_unless_bytes_are_corrupt(fixture: HandlerFixture) -> None:
    """``ReplicaManager.appendToLocalLog``"""
    unknown_codec = make_batch(0, attributes=7)
    assert unknown_codec[22] == 7
    row = row_of(send(fixture, request(("t", 0, unknown_codec))))
    assert (row.error_code, row.log_start_offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    row = row_of(send(fixture, request(("t", 0, make_batch(0, base_offset=1)))))
    assert (row.error_code, row.log_start_offset) == (ErrorCode.INVALID_RECORD, 0)
    row = row_of(send(fixture, request(("t", 0, bytes_of("torn")))))
    assert (row.error_code, row.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


def large(count: int, key: bytes | None = b"k") -> bytearray:
    return bytearray(records.build_batch([records.NewRecord(key, b"v", NOW)] * count))


@pytest.fixture
def compacted() -> HandlerFixture:
    fixture = HandlerFixture()
    fixture.hosted.host("c", settings=LogConfig(compact=True))
    return fixture


def test_produce_validation_of_large_batch_yields_to_event_loop(compacted: HandlerFixture) -> None:
    turns = 0

    async def main() -> Any:
        nonlocal turns
        answer = start(
            produce.handle(
                compacted.context(ApiKey.PRODUCE, NEWEST), request(("c", 0, large(40_000)), ("c", 0, large(3)))
            ),
            SLICE_MS,
        )
        assert not isinstance(answer, Message)
        async with trio.open_nursery() as nursery:

            async def other() -> None:
                nonlocal turns
                while True:
                    await trio.lowlevel.checkpoint()
                    turns += 1

            nursery.start_soon(other)
            out = await resolve(answer)
            nursery.cancel_scope.cancel()
        return out

    answer: Any = run_virtual(main)
    assert [r.base_offset for t in answer.responses for r in t.partition_responses] == [3, 0]
    assert turns >= 40_000 * 9 // PIECE_BYTES - 1


def test_produce_uses_state_after_validation_of_large_batch(compacted: HandlerFixture) -> None:
    """Leadership and configs are those of the time of the append."""
    replica = compacted.hosted.replicas["c", 0]

    def meanwhile(change: Any, keyless: int = 0) -> PartitionProduceResponse:
        items = [records.NewRecord(b"k" if i < 40_000 - keyless else None, b"v", NOW) for i in range(40_000)]
        raw = bytearray(records.build_batch(items))
        answer: Any = start(produce.handle(compacted.context(ApiKey.PRODUCE, NEWEST), request(("c", 0, raw))), SLICE_MS)

        async def main() -> Any:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(change)
                return await resolve(answer)

        return row_of(run_virtual(main))

    async def resign() -> None:
        replica.is_leader = False

    async def limit() -> None:
        replica.log.update_config(LogConfig(compact=True, max_message_bytes=1000))

    async def same() -> None:
        replica.log.update_config(LogConfig(compact=True, retention_ms=5))

    assert meanwhile(same).error_code == 0
    assert meanwhile(limit).error_code == ErrorCode.MESSAGE_TOO_LARGE
    replica.log.update_config(LogConfig(compact=True))
    bad = meanwhile(same, keyless=2000)
    assert (bad.error_code, bad.log_start_offset, len(bad.record_errors)) == (ErrorCode.INVALID_RECORD, 0, 1000)
    assert meanwhile(resign).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert replica.log.log_end_offset == 40_000


def test_produce_returns_at_most_ten_thousand_record_errors(compacted: HandlerFixture) -> None:
    parts = [("c", 0, large(1500, None))] * 12
    answer = send(compacted, request(*parts))
    rows = [r for t in answer.responses for r in t.partition_responses]
    assert [len(r.record_errors) for r in rows] == [1000] * 10 + [0] * 2
    assert {r.error_code for r in rows} == {ErrorCode.INVALID_RECORD}


def test_produce_returns_result_per_partition(fixture: HandlerFixture) -> None:
    answer = send(fixture, request(("t", 0, make_batch(0)), ("t", 5, make_batch(0)), ("t", 0, make_batch(3))), 11)
    rows = [r for t in answer.responses for r in t.partition_responses]
    assert [(r.error_code, r.base_offset) for r in rows] == [(0, 0), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (0, 3)]
    assert [(t.name, t.topic_id) for t in answer.responses] == [("t", topic_id_of("t"))] * 3
    assert topic_id_of("t") != ZERO_UUID


def test_produce_counts_the_traffic_of_topics(fixture: HandlerFixture) -> None:
    batch = make_batch(0)
    send(fixture, request(("t", 0, batch), ("t", 5, make_batch(0)), ("t", 0, make_batch(3))), 11)
    traffic, unknown = fixture.hosted.replicas["t", 0].traffic, fixture.hosted.unknown_traffic
    assert (traffic.messages_in, traffic.bytes_in, traffic.produces) == (6, 2 * len(batch), 2)
    assert (traffic.failed_produces, unknown.produces, unknown.failed_produces) == (0, 0, 0)
    large = HandlerFixture()
    large.hosted.host("t", settings=LogConfig(max_message_bytes=10))
    send(large, request(("t", 0, batch)))
    traffic = large.hosted.replicas["t", 0].traffic
    assert (traffic.bytes_rejected, traffic.produces, traffic.failed_produces, traffic.bytes_in) == (
        len(batch),
        1,
        0,
        0,
    )


def test_produce_counts_only_unexpected_failures_of_the_log_as_failed(compacted: HandlerFixture) -> None:
    hosted = compacted.hosted
    hosted.host("r", isr=(1,), replicas=(1, 2), settings=LogConfig(min_insync_replicas=2))
    hosted.host("elsewhere", leader=2, isr=(2,), replicas=(1, 2))
    keyless, corrupt = large(3, None), bytearray(make_batch(0))
    corrupt[-1] ^= 1
    rows = [("c", 0, keyless), ("r", 0, make_batch(0)), ("elsewhere", 0, make_batch(0)), ("c", 0, bytes(corrupt))]
    answer = send(compacted, request(*rows, ("c", 0, b""), ("c", 0, large(40_000, None))))
    results = [
        (row.error_code, row.log_start_offset) for topic in answer.responses for row in topic.partition_responses
    ]
    assert results == [
        (ErrorCode.INVALID_RECORD, 0),
        (ErrorCode.NOT_ENOUGH_REPLICAS, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (ErrorCode.CORRUPT_MESSAGE, -1),
        (ErrorCode.INVALID_RECORD, -1),
        (ErrorCode.INVALID_RECORD, 0),
    ]
    counted = {name: hosted.replicas[name, 0].traffic for name in ("c", "r", "elsewhere")}
    counted["unknown"] = hosted.unknown_traffic
    assert {name: (each.produces, each.failed_produces) for name, each in counted.items()} == {
        "c": (3, 2),
        "r": (1, 1),
        "elsewhere": (1, 0),
        "unknown": (0, 0),
    }


def test_produce_acks_0_sends_no_response_and_closes_on_error(fixture: HandlerFixture) -> None:
    assert send(fixture, request(("t", 0, make_batch(0)), acks=0)) is None
    assert fixture.hosted.replicas["t", 0].log.log_end_offset == 3
    with pytest.raises(CloseConnection):
        send(fixture, request(("t", 9, make_batch(0)), acks=0))


def test_produce_disk_error_returns_kafka_storage_error_and_is_reported(fixture: HandlerFixture) -> None:
    fixture.env.disk.fault = lambda call, path: OSError(5, "broken") if call == "pwrite" else None
    assert row_of(send(fixture, request(("t", 0, make_batch(0))))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(fixture.failures) == 1


def test_produce_under_min_isr_refuses_only_acks_all() -> None:
    fixture = HandlerFixture()
    fixture.hosted.host("r", isr=(1,), replicas=(1, 2), settings=LogConfig(min_insync_replicas=2))
    assert row_of(send(fixture, request(("r", 0, make_batch(0))))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert fixture.hosted.replicas["r", 0].log.log_end_offset == 0
    assert row_of(send(fixture, request(("r", 0, make_batch(0)), acks=1))).error_code == 0


def test_delayed_produce_of_many_partitions_checks_only_changed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    many = 60
    fixture = HandlerFixture()
    fixture.hosted.host("r", isr=(1, 2), replicas=(1, 2), partitions=many)
    looks = [0]

    def high_watermark(log: Any) -> int:
        looks[0] += 1
        offset: int = log.__dict__["high_watermark"]
        return offset

    def move(log: Any, offset: int) -> None:
        log.__dict__["high_watermark"] = offset

    async def all_of_them(replica: Any) -> None:
        await trio.sleep(0.1)
        monkeypatch.setattr(PartitionLog, "high_watermark", property(high_watermark, move), raising=False)
        for number in range(many):
            one = fixture.hosted.replicas["r", number]
            move(one.log, one.log.log_end_offset)
            one.notify_waiters()

    body = request(*(("r", number, make_batch(0)) for number in (*range(many), 0)))
    answer: Any = start(produce.handle(fixture.context(ApiKey.PRODUCE, NEWEST), body))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(all_of_them, None)
            response = await answer
            assert trio.current_time() == pytest.approx(0.1)
        codes = [row.error_code for topic in response.responses for row in topic.partition_responses]
        assert len(codes) == many + 1

    run_virtual(main)
    assert looks[0] < 5 * many
