"""Who watches requests come and answers go: the counts behind the metrics, and whatever else is to be told of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from ottla.broker.requests.peer import Peer
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.compiler import Chunk
from ottla.wire.framing import RequestFrame


class RequestObserver(Protocol):
    """Told of each request whose header could be read, and of each answer; it must be quick, and may not fail."""

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """A request came; it may still be refused."""

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Its answer, of so many bytes with their length, is ready to leave. Not all requests are answered."""


request_observer_factories: list[Callable[[Any], RequestObserver]] = []
"""Makers of observers that every node of this process gets for its clients; empty but in tests and the simulator."""


class CompositeRequestObserver:
    """Several observers as one."""

    def __init__(self, observers: Sequence[RequestObserver]) -> None:
        self._observers = observers

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Pass a request on."""
        for observer in self._observers:
            observer.received(peer, request)

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Pass its answer on."""
        for observer in self._observers:
            observer.answered(peer, request, chunks, size_bytes)


def create_request_observer(services: Any, counts: RequestObserver | None) -> RequestObserver | None:
    """Return the observer of a node's client listeners: ``counts``, those of the factories, or None for neither."""
    every = [make(services) for make in request_observer_factories]
    if not every:
        return counts
    return CompositeRequestObserver(every if counts is None else [counts, *every])


class ApiMetrics:
    """What one API was asked and said since the start."""

    __slots__ = ("key", "request_bytes", "requests", "response_bytes", "responses")

    def __init__(self, key: ApiKey) -> None:
        self.key = key
        self.requests = 0
        self.responses = 0
        self.request_bytes = 0
        self.response_bytes = 0

    @property
    def name(self) -> str:
        """As Kafka writes it: ``DescribeTopicPartitions``."""
        return self.key.api_name


class RequestMetrics:
    """Requests, answers and their bytes, those of the lengths in front of them included, API by API."""

    def __init__(self) -> None:
        self._by_key: list[ApiMetrics | None] = [None] * (max(ApiKey) + 1)

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Count a request."""
        count = self._by_key[request.key]
        if count is None:
            count = self._by_key[request.key] = ApiMetrics(request.key)
        count.requests += 1
        count.request_bytes += len(request.frame) + _LENGTH_BYTES

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Count its answer."""
        count = self._by_key[request.key]
        assert count is not None
        count.responses += 1
        count.response_bytes += size_bytes

    def __iter__(self) -> Iterator[ApiMetrics]:
        """Those APIs that were asked, by number."""
        return (count for count in self._by_key if count is not None)


_LENGTH_BYTES = 4
