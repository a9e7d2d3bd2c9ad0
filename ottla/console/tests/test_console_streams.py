"""Streams of a session; audit of cancelled changes."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any

import pytest
import trio

from ottla.broker.config.limits import MAX_CONSOLE_STREAMS
from ottla.broker.network.http.http_messages import HttpRequest, HttpResponse
from ottla.console.console_app import Console
from ottla.console.page import Change, PageRequest, confirm_and_execute
from ottla.console.sessions import Session

UNUSED: Any = None
REQUEST = HttpRequest("GET", "/live/", {}, "10.0.0.9")
SESSION = Session("id", "token", "User:alice", True)


async def pieces() -> AsyncGenerator[bytes, None]:
    while True:
        yield b"piece"


class ConsoleStub:
    """Streams of a console without a node."""

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
