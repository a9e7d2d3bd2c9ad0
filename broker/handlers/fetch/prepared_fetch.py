"""Prepared Fetch: a consumer's request that repeats but for its correlation id, session epoch and offsets.

A consumer that reads on sends the same request again and again. Once a few in a row were alike, the next ones are not
decoded: the bytes that do not change are compared, the partitions are read, and their values are put into a response
that was encoded before. Whatever is not as it was then (a partition without records, an error, a quota, an aborted
transaction, another session) is left to the handler, which has decided nothing yet.

`fetch.handle` is the oracle: the bytes of a prepared response are those of its response.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.fetch_sessions.fetch_session import CachedPartition, FetchSession
from ottla.broker.fetch_sessions.fetch_session_cache import FINAL_EPOCH
from ottla.broker.handlers.fetch.fetch_params import READ_COMMITTED
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.codec import compiler
from ottla.wire.codec.compiler import Chunk
from ottla.wire.codec.primitives import write_uvarint
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ProtocolError, WireError
from ottla.wire.framing import encode_response
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

MAX_PARTITIONS = 16
"""Partitions of a prepared request: so many are read without a pause."""
MAX_REQUEST_BYTES = 1024
REPETITIONS = 3
"""Requests of one length in a row, after which the next ones are prepared for."""
REPETITIONS_UNTIL_RETRY = 16
"""Requests of one length in a row, after which they count anew: preparing costs as much as to handle a request, and is
in vain where the node counts each request, or where no two requests are alike.
"""
FLEXIBLE_SINCE = 12
LOG_START_SINCE = 5
_MARK, _EPOCH_MARK = 0x6B1D_A35E_97F4_0000, 0x2C4F_81D3
"""Numbers from the first on, and the second, stand for values in a message that is encoded to see where they lie."""
_LENGTH = struct.Struct(">i").pack
_HEADER = struct.Struct(">ii").pack


class _NotPreparable(Exception):
    """A request or a response has values that cannot be found in its bytes."""


def _split_at_marks(raw: bytes, marks: Sequence[bytes]) -> list[bytes]:
    """Return the bytes before, between and behind the marks, which must stand in this order, each of them once."""
    out = []
    for mark in marks:
        before, found, raw = raw.partition(mark)
        if not found or mark in raw:
            raise _NotPreparable
        out.append(before)
    return [*out, raw]


def _offset_mark(number: int) -> int:
    return _MARK + number


def _request_layout(
    context: RequestContext, request: FetchRequest, session: FetchSession | None
) -> tuple[struct.Struct, tuple[bytes, ...]]:
    """Return where in a request's frame its correlation id, session epoch and offsets lie, and the bytes between."""
    frame = bytes(context.frame)
    body = compiler.encode(request, context.version)
    if not frame.endswith(body):  # encoded in another way, or with fields that are not known here
        raise _NotPreparable
    number, topics = 0, []
    for topic in request.topics:
        rows = []
        for row in topic.partitions:
            rows.append(replace(row, fetch_offset=_offset_mark(number)))
            number += 1
        topics.append(replace(topic, partitions=rows))
    marks = [_offset_mark(n).to_bytes(8, "big") for n in range(number)]
    marked = replace(request, topics=topics)
    if session is not None:
        marked.session_epoch = _EPOCH_MARK
        marks.insert(0, _EPOCH_MARK.to_bytes(4, "big"))
    pieces = _split_at_marks(compiler.encode(marked, context.version), marks)
    pieces[0] = frame[8 : len(frame) - len(body)] + pieces[0]
    layout = f">4si{len(pieces[0])}s"
    for number, piece in enumerate(pieces[1:]):
        layout += f"{'i' if number == 0 and session is not None else 'q'}{len(piece)}s"
    return struct.Struct(layout), (frame[:4], *pieces)


class _Mark:
    """Stands for the records of a partition in a response that is encoded to see where they lie."""

    def __len__(self) -> int:
        return 1


