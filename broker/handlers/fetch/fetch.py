"""Fetch (1), v4-18: ranges of segment files, sent from the page cache to the socket.

Behaviour: partitions are read in request order. The first batch of the first partition with records is returned whole
even if it exceeds the limits. For the following partitions the limits are hard: a partition whose first batch does not
fit returns no records, a later batch may be cut off. The response is delayed until ``min_bytes`` are available (at most
as many as the limits allow), a partition has an error, a diverging epoch or a preferred replica, or ``max_wait_ms`` has
passed. A partition that is unknown or not authorized completes the fetch only if there is no other partition. Consumers
read records below the high watermark, or below the last stable offset with read_committed. With tiered storage, records
below the local log start offset come from the remote tier (`remote_fetch`).

A request with a replica id comes from a follower: it reads up to the log end offset, and its fetch offsets update the
follower's state on the leader, once, when the request arrives, and not when a delayed request is read again. Below the
local log start offset it gets OFFSET_MOVED_TO_TIERED_STORAGE.

Version notes: v7 sessions; v9 leader epochs; v11 any replica serves consumers; v12 diverging epochs; v13 topic ids; v16
leader endpoints.

Source: ``KafkaApis.handleFetchRequest``, ``ReplicaManager.fetchMessages``, ``Partition.fetchRecords``,
``DelayedFetch.scala`` (apache/kafka 4.3.1).
Limits in bytes: KIP-74; sessions: KIP-227; epochs: KIP-320; any replica: KIP-392; topic ids: KIP-516; a follower's
broker epoch: KIP-903; tiered storage: KIP-405.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.fetch_sessions.fetch_session import CachedPartition, FetchContext, FetchRowBuffer
from ottla.broker.handlers.fetch.delayed_fetch import PARTITIONS_PER_STEP, AvailableBytes, UnreadablePartitions
from ottla.broker.handlers.fetch.fetch_params import (
    ANY_REPLICA_SINCE,
    CONSUMER_FETCH_PARAMS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchParams,
    diverging_epoch,
    is_consumer,
    resolve_fetch_params,
)
from ottla.broker.handlers.fetch.follower_response import update_follower_session
from ottla.broker.handlers.fetch.prepared_fetch import prepare
from ottla.broker.handlers.fetch.read_attempt import ReadAttempt
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.partition_state import LeaderState
from ottla.broker.replication.rack_aware_selector import READ_FROM_LEADER, select_replica
from ottla.broker.requests.peer import UNKNOWN_QUOTA, wait_while_connected
from ottla.broker.requests.purgatory import DelayedOperation
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import Job
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

PARTITION_OVERHEAD_BYTES = 60
"""Approximate size in bytes of a partition in the response without its records, for the quota."""
_UNREADABLE = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""Errors of partitions that are rejected before they are read (``erroneous`` in ``KafkaApis.handleFetchRequest``)."""
_TIERED = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
_NOT_IN_LOCAL_LOG = (ErrorCode.OFFSET_OUT_OF_RANGE, _TIERED)
STORAGE_ERROR_SINCE, TOPIC_IDS_SINCE = 6, 13
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_REPLICA_ERRORS = (ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID)
_EXPECTED = (*_NOT_IN_LOCAL_LOG, *_LEADER_ERRORS, ErrorCode.UNKNOWN_LEADER_EPOCH, *_REPLICA_ERRORS)
"""Errors that are not counted as failed fetches (``ReplicaManager.readFromLog``)."""


def _partition_to_read(context: RequestContext, want: CachedPartition, follower: int) -> HostedPartition:
    if want.topic is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID)
    authorizer = context.services.authorizer
    if authorizer is not None and (follower >= 0 or want.topic not in context.peer.authorization_cache.readable_topics):
        is_broker = follower >= 0 and context.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        if not is_broker and (follower >= 0 or not authorizer.may_read(context, want.topic)):
            raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if want.topic_id != ZERO_UUID:
        known = context.image.topics.get(want.topic)
        if known is not None and known.id != want.topic_id:
            raise ProtocolError(ErrorCode.INCONSISTENT_TOPIC_ID)
    return context.services.replica_manager.hosted(want.topic, want.partition)


