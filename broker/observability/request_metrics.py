"""Counters, latency histograms and error codes of requests by API, for the metrics page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from ottla.broker.observability.request_observers import NO_APIS, PreparedRequestCounts
from ottla.broker.requests.peer import LastError, Peer
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.compiler import Chunk
from ottla.wire.codec.response_array import ResponseArray
from ottla.wire.codec.schema import Message
from ottla.wire.framing import RequestFrame


def bucket_of(elapsed_us: int) -> int:
    """Return the histogram bucket of a latency in microseconds: four buckets for each power of two, from 0.

    Below 4 µs each microsecond has its own.
    """
    bits = elapsed_us.bit_length()
    return (bits << 2) + (elapsed_us >> (bits - 3) & 3) if bits > 2 else elapsed_us


HISTOGRAM_BUCKETS = 256
"""Number of histogram buckets: enough for 2^63 microseconds."""


class ApiMetrics:
    """Counters and latency histograms of one API since the start of the node."""

    __slots__ = (
        "errors",
        "key",
        "local_times",
        "remote_times",
        "request_bytes",
        "requests",
        "response_bytes",
        "responses",
        "times",
        "waiting_times",
    )

    def __init__(self, key: ApiKey) -> None:
        self.key = key
        self.requests = 0
        self.responses = 0
        self.request_bytes = 0
        self.response_bytes = 0
        self.times = [0] * HISTOGRAM_BUCKETS
        """Histogram of the total times of requests that did not wait, which are their local times too."""
        self.waiting_times: list[int] | None = None
        """Histogram of the total times of requests that waited; None before the first one."""
        self.local_times: list[int] | None = None
        self.remote_times: list[int] | None = None
        self.errors: dict[int, int] = {}
        """Number of occurrences of each error code in responses."""

    @property
    def name(self) -> str:
        """Name of the API as in Kafka, such as ``DescribeTopicPartitions``."""
        return self.key.api_name

    def record_waiting(self, elapsed_us: int, waited_us: int) -> None:
        """Record the total time of a request that waited, and the time it waited, both in microseconds."""
        if self.waiting_times is None or self.local_times is None or self.remote_times is None:
            self.waiting_times, self.local_times, self.remote_times = ([0] * HISTOGRAM_BUCKETS for _ in range(3))
        self.waiting_times[bucket_of(elapsed_us)] += 1
        self.remote_times[bucket_of(min(waited_us, elapsed_us))] += 1
        self.local_times[bucket_of(max(elapsed_us - waited_us, 0))] += 1

    def add_error(self, code: int) -> None:
        """Count an occurrence of an error code."""
        self.errors[code] = self.errors.get(code, 0) + 1


class RequestMetrics:
    """Observer that counts requests, responses, bytes (with length fields), latencies and error codes by API.

    It iterates over the metrics of the APIs that had requests. Prepared requests are counted without their messages.
    """

    needs_messages_of = NO_APIS

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._by_key: list[ApiMetrics | None] = [None] * (max(ApiKey) + 1)

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Count a request and its bytes."""
        count = self._by_key[request.key]
        if count is None:
            count = self._by_key[request.key] = ApiMetrics(request.key)
        count.requests += 1
        count.request_bytes += len(request.frame) + _LENGTH_BYTES

    def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
        """Count the error codes of a response; the last one becomes ``last_error`` of the connection.

        Not called for Produce and Fetch: their handlers record the codes.
        """
        count = self._by_key[request.key]
        assert count is not None
        self._add_errors(peer, count, error_codes(response))

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Count the response to a request, its bytes, latency, and error codes that the handler recorded.

        Waiting time and error codes of the connection are reset: an observer that needs them must come before this one.
        """
        count = self._by_key[request.key]
        assert count is not None
        count.responses += 1
        count.response_bytes += size_bytes
        elapsed_us = int((self._monotonic_ms() - peer.request_started_ms) * 1000)
        if peer.request_waited_ms:
            count.record_waiting(elapsed_us, int(peer.request_waited_ms * 1000))
            peer.request_waited_ms = 0.0
        else:
            bits = elapsed_us.bit_length()  # `bucket_of` without the call
            count.times[(bits << 2) + (elapsed_us >> (bits - 3) & 3) if bits > 2 else elapsed_us] += 1
        if peer.request_errors is not None:
            self._add_errors(peer, count, peer.request_errors)
            peer.request_errors = None

    def _add_errors(self, peer: Peer, count: ApiMetrics, codes: Iterable[int]) -> None:
        """Count error codes and record the last one, with API and time, as ``last_error`` of the connection."""
        code = 0
        for code in codes:
            count.add_error(code)
        if code:
            peer.last_error = LastError(count.key, code, self._monotonic_ms())

    def answered_prepared(self, peer: Peer, counts: PreparedRequestCounts) -> None:
        """Count requests that prepared requests answered without a wait, their responses and their error codes."""
        metrics = self._by_key[counts.key]
        if metrics is None:
            metrics = self._by_key[counts.key] = ApiMetrics(counts.key)
        metrics.requests += counts.requests
        metrics.responses += counts.requests
        metrics.request_bytes += counts.request_bytes
        metrics.response_bytes += counts.response_bytes
        metrics.times[bucket_of(int(counts.elapsed_ms * 1000))] += counts.requests
        if peer.request_errors is not None:
            self._add_errors(peer, metrics, peer.request_errors)
            peer.request_errors = None

    def __iter__(self) -> Iterator[ApiMetrics]:
        """Iterate over the metrics of the APIs that had requests, in ascending order of API keys."""
        return (count for count in self._by_key if count is not None)


def error_codes(response: Message) -> Iterator[int]:
    """Yield the error codes (not NONE) of a response and of its rows, of at most `MAX_COUNTED_ERROR_ROWS` messages.

    Only fields named ``error_code`` are read. The order is not that of the rows.
    Of a `ResponseArray` only the rows that are not encoded yet are included.
    """
    pending: list[Any] = [response]
    seen = 0
    while pending and seen < MAX_COUNTED_ERROR_ROWS:
        message = pending.pop()
        seen += 1
        code = getattr(message, "error_code", 0)
        if code:
            yield code
        kind: Any = type(message)
        for name in _list_fields(kind):
            rows = getattr(message, name)
            if type(rows) is ResponseArray:
                rows = rows.pending
            if type(rows) is list and rows and isinstance(rows[0], Message):
                pending += rows[: MAX_COUNTED_ERROR_ROWS - seen]


@cache
def _list_fields(message_class: Any) -> tuple[str, ...]:
    """Return the names of the array fields of a message class, in which error codes of rows are counted."""
    return tuple(name for name, hint in message_class.__annotations__.items() if "list[" in str(hint))


_LENGTH_BYTES = 4
MAX_COUNTED_ERROR_ROWS = 200
"""Maximum number of rows of a response whose error codes are counted, as this does not yield."""
