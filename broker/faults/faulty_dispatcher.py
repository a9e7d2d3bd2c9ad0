"""Dispatcher of a listener that applies faults to requests; used instead of `Dispatcher` if faults are enabled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated, Any, ClassVar

from msgspec import field
from msgspec.structs import replace

from ottla.broker.dispatch.dispatcher import Dispatcher, HandlerResult, RequestContext, ResponseJob
from ottla.broker.faults.fault_rule import FaultCall, FaultKind, FaultRule, FaultRules
from ottla.broker.requests.error_responses import build_error_response, contains_error
from ottla.broker.requests.peer import CloseConnection, Peer, wait_while_connected
from ottla.env.disk import FileSlice
from ottla.jobs.job import Job, as_job
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.codec import compiler
from ottla.wire.codec.compiler import Chunk
from ottla.wire.codec.schema import ZERO_UUID, Int16, Message, MessageSpec, response, wire_field
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.framing import RequestFrame, encode_response_job, total_frame_bytes
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""Errors of a whole Fetch response; all others are errors of its partitions."""
_TOPIC_LISTS = frozenset({"topics", "topic_data", "topic_names", "v3_and_below_topics", "topic_partitions"})
_TOPIC_FIELDS = ("name", "topic", "topic_name")
_NESTED = frozenset({"groups", "transactions"})


def named_topics(body: Any, names_of_ids: Any) -> Iterator[str]:
    """Yield the topic names in the lists of topics of a request body, also of groups and transactions in it.

    Other names of topics, such as resources of DescribeConfigs, are left out. A name may occur repeatedly.
    ``names_of_ids`` resolves topic ids, unknown ones are skipped.
    """
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if not isinstance(value, list) or (name not in _TOPIC_LISTS and name not in _NESTED):
            continue
        for element in value:
            if isinstance(element, str):
                yield element
            elif isinstance(element, Message):
                if name in _NESTED:
                    yield from named_topics(element, names_of_ids)
                    continue
                topic_id = getattr(element, "topic_id", ZERO_UUID)
                if topic_id != ZERO_UUID and topic_id in names_of_ids:
                    yield names_of_ids[topic_id]
                yield from (found for each in _TOPIC_FIELDS if (found := getattr(element, each, None)))


def first_half(chunks: list[Chunk], size_bytes: int) -> list[Chunk]:
    """Return the first half of an encoded response; ``size_bytes``: size of all ``chunks``."""
    left, out = size_bytes // 2, []
    for chunk in chunks:
        if left <= 0:
            break
        if len(chunk) > left:
            chunk = FileSlice(chunk.file, chunk.offset, left) if type(chunk) is FileSlice else chunk[:left]
        out.append(chunk)
        left -= len(chunk)
    return out


class _FallbackVersion(Message):
    """Version range of an API, in the layout of version 0."""

    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class _ApiVersionsFallback(Message):
    """Response to ApiVersions in an unknown version: always in the layout of version 0 (KIP-511)."""

    SPEC: ClassVar[MessageSpec] = response(18, "0-4", "none")
    error_code: Int16 = 0
    api_keys: Annotated[list[_FallbackVersion], wire_field("[]struct")] = field(default_factory=list)


