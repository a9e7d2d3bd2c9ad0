"""Large requests: decoded within a budget, at once where records make them large, in slices where elements do."""

from __future__ import annotations

import errno
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.api_spec import LARGE_BYTES
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.network.bound_listeners import BindError, BoundListeners
from ottla.broker.requests.peer import Peer
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, frame, in_virtual_time
from ottla.broker.tests.handler_fixture import start
from ottla.jobs.time_slice import SLICE_MS
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.framing import parse_request
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

FIND = ApiKey.FIND_COORDINATOR


def answered(fixture: DispatcherFixture, raw: bytes) -> Any:
    result = fixture.dispatcher.handle_request(Peer("h", ("a", 1)), parse_request(memoryview(raw)[4:]))
    return start(result, each_ms=SLICE_MS / 8)


def find(count: int, more_bytes: int = 0) -> bytes:
    return frame(FIND, 4, 1, FindCoordinatorRequest("", 0, [f"{n:06}" for n in range(count)])) + bytes(more_bytes)


@pytest.mark.parametrize(
    ("raw", "prepares"),
    [
        (find(1), False),
        (find(2300), False),
        (find(100, LARGE_BYTES), False),
        (find(2400), True),
        (find(64 * 8 - 1, LARGE_BYTES), False),
        (find(64 * 8, LARGE_BYTES), True),
    ],
    ids=["small", "just below 16 KiB", "few elements", "many elements", "seven stops", "eight stops"],
)
def test_request_with_many_elements_is_decoded_in_slices(
    monkeypatch: pytest.MonkeyPatch, raw: bytes, *, prepares: bool
) -> None:
    fixture = DispatcherFixture(monkeypatch)
    fixture.serve(FIND, lambda context, request: (context.version, len(request.coordinator_keys)))

    async def run() -> None:
        result = answered(fixture, raw)
        assert isinstance(result, Awaitable) == prepares
        if isinstance(result, Awaitable):
            result = await result
        assert result[0] == 4
        assert result[1] > 0

    in_virtual_time(run)


def test_request_with_large_records_is_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = DispatcherFixture(monkeypatch)
    fixture.serve(ApiKey.PRODUCE, lambda context, request: request.topic_data[0].partition_data[0].records)
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, b"x" * 200_000)])]

    async def run() -> None:
        assert len(answered(fixture, frame(ApiKey.PRODUCE, 9, 1, ProduceRequest(None, 1, 1, data)))) == 200_000

    in_virtual_time(run)


def test_request_over_decode_budget_closes_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = DispatcherFixture(monkeypatch)
    seen: list[Message] = []
    fixture.serve(FIND, lambda context, request: seen.append(request))

    async def run() -> None:
        raw = frame(FIND, 4, 1, FindCoordinatorRequest("", 0, [""] * 3_000_000))
        with pytest.raises(WireError, match="far more memory"):
            await answered(fixture, raw)

    in_virtual_time(run)
    assert seen == []


@pytest.mark.parametrize("count", [1, 500, 501, 5000])
def test_large_response_in_slices_equals_encoding_at_once(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    fixture = DispatcherFixture(monkeypatch)
    rows = [Coordinator(f"g{n}", n, "host", 9092, 0, "") for n in range(count)]
    fixture.serve(FIND, lambda context, request: FindCoordinatorResponse(coordinators=rows))
    stream = ClientStream()
    stream.send_bytes(find(3) + find(3))
    stream.disconnect()

    async def run() -> None:
        await fixture.connection(stream).serve()

    in_virtual_time(run)
    assert stream.responses(FIND, 4) == [(1, FindCoordinatorResponse(coordinators=rows))] * 2


def test_large_request_of_disconnected_client_is_processed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With acks=0 the client waits for no response, and relies on the append."""
    fixture = DispatcherFixture(monkeypatch)
    seen: list[int] = []
    parts = [PartitionProduceData(n, b"x" * 100) for n in range(2000)]
    body = ProduceRequest(None, 0, 1, [TopicProduceData("t", partition_data=parts)])

    def handler(context: Any, request: Any) -> None:
        seen.append(len(request.topic_data[0].partition_data))

    fixture.serve(ApiKey.PRODUCE, handler)
    stream = ClientStream()
    stream.send_bytes(frame(ApiKey.PRODUCE, 9, 1, body))
    stream.disconnect()

    async def run() -> None:
        await fixture.connection(stream).serve()

    in_virtual_time(run)
    assert seen == [2000]


@pytest.mark.parametrize(
    ("error", "host", "text"),
    [
        (OSError(errno.EADDRINUSE, "x"), "10.0.0.1", "10.0.0.1:9092: Address already in use"),
        (OSError(errno.EADDRINUSE, "x"), "", "*:9092: Address already in use"),
        (OSError(-2, "Name not known"), "nowhere", "nowhere:9092: Name not known"),
        (OSError("odd"), "h", "h:9092: odd"),
    ],
)
def test_bind_error_names_address(error: OSError, host: str, text: str) -> None:
    async def refuse(*_: Any) -> Any:
        raise error

    async def run() -> None:
        env: Any = SimpleNamespace(net=SimpleNamespace(listen=refuse))
        with pytest.raises(BindError) as raised:
            await BoundListeners(env, NodeConfig(host=host, port=9092)).bind_clients()
        assert str(raised.value) == f"Socket server failed to bind to {text}"

    in_virtual_time(run)
