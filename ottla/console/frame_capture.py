"""Capture of the frames of a connection or of an API: the newest requests and responses, with the time of each stage.

Connections are observed only while a page shows their frames. The frames stay for the pages of single frames, until
newer captures replace them. They are stored as they are; secrets are left out when they are shown, as in ``ottla
trace``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence, Set
from typing import Any, NamedTuple

from ottla.broker.config.limits import MAX_CONSOLE_CAPTURES, MAX_CONSOLE_FRAME_BYTES, MAX_CONSOLE_FRAMES
from ottla.broker.network.connection import Connection
from ottla.broker.observability.request_observers import ALL_APIS, NO_APIS, PreparedRequestCounts
from ottla.broker.requests.peer import Peer
from ottla.console.frame_fields import (
    FrameFieldList,
    request_fields,
    response_fields,
    visible_request,
    visible_response,
)
from ottla.console.pcap import PcapFrame
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
FLOODED_FRAMES = 5
"""Requests that a capture stores between two readings while more come than it could show."""
_SIZE_BYTES = 4
"""Bytes of the size before a frame."""


class StageTimes(NamedTuple):
    """Times in ms that a request spent queued, in its handler, waiting, in encoding of the response, and throttled.

    The time of encoding is None for Produce and Fetch.
    """

    queued_ms: float
    """Between its arrival and the start of its handler, behind other requests of the connection."""
    handled_ms: float
    """In its handler, without waiting."""
    waited_ms: float
    """Waiting: for records, for other replicas, for other members of a group, or for another node."""
    encoded_ms: float | None
    """Encoding of the response; None for Produce and Fetch, where it is part of `handled_ms`."""
    throttled_ms: float
    """Delay of the next request because of a quota."""


class CapturedExchange:
    """Captured request with its times; the response is added once it is encoded, and texts by `format`."""

    def __init__(self, number: int, source: ConnectionCapture, request: RequestFrame, raw: bytes | None) -> None:
        env = source.env
        self.number = number
        self.connection = source.number
        self.client_host = source.connection.host
        self.server = source.server
        self.key = request.key
        self.version = request.version
        self.response_version = request.response_version
        self.correlation_id = request.correlation_id
        self.client_id = request.client_id
        self.request_bytes = len(request.frame) + _SIZE_BYTES
        self.body_position = request.body_position
        self.request = raw
        """Frame without its size; None: too large to be kept."""
        self.request_text = ""
        """Fields of the request; empty until `format`."""
        self.response: bytes | None = None
        """Frame with its size; None before the response is encoded, if it is too large, and for SaslAuthenticate.

        A request without a response (acks=0) keeps None.
        """
        self.response_text = ""
        self.response_bytes: int | None = None
        """Size of the response with its size field; None before it is encoded."""
        self.time_ms = env.now_ms()
        self.started_ms = env.monotonic_ms()
        self.completed_ms: float | None = None
        """Monotonic time at which the response was complete, not encoded; None until then, also for Produce, Fetch."""
        self.elapsed_ms: float | None = None
        """Time from `started_ms` until the response was encoded; None until then, as `stages`."""
        self.stages: StageTimes | None = None

    @property
    def name(self) -> str:
        """API and version, such as ``Fetch v17``."""
        return f"{self.key.api_name} v{self.version}"

    def request_fields(self) -> Job[tuple[bytes, FrameFieldList] | None]:
        """Return the masked request frame and its fields, as a job; None if the frame was too large to be captured."""
        if self.request is None:
            return None
        raw = len(self.request).to_bytes(_SIZE_BYTES, "big") + self.request
        fields = yield from request_fields(self.key, self.version, raw)
        return visible_request(self.key, raw, fields), fields

    def response_fields(self) -> Job[tuple[bytes, FrameFieldList] | None]:
        """Return the masked response frame and its fields, as a job; None if no response frame was captured."""
        if self.response is None:
            return None
        fields = yield from response_fields(self.key, self.response_version, self.response)
        return visible_response(self.key, self.response, fields), fields

    def pcap_frames(self) -> Job[list[PcapFrame]]:
        """Return the frames of request and response for a pcap file, with secrets masked, as a job.

        A frame that was not captured is left out, so that there may be 0, 1 or 2.
        """
        out = []
        sent_ms = self.time_ms + (self.elapsed_ms or 0.0)
        request, response = (yield from self.request_fields()), (yield from self.response_fields())
        for is_request, time_ms, found in ((True, float(self.time_ms), request), (False, sent_ms, response)):
            if found is not None:
                out.append(PcapFrame(self.connection, self.client_host, self.server, is_request, time_ms, found[0]))
        return out

    def complete(self, env: Env, peer: Peer) -> None:
        """Set `elapsed_ms` and `stages`; called when the response is encoded, before it is sent."""
        now_ms = env.monotonic_ms()
        encoded_ms = None if self.completed_ms is None else now_ms - self.completed_ms
        self.elapsed_ms = now_ms - self.started_ms
        waited_ms = min(peer.request_waited_ms, self.elapsed_ms)
        handled_ms = max(self.elapsed_ms - waited_ms - (encoded_ms or 0.0), 0.0)
        queued_ms = max(self.started_ms - peer.request_started_ms, 0.0)
        self.stages = StageTimes(queued_ms, handled_ms, waited_ms, encoded_ms, float(peer.throttle_ms))

    def format(self) -> Job[None]:
        """Set `request_text` and, if there is a response, `response_text`, unless they are set, as a job.

        A frame that was too large to be captured is described by its size.
        """
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
    """Return a message as lines, at most `_MAX_LINES`, each field below its explanation, as a job.

    The text is the error message if the frame is malformed, and ``no fields`` for a message without fields.
    """
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
    """Newest requests and responses of one connection, or of one API on all connections of the node."""

    def __init__(self, env: Env, session_id: str, key: ApiKey | None = None) -> None:
        """Create a capture of a session, which observes no connection yet; ``key``: API to store, None for all APIs."""
        self._env = env
        self._number = self._read_number = self._stored = 0
        """Requests so far, those at the last `read_exchanges`, and those that were stored."""
        self._limit = MAX_CONSOLE_FRAMES
        """Number of stored requests from which on the capture is full."""
        self._observed: dict[Connection, ConnectionCapture] = {}
        self.id = env.uuid().hex()
        self.session_id = session_id
        self.key = key
        self.exchanges: deque[CapturedExchange] = deque(maxlen=MAX_CONSOLE_FRAMES)
        self.is_changed = True
        """True if there was a request since `read_exchanges`, or more than it could show before it."""
        self.is_open = True
        """False after `close`."""

    def observe(self, connections: Iterable[tuple[int, Connection]]) -> None:
        """Observe the given connections, each with its number, and no others; do nothing after `close`."""
        if not self.is_open:
            return
        found = {connection: number for number, connection in connections}
        for connection in [each for each in self._observed if each not in found]:
            self._observed.pop(connection).close()
        for connection, number in found.items():
            if connection not in self._observed:
                self._observed[connection] = ConnectionCapture(self._env, self, number, connection)

    def close(self) -> None:
        """End the observation; the captured frames stay."""
        self.is_open = False
        for source in self._observed.values():
            source.close()
        self._observed.clear()

    def find(self, number: int) -> CapturedExchange | None:
        """Return the exchange with a number; None if newer ones have replaced it, or it was only counted."""
        return next((each for each in self.exchanges if each.number == number), None)

    @property
    def is_full(self) -> bool:
        """True if enough requests were stored since the last `read_exchanges`: no more are stored until the next one.

        Enough are `MAX_CONSOLE_FRAMES`, or `FLOODED_FRAMES` after more requests than that between two readings.
        """
        return self._stored >= self._limit

    @property
    def skipped(self) -> int:
        """Number of requests that were not stored, because the capture was full."""
        return self._number - self._stored

    def skip(self, key: ApiKey, count: int) -> None:
        """Count requests that are not stored, if ``key`` is captured, so that the numbers of later ones have a gap."""
        if self.key is None or key is self.key:
            self._number += count
            self.is_changed = True

    def read_exchanges(self) -> Job[list[CapturedExchange]]:
        """Return the captured requests with their responses, decoded to text, newest first, as a job.

        Resets `is_changed` and `is_full`, so that connections store requests again.
        """
        is_flooded = self._number - self._read_number > MAX_CONSOLE_FRAMES
        self.is_changed, self._read_number = is_flooded, self._number
        self._limit = self._stored + (FLOODED_FRAMES if is_flooded else MAX_CONSOLE_FRAMES)
        for source in list(self._observed.values()):
            source.resume()
            yield None
        exchanges = list(reversed(self.exchanges))
        for exchange in exchanges:
            yield from exchange.format()
        return exchanges

    def add(self, source: ConnectionCapture, request: RequestFrame) -> CapturedExchange | None:
        """Store a received request and return its exchange, which is completed later.

        None: the request is not stored, because the capture is full (it is counted) or is one of another API.
        """
        if self.key is not None and request.key is not self.key:
            return None
        self._number += 1
        self.is_changed = True
        if self.is_full:
            return None
        self._stored += 1
        raw = bytes(request.frame) if len(request.frame) <= MAX_CONSOLE_FRAME_BYTES else None
        exchange = CapturedExchange(self._number, source, request, raw)
        self.exchanges.append(exchange)
        return exchange


class ConnectionCapture:
    """Observer of one connection, which stores its frames in a capture.

    While the capture is full, repeated requests are served undecoded again (`handlers.prepared_request`), and counted.
    """

    def __init__(self, env: Env, capture: FrameCapture, number: int, connection: Connection) -> None:
        self.env = env
        self.number = number
        self.connection = connection
        self.server: tuple[str, int] = ("127.0.0.1", 9092)
        self._capture = capture
        self._pending: CapturedExchange | None = None
        self._is_storing = True
        """False while the capture is full."""
        self._stop = connection.observe(self)

    @property
    def needs_messages_of(self) -> Set[ApiKey]:
        """The API that the capture stores, or all if it stores all; none while it is full."""
        if not self._is_storing:
            return NO_APIS
        return ALL_APIS if self._capture.key is None else frozenset({self._capture.key})

    def close(self) -> None:
        """End the observation."""
        self._stop()

    def resume(self) -> None:
        """Store the next requests again if the capture was full."""
        if not self._is_storing:
            self._is_storing = True
            self.connection.update_observation()

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Add a received request to the capture; called by the connection before the handler."""
        if self._is_storing and self._capture.is_full:
            self._is_storing = False
            self.connection.update_observation()
        self.server = peer.local
        self._pending = self._capture.add(self, request)
        peer.request_waited_ms = 0.0  # that of an earlier request, if there are no metrics

    def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
        """Store the time at which a response was complete; called before it is encoded; not for Produce, Fetch."""
        if self._pending is not None:
            self._pending.completed_ms = self.env.monotonic_ms()

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Any], size_bytes: int) -> None:
        """Store the encoded response of the captured request and its times; called by the connection before sending.

        The bytes of a response that is too large, or of SaslAuthenticate, are not stored.
        """
        exchange = self._pending
        if exchange is None or exchange.correlation_id != request.correlation_id:
            return
        exchange.complete(self.env, peer)
        exchange.response_bytes = size_bytes
        if size_bytes <= MAX_CONSOLE_FRAME_BYTES and request.key is not ApiKey.SASL_AUTHENTICATE:
            pieces = (chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in chunks)
            exchange.response = b"".join(pieces)
        self._capture.is_changed = True

    def answered_prepared(self, peer: Peer, counts: PreparedRequestCounts) -> None:
        """Count requests that were served undecoded while the capture was full; called by the connection."""
        self._capture.skip(counts.key, counts.requests)


class FrameCaptures:
    """Captures of the console's sessions, at most `MAX_CONSOLE_CAPTURES`: a further one replaces the oldest."""

    def __init__(self) -> None:
        self._captures: dict[str, FrameCapture] = {}

    def add(self, capture: FrameCapture) -> None:
        """Add a capture; the oldest one is closed and removed if there are too many."""
        while len(self._captures) >= MAX_CONSOLE_CAPTURES:
            self._captures.pop(next(iter(self._captures))).close()
        self._captures[capture.id] = capture

    def find(self, capture_id: str, session_id: str) -> FrameCapture | None:
        """Return the capture with an id; None if it was replaced, never existed, or belongs to another session."""
        found = self._captures.get(capture_id)
        return found if found is not None and found.session_id == session_id else None


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
