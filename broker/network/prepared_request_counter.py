"""Counts of the requests of a connection that prepared requests have answered, reported to its observer in groups.

A report for each request would take as long as a tenth of the request. Requests of one API that were received together
are a burst: the first burst after a report is timed, and stands for the following ones of that report.
"""

from __future__ import annotations

from ottla.broker.observability.request_observers import PreparedRequestCounts, RequestObserver
from ottla.broker.requests.peer import Peer, PreparedRequest
from ottla.env.env import Env
from ottla.jobs.time_slice import TimeSlice

BURSTS_PER_REPORT = 16
"""Maximum number of bursts that are reported together."""


class PreparedRequestCounter:
    """Counter of prepared requests of one connection, and of the bytes of these requests and their responses.

    Positions are those of the connection's receive buffer; bytes and requests are the connection's running counters.
    """

    __slots__ = (
        *("_bursts", "_elapsed_ms", "_env", "_first_position", "_first_request", "_first_response_byte", "_observer"),
        *("_peer", "_unreported", "_request_bytes", "_requests", "_response_bytes", "_time_slice", "current"),
    )

    def __init__(self, env: Env, peer: Peer, time_slice: TimeSlice, observer: RequestObserver) -> None:
        """Create a counter.

        Args:
            env: Environment, for its clock.
            peer: Client of the connection.
            time_slice: Time slice of the connection; its start is the time of the last receipt.
            observer: Observer of the connection.
        """
        self._env = env
        self._peer = peer
        self._time_slice = time_slice
        self._observer = observer
        self.current: PreparedRequest | None = None
        """Prepared request of the burst that was started; None if it has ended."""
        self._unreported: PreparedRequest | None = None
        """Prepared request of the counts that are not reported yet; None if there are none."""
        self._bursts = self._requests = self._request_bytes = self._response_bytes = 0
        self._elapsed_ms = 0.0
        self._first_position = self._first_response_byte = self._first_request = 0

    def start(self, prepared: PreparedRequest, position: int, response_bytes: int, requests: int) -> None:
        """Start a burst with a request that was answered by ``prepared``; end that of another prepared request.

        Args:
            prepared: Prepared request that has answered.
            position: Position of the request's length field.
            response_bytes: Bytes of unsent responses before the response to this request.
            requests: Number of requests before this one.
        """
        self.stop(position, response_bytes, requests)
        if prepared is not self._unreported:
            self.report()
            self._unreported = prepared
        self.current = prepared
        self._first_position, self._first_response_byte, self._first_request = position, response_bytes, requests

    def stop(self, position: int, response_bytes: int, requests: int) -> None:
        """End the burst, if one was started; report the counts after `BURSTS_PER_REPORT` bursts.

        Args:
            position: Position after the last request.
            response_bytes: Bytes of unsent responses, that to the last request included.
            requests: Number of requests, the last one included.
        """
        if self.current is None:
            return
        self.current = None
        self._request_bytes += position - self._first_position
        self._response_bytes += response_bytes - self._first_response_byte
        self._requests += requests - self._first_request
        if not self._bursts:
            self._elapsed_ms = self._env.monotonic_ms() - self._time_slice.started_ms
        self._bursts += 1
        if self._bursts >= BURSTS_PER_REPORT:
            self.report()

    def report(self) -> None:
        """Report the counts of the bursts that have ended to the observer, if there are any."""
        if self._unreported is None or not self._bursts:
            return
        counts = PreparedRequestCounts(
            self._unreported.key, self._requests, self._request_bytes, self._response_bytes, self._elapsed_ms
        )
        self._unreported = None
        self._bursts = self._requests = self._request_bytes = self._response_bytes = 0
        self._observer.answered_prepared(self._peer, counts)
