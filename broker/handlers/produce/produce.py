"""Produce (0), v3-13 (advertised from 0, as Kafka does).

Behaviour: one batch of format 2 for each partition. Its header is validated, base offset and leader epoch are written
into the receive buffer, from which the batch is appended to the page cache. Records are validated only if a topic's
settings require it, in time slices for a large batch. Internal topics accept records from coordinators, and from
clients only with the client id of the admin tools. With acks=0 there is no response, and an error closes the
connection; with acks=-1 the response waits for the high watermark. Transactional batches are verified first.
Version notes: v8 returns record errors; v10 the current leader; v12 adds the partitions to the transaction; v13 has
topic ids (unknown: UNKNOWN_TOPIC_ID).

Source: ``KafkaApis.handleProduceRequest``, ``ReplicaManager.appendRecords`` (apache/kafka 4.3.1).
Idempotent producers: KIP-98; errors by record: KIP-467; topic ids: KIP-516.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.config.limits import MAX_RECORD_ERRORS_PER_RESPONSE
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.broker.handlers.produce.batch_precheck import TRANSACTIONAL, find_batch_problem, topic_name
from ottla.broker.handlers.produce.partition_append import (
    append_batch,
    count_rejection,
    partition_error,
    partition_rejection,
)
from ottla.broker.handlers.produce.prepared_produce import prepare
from ottla.broker.handlers.produce.produce_acks import wait_for_acks
from ottla.broker.replication.delayed_produce import DelayedProduce
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.requests.peer import CloseConnection
from ottla.jobs.job import Job, as_job
from ottla.log.log_validator import ValidationJob, ValidationPending
from ottla.log.producers.transaction_verification import NO_TXN_CONTEXT, TxnAppendContext
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from ottla.broker.handlers.produce.txn_verification import TransactionVerification

_MANY_PARTITIONS = 64
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class _DeferredAppend(NamedTuple):
    """Batch whose records have to be validated before its append: validation job, and position of its response row."""

    name: str
    part: PartitionProduceData
    responses: list[PartitionProduceResponse]
    row_index: int
    steps: ValidationJob
    txn: TxnAppendContext


class _ProduceResult:
    """Produce request in progress: response rows, deferred appends, and batches that wait for acknowledgements."""

    __slots__ = (
        "_context",
        "_delayed",
        "_has_failed",
        "_leaders",
        "_record_error_count",
        "_request",
        "deferred",
        "response",
    )

    def __init__(self, context: RequestContext, request: ProduceRequest) -> None:
        self._context = context
        self._request = request
        self.response = ProduceResponse()
        self._has_failed = False
        self._delayed: list[DelayedProduce] = []
        self._leaders: set[int] = set()
        self._record_error_count = 0
        """Record errors in the response so far."""
        self.deferred: list[_DeferredAppend] = []
        """Batches whose records have to be validated in time slices before their append."""

    def append_partition(
        self,
        name: str | None,
        part: PartitionProduceData,
        rows: list[PartitionProduceResponse],
        txn: TxnAppendContext = NO_TXN_CONTEXT,
    ) -> None:
        """Append one partition's batch and add its row to ``rows``; defer a batch with records to be validated first.

        A deferred batch has an empty row until then.
        """
        try:
            row, replica = append_batch(self._context, name, part, self._request.acks, None, txn)
        except ValidationPending as first:
            assert name is not None
            self.deferred.append(_DeferredAppend(name, part, rows, len(rows), first.steps, txn))
            rows.append(PartitionProduceResponse(part.index))
            return
        self.record_result(name, row, replica)
        rows.append(row)

    def add_error(self, part: PartitionProduceData, error: ProtocolError, rows: list[PartitionProduceResponse]) -> None:
        """Add an error row to ``rows`` for a partition whose batch is not appended, with the error's message."""
        (row := partition_error(part, error)).error_message = error.message
        self.record_result(None, row, None)
        rows.append(row)

    def record_result(self, name: str | None, row: PartitionProduceResponse, replica: HostedPartition | None) -> None:
        """Count the errors of a partition's row, and record whether the response waits for its acknowledgement.

        With a leader error the current leader is set in the row; record errors beyond the limit of the response are
        removed from it. ``replica`` is None for a partition that is not led here.
        """
        if row.error_code:
            self._has_failed = True
            self._context.peer.add_request_error(row.error_code)
            self._record_error_count += len(row.record_errors)
            if self._record_error_count > MAX_RECORD_ERRORS_PER_RESPONSE:
                row.record_errors = []
            if row.error_code in _LEADER_ERRORS and name is not None and self._context.version >= 10:
                _add_current_leader(self._context, name, row.index, row, self._leaders)
        elif replica is not None and (self._request.acks == -1 or replica.is_flushing):
            log = replica.log
            if log.high_watermark < log.log_end_offset:
                self._delayed.append(DelayedProduce.for_log_end(replica, row))

    def response_or_wait(self) -> HandlerResult:
        """Record the request against the produce quota; return the response, or a job that waits for acknowledgements.

        Returns:
            None for acks=0: no response is sent.

        Raises:
            CloseConnection: A batch was rejected with acks=0.
        """
        context, quotas = self._context, self._context.services.quota_holder.quotas
        if quotas is not None:
            peer, client_id, size_bytes, now_ms = context.peer, context.client_id, len(context.frame), context.now_ms
            binding = peer.quota_bindings.produce
            if client_id != binding.client_id or not binding.try_record(size_bytes, now_ms):
                self.response.throttle_time_ms = quotas.produce.maybe_record_and_get_throttle_ms(
                    peer, client_id, size_bytes, now_ms
                )
        if self._request.acks == 0:
            if self._has_failed:
                raise CloseConnection
            return None
        if self._leaders:
            endpoints = context.services.metadata.endpoints(context.peer)
            self.response.node_endpoints = [NodeEndpoint(*e) for e in endpoints if e[0] in self._leaders]
        if self._delayed:
            return wait_for_acks(self._context, self._request, self.response, self._delayed)
        if not self._has_failed:
            prepare(context, self._request)
        return self.response


