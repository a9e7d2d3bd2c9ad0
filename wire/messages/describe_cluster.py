"""DescribeCluster (api 60): the cluster's id, nodes and controller.

Made by KIP-700; version 1 asks controllers too (KIP-919), 2 tells which brokers are fenced (KIP-1073).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bool, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class DescribeClusterRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(60, "0-2", "0+", "broker controller")
    include_cluster_authorized_operations: Bool = False
    endpoint_type: A[int, wire_field("int8", "1+")] = 1
    include_fenced_brokers: A[bool, wire_field("bool", "2+")] = False


class DescribeClusterBroker(Message):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: A[str | None, wire_field("string", nullable="0+")] = None
    is_fenced: A[bool, wire_field("bool", "2+")] = False


class DescribeClusterResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(60, "0-2", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    endpoint_type: A[int, wire_field("int8", "1+")] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: A[list[DescribeClusterBroker], wire_field("[]struct")] = field(default_factory=list)
    cluster_authorized_operations: Int32 = -2147483648
