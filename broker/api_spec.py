"""Specification of an API: its properties besides the messages and the code of its handler.

`ottla.broker.dispatch.api_registry` has one `ApiSpec` for each API.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode

LARGE_BYTES = 16 * 1024
"""Request size from which memory and decoding time are bounded: 5,000 elements of three bytes take some 10 ms."""
LARGE_PRODUCE_BYTES = 64 * 1024
"""As `LARGE_BYTES`, for Produce: its requests are large due to the records."""


class Permission(NamedTuple):
    """Operation on a resource type that the authorizer checks.

    As an authorization rule of an endpoint it only declares the permission: the handler checks it.
    """

    operation: AclOperation
    resource: ResourceType
    logs_denial: bool = True
    """False if a denial is not logged: another permission suffices, or it only omits a result (``logIfDenied``)."""

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """The permission itself, in the form of the rules that check several."""
        return (self,)


class RequestRule(NamedTuple):
    """Permission that a request needs as a whole; without it the request is answered with an error response."""

    operation: AclOperation
    resource: ResourceType = ResourceType.CLUSTER
    field: str | None = None
    """Field of the request with the resource name; None for the cluster."""

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """Permission on the cluster, or on the resource in `field`."""
        return (Permission(self.operation, self.resource),)


class ResourceRule(NamedTuple):
    """Permission on each resource that a request names; the dispatcher checks it before the handler is called.

    Denied resources get an error row and are removed from the request. Lists and fields are those of the first
    `ErrorResults` of the API.
    """

    operation: AclOperation
    resource: ResourceType
    ids_since: int | None = None
    """First request version that names topics by id; None if none does."""
    cluster_operation: AclOperation | None = None
    """Operation on the cluster that permits the operation on all resources; None if there is none."""
    denial_message: str | None = None
    rejects_duplicates: bool = False
    """True if the handler rejects resources that are named twice."""

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """Permission on each resource, after that of `cluster_operation`, if there is one, on the cluster."""
        each = Permission(self.operation, self.resource)
        if self.cluster_operation is None:
            return (each,)
        return Permission(self.cluster_operation, ResourceType.CLUSTER, logs_denial=False), each


class ConfigResourceRule(NamedTuple):
    """Permission on each resource whose configuration a request reads or changes.

    For broker and logger resources the permission is one on the cluster.
    """

    operation: AclOperation

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """Permissions on topics, the cluster and groups."""
        kinds = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.GROUP
        return tuple(Permission(self.operation, kind) for kind in kinds)


class DeleteTopicsRule:
    """Permission for DeleteTopics: DELETE on the cluster or on each topic.

    Without DESCRIBE the response row of a topic id has no topic name.
    """

    permissions = (
        Permission(AclOperation.DELETE, ResourceType.CLUSTER, logs_denial=False),
        Permission(AclOperation.DELETE, ResourceType.TOPIC),
        Permission(AclOperation.DESCRIBE, ResourceType.TOPIC),
    )


class CreatedConfigsRule:
    """Permission to read the configuration of a topic that CreateTopics creates (KIP-525).

    Without it the response does not contain the configuration.
    """

    permissions = (Permission(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, logs_denial=False),)


AuthorizationRule = RequestRule | ResourceRule | ConfigResourceRule | DeleteTopicsRule | CreatedConfigsRule | Permission


class Endpoint(NamedTuple):
    """Module of an API's handler on broker or on controller listeners, and its authorization rules there."""

    handler_module: str
    """Module of the handler below `ottla.broker.handlers`, imported with the first request."""
    authorization: tuple[AuthorizationRule, ...] = ()


class ErrorResults(NamedTuple):
    """Layout of error rows: a list in the response with one row for each element of a list in the request.

    ``error_code`` and ``error_message`` are set in the row and in the response if they have these fields.
    """

    request_list: str
    response_list: str
    copied: tuple[str, ...] = ()
    """Fields of the row that are copied from the element; the first one is the resource name."""
    copied_from: tuple[str, ...] | None = None
    """Names of the copied fields in the element, if they differ. An element that is no message is copied itself."""
    nested: ErrorResults | None = None
    """Rows inside a row, such as the partitions of a topic."""
    request_parent: str | None = None
    """Parent list in the request whose elements contain the list; None for a top-level list."""
    values: tuple[tuple[str, Any], ...] = ()
    """Further fields of the row with their values."""


