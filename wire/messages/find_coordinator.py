"""FindCoordinator (API 10): find the coordinator of a group, a transactional id or a share-partition."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Message, MessageSpec, request, response, wire_field


class FindCoordinatorRequest(Message):
    """Request for the coordinators of groups, transactional ids or share-partitions."""

    SPEC: ClassVar[MessageSpec] = request(10, "0-6", "3+", "broker")
    """Version 1 adds transaction coordinators (KIP-98), 3 is flexible, 4 takes several keys (KIP-699), 5 brings
    TRANSACTION_ABORTABLE (KIP-890), 6 adds share coordinators (KIP-932).

    Flow: A client sends it to any broker before its first request to a coordinator, and again after NOT_COORDINATOR.
    The coordinator is the leader of the partition of the internal topic that the hash of the key selects. The broker
    creates the internal topic if it does not exist.
    """
    key: Annotated[str, wire_field("string", "0-3")] = ""
    """Group id or transactional id, up to version 3."""
    key_type: Annotated[int, wire_field("int8", "1+")] = 0
    """0 group, 1 transactional id, 2 share-partition. Others are rejected with INVALID_REQUEST."""
    coordinator_keys: Annotated[list[str], wire_field("[]string", "4+")] = field(default_factory=list)
    """Group ids, transactional ids or share-partitions, from version 4 on. A share-partition is written as group id,
    topic id in base64 and partition, with colons between; only brokers may use it.
    """


class Coordinator(Message):
    """Broker that coordinates a key of the request (version 4 on), or an error code."""

    key: Annotated[str, wire_field("string", "4+")] = ""
    """Key from the request."""
    node_id: Annotated[int, wire_field("int32", "4+")] = 0
    """Node id of the coordinator: the leader of the partition of `__consumer_offsets`, `__transaction_state` or
    `__share_group_state` that the hash of the key selects. -1 with an error.
    """
    host: Annotated[str, wire_field("string", "4+")] = ""
    """Host name or address of the listener that the request came in on; empty with an error."""
    port: Annotated[int, wire_field("int32", "4+")] = 0
    """Port of that listener; -1 with an error."""
    error_code: Annotated[int, wire_field("int16", "4+")] = 0
    """0. COORDINATOR_NOT_AVAILABLE: retry; the internal topic is being created, or has no leader. Else
    GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
    """
    error_message: Annotated[str | None, wire_field("string", "4+", nullable="4+", ignorable=True)] = ""
    """Text for the error; empty or null if there is none."""


class FindCoordinatorResponse(Message):
    """Response to FindCoordinator: node id and address of the coordinator of each key."""

    SPEC: ClassVar[MessageSpec] = response(10, "0-6", "3+")
    throttle_time_ms: Annotated[int, wire_field("int32", "1+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Annotated[int, wire_field("int16", "0-3")] = 0
    """Error of the single key, up to version 3; codes as in `Coordinator`."""
    error_message: Annotated[str | None, wire_field("string", "1-3", nullable="1-3", ignorable=True)] = ""
    """Text for the error, up to version 3; `NONE` if there is none."""
    node_id: Annotated[int, wire_field("int32", "0-3")] = 0
    """Node id of the coordinator, up to version 3; -1 with an error."""
    host: Annotated[str, wire_field("string", "0-3")] = ""
    """Host name or address of the coordinator, up to version 3; empty with an error."""
    port: Annotated[int, wire_field("int32", "0-3")] = 0
    """Port of the coordinator, up to version 3; -1 with an error."""
    coordinators: Annotated[list[Coordinator], wire_field("[]struct", "4+")] = field(default_factory=list)
    """Results, one for each key, from version 4 on."""
