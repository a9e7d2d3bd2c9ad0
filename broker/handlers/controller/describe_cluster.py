"""DescribeCluster (60), v0-2, on the controller listener: the controllers and the leader of the quorum.

Behaviour: the endpoint type must be CONTROLLER (MISMATCHED_ENDPOINT_TYPE); v0 has no such field and is always
INVALID_REQUEST.
A controller is listed if it is registered and has an endpoint for the listener of the connection; the controller id is
-1 if the leader has none.

Source: ``ControllerApis.handleDescribeCluster``, ``AuthHelper.computeDescribeClusterResponse`` (apache/kafka 4.3.1).
From KIP-919.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.admin.describe_cluster import BROKER_ENDPOINT, CONTROLLER_ENDPOINT
from ottla.broker.handlers.admin.metadata import cluster_authorized_operations
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_WRONG_TYPE = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"


def handle(context: RequestContext, request: DescribeClusterRequest) -> HandlerResult:
    """Return the registered controllers from the metadata image, and the id of the active one, -1 if it is not listed.

    An endpoint type other than CONTROLLER is an error; v0, which has no such field, is always INVALID_REQUEST.
    """
    if request.endpoint_type != CONTROLLER_ENDPOINT:
        known = request.endpoint_type == BROKER_ENDPOINT
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(
            error_code=ErrorCode.INVALID_REQUEST if context.version == 0 else code,
            error_message=_WRONG_TYPE if known else f"Unsupported endpoint type {request.endpoint_type}",
        )
    services = context.services
    response = DescribeClusterResponse(endpoint_type=CONTROLLER_ENDPOINT, cluster_id=services.metadata.cluster_id)
    for node_id, registered in sorted(context.image.controllers.items()):
        end = next((e for e in registered.end_points if e.name == context.peer.listener), None)
        if end is not None:
            response.brokers.append(DescribeClusterBroker(node_id, end.host, end.port))
    leader_id = services.controller.leader_id
    if any(node.broker_id == leader_id for node in response.brokers):
        response.controller_id = leader_id
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_authorized_operations(context)
    return response
