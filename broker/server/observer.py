"""Who watches requests come and answers go: the counts behind the metrics, and whatever else is to be told of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.broker.server.peer import Peer
from ottla.wire.apis import ApiKey
from ottla.wire.compiler import Chunk
from ottla.wire.framing import RequestFrame

if TYPE_CHECKING:
    from ottla.broker.services import Services


class Observer(Protocol):
    """Told of each request whose header could be read, and of each answer; it must be quick, and may not fail."""

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """A request came; it may still be refused."""

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Its answer, of so many bytes with their length, is ready to leave. Not all requests are answered."""


observers_of: list[Callable[[Services], Observer]] = []
"""Makers of observers that every node of this process gets for its clients; empty but in tests and the simulator."""


class Observers:
    """Several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Pass a request on."""
        for observer in self._observers:
            observer.received(peer, request)

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Pass its answer on."""
        for observer in self._observers:
            observer.answered(peer, request, chunks, size_bytes)


def observer_of(services: Services, counts: Observer | None) -> Observer | None:
    """Return the observer of a node's client listeners: ``counts``, those of `observers_of`, or None for neither."""
    every = [make(services) for make in observers_of]
    if not every:
        return counts
    return Observers(every if counts is None else [counts, *every])


class Count:
    """What one API was asked and said since the start."""

    __slots__ = ("answer_bytes", "answers", "key", "request_bytes", "requests")

    def __init__(self, key: ApiKey) -> None:
        self.key = key
        self.requests = 0
        self.answers = 0
        self.request_bytes = 0
        self.answer_bytes = 0

    @property
    def name(self) -> str:
        """As Kafka writes it: ``DescribeTopicPartitions``."""
        return "".join(word.capitalize() for word in self.key.name.split("_"))


class Counts:
    """Requests, answers and their bytes, those of the lengths in front of them included, API by API."""

    def __init__(self) -> None:
        self._by_key: list[Count | None] = [None] * (max(ApiKey) + 1)

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Count a request."""
        count = self._by_key[request.key]
        if count is None:
            count = self._by_key[request.key] = Count(request.key)
        count.requests += 1
        count.request_bytes += len(request.frame) + _LENGTH_BYTES

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Count its answer."""
        count = self._by_key[request.key]
        assert count is not None
        count.answers += 1
        count.answer_bytes += size_bytes

    def __iter__(self) -> Iterator[Count]:
        """Those APIs that were asked, by number."""
        return (count for count in self._by_key if count is not None)


_LENGTH_BYTES = 4
