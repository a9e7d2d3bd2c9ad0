"""ShareFetch (78), v1-2: acquire records of share partitions for a member until its acquisition locks expire.

Behaviour: epoch 0 opens a share session on this connection, -1 closes it and fetches nothing, others continue it.
Acknowledgements in the request are submitted first. The response is delayed until ``min_bytes`` can be acquired, the
leader or the log start of a partition has changed, all partitions have errors, or ``max_wait_ms`` has passed; whole
record batches are acquired. ``max_bytes`` is divided equally among the partitions with acquirable records: the first
batch of the first partition is returned in any size, further batches only if they fit. The isolation level is a
configuration of the *group*: records are readable up to the high watermark or the last stable offset.
Version notes: v2 can limit the acquired records strictly to ``max_records`` (KIP-1206), and can renew acquisition
locks, in which case it fetches nothing (KIP-1222).

Source: ``KafkaApis.handleShareFetchRequest``, ``SharePartitionManager.java``, ``DelayedShareFetch.java`` (apache/kafka
4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.config.limits import MAX_SHARE_SESSION_PARTITIONS
from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.fetch.fetch import PARTITION_OVERHEAD_BYTES
from ottla.broker.handlers.share import share_acknowledgements as acks
from ottla.broker.handlers.share.share_fetch_response import (
    add_acknowledge_result,
    build_response,
    changed_partitions,
)
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.requests.error_responses import with_error_response
from ottla.broker.requests.peer import wait_while_connected
from ottla.broker.requests.purgatory import DelayedOperation
from ottla.broker.share_partitions.acquisition import AcquireRequest, FetchedOffsets
from ottla.broker.share_partitions.record_batch_positions import aborted_batch_offsets, find_batches, slice_acquired
from ottla.broker.share_partitions.share_partition_leader import SharePartitionLeader
from ottla.broker.share_partitions.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, TopicIdPartition
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.env.disk import File, FileReadError, FileSlice
from ottla.jobs.job import Job
from ottla.log.segment.indexes import AbortedTxn
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import share_fetch as wire

if TYPE_CHECKING:
    from ottla.broker.storage.tiered.remote_log_reader import RemoteFetchInfo

    TieredSharePartition = tuple[TopicIdPartition, SharePartitionLeader, RemoteFetchInfo]

STRICT_ACQUIRE_MODE = 1
MAX_CONCURRENT_LOADS = 16


def _last_fetchable_offset(replica: HostedPartition, *, committed: bool) -> int:
    return replica.log.last_stable_offset if committed else replica.log.high_watermark


class _ShareFetch:
    """ShareFetch request in progress: loads its share partitions, waits for records and acquires them."""

    def __init__(self, context: RequestContext, request: wire.ShareFetchRequest, session: ShareSession | None) -> None:
        self._context = context
        self._request = request
        self._session = session
        self._shares = context.services.share_partition_manager
        self._committed = self._shares.group_config.is_read_committed(request.group_id or "")
        self._max_bytes = min(request.max_bytes, context.services.fetch_max_bytes)
        quotas = context.services.quota_holder.quotas
        if quotas is not None:
            self._max_bytes = quotas.max_fetch_bytes(context.peer, context.client_id, self._max_bytes)
        self.partition_responses: dict[TopicIdPartition, wire.PartitionData] = {}
        """Rows of partitions: those with an error, and those that were read."""
        self._shared: dict[TopicIdPartition, SharePartitionLeader] = {}
        self._by_key: dict[tuple[Hashable, ...], TopicIdPartition] = {}
        """Purgatory keys of each partition: that of its log and that of its share partition."""
        self._open: dict[TopicIdPartition, int] = {}
        """Number of bytes that can be acquired from each partition now."""
        self._total = 0
        self._left_bytes = self._max_bytes
        """Number of bytes of records that may still be read for the response."""

    def load_partitions(self) -> Job[None]:
        """Start the loads of the session's share partitions, as a job; add an error row for each that cannot be loaded.

        Partitions are loaded in turn: the session epoch decides which is the first. At most `MAX_CONCURRENT_LOADS`
        loads are started before other tasks run.
        """
        places = list(self._session.partitions) if self._session is not None else []
        epoch = self._request.share_session_epoch
        at = epoch % len(places) if places and epoch > 0 else 0
        new = 0
        for place in places[at:] + places[:at]:
            try:
                shared = self._shared[place] = self._share_partition(place)
            except ProtocolError as error:
                self._add_error(place, error)
                yield None
                continue
            self._by_key["fetch", shared.replica.topic, shared.replica.partition] = place
            self._by_key[shared.purgatory_key] = place
            new += shared.share_partition is None
            if new >= MAX_CONCURRENT_LOADS:  # each load sends a request to the persister
                yield self._context.services.env.sleep(0)
                new = 0
            yield None

    def _share_partition(self, place: TopicIdPartition) -> SharePartitionLeader:
        name = self._shares.topic_name(place)
        if name is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not self._context.may(AclOperation.READ, ResourceType.TOPIC, name):
            raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if not self._shares.partition_exists(place):
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self._shares.get_or_load(self._request.group_id or "", place)

    def _add_error(self, place: TopicIdPartition, error: ProtocolError) -> None:
        self._shared.pop(place, None)
        self.partition_responses[place] = wire.PartitionData(place.partition, error.code, error.message, records=b"")

    # ------------------------------------------------------------------ waiting

    def wait_for_records(self) -> Job[None]:
        """Wait until enough bytes can be acquired, at most ``max_wait_ms``, as a job.

        The wait also ends if the leader or the log start of a partition has changed, or if no partition without an
        error is left. Each partition is registered in the purgatory before it is read, as it may change during a yield.
        """
        purgatory = self._context.services.purgatory
        parked, enough = DelayedOperation(self.is_enough_after), not self._shared
        try:
            for key, place in self._by_key.items():
                purgatory.watch(parked, key)
                if key[0] == "share":
                    enough = self._update_acquirable(place) or enough
                yield None
            if not enough and not parked.event.is_set():
                wait = purgatory.wait_for(parked, max(self._request.max_wait_ms, 0))
                yield wait_while_connected(self._context.peer, wait)
        finally:
            yield from purgatory.release(parked)

    def is_enough_after(self, key: Hashable) -> bool:
        """Update the acquirable bytes for the changed purgatory key; return True if the fetch can be completed."""
        return self._update_acquirable(self._by_key[key])  # type: ignore[index]  # of what was watched

    def _update_acquirable(self, place: TopicIdPartition) -> bool:
        shared = self._shared.get(place)
        if shared is None:
            return not self._shared
        self._total -= self._open.pop(place, 0)
        if shared.load_error is not None:
            self._add_error(place, shared.load_error)
            return not self._shared
        if shared.is_closed:
            return True  # its leader may have changed
        offset = shared.next_fetch_offset()
        if offset is None:
            return False
        log = shared.replica.log
        if offset < log.log_start_offset or offset > log.log_end_offset:
            return True
        remote = self._context.services.remote_reads
        if offset < log.local_log_start_offset and remote is not None and not remote.is_throttled():
            return True
        upper = _last_fetchable_offset(shared.replica, committed=self._committed)
        available = log.bytes_between(offset, upper)
        self._open[place] = found = self._max_bytes if available is None else min(available, self._max_bytes)
        self._total += found
        if available is None:
            return True
        return self._total >= min(self._request.min_bytes, self._max_bytes)

    # ------------------------------------------------------------------ reading

    def read(self) -> Job[None]:
        """Acquire records from the partitions in order, until ``max_records`` are reached, and fill the rows, as a job.

        An error concerns only its partition. Nothing is acquired after the client has disconnected.
        """
        most, left = self._max_bytes // max(1, len(self._open)), self._request.max_records
        tiered: list[TieredSharePartition] = []
        for place, shared in list(self._shared.items()):
            if self._context.peer.is_disconnected:
                return  # the session is closed: records acquired now would never be released
            offset = shared.next_fetch_offset()
            try:
                if shared.is_closed:
                    self._shared[place] = self._share_partition(place)
                if offset is None:
                    continue
                left -= self._read(place, shared, offset, min(most, self._left_bytes), left)
            except ProtocolError as error:
                if error.code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                    self._add_tiered(tiered, place, offset, most)
                else:
                    self._add_error(place, error)
            except OSError as error:
                self._context.services.fail(error, shared.replica.log)
                self._add_error(place, ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR))
            yield None
        if tiered:
            yield from self._read_tiered(tiered, left)

    def _add_tiered(
        self, tiered: list[TieredSharePartition], place: TopicIdPartition, offset: int | None, max_bytes: int
    ) -> None:
        """Reserve bytes for a read from the remote tier, and add it to ``tiered``.

        Without bytes left, or while remote reads are throttled, the partition has no records in the response.
        """
        limit, remote = min(max_bytes, self._left_bytes), self._context.services.remote_reads
        if offset is not None and limit > 0 and remote is not None and not remote.is_throttled():
            # lazy: 9.2 ms, 355 kB: only for tiered storage
            from ottla.broker.storage.tiered.remote_log_reader import RemoteFetchInfo

            shared, first = self._shared[place], self._left_bytes == self._max_bytes
            info = RemoteFetchInfo(shared.replica.log, offset, limit, first, self._committed, is_parsed=True)
            tiered.append((place, shared, info))
            self._left_bytes -= limit

    def _read_tiered(self, tiered: list[TieredSharePartition], max_records: int) -> Job[None]:
        """Start the reads from the remote tier, wait for them, acquire their records and fill the rows, as a job."""
        # lazy: 10.7 ms, 409 kB: only for tiered storage
        from ottla.broker.handlers.fetch.remote_fetch import RemoteRecordsFile, wait_for_remote_reads

        remote = self._context.services.remote_reads
        assert remote is not None
        reads = []
        for _, shared, info in tiered:
            reads.append((shared.replica, remote.start_fetch(info)))  # one from open files is done by that
            yield None
        yield from wait_for_remote_reads(self._context, remote, reads)
        for (place, shared, info), (_, read) in zip(tiered, reads, strict=True):
            if self._context.peer.is_disconnected:
                return
            try:
                if read.error:
                    raise ProtocolError(read.error)
                if read.result is not None and read.result.records and not shared.is_closed:
                    shared.replica.check_leader(-1)
                    file = RemoteRecordsFile(read.result.records)
                    part = FileSlice(cast("File", file), 0, len(read.result.records))
                    aborted = read.result.aborted_txns or []
                    max_records -= self._acquire(place, shared, info.offset, part, aborted, max_records)
                    row = self.partition_responses[place]
                    if isinstance(row.records, FileSlice):
                        row.records = file.slice(row.records.offset, len(row.records))
            except ProtocolError as error:
                self._add_error(place, error)
            except OSError as error:  # of the chunk cache
                if isinstance(error, FileReadError):
                    remote.discard_chunk(error.file)
                self._add_error(place, ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            yield None

    def _read(
        self, place: TopicIdPartition, shared: SharePartitionLeader, offset: int, max_bytes: int, max_records: int
    ) -> int:
        replica, row = shared.replica, wire.PartitionData(place.partition, records=b"")
        replica.check_leader(-1)
        log, upper = replica.log, _last_fetchable_offset(replica, committed=self._committed)
        self.partition_responses[place] = row
        if not log.log_start_offset <= offset <= log.log_end_offset:
            shared.update_log_start_offset(log.log_start_offset)
            return 0
        # no batch was read yet: the first one is returned in any size
        first = self._left_bytes == self._max_bytes
        part = log.read(offset, max_bytes, upper, at_least_one=first) if max_records > 0 else None
        if part is None:
            return 0
        aborted = log.aborted_txns_in_slice(part, offset) if self._committed else []
        return self._acquire(place, shared, offset, part, aborted, max_records)

    def _acquire(
        self,
        place: TopicIdPartition,
        shared: SharePartitionLeader,
        offset: int,
        part: FileSlice,
        aborted_txns: list[AbortedTxn],
        max_records: int,
    ) -> int:
        """Acquire records of a read for the member and write them into the partition's row; return their number.

        Raises:
            ProtocolError: CORRUPT_MESSAGE.
        """
        row = self.partition_responses[place]
        try:
            batches = find_batches(part, shared.first_new_offset, max_records)
        except WireError as error:
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        if offset >= shared.replica.log.local_log_start_offset:
            self._left_bytes = max(self._left_bytes - (batches[-1].end if batches else 0), 0)
        aborted = aborted_batch_offsets(batches, aborted_txns) if self._committed else ()
        request = self._request
        acquire_request = AcquireRequest(
            request.member_id or "",
            max_records,
            request.batch_size,
            is_record_limit_strict=request.share_acquire_mode == STRICT_ACQUIRE_MODE,
        )
        acquired = shared.acquire_records(
            acquire_request, FetchedOffsets(offset, [batch.offsets for batch in batches], aborted)
        )
        if acquired:
            row.records = slice_acquired(part, batches, acquired)
            row.acquired_records = [wire.AcquiredRecords(*each) for each in acquired]
        return sum(each.last_offset - each.first_offset + 1 for each in acquired)


@with_error_response
def handle(context: RequestContext, request: wire.ShareFetchRequest) -> ResponseJob:
    """Process acknowledgements, then acquire records; wait up to ``max_wait_ms`` for ``min_bytes``."""
    acks.check_request(context, request.group_id, request.member_id)
    renews = context.version >= acks.RENEW_SINCE and request.is_renew_ack
    if renews and any((request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)):
        raise ProtocolError(ErrorCode.INVALID_REQUEST)
    acknowledgements: dict[TopicIdPartition, list[Any]] = {}
    for topic in request.topics:
        for part in topic.partitions:
            acknowledgements[TopicIdPartition(topic.topic_id, part.partition_index)] = part.acknowledgement_batches
            yield None
        yield None
    forgotten: set[TopicIdPartition] = set()
    for gone in request.forgotten_topics_data:
        for number in gone.partitions:
            if len(forgotten) <= MAX_SHARE_SESSION_PARTITIONS:  # one above the limit is enough to reject the request
                forgotten.add(TopicIdPartition(gone.topic_id, number))
            yield None
        yield None
    try:
        session = _session(context, request, acknowledgements, forgotten)
    except ProtocolError as error:
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # delays the retry of a client above the session limit
            delay = context.services.env.sleep(max(request.max_wait_ms, 0) / 1000)
            yield wait_while_connected(context.peer, delay)
        raise
    submitted = (
        (yield from acks.submit_acknowledgements(context, request, acknowledgements))
        if any(acknowledgements.values())
        else []
    )
    fetch = _ShareFetch(context, request, None if renews else session)
    return (yield from _fetch_and_respond(context, request, fetch, session, submitted))


def _session(
    context: RequestContext,
    request: wire.ShareFetchRequest,
    acknowledgements: dict[TopicIdPartition, list[Any]],
    forgotten: set[TopicIdPartition],
) -> ShareSession | None:
    """Return the share session of a request, opened or updated; None if the request closes it.

    Raises:
        ProtocolError: INVALID_REQUEST for acknowledgements in a new session, or the error of the share session.
    """
    sessions, epoch = context.services.share_partition_manager.sessions, request.share_session_epoch
    group_id, member_id = request.group_id or "", request.member_id or ""
    if epoch == INITIAL_EPOCH:
        if any(acknowledgements.values()):
            raise ProtocolError(ErrorCode.INVALID_REQUEST)
        return sessions.open(context.peer, group_id, member_id, acknowledgements)
    session = sessions.continue_session(group_id, member_id, epoch)
    if epoch == FINAL_EPOCH:
        return None
    sessions.update(session, acknowledgements, forgotten)
    return session


def _fetch_and_respond(
    context: RequestContext,
    request: wire.ShareFetchRequest,
    fetch: _ShareFetch,
    session: ShareSession | None,
    acknowledged: list[tuple[TopicIdPartition, PendingBrokerRequest]],
) -> Job[wire.ShareFetchResponse]:
    yield from fetch.load_partitions()
    if request.max_records > 0 and request.max_bytes > 0:
        yield from fetch.wait_for_records()
        yield from fetch.read()
    rows = yield from changed_partitions(request, fetch.partition_responses, session)
    for place, pending in acknowledged:
        yield wait_while_connected(context.peer, pending.wait())
        add_acknowledge_result(rows, place, pending.answer)
        yield None
    if request.share_session_epoch == FINAL_EPOCH:
        context.services.share_partition_manager.sessions.close(request.group_id or "", request.member_id or "")
    response = yield from build_response(context, request, rows)
    quotas = context.services.quota_holder.quotas
    if quotas is not None:
        size_bytes = sum(len(row.records or b"") + PARTITION_OVERHEAD_BYTES for row in rows.values())
        response.throttle_time_ms = quotas.fetch.record_and_get_throttle_ms(
            context.peer, context.client_id, size_bytes, context.services.env.now_ms()
        )
    return response
