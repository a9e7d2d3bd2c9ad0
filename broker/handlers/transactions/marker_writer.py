"""Writer of transaction markers to the partitions that this broker leads.

Each marker is a control batch of its own in its partition and complete once it is committed. Markers of
`__consumer_offsets` partitions are written by the group coordinator, which applies or discards the transaction's
offsets.

Source: ``KafkaApis.handleWriteTxnMarkersRequest`` (apache/kafka 4.3.1).
From KIP-98; transaction version: KIP-1228.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.broker.groups.state_machine import EndOffsetsTransaction
from ottla.broker.replication.delayed_produce import DelayedProduce, wait_for_completion
from ottla.jobs.job import Job
from ottla.jobs.sequences import free_job
from ottla.jobs.state_machine import TransactionCompletion
from ottla.log.log_validator import AppendOrigin
from ottla.log.producers.transaction_verification import TxnAppendContext
from ottla.wire.codec.response_array import changeable_array
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.record_batch.control_record import ControlRecordType, EndTransactionMarker, build_end_transaction_batch

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices

MarkerPartitionResult = WritableTxnMarkerPartitionResult
_NOT_COORDINATOR = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


class _OffsetsMarker(NamedTuple):
    """Marker that was submitted to the group coordinator: the pending request and its row of the response."""

    pending_request: PendingBrokerRequest
    row: MarkerPartitionResult


class _MarkerWrites:
    """Marker writes of one request: first `append_all`, then `await_committed`."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self.delayed_appends: list[DelayedProduce] = []
        self.offsets_markers: list[_OffsetsMarker] = []

    def append_all(self, request: WriteTxnMarkersRequest, response: WriteTxnMarkersResponse) -> Job[None]:
        """Append or submit every marker and add its row to the response, as a job; an error becomes its error code.

        The response has one result per producer id.
        """
        by_producer: dict[int, WritableTxnMarkerResult] = {}
        by_topic: dict[tuple[int, str], list[MarkerPartitionResult]] = {}
        for marker in request.markers:
            yield None
            result = by_producer.get(marker.producer_id)
            if result is None:
                result = by_producer[marker.producer_id] = WritableTxnMarkerResult(
                    marker.producer_id, changeable_array()
                )
                response.markers.append(result)
            for topic in marker.topics:
                yield None
                rows = by_topic.get((marker.producer_id, topic.name))
                if rows is None:
                    rows = by_topic[marker.producer_id, topic.name] = changeable_array()
                    result.topics.append(WritableTxnMarkerTopicResult(topic.name, rows))
                for number in topic.partition_indexes:
                    row = MarkerPartitionResult(number)
                    rows.append(row)
                    self._write_marker(marker, topic.name, row)
                    yield None
        yield from free_job(by_producer)
        yield from free_job(by_topic)

    def _write_marker(self, marker: WritableTxnMarker, topic: str, row: MarkerPartitionResult) -> None:
        try:
            if topic == OFFSETS_TOPIC:
                self._submit_to_group_coordinator(marker, row)
            else:
                self._append(marker, topic, row)
        except ProtocolError as error:
            row.error_code = error.code

    def _submit_to_group_coordinator(self, marker: WritableTxnMarker, row: MarkerPartitionResult) -> None:
        """Submit a marker to the group coordinator, which commits or discards the transaction's offsets.

        The result is awaited by `await_committed`.

        Raises:
            ProtocolError: UNKNOWN_TOPIC_OR_PARTITION if this broker does not host the partition.
        """
        services = self._services
        if services.replica_manager.get(OFFSETS_TOPIC, row.partition_index) is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ends = TransactionCompletion(
            marker.producer_id, marker.producer_epoch, _txn_end(marker), marker.transaction_version
        )
        pending = services.groups.submit_to_partition(row.partition_index, lambda own: EndOffsetsTransaction(own, ends))
        self.offsets_markers.append(_OffsetsMarker(pending, row))

    def _append(self, marker: WritableTxnMarker, topic: str, row: MarkerPartitionResult) -> None:
        """Append a marker to the log of a partition outside `__consumer_offsets`; `await_committed` waits for it.

        Raises:
            ProtocolError: This broker does not host or lead the partition, the ISR is too small, the log rejects the
                marker, or the log directory has failed.
        """
        services, number = self._services, row.partition_index
        replica = services.replica_manager.get(topic, number)
        if replica is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not replica.is_leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica.check_min_isr()
        now_ms = services.env.now_ms()
        data = bytearray(
            build_end_transaction_batch(_txn_end(marker), marker.producer_id, marker.producer_epoch, now_ms)
        )
        try:
            replica.append(
                data,
                now_ms,
                AppendOrigin.COORDINATOR,
                txn=TxnAppendContext(transaction_version=marker.transaction_version),
            )
        except OSError as error:
            services.fail(error, replica.log)
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR) from None
        if replica.log.high_watermark < replica.log.log_end_offset:
            self.delayed_appends.append(DelayedProduce.for_log_end(replica, row))

    def await_committed(self, timeout_ms: float) -> Job[None]:
        """Wait until every marker is committed or has failed, as a job; set the error codes of failed ones.

        ``timeout_ms`` limits the wait for the replication of markers that were appended here: then the code is
        REQUEST_TIMED_OUT, and the marker stays in the log. The group coordinator has a time limit of its own.
        """
        yield wait_for_completion(self._services.purgatory, self.delayed_appends, timeout_ms)
        for one in self.delayed_appends:
            if one.is_failed:
                one.response.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif not one.is_completed:
                one.response.error_code = ErrorCode.REQUEST_TIMED_OUT
            elif not one.is_led_elsewhere and not one.replica.has_enough_replicas():
                one.response.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        for pending, row in self.offsets_markers:
            row.error_code = _from_group_coordinator((yield pending.wait()))


def _from_group_coordinator(answer: Any) -> ErrorCode:
    """Return the group coordinator's result as an error code for the transaction coordinator.

    Errors of a group coordinator that is not active here become NOT_LEADER_OR_FOLLOWER, so that the marker is sent
    again.
    """
    code: ErrorCode = answer.code if isinstance(answer, ProtocolError) else answer
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_COORDINATOR else code


def _txn_end(marker: WritableTxnMarker) -> EndTransactionMarker:
    kind = ControlRecordType.COMMIT if marker.transaction_result else ControlRecordType.ABORT
    return EndTransactionMarker(kind, marker.coordinator_epoch)


def write_markers(services: BrokerServices, request: WriteTxnMarkersRequest) -> Job[WriteTxnMarkersResponse]:
    """Write the markers to the partitions that this broker leads; return when each is committed or has failed.

    A marker that is not committed within ``request.timeout.ms`` is REQUEST_TIMED_OUT and stays in the log; one of a
    `__consumer_offsets` partition has the result of the group coordinator instead (`_from_group_coordinator`).
    """
    response, work = WriteTxnMarkersResponse(changeable_array()), _MarkerWrites(services)
    yield from work.append_all(request, response)
    yield from work.await_committed(services.config.number("request.timeout.ms"))
    return response