class _VerifiedProduceResult(_ProduceResult):
    """Produce request in progress whose transactional batches the transaction coordinator has verified or rejected."""

    __slots__ = ("_confirmation",)

    def __init__(self, context: RequestContext, request: ProduceRequest, confirmation: TransactionVerification) -> None:
        super().__init__(context, request)
        self._confirmation = confirmation

    def append_partition(
        self,
        name: str | None,
        part: PartitionProduceData,
        rows: list[PartitionProduceResponse],
        txn: TxnAppendContext = NO_TXN_CONTEXT,
    ) -> None:
        """Append one partition's batch with its transaction verification and add its row, as `_ProduceResult`.

        A batch that the transaction coordinator rejected is not appended and has an error row.
        """
        at = name or "", part.index
        error = self._confirmation.refused.get(at)
        if error is None:
            super().append_partition(name, part, rows, self._confirmation.txns.get(at, txn))
            return
        row = partition_error(part, error)
        if error.code is ErrorCode.INVALID_TXN_STATE:
            row.error_message = error.message
        self.record_result(name, row, None)
        rows.append(row)


def handle(context: RequestContext, request: ProduceRequest) -> HandlerResult:
    """Append the batch of each partition; return the response, None for acks=0, or a job that waits.

    An error concerns only its partition, but an invalid batch header rejects all batches before any is appended, unless
    a transactional batch comes before it.

    Raises:
        CloseConnection: A batch was rejected with acks=0.
    """
    outcome = _ProduceResult(context, request)
    topics = request.topic_data
    if len(topics) > _MANY_PARTITIONS:
        return _produce_many(context, request, outcome)
    corrupt = None
    for topic in topics:
        if len(topic.partition_data) > _MANY_PARTITIONS:
            return _produce_many(context, request, outcome)
        corrupt = corrupt or find_batch_problem(topic.partition_data)
    if corrupt is TRANSACTIONAL:
        return _transactional(context, request)
    for topic in topics:
        name = topic.name if context.version < 13 else topic_name(context, topic)
        rows: list[PartitionProduceResponse] = []
        for part in topic.partition_data:
            if corrupt is None:
                outcome.append_partition(name, part, rows)
            else:
                outcome.add_error(part, corrupt, rows)
        outcome.response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, rows))
    return _validate_deferred(context, request, outcome) if outcome.deferred else outcome.response_or_wait()


def _validate_deferred(context: RequestContext, request: ProduceRequest, outcome: _ProduceResult) -> ResponseJob:
    """Validate the records of deferred batches in time slices, append the batches and return the response."""
    for one in outcome.deferred:
        row, replica = yield from _validate_and_append(context, request, one)
        outcome.record_result(one.name, row, replica)
        one.responses[one.row_index] = row
    return (yield from as_job(outcome.response_or_wait()))


