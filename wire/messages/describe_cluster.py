"""DescribeCluster (API 60): cluster id, nodes and controller (KIP-700)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bool, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class DescribeClusterRequest(Message):
    """Request for the nodes of the cluster, to a broker or to a controller."""

    SPEC: ClassVar[MessageSpec] = request(60, "0-2", "0+", "broker controller")
    """Version 1 adds controllers (KIP-919), version 2 fenced brokers (KIP-1073).

    Flow: An admin client sends it to a broker, or with endpoint type 2 to a controller. Unlike Metadata it lists no
    topics.

    Errors: INVALID_REQUEST: A controller got version 0, which has no endpoint type.
    """
    include_cluster_authorized_operations: Bool = False
    """True to return the operations on the cluster that the principal is authorized for."""
    endpoint_type: Annotated[int, wire_field("int8", "1+")] = 1
    """1 brokers, 2 controllers. It must match the listener, else MISMATCHED_ENDPOINT_TYPE; other values are rejected
    with UNSUPPORTED_ENDPOINT_TYPE.
    """
    include_fenced_brokers: Annotated[bool, wire_field("bool", "2+")] = False
    """True to list fenced brokers as well."""


class DescribeClusterBroker(Message):
    """Broker of a DescribeCluster response, or controller if controllers were requested."""

    broker_id: Int32 = 0
    """Node id of the broker or controller."""
    host: String = ""
    """Host name or address of the listener that the request came in on."""
    port: Int32 = 0
    """Port of that listener."""
    rack: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """`broker.rack`, null if not set."""
    is_fenced: Annotated[bool, wire_field("bool", "2+")] = False
    """True if the broker is fenced: it lost its session with the controller, or has not completed its start."""


class DescribeClusterResponse(Message):
    """Cluster id, controller (from a broker: any broker), and brokers or controllers, as requested."""

    SPEC: ClassVar[MessageSpec] = response(60, "0-2", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE."""
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""
    endpoint_type: Annotated[int, wire_field("int8", "1+")] = 1
    """1 brokers, 2 controllers."""
    cluster_id: String = ""
    """Id that the cluster was formatted with, the same on all nodes."""
    controller_id: Int32 = -1
    """From a controller, node id of the active controller. From a broker, node id of any broker that is not fenced: it
    forwards the requests that are for the controller. -1 if there is none.
    """
    brokers: Annotated[list[DescribeClusterBroker], wire_field("[]struct")] = field(default_factory=list)
    """Nodes of the requested type."""
    cluster_authorized_operations: Int32 = -2147483648
    """Bits of the authorized operations; 0 if the principal may not describe the cluster, -2147483648 if they were not
    requested.
    """
