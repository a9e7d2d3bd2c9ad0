"""Connection of a client: exact reads, negotiated versions, requests and their responses."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ottla.client.channel import Channel, Disconnected, read_exactly
from ottla.client.tests.fake_brokers import FakeBrokerStream, api_versions_handler, run_coroutine
from ottla.wire.api_keys import ApiKey, request_spec
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages import produce
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


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
