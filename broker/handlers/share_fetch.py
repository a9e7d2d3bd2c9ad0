"""ShareFetch (78), v1-2: records of share partitions, a member's for as long as its locks last.

Behaviour: epoch 0 opens a share session on this connection, -1 ends it, any other goes on with it. Acknowledgements
that come along are taken first. The answer waits until ``min_bytes`` can be handed out, an error turns up, or
``max_wait_ms`` is over; whole record batches are handed out. A member sees what its *group* may see, up to the high
watermark or the last stable offset.

Version notes: v2 can take no more than ``max_records`` strictly (KIP-1206), and renew locks, and then fetches nothing
(KIP-1222).

Source: ``KafkaApis.handleShareFetchRequest``, ``SharePartitionManager.java``, ``DelayedShareFetch.java`` (apache/kafka
4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Awaitable, Hashable
from typing import Any, NamedTuple

from ottla.broker.coordinator.ticket import Ticket
from ottla.broker.handlers import share_acks as acks
from ottla.broker.replica.replica import Replica
from ottla.broker.server.dispatch import Answer, Context
from ottla.broker.share.acquiring import Asked, Fetched
from ottla.broker.share.reading import aborted_among, batches_in, sliced
from ottla.broker.share.sessions import CLOSING, OPENING, Place, ShareSession
from ottla.broker.share.shared import Shared
from ottla.controller.acl import Operation, Resource
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import share_fetch as wire
from ottla.wire.schema import Message

STRICT = 1


class _Readable(NamedTuple):
    """A share partition that may hand something out, and from where on."""

    place: Place
    shared: Shared
    offset: int


def _upper(replica: Replica, *, committed: bool) -> int:
    return replica.log.last_stable_offset if committed else replica.log.high_watermark


class _Fetch:
    """One request's way through its share partitions."""

    def __init__(self, context: Context, request: wire.ShareFetchRequest, session: ShareSession | None) -> None:
        self._context = context
        self._request = request
        self._session = session
        self._shares = context.services.shares
        self._committed = self._shares.rules.reads_committed(request.group_id or "")
        self._max_bytes = min(request.max_bytes, context.services.fetch_max_bytes)
        self.rows: dict[Place, wire.PartitionData] = {}
        """What is known of a partition: errors first, then what was read."""
        self._shared: dict[Place, Shared] = {}

    def begin(self) -> None:
        """Have every share partition of the session at hand; what cannot be had has its row."""
        places = list(self._session.places) if self._session is not None else []
        turn = self._request.share_session_epoch
        at = turn % len(places) if places and turn > 0 else 0
        for place in places[at:] + places[:at]:
            try:
                self._shared[place] = self._one(place)
            except ProtocolError as error:
                self._fail(place, error)

    def _one(self, place: Place) -> Shared:
        name = self._shares.name_of(place)
        if name is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not self._context.may(Operation.READ, Resource.TOPIC, name):
            raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if not self._shares.exists(place):
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self._shares.serve(self._request.group_id or "", place)

    def _fail(self, place: Place, error: ProtocolError) -> None:
        self._shared.pop(place, None)
        self.rows[place] = wire.PartitionData(place.partition, error.code, error.message, records=b"")

    # ------------------------------------------------------------------ waiting

    @property
    def keys(self) -> list[Hashable]:
        """What it waits on."""
        out: list[Hashable] = []
        for shared in self._shared.values():
            out += [shared.wakes, ("fetch", shared.replica.topic, shared.replica.partition)]
        return out

    def is_ready(self) -> bool:
        """Whether enough can be handed out, or something must be told."""
        if not self._shared:
            return True
        readable, failed = self._readable(), False
        for place, shared in list(self._shared.items()):
            if shared.failure is not None:
                self._fail(place, shared.failure)
                failed = True
        if failed and not self._shared:
            return True
        most, found = self._share_of(readable), 0
        for one in readable:
            log, upper = one.shared.replica.log, _upper(one.shared.replica, committed=self._committed)
            if one.offset < log.log_start_offset or one.offset > log.log_end_offset:
                return True
            found += log.bytes_between(one.offset, upper, most)
        return bool(readable) and found >= min(self._request.min_bytes, self._max_bytes)

    def _readable(self) -> list[_Readable]:
        out = []
        for place, shared in self._shared.items():
            offset = shared.next_fetch_offset()
            if offset is not None:
                out.append(_Readable(place, shared, offset))
        return out

    def _share_of(self, readable: list[_Readable]) -> int:
        return self._max_bytes // len(readable) if readable else 0

    # ------------------------------------------------------------------ reading

    def read(self) -> None:
        """Hand out what there is, in order, as many records as were asked for."""
        readable = self._readable()
        most, left = self._share_of(readable), self._request.max_records
        for one in readable:
            try:
                left -= self._read(one, most, left)
            except ProtocolError as error:
                self._fail(one.place, error)
            except OSError as error:
                self._context.services.fail(error, one.shared.replica.log)
                self._fail(one.place, ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR))

    def _read(self, one: _Readable, max_bytes: int, max_records: int) -> int:
        replica, row = one.shared.replica, wire.PartitionData(one.place.partition, records=b"")
        replica.check_leads(-1)
        log, upper = replica.log, _upper(replica, committed=self._committed)
        self.rows[one.place] = row
        if not log.log_start_offset <= one.offset <= log.log_end_offset:
            one.shared.log_starts_at(log.log_start_offset)
            return 0
        part = log.read(one.offset, max_bytes, upper, at_least_one=True)
        if part is None:
            return 0
        try:
            batches = batches_in(part)
        except WireError as error:
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        aborted = aborted_among(batches, log.aborted_in(part, one.offset)) if self._committed else ()
        request = self._request
        asked = Asked(
            request.member_id or "", max_records, request.batch_size, strict=request.share_acquire_mode == STRICT
        )
        acquired = one.shared.acquire(asked, Fetched(one.offset, [batch.offsets for batch in batches], aborted))
        if acquired:
            row.records = sliced(part, batches, acquired)
            row.acquired_records = [wire.AcquiredRecords(*each) for each in acquired]
        return sum(each.last_offset - each.first_offset + 1 for each in acquired)


