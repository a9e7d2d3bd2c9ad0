"""CreateAcls and DeleteAcls on the active controller, and the search of ACLs by filters.

Creating an existing ACL succeeds. Each row of a request has its own error; the records of the valid rows are written as
one batch. An ACL matched by two filters is returned for both and deleted once.

Deviation: the number of ACLs that a DeleteAcls response repeats because filters overlap is limited: a request of 8 KB
could otherwise have two million rows in its response.

Source: ``AclControlManager.java``, ``AclApis.scala``, ``AclBindingFilter.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.limits import MAX_ACLS_PER_REQUEST, MAX_REPEATED_ACL_CHARS, REPEATED_ACL_ROW_CHARS
from ottla.controller.metadata.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    StandardAcl,
    from_code,
)
from ottla.controller.metadata.image import MetadataImage
from ottla.jobs.job import Job
from ottla.jobs.sequences import YIELD_EVERY
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.wire.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord


class _FilterFields(Protocol):
    """Fields of a filter in DescribeAcls and DeleteAcls requests."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class AclBindingFilter(NamedTuple):
    """Filter of ACLs in DescribeAcls and DeleteAcls; None and ANY match everything.

    With pattern MATCH the ACLs match that apply to the resource ``name``: literal, wildcard or by prefix.
    """

    resource: ResourceType
    name: str | None
    pattern: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermissionType

    @property
    def error(self) -> str | None:
        """Kafka's error message if a type, the operation or the permission is UNKNOWN (0, or undefined); else None."""
        if 0 in (self.resource, self.pattern):
            return "Unknown patternFilter."
        return "Unknown entryFilter." if 0 in (self.operation, self.permission) else None

    def matches(self, acl: StandardAcl) -> bool:
        """Return True if an ACL matches all fields of the filter; None and ANY match every value."""
        return (
            self.resource in (ResourceType.ANY, acl.resource)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermissionType.ANY, acl.permission)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: StandardAcl) -> bool:
        """Return True if the resource name and pattern type match.

        With MATCH and a name, an ACL matches if it applies to that resource: it has this literal name, the wildcard
        ``*``, or a prefix of the name (S-341). With LITERAL, PREFIXED or ANY, and a name, the name of the ACL must
        equal it.
        """
        if self.pattern is PatternType.MATCH and self.name is not None:
            if acl.pattern is PatternType.PREFIXED:
                return self.name.startswith(acl.name)
            return acl.name in (self.name, WILDCARD)
        return self.pattern in (PatternType.ANY, PatternType.MATCH, acl.pattern) and self.name in (None, acl.name)


def filter_from_request(request_filter: _FilterFields) -> AclBindingFilter:
    """Return the filter of a DescribeAcls or DeleteAcls request; enum codes that are not defined become UNKNOWN."""
    return AclBindingFilter(
        from_code(ResourceType, request_filter.resource_type_filter),
        request_filter.resource_name_filter,
        from_code(PatternType, request_filter.pattern_type_filter),
        request_filter.principal_filter,
        request_filter.host_filter,
        from_code(AclOperation, request_filter.operation),
        from_code(AclPermissionType, request_filter.permission_type),
    )


def acl_from_creation(row: AclCreation) -> StandardAcl:
    """Return the ACL of a CreateAcls row, not validated; enum codes that are not defined become UNKNOWN."""
    return StandardAcl(
        from_code(ResourceType, row.resource_type),
        row.resource_name,
        from_code(PatternType, row.resource_pattern_type),
        row.principal,
        row.host,
        from_code(AclOperation, row.operation),
        from_code(AclPermissionType, row.permission_type),
    )


def _creation_error(acl: StandardAcl) -> str | None:
    """Return Kafka's error message if an ACL cannot be created (S-340), else None."""
    if acl.resource is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    if acl.resource in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {acl.resource.name}"
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern.name}"
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"Invalid operation {acl.operation.name}"
    if acl.permission not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        return f"Invalid permissionType {acl.permission.name}"
    if ":" not in acl.principal:
        why = "(no colon is present separating the principal type from the principal name)"
        return f"Could not parse principal from `{acl.principal}` {why}"
    return None


def _require_authorizer(static: Mapping[str, str]) -> None:
    if not static.get("authorizer.class.name"):
        raise ProtocolError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def create_acls(
    image: MetadataImage, request: CreateAclsRequest, new_id: Callable[[], bytes], static: Mapping[str, str]
) -> ControllerResultSteps:
    """Return the records and response of CreateAcls, as a job; ACLs that exist already get no record.

    An invalid ACL gets INVALID_REQUEST in its row, and the others are created.

    Args:
        image: Current metadata, which is not changed.
        request: Request with the ACLs.
        new_id: Returns a random UUID of 16 bytes, the id of an ACL.
        static: Settings of this node's configuration, by name.

    Raises:
        ProtocolError: SECURITY_DISABLED without an authorizer; POLICY_VIOLATION for too many ACLs.
    """
    _require_authorizer(static)
    rows: list[AclCreationResult] = []
    records: list[Message] = []
    made: set[StandardAcl] = set()
    for creation in request.creations:
        acl = acl_from_creation(creation)
        why = _creation_error(acl)
        rows.append(AclCreationResult(ErrorCode.INVALID_REQUEST if why else ErrorCode.NONE, why or ""))
        if why is None and acl not in image.acls and acl not in made:
            made.add(acl)
            if len(records) >= MAX_ACLS_PER_REQUEST:
                why = "Unable to perform excessively large batch operation."
                raise ProtocolError(ErrorCode.POLICY_VIOLATION, why)
            records.append(_record(new_id(), acl))
        yield None
    return ControllerResult(CreateAclsResponse(results=rows), records)


