"""Connection: bytes, time slices, and disconnects."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.requests.peer import CloseConnection
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, frame, in_virtual_time, job_of
from ottla.jobs.bounded_concurrency import for_each_concurrently
from ottla.jobs.supervision import is_broken_invariant
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse

BEAT = ApiKey.HEARTBEAT


def beat(number: int) -> bytes:
    return frame(BEAT, 0, number, HeartbeatRequest("g", 0, "m"))


@pytest.fixture
def fixture(monkeypatch: pytest.MonkeyPatch) -> DispatcherFixture:
    fixture = DispatcherFixture(monkeypatch)
    fixture.serve(BEAT, lambda context, request: HeartbeatResponse(error_code=7))
    return fixture


def served(fixture: DispatcherFixture, stream: ClientStream) -> ClientStream:
    """Serve the connection until the client's stream ends; return the stream."""

    async def run() -> None:
        await fixture.connection(stream).serve()

    in_virtual_time(run)
    assert stream.is_closed
    return stream


def numbers(stream: ClientStream) -> list[int]:
    return [number for number, _ in stream.responses(BEAT, 0)]


@pytest.mark.parametrize("most", [1, 2, 3, 5, 17, 2**31])
def test_responses_are_in_order_for_any_size_of_received_chunks(fixture: DispatcherFixture, most: int) -> None:
    stream = ClientStream()
    stream.most_bytes = most
    stream.send_bytes(b"".join(beat(n) for n in range(50)))
    stream.disconnect()
    assert numbers(served(fixture, stream)) == list(range(50))


def test_responses_to_requests_received_together_are_sent_together(fixture: DispatcherFixture) -> None:
    stream = ClientStream()
    stream.send_bytes(b"".join(beat(n) for n in range(20)))
    stream.disconnect()
    assert len(served(fixture, stream).sends) == 1


def test_earlier_responses_are_sent_while_a_handler_waits(fixture: DispatcherFixture) -> None:
    stream = ClientStream()

    async def later() -> HeartbeatResponse:
        assert numbers(stream) == [1, 2]
        return HeartbeatResponse()

    fixture.serve(ApiKey.LIST_GROUPS, lambda context, request: job_of(later()))

    stream.send_bytes(beat(1) + beat(2) + frame(ApiKey.LIST_GROUPS, 0, 3, ListGroupsRequest()))
    stream.disconnect()
    served(fixture, stream)
    assert len(stream.sends) == 2


@pytest.mark.behaviour("P-8")
def test_throttled_response_is_sent_at_once_and_later_request_is_delayed(fixture: DispatcherFixture) -> None:
    stream = ClientStream()

    def handler(context: Any, request: Any) -> HeartbeatResponse:
        context.peer.throttle_ms = 5000
        return HeartbeatResponse(throttle_time_ms=5000)

    async def run() -> None:
        fixture.serve(BEAT, handler)
        stream.send_bytes(beat(1) + beat(2))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fixture.connection(stream).serve)
            await trio.sleep(0.1)
            assert numbers(stream) == [1]
            await trio.sleep(4.8)
            assert numbers(stream) == [1]
            await trio.sleep(0.2)
            assert numbers(stream) == [1, 2]
            stream.disconnect()

    in_virtual_time(run)


def test_responses_over_256_kib_are_sent_before_all_requests_are_handled(fixture: DispatcherFixture) -> None:
    seen: list[int] = []
    stream = ClientStream()

    def handler(context: Any, request: Any) -> Any:
        seen.append(len(stream.sends))
        return JoinGroupResponse(member_id="x" * 32000)

    fixture.serve(ApiKey.JOIN_GROUP, handler)
    stream.send_bytes(b"".join(frame(ApiKey.JOIN_GROUP, 0, n, JoinGroupRequest()) for n in range(10)))
    stream.disconnect()
    served(fixture, stream)
    assert seen == [0] * 9 + [1], "32,000 bytes each: the ninth brings them over the limit"


