"""Observers of requests and responses: metrics, and the checks of tests and of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ottla.broker.requests.peer import Peer
from ottla.wire.codec.compiler import Chunk
from ottla.wire.codec.schema import Message
from ottla.wire.framing import RequestFrame


class RequestObserver(Protocol):
    """Observer of each request with a readable header, and of each response; it must be quick and must not fail."""

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Observe a request, which may still be rejected."""

    def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
        """Observe a complete response before it is encoded; not called for Produce and Fetch."""

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Observe a response of ``size_bytes``, with its length, before it is sent. Not all requests have one."""


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

    def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
        """Pass its response on."""
        for observer in self._observers:
            observer.completed(peer, request, response)

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