def _record(acl_id: bytes, acl: StandardAcl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        acl_id,
        int(acl.resource),
        acl.name,
        int(acl.pattern),
        acl.principal,
        acl.host,
        int(acl.operation),
        int(acl.permission),
    )


def delete_acls(image: MetadataImage, request: DeleteAclsRequest, static: Mapping[str, str]) -> ControllerResultSteps:
    """Return the records and response of DeleteAcls, for all ACLs that match the request's filters, as a job.

    A filter with an UNKNOWN code gets INVALID_REQUEST in its row. ``static``: settings of this node's configuration.

    Raises:
        ProtocolError: SECURITY_DISABLED without an authorizer, INVALID_REQUEST for too many matches.
    """
    _require_authorizer(static)
    rows: list[DeleteAclsFilterResult] = []
    telling = _DeleteMatches(image)
    for request_filter in request.filters:
        yield None
        row = DeleteAclsFilterResult(error_message=None)
        rows.append(row)
        wanted = filter_from_request(request_filter)
        if wanted.error is not None:
            row.error_code, row.error_message = ErrorCode.INVALID_REQUEST, wanted.error
            continue
        row.matching_acls = yield from telling.collect(wanted)
    records: list[Message] = [RemoveAccessControlEntryRecord(acl_id) for acl_id in sorted(telling.deleted_ids)]
    return ControllerResult(DeleteAclsResponse(filter_results=rows), records)


class _DeleteMatches:
    """Collector of the ACLs that the filters of one DeleteAcls request match, each with its response row.

    The row object of an ACL is shared by all filters that match it, and equal filters share one list of rows.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.deleted_ids: set[bytes] = set()
        """Ids of the ACLs that match a filter."""
        self._image = image
        self._row_by_acl: dict[StandardAcl, DeleteAclsMatchingAcl] = {}
        self._by_filter: dict[AclBindingFilter, tuple[list[DeleteAclsMatchingAcl], int]] = {}
        """Response rows of each distinct filter, and the characters charged when they are repeated."""
        self._repeated_chars = 0

    def collect(self, binding_filter: AclBindingFilter) -> Job[list[DeleteAclsMatchingAcl]]:
        """Return the response rows of a filter, as a job; add the ids of its ACLs to `deleted_ids`.

        Raises:
            ProtocolError: INVALID_REQUEST, too many ACLs or repeated rows in the request so far.
        """
        before = self._by_filter.get(binding_filter)
        if before is not None:
            rows, chars = before
            if rows:
                self._check_limits(chars)
            yield None
            return rows
        rows, chars = [], 0
        for acl in (yield from matching_acls(self._image, binding_filter)):
            row, weight = self._row_by_acl.get(acl), _row_chars(acl)
            self._check_limits(0 if row is None else weight)
            if row is None:
                row = self._row_by_acl[acl] = _matching_acl_row(acl)
                self.deleted_ids.add(self._image.acls[acl])
            rows.append(row)
            chars += weight
            yield None
        self._by_filter[binding_filter] = rows, chars
        return rows

    def _check_limits(self, again_chars: int) -> None:
        """Add ``again_chars`` to the characters of repeated rows, and check both limits of the request.

        Raises:
            ProtocolError: INVALID_REQUEST, too many matching ACLs or too many characters in repeated rows.
        """
        why = None
        self._repeated_chars += again_chars
        if len(self.deleted_ids) >= MAX_ACLS_PER_REQUEST:
            why = f"Cannot remove more than {MAX_ACLS_PER_REQUEST} acls in a single delete operation."
        elif self._repeated_chars > MAX_REPEATED_ACL_CHARS:
            why = "Too many filters of a single delete operation match the same acls."
        if why is not None:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, why)


def _row_chars(acl: StandardAcl) -> int:
    return REPEATED_ACL_ROW_CHARS + len(acl.name) + len(acl.principal) + len(acl.host)


def _matching_acl_row(acl: StandardAcl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        0,
        None,
        int(acl.resource),
        acl.name,
        int(acl.pattern),
        acl.principal,
        acl.host,
        int(acl.operation),
        int(acl.permission),
    )


def matching_acls(image: MetadataImage, binding_filter: AclBindingFilter) -> Job[list[StandardAcl]]:
    """Return the ACLs of the metadata image that match a filter, as a job."""
    out: list[StandardAcl] = []
    for number, acl in enumerate(image.acls, 1):
        if binding_filter.matches(acl):
            out.append(acl)
        if number % YIELD_EVERY == 0:
            yield None
    return out