def _read_partition(
    context: RequestContext, want: CachedPartition, max_bytes: int, reader: FetchParams, *, first: bool, arrives: bool
) -> PartitionData:
    """Read one partition and return its row of the response; an error becomes its error code.

    ``first``: no records are in the response yet, so the first batch may exceed ``max_bytes``. ``arrives``: first read
    of the request, which is counted and updates the follower's state. An I/O error fails the log directory.
    """
    replica: HostedPartition | None = None
    try:
        follower = reader.replica_id
        replica = _partition_to_read(context, want, follower)
        traffic = replica.traffic
        traffic.fetches += arrives
        if reader.leader_only:
            replica.check_leader(want.current_leader_epoch)
        elif want.current_leader_epoch != -1:
            replica.check_epoch(want.current_leader_epoch)
        if follower >= 0:
            named = want.current_leader_epoch >= 0
            replica.check_follower(follower, reader.broker_epoch, names_epoch=named)
        log = replica.log
        upper, stable = log.high_watermark, log.last_stable_offset
        out = PartitionData(want.partition, 0, upper, stable, log.log_start_offset, aborted_transactions=None)
        if reader.client_rack and _redirect_to_preferred_replica(context, replica, want, reader, out):
            return out
        if want.last_fetched_epoch >= 0 and _has_diverged(replica, want, out):
            return out
        committed = reader.read_committed
        if committed:
            upper = stable
        elif follower >= 0:
            upper = log.log_end_offset
        limit = want.max_bytes if want.max_bytes < max_bytes else max_bytes
        part = log.read(want.fetch_offset, limit, upper, at_least_one=first)
        if part is None:
            out.records = b""
        else:
            out.records = part
            if follower >= 0:
                traffic.replication_bytes_out += len(part)
            else:
                traffic.bytes_out += len(part)
        # null, not empty, where the first batch does not fit: ``ReplicaManager.readFromLog`` (firstEntryIncomplete)
        if committed and (part is not None or limit <= 0 or want.fetch_offset >= upper):
            aborted = log.aborted_txns_in_slice(part, want.fetch_offset) if part is not None else []
            out.aborted_transactions = [AbortedTransaction(a.producer_id, a.first_offset) for a in aborted]
        if follower >= 0:
            _update_follower(context, reader, replica, want, out, arrives=arrives)
        return out
    except ProtocolError as error:
        if replica is not None and error.code in _NOT_IN_LOCAL_LOG:
            return _out_of_range(context, want, replica)
        return _error_partition(context, want, error.code, is_counted=replica is not None or not arrives)
    except OSError as error:
        assert replica is not None, "only a hosted partition is read"
        context.services.fail(error, replica.log)
        return _error_partition(context, want, ErrorCode.KAFKA_STORAGE_ERROR, is_counted=True)


def _error_partition(
    context: RequestContext, want: CachedPartition, code: ErrorCode, *, is_counted: bool
) -> PartitionData:
    """Return the row of a partition with an error, and count it as Kafka does.

    Errors in `_UNREADABLE` are not counted, those in `_EXPECTED` as a fetch (unless ``is_counted``: it is already),
    others also as a failed one (``ReplicaManager.readFromLog``). Before v6 KAFKA_STORAGE_ERROR becomes
    NOT_LEADER_OR_FOLLOWER.
    """
    if code not in _UNREADABLE:
        traffic = context.services.replica_manager.topic_traffic(want.topic or "")
        traffic.fetches += not is_counted
        traffic.failed_fetches += code not in _EXPECTED
    context.peer.add_request_error(code)
    if code is ErrorCode.KAFKA_STORAGE_ERROR and context.version < STORAGE_ERROR_SINCE:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    aborted: list[AbortedTransaction] | None = [] if code in _UNREADABLE else None
    return PartitionData(want.partition, code, -1, records=b"", aborted_transactions=aborted)


def _out_of_range(context: RequestContext, want: CachedPartition, replica: HostedPartition) -> PartitionData:
    """Return the row of a partition whose fetch offset is not in the local log.

    The error of an offset in the remote tier is OFFSET_MOVED_TO_TIERED_STORAGE: for a follower in the response, for a
    consumer until `ReadAttempt.add_tiered` has decided whether the remote tier is read.

    Source: ``ReplicaManager.handleOffsetOutOfRangeError`` (apache/kafka 4.3.1).
    """
    log = replica.log
    is_tiered = log.config.tiering.is_enabled and context.services.remote_reads is not None
    if not is_tiered or not log.log_start_offset <= want.fetch_offset < log.local_log_start_offset:
        return _error_partition(context, want, ErrorCode.OFFSET_OUT_OF_RANGE, is_counted=True)
    ends = (log.high_watermark, -1, log.log_start_offset)
    return PartitionData(want.partition, _TIERED, *ends, records=b"", aborted_transactions=None)


def _redirect_to_preferred_replica(
    context: RequestContext, replica: HostedPartition, want: CachedPartition, reader: FetchParams, row: PartitionData
) -> bool:
    """Select a replica in the consumer's rack; return False if the consumer is to read from this broker.

    Otherwise set it as the preferred read replica of the row, without records, and return True. Only a leader selects.
    """
    state, elsewhere = replica.state, READ_FROM_LEADER
    if type(state) is LeaderState:
        elsewhere = select_replica(state, reader.broker_racks, reader.client_rack, want.fetch_offset, context.now_ms)
    if elsewhere == READ_FROM_LEADER:
        return False
    row.preferred_read_replica, row.records = elsewhere, b""
    return True