def _produce_many(context: RequestContext, request: ProduceRequest, outcome: _ProduceResult) -> ResponseJob:
    """Process a request with many partitions, as a job that yields after each partition; return the response."""
    corrupt = yield from _find_corrupt_batch(request)
    if corrupt is TRANSACTIONAL:
        return (yield from _transactional(context, request))
    if corrupt is not None:
        return (yield from _reject_all(context, request, outcome, corrupt))
    return (yield from _append_all(context, request, outcome))


def _reject_all(
    context: RequestContext, request: ProduceRequest, outcome: _ProduceResult, error: ProtocolError
) -> ResponseJob:
    yield from _add_all_errors(context, request, outcome, error)
    return (yield from as_job(outcome.response_or_wait()))


def _transactional(context: RequestContext, request: ProduceRequest) -> ResponseJob:
    """Process a request with transactional batches after its verification by the transaction coordinator, as a job."""
    # lazy: 10.5 ms, 301 kB
    from ottla.broker.handlers.produce.txn_verification import verify_transaction

    try:
        confirmation = yield from verify_transaction(context, request)
    except ProtocolError as error:
        return (yield from _reject_all(context, request, _ProduceResult(context, request), error))
    return (yield from _append_all(context, request, _VerifiedProduceResult(context, request, confirmation)))


def _append_all(context: RequestContext, request: ProduceRequest, outcome: _ProduceResult) -> ResponseJob:
    every = yield from _append_compactly(context, request, outcome)
    response = yield from _validate_deferred(context, request, outcome)
    if isinstance(response, ProduceResponse):
        response.responses = yield from _topic_responses(context, request, every)
    return response


def _find_corrupt_batch(request: ProduceRequest) -> Job[ProtocolError | None]:
    for topic in request.topic_data:
        for part in topic.partition_data:
            wrong = find_batch_problem((part,))
            if wrong is not None:
                return wrong
            yield None
        yield None
    return None


def _add_all_errors(
    context: RequestContext, request: ProduceRequest, outcome: _ProduceResult, corrupt: ProtocolError
) -> Job[None]:
    for topic in request.topic_data:
        rows: list[PartitionProduceResponse] = context.response_array()
        for part in topic.partition_data:
            outcome.add_error(part, corrupt, rows)
            yield None
        yield None
        outcome.response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, rows))


CompactResult = PartitionProduceResponse | ErrorCode
"""Row of a partition, or only its error code, which saves memory for very many partitions."""


def _append_compactly(
    context: RequestContext, request: ProduceRequest, outcome: _ProduceResult
) -> Job[list[list[CompactResult]]]:
    every = []
    for topic in request.topic_data:
        name = topic_name(context, topic)
        rows: list[Any] = []
        for part in topic.partition_data:
            outcome.append_partition(name, part, rows)
            row = rows[-1]
            if row == PartitionProduceResponse(part.index, row.error_code, -1):
                rows[-1] = ErrorCode(row.error_code)
            yield None
        every.append(rows)
        yield None
    return every


def _topic_responses(
    context: RequestContext, request: ProduceRequest, every: list[list[CompactResult]]
) -> Job[list[TopicProduceResponse]]:
    out: list[TopicProduceResponse] = context.response_array()
    for topic, results in zip(request.topic_data, every, strict=True):
        rows: list[PartitionProduceResponse] = context.response_array()
        for part, row in zip(topic.partition_data, results, strict=True):
            rows.append(PartitionProduceResponse(part.index, row, -1) if isinstance(row, ErrorCode) else row)
            yield None
        out.append(TopicProduceResponse(topic.name, topic.topic_id, rows))
        yield None
    return out


def _validate_and_append(
    context: RequestContext, request: ProduceRequest, one: _DeferredAppend
) -> Job[tuple[PartitionProduceResponse, HostedPartition | None]]:
    steps = one.steps
    while True:
        try:
            checked = yield from context.services.decompression_limiter.as_job(steps)
            # Leadership and configuration may have changed meanwhile.
            return append_batch(context, one.name, one.part, request.acks, checked, one.txn)
        except ValidationPending as again:
            steps = again.steps
        except ProtocolError as error:
            replica = context.services.replica_manager.get(one.name, one.part.index)
            if replica is None:
                return partition_error(one.part, error), None
            count_rejection(replica.traffic, error.code, len(one.part.records))
            return partition_rejection(one.part, error, replica), None


def _add_current_leader(
    context: RequestContext, topic: str, index: int, row: PartitionProduceResponse, leaders: set[int]
) -> None:
    known = context.image.topics.get(topic)
    partition = known.partitions.get(index) if known is not None else None
    if partition is not None:
        row.current_leader = LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
        leaders.add(partition.leader)
