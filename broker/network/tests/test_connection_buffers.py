"""Receive buffers, and encoding of responses with many rows."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, frame, in_virtual_time
from ottla.jobs.job import as_job
from ottla.wire import framing
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import fetch, find_coordinator, produce
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

BEAT = ApiKey.HEARTBEAT


def padded(number: int, size: int) -> bytes:
    """Return a complete frame of a size."""
    raw = frame(BEAT, 0, number, HeartbeatRequest("g", 0, "m"))
    return (size - 4).to_bytes(4, "big") + raw[4:] + bytes(size - len(raw))


@pytest.fixture
def fixture(monkeypatch: pytest.MonkeyPatch) -> DispatcherFixture:
    fixture = DispatcherFixture(monkeypatch)
    fixture.serve(BEAT, lambda context, request: HeartbeatResponse())
    return fixture


def rooms(fixture: DispatcherFixture, pieces: list[bytes]) -> list[tuple[int, int]]:
    """Return the size of the receive buffer after each chunk, and the number of receives for it."""
    out: list[tuple[int, int]] = []

    async def run() -> None:
        stream = ClientStream()
        connection = fixture.connection(stream)
        assert connection.idle_ms(fixture.env.monotonic_ms()) == 0, "nothing has begun"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.serve)
            await trio.testing.wait_all_tasks_blocked()
            for piece in pieces:
                before = stream.receives
                stream.send_bytes(piece)
                await trio.testing.wait_all_tasks_blocked()
                out.append((len(connection._buffer), stream.receives - before))
            stream.disconnect()
        assert len(stream.responses(BEAT, 0)) == len(pieces) - sum(not piece[:4] for piece in pieces)

    in_virtual_time(run)
    return out


def test_full_receive_buffer_doubles_up_to_one_mebibyte() -> None:
    with pytest.MonkeyPatch.context() as patch:
        fixture = DispatcherFixture(patch)
        fixture.serve(BEAT, lambda context, request: HeartbeatResponse())
        sizes = [4096, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 20]
        found = rooms(fixture, [padded(n, size) for n, size in enumerate(sizes)])
        assert [size for size, _ in found] == [1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 20, 1 << 20]


def test_receive_buffer_that_is_not_full_keeps_its_size() -> None:
    with pytest.MonkeyPatch.context() as patch:
        fixture = DispatcherFixture(patch)
        fixture.serve(BEAT, lambda context, request: HeartbeatResponse())
        assert [size for size, _ in rooms(fixture, [padded(1, 4095), padded(2, 100), padded(3, 4095)])] == [4096] * 3


@pytest.mark.parametrize(
    ("first", "come", "second", "receives"),
    [(2000, 100, 2096, 1), (2000, 100, 2097, 1), (2000, 100, 4096, 1), (4000, 3, 96, 1), (4000, 3, 97, 1)],
    ids=["fits behind it", "a byte too long", "as long as the buffer", "its length is cut", "cut, and too long"],
)
def test_started_frame_gets_buffer_for_its_whole_size(
    fixture: DispatcherFixture, first: int, come: int, second: int, receives: int
) -> None:
    """Otherwise it arrives in more chunks than necessary."""
    whole = padded(2, second)
    stream = ClientStream()
    counts: list[int] = []

    async def run() -> None:
        connection = fixture.connection(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.serve)
            stream.send_bytes(padded(1, first) + whole[:come])
            await trio.testing.wait_all_tasks_blocked()
            before = stream.receives
            stream.send_bytes(whole[come:])
            await trio.testing.wait_all_tasks_blocked()
            counts.append(stream.receives - before)
            stream.disconnect()

    in_virtual_time(run)
    assert [number for number, _ in stream.responses(BEAT, 0)] == [1, 2]
    # The pending frame had its buffer before the client sent the rest; another frame begins after it.
    assert counts[0] <= receives + (1 if come >= 4 else 2)
    if come >= 4:
        assert counts[0] == receives


def coordinators(rows: int) -> find_coordinator.FindCoordinatorResponse:
    return find_coordinator.FindCoordinatorResponse(
        coordinators=[find_coordinator.Coordinator(f"g{n}") for n in range(rows)]
    )


def produced(rows: int) -> produce.ProduceResponse:
    parts = [produce.PartitionProduceResponse(n) for n in range(rows)]
    return produce.ProduceResponse(responses=[produce.TopicProduceResponse("t", partition_responses=parts)])


def fetched(rows: int, session: int) -> fetch.FetchResponse:
    parts = [fetch.PartitionData(n, records=b"") for n in range(rows)]
    return fetch.FetchResponse(session_id=session, responses=[fetch.FetchableTopicResponse("t", partitions=parts)])


ENCODED = [
    (ApiKey.FIND_COORDINATOR, 4, find_coordinator.FindCoordinatorRequest(), coordinators(500), False),
    (ApiKey.FIND_COORDINATOR, 4, find_coordinator.FindCoordinatorRequest(), coordinators(501), True),
    (ApiKey.PRODUCE, 9, produce.ProduceRequest(None, 1, 1), produced(400), False),
    (ApiKey.PRODUCE, 9, produce.ProduceRequest(None, 1, 1), produced(600), True),
    (ApiKey.FETCH, 12, fetch.FetchRequest(), fetched(400, 7), False),
    (ApiKey.FETCH, 12, fetch.FetchRequest(), fetched(600, 0), True),
]


@pytest.mark.parametrize("is_job", [True, False])
@pytest.mark.parametrize(("key", "version", "request_body", "answer", "is_large"), ENCODED)
def test_response_of_a_job_is_encoded_by_a_job_where_it_has_many_elements(
    monkeypatch: pytest.MonkeyPatch,
    key: ApiKey,
    version: int,
    request_body: Any,
    answer: Any,
    *,
    is_large: bool,
    is_job: bool,
) -> None:
    """A response that no job computed is small, as handlers guarantee."""
    fixture = DispatcherFixture(monkeypatch)
    fixture.serve(key, lambda context, body: as_job(answer) if is_job else answer, 0, 20)
    sliced = []
    real = framing.encode_response_job
    monkeypatch.setattr(framing, "encode_response_job", lambda *expected: sliced.append(1) or real(*expected))
    stream = ClientStream()
    stream.send_bytes(frame(key, version, 1, request_body))
    stream.disconnect()

    async def run() -> None:
        await fixture.connection(stream).serve()

    in_virtual_time(run)
    assert bool(sliced) == (is_large and is_job)
    assert len(stream.responses(key, version)) == 1


@pytest.mark.parametrize(
    ("key", "body", "answer"),
    [
        (BEAT, HeartbeatRequest("g", 0, "m"), HeartbeatResponse()),
        (ApiKey.PRODUCE, produce.ProduceRequest(None, 1, 1), produce.ProduceResponse()),
    ],
)
def test_clock_is_read_after_each_request(fixture: DispatcherFixture, key: ApiKey, body: Any, answer: Any) -> None:
    def handler(context: Any, request: Any) -> Any:
        fixture.env.work(6.0)
        return answer

    fixture.serve(key, handler)
    stream = ClientStream()
    stream.send_bytes(b"".join(frame(key, 3 if key is ApiKey.PRODUCE else 0, n, body) for n in range(50)))
    stream.disconnect()
    found = 0

    async def run() -> None:
        nonlocal found
        async with trio.open_nursery() as nursery:

            async def other() -> None:
                nonlocal found
                while True:
                    await trio.lowlevel.checkpoint()
                    found += 1

            nursery.start_soon(other)
            await fixture.connection(stream).serve()
            nursery.cancel_scope.cancel()

    in_virtual_time(run)
    assert 21 <= found <= 28
