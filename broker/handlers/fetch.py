"""Fetch (1), v4-18: ranges of segment files, straight from the page cache to the socket.

Behaviour: partitions are read in request order. The first batch of the first partition that has something comes
whole even above the limits; after it limits are hard and a trailing batch may be cut. The answer waits until
``min_bytes`` are there, an error turns up, or ``max_wait_ms`` is over. Consumers see records below the high
watermark, or below the last stable offset with read_committed.

Version notes: v7 sessions; v9 leader epochs; v12 diverging epochs; v13 topic ids; v16 leader endpoints.
Deviation: a node alone has no followers: a request with a replica id is answered NOT_LEADER_OR_FOLLOWER.

Source: ``KafkaApis.handleFetchRequest``, ``ReplicaManager.fetchMessages``, ``DelayedFetch.scala`` (apache/kafka 4.3.1).

Limits in bytes: KIP-74; sessions: KIP-227; epochs: KIP-320; topic ids: KIP-516.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ottla.broker.replica.replica import Replica
from ottla.broker.server.dispatch import Answer, Context
from ottla.broker.server.sessions import FetchContext, Rows, Wanted
from ottla.broker.turn import Steps
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.wire.schema import ZERO_UUID, Message

READ_COMMITTED = 1
_STEP = 16
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def _diverging(replica: Replica, want: Wanted) -> EpochEndOffset | None:
    """Where the leader's log ends for the epoch the reader saw last, if the reader's log goes on beyond it."""
    replica.log.check_readable(want.fetch_offset)
    epoch, end = replica.log.epochs.end_offset_of(want.last_fetched_epoch, replica.log.log_end_offset)
    if epoch < 0 or end < 0:
        raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < want.last_fetched_epoch or end < want.fetch_offset:
        return EpochEndOffset(epoch, end)
    return None


def _replica(context: Context, want: Wanted) -> Replica:
    if want.topic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID)
    if want.topic_id != ZERO_UUID:
        known = context.image.topics.get(want.topic)
        if known is not None and known.id != want.topic_id:
            raise ProtocolError(ErrorCode.INCONSISTENT_TOPIC_ID)
    return context.services.replicas.leader(want.topic, want.partition)


def _read(context: Context, want: Wanted, max_bytes: int, *, committed: bool, first: bool) -> PartitionData:
    """Read one partition; an error becomes its error code."""
    try:
        replica = _replica(context, want)
        if want.is_follower:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica.check_epoch(want.current_leader_epoch)
        log = replica.log
        out = PartitionData(
            want.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted_transactions=None,
        )
        diverging = _diverging(replica, want) if want.last_fetched_epoch >= 0 else None
        if diverging is not None:
            out.diverging_epoch = diverging
            out.records = b""
            return out
        upper = out.last_stable_offset if committed else out.high_watermark
        limit = min(max_bytes, want.max_bytes)
        part = log.read(want.fetch_offset, limit, upper, at_least_one=first)
        out.records = b"" if part is None else part
        if committed:
            aborted = log.aborted_in(part, want.fetch_offset, upper) if part is not None else []
            out.aborted_transactions = [AbortedTransaction(a.producer_id, a.first_offset) for a in aborted]
        return out
    except ProtocolError as error:
        lookup = error.code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return PartitionData(want.partition, error.code, -1, records=b"", aborted_transactions=[] if lookup else None)
    except OSError as error:
        context.services.fail(error, replica.log)
        return PartitionData(want.partition, ErrorCode.KAFKA_STORAGE_ERROR, -1, records=b"", aborted_transactions=None)


class _Attempt:
    """One reading of everything a fetch wants."""

    def __init__(self, limit: int, rows: Rows) -> None:
        self.left = limit
        self.bytes = 0
        self.urgent = False
        self.rows = rows
        self.leaders: set[int] = set()
        """Whom the answer sends the reader to."""

    def look_elsewhere(self, context: Context, want: Wanted, row: PartitionData) -> None:
        """Say who leads a partition that is not led here, where that is known."""
        topic = context.image.topics.get(want.topic) if want.topic is not None else None
        partition = topic.partitions.get(want.partition) if topic is not None else None
        if partition is not None:
            row.current_leader = LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
            self.leaders.add(partition.leader)


def _attempt(context: Context, request: FetchRequest, wanted: Iterable[Wanted], rows: Rows) -> Steps[_Attempt]:
    """Read everything that is wanted, as far as the limits go: a step a few partitions."""
    attempt = _Attempt(min(request.max_bytes, context.services.fetch_max_bytes), rows)
    committed = request.isolation_level == READ_COMMITTED
    for number, want in enumerate(wanted, 1):
        row = _read(context, want, max(attempt.left, 0), committed=committed, first=attempt.bytes == 0)
        size = len(row.records)
        attempt.bytes += size
        attempt.left -= size
        if row.error_code or row.diverging_epoch.epoch >= 0:
            attempt.urgent = True
            if row.error_code in _LEADER_ERRORS and context.version >= 16:
                attempt.look_elsewhere(context, want, row)
        rows.append((want, row))
        if number % _STEP == 0:
            yield
    return attempt


def handle(context: Context, request: FetchRequest) -> Answer:
    """Read now if that is enough, else wait for more."""
    return context.turn.go(_fetch(context, request))


def _fetch(context: Context, request: FetchRequest) -> Steps[Answer]:
    session = yield from context.services.sessions.open(context.image.topic_names, context.version, request)
    if isinstance(session, FetchResponse):
        return session
    wanted = session.wanted()
    attempt = yield from _attempt(context, request, wanted, session.rows())
    min_bytes = min(request.min_bytes, request.max_bytes)
    if request.max_wait_ms <= 0 or not wanted or attempt.bytes >= min_bytes or attempt.urgent:
        return _respond(context, session, attempt)
    return _wait(context, request, session, list(wanted), min_bytes)


def _respond(context: Context, session: FetchContext, attempt: _Attempt) -> FetchResponse:
    response = session.respond(attempt.rows)
    if context.version >= 16 and attempt.urgent:
        endpoints = context.services.metadata.endpoints(context.peer.local)
        response.node_endpoints = [NodeEndpoint(*e) for e in endpoints if e[0] in attempt.leaders]
    return response


class _Available:
    """How many bytes a reading would bring: only what a change touched is looked at again."""

    def __init__(self, context: Context, request: FetchRequest, wanted: list[Wanted], enough: int) -> None:
        self._context = context
        self._committed = request.isolation_level == READ_COMMITTED
        self._enough = enough
        self._wanted = {("fetch", want.topic, want.partition): want for want in wanted}
        self._bytes: dict[Hashable, int] = {}
        self._total = 0

    @property
    def keys(self) -> Iterable[Hashable]:
        """What a reader waits on."""
        return self._wanted

    def is_enough_after(self, key: Hashable) -> bool:
        """Look at one partition again."""
        found = self._of(self._wanted[key])  # type: ignore[index]
        self._total += found - self._bytes.get(key, 0)
        self._bytes[key] = found
        return self._total >= self._enough

    def _of(self, want: Wanted) -> int:
        """What one partition would bring; any change that must be told counts as enough."""
        assert want.topic is not None
        replica = self._context.services.replicas.get(want.topic, want.partition)
        if replica is None or not replica.is_leader:
            return self._enough
        log = replica.log
        upper = log.last_stable_offset if self._committed else log.high_watermark
        if want.fetch_offset > log.log_end_offset or want.fetch_offset < log.log_start_offset:
            return self._enough
        return log.bytes_between(want.fetch_offset, upper, want.max_bytes) if upper > want.fetch_offset else 0


async def _wait(
    context: Context, request: FetchRequest, session: FetchContext, wanted: list[Wanted], min_bytes: int
) -> Message | None:
    """Park until enough bytes are there or the time is over, then read again."""
    available = _Available(context, request, wanted, min_bytes)
    enough = False
    for key in available.keys:  # in one go: nobody may change a partition between this look and the parking
        enough = available.is_enough_after(key) or enough
    if not enough:
        purgatory = context.services.purgatory
        await purgatory.wait_for_change(available.keys, available.is_enough_after, request.max_wait_ms)
    attempt = await context.turn.through(_attempt(context, request, wanted, session.rows()))
    return _respond(context, session, attempt)
