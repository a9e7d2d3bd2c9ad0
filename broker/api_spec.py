"""Description of an API: its properties besides the messages and the body of its handler.

`ottla.broker.dispatch.api_registry` holds one `ApiSpec` for each API.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode

LARGE_BYTES = 16 * 1024
"""Below this no request can take memory or time worth counting: 5,000 elements of three bytes take some 10 ms."""
LARGE_PRODUCE_BYTES = 64 * 1024
"""The same for Produce, whose requests are long by their records."""


class Permission(NamedTuple):
    """Operation on a type of resource that the authorizer is asked about. As a rule: the handler itself asks."""

    operation: AclOperation
    resource: ResourceType
    logs_denial: bool = True
    """False where another permission suffices, or where a denial only omits a result (``logIfDenied``)."""

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """The permission itself."""
        return (self,)


class RequestRule(NamedTuple):
    """Permission that a request needs as a whole; without it the request gets an error response."""

    operation: AclOperation
    resource: ResourceType = ResourceType.CLUSTER
    field: str | None = None
    """The field of the request that names the resource; None for the cluster."""

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """The permission that is checked."""
        return (Permission(self.operation, self.resource),)


class ResourceRule(NamedTuple):
    """Permission on each resource that a request names; the others get an error row, and the handler never sees them.

    Lists and fields are those of the first `ErrorResults` of the API.
    """

    operation: AclOperation
    resource: ResourceType
    ids_since: int | None = None
    """The version from which topics are named by id."""
    cluster_operation: AclOperation | None = None
    """The operation on the cluster that stands for the operation on each resource."""
    denial_message: str | None = None
    rejects_duplicates: bool = False
    """True if the handler rejects resources that are named twice."""

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """The permissions that are checked."""
        each = Permission(self.operation, self.resource)
        if self.cluster_operation is None:
            return (each,)
        return Permission(self.cluster_operation, ResourceType.CLUSTER, logs_denial=False), each


class ConfigResourceRule(NamedTuple):
    """Permission on each resource whose configuration a request reads or changes; for brokers it is on the cluster."""

    operation: AclOperation

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """The permissions that are checked."""
        kinds = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.GROUP
        return tuple(Permission(self.operation, kind) for kind in kinds)


class DeleteTopicsRule:
    """Permission to delete all topics or each topic; without DESCRIBE the name of a topic id stays hidden."""

    permissions = (
        Permission(AclOperation.DELETE, ResourceType.CLUSTER, logs_denial=False),
        Permission(AclOperation.DELETE, ResourceType.TOPIC),
        Permission(AclOperation.DESCRIBE, ResourceType.TOPIC),
    )


class CreatedConfigsRule:
    """Permission to see the configuration of a topic that the request creates (KIP-525)."""

    permissions = (Permission(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, logs_denial=False),)


AuthorizationRule = RequestRule | ResourceRule | ConfigResourceRule | DeleteTopicsRule | CreatedConfigsRule | Permission


class Endpoint(NamedTuple):
    """Handler of an API on one type of listener, and the permissions its requests need there."""

    handler_module: str
    """The module below `ottla.broker.handlers`; it is imported with the first request."""
    authorization: tuple[AuthorizationRule, ...] = ()


class ErrorResults(NamedTuple):
    """List of a response that has a row with an error for each element of a list of the request.

    Where the row or the response has `error_code` and `error_message`, both are set.
    """

    request_list: str
    response_list: str
    copied: tuple[str, ...] = ()
    """Fields of the row that repeat the element; the first one names the resource."""
    copied_from: tuple[str, ...] | None = None
    """The names of these fields in the element, where they differ. An element that is no message is copied itself."""
    nested: ErrorResults | None = None
    """The rows inside a row: the partitions of a topic."""
    request_parent: str | None = None
    """Parent list in the request whose elements contain the list."""
    values: tuple[tuple[str, Any], ...] = ()
    """Other fields of the row."""


class ErrorMessage(Enum):
    """Message of an error response."""

    REASON = "why the request failed"
    ERROR_TEXT = "the text of the error code"
    NONE = "no message"


class ErrorResponse(NamedTuple):
    """Layout of the response that answers a whole request with one error (``getErrorResponse``)."""

    results: tuple[ErrorResults, ...] = ()
    results_only_for_denied: bool = False
    """True if the rows answer denied resources, and an error of the whole request is at the top alone."""
    message: ErrorMessage = ErrorMessage.REASON
    has_unique_results: bool = False
    """True if a resource that is named several times gets one row."""
    values: tuple[tuple[str, Any], ...] = ()
    """Other fields of the response; null only in versions where the field is nullable."""


class ForwardingTarget(Enum):
    """Owner of the rules that decide a forwarded request."""

    CONTROLLER = "the active controller"
    CONTROLLER_WITH_REQUESTER = "the active controller, which asks who sent the request"
    QUORUM = "the leader of the metadata quorum"


class Forwarding(NamedTuple):
    """A request that brokers forward in an Envelope (``ApiKeys.forwardable``, KIP-590)."""

    target: ForwardingTarget = ForwardingTarget.CONTROLLER
    moved_error: ErrorCode = ErrorCode.NOT_CONTROLLER
    """The error with which the request is sent to another node instead of being answered."""


class QuotaKind(Enum):
    """Client quota of an API."""

    REQUEST = "time"
    PRODUCE = "time, and bytes produced"
    FETCH = "time, and bytes fetched"
    """The handler counts both: above one of them, the response has no records."""
    SHARE_FETCH = "time, and bytes acquired"
    EXEMPT = "none"


class MutationQuota(NamedTuple):
    """Quota of controller mutations (KIP-599), beside that of time."""

    strict_since: int
    """The version from which requests above the quota are rejected with THROTTLING_QUOTA_EXCEEDED."""


class NamedPartitions(NamedTuple):
    """Fields of a request that name partitions."""

    topics: str = "topics"
    name: str = "name"
    topic_id: str | None = None
    partitions: str = "partitions"
    number: str | None = "partition_index"
    """None where the list has the numbers themselves."""


class CoordinatorPartitions:
    """Partitions of the internal topics whose leaders coordinate the keys of a FindCoordinator request."""


class ApiSpec(NamedTuple):
    """API, from which routes, ApiVersions, authorization, quotas, error responses and the reference page follow."""

    key: ApiKey
    min_version: int
    max_version: int
    broker: Endpoint | None = None
    """Endpoint on listeners for clients and brokers; None: not served."""
    controller: Endpoint | None = None
    """Endpoint on controller listeners, which also authorizes forwarded requests; None: not served."""
    oldest_supported: int | None = None
    """The oldest version that is answered, where it is above the oldest that is advertised."""
    forwarding: Forwarding | None = None
    error_response: ErrorResponse = ErrorResponse()
    quota: QuotaKind | MutationQuota = QuotaKind.REQUEST
    partitions: NamedPartitions | CoordinatorPartitions | None = None
    """Partitions whose logs must have been created before the handler is called."""
    required_config: str | None = None
    """The configuration key without which ApiVersions leaves the API out."""
    retains_buffer: bool = False
    """True if parts of the request are kept beyond its answer."""
    large_bytes: int = LARGE_BYTES
    """Size from which a request may have so many elements that a job decodes it, within a budget."""

    def endpoint(self, *, at_controller: bool) -> Endpoint:
        """Return how a listener of this type serves the API."""
        endpoint = self.controller if at_controller else self.broker
        assert endpoint is not None, f"no {'controller' if at_controller else 'broker'} endpoint for {self.key.name}"
        return endpoint

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """All permissions that requests may need, at brokers and, if forwarded, at controllers."""
        ends = [end for end in (self.broker, self.controller) if end is not None]
        return tuple(permission for end in ends for rule in end.authorization for permission in rule.permissions)
