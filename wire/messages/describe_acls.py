"""DescribeAcls (API 29): list the ACLs that match a filter (KIP-140)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int8, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class DescribeAclsRequest(Message):
    """Request for the ACLs that match every field of the filter."""

    SPEC: ClassVar[MessageSpec] = request(29, "1-3", "2+", "broker controller")
    """Version 1 adds prefixed patterns (KIP-290), 2 is flexible, 3 adds users as resources (KIP-373). Version 0 was
    removed in Apache Kafka 4.0.

    Flow: An admin client sends it to any node, which responds from its copy of the metadata.
    """
    resource_type_filter: Int8 = 0
    """1 any; 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user."""
    resource_name_filter: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Resource name of the ACL; null for any."""
    pattern_type_filter: Annotated[int, wire_field("int8", "1+")] = 3
    """1 any, 3 literal, 4 prefixed. 2 match: all patterns that cover a resource of this name, `*` and prefixes
    included.
    """
    principal_filter: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Principal of the ACL, such as `User:alice`; null for any."""
    host_filter: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Host of the ACL; null for any."""
    operation: Int8 = 0
    """1 any, or the operation of the ACL, numbered as in CreateAcls."""
    permission_type: Int8 = 0
    """1 any, 2 deny, 3 allow."""


class AclDescription(Message):
    """ACL of a resource pattern: principal, host, operation, and allow or deny."""

    principal: String = ""
    """Principal as type and name, such as `User:alice`."""
    host: String = ""
    """Address of the client; `*` for all addresses."""
    operation: Int8 = 0
    """Operation, numbered as in CreateAcls."""
    permission_type: Int8 = 0
    """2 deny, 3 allow."""


class DescribeAclsResource(Message):
    """Resource pattern in a DescribeAcls response, with those of its ACLs that match."""

    resource_type: Int8 = 0
    """2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user."""
    resource_name: String = ""
    """Name or prefix of the resources; `*` for all."""
    pattern_type: Annotated[int, wire_field("int8", "1+")] = 3
    """3 literal, 4 prefixed."""
    acls: Annotated[list[AclDescription], wire_field("[]struct")] = field(default_factory=list)
    """ACLs of the pattern."""


class DescribeAclsResponse(Message):
    """ACLs that match the filter of DescribeAcls, by resource pattern; or an error code."""

    SPEC: ClassVar[MessageSpec] = response(29, "1-3", "2+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, also if no ACL matches. SECURITY_DISABLED without an authorizer, CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REQUEST.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""
    resources: Annotated[list[DescribeAclsResource], wire_field("[]struct")] = field(default_factory=list)
    """Resource patterns with their ACLs."""
