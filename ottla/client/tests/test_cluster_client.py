"""Cluster client with fake brokers: connections, metadata, requests and errors."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from ottla.client.channel import Disconnected
from ottla.client.connection_security import AuthenticationFailed
from ottla.client.record_decoding import decode_records
from ottla.client.tests.fake_brokers import (
    FakeCluster,
    FakeHandler,
    run_coroutine,
)
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import fetch, list_offsets, produce
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.record_batch import records
from ottla.wire.record_batch.batch_header import CONTROL_BIT


@pytest.mark.parametrize(
    ("bootstrap", "address"),
    [("b0:9000", ("b0", 9000)), (" [::1]:7 ", ("::1", 7)), ("down:1, down:2,b1:9001", ("b1", 9001))],
)
def test_client_uses_first_reachable_bootstrap_server(bootstrap: str, address: tuple[str, int]) -> None:
    brokers = FakeCluster(heartbeat=lambda *_: HeartbeatResponse(0, 3))
    brokers.down = {("down", 1), ("down", 2)}
    client = brokers.client(bootstrap)
    assert run_coroutine(client.call(HeartbeatRequest("g", 7, "m"))) == HeartbeatResponse(0, 3)
    assert run_coroutine(client.call(HeartbeatRequest("g", 7, "m"), 1)) == HeartbeatResponse(0, 3)
    assert brokers.connected_addresses() == [address], "one shared connection"


def test_bootstrap_channel_without_reachable_server_raises_last_error() -> None:
    brokers = FakeCluster()
    brokers.down = {("b0", 9000), ("b1", 9001)}
    with pytest.raises(OSError, match="b1:9001 refused"):
        run_coroutine(brokers.client("b0:9000,b1:9001").bootstrap_channel())
    with pytest.raises(ValueError, match="nine"):
        run_coroutine(brokers.client("b0:nine").bootstrap_channel())


def test_client_reconnects_after_closed_connection() -> None:
    answers = iter([None, HeartbeatResponse(0, 9)])
    brokers = FakeCluster(heartbeat=lambda *_: next(answers))
    client = brokers.client()
    with pytest.raises(Disconnected):
        run_coroutine(client.call(HeartbeatRequest("g", 7, "m")))
    assert run_coroutine(client.call(HeartbeatRequest("g", 7, "m"))) == HeartbeatResponse(0, 9)
    assert brokers.connected_addresses() == [("b0", 9000)] * 2


def test_invalid_api_versions_response_closes_connection() -> None:
    brokers = FakeCluster(api_versions=lambda *_: b"HTTP/1.1 400")
    with pytest.raises((WireError, OSError)):
        run_coroutine(brokers.client().bootstrap_channel())
    assert brokers.streams[0][2].closed


def test_metadata_returns_brokers_and_leaders() -> None:
    requests: list[Any] = []
    brokers = FakeCluster()
    brokers.handlers[ApiKey.METADATA] = lambda request, version: (
        requests.append((request, version)),
        brokers.metadata(request, version),
    )[1]
    client = brokers.client()
    run_coroutine(client.metadata(None))
    run_coroutine(client.metadata(["t"], create=True))
    (everything, version), (one, _) = requests
    assert (everything.topics, everything.allow_auto_topic_creation, version) == (None, False, 12)
    assert ([t.name for t in one.topics], one.allow_auto_topic_creation) == (["t"], True)
    run_coroutine(client.leader("t", 1))
    run_coroutine(client.broker(0))
    assert [len(requests), brokers.connected_addresses()] == [2, [("b0", 9000), ("b1", 9001)]], (
        "cached metadata is not requested again"
    )
    with pytest.raises(ProtocolError, match="BROKER_NOT_AVAILABLE: broker 7"):
        run_coroutine(client.broker(7))
    assert len(run_coroutine(client.all_brokers())) == 2
    client.close()
    assert all(wire.closed for _, _, wire in brokers.streams)
    run_coroutine(client.bootstrap_channel())
    assert len(brokers.streams) == 3


def test_leader_is_cached_and_missing_leader_raises_leader_not_available() -> None:
    brokers = FakeCluster()
    brokers.leaders[1] = -1
    client = brokers.client()
    run_coroutine(client.leader("t", 0))
    assert brokers.connected_addresses() == [("b0", 9000)]
    with pytest.raises(ProtocolError, match="LEADER_NOT_AVAILABLE: t-1"):
        run_coroutine(client.leader("t", 1))


def test_partitions_waits_for_leaders_of_a_new_topic() -> None:
    brokers = FakeCluster()
    assert run_coroutine(brokers.client().partitions("t")) == [0, 1]
    assert brokers.slept == []
    brokers.leaders = {3: 0, 1: -1}
    with pytest.raises(ProtocolError, match="LEADER_NOT_AVAILABLE: topic t"):
        run_coroutine(brokers.client().partitions("t"))
    assert brokers.slept == [0.05] * 20
    brokers.slept.clear()
    brokers.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ProtocolError, match="UNKNOWN_TOPIC_OR_PARTITION: topic t"):
        run_coroutine(brokers.client().partitions("t"))
    assert brokers.slept == [], "unknown topic is not retried"
    with pytest.raises(ProtocolError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        run_coroutine(brokers.client().partitions("t", create=True))
    assert len(brokers.slept) == 20, "new topic is retried until the limit"
    brokers.error = ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(ProtocolError, match="INVALID_TOPIC_EXCEPTION"):
        run_coroutine(brokers.client().partitions("t", create=True))
    assert len(brokers.slept) == 20


def test_produce_sends_records_to_partition_leader() -> None:
    seen: list[Any] = []

    def on_produce(request: Any, version: int) -> Message | None:
        seen.append((request, version))
        row = produce.PartitionProduceResponse(1, 0, 77)
        answer = produce.ProduceResponse([produce.TopicProduceResponse("t", partition_responses=[row])])
        return answer if request.acks else None

    brokers = FakeCluster(produce=on_produce)
    client = brokers.client()
    assert run_coroutine(client.produce("t", 1, [records.NewRecord(b"k", b"v", 5)])) == 77
    assert run_coroutine(client.produce("t", 1, [records.NewRecord(b"k", b"v", 5)], acks=0)) == -1
    assert brokers.connected_addresses()[-1] == ("b1", 9001)
    request, version = seen[0]
    assert (version, request.acks, request.timeout_ms) == (12, -1, 30_000)
    assert request.topic_data[0].partition_data[0].index == 1
    got = list(decode_records(request.topic_data[0].partition_data[0].records, 0))
    assert [(x.key, x.value, x.timestamp_ms) for x in got] == [(b"k", b"v", 5)]


@pytest.mark.parametrize(
    ("errors", "base", "sent"),
    [
        ([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE], -1, 3),
        ([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2, -1, 3),
        ([ErrorCode.NOT_LEADER_OR_FOLLOWER], 77, 1),  # the records may be in the log
        ([ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND], -1, 1),
        ([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 99, -1, 35),
    ],
)
def test_produce_retries_only_while_the_leader_has_appended_nothing(
    errors: list[ErrorCode], base: int, sent: int
) -> None:
    requests: list[Any] = []

    def on_produce(request: Any, _version: int) -> Message:
        requests.append(request)
        error = errors[len(requests) - 1] if len(requests) <= len(errors) else 0
        row = produce.PartitionProduceResponse(1, error, base if error else 77)
        return produce.ProduceResponse([produce.TopicProduceResponse("t", partition_responses=[row])])

    brokers = FakeCluster(produce=on_produce)
    work = brokers.client().produce("t", 1, [records.NewRecord(b"k", b"v", 5)])
    if sent > len(errors):
        assert run_coroutine(work) == 77
    else:
        with pytest.raises(ProtocolError, match=errors[0].name):
            run_coroutine(work)
    assert len(requests) == sent
    assert brokers.slept == [0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 29][: sent - 1], "about 30 s"


def test_produce_waits_until_the_partition_has_a_leader() -> None:
    rows = [produce.TopicProduceResponse("t", partition_responses=[produce.PartitionProduceResponse(1, 0, 77)])]
    brokers = FakeCluster(produce=lambda *_: produce.ProduceResponse(rows))
    brokers.leaders[1] = -1
    sleep = brokers.sleep

    async def elect(seconds: float) -> None:
        await sleep(seconds)
        brokers.leaders[1] = 0

    brokers.sleep = elect  # type: ignore[method-assign]
    assert run_coroutine(brokers.client().produce("t", 1, [records.NewRecord(b"k", b"v", 5)])) == 77
    assert brokers.slept == [0.05]


def send_one(brokers: FakeCluster) -> Any:
    return run_coroutine(brokers.client().produce("t", 1, [records.NewRecord(b"k", b"v", 5)]))


def on_produce_append(_request: Any, _version: int) -> Message:
    row = produce.PartitionProduceResponse(1, 0, 77)
    return produce.ProduceResponse([produce.TopicProduceResponse("t", partition_responses=[row])])


def test_produce_is_retried_while_the_leader_is_unreachable() -> None:
    brokers = FakeCluster(produce=on_produce_append)
    brokers.down = {("b1", 9001)}
    sleep = brokers.sleep

    async def elect(seconds: float) -> None:
        await sleep(seconds)
        brokers.leaders[1] = 0

    brokers.sleep = elect  # type: ignore[method-assign]
    assert send_one(brokers) == 77
    assert brokers.slept == [0.05]


def test_produce_without_reachable_bootstrap_server_is_not_retried() -> None:
    brokers = FakeCluster(produce=on_produce_append)
    brokers.down = {("b0", 9000)}
    with pytest.raises(OSError, match="b0:9000 refused"):
        send_one(brokers)
    assert brokers.slept == []


def test_produce_is_retried_after_the_bootstrap_server_closed_its_connection() -> None:
    brokers = FakeCluster(produce=on_produce_append)
    client = brokers.client("b0:9000,b1:9001")
    run_coroutine(client.metadata(None))
    client.invalidate_leaders()
    brokers.streams[0][2].handlers = {ApiKey.METADATA: lambda *_: None}
    brokers.down, brokers.leaders[1] = {("b0", 9000)}, 1
    assert run_coroutine(client.produce("t", 1, [records.NewRecord(b"k", b"v", 5)])) == 77
    assert brokers.slept == [0.05]


@pytest.mark.parametrize("error", [AuthenticationFailed("rejected"), ssl.SSLCertVerificationError("not trusted")])
def test_produce_to_a_leader_that_fails_the_login_is_not_retried(error: OSError) -> None:
    brokers = FakeCluster(produce=on_produce_append)
    brokers.refusals[("b1", 9001)] = error
    with pytest.raises(type(error)):
        send_one(brokers)
    assert brokers.slept == []


def test_produce_without_authorization_for_the_topic_is_not_retried() -> None:
    brokers = FakeCluster(produce=on_produce_append)
    brokers.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(ProtocolError, match="TOPIC_AUTHORIZATION_FAILED"):
        send_one(brokers)
    assert brokers.slept == []


def test_retry_after_an_attempt_as_long_as_the_timeout_is_made_once() -> None:
    brokers = FakeCluster()
    attempts: list[float] = []

    async def time_out() -> None:
        attempts.append(sum(brokers.slept))
        await brokers.sleep(30.0)
        raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT)

    with pytest.raises(ProtocolError, match="REQUEST_TIMED_OUT"):
        run_coroutine(brokers.client().retry_while_leader_moves(time_out))
    assert attempts == [0, 30.05]


def test_list_offset_sends_timestamp_to_leader() -> None:
    seen: list[Any] = []

    def on_list(request: Any, version: int) -> Message:
        part = request.topics[0].partitions[0]
        seen.append((request.replica_id, part.partition_index, part.current_leader_epoch, part.timestamp, version))
        row = list_offsets.ListOffsetsPartitionResponse(0, 0, offset=41)
        return list_offsets.ListOffsetsResponse(topics=[list_offsets.ListOffsetsTopicResponse("t", [row])])

    assert run_coroutine(FakeCluster(list_offsets=on_list).client().list_offset("t", 0, -2)) == 41
    assert seen == [(-1, 0, -1, -2, 10)]
    row = list_offsets.ListOffsetsPartitionResponse(0, ErrorCode.OFFSET_NOT_AVAILABLE)
    refusal = list_offsets.ListOffsetsResponse(topics=[list_offsets.ListOffsetsTopicResponse("t", [row])])
    with pytest.raises(ProtocolError, match="OFFSET_NOT_AVAILABLE: t-0"):
        run_coroutine(FakeCluster(list_offsets=lambda *_: refusal).client().list_offset("t", 0, -1))


def fetched(raw: bytes, error: int = 0, partition_error: int = 0) -> FakeHandler:
    row = fetch.PartitionData(0, partition_error, records=raw)
    topics = [fetch.FetchableTopicResponse("t", partitions=[row])]
    return lambda *_: fetch.FetchResponse(error_code=error, responses=topics)


def test_fetch_returns_records_from_the_offset() -> None:
    raw = records.build_batch([records.NewRecord(b"k%d" % i, b"v") for i in range(5)], base_offset=10)
    seen: list[Any] = []
    handler = fetched(raw)
    brokers = FakeCluster(
        fetch=lambda request, version: (seen.append((request, version)), handler(request, version))[1]
    )
    got = run_coroutine(brokers.client().fetch("t", 0, 12, max_wait_ms=7))
    assert [(x.topic, x.partition, x.record.offset, x.record.key) for x in got] == [
        ("t", 0, 12, b"k2"),
        ("t", 0, 13, b"k3"),
        ("t", 0, 14, b"k4"),
    ]
    request, version = seen[0]
    assert (version, request.max_wait_ms, request.min_bytes, request.max_bytes) == (12, 7, 1, 50 << 20)
    part = request.topics[0].partitions[0]
    assert (part.partition, part.fetch_offset, part.partition_max_bytes) == (0, 12, 1 << 20)


def test_fetch_error_raises_protocol_error_with_code() -> None:
    with pytest.raises(ProtocolError, match="FETCH_SESSION_ID_NOT_FOUND"):
        run_coroutine(FakeCluster(fetch=fetched(b"", error=70)).client().fetch("t", 0, 0))
    with pytest.raises(ProtocolError, match="OFFSET_OUT_OF_RANGE: t-0 at 9"):
        run_coroutine(FakeCluster(fetch=fetched(b"", partition_error=1)).client().fetch("t", 0, 9))
    with pytest.raises(ProtocolError, match="UNKNOWN_SERVER_ERROR"):
        run_coroutine(FakeCluster(fetch=fetched(b"", partition_error=9999)).client().fetch("t", 0, 9))
    assert run_coroutine(FakeCluster(fetch=fetched(b"")).client().fetch("t", 0, 9)) == []


def test_fetch_not_leader_error_refreshes_metadata() -> None:
    errors = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE])
    brokers = FakeCluster(fetch=lambda *_: fetched(b"", partition_error=next(errors))(None, 0))
    client = brokers.client()
    with pytest.raises(ProtocolError, match="NOT_LEADER_OR_FOLLOWER"):
        run_coroutine(client.fetch("t", 0, 0))
    brokers.leaders[0] = 1
    assert run_coroutine(client.fetch("t", 0, 0)) == []
    assert brokers.connected_addresses() == [("b0", 9000), ("b1", 9001)]


# ---------------------------------------------------------------- records


def test_decode_records_skips_control_batches_and_truncated_batch() -> None:
    one = records.build_batch([records.NewRecord(b"a", b"v")])
    marker = records.build_batch(
        [records.NewRecord(b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=1, attributes=CONTROL_BIT
    )
    two = records.build_batch([records.NewRecord(b"b", b"v")], base_offset=2)
    assert [x.key for x in decode_records(one + marker + two + two[:-1], 0)] == [b"a", b"b"]


def test_decode_records_bad_checksum_raises_wire_error() -> None:
    raw = bytearray(records.build_batch([records.NewRecord(b"a", b"v")], base_offset=6))
    raw[-1] ^= 1
    with pytest.raises(WireError, match="bad CRC in the batch at offset 6"):
        list(decode_records(raw, 0))
