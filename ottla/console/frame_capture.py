"""Capture of the frames of one connection: its newest requests and responses, shown as explained fields.

A connection is observed only while a page shows it. Secrets are left out, as in ``ottla trace``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ottla.broker.config.limits import MAX_CONSOLE_FRAME_BYTES, MAX_CONSOLE_FRAMES
from ottla.broker.network.connection import Connection
from ottla.broker.requests.peer import Peer
from ottla.env.disk import FileSlice
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.tools.trace import format_message
from ottla.wire.api_keys import ApiKey, request_class, response_class, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.codec.decode_budget import DecodeBudget
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.field_dump import Explainer
from ottla.wire.framing import RequestFrame
from ottla.wire.messages.headers import ResponseHeader

_MAX_LINES = 300
_DECODED_BYTES = 64 * 1024 * 1024


class CapturedExchange:
    """Captured request, and its response if there is one."""

    def __init__(self, number: int, request: RequestFrame, raw: bytes | None, at_ms: float) -> None:
        self.number = number
        self.key = request.key
        self.version = request.version
        self.response_version = request.response_version
        self.correlation_id = request.correlation_id
        self.client_id = request.client_id
        self.request_bytes = len(request.frame)
        self.body_position = request.body_position
        self.request = raw
        """None: too large to be kept."""
        self.request_text = ""
        """Fields of the request; empty until `format`."""
        self.response: bytes | None = None
        self.response_text = ""
        self.response_bytes: int | None = None
        self.started_ms = at_ms
        self.elapsed_ms: float | None = None

    @property
    def name(self) -> str:
        """API and version, such as ``Fetch v17``."""
        return f"{self.key.api_name} v{self.version}"

    def format(self) -> Job[None]:
        """Set `request_text` and `response_text` once; yields for other tasks, since decoding may take long."""
        if not self.request_text:
            self.request_text = f"{self.request_bytes:,} bytes: too large to be shown"
            if self.request is not None:
                self.request_text = yield from _format(
                    request_class(self.key), self.version, self.request, self.body_position
                )
        if not self.response_text and self.response_bytes is not None:
            self.response_text = f"{self.response_bytes:,} bytes: too large to be shown"
            if self.response is not None:
                version = self.response_version
                header = response_header_version(self.key, version)
                _, position = compiler.decode(ResponseHeader, header, self.response, 4)
                self.response_text = yield from _format(response_class(self.key), version, self.response, position)


def _format(message_class: type[Message], version: int, raw: bytes, position: int) -> Job[str]:
    """Return a message as lines, each field below its explanation."""
    try:
        budget = DecodeBudget(_DECODED_BYTES)
        body, _ = yield from compiler.decode_job(message_class, version, memoryview(raw), position, budget)
    except WireError as error:
        return str(error)
    lines: list[str] = []
    for line in format_message(body, version, 0, explainer=Explainer()):
        lines.append(line)
        if len(lines) == _MAX_LINES:
            lines.append("…")
            break
        yield None
    return "\n".join(lines) or "no fields"


class FrameCapture:
    """Observer of a connection that stores its newest requests and responses."""

    def __init__(self, env: Env, connection: Connection) -> None:
        self._env = env
        self._number = 0
        self._pending: CapturedExchange | None = None
        self._unseen = 0
        self.exchanges: deque[CapturedExchange] = deque(maxlen=MAX_CONSOLE_FRAMES)
        self.is_changed = True
        """True if a frame was captured since `read_exchanges`."""
        self.close = connection.observe(self)

    def read_exchanges(self) -> Job[list[CapturedExchange]]:
        """Return the captured exchanges with their texts, the newest first; yields for other tasks."""
        self.is_changed, self._unseen = False, 0
        exchanges = list(reversed(self.exchanges))
        for exchange in exchanges:
            yield from exchange.format()
        return exchanges

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Store a request, unless `MAX_CONSOLE_FRAMES` requests were captured since the last `read_exchanges`."""
        self._number += 1
        self._pending = None
        if self._unseen >= MAX_CONSOLE_FRAMES:
            return
        self._unseen += 1
        raw = bytes(request.frame) if len(request.frame) <= MAX_CONSOLE_FRAME_BYTES else None
        self._pending = CapturedExchange(self._number, request, raw, self._env.monotonic_ms())
        self.exchanges.append(self._pending)
        self.is_changed = True

    def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
        """Do nothing: the response is stored when it is sent."""

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Any], size_bytes: int) -> None:
        """Store the encoded response of the captured request."""
        exchange = self._pending
        if exchange is None or exchange.correlation_id != request.correlation_id:
            return
        exchange.elapsed_ms = self._env.monotonic_ms() - exchange.started_ms
        exchange.response_bytes = size_bytes
        if size_bytes <= MAX_CONSOLE_FRAME_BYTES and request.key is not ApiKey.SASL_AUTHENTICATE:
            pieces = (chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in chunks)
            exchange.response = b"".join(pieces)
        self.is_changed = True


class ConnectionNumbers:
    """Numbers that identify connections in the pages' URLs."""

    def __init__(self) -> None:
        self._numbers: dict[Connection, int] = {}
        self._last = 0

    def assign(self, connections: Sequence[Connection]) -> list[int]:
        """Return the number of each connection, new ones for new connections; closed connections are dropped.

        ``connections`` must contain all connections of the node.
        """
        known = self._numbers
        self._numbers = {}
        for connection in connections:
            number = known.get(connection)
            if number is None:
                self._last += 1
                number = self._last
            self._numbers[connection] = number
        return list(self._numbers.values())

    def find(self, number: int) -> Connection | None:
        """Return the connection with a number; None if it is closed."""
        return next((each for each, its in self._numbers.items() if its == number and not each.is_closed), None)
