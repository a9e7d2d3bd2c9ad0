"""``ottla health``: report whether a node on this machine is ready, for health checks of containers.

Only the modules of sockets and options are imported, since a container runs this command every few seconds.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import time
from collections.abc import Mapping

from ottla.cli.arguments import command_parser, seconds

HELP = """Report whether a node is ready. Exit status: 0 ready, 1 not ready or no response.

With an HTTP listener (ottla.metrics.listener, or KAFKA_OTTLA_METRICS_LISTENER in a container) its page /readyz is
read, which names the reasons. Without one, the node is ready once it answers ApiVersions at its plaintext listener
(the first of KAFKA_LISTENERS, default 127.0.0.1:9092).

examples:
  ottla health
  ottla health --http 127.0.0.1:9308
  ottla health --http 127.0.0.1:9308 --live          only whether the process responds
  HEALTHCHECK --interval=5s CMD ["ottla", "health"]   in a Dockerfile
"""
_MIN_TIMEOUT_S = 0.001
"""Minimum timeout of a socket in seconds: a timeout of 0 would make the socket non-blocking."""
_MAX_RESPONSE_BYTES = 64 * 1024
_API_VERSIONS_KEY = 18
_CORRELATION_ID = 1


class NotReady(Exception):
    """The node is not ready; the message has the reason in one line."""


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of ``ottla health``."""
    out = command_parser("health", HELP)
    out.add_argument("--http", metavar="HOST:PORT", help="HTTP listener of the node")
    out.add_argument("--bootstrap-server", "-b", metavar="HOST:PORT", help="plaintext listener of the node")
    out.add_argument("--live", action="store_true", help="check liveness instead of readiness (HTTP listener only)")
    out.add_argument("--timeout", type=seconds, default=3.0, metavar="S", help="seconds to wait (default 3)")
    return out


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` or ``NAME://HOST:PORT``; an unspecified host becomes the loopback address.

    Raises:
        NotReady: the text has another form.
    """
    host, separator, port = text.rpartition("://")[2].rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise NotReady(f"malformed address: {text} (HOST:PORT)")
    host = host.strip("[]")
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port)  # noqa: S104 - compared


def listener_from_environment(environment: Mapping[str, str]) -> str:
    """Return the first listener in ``KAFKA_LISTENERS`` that is not a controller listener, else ``127.0.0.1:9092``.

    The result may have the form ``NAME://HOST:PORT``.
    """
    controllers = {x.strip().upper() for x in environment.get("KAFKA_CONTROLLER_LISTENER_NAMES", "").split(",")}
    for listener in environment.get("KAFKA_LISTENERS", "").split(","):
        if listener.strip() and listener.strip().partition("://")[0].upper() not in controllers:
            return listener.strip()
    return "127.0.0.1:9092"


def _exchange(address: tuple[str, int], request: bytes, timeout_s: float, size: int) -> bytes:
    """Send a request over a new connection to ``address``; return up to ``size`` bytes of the response.

    There are fewer bytes if the peer closes the connection.

    Raises:
        NotReady: malformed host name.
        OSError: no connection, or the response is incomplete after ``timeout_s``.
    """
    received, deadline_s = b"", time.monotonic() + timeout_s
    try:
        with socket.create_connection(address, max(timeout_s, _MIN_TIMEOUT_S)) as connection:
            connection.sendall(request)
            while len(received) < size:
                connection.settimeout(max(deadline_s - time.monotonic(), _MIN_TIMEOUT_S))
                chunk = connection.recv(size - len(received))
                if not chunk:
                    break
                received += chunk
                if time.monotonic() > deadline_s:
                    raise TimeoutError
    except UnicodeError:  # a name that DNS cannot have: a label of more than 63 characters, or an empty one
        raise NotReady(f"malformed host name: {address[0]}") from None
    return received


def check_http(address: tuple[str, int], path: str, timeout_s: float) -> None:
    """Send GET for ``path`` (``/readyz`` or ``/livez``) to the HTTP listener ``address``; return if the status is 200.

    Raises:
        NotReady: the node is not ready (status 503, the message has its reasons), the response is unexpected, or the
            host name is malformed.
        OSError: no connection, or the response is incomplete after ``timeout_s``.
    """
    response = _exchange(address, f"GET {path} HTTP/1.0\r\n\r\n".encode(), timeout_s, _MAX_RESPONSE_BYTES)
    head, _, body = response.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status == [b"200"]:
        return
    if status != [b"503"]:
        first_line = head.split(b"\r\n")[0].decode("latin-1") or "no response"
        raise NotReady(f"unexpected HTTP response: {first_line}")
    # lazy: 0.0 ms, 0 kB: only for a node that is not ready
    import json

    try:
        reasons = [str(reason["message"]) for reason in json.loads(body)["reasons"]]
    except (ValueError, LookupError, TypeError):  # response of another server, or truncated
        raise NotReady("unexpected HTTP response: 503 without reasons of a node") from None
    raise NotReady("; ".join(reasons) or "no reason given")


def check_kafka(address: tuple[str, int], timeout_s: float) -> None:
    """Send ApiVersions v0, which every plaintext listener answers before authentication, and check the response.

    Raises:
        NotReady: the connection was closed, the response is malformed or an error, or the host name is malformed.
        OSError: no connection, or the response is incomplete after ``timeout_s``.
    """
    body = struct.pack(">hhih", _API_VERSIONS_KEY, 0, _CORRELATION_ID, -1)
    response = _exchange(address, struct.pack(">i", len(body)) + body, timeout_s, 10)
    if len(response) < 10 or struct.unpack(">iih", response)[1:] != (_CORRELATION_ID, 0):
        raise NotReady("no ApiVersions response; for a listener with TLS, set ottla.metrics.listener and --http")


def run(arguments: list[str]) -> int:
    """Run ``ottla health``; print the state, and return exit status 0 if the node is ready, else 1.

    The status is also 1 without a response.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = parser().parse_args(arguments)
    http = options.http or (None if options.bootstrap_server else os.environ.get("KAFKA_OTTLA_METRICS_LISTENER"))
    text = http or options.bootstrap_server or listener_from_environment(os.environ)
    try:
        if http:
            check_http(parse_address(http), "/livez" if options.live else "/readyz", options.timeout)
        else:
            check_kafka(parse_address(text), options.timeout)
    except NotReady as error:
        print(f"ottla health: not ready: {text}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"ottla health: no response: {text}: {error.strerror or 'timed out'}", file=sys.stderr)
        return 1
    print(f"{'live' if options.live else 'ready'}: {text}")
    return 0
