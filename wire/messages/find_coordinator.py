"""FindCoordinator (api 10): which broker coordinates a group, a transaction or a share partition.

Version 4 asks for many at once (KIP-699), 6 for share partitions (KIP-932).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Message, MessageSpec, request, response, wire_field


class FindCoordinatorRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(10, "0-6", "3+", "broker")
    key: A[str, wire_field("string", "0-3")] = ""
    key_type: A[int, wire_field("int8", "1+")] = 0
    coordinator_keys: A[list[str], wire_field("[]string", "4+")] = field(default_factory=list)


class Coordinator(Message):
    key: A[str, wire_field("string", "4+")] = ""
    node_id: A[int, wire_field("int32", "4+")] = 0
    host: A[str, wire_field("string", "4+")] = ""
    port: A[int, wire_field("int32", "4+")] = 0
    error_code: A[int, wire_field("int16", "4+")] = 0
    error_message: A[str | None, wire_field("string", "4+", nullable="4+", ignorable=True)] = ""


class FindCoordinatorResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(10, "0-6", "3+")
    throttle_time_ms: A[int, wire_field("int32", "1+", ignorable=True)] = 0
    error_code: A[int, wire_field("int16", "0-3")] = 0
    error_message: A[str | None, wire_field("string", "1-3", nullable="1-3", ignorable=True)] = ""
    node_id: A[int, wire_field("int32", "0-3")] = 0
    host: A[str, wire_field("string", "0-3")] = ""
    port: A[int, wire_field("int32", "0-3")] = 0
    coordinators: A[list[Coordinator], wire_field("[]struct", "4+")] = field(default_factory=list)
