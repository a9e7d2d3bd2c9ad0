"""Cluster client with fake brokers: connections, metadata, requests and errors."""

from __future__ import annotations

import struct
from typing import Any
from unittest.mock import AsyncMock

import pytest

from ottla.client.channel import Channel, Disconnected, read_exactly
from ottla.client.record_decoding import decode_records
from ottla.client.tests.fake_brokers import (
    FakeBrokerStream,
    FakeCluster,
    FakeHandler,
    api_versions_handler,
    run_coroutine,
)
from ottla.wire.api_keys import ApiKey, request_spec
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import fetch, list_offsets, produce
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.record_batch import records as r
from ottla.wire.record_batch.batch_header import CONTROL_BIT

# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("piece_bytes", [1, 7, 1 << 30])
def test_read_exactly_returns_requested_number_of_bytes(piece_bytes: int) -> None:
    wire = FakeBrokerStream({}, piece_bytes)
    wire.ready = bytes(range(100))
    assert run_coroutine(read_exactly(wire, 60, 1.0)) == bytes(range(60))
    assert run_coroutine(read_exactly(wire, 0, 1.0)) == b""
    assert run_coroutine(read_exactly(wire, 40, 1.0)) == bytes(range(60, 100))
    with pytest.raises(Disconnected, match="closed the connection"):
        run_coroutine(read_exactly(wire, 1, 1.0))


def test_read_exactly_announced_size_allocates_at_most_4_mib_ahead() -> None:
    """Memory for the announced size of a response was allocated: CVE-2026-10142."""
    wire = FakeBrokerStream({})
    wire.ready = b"x" * (5 << 20)
    with pytest.raises(Disconnected):
        run_coroutine(read_exactly(wire, 2**31 - 1, 1.0))
    assert wire.largest_buffer_bytes == 4 << 20
    wire.ready = b"y" * (3 << 20)
    assert run_coroutine(read_exactly(wire, 3 << 20, 1.0)) == b"y" * (3 << 20)


# ---------------------------------------------------------------- one connection


def negotiated_channel(wire: FakeBrokerStream, highest: dict[str, int] | None = None) -> Channel:
    wire.handlers.setdefault(ApiKey.API_VERSIONS, api_versions_handler(**highest or {}))
    channel = Channel(wire, "me", 3.0)
    run_coroutine(channel.negotiate())
    return channel


def test_version_for_returns_highest_common_version() -> None:
    channel = negotiated_channel(FakeBrokerStream({}), {"heartbeat": 2, "fetch": 99})
    assert channel.version_for(ApiKey.HEARTBEAT) == 2
    assert channel.version_for(ApiKey.FETCH) == request_spec(ApiKey.FETCH).versions.high
    assert channel.version_for(ApiKey.FETCH, 12) == 12
    oldest = request_spec(ApiKey.FETCH).versions.low
    assert channel.version_for(ApiKey.FETCH, oldest) == oldest
    with pytest.raises(WireError, match="does not support FETCH"):
        channel.version_for(ApiKey.FETCH, request_spec(ApiKey.FETCH).versions.low - 1)
    with pytest.raises(WireError, match="does not support FETCH"):
        Channel(FakeBrokerStream({}), "me").version_for(ApiKey.FETCH)


def test_version_for_unstable_version_is_not_used() -> None:
    unstable = next(key for key in ApiKey if request_spec(key).latest_unstable)
    assert negotiated_channel(FakeBrokerStream({})).version_for(unstable) == request_spec(unstable).versions.high - 1


def test_call_sends_framed_request_with_correlation_id() -> None:
    wire = FakeBrokerStream({ApiKey.HEARTBEAT: lambda request, _: HeartbeatResponse(0, request.generation_id)}, 3)
    channel = negotiated_channel(wire)
    assert run_coroutine(channel.call(HeartbeatRequest("g", 7, "m"))) == HeartbeatResponse(0, 7)
    assert run_coroutine(channel.call(HeartbeatRequest("g", 8, "m"), 0)) == HeartbeatResponse(0, 8)
    assert [(x.key, x.version, x.correlation_id, x.client_id) for x in wire.requests] == [
        (ApiKey.API_VERSIONS, 3, 1, "me"),
        (ApiKey.HEARTBEAT, 4, 2, "me"),
        (ApiKey.HEARTBEAT, 0, 3, "me"),
    ]