def handle(context: Context, request: wire.ShareFetchRequest) -> Answer:
    """Take acknowledgements, read now if that is enough, else wait for more."""
    refused = acks.refusal(context, request.group_id, request.member_id)
    if refused is None and context.version >= acks.RENEWS_SINCE and request.is_renew_ack:
        limits = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
        refused = ErrorCode.INVALID_REQUEST if any(limits) else None
    if refused is not None:
        return wire.ShareFetchResponse(error_code=refused)
    said = {
        Place(topic.topic_id, part.partition_index): part.acknowledgement_batches
        for topic in request.topics
        for part in topic.partitions
    }
    try:
        session = _session(context, request, said)
    except ProtocolError as error:
        response = wire.ShareFetchResponse(error_code=error.code, error_message=error.message or error.code.text)
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return _later(context, request, response)
        return response
    return _answer(context, request, session, said)


def _session(context: Context, request: wire.ShareFetchRequest, said: dict[Place, list[Any]]) -> ShareSession | None:
    """The session this request is of; None where it ends it."""
    sessions, epoch = context.services.shares.sessions, request.share_session_epoch
    group_id, member_id = request.group_id or "", request.member_id or ""
    if epoch == OPENING:
        if any(said.values()):
            raise ProtocolError(ErrorCode.INVALID_REQUEST)
        return sessions.open(context.peer, group_id, member_id, said)
    session = sessions.go_on(group_id, member_id, epoch)
    if epoch == CLOSING:
        return None
    forgotten = (
        Place(topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions
    )
    session.update(said, forgotten)
    return session


async def _later(context: Context, request: wire.ShareFetchRequest, response: Message) -> Message:
    """There are too many sessions: whoever is one too many does not ask again at once."""
    await context.services.env.sleep(max(request.max_wait_ms, 0) / 1000)
    return response


def _answer(
    context: Context, request: wire.ShareFetchRequest, session: ShareSession | None, said: dict[Place, list[Any]]
) -> Awaitable[Message]:
    told: list[tuple[Place, Ticket]] = []
    if any(said.values()):
        told = list(acks.take(context, request, said))
    renews = context.version >= acks.RENEWS_SINCE and request.is_renew_ack
    return _go_on(context, request, _Fetch(context, request, None if renews else session), session, told)


async def _go_on(
    context: Context,
    request: wire.ShareFetchRequest,
    fetch: _Fetch,
    session: ShareSession | None,
    told: list[tuple[Place, Ticket]],
) -> Message:
    fetch.begin()
    if request.max_records > 0 and request.max_bytes > 0:
        await context.services.purgatory.wait(fetch.keys, fetch.is_ready, max(request.max_wait_ms, 0))
        fetch.read()
    rows = {
        place: row
        for place, row in fetch.rows.items()
        if session is None
        or request.share_session_epoch == OPENING
        or session.is_news(place, brings=len(row.records or b"") > 0, failed=row.error_code != 0)
    }
    for place, ticket in told:
        await ticket.wait()
        _acknowledged(rows, place, ticket.answer)
    if request.share_session_epoch == CLOSING:
        context.services.shares.sessions.close(request.group_id or "", request.member_id or "")
    return _response(context, request, rows)


def _acknowledged(rows: dict[Place, wire.PartitionData], place: Place, answer: Any) -> None:
    row = rows.setdefault(place, wire.PartitionData(place.partition, records=b""))
    if isinstance(answer, ProtocolError):
        row.acknowledge_error_code, row.acknowledge_error_message = answer.code, answer.message


def _response(
    context: Context, request: wire.ShareFetchRequest, rows: dict[Place, wire.PartitionData]
) -> wire.ShareFetchResponse:
    topics: dict[bytes, list[wire.PartitionData]] = {}
    leaders: set[int] = set()
    for place, row in rows.items():
        if row.error_code in acks.LEADER_ERRORS:
            row.current_leader = wire.LeaderIdAndEpoch(*acks.leader_of(context, place))
            leaders.add(row.current_leader.leader_id)
        topics.setdefault(place.topic_id, []).append(row)
    endpoints = context.services.metadata.endpoints(context.peer) if leaders else []
    return wire.ShareFetchResponse(
        acquisition_lock_timeout_ms=context.services.shares.rules.limits(request.group_id or "").lock_duration_ms,
        responses=[wire.ShareFetchableTopicResponse(topic_id, parts) for topic_id, parts in topics.items()],
        node_endpoints=[wire.NodeEndpoint(*each) for each in endpoints if each[0] in leaders],
    )