class FaultyDispatcher(Dispatcher):
    """Dispatcher that applies faults to requests before and after their handlers."""

    def __init__(self, rules: FaultRules, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._rules = rules

    def handle_request(self, peer: Peer, request: RequestFrame) -> HandlerResult:
        """Handle a request, with the faults that apply to it; return its response, or a job for it, or None.

        From now on no prepared request answers on this connection, as those bypass the faults.

        Raises:
            WireError, CloseConnection: The connection must be closed.
        """
        peer.prepares_requests = False  # faults are not applied to prepared requests
        body = partial(self._decode, request)
        call = FaultCall(
            request.key,
            request.client_id,
            lambda: set(self._topics(body())),
            lambda: request.key is ApiKey.FETCH and _is_follower(body()),
        )
        applied = self._rules.choose(call)
        if not applied:
            return super().handle_request(peer, request)
        return self._handle_with_faults(peer, request, applied)

    def _decode(self, request: RequestFrame) -> Any:
        """Return the body of a request; None if it is malformed, which handling the request then reports."""
        try:
            return compiler.decode(request_class(request.key), request.version, request.frame, request.body_position)[0]
        except WireError:
            return None

    def _topics(self, body: Any) -> Iterable[str]:
        """Yield the topics that a request body names; for a Fetch in a fetch session, also those of the session.

        For a malformed request (None) there are none.
        """
        if body is None:
            return
        yield from named_topics(body, self.services.metadata.image.topic_names)
        is_in_session = type(body) is FetchRequest and body.session_id
        session = self.services.fetch_sessions.get(body.session_id) if is_in_session else None
        if session is not None:
            yield from (part.topic for part in session.partitions.values() if part.topic is not None)

    def _handle_with_faults(self, peer: Peer, request: RequestFrame, applied: list[FaultRule]) -> ResponseJob:
        """Return the response to a request, as a job: delay it by all DELAY faults, then apply the first other fault.

        Raises:
            CloseConnection: For DISCONNECT and HALF_RESPONSE, and for an ERROR that no response can express.
        """
        specs = [rule.spec for rule in applied]
        delay_ms = sum(spec.milliseconds for spec in specs if spec.kind is FaultKind.DELAY)
        if delay_ms:
            yield wait_while_connected(peer, self._env.sleep(delay_ms / 1000))
        fault = next((spec for spec in specs if spec.kind is not FaultKind.DELAY), None)
        if fault is None:
            return (yield from as_job(super().handle_request(peer, request)))
        if fault.kind is FaultKind.ERROR:
            assert fault.code is not None
            return (yield from self._error_response(peer, request, fault.code))
        if fault.kind is FaultKind.DISCONNECT and not fault.handled:
            raise CloseConnection
        if fault.kind is FaultKind.DROP and not fault.handled:
            return None
        answer = yield from as_job(super().handle_request(peer, request))
        if fault.kind is FaultKind.DROP or (answer is None and fault.kind is FaultKind.THROTTLE):
            return None
        if fault.kind is FaultKind.THROTTLE:
            assert answer is not None
            return self._throttled(peer, answer, fault.milliseconds)
        if fault.kind is FaultKind.HALF_RESPONSE and answer is not None:
            raise CloseConnection((yield from _half_of_response(request, answer)))
        raise CloseConnection

    def _throttled(self, peer: Peer, answer: Message, milliseconds: int) -> Message:
        """Return the response with a throttle time, and let the connection be muted for that time, at least."""
        peer.throttle_ms = max(peer.throttle_ms, milliseconds)
        if "throttle_time_ms" not in answer.__struct_fields__:
            return answer
        return replace(answer, throttle_time_ms=milliseconds)

    def _error_response(self, peer: Peer, request: RequestFrame, code: ErrorCode) -> ResponseJob:
        """Return the response with one error code for the whole request, as a job; the request is not handled.

        An unknown API or a malformed body is handled as without faults. The fetch session of a Fetch is closed if its
        partitions get the error.

        Raises:
            CloseConnection: The response has no field for the error in this version, or the request has no response.
        """
        spec, body = self.apis.get(request.key), self._decode(request)
        if spec is None or body is None:
            return (yield from as_job(super().handle_request(peer, request)))
        if request.key is ApiKey.API_VERSIONS and code is ErrorCode.UNSUPPORTED_VERSION:
            own = self.apis[request.key]
            return _ApiVersionsFallback(code, [_FallbackVersion(own.key, own.min_version, own.max_version)])
        if request.key is ApiKey.PRODUCE and body.acks == 0:
            raise CloseConnection
        now_ms = self._env.now_ms()
        context = RequestContext(
            self.services, peer, request.key, request.version, request.client_id, now_ms, self.apis, request.frame
        )
        if type(body) is FetchRequest and code not in _SESSION_ERRORS:
            self._close_session(body)
        answer = yield from build_error_response(context, body, code)
        if type(answer) is FetchResponse and answer.responses and code not in _SESSION_ERRORS:
            answer.error_code = 0  # partition errors are only in the rows
        if not (yield from contains_error(answer, code)):
            raise CloseConnection
        return answer

    def _close_session(self, body: FetchRequest) -> None:
        """Close the session of a Fetch; if incremental, add the session's partitions to ``body``, for error rows."""
        session = self.services.fetch_sessions.remove(body.session_id) if body.session_id else None
        if session is None or body.session_epoch <= 0:
            return  # a full fetch has all its partitions
        names = self.services.metadata.image.topic_names
        wanted = {(part.topic or "", part.topic_id, part.partition) for part in session.partitions.values()}
        for topic in body.topics:
            name = topic.topic or names.get(topic.topic_id, "")
            wanted |= {(name, topic.topic_id, part.partition) for part in topic.partitions}
        for gone in body.forgotten_topics_data:
            name = gone.topic or names.get(gone.topic_id, "")
            wanted -= {(name, gone.topic_id, number) for number in gone.partitions}
        topics: dict[tuple[str, bytes], FetchTopic] = {}
        for name, topic_id, number in sorted(wanted):
            topic = topics.setdefault((name, topic_id), FetchTopic(name, topic_id))
            topic.partitions.append(FetchPartition(number))
        body.topics = [*topics.values()]


def _is_follower(body: Any) -> bool:
    """Return True if a Fetch request has a replica id, which a follower sets and a consumer does not."""
    return body is not None and (body.replica_id >= 0 or body.replica_state.replica_id >= 0)


def _half_of_response(request: RequestFrame, answer: Message) -> Job[list[Chunk]]:
    """Encode a response and return the first half of its bytes, as a job."""
    chunks = yield from encode_response_job(request.key, request.response_version, request.correlation_id, answer)
    return first_half(chunks, total_frame_bytes(chunks))
