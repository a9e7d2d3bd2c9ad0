"""systemd notifications: sent states, and no error without a service manager."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from ottla.runtime.service_notification import ServiceNotifier


@pytest.fixture
def manager(tmp_path: Path) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(tmp_path / "n"))
    receiver.setblocking(False)
    return receiver


def test_notify_sends_state_to_service_manager_socket(manager: socket.socket, tmp_path: Path) -> None:
    with manager:
        ServiceNotifier({"NOTIFY_SOCKET": str(tmp_path / "n")}).notify("READY=1\nSTATUS=x")
        assert manager.recv(100) == b"READY=1\nSTATUS=x"


def test_notify_abstract_socket_address_begins_with_at_sign() -> None:
    name = f"ottla-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        receiver.setblocking(False)
        ServiceNotifier({"NOTIFY_SOCKET": "@" + name}).notify("STOPPING=1")
        assert receiver.recv(100) == b"STOPPING=1"


def test_notify_without_service_manager_is_no_error(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.WARNING)
    ServiceNotifier({}).notify("READY=1")
    assert not caplog.messages
    ServiceNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).notify("READY=1")
    assert caplog.messages == [f"Cannot notify systemd at {tmp_path / 'gone'}: No such file or directory"]


def test_notify_at_too_long_address_names_the_cause(caplog: pytest.LogCaptureFixture) -> None:
    ServiceNotifier({"NOTIFY_SOCKET": "/" + "x" * 200}).notify("READY=1")
    assert caplog.records[0].getMessage().endswith("AF_UNIX path too long")


@pytest.mark.parametrize(
    ("limit_us", "process_id", "interval_s"),
    [
        ("30000000", None, 15.0),
        pytest.param("30000000", str(os.getpid()), 15.0, id="30000000-own-15.0"),  # ids are equal in all workers
        ("30000000", "1", None),
        ("0", None, None),
        ("x", None, None),
        ("\u00b2", None, None),
    ],
)
def test_watchdog_interval_is_half_of_the_limit(limit_us: str, process_id: str | None, interval_s: float) -> None:
    values = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": limit_us}
    assert (
        ServiceNotifier(values if process_id is None else {**values, "WATCHDOG_PID": process_id}).watchdog_interval_s
        == interval_s
    )


def test_run_watchdog_notifies_while_event_loop_runs(manager: socket.socket, tmp_path: Path) -> None:
    notifier = ServiceNotifier({"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "2000000"})

    async def run() -> None:
        with trio.move_on_after(2.5):
            await notifier.run_watchdog()

    with manager:
        trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
        assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        with pytest.raises(BlockingIOError):
            manager.recv(100)
