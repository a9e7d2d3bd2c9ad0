"""Checks of every Fetch, ShareFetch and Produce response before a node sends it.

`install` enables the checks for every node of this process; the simulator and the tests do so. An invalid response
raises an AssertionError in its connection, which ends the node. Not checked are fetches of the metadata log, and
responses with file ranges that cannot be read.

The properties of a response to Fetch:

- A partition is answered at most once, and exactly once if the request names all partitions of interest.
- Non-empty records begin with a whole batch, which holds the fetch offset; in a compacted log it may begin above.
- Offsets rise from batch to batch; only the last batch may be cut off.
- A consumer gets nothing at or above the high watermark, or the last stable offset with read_committed.
- Records keep to the limits of partition, request and broker. Only the first partition with records may exceed them,
  with a single batch, and then no other partition has records. A partition of a tiered topic counts with at most its
  limit, as its records may be read from the remote store after those of the other partitions.

Source: ``ReplicaManager.readFromLog``, ``FetchSession.java`` (apache/kafka 4.3.1); KIP-74, KIP-98, KIP-227.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.observability import request_observers
from ottla.env.disk import FileSlice
from ottla.env.memory_disk import MemoryFile
from ottla.wire.api_keys import ApiKey, request_class, response_class, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.errors import WireError
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData
from ottla.wire.messages.headers import ResponseHeader
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.messages.share_fetch import ShareFetchResponse
from ottla.wire.record_batch.batch_header import LOG_OVERHEAD_BYTES, MAGIC_OFFSET, read_offset_and_size
from ottla.wire.record_batch.legacy_records import MAGIC_PREFIX_BYTES, min_batch_bytes, parse_any_header

if TYPE_CHECKING:
    from ottla.broker.replication.hosted_partition import HostedPartition
    from ottla.broker.requests.peer import Peer
    from ottla.broker.services import BrokerServices
    from ottla.wire.codec.compiler import Chunk
    from ottla.wire.codec.schema import Message
    from ottla.wire.framing import RequestFrame

ResponsePartition = tuple[str | bytes, int]
"""Topic (its name, or its id from v13 on) and partition."""
CHECKED_APIS = frozenset({ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.SHARE_FETCH})
READ_COMMITTED = 1
TOPIC_IDS_SINCE = 13
METADATA_TOPIC = "__cluster_metadata"
MAX_SESSIONS = 2000


class InvalidResponse(AssertionError):
    """Raised for a response that breaks a property; the message names API, version, client and partition."""


class BatchOffsets(NamedTuple):
    """Offsets of the batches in a records field."""

    whole: list[tuple[int, int]]
    """First and last offset of each whole batch."""
    cut_off_at: int | None
    """First offset of the truncated batch at the end; None without one, or with too few bytes to read it."""
    rest_bytes: int
    """Bytes behind the last whole batch."""


def parse_batch_offsets(raw: bytes) -> BatchOffsets:
    """Return the offsets of the batches in ``raw``.

    Raises:
        AssertionError: the bytes are no batches.
    """
    whole: list[tuple[int, int]] = []
    at = 0
    while len(raw) - at >= MAGIC_PREFIX_BYTES:
        assert raw[at + MAGIC_OFFSET] <= 2, f"no batch begins at byte {at}"
        base, size = read_offset_and_size(raw, at)
        assert size >= min_batch_bytes(raw, at), f"a batch of {size} bytes at byte {at}"
        if size > len(raw) - at:
            return BatchOffsets(whole, base, len(raw) - at)
        header = parse_any_header(raw, at)
        whole.append((header.base_offset, header.last_offset))
        at += size
    rest = len(raw) - at
    return BatchOffsets(whole, read_offset_and_size(raw, at)[0] if rest >= LOG_OVERHEAD_BYTES else None, rest)


class FetchLimits(NamedTuple):
    """Limits of a Fetch request: maximum bytes, reader (consumer or follower), isolation level."""

    max_bytes: int
    is_consumer: bool
    committed: bool


def check_row(row: PartitionData, offset: int, reader: FetchLimits, *, has_holes: bool) -> int:
    """Check the records of a partition in a Fetch response; return the number of batches, a truncated one included.

    Args:
        row: the partition in the response.
        offset: fetch offset of the request.
        reader: limits of the request.
        has_holes: offsets may be missing between batches, as in a compacted log.

    Raises:
        AssertionError: a property does not hold.
    """
    raw = bytes(row.records or b"")
    if not raw:
        return 0
    assert row.error_code == 0, f"{len(raw)} bytes with error {row.error_code}"
    found = parse_batch_offsets(raw)
    assert found.whole, f"no whole batch in {len(raw)} bytes"
    first, last = found.whole[0]
    assert last >= offset, f"first batch {first} to {last} ends below fetch offset {offset}"
    assert first <= offset or has_holes, f"first batch {first} to {last} begins above fetch offset {offset}"
    before = first - 1
    for base, end in found.whole:
        assert before < base <= end, f"batch {base} to {end} behind offset {before}"
        before = end
    assert found.cut_off_at is None or found.cut_off_at > before, f"batch {found.cut_off_at} behind offset {before}"
    if reader.is_consumer:
        limit = row.last_stable_offset if reader.committed else row.high_watermark
        top = before if found.cut_off_at is None else found.cut_off_at
        assert top < limit, f"offset {top} at or above {limit} (read_committed {reader.committed})"
    return len(found.whole) + (found.rest_bytes > 0)


def check_fetch(
    rows: Iterable[tuple[ResponsePartition, PartitionData]],
    requested: dict[ResponsePartition, FetchPartition],
    reader: FetchLimits,
    holes: OffsetGaps,
) -> None:
    """Check the partitions of a Fetch response against those of the request, in the order of the response.

    Args:
        rows: Partitions of the response.
        requested: Partitions of the request, or of its fetch session.
        reader: Limits of the request.
        holes: Lookup of the logs that may have gaps between offsets, or are tiered.

    Raises:
        AssertionError: a property does not hold.
    """
    seen: set[ResponsePartition] = set()
    left, may_exceed = reader.max_bytes, True
    for place, row in rows:
        assert place not in seen, f"{place} is answered twice"
        seen.add(place)
        assert place in requested, f"{place} was not asked for"
        part, size = requested[place], len(row.records or b"")
        try:
            count = check_row(row, part.fetch_offset, reader, has_holes=size > 0 and holes.allowed(place))
            limit = max(min(part.partition_max_bytes, left), 0)
            exceeds = f"{size} bytes in {count} batches, limit {limit}"
            assert size <= limit or (may_exceed and count == 1), exceeds
        except AssertionError as error:
            raise AssertionError(f"{place}: {error}") from None
        counted = min(size, limit) if holes.is_tiered(place) else size
        left, may_exceed = max(left - counted, 0), may_exceed and not size


class OffsetGaps:
    """Lookup of logs that may have gaps between offsets (compacted, or not on this node), and of tiered logs."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def allowed(self, place: ResponsePartition) -> bool:
        """Return True if offsets may be missing between batches: a compacted topic, or no replica on this node."""
        replica = self._replica(place)
        return replica is None or replica.log.config.compact

    def is_tiered(self, place: ResponsePartition) -> bool:
        """Return True if records of a partition may be read from the remote store."""
        replica = self._replica(place)
        return replica is not None and replica.log.config.tiering.is_enabled

    def _replica(self, place: ResponsePartition) -> HostedPartition | None:
        topic, partition = place
        name = self._services.metadata.image.topic_names.get(topic) if isinstance(topic, bytes) else topic
        return None if name is None else self._services.replica_manager.get(name, partition)


