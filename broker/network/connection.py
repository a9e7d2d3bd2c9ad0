"""Connection of a client, served by one task: requests are received, handled and answered in order.

The next request is processed after the response to the previous one, as Kafka mutes the channel meanwhile. Responses to
requests that arrived together are sent together. The frame of a request remains in the receive buffer: a produced batch
is written from there to the page cache without a copy.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.network.connection_description import ConnectionDescription, count_frames, describe_connection
from ottla.broker.observability.request_observers import NO_APIS, CompositeRequestObserver, RequestObserver
from ottla.broker.requests.peer import CloseConnection, Peer, PeerDisconnectedError, wait_while_connected
from ottla.env.disk import FileReadError, FileTruncatedError
from ottla.env.env import FOREVER_S, AcceptedStream
from ottla.jobs.supervision import is_broken_invariant
from ottla.jobs.time_slice import TimeSlice
from ottla.wire.codec.compiler import Chunk
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.framing import (
    RequestHeaderCache,
    encode_response,
    parse_frame_size,
    split_chunks,
    start_encoding_response,
    total_frame_bytes,
)

if TYPE_CHECKING:
    from ottla.broker.network.prepared_request_counter import PreparedRequestCounter

logger = logging.getLogger("ottla.connection")

_FIRST_BUFFER_BYTES = 4 * 1024
_BUSY_BUFFER_BYTES = 64 * 1024
_KEPT_BUFFER_BYTES = 1024 * 1024
_MAX_GROWTH_BYTES = 4 * 1024 * 1024
_FLUSH_BYTES = 256 * 1024
_SEND_GROUP_BYTES = 1024 * 1024
"""Bytes that are sent together: joining many small chunks for the socket takes time."""
_MAX_REQUESTS_WITHOUT_YIELD = 64


class Connection:
    """Connection of a client: stream, receive buffer, and responses that are not sent yet."""

    _grows_to_bytes = _BUSY_BUFFER_BYTES
    """Minimum size in bytes to which a full receive buffer grows."""
    _added_observers: tuple[RequestObserver, ...] = ()
    """Request observers of this connection only, besides that of the listener."""

    def __init__(self, dispatcher: Dispatcher, stream: AcceptedStream) -> None:
        services = dispatcher.services
        self._dispatcher = dispatcher
        self._observer = dispatcher.observer
        self._quota_holder = services.quota_holder
        self._may_be_timed = not dispatcher.serves_controllers
        self._stream = stream
        self._peer = Peer(stream.peer, stream.local, dispatcher.listener)
        self._peer.watch_disconnect = stream.on_disconnect
        self.update_observation()
        self._peer.collects_errors = self._observer is not None
        self._env = services.env
        self._time_slice = TimeSlice(services.env)
        self._prepared_counter: PreparedRequestCounter | None = None
        self._update_prepared_counter()
        self._header_cache = RequestHeaderCache()
        self._limit = services.config.number("socket.request.max.bytes")
        self._waiting_since_ms: float | None = None
        self._send_waits = self._requests_without_yield = self._throttled_ms = 0
        self._buffer = bytearray(_FIRST_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._filled = False
        self._muted_until_ms = 0.0
        self._out: list[Chunk] = []
        self._out_bytes = 0
        self.has_received = False
        """True if any bytes of requests were received; those of a TLS handshake do not count."""
        self.is_authenticated = True
        """False until the TLS handshake and SASL authentication are complete, if the listener requires any."""
        self.is_closed = False
        """True once `close` was called; a disconnection or a failed request does not set it."""

    @property
    def host(self) -> str:
        """IP address of the client."""
        return self._peer.host

    def close(self) -> None:
        """Close the connection and set `is_closed`; waits of requests in progress are cancelled, and `serve` ends."""
        self.is_closed = True
        self._stream.close()
        self._peer.mark_disconnected()

    def describe(self, now_ms: float) -> ConnectionDescription:
        """Return a description of the client and its last request; ``now_ms`` is the monotonic time."""
        since_ms, muted_ms = self._waiting_since_ms, max(self._muted_until_ms - now_ms, 0.0)
        has_request = since_ms is None and not muted_ms and self.has_received  # not during a TLS handshake
        return describe_connection(
            self._peer,
            self._header_cache,
            now_ms,
            idle_ms=0 if since_ms is None else now_ms - since_ms,
            is_authenticated=self.is_authenticated,
            pending_bytes=self._end - self._start,
            in_flight=count_frames(self._buffer, self._start, self._end) + has_request,
            throttled_ms=self._throttled_ms,
            muted_ms=muted_ms,
        )

    def byte_counts(self) -> tuple[int, int] | None:
        """Return the bytes received, and those sent and acknowledged, TLS overhead included; None if not counted."""
        return self._stream.byte_counts()

    def observe(self, observer: RequestObserver) -> Callable[[], None]:
        """Add an observer for the requests of this connection only; return the function that removes it."""
        self._set_observers((*self._added_observers, observer))
        return lambda: self._set_observers(tuple(each for each in self._added_observers if each is not observer))

    def _set_observers(self, added: tuple[RequestObserver, ...]) -> None:
        self._added_observers = added
        own = self._dispatcher.observer
        every = added if own is None else (*added, own)  # the metrics reset the time that a request waited
        self._observer = CompositeRequestObserver(every) if added else own
        self._update_prepared_counter()
        self.update_observation()

    def _update_prepared_counter(self) -> None:
        """Report the counts to the former observer; count for the present one, if there is one, from now on."""
        self.report_prepared()
        self._prepared_counter = None
        if self._observer is not None:
            # lazy: 0.5 ms, 10 kB: only with metrics, console or captures
            from ottla.broker.network.prepared_request_counter import PreparedRequestCounter

            self._prepared_counter = PreparedRequestCounter(self._env, self._peer, self._time_slice, self._observer)

    def update_observation(self) -> None:
        """Let prepared requests answer, or no longer, after `RequestObserver.needs_messages_of` has changed."""
        peer, observer = self._peer, self._observer
        peer.observed_apis = NO_APIS if observer is None else observer.needs_messages_of
        if peer.prepared_request is not None and peer.prepared_request.key in peer.observed_apis:
            peer.prepared_request = None
            peer.request_repetitions = None, 0  # the first similar requests after the observation are prepared

    def idle_ms(self, now_ms: float) -> float:
        """Return how long (ms) the client has neither sent a request nor read a response; 0 during a request."""
        if self._waiting_since_ms is None:
            return 0
        if self._stream.send_waits != self._send_waits:  # the client reads, even if slowly
            self._send_waits = self._stream.send_waits
            self._waiting_since_ms = now_ms
        return now_ms - self._waiting_since_ms

    async def serve(self) -> None:
        """Serve requests until disconnection, a failure without error response, or `close`; raise broken invariants."""
        try:
            while await self._receive():
                self.has_received = True
                try:
                    await self._handle_requests()
                except BaseException as error:
                    if not is_broken_invariant(error):
                        self._out += error.last_chunks if isinstance(error, CloseConnection) else ()
                        await self._flush()  # responses before the failed request are still sent
                    raise
                await self._flush()
        except (WireError, FileTruncatedError) as error:
            self._log(logging.WARNING, "Connection from %s closed: %s", self._peer.host, error)
        except FileReadError as error:
            self._fail_log_dir(error)
        except (CloseConnection, OSError, trio.ClosedResourceError):  # disconnected, or to be disconnected
            pass
        except Exception as error:
            if is_broken_invariant(error):
                raise  # a broken invariant: continuing could lose data, and the node ends
            text = "Connection from %s closed: unexpected error while handling a request"
            self._log(logging.ERROR, text, self._peer.host, traceback=True)
        finally:
            self._stream.close()
            self._peer.mark_disconnected()
            self.report_prepared()
            self._peer.raise_callback_failure()

    def _fail_log_dir(self, error: FileReadError) -> None:
        """Fail the log directory of an unreadable file, or drop a chunk of the cache; Kafka does neither."""
        services = self._dispatcher.services
        log, remote = services.log_dirs.log_of(error.file), services.remote_reads
        name = "a deleted segment or chunk of the cache" if log is None else log.describe()
        self._log(logging.ERROR, "Connection from %s closed: error while reading %s: %s", self._peer.host, name, error)
        if log is not None:
            services.fail(error, log)
        elif remote is not None:
            remote.discard_chunk(error.file)

    def _log(self, level: int, text: str, *values: object, traceback: bool = False) -> None:
        self._dispatcher.connection_log.log(logger, level, text, *values, traceback=traceback)

    async def _receive(self) -> bool:
        """Receive bytes into the buffer; return False at the end. The clock is read only if it waits or is observed."""
        self._reserve_buffer()
        stream, waits, view = self._stream, self._stream.receive_waits, self._view
        self._waiting_since_ms = self._time_slice.started_ms
        count = await stream.receive_into(view[self._end :] if self._end else view, FOREVER_S)
        self._waiting_since_ms = None
        if stream.receive_waits != waits:
            self._time_slice.restart()
        elif self._observer is not None:
            self._time_slice.suspend()
        self._end += count
        self._filled = self._end == len(self._buffer)
        return count > 0

    def _reserve_buffer(self) -> None:
        """Ensure that there is free space behind the received bytes.

        The buffer grows as it fills, so that memory is allocated only as the bytes of a frame arrive, for any announced
        size; it shrinks after a large frame. From 1 MiB on it grows in place, by at most 4 MiB at a time: copying or
        clearing 100 MB would block the event loop.
        """
        have, size = self._end - self._start, len(self._buffer)
        if have == 0:
            self._start = self._end = 0
            if size > _KEPT_BUFFER_BYTES:
                self._use_buffer(bytearray(_FIRST_BUFFER_BYTES))
            elif self._filled and size < _KEPT_BUFFER_BYTES:
                self._use_buffer(bytearray(max(size * 2, self._grows_to_bytes)))
            return
        need = 4
        if have >= 4:
            need += parse_frame_size(self._buffer, self._limit, self._start)
        if self._start + need <= size:  # the frame is incomplete, so there is free space behind it
            return
        if self._start:
            self._buffer[:have] = self._buffer[self._start : self._end]
            self._start, self._end = 0, have
        if have == size or (self._filled and size < self._grows_to_bytes):
            if size >= _KEPT_BUFFER_BYTES:
                self._view.release()
                with suppress(BufferError):  # a view of it is still in use: copy it below
                    self._buffer += bytes(min(need - size, size, _MAX_GROWTH_BYTES))
                    self._view = memoryview(self._buffer)
                    return
            grown = bytearray(min(max(size * 2, self._grows_to_bytes), max(need, _KEPT_BUFFER_BYTES)))
            grown[:have] = memoryview(self._buffer)[:have]
            self._use_buffer(grown)

    def _use_buffer(self, buffer: bytearray) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)

    def _next_frame_end(self) -> int:
        """Return the position in the buffer where the next frame ends; 0 if it is incomplete."""
        begin = self._start + 4
        if begin > self._end:
            return 0
        end = begin + parse_frame_size(self._buffer, self._limit, self._start)
        return end if end <= self._end else 0

    async def _handle_requests(self) -> None:
        """Handle all complete requests in the buffer; yield to other tasks after 10 ms or 64 requests."""
        try:
            while end := self._next_frame_end():
                begin, self._start = self._start + 4, end
                counter = self._prepared_counter  # another one after a request or wait that changed the observers
                prepared = self._peer.prepared_request
                if prepared is None or (chunks := prepared.respond(self._view, begin, end)) is None:
                    if counter is not None:
                        counter.stop(begin - 4, self._out_bytes, self._requests_without_yield)
                        counter.report()
                    answering = self._handle_request(self._view[begin:end])
                    is_timed = self._quota_holder.times_requests and self._may_be_timed
                    await (self._handle_timed(answering) if is_timed else answering)
                    self._requests_without_yield += 1
                else:
                    if counter is not None and prepared is not counter.current:
                        counter.start(prepared, begin - 4, self._out_bytes, self._requests_without_yield)
                    self._requests_without_yield += 1
                    if self._add_response(chunks, total_frame_bytes(chunks)):
                        if counter is not None:
                            counter.stop(end, self._out_bytes, self._requests_without_yield)
                        await self._flush()
                if self._start == self._end:
                    break
                if self._requests_without_yield >= _MAX_REQUESTS_WITHOUT_YIELD or self._time_slice.is_used_up():
                    if counter is not None:
                        counter.stop(end, self._out_bytes, self._requests_without_yield)
                    self._requests_without_yield = 0
                    await self._time_slice.yield_now()
        finally:
            if (counter := self._prepared_counter) is not None:
                counter.stop(self._start, self._out_bytes, self._requests_without_yield)

    def report_prepared(self) -> None:
        """Report to the observer the requests that prepared requests have answered since the last report."""
        if self._prepared_counter is not None:
            self._prepared_counter.report()

    async def _handle_timed(self, answering: Coroutine[Any, Any, None]) -> None:
        """Handle one request and record its time for the request quota (KIP-124)."""
        # lazy: 1.1 ms, 24 kB: few nodes have request quotas
        from ottla.broker.quotas.request_timer import RequestTimer

        watch = self._peer.request_timer = RequestTimer(self._env.monotonic_ms, self._quota_holder)
        try:
            await watch.run(answering)
        finally:
            watch.stop(self._peer)
            self._peer.request_timer = None

    async def _handle_request(self, frame: memoryview) -> None:
        """Handle one request and add its response; the result of a job is encoded in time slices."""
        request = self._header_cache.parse_request(frame)
        if self._observer is not None:
            self._peer.request_started_ms = self._time_slice.started_ms  # received, or resumed after others
            self._observer.received(self._peer, request)
        result = self._dispatcher.handle_request(self._peer, request)
        encode: Callable[..., Any] = encode_response
        if result is not None and not isinstance(result, Message):
            encode = start_encoding_response
            done = self._time_slice.start(result)
            if done is not None and not isinstance(done, Message):
                try:
                    await self._flush()
                except BaseException:
                    await self._finish_unanswered(done)
                    raise
                waits_since_ms = self._env.monotonic_ms()
                try:
                    done = await done
                except PeerDisconnectedError:
                    done = None  # following requests are still handled
                self._peer.request_waited_ms = self._env.monotonic_ms() - waits_since_ms
            result = done
        if result is None:
            self._peer.request_waited_ms = 0.0
            if self._peer.throttle_ms:
                await self._mute()
            return
        key, version, correlation_id = request.key, request.response_version, request.correlation_id
        spec = self._dispatcher.apis[key]
        if self._peer.request_timer is not None:
            self._peer.request_timer.set_throttle_time(self._peer, request, result, spec.quota)
        if self._observer is not None and not spec.handler_counts_errors:
            self._observer.completed(self._peer, request, result)
        chunks = encode(key, version, correlation_id, result)
        if not isinstance(chunks, list):
            chunks = await self._time_slice.run(chunks)
        size_bytes = total_frame_bytes(chunks)
        if self._observer is not None:
            self._observer.answered(self._peer, request, chunks, size_bytes)
        if self._add_response(chunks, size_bytes):
            await self._flush()
        if self._peer.throttle_ms:
            await self._mute()

    def _add_response(self, chunks: list[Chunk], size_bytes: int) -> bool:
        """Add a response to those that are sent together; return True if they have to be sent now."""
        self._out += chunks
        self._out_bytes += size_bytes
        return self._out_bytes >= _FLUSH_BYTES

    async def _finish_unanswered(self, waiting: Awaitable[Any]) -> None:
        """Run a started job to its end, so that its appends complete, although its response can no longer be sent."""
        self._peer.mark_disconnected()
        with suppress(PeerDisconnectedError):
            await waiting

    async def _mute(self) -> None:
        """Send the responses so far, then read nothing for the throttle time, which is reset (KIP-219)."""
        await self._flush()
        delay_ms, self._peer.throttle_ms = self._peer.throttle_ms, 0
        self._throttled_ms += delay_ms
        self._muted_until_ms = self._time_slice.suspend() + delay_ms
        with suppress(PeerDisconnectedError):
            await wait_while_connected(self._peer, self._env.sleep(delay_ms / 1000))
        self._time_slice.resume()

    async def _flush(self) -> None:
        if self._out:
            out, size_bytes = self._out, self._out_bytes
            self._out, self._out_bytes = [], 0
            self._waiting_since_ms = self._time_slice.started_ms
            if size_bytes < _SEND_GROUP_BYTES:
                await self._stream.send(out)
            else:
                for group in split_chunks(out, _SEND_GROUP_BYTES):
                    await self._stream.send(group)
            self._waiting_since_ms = None
