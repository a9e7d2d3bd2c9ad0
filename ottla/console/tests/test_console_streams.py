"""Streams of a session; audit of cancelled changes."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from ottla.broker.config.limits import MAX_CONSOLE_STREAMS
from ottla.broker.network.http.http_messages import HttpRequest, HttpResponse
from ottla.console.console_app import Console
from ottla.console.page import Change, InvalidInput, PageRequest, Route, View, confirm_and_execute
from ottla.console.pages.routes import PAGES
from ottla.console.sessions import Session

UNUSED: Any = None
REQUEST = HttpRequest("GET", "/live/", {}, "10.0.0.9")
SESSION = Session("id", "token", "User:alice", True)


async def pieces() -> AsyncGenerator[bytes, None]:
    while True:
        yield b"piece"


class ConsoleStub:
    """Streams of a console without a node."""

    _live_block = Console._live_block

    def __init__(self) -> None:
        self.stream_count = 0
        self.is_logged_in = True

    def has_session(self, *_: object) -> bool:
        return self.is_logged_in

    def respond(self) -> HttpResponse:
        this: Any = self
        response = HttpResponse(HTTPStatus.OK, b"")
        return Console.limit_streams(this, response, pieces(), REQUEST, SESSION)


def test_streams_count_from_their_response_on() -> None:
    async def run() -> None:
        console = ConsoleStub()
        responses = [console.respond() for _ in range(MAX_CONSOLE_STREAMS + 2)]
        assert [each.status for each in responses[-3:]] == [200, 503, 503]
        body: Any = responses[0].body
        await body.aclose()
        await body.aclose()
        assert [console.respond().status for _ in range(2)] == [200, 503]

    trio.run(run)


def test_stream_breaks_off_when_its_session_ends() -> None:
    async def run() -> None:
        console = ConsoleStub()
        body: Any = console.respond().body
        assert await anext(aiter(body)) == b"piece"
        console.is_logged_in = False
        with pytest.raises(OSError, match="the session has ended"):
            await anext(aiter(body))

    trio.run(run)


def test_pause_between_updates_grows_with_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    took_s, pauses = 3.0, list[float]()

    async def update(_: PageRequest) -> View:
        nonlocal now_ms
        now_ms += took_s * 1000
        raise InvalidInput("nothing to show")

    async def sleep(seconds: float) -> None:
        nonlocal took_s
        pauses.append(seconds)
        took_s = 0.0
        console.is_logged_in = len(pauses) < 2

    async def run() -> None:
        console.env = SimpleNamespace(monotonic_ms=lambda: now_ms, sleep=sleep)
        page = PageRequest(UNUSED, REQUEST, SESSION, UNUSED, {}, {})
        async for _ in Console._page_events(console, REQUEST, page):
            pass
        assert pauses == [12.0, 2.0]

    now_ms, console = 0.0, cast("Any", ConsoleStub())
    monkeypatch.setitem(PAGES, "/", Route(UNUSED, update))
    trio.run(run)


@pytest.mark.parametrize(
    ("failure", "result"), [(None, "done"), (OSError("broken"), "failed: broken"), (trio.Cancelled, "may have been")]
)
def test_change_is_logged_when_its_request_is_cancelled(
    failure: Any, result: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def execute() -> str:
        if isinstance(failure, Exception):
            raise failure
        if failure is trio.Cancelled:
            scope.cancel()
            await trio.sleep_forever()
        return "changed"

    async def run() -> None:
        page = PageRequest(UNUSED, REQUEST, SESSION, UNUSED, {"confirmed": "yes"}, {})
        with scope:
            await confirm_and_execute(page, Change("Delete topic orders", [], "Delete", execute, "/"))

    scope = trio.CancelScope()
    with caplog.at_level(logging.INFO, "ottla.console"):
        try:
            trio.run(run)
        except OSError:
            assert failure is not None
    (record,) = caplog.records
    assert "User:alice from host = 10.0.0.9: Delete topic orders: " in record.getMessage()
    assert result in record.getMessage()
