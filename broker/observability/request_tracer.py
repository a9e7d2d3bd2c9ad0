"""Tracing of requests: spans of sampled requests, stored until their export by OTLP."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.config.limits import MAX_TRACED_CLIENT_ID_CHARS, MAX_TRACED_REQUESTS
from ottla.broker.observability.request_observers import ALL_APIS, PreparedRequestCounts
from ottla.broker.requests.peer import Peer
from ottla.env.env import Env
from ottla.wire.codec.compiler import Chunk
from ottla.wire.codec.schema import Message
from ottla.wire.framing import RequestFrame


class RequestSpan(NamedTuple):
    """Time of one request in the broker, from its receipt until its response is encoded."""

    trace_id: bytes
    """16 random bytes; their halves are the ids of the request's span and of its child span."""
    api_name: str
    """Name of the API as in Kafka, such as ``Fetch``."""
    end_ms: int
    """Wall clock time of the end."""
    elapsed_ms: float
    waited_ms: float
    """Time that the request waited for other events, such as new records or replicas, before its response; 0: none."""
    attributes: dict[str, str | int]


class RequestTracer:
    """Observer that stores spans of a part of the requests, ``sample_ratio`` (0 to 1), until `pop_spans` removes them.

    Beyond `MAX_TRACED_REQUESTS` the oldest span is dropped. Messages are needed, so that each request is observed
    alone.
    """

    needs_messages_of = ALL_APIS

    def __init__(self, env: Env, sample_ratio: float) -> None:
        self._env = env
        self._sample_ratio = sample_ratio
        self._credit = env.random()
        """Sum of the ratios of the requests since the last sampled one, so that exactly that part is sampled."""
        self._spans: deque[RequestSpan] = deque(maxlen=MAX_TRACED_REQUESTS)
        self.dropped = 0
        """Number of sampled spans that were dropped since their number was logged, because too many were kept."""

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Do nothing: the span begins at the time that the connection recorded."""

    def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
        """Do nothing: the span ends when the response is encoded."""

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Store the span of a request if it is sampled: every n-th for a ratio of 1/n."""
        self._credit += self._sample_ratio
        if self._credit < 1.0:
            return
        self._credit -= 1.0
        if len(self._spans) == MAX_TRACED_REQUESTS:
            self.dropped += 1
        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.client.id": (request.client_id or "")[:MAX_TRACED_CLIENT_ID_CHARS],
            "client.address": peer.host,
            "ottla.listener": peer.listener,
            "ottla.api.version": request.version,
            "ottla.correlation_id": request.correlation_id,
            "ottla.request.bytes": len(request.frame) + 4,
            "ottla.response.bytes": size_bytes,
        }
        elapsed_ms = self._env.monotonic_ms() - peer.request_started_ms
        waited_ms = min(peer.request_waited_ms, elapsed_ms)
        span = RequestSpan(
            self._env.uuid(), request.key.api_name, self._env.now_ms(), elapsed_ms, waited_ms, attributes
        )
        self._spans.append(span)

    def answered_prepared(self, peer: Peer, counts: PreparedRequestCounts) -> None:
        """Do nothing: there are no prepared requests while requests are traced."""

    def pop_spans(self) -> list[RequestSpan]:
        """Remove the stored spans and return them, the oldest first."""
        taken = list(self._spans)
        self._spans.clear()
        return taken