def _response_layout(
    context: RequestContext, response: FetchResponse
) -> tuple[bytes, list[tuple[struct.Struct, bytes, bytes]], bytes]:
    """Return the constant parts of an encoded response.

    Returns:
        Header behind the correlation id; for each row the part before the length of its records, as a struct and the
        bytes around the three offsets; bytes behind the last records.
    """
    marked = replace(
        response,
        responses=[
            replace(
                topic,
                partitions=[
                    replace(
                        row,
                        high_watermark=_MARK,
                        last_stable_offset=_MARK + 1,
                        log_start_offset=_MARK + 2,
                        records=_Mark(),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in response.responses
        ],
    )
    offsets = [_offset_mark(n) for n in range(3 if context.version >= LOG_START_SINCE else 2)]
    mark = struct.pack(f">{len(offsets)}q", *offsets)
    length_bytes = 1 if context.version >= FLEXIBLE_SINCE else 4
    rows, piece = [], b""
    head, *chunks = encode_response(context.key, context.version, 0, marked)
    for chunk in chunks:
        if type(chunk) is not _Mark:
            piece += chunk
            continue
        before, after = _split_at_marks(piece[:-length_bytes], [mark])
        rows.append((struct.Struct(f">{len(before)}s{len(offsets)}q{len(after)}s"), before, after))
        piece = b""
    return head[8:], rows, piece


class PreparedFetch:
    """Layout of a repeated request and of its response, and the service of requests of that layout."""

    def __init__(
        self,
        context: RequestContext,
        request: FetchRequest,
        session: FetchSession | None,
        wanted: Sequence[CachedPartition],
        response: FetchResponse,
    ) -> None:
        self._services = context.services
        self._authorization_cache = context.peer.authorization_cache
        self._image: MetadataImage | None = None
        self._session_id = 0 if session is None else session.id
        self._wanted = list(wanted)
        self._topics = [want.topic or "" for want in wanted]
        self._rows = [row for topic in request.topics for row in topic.partitions]
        self._max_bytes = request.max_bytes
        self._min_bytes = request.min_bytes
        self._read_committed = request.isolation_level == READ_COMMITTED
        layout, self._fixed = _request_layout(context, request, session)
        self._unpack = layout.unpack_from
        self._frame_bytes = layout.size
        self._header, layouts, self._tail = _response_layout(context, response)
        self._reads = [
            (topic, row, layout.pack, before, after)
            for topic, row, (layout, before, after) in zip(self._topics, self._rows, layouts, strict=True)
        ]
        self._response_bytes = 4 + len(self._header) + sum(layout.size for layout, _, _ in layouts) + len(self._tail)
        self._is_flexible = context.version >= FLEXIBLE_SINCE
        self._has_log_start = context.version >= LOG_START_SINCE
        self._last_size, self._last_length = -1, b""

    def respond(self, frame: memoryview) -> list[Chunk] | None:
        """Serve a request: its response as `framing.encode_response` gives it, or None where the handler must."""
        if len(frame) != self._frame_bytes:
            return None
        values = self._unpack(frame)
        if values[::2] != self._fixed or not self._is_current():
            return None
        if not self._session_id:
            return self._read(values[1], values[3::2])
        session = self._services.fetch_sessions.get(self._session_id)  # not kept here: it may be closed
        if session is None or session.epoch != values[3] or list(session.partitions.values()) != self._wanted:
            return None
        chunks = self._read(values[1], values[5::2])
        if chunks is not None:
            session.advance_epoch()
            session.last_used_ms = self._services.env.monotonic_ms()
        return chunks

    def _is_current(self) -> bool:
        """Return whether a request may be served without the handler: nothing is counted, and topics are the same."""
        services = self._services
        if services.quota_holder.quotas is not None or services.log_creator:
            return False
        if services.authorizer is not None:
            readable = self._authorization_cache.readable_topics
            if not all(topic in readable for topic in self._topics):
                return False
        image = services.metadata.image
        if image is not self._image:
            for topic, want in zip(self._topics, self._wanted, strict=True):
                if want.topic_id != ZERO_UUID:
                    known = image.topics.get(topic)
                    if known is None or known.id != want.topic_id or image.topic_names.get(known.id) != topic:
                        return False
            self._image = image
        return True

    def _read(self, correlation_id: int, offsets: Sequence[int]) -> list[Chunk] | None:
        """Read all partitions; None where one of them has not just records, or where all have too few."""
        services, committed, size_bytes, total = self._services, self._read_committed, self._response_bytes, 0
        most = left = min(self._max_bytes, services.fetch_max_bytes)
        out: list[Chunk] = []
        told = []
        try:
            for (topic, row, pack, before, after), offset in zip(self._reads, offsets, strict=True):
                replica = services.replica_manager.get(topic, row.partition)
                if replica is None or not replica.is_leader:
                    return None
                epoch, log = row.current_leader_epoch, replica.log
                if epoch >= 0 and epoch != replica.leader_epoch:
                    return None
                upper, stable, start = log.high_watermark, log.last_stable_offset, log.log_start_offset
                limit = row.partition_max_bytes
                part = log.read(
                    offset, limit if limit < left else left, stable if committed else upper, at_least_one=not total
                )
                if part is None or (committed and log.aborted_txns_in_slice(part, offset)):
                    return None
                size = part.size_bytes
                total += size
                left = left - size if left > size else 0
                if size != self._last_size:
                    self._last_size = size
                    self._last_length = write_uvarint(size + 1) if self._is_flexible else _LENGTH(size)
                length = self._last_length
                size_bytes += len(length)
                out += (
                    pack(before, upper, stable, start, after)
                    if self._has_log_start
                    else pack(before, upper, stable, after),
                    length,
                    part,
                )
                told.append((replica.traffic, size, offset, upper, start))
        except (ProtocolError, OSError):  # the handler meets it again, and says so
            return None
        if total < self._min_bytes and total < most:
            return None
        for traffic, size, *_ in told:
            traffic.fetches += 1
            traffic.bytes_out += size
        if self._session_id:
            self._remember([offsets for _, _, *offsets in told])
        out[0] = _HEADER(size_bytes + total, correlation_id) + self._header + out[0]
        out.append(self._tail)
        return out

    def _remember(self, positions: list[list[int]]) -> None:
        """Remember the request and its response in the session. All partitions have records, so their order stays."""
        for want, row, (offset, high_watermark, start) in zip(self._wanted, self._rows, positions, strict=True):
            row.fetch_offset = offset
            want.update_request_params(row)
            want.remember_response(high_watermark, start)


def prepare(
    context: RequestContext,
    request: FetchRequest,
    session: FetchSession | None,
    wanted: Iterable[CachedPartition | None],
    response: FetchResponse,
) -> None:
    """See a consumer's request that the handler served without a wait; prepare for more of them where they repeat."""
    peer, frame_bytes = context.peer, len(context.frame)
    if not peer.prepares_fetch or context.services.quota_holder.quotas is not None:
        return
    before, count = peer.fetch_repetitions
    count = count + 1 if frame_bytes == before else 1
    peer.fetch_repetitions = frame_bytes, count % REPETITIONS_UNTIL_RETRY
    if count == REPETITIONS and frame_bytes <= MAX_REQUEST_BYTES:
        partitions = [want for want in wanted if want is not None]
        peer.prepared_fetch = None
        if 0 < len(partitions) <= MAX_PARTITIONS and _is_preparable(request, session, partitions, response):
            with suppress(_NotPreparable, WireError):
                peer.prepared_fetch = PreparedFetch(context, request, session, partitions, response)


def _is_preparable(
    request: FetchRequest, session: FetchSession | None, wanted: Sequence[CachedPartition], response: FetchResponse
) -> bool:
    """Return whether a request reads on in partitions, and its response has records of all of them and nothing else."""
    named = [(topic, row) for topic in request.topics for row in topic.partitions]
    rows = [row for topic in response.responses for row in topic.partitions]
    if session is None:  # a request for a session is not repeatable: there may be room for one later
        is_repeatable = request.session_epoch == FINAL_EPOCH and not request.session_id
    else:
        is_repeatable = request.session_epoch > 0 and not session.is_privileged
    return (
        is_repeatable
        and not request.forgotten_topics_data
        and len(named) == len(wanted) == len(rows)
        and all(map(_is_same_partition, named, wanted))
        and all(map(_has_only_records, rows))
    )


def _is_same_partition(named: tuple[FetchTopic, FetchPartition], want: CachedPartition) -> bool:
    topic, row = named
    return (
        (topic.topic_id, row.partition) == (want.topic_id, want.partition)
        and topic.topic in ("", want.topic)
        and row.last_fetched_epoch < 0
    )


def _has_only_records(row: PartitionData) -> bool:
    return len(row.records) > 0 and not row.aborted_transactions
