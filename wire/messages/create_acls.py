"""CreateAcls (API 30): add ACLs (KIP-140)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int8, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class AclCreation(Message):
    """ACL to add in a CreateAcls request. One that exists already is no error."""

    resource_type: Int8 = 0
    """2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user. Others are rejected."""
    resource_name: String = ""
    """Name or prefix of the resources; `*` for all of them, and `kafka-cluster` for the cluster."""
    resource_pattern_type: Annotated[int, wire_field("int8", "1+")] = 3
    """3 literal: the name itself, or `*`. 4 prefixed: all names that begin with it (KIP-290)."""
    principal: String = ""
    """Principal as type and name, such as `User:alice`; `User:*` for all users."""
    host: String = ""
    """Address of the client; `*` for all addresses."""
    operation: Int8 = 0
    """2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, 10 describe configs, 11 alter
    configs, 12 idempotent write, 13 create tokens, 14 describe tokens, 15 two phase commit.
    """
    permission_type: Int8 = 0
    """2 deny, 3 allow. A matching deny has precedence over every allow."""


class CreateAclsRequest(Message):
    """Request to add ACLs, each with resource pattern, principal, host, operation, and allow or deny."""

    SPEC: ClassVar[MessageSpec] = request(30, "1-3", "2+", "broker controller")
    """Version 1 adds prefixed patterns (KIP-290), 2 is flexible, 3 adds users as resources (KIP-373). Version 0 was
    removed in Apache Kafka 4.0.

    Flow: An admin client sends it to any broker, which forwards it to the active controller. The controller appends one
    record for each new ACL; brokers apply them when they have read these records.
    """
    creations: Annotated[list[AclCreation], wire_field("[]struct")] = field(default_factory=list)
    """ACLs to add, each with its own result."""


class AclCreationResult(Message):
    """Error code of an ACL, at the position that the ACL has in the request; 0 if it exists now."""

    error_code: Int16 = 0
    """0, INVALID_REQUEST for an ACL that makes no sense, SECURITY_DISABLED without an authorizer, POLICY_VIOLATION for
    too many ACLs, CLUSTER_AUTHORIZATION_FAILED.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error; empty or null if there is none."""


class CreateAclsResponse(Message):
    """Response to CreateAcls: an error code for each ACL, in the order of the request."""

    SPEC: ClassVar[MessageSpec] = response(30, "1-3", "2+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    results: Annotated[list[AclCreationResult], wire_field("[]struct")] = field(default_factory=list)
    """Results in the order of the request."""
