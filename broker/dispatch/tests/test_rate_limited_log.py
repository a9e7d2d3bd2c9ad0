"""Log messages that any client can cause."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.broker.config.limits import MAX_LOG_LINES_PER_MINUTE
from ottla.broker.dispatch.rate_limited_log import RateLimitedLog
from ottla.broker.network.connection import Connection
from ottla.broker.network.secure_connection import SecureConnection
from ottla.broker.network.tests.test_secure_connection import listener_security, login
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, in_virtual_time

logger = logging.getLogger("ottla.test")


class ConnectionLogClock:
    def __init__(self) -> None:
        self.ms = 5.0

    def monotonic_ms(self) -> float:
        return self.ms


def test_rate_limited_log_suppresses_messages_over_limit_per_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock: Any = ConnectionLogClock()
    complaints = RateLimitedLog(clock, "IN")
    for number in range(1000):
        complaints.log(logger, logging.WARNING, "broke %d", number)
    assert len(caplog.messages) == MAX_LOG_LINES_PER_MINUTE + 1
    assert caplog.messages[-2:] == [
        f"broke {MAX_LOG_LINES_PER_MINUTE - 1}",
        "Listener IN: suppressing log messages about connections for a minute",
    ]
    clock.ms += 60_000
    complaints.log(logger, logging.WARNING, "again")
    assert caplog.messages[-2:] == [
        f"Listener IN: {1000 - MAX_LOG_LINES_PER_MINUTE} similar log messages were suppressed",
        "again",
    ]


def test_failed_logins_are_rate_limited_in_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fixture, security = DispatcherFixture(monkeypatch), listener_security()
    caplog.set_level(logging.INFO)

    async def run() -> None:
        for _ in range(3 * MAX_LOG_LINES_PER_MINUTE):
            stream = ClientStream()
            stream.send_bytes(login("wrong"))
            await SecureConnection(fixture.dispatcher, stream, security).serve()

    in_virtual_time(run)
    assert len(caplog.messages) == MAX_LOG_LINES_PER_MINUTE + 1


def test_invalid_frames_are_rate_limited_in_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fixture = DispatcherFixture(monkeypatch)
    caplog.set_level(logging.INFO)

    async def run() -> None:
        for _ in range(3 * MAX_LOG_LINES_PER_MINUTE):
            stream = ClientStream()
            stream.send_bytes(b"\xff\xff\xff\xff")
            await Connection(fixture.dispatcher, stream).serve()

    in_virtual_time(run)
    assert len(caplog.messages) == MAX_LOG_LINES_PER_MINUTE + 1