@pytest.mark.parametrize(
    "raw",
    [struct.pack(">i", -1), struct.pack(">i", 104_857_601), struct.pack(">ihhih", 10, 99, 0, 1, -1)],
    ids=["negative", "too large", "unknown key"],
)
def test_invalid_frame_closes_connection_after_earlier_responses(
    fixture: DispatcherFixture, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    stream = ClientStream()
    stream.send_bytes(beat(1) + raw + beat(2))
    assert numbers(served(fixture, stream)) == [1]
    assert "10.0.0.9 closed" in caplog.text


def test_socket_request_max_bytes_limits_request_size(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = DispatcherFixture(monkeypatch, **{"socket.request.max.bytes": str(len(beat(1)) - 4)})
    limited.serve(BEAT, lambda context, request: HeartbeatResponse())
    stream = ClientStream()
    longer = frame(BEAT, 0, 2, HeartbeatRequest("g", 0, "mm"))
    stream.send_bytes(beat(1) + longer)
    assert numbers(served(limited, stream)) == [1]


@pytest.mark.parametrize("error", [CloseConnection, ConnectionResetError, trio.ClosedResourceError])
def test_handler_may_close_connection_without_response(
    fixture: DispatcherFixture, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    def handler(context: Any, request: Any) -> Any:
        raise error

    fixture.serve(ApiKey.PRODUCE, handler)
    stream = ClientStream()
    stream.send_bytes(beat(1) + frame(ApiKey.PRODUCE, 3, 2, ProduceRequest()) + beat(3))
    assert numbers(served(fixture, stream)) == [1]
    assert not caplog.records


def test_handler_exception_closes_connection_and_is_logged(
    fixture: DispatcherFixture, caplog: pytest.LogCaptureFixture
) -> None:
    fixture.serve(BEAT, lambda context, request: 1 // 0)
    stream = ClientStream()
    stream.send_bytes(beat(1))
    served(fixture, stream)
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    assert "ZeroDivisionError" in caplog.text


def test_handler_assertion_error_is_raised(fixture: DispatcherFixture) -> None:
    def handler(context: Any, request: Any) -> Any:
        raise AssertionError("broken")

    fixture.serve(BEAT, handler)
    stream = ClientStream()
    stream.send_bytes(beat(1))
    with pytest.raises(AssertionError, match="broken"):
        served(fixture, stream)
    assert stream.is_closed


class DisconnectedStream(ClientStream):
    """Stream that is closed before a response is sent."""

    async def send(self, chunks: Sequence[Any]) -> None:
        raise BrokenPipeError


@pytest.mark.parametrize(
    "client", [DisconnectedStream, partial(ClientStream, reads=False)], ids=["it left", "it does not read"]
)
def test_handler_assertion_error_is_raised_when_responses_cannot_be_sent(
    fixture: DispatcherFixture, client: Callable[[], ClientStream]
) -> None:
    def handler(context: Any, request: Any) -> Any:
        raise AssertionError("broken")

    fixture.serve(ApiKey.PRODUCE, handler)
    stream = client()
    stream.send_bytes(beat(1) + frame(ApiKey.PRODUCE, 3, 2, ProduceRequest()))
    with pytest.raises(AssertionError, match="broken"):
        served(fixture, stream)
    assert stream.is_closed


def test_assertion_error_in_nursery_of_handler_is_raised(fixture: DispatcherFixture) -> None:
    async def broken(item: int) -> None:
        raise AssertionError(f"broken {item}")

    fixture.serve(BEAT, lambda context, request: job_of(for_each_concurrently([1, 2], broken)))
    stream = ClientStream()
    stream.send_bytes(beat(1))
    with pytest.raises(ExceptionGroup) as raised:
        served(fixture, stream)
    assert is_broken_invariant(raised.value)
    assert stream.is_closed


def test_exception_in_nursery_of_handler_closes_only_its_connection(
    fixture: DispatcherFixture, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(item: int) -> None:
        raise ZeroDivisionError

    fixture.serve(BEAT, lambda context, request: job_of(for_each_concurrently([1], failing)))
    stream = ClientStream()
    stream.send_bytes(beat(1))
    served(fixture, stream)
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    assert stream.is_closed


def test_handler_result_none_sends_no_response(fixture: DispatcherFixture) -> None:
    fixture.serve(ApiKey.PRODUCE, lambda context, request: None)
    stream = ClientStream()
    stream.send_bytes(beat(1) + frame(ApiKey.PRODUCE, 3, 2, ProduceRequest()) + beat(3))
    stream.disconnect()
    assert numbers(served(fixture, stream)) == [1, 3]


# ---------------------------------------------------------------- memory


def buffer_sizes(fixture: DispatcherFixture, stream: ClientStream, pieces: list[bytes]) -> list[int]:
    """Return the size of the receive buffer after each chunk."""
    sizes: list[int] = []

    async def run() -> None:
        connection = fixture.connection(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.serve)
            for piece in pieces:
                stream.send_bytes(piece)
                await trio.testing.wait_all_tasks_blocked()
                sizes.append(len(connection._buffer))
            stream.disconnect()

    in_virtual_time(run)
    return sizes


def test_receive_buffer_grows_only_with_received_bytes(fixture: DispatcherFixture) -> None:
    head = struct.pack(">i", 100_000_000)
    sizes = buffer_sizes(fixture, ClientStream(), [head, bytes(5000), bytes(100_000), bytes(2_000_000)])
    assert sizes[0] == 4096
    assert all(size <= 2 * (105_004 + 2_000_000) for size in sizes)
    assert sizes[1] <= 65_536
    assert sizes[2] <= 4 * 105_000


@pytest.mark.parametrize(("came", "capacity"), [(2_000_000, 2 << 20), (5_000_000, 8 << 20), (12_400_000, 12 << 20)])
def test_receive_buffer_grows_by_at_most_four_mebibytes(fixture: DispatcherFixture, came: int, capacity: int) -> None:
    """Copying or clearing a buffer as it grows blocks the event loop."""
    sizes = buffer_sizes(fixture, ClientStream(), [struct.pack(">i", 100_000_000) + bytes(came)])
    assert sizes == [capacity]


def test_receive_buffer_over_one_mebibyte_has_exact_frame_size(fixture: DispatcherFixture) -> None:
    big = struct.pack(">i", 3_000_000)
    sizes = buffer_sizes(fixture, ClientStream(), [big + bytes(2_900_000)])
    assert sizes == [3_000_004]


def test_large_receive_buffer_is_released_after_its_frame(fixture: DispatcherFixture) -> None:
    fixture.serve(ApiKey.PRODUCE, lambda context, request: ProduceResponse())
    raw = frame(ApiKey.PRODUCE, 3, 1, ProduceRequest("t"))
    large = struct.pack(">i", len(raw) - 4 + 2_000_000) + raw[4:] + bytes(2_000_000)
    sizes = buffer_sizes(fixture, ClientStream(), [large, beat(2)])
    assert sizes == [4096, 4096]


def test_receive_buffer_of_busy_connection_holds_many_requests(fixture: DispatcherFixture) -> None:
    stream = ClientStream()
    sizes = buffer_sizes(fixture, stream, [b"".join(beat(n) for n in range(1000))])
    assert 65_536 <= sizes[0] <= 1 << 20
    assert numbers(stream) == list(range(1000))


# ---------------------------------------------------------------- other tasks


def others_turns(fixture: DispatcherFixture, stream: ClientStream) -> int:
    """Return the number of event loop iterations of another task while the requests are served."""
    turns = 0

    async def run() -> None:
        nonlocal turns
        async with trio.open_nursery() as nursery:

            async def other() -> None:
                nonlocal turns
                while True:
                    await trio.lowlevel.checkpoint()
                    turns += 1

            nursery.start_soon(other)
            await fixture.connection(stream).serve()
            nursery.cancel_scope.cancel()

    in_virtual_time(run)
    return turns


def test_pipelined_requests_yield_every_ten_milliseconds(fixture: DispatcherFixture) -> None:
    def handler(context: Any, request: Any) -> Any:
        fixture.env.work(3.0)
        return HeartbeatResponse()

    fixture.serve(BEAT, handler)
    stream = ClientStream()
    stream.send_bytes(b"".join(beat(n) for n in range(50)))
    stream.disconnect()
    assert 9 <= others_turns(fixture, stream) <= 14, "150 ms of work"
    assert numbers(stream) == list(range(50))


def test_work_of_several_receives_is_counted_together(fixture: DispatcherFixture) -> None:
    def handler(context: Any, request: Any) -> Any:
        fixture.env.work(6.0)
        return HeartbeatResponse()

    fixture.serve(BEAT, handler)
    stream = ClientStream()
    stream.most_bytes = len(beat(1)) + 10  # the next request has always begun
    stream.send_bytes(b"".join(beat(n) for n in range(20)))
    stream.disconnect()
    assert others_turns(fixture, stream) >= 6


def test_quick_requests_yield_after_64_requests(fixture: DispatcherFixture) -> None:
    stream = ClientStream()
    stream.send_bytes(b"".join(beat(n) for n in range(64 * 20)))
    stream.disconnect()
    assert 15 <= others_turns(fixture, stream) <= 20


def test_single_request_does_not_yield(fixture: DispatcherFixture) -> None:
    stream = ClientStream()

    def handler(context: Any, request: Any) -> Any:
        fixture.env.work(50)
        return HeartbeatResponse()

    fixture.serve(BEAT, handler)
    stream.send_bytes(beat(1))
    stream.disconnect()
    assert others_turns(fixture, stream) <= 1
