"""Lines in the log that anybody who connects can have written."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.broker.server.complaints import A_MINUTE, Complaints
from ottla.broker.server.connection import Connection
from ottla.broker.server.guarded import GuardedConnection
from ottla.broker.tests.line import Line, Stage, in_virtual_time
from ottla.broker.tests.test_guarded import door, login

logger = logging.getLogger("ottla.test")


class Clock:
    def __init__(self) -> None:
        self.ms = 5.0

    def monotonic_ms(self) -> float:
        return self.ms


def test_so_many_lines_a_minute_and_then_only_how_often(caplog: pytest.LogCaptureFixture) -> None:
    clock: Any = Clock()
    complaints = Complaints(clock, "IN")
    for number in range(1000):
        complaints.say(logger, logging.WARNING, "broke %d", number)
    assert len(caplog.messages) == A_MINUTE + 1
    assert caplog.messages[-2:] == [
        f"broke {A_MINUTE - 1}",
        "listener IN: no more lines of connections for a minute",
    ]
    clock.ms += 60_000
    complaints.say(logger, logging.WARNING, "again")
    assert caplog.messages[-2:] == [f"listener IN: {1000 - A_MINUTE} more lines like the last ones", "again"]


def test_failed_logins_do_not_fill_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    stage, asked = Stage(monkeypatch), door()
    caplog.set_level(logging.INFO)

    async def run() -> None:
        for _ in range(3 * A_MINUTE):
            line = Line()
            line.say(login("wrong"))
            await GuardedConnection(stage.dispatcher, line, asked).serve()

    in_virtual_time(run)
    assert len(caplog.messages) == A_MINUTE + 1


def test_broken_frames_do_not_fill_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(monkeypatch)
    caplog.set_level(logging.INFO)

    async def run() -> None:
        for _ in range(3 * A_MINUTE):
            line = Line()
            line.say(b"\xff\xff\xff\xff")
            await Connection(stage.dispatcher, line).serve()

    in_virtual_time(run)
    assert len(caplog.messages) == A_MINUTE + 1
