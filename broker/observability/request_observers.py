"""Interface of observers of requests and responses, and their combination to one.

Observers themselves are elsewhere, such as request metrics, the tracer, and the checks of tests and the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple, Protocol

from ottla.broker.requests.peer import Peer
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.compiler import Chunk
from ottla.wire.codec.schema import Message
from ottla.wire.framing import RequestFrame

ALL_APIS, NO_APIS = frozenset(ApiKey), frozenset[ApiKey]()


class PreparedRequestCounts(NamedTuple):
    """Requests of one connection and one API that prepared requests have answered."""

    key: ApiKey
    requests: int
    """Number of requests, and of responses."""
    request_bytes: int
    """Bytes of all requests with their length fields."""
    response_bytes: int
    """Bytes of all responses with their length fields."""
    elapsed_ms: float
    """Time from receipt to response of the first ones, taken as that of all."""


class RequestObserver(Protocol):
    """Interface of an observer of each request with a valid header and each response; it must not raise.

    Requests of SASL authentication, and ApiVersions before it, are not observed.
    """

    @property
    def needs_messages_of(self) -> Set[ApiKey]:
        """APIs of which each request must be decoded and handled, so that no prepared request answers it."""

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Observe a request before it is handled; it may still be rejected."""

    def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
        """Observe a complete response before it is encoded; not called for Produce and Fetch."""

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Observe a response encoded as ``chunks``, before it is sent; not called for a request without a response.

        ``size_bytes``: size of the response with its length field.
        """

    def answered_prepared(self, peer: Peer, counts: PreparedRequestCounts) -> None:
        """Observe requests of a client that prepared requests have answered, instead of the other methods.

        They are reported in groups, some time after they were answered, but before the next request that no prepared
        request answers, and at the latest when the connection ends.
        """


request_observer_factories: list[Callable[[Any], RequestObserver]] = []
"""Factories of additional observers for the client listeners of each node of this process, not for controllers.

Empty except in tests and the simulator.
"""


class CompositeRequestObserver:
    """Observer that calls several observers in order."""

    def __init__(self, observers: Sequence[RequestObserver]) -> None:
        self._observers = observers

    @property
    def needs_messages_of(self) -> Set[ApiKey]:
        """APIs of which one of the observers needs the messages."""
        return NO_APIS.union(*(observer.needs_messages_of for observer in self._observers))

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Call each observer with the request."""
        for observer in self._observers:
            observer.received(peer, request)

    def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
        """Call each observer with the response before it is encoded; not called for Produce and Fetch."""
        for observer in self._observers:
            observer.completed(peer, request, response)

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Call each observer with the encoded response before it is sent; ``size_bytes`` includes the length field."""
        for observer in self._observers:
            observer.answered(peer, request, chunks, size_bytes)

    def answered_prepared(self, peer: Peer, counts: PreparedRequestCounts) -> None:
        """Call each observer with the number and the bytes of requests that were answered by a prepared one."""
        for observer in self._observers:
            observer.answered_prepared(peer, counts)


def combine_observers(observers: Sequence[RequestObserver]) -> RequestObserver | None:
    """Return one observer that calls each of ``observers`` in their order; None if there are none."""
    if len(observers) > 1:
        return CompositeRequestObserver(observers)
    return observers[0] if observers else None


def create_request_observer(services: Any, own: Sequence[RequestObserver]) -> RequestObserver | None:
    """Return one observer that calls ``own`` and those of `request_observer_factories`; None if there are none."""
    return combine_observers([*own, *(make(services) for make in request_observer_factories)])