def test_call_correlation_id_wraps_to_zero() -> None:
    channel = negotiated_channel(FakeBrokerStream({ApiKey.HEARTBEAT: lambda *_: HeartbeatResponse()}))
    channel._correlation_id = 2**31 - 1
    assert run_coroutine(channel.call(HeartbeatRequest("g", 7, "m"))) == HeartbeatResponse()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, Disconnected),
        (b"\0\0", Disconnected),
        (struct.pack(">i", -1), WireError),
        (struct.pack(">iibihb", 12, 99, 0, 0, 0, 0), WireError),
        (struct.pack(">iib", 5, 2, 0), WireError),
    ],
    ids=["nothing", "half a size", "a negative size", "another request's answer", "an answer cut off"],
)
def test_call_invalid_response_closes_channel(answer: bytes | None, error: type[Exception]) -> None:
    wire = FakeBrokerStream({ApiKey.HEARTBEAT: lambda *_: answer})
    channel = negotiated_channel(wire)
    assert not channel.closed
    with pytest.raises(error):
        run_coroutine(channel.call(HeartbeatRequest("g", 7, "m")))
    assert channel.closed
    assert wire.closed
    with pytest.raises(Disconnected, match="cancelled"):
        run_coroutine(channel.call(HeartbeatRequest("g", 7, "m")))


def test_call_during_pending_request_raises_disconnected() -> None:
    wire = FakeBrokerStream({})
    channel = negotiated_channel(wire)

    def meanwhile(*_: Any) -> Message:
        with pytest.raises(Disconnected, match="still in progress"):
            run_coroutine(channel.call(HeartbeatRequest("g", 8, "m")))
        return HeartbeatResponse(0, 5)

    wire.handlers[ApiKey.HEARTBEAT] = meanwhile
    assert run_coroutine(channel.call(HeartbeatRequest("g", 7, "m"))) == HeartbeatResponse(0, 5)
    assert not channel.closed


def test_call_produce_with_acks_0_expects_no_response() -> None:
    wire = FakeBrokerStream({ApiKey.PRODUCE: lambda *_: None, ApiKey.HEARTBEAT: lambda *_: HeartbeatResponse(0, 1)})
    channel = negotiated_channel(wire)
    assert run_coroutine(channel.call(produce.ProduceRequest(None, 0, 1, []), 9)) is None
    assert run_coroutine(channel.call(HeartbeatRequest("g", 7, "m"))) == HeartbeatResponse(0, 1)
    with pytest.raises(Disconnected):
        run_coroutine(channel.call(produce.ProduceRequest(None, 1, 1, []), 9))


# ---------------------------------------------------------------- a cluster


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
    assert run_coroutine(client.produce("t", 1, [r.NewRecord(b"k", b"v", 5)])) == 77
    assert run_coroutine(client.produce("t", 1, [r.NewRecord(b"k", b"v", 5)], acks=0)) == -1
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
    work = brokers.client().produce("t", 1, [r.NewRecord(b"k", b"v", 5)])
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
    assert run_coroutine(brokers.client().produce("t", 1, [r.NewRecord(b"k", b"v", 5)])) == 77
    assert brokers.slept == [0.05]


def test_produce_to_a_leader_that_refuses_the_login_is_not_retried() -> None:
    brokers = FakeCluster()
    client = brokers.client()
    client.leader = AsyncMock(side_effect=ProtocolError(ErrorCode.SASL_AUTHENTICATION_FAILED))  # type: ignore[method-assign]
    with pytest.raises(ProtocolError, match="SASL_AUTHENTICATION_FAILED"):
        run_coroutine(client.produce("t", 1, [r.NewRecord(b"k", b"v", 5)]))
    assert brokers.slept == []


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
    raw = r.build_batch([r.NewRecord(b"k%d" % i, b"v") for i in range(5)], base_offset=10)
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
    one = r.build_batch([r.NewRecord(b"a", b"v")])
    marker = r.build_batch([r.NewRecord(b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=1, attributes=CONTROL_BIT)
    two = r.build_batch([r.NewRecord(b"b", b"v")], base_offset=2)
    assert [x.key for x in decode_records(one + marker + two + two[:-1], 0)] == [b"a", b"b"]


def test_decode_records_bad_checksum_raises_wire_error() -> None:
    raw = bytearray(r.build_batch([r.NewRecord(b"a", b"v")], base_offset=6))
    raw[-1] ^= 1
    with pytest.raises(WireError, match="bad CRC in the batch at offset 6"):
        list(decode_records(raw, 0))
