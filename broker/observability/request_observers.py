"""Observers of requests and responses: request metrics, and the checks of tests and the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ottla.broker.requests.peer import Peer
from ottla.wire.codec.compiler import Chunk
from ottla.wire.codec.schema import Message
from ottla.wire.framing import RequestFrame


class RequestObserver(Protocol):
    """Interface of an observer of each request with a valid header and each response; it must not raise."""

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Observe a request before it is handled; it may still be rejected."""

    def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
        """Observe a complete response before it is encoded; not called for Produce and Fetch."""

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Observe an encoded response of ``size_bytes`` with its length, before it is sent; some requests have none."""


request_observer_factories: list[Callable[[Any], RequestObserver]] = []
"""Factories of additional observers for each node of this process; empty except in tests and the simulator."""


class CompositeRequestObserver:
    """Observer that calls several observers in order."""

    def __init__(self, observers: Sequence[RequestObserver]) -> None:
        self._observers = observers

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Call each observer with the request."""
        for observer in self._observers:
            observer.received(peer, request)

    def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
        """Call each observer with the response before it is encoded."""
        for observer in self._observers:
            observer.completed(peer, request, response)

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Call each observer with the encoded response."""
        for observer in self._observers:
            observer.answered(peer, request, chunks, size_bytes)


def combine_observers(observers: Sequence[RequestObserver]) -> RequestObserver | None:
    """Return one observer that stands for several; None for none."""
    if len(observers) > 1:
        return CompositeRequestObserver(observers)
    return observers[0] if observers else None


def create_request_observer(services: Any, own: Sequence[RequestObserver]) -> RequestObserver | None:
    """Return the observer of a node's broker listeners: ``own`` and those of `request_observer_factories`."""
    return combine_observers([*own, *(make(services) for make in request_observer_factories)])