class ResponseChecker:
    """Observer that checks the responses of one node."""

    needs_messages_of = request_observers.ALL_APIS

    def __init__(self, services: BrokerServices) -> None:
        self._fetch_max_bytes = services.fetch_max_bytes
        self._holes = OffsetGaps(services)
        self._sessions: dict[int, dict[ResponsePartition, FetchPartition]] = {}
        """Partitions of the fetch sessions, by session id."""

    def received(self, peer: Peer, request: RequestFrame) -> None:
        """Do nothing (`RequestObserver.received`)."""

    def completed(self, peer: Peer, request: RequestFrame, response: Message) -> None:
        """Do nothing (`RequestObserver.completed`)."""

    def answered_prepared(self, peer: Peer, counts: request_observers.PreparedRequestCounts) -> None:
        """Do nothing: while this observer is installed, requests are decoded, and no prepared one answers them."""

    def answered(self, peer: Peer, request: RequestFrame, chunks: Sequence[Chunk], size_bytes: int) -> None:
        """Check the encoded response to a Fetch, ShareFetch or Produce request.

        Raises:
            InvalidResponse: a property does not hold.
        """
        key, version = request.key, request.version
        if key not in CHECKED_APIS:
            return
        frame = join_chunks(chunks)
        if frame is None:
            return
        try:
            requested: Any = compiler.decode(request_class(key), version, request.frame, request.body_position)[0]
            _, start = compiler.decode(ResponseHeader, response_header_version(key, version), frame[4:])
            response = compiler.decode_exact(response_class(key), version, frame[4 + start :])
        except WireError as error:
            raise InvalidResponse(f"{key.name} v{version}: {error}") from error
        try:
            if isinstance(response, FetchResponse):
                self._fetch(requested, version, response)
            elif isinstance(response, ProduceResponse):
                check_produce(requested, version, response)
            else:
                assert isinstance(response, ShareFetchResponse)
                check_share_fetch(response)
        except AssertionError as error:
            raise InvalidResponse(f"{key.name} v{version} of {request.client_id!r}: {error}") from None

    def _fetch(self, requested: FetchRequest, version: int, response: FetchResponse) -> None:
        rows = list(_partitions(response, version))
        if response.error_code or any(place[0] == METADATA_TOPIC for place, _ in rows):
            return
        named = dict(_partitions(requested, version))
        is_whole = requested.session_epoch in (0, -1)
        if is_whole:
            self._sessions.pop(requested.session_id, None)
            wanted = named
        else:
            known = self._sessions.get(requested.session_id)
            if known is None:
                return
            wanted = known
            wanted.update(named)
            for topic in requested.forgotten_topics_data:
                for number in topic.partitions:
                    wanted.pop((topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic, number), None)
        is_consumer = requested.replica_id < 0 and requested.replica_state.replica_id < 0
        most = min(requested.max_bytes, self._fetch_max_bytes)
        check_fetch(
            rows, wanted, FetchLimits(most, is_consumer, requested.isolation_level == READ_COMMITTED), self._holes
        )
        if is_whole and not response.throttle_time_ms:
            missing = named.keys() - {place for place, _ in rows}
            assert not missing, f"{len(missing)} partitions are not answered: {sorted(map(str, missing))[:3]}"
        if is_whole and response.session_id:
            self._sessions[response.session_id] = dict(named)
            if len(self._sessions) > MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]


