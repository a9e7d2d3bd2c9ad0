"""``ottla health``: exit status and reasons, from the HTTP listener and from a plaintext listener."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from ottla.cli.commands import health
from ottla.cli.commands.health import listener_from_environment
from ottla.cli.tests.command_runs import CommandRun, run_command


@contextmanager
def server(response: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Run a server that sends one response after the first bytes it receives."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            stream, _ = listener.accept()
            with stream:
                received.append(stream.recv(1000))
                stream.sendall(response)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", received
        thread.join(60)


def check(response: bytes, option: str, *more: str) -> tuple[CommandRun, bytes]:
    with server(response) as (address, received):
        found = run_command("health", option, address, *more)
    return CommandRun(found.status, found.out, found.err.replace(address, "HOST")), received[0]


def test_health_ready_node_returns_status_0() -> None:
    found, request = check(b"HTTP/1.1 200 OK\r\n\r\n{}", "--http")
    assert (found.status, found.err) == (0, "")
    assert found.out.startswith(b"ready: 127.0.0.1:")
    assert request.startswith(b"GET /readyz HTTP/1.0\r\n")


def test_health_live_requests_livez() -> None:
    found, request = check(b"HTTP/1.1 200 OK\r\n\r\n{}", "--http", "--live")
    assert found.out.startswith(b"live: 127.0.0.1:")
    assert request.startswith(b"GET /livez ")


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (b'HTTP/1.1 503 x\r\n\r\n{"reasons": [{"message": "a"}, {"message": "b"}]}', "a; b"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "unexpected HTTP response: HTTP/1.1 404 Not Found"),
        (b"\0\0\0", "unexpected HTTP response: \\x00\\x00\\x00"),
        (b"", "unexpected HTTP response: no response"),
        *(
            (b"HTTP/1.1 503 x\r\n\r\n" + body, "unexpected HTTP response: 503 without reasons of a node")
            for body in (b"<html>", b"[]", b"{}", b'{"reasons": [{}]}', b'{"reasons": "abc"}', b"\xff", b'{"reas')
        ),
        (b'HTTP/1.1 503 x\r\n\r\n{"reasons": []}', "no reason given"),
    ],
)
def test_health_node_not_ready_prints_reasons(response: bytes, message: str) -> None:
    found, _ = check(response, "--http")
    assert (found.status, found.out) == (1, b"")
    assert found.err == f"ottla health: not ready: HOST: {message}\n"


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (b"\0\0\0\x0a\0\0\0\x01\0\0\0\0\0\0", 0),
        (b"\0\0\0\x0a\0\0\0\x02\0\0\0\0\0\0", 1),
        (b"\0\0\0\x0a\0\0\0\x01\0\x23\0\0\0\0", 1),
        (b"\x15\x03\x01", 1),
        (b"", 1),
    ],
)
def test_health_bootstrap_server_sends_api_versions(response: bytes, status: int) -> None:
    found, request = check(response, "--bootstrap-server")
    assert found.status == status
    assert request == b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff"
    assert ("no ApiVersions response" in found.err) == (status == 1)


def test_health_has_one_time_limit_for_the_whole_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends a byte now and then does not prolong it."""
    times = iter(range(0, 1000, 6))
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with server(b"HTTP/1.1 200 OK\r\n\r\n") as (address, _):
        assert health.run(["--http", address, "--timeout", "5"]) == 1


@pytest.mark.parametrize("name", ["a" * 64, "a..b"])
def test_health_refuses_names_that_dns_cannot_have(name: str) -> None:
    found = run_command("health", "--http", f"{name}:80")
    assert (found.status, found.err) == (
        1,
        f"ottla health: not ready: {name}:80: malformed host name: {name}\n",
    )


def test_health_stopped_node_prints_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    found = run_command("health", "--http", address)
    assert (found.status, found.err) == (1, f"ottla health: no response: {address}: Connection refused\n")


@pytest.mark.parametrize("text", ["x", "x:y", "x:0", "x:65536", "x:-1"])
def test_health_malformed_address_returns_status_1(text: str) -> None:
    found = run_command("health", "--http", text)
    assert (found.status, found.err) == (
        1,
        f"ottla health: not ready: {text}: malformed address: {text} (HOST:PORT)\n",
    )


@pytest.mark.parametrize(
    ("environment", "listener"),
    [
        ({}, "127.0.0.1:9092"),
        ({"KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "PLAINTEXT://:9092"),
        (
            {"KAFKA_LISTENERS": "CONTROLLER://:9093, A://:1", "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER"},
            "A://:1",
        ),
    ],
)
def test_health_uses_first_client_listener_of_container(environment: dict[str, str], listener: str) -> None:
    assert listener_from_environment(environment) == listener