def _has_diverged(replica: HostedPartition, want: CachedPartition, row: PartitionData) -> bool:
    """Return True, with the diverging epoch in the row and no records, if the follower's log has diverged."""
    diverging = diverging_epoch(replica, want)
    if diverging is None:
        return False
    row.diverging_epoch, row.records = diverging, b""
    return True


def _update_follower(
    context: RequestContext,
    reader: FetchParams,
    replica: HostedPartition,
    want: CachedPartition,
    row: PartitionData,
    *,
    arrives: bool,
) -> None:
    """Update the follower's fetch state if its request arrives (``arrives``), which may advance the high watermark.

    Remove the records from ``row`` if the follower is throttled.
    """
    if arrives:
        end = replica.log.log_end_offset
        replica.update_follower_fetch_state(
            reader.replica_id, reader.broker_epoch, want.fetch_offset, want.start_offset, end, context.now_ms
        )
    if reader.is_throttled(context, replica):
        row.records = b""


def _read_all(
    context: RequestContext,
    request: FetchRequest,
    reader: FetchParams,
    wanted: Iterable[CachedPartition | None],
    rows: FetchRowBuffer,
    *,
    arrives: bool,
) -> Job[ReadAttempt]:
    """Read the partitions in ``wanted`` and append their rows to ``rows``, as a job; None in ``wanted`` is skipped.

    The limits in bytes of request, broker and quota apply. ``arrives``: see `_read_partition`. Reads from the remote
    tier are left to the caller, except for a request so large that its rows are encoded at once.
    """
    most = min(request.max_bytes, context.services.fetch_max_bytes)
    quotas, takes = context.services.quota_holder.quotas, None
    if quotas is not None and reader.replica_id < 0:
        takes = context.peer.quota_bindings.fetch
        if context.client_id != takes.client_id:
            most, takes = quotas.max_fetch_bytes(context.peer, context.client_id, most), UNKNOWN_QUOTA
        elif most > takes.max_in_window:
            most = takes.max_in_window
    attempt = ReadAttempt(most, rows, takes)
    for number, want in enumerate(wanted, 1):
        if number % PARTITIONS_PER_STEP == 0:
            yield None
        if want is None:
            continue
        left = attempt.remaining_bytes
        row = _read_partition(context, want, left, reader, first=attempt.bytes == 0, arrives=arrives)
        size = len(row.records)
        attempt.bytes += size
        attempt.remaining_bytes = left - size if left > size else 0
        if row.error_code or row.diverging_epoch.epoch >= 0 or row.preferred_read_replica >= 0:
            if row.error_code in _UNREADABLE:
                attempt.unreadable.add(number)
            elif row.error_code == _TIERED and is_consumer(reader, request):
                attempt.add_tiered(context, want, row, arrives=arrives)
                if attempt.tiered and not isinstance(rows, list):  # the row is encoded below
                    yield from _read_tiered(context, reader, attempt)
                    attempt.urgent, arrives = True, False
            elif row.error_code == _TIERED:
                context.peer.add_request_error(_TIERED)
                attempt.urgent = True
            else:
                attempt.urgent = True
            if row.error_code in _LEADER_ERRORS and context.version >= 16:
                attempt.add_current_leader(context, want, row)
        rows.append((want, row))
        attempt.count += 1
    return attempt


def _uncount_bytes(context: RequestContext, attempt: ReadAttempt, *, is_follower: bool) -> None:
    """Subtract the bytes of a read with less than ``min_bytes`` from the traffic metrics: they will be read again.

    Nothing is subtracted for a large request: its rows are already encoded.
    """
    if not isinstance(attempt.partition_responses, list):
        return
    for want, row in attempt.partition_responses:
        replica = context.services.replica_manager.get(want.topic, want.partition) if len(row.records) else None
        if replica is not None and is_follower:
            replica.traffic.replication_bytes_out -= len(row.records)
        elif replica is not None:
            replica.traffic.bytes_out -= len(row.records)


def _reject_request(context: RequestContext, request: FetchRequest) -> Job[FetchResponse]:
    """Return a response with UNKNOWN_SERVER_ERROR for the whole request. Source: ``FetchRequest.getErrorResponse``."""
    response = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, session_id=request.session_id)
    response.responses = context.response_array()
    for topic in request.topics if context.version < TOPIC_IDS_SINCE else ():
        rows: list[PartitionData] = context.response_array()
        for part in topic.partitions:
            rows.append(PartitionData(part.partition, ErrorCode.UNKNOWN_SERVER_ERROR, -1, records=b""))
            yield None
        response.responses.append(FetchableTopicResponse(topic.topic, topic.topic_id, rows))
        yield None
    return response


