"""DeleteAcls (API 31): remove the ACLs that match filters (KIP-140)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int8, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class DeleteAclsFilter(Message):
    """Filter in a DeleteAcls request. All ACLs that match each of its fields are removed."""

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


class DeleteAclsRequest(Message):
    """Request to remove all ACLs that match one of the filters."""

    SPEC: ClassVar[MessageSpec] = request(31, "1-3", "2+", "broker controller")
    """Version 1 adds prefixed patterns (KIP-290), 2 is flexible, 3 adds users as resources (KIP-373). Version 0 was
    removed in Apache Kafka 4.0.

    Flow: An admin client sends it to any broker, which forwards it to the active controller. The controller removes all
    ACLs that match a filter and returns them.
    """
    filters: Annotated[list[DeleteAclsFilter], wire_field("[]struct")] = field(default_factory=list)
    """Filters, each with its own result."""


class DeleteAclsMatchingAcl(Message):
    """ACL that matched a filter and was removed."""

    error_code: Int16 = 0
    """0: the ACL is removed."""
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""
    resource_type: Int8 = 0
    """2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user."""
    resource_name: String = ""
    """Name or prefix of the resources; `*` for all."""
    pattern_type: Annotated[int, wire_field("int8", "1+")] = 3
    """3 literal, 4 prefixed."""
    principal: String = ""
    """Principal as type and name, such as `User:alice`."""
    host: String = ""
    """Address of the client; `*` for all addresses."""
    operation: Int8 = 0
    """Operation, numbered as in CreateAcls."""
    permission_type: Int8 = 0
    """2 deny, 3 allow."""


class DeleteAclsFilterResult(Message):
    """ACLs that a filter has removed, or its error code; at the position of the filter in the request."""

    error_code: Int16 = 0
    """0, also if no ACL matched. INVALID_REQUEST for a filter with unknown values, or for too many matches;
    SECURITY_DISABLED without an authorizer; CLUSTER_AUTHORIZATION_FAILED.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""
    matching_acls: Annotated[list[DeleteAclsMatchingAcl], wire_field("[]struct")] = field(default_factory=list)
    """ACLs that matched and were removed."""


class DeleteAclsResponse(Message):
    """Response to DeleteAcls: for each filter the ACLs that were removed, or an error code."""

    SPEC: ClassVar[MessageSpec] = response(31, "1-3", "2+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    filter_results: Annotated[list[DeleteAclsFilterResult], wire_field("[]struct")] = field(default_factory=list)
    """Results in the order of the request."""
