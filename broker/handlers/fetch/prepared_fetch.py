"""Prepared Fetch: repeated requests of a consumer that differ only in correlation id, session epoch and offsets.

The handler serves the request instead, for example, if a partition is not led here, has no records, an error or aborted
transactions, if there are quotas, or if the fetch session is another one. Requests with a rack that select a replica
are not prepared.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress

from msgspec.structs import replace

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.fetch_sessions.fetch_session import CachedPartition, FetchSession
from ottla.broker.fetch_sessions.fetch_session_cache import FINAL_EPOCH
from ottla.broker.handlers.fetch.fetch_params import READ_COMMITTED
from ottla.broker.handlers.prepared_request import (
    MAX_REQUEST_BYTES,
    NotPreparable,
    RepeatedRequest,
    header_behind_id,
    is_repeated,
    offset_mark,
    pack_mark,
    split_at_marks,
)
from ottla.env.disk import FileSlice
from ottla.log.partition_log import PartitionLog
from ottla.wire.codec import compiler
from ottla.wire.codec.chunk_sequence import ChunkSequence, flatten_chunks
from ottla.wire.codec.compiler import Chunk
from ottla.wire.codec.primitives import write_uvarint
from ottla.wire.errors import ProtocolError, WireError
from ottla.wire.framing import encode_response
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

MAX_PARTITIONS = 16
"""Maximum number of partitions of a prepared request, as all are read without a yield."""
FLEXIBLE_SINCE = 12
LOG_START_SINCE = 5
_EPOCH_MARK = 0x2C4F_81D3
"""Value of the session epoch in an encoded sample request, by which its position in the bytes is found."""
_LENGTH = struct.Struct(">i").pack
_HEADER = struct.Struct(">ii").pack


def _request_layout(
    context: RequestContext, request: FetchRequest, session: FetchSession | None
) -> tuple[struct.Struct, tuple[bytes, ...]]:
    """Return the layout of a request's frame: the struct with its variable fields, and the constant bytes between them.

    The variable fields are correlation id, session epoch (with a session) and the fetch offsets of the partitions.

    Raises:
        NotPreparable: The position of a field is not unique, or the client encodes the request differently.
    """
    header = header_behind_id(context, request)
    number, topics = 0, []
    for topic in request.topics:
        rows = []
        for row in topic.partitions:
            rows.append(replace(row, fetch_offset=offset_mark(number)))
            number += 1
        topics.append(replace(topic, partitions=rows))
    marks = [pack_mark(n) for n in range(number)]
    marked = replace(request, topics=topics)
    if session is not None:
        marked.session_epoch = _EPOCH_MARK
        marks.insert(0, _EPOCH_MARK.to_bytes(4, "big"))
    pieces = split_at_marks(compiler.encode(marked, context.version), marks)
    pieces[0] = header + pieces[0]
    layout = f">4si{len(pieces[0])}s"
    for number, piece in enumerate(pieces[1:]):
        layout += f"{'i' if number == 0 and session is not None else 'q'}{len(piece)}s"
    return struct.Struct(layout), (bytes(context.frame[:4]), *pieces)


class _Mark:
    """Placeholder for a partition's records in an encoded sample response, by which their position is found."""

    def __len__(self) -> int:
        return 1