class ErrorMessage(Enum):
    """Choice of the text in ``error_message`` of an error response."""

    REASON = "why the request failed"
    REASON_OR_TEXT = "why the request failed, or the text of the error code"
    ERROR_TEXT = "the text of the error code"
    NONE = "no message"


class ErrorResponse(NamedTuple):
    """Layout of the response that reports one error for a whole request (``getErrorResponse``)."""

    results: tuple[ErrorResults, ...] = ()
    results_only_for_denied: bool = False
    """True if rows are used for denied resources only, and an error of the whole request is at the top level only."""
    message: ErrorMessage = ErrorMessage.REASON
    has_unique_results: bool = False
    """True if a resource that is named several times gets one row only."""
    values: tuple[tuple[str, Any], ...] = ()
    """Further fields of the response with their values; null only in versions where the field is nullable."""


class ForwardingTarget(Enum):
    """Node that handles a forwarded request."""

    CONTROLLER = "the active controller"
    CONTROLLER_WITH_REQUESTER = "the active controller, which asks who sent the request"
    QUORUM = "the leader of the metadata quorum"


class Forwarding(NamedTuple):
    """Rule for a request that a broker forwards to the active controller in an Envelope (``forwardable``, KIP-590)."""

    target: ForwardingTarget = ForwardingTarget.CONTROLLER
    moved_error: ErrorCode = ErrorCode.NOT_CONTROLLER
    """Error code after which the request is sent to another controller instead of being returned to the client."""


class QuotaKind(Enum):
    """Client quotas that apply to an API: processing time, and bytes."""

    REQUEST = "time"
    PRODUCE = "time, and bytes produced"
    FETCH = "time, and bytes fetched"
    """The handler records both: above either quota, the response has no records."""
    SHARE_FETCH = "time, and bytes acquired"
    EXEMPT = "none"


class MutationQuota(NamedTuple):
    """Marker of an API to which the controller mutation quota (KIP-599) applies, in addition to the request quota."""

    strict_since: int
    """First request version that is rejected with THROTTLING_QUOTA_EXCEEDED above the quota, rather than throttled."""


class NamedPartitions(NamedTuple):
    """Names of the request fields in which a request names topics and partitions."""

    topics: str = "topics"
    name: str = "name"
    topic_id: str | None = None
    partitions: str = "partitions"
    number: str | None = "partition_index"
    """Field with the partition number; None if the list consists of the numbers."""


class CoordinatorPartitions:
    """Marker for FindCoordinator: it looks up leaders of internal topics' partitions, which are the coordinators."""


class ApiSpec(NamedTuple):
    """Specification of an API; determines routing, ApiVersions, authorization, quotas and error responses."""

    key: ApiKey
    min_version: int
    max_version: int
    broker: Endpoint | None = None
    """Endpoint on listeners for clients and brokers; None: not served."""
    controller: Endpoint | None = None
    """Endpoint on controller listeners, which also authorizes forwarded requests; None: not served."""
    oldest_supported: int | None = None
    """Oldest version that is served, if higher than the oldest that is advertised."""
    forwarding: Forwarding | None = None
    error_response: ErrorResponse = ErrorResponse()
    quota: QuotaKind | MutationQuota = QuotaKind.REQUEST
    partitions: NamedPartitions | CoordinatorPartitions | None = None
    """Partitions in creation that the request waits for before its handler is called."""
    required_config: str | None = None
    """Setting without which ApiVersions omits the API; None for none."""
    retains_buffer: bool = False
    """True if parts of the request's buffer are referenced after the response."""
    large_bytes: int = LARGE_BYTES
    """Size in bytes from which a job decodes the request within a memory budget, as it may have very many elements."""
    handler_counts_errors: bool = False
    """True if the handler counts the error codes of its responses, so that no response is searched for them."""

    def endpoint(self, *, at_controller: bool) -> Endpoint:
        """Return the endpoint on controller listeners (``at_controller``) or on those of brokers.

        The API must be served there.
        """
        endpoint = self.controller if at_controller else self.broker
        assert endpoint is not None, f"no {'controller' if at_controller else 'broker'} endpoint for {self.key.name}"
        return endpoint

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """All permissions that the API's requests may need, at broker and at controller listeners."""
        ends = [end for end in (self.broker, self.controller) if end is not None]
        return tuple(permission for end in ends for rule in end.authorization for permission in rule.permissions)
