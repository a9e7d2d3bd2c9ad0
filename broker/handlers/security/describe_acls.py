"""DescribeAcls (29), v1-3: ACLs that match a filter, grouped by resource pattern.

Behaviour: without an authorizer SECURITY_DISABLED. Pattern type MATCH in the filter matches every ACL that applies to
the resource name, ANY every pattern type with exactly that name. A filter with UNKNOWN (0) closes the connection; one
with an undefined code matches no ACL.

Source: ``AclApis.handleDescribeAcls``, ``DescribeAclsResponse.aclsResources`` (apache/kafka 4.3.1).
From KIP-140; prefixes: KIP-290.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.controller.control.acls import filter_from_request, matching_acls
from ottla.controller.metadata.acl import StandardAcl
from ottla.jobs.sequences import sort_job
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def handle(context: RequestContext, request: DescribeAclsRequest) -> HandlerResult:
    """Return the ACLs that match the filter, sorted by resource pattern.

    Raises:
        WireError: A filter has the value UNKNOWN; the connection is closed.
    """
    if 0 in (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type):
        raise WireError(f"DescribeAcls with a filter of UNKNOWN: {request}")
    if not context.has_authorizer:
        code, text = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=code, error_message=text)
    return _describe(context, request)


def _describe(context: RequestContext, request: DescribeAclsRequest) -> ResponseJob:
    acls = yield from matching_acls(context.image, filter_from_request(request))
    rows: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in acls:
        row = _resource(rows, acl)
        row.acls.append(AclDescription(acl.principal, acl.host, int(acl.operation), int(acl.permission)))
        yield None
    return DescribeAclsResponse(error_message=None, resources=(yield from sort_job(rows.values(), key=_resource_key)))


def _resource_key(row: DescribeAclsResource) -> tuple[int, str, int]:
    return row.resource_type, row.resource_name, row.pattern_type


def _resource(rows: dict[tuple[int, str, int], DescribeAclsResource], acl: StandardAcl) -> DescribeAclsResource:
    at = int(acl.resource), acl.name, int(acl.pattern)
    if at not in rows:
        rows[at] = DescribeAclsResource(*at)
    return rows[at]
