"""DescribeCluster (60), v0-2, on a broker: cluster id, brokers and controller id.

Behaviour: the endpoint type CONTROLLER is MISMATCHED_ENDPOINT_TYPE, an unknown one UNSUPPORTED_ENDPOINT_TYPE. From
v2 fenced brokers can be included.

Source: ``KafkaApis.handleDescribeCluster``, ``AuthHelper.computeDescribeClusterResponse`` (apache/kafka 4.3.1).
From KIP-700; endpoint types: KIP-919; fenced brokers: KIP-1073.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.admin.metadata import cluster_authorized_operations
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKER_ENDPOINT, CONTROLLER_ENDPOINT = 1, 2
_WRONG_TYPE = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"


def handle(context: RequestContext, request: DescribeClusterRequest) -> HandlerResult:
    """Describe the cluster by the metadata image; the controller id is that of a random unfenced broker, or -1.

    Brokers without an endpoint on the client's listener are left out.
    The endpoint type CONTROLLER is MISMATCHED_ENDPOINT_TYPE, an unknown one UNSUPPORTED_ENDPOINT_TYPE.
    """
    services = context.services
    if request.endpoint_type != BROKER_ENDPOINT:
        known = request.endpoint_type == CONTROLLER_ENDPOINT
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=_WRONG_TYPE if known else f"Unsupported endpoint type {request.endpoint_type}",
        )
    response = DescribeClusterResponse(cluster_id=services.metadata.cluster_id)
    alive = context.image.unfenced_brokers()
    response.controller_id = alive[int(services.env.random() * len(alive))] if alive else -1
    for broker_id, host, port, rack in services.metadata.endpoints(context.peer, fenced=request.include_fenced_brokers):
        fenced = context.image.brokers[broker_id].fenced if context.version >= 2 else False
        response.brokers.append(DescribeClusterBroker(broker_id, host, port, rack, fenced))
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_authorized_operations(context)
    return response