def _partitions(message: FetchRequest | FetchResponse, version: int) -> Iterator[tuple[ResponsePartition, Any]]:
    topics: list[Any] = message.topics if isinstance(message, FetchRequest) else message.responses
    for topic in topics:
        for row in topic.partitions:
            number = row.partition if isinstance(message, FetchRequest) else row.partition_index
            yield (topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic, number), row


def check_produce(requested: ProduceRequest, version: int, response: ProduceResponse) -> None:
    """Check that a Produce response has each partition as often as the request, each with an offset or an error.

    Raises:
        AssertionError: a property does not hold.
    """

    def key(topic: Any) -> str | bytes:
        return topic.topic_id if version >= TOPIC_IDS_SINCE else topic.name  # type: ignore[no-any-return]

    wanted = Counter((key(topic), part.index) for topic in requested.topic_data for part in topic.partition_data)
    answered = Counter((key(topic), row.index) for topic in response.responses for row in topic.partition_responses)
    assert answered == wanted, f"asked for {wanted}, answered {answered}"
    for topic in response.responses:
        for row in topic.partition_responses:
            text = f"{key(topic)!r}-{row.index}: base offset {row.base_offset}, error {row.error_code}"
            assert row.error_code or row.base_offset >= 0, text


def check_share_fetch(response: ShareFetchResponse) -> None:
    """Check that a ShareFetch response has each partition once, with whole batches that hold the acquired records.

    Raises:
        AssertionError: a property does not hold.
    """
    seen: set[ResponsePartition] = set()
    for topic in response.responses:
        for row in topic.partitions:
            place = topic.topic_id, row.partition_index
            assert place not in seen, f"{place} is answered twice"
            seen.add(place)
            raw = bytes(row.records or b"")
            found = parse_batch_offsets(raw)
            assert not found.rest_bytes, f"{place}: {found.rest_bytes} bytes behind the last whole batch"
            assert bool(raw) == bool(row.acquired_records), f"{place}: {len(raw)} bytes, {row.acquired_records}"
            before = -1
            for acquired in row.acquired_records:
                assert before < acquired.first_offset <= acquired.last_offset, f"{place}: {row.acquired_records}"
                before = acquired.last_offset
            if raw:
                first, last = row.acquired_records[0].first_offset, row.acquired_records[-1].last_offset
                inside = found.whole[0][1] >= first and found.whole[-1][0] <= last
                assert inside, f"{place}: {found.whole} for {row.acquired_records}"


def join_chunks(chunks: Sequence[Chunk]) -> bytes | None:
    """Return the bytes of a response, with those of file ranges; None if a file cannot be read or was truncated.

    Simulated files are read outside their process, so that the read is not counted as a disk call and cannot fail.
    """
    out = []
    for chunk in chunks:
        if isinstance(chunk, FileSlice):
            file, start = chunk.file, chunk.offset
            try:
                if isinstance(file, MemoryFile):
                    raw = bytes(file.inode.data[start : start + chunk.size_bytes])
                else:
                    raw = file.pread(chunk.size_bytes, start)
            except OSError:
                return None
            if len(raw) < chunk.size_bytes:
                return None
            out.append(raw)
        else:
            out.append(bytes(chunk))
    return b"".join(out)


def install() -> None:
    """Check the responses of every node that starts in this Python process from now on; repeated calls do no harm."""
    if ResponseChecker not in request_observers.request_observer_factories:
        request_observers.request_observer_factories.append(ResponseChecker)
