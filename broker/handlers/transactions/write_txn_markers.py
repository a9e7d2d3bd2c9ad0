"""WriteTxnMarkers (27), v1-2: write the markers that end transactions to partitions that this broker leads.

Behaviour: each partition has its own result, returned once its marker is committed: UNKNOWN_TOPIC_OR_PARTITION if this
broker does not host it, NOT_LEADER_OR_FOLLOWER if it does not lead it or its group coordinator is not loaded,
INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED for a late marker.
Version notes: v2 has the transaction version, by which late markers are recognized.

Source: ``KafkaApis.handleWriteTxnMarkersRequest`` (apache/kafka 4.3.1).
From KIP-98; versions: KIP-1228.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.broker.handlers.transactions.marker_writer import write_markers
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def _reject_request(context: RequestContext, request: WriteTxnMarkersRequest, code: ErrorCode) -> ResponseJob:
    response = WriteTxnMarkersResponse(context.response_array())
    for marker in request.markers:
        result = WritableTxnMarkerResult(marker.producer_id, context.response_array())
        for topic in marker.topics:
            topic_result = WritableTxnMarkerTopicResult(topic.name, context.response_array())
            for number in topic.partition_indexes:
                topic_result.partitions.append(WritableTxnMarkerPartitionResult(number, code))
                yield None
            result.topics.append(topic_result)
            yield None
        response.markers.append(result)
        yield None
    return response


def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> HandlerResult:
    """Authorize the request and write each marker; respond when all are committed or have failed."""
    if not (
        context.may(AclOperation.ALTER, ResourceType.CLUSTER)
        or context.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    ):
        return _reject_request(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return write_markers(context.services, request)