def _response_layout(
    context: RequestContext, response: FetchResponse
) -> tuple[bytes, list[tuple[struct.Struct, bytes, bytes]], bytes]:
    """Return the constant parts of an encoded response.

    Returns:
        Header bytes after the correlation id; for each partition the part before the length of its records, as a struct
        and the bytes before and after its offsets; bytes after the last records.

    Raises:
        NotPreparable: The position of a field is not unique.
    """
    marked = replace(
        response,
        responses=[
            replace(
                topic,
                partitions=[
                    replace(
                        row,
                        high_watermark=offset_mark(0),
                        last_stable_offset=offset_mark(1),
                        log_start_offset=offset_mark(2),
                        records=_Mark(),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in response.responses
        ],
    )
    offsets = 3 if context.version >= LOG_START_SINCE else 2
    mark = b"".join(map(pack_mark, range(offsets)))
    length_bytes = 1 if context.version >= FLEXIBLE_SINCE else 4
    rows, piece = [], b""
    head, *chunks = encode_response(context.key, context.version, 0, marked)
    for chunk in chunks:
        if type(chunk) is not _Mark:
            piece += chunk
            continue
        before, after = split_at_marks(piece[:-length_bytes], [mark])
        rows.append((struct.Struct(f">{len(before)}s{offsets}q{len(after)}s"), before, after))
        piece = b""
    return head[8:], rows, piece


class PreparedFetch(RepeatedRequest):
    """Byte layouts of a repeated Fetch request and of its response; serves further requests with the same layout."""

    def __init__(
        self,
        context: RequestContext,
        request: FetchRequest,
        session: FetchSession | None,
        partitions: Sequence[CachedPartition],
        response: FetchResponse,
    ) -> None:
        super().__init__(context, [(want.topic or "", want.topic_id) for want in partitions])
        self._session_id = 0 if session is None else session.id
        self._wanted = list(partitions)
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
            for (topic, _), row, (layout, before, after) in zip(self._topics, self._rows, layouts, strict=True)
        ]
        self._response_bytes = 4 + len(self._header) + sum(layout.size for layout, _, _ in layouts) + len(self._tail)
        self._is_flexible = context.version >= FLEXIBLE_SINCE
        self._has_log_start = context.version >= LOG_START_SINCE
        self._last_size, self._last_length = -1, b""

    def _authorized_topics(self) -> Set[str]:
        return self._authorization_cache.readable_topics

    def respond(self, view: memoryview, start: int, end: int) -> list[Chunk] | None:
        """Serve the request frame in ``view[start:end]`` and return the encoded response; advance its session's epoch.

        Returns:
            None, with nothing changed, if the handler must serve the request instead.
        """
        if end - start != self._frame_bytes:
            return None
        values = self._unpack(view, start)
        if values[::2] != self._fixed or not self._is_current():
            return None
        if not self._session_id:
            return self._read(values[1], values[3::2])
        session = self._services.fetch_sessions.get(self._session_id)  # not cached: the session may be closed
        if session is None or session.epoch != values[3] or list(session.partitions.values()) != self._wanted:
            return None
        chunks = self._read(values[1], values[5::2])
        if chunks is not None:
            session.advance_epoch()
            session.last_used_ms = self._services.env.monotonic_ms()
        return chunks

    def _read(self, correlation_id: int, offsets: Sequence[int]) -> list[Chunk] | None:
        """Read all partitions at ``offsets`` and return the encoded response; count the traffic, update the session.

        Returns:
            None if the handler has to serve the request: a partition is not led here, fails, or has no or aborted
            records, or all together have less than the request's ``min_bytes``.
        """
        services, committed, size_bytes, total = self._services, self._read_committed, self._response_bytes, 0
        most = left = min(self._max_bytes, services.fetch_max_bytes)
        out: list[Chunk] = []
        reads = []
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
                limit = limit if limit < left else left
                if offset < log.local_log_start_offset:
                    part = self._read_tiered(log, offset, limit, is_first=not total)
                else:
                    part = log.read(offset, limit, stable if committed else upper, at_least_one=not total)
                    if part is not None and committed and log.aborted_txns_in_slice(part, offset):
                        return None
                if part is None:
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
                reads.append((replica, size, offset, upper, start))
        except (ProtocolError, OSError):  # the handler will meet the same error and report it
            return None
        if total < self._min_bytes and total < most:
            return None
        for replica, size, offset, *_ in reads:
            replica.traffic.fetches += 1
            replica.traffic.bytes_out += size
            if offset < replica.log.local_log_start_offset and services.remote_reads is not None:
                services.remote_reads.count_open_read(replica.log, size)
        if self._session_id:
            self._remember([offsets for _, _, *offsets in reads])
        out[0] = _HEADER(size_bytes + total, correlation_id) + self._header + out[0]
        out.append(self._tail)
        return list(flatten_chunks(out)) if type(part) is ChunkSequence else out

    def _read_tiered(
        self, log: PartitionLog, offset: int, max_bytes: int, *, is_first: bool
    ) -> FileSlice | ChunkSequence | None:
        """Return records of the remote tier from open files of the chunk cache; None if the handler has to read them.

        Only of a request with one partition: the handler reserves the limit of each for a read from the remote tier.
        """
        remote = self._services.remote_reads
        if remote is None or not log.config.tiering.is_enabled or offset < log.log_start_offset:
            return None
        if max_bytes <= 0 or len(self._reads) > 1 or remote.is_throttled():
            return None
        found = remote.read_open(log, offset, max_bytes, may_exceed=is_first, read_committed=self._read_committed)
        if found is None or found.aborted_txns or not isinstance(found.records, FileSlice | ChunkSequence):
            return None
        return found.records

    def _remember(self, positions: list[list[int]]) -> None:
        """Store the offsets of request and response in the session; ``positions`` has a triple for each partition.

        The triple is fetch offset, high watermark and log start offset. All partitions have records, so the order of
        the session's partitions does not change.
        """
        for want, row, (offset, high_watermark, start) in zip(self._wanted, self._rows, positions, strict=True):
            row.fetch_offset = offset
            want.update_request_params(row)
            want.remember_response(high_watermark, start)


def prepare(
    context: RequestContext,
    request: FetchRequest,
    session: FetchSession | None,
    partitions: Iterable[CachedPartition | None],
    response: FetchResponse,
) -> None:
    """Count a request; set the prepared request of the connection if the last ones were alike and it is preparable.

    Called after a Fetch that was served without a delay. After enough requests that are alike the previous prepared
    request is removed in any case.
    """
    frame_bytes = len(context.frame)
    if is_repeated(context, frame_bytes) and frame_bytes <= MAX_REQUEST_BYTES:
        known = [partition for partition in partitions if partition is not None]
        if 0 < len(known) <= MAX_PARTITIONS and _is_preparable(request, session, known, response):
            with suppress(NotPreparable, WireError):
                context.peer.prepared_request = PreparedFetch(context, request, session, known, response)


def _is_preparable(
    request: FetchRequest, session: FetchSession | None, wanted: Sequence[CachedPartition], response: FetchResponse
) -> bool:
    """Return whether a request only continues to read its partitions, and all of them returned plain records.

    Plain means without errors and aborted transactions. ``session`` is None for a request without a session.
    """
    named = [(topic, row) for topic in request.topics for row in topic.partitions]
    rows = [row for topic in response.responses for row in topic.partitions]
    if session is None:  # a request for a new session is not repeatable: the session cache may have a free slot later
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