def handle(context: RequestContext, request: FetchRequest) -> ResponseJob:
    """Read the partitions; delay a response with less than ``min_bytes`` and no error, at most for ``max_wait_ms``."""
    session = yield from context.services.fetch_sessions.new_context(
        context.image.topic_names, context.version, request, context
    )
    if isinstance(session, FetchResponse):
        return session
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return (yield from _reject_request(context, request))
    wanted = session.requested_partitions()
    reader = CONSUMER_FETCH_PARAMS[request.isolation_level == READ_COMMITTED, context.version < ANY_REPLICA_SINCE]
    if session.is_follower or request.rack_id:
        reader = resolve_fetch_params(context, request, session, reader)
    attempt = yield from _read_all(context, request, reader, wanted, session.create_row_buffer(), arrives=True)
    min_bytes = min(request.min_bytes, attempt.max_bytes)
    nothing = attempt.count == attempt.unreadable.count and session.wait_key is None
    is_tiered = bool(attempt.tiered)
    if is_tiered:
        yield from _read_tiered(context, reader, attempt)
    if is_tiered or request.max_wait_ms <= 0 or nothing or attempt.bytes >= min_bytes or attempt.urgent:
        response = yield from _respond(context, reader, session, attempt)
        if reader.replica_id < 0 and not reader.client_rack:
            prepare(context, request, session.session, wanted, response)
        return response
    if attempt.bytes:
        _uncount_bytes(context, attempt, is_follower=reader.replica_id >= 0)
    available = AvailableBytes(context, reader, min_bytes, session.wait_key)
    return (yield from _wait_for_bytes(context, request, reader, session, available, wanted, attempt.unreadable))


def _read_tiered(context: RequestContext, reader: FetchParams, attempt: ReadAttempt) -> Job[None]:
    """Make the reads of ``attempt`` from the remote tier, write their results into the rows and count the bytes."""
    # lazy: 11.3 ms, 416 kB: only for tiered storage
    from ottla.broker.handlers.fetch.remote_fetch import read_tiered_partitions

    attempt.bytes += yield from read_tiered_partitions(context, attempt.tiered, read_committed=reader.read_committed)
    attempt.tiered = ()


def _respond(
    context: RequestContext, reader: FetchParams, session: FetchContext, attempt: ReadAttempt
) -> Job[FetchResponse]:
    takes, size_bytes = attempt.allowance, attempt.bytes + attempt.count * PARTITION_OVERHEAD_BYTES
    if takes is not None and not takes.try_record(size_bytes, context.now_ms):
        quotas = context.services.quota_holder.quotas
        delay_ms = quotas and quotas.fetch_throttle_ms(context.peer, context.client_id, size_bytes, context.now_ms)
        if delay_ms:  # the records would exceed the quota: discard them (KIP-219)
            session_id = 0 if session.session is None else session.session.id
            return FetchResponse(throttle_time_ms=delay_ms, session_id=session_id)
    response = yield from session.build_response(attempt.partition_responses)
    if reader.replica_id >= 0:
        yield from update_follower_session(context, reader, session, attempt.partition_responses)
    elif context.version >= 16 and attempt.urgent:
        endpoints = context.services.metadata.endpoints(context.peer)
        response.node_endpoints = [NodeEndpoint(*e) for e in endpoints if e[0] in attempt.leaders]
    return response


def _wait_for_bytes(
    context: RequestContext,
    request: FetchRequest,
    reader: FetchParams,
    session: FetchContext,
    available: AvailableBytes,
    wanted: Iterable[CachedPartition | None],
    unreadable: UnreadablePartitions,
) -> Job[FetchResponse]:
    """Wait until ``min_bytes`` are available or ``max_wait_ms`` has passed; read all again and return the response.

    ``unreadable``: partitions in ``wanted`` that were rejected by the first read and are not awaited.
    """
    purgatory, parked = context.services.purgatory, DelayedOperation(available.is_enough_after)
    try:
        if not (yield from available.count_available(purgatory, parked, wanted, unreadable)):
            yield wait_while_connected(context.peer, purgatory.wait_for(parked, request.max_wait_ms))
            context.now_ms = context.services.env.now_ms()
    finally:
        yield from purgatory.release(parked)
    attempt = yield from _read_all(
        context, request, reader, session.requested_partitions(), session.create_row_buffer(), arrives=False
    )
    return (yield from _respond(context, reader, session, attempt))
