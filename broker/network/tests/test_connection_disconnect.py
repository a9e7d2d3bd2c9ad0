"""A peer that leaves while its request waits, and one that stays and says nothing."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.network.tests.test_connection import BEAT, beat, served
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, frame, in_virtual_time
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.produce import ProduceRequest


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> DispatcherFixture:
    stage = DispatcherFixture(monkeypatch)
    stage.serve(BEAT, lambda context, request: HeartbeatResponse(error_code=7))
    return stage


# ---------------------------------------------------------------- leaving


class BlockingHandler:
    """A handler that waits until it is told to go on."""

    def __init__(self) -> None:
        self.go_on = trio.Event()
        self.outcome = "not asked"

    def handle(self, context: Any, request: Any) -> Any:
        return self._wait()

    async def _wait(self) -> Any:
        self.outcome = "waiting"
        try:
            await self.go_on.wait()
        except trio.Cancelled:
            self.outcome = "given up"
            raise
        self.outcome = "answered"
        return JoinGroupResponse()


def park(stage: DispatcherFixture, line: ClientStream, raw: bytes, key: ApiKey, **more: Any) -> BlockingHandler:
    """A parked request whose client leaves."""
    parked = BlockingHandler()
    stage.serve(key, parked.handle, **more)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            connection = stage.connection(line)
            nursery.start_soon(connection.serve)
            line.send_bytes(raw)
            await trio.testing.wait_all_tasks_blocked()
            assert parked.outcome == "waiting"
            line.disconnect()
            await trio.testing.wait_all_tasks_blocked()
            parked.go_on.set()

    in_virtual_time(run)
    return parked


def test_a_parked_request_is_given_up_when_its_client_leaves(stage: DispatcherFixture) -> None:
    line = ClientStream()
    raw = frame(ApiKey.JOIN_GROUP, 0, 1, JoinGroupRequest())
    parked = park(stage, line, raw, ApiKey.JOIN_GROUP, cancel_on_disconnect=True)
    assert parked.outcome == "given up"
    assert line.is_closed
    assert line.received == b""


def test_what_was_sent_behind_a_parked_request_still_counts(stage: DispatcherFixture) -> None:
    line = ClientStream()
    seen: list[int] = []
    stage.serve(ApiKey.PRODUCE, lambda context, request: seen.append(request.timeout_ms))
    raw = frame(ApiKey.JOIN_GROUP, 0, 1, JoinGroupRequest()) + frame(ApiKey.PRODUCE, 3, 2, ProduceRequest(None, 0, 77))
    park(stage, line, raw, ApiKey.JOIN_GROUP, cancel_on_disconnect=True)
    assert seen == [77]


def test_two_parked_requests_of_a_client_that_left_are_both_given_up(stage: DispatcherFixture) -> None:
    line = ClientStream()
    raw = b"".join(frame(ApiKey.JOIN_GROUP, 0, n, JoinGroupRequest()) for n in (1, 2))
    assert park(stage, line, raw, ApiKey.JOIN_GROUP, cancel_on_disconnect=True).outcome == "given up"


def test_a_change_goes_on_to_its_end_though_its_client_left(stage: DispatcherFixture) -> None:
    line = ClientStream()
    raw = frame(ApiKey.JOIN_GROUP, 0, 1, JoinGroupRequest())
    assert park(stage, line, raw, ApiKey.JOIN_GROUP).outcome == "answered"


def test_whoever_waits_for_a_peer_hears_of_its_leaving(stage: DispatcherFixture) -> None:
    told: list[str] = []

    def handler(context: Any, request: Any) -> Any:
        context.peer.on_close(lambda: told.append("first"))
        context.peer.on_close(lambda: told.append("taken back"))()
        context.peer.on_close(lambda: told.append("second"))
        return HeartbeatResponse()

    stage.serve(BEAT, handler)
    line = ClientStream()
    line.send_bytes(beat(1))
    line.disconnect()
    served(stage, line)
    assert told == ["first", "second"]


@pytest.mark.parametrize("error", [KeyError("k"), AssertionError("an invariant")])
def test_disconnect_callback_that_raises_is_contained_unless_it_is_a_broken_invariant(
    stage: DispatcherFixture, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def fail() -> None:
        raise error

    def handler(context: Any, request: Any) -> Any:
        context.peer.on_close(fail)
        context.peer.on_close(lambda: told.append("second"))
        return HeartbeatResponse()

    stage.serve(BEAT, handler)
    line = ClientStream()
    line.send_bytes(beat(1))
    line.disconnect()
    if isinstance(error, AssertionError):
        with pytest.raises(AssertionError, match="an invariant"):
            served(stage, line)
    else:
        served(stage, line)
        assert [record.message for record in caplog.records] == [
            f"Disconnect callback failed: connection from {line.peer}"
        ]
    assert told == ["second"], "the others are called all the same"


def test_a_stopping_node_ends_a_parked_request_and_its_connection(stage: DispatcherFixture) -> None:
    parked = BlockingHandler()
    stage.serve(ApiKey.FETCH, parked.handle, cancel_on_disconnect=True)
    line = ClientStream()
    line.send_bytes(frame(ApiKey.FETCH, 4, 1, FetchRequest()))

    async def run() -> None:
        with trio.move_on_after(1):
            await stage.connection(line).serve()

    in_virtual_time(run)
    assert parked.outcome == "given up"
    assert line.is_closed


# ---------------------------------------------------------------- silence


def idle(stage: DispatcherFixture, line: ClientStream, after_s: float) -> float:
    """For how long a connection counts as silent, so long after it was made."""
    found = -1.0

    async def run() -> None:
        nonlocal found
        async with trio.open_nursery() as nursery:
            connection = stage.connection(line)
            nursery.start_soon(connection.serve)
            await trio.sleep(after_s)
            found = connection.idle_ms(stage.env.monotonic_ms())
            line.disconnect()
            line.close()

    in_virtual_time(run)
    return found


def test_a_client_that_says_nothing_is_silent(stage: DispatcherFixture) -> None:
    assert idle(stage, ClientStream(), 5) == pytest.approx(5000)


def test_a_client_whose_request_is_worked_on_is_not(stage: DispatcherFixture) -> None:
    async def slow() -> HeartbeatResponse:
        await trio.sleep(100)
        return HeartbeatResponse()

    stage.serve(BEAT, lambda context, request: slow())
    line = ClientStream()
    line.send_bytes(beat(1))
    assert idle(stage, line, 5) == 0


def test_a_client_that_does_not_read_its_answer_is_silent(stage: DispatcherFixture) -> None:
    line = ClientStream(reads=False)
    line.send_bytes(beat(1))

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            connection = stage.connection(line)
            nursery.start_soon(connection.serve)
            await trio.sleep(5)
            now = stage.env.monotonic_ms
            assert connection.idle_ms(now()) == 0, "it has just begun to wait"
            await trio.sleep(5)
            assert connection.idle_ms(now()) == pytest.approx(5000)
            line.read_more()
            await trio.testing.wait_all_tasks_blocked()
            assert connection.idle_ms(now()) == 0, "it reads, however slowly"
            connection.close()

    in_virtual_time(run)
    assert line.is_closed
