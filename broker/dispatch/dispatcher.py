"""Dispatcher: decodes requests of a listener and calls their handlers.

A handler is ``handle(context, request)``. It returns the response, None for a request without response (Produce with
acks=0), or, if it has many rows or must wait, a job that returns one of them. Handler modules are imported when their
API is first used, so that a node starts quickly. ApiVersions is computed from the listener's API table, so that only
implemented APIs are advertised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.broker.api_spec import ApiSpec
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.dispatch.request_partitions import partitions_to_create
from ottla.broker.observability.request_observers import RequestObserver
from ottla.broker.requests.peer import Peer
from ottla.controller.metadata.acl import CLUSTER_NAME, AclOperation, ResourceType, supported_operation_bits
from ottla.jobs.job import Job, as_job
from ottla.wire.api_keys import ApiKey, request_class, response_class
from ottla.wire.codec import compiler
from ottla.wire.codec.decode_budget import DecodeBudget
from ottla.wire.codec.primitives import Buffer
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.framing import RequestFrame

if TYPE_CHECKING:
    from ottla.broker.dispatch.rate_limited_log import RateLimitedLog
    from ottla.broker.quotas.controller_mutation_quota import ControllerMutationQuota
    from ottla.broker.services import BrokerServices
    from ottla.controller.metadata.image import MetadataImage

LOG_CREATION_TIMEOUT_S = 5.0
_API_VERSIONS = ApiKey.API_VERSIONS
"""Alias of the enumeration member: reading it by attribute costs 0.2 us per request."""

ResponseJob = Job[Message | None]
HandlerResult = Message | None | ResponseJob
Handler = Callable[["RequestContext", Any], HandlerResult]


@dataclass(slots=True)
class RequestContext:
    """Context of a request for its handler: services, client, API, version and arrival time (wall clock, ms)."""

    services: BrokerServices
    peer: Peer
    key: ApiKey
    version: int
    client_id: str
    now_ms: int
    apis: Mapping[ApiKey, ApiSpec]
    """APIs of the listener by key."""
    frame: Buffer = b""
    """Request frame with its header, without its length; it remains in the receive buffer until the response."""

    @property
    def spec(self) -> ApiSpec:
        """Registry entry of the request's API."""
        return self.apis[self.key]

    @property
    def image(self) -> MetadataImage:
        """Metadata image that this broker has applied last; on a controller listener the last committed one."""
        return self.services.metadata.image

    def response_array(self) -> Any:
        """Return an empty array for a list of the response; its rows are encoded in blocks while they are appended."""
        return compiler.response_array(response_class(self.key), self.version)

    @property
    def has_authorizer(self) -> bool:
        """True if ``authorizer.class.name`` is set: requests of clients are checked against ACLs."""
        return self.services.authorizer is not None

    def may(
        self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME, *, is_look: bool = False
    ) -> bool:
        """Return True if the client is authorized for an operation on a resource; always True without an authorizer.

        The decision is written to the audit log, if there is one. ``is_look``: the request does not name the resource,
        and a denial only omits it from the response.
        """
        services, peer = self.services, self.peer
        authorizer, audit = services.authorizer, services.audit
        if authorizer is None:
            return True
        is_allowed = authorizer.decisions.get((peer.principal, peer.host, operation, resource, name))
        if is_allowed is None:
            is_allowed = authorizer.may(peer, operation, resource, name)
        if audit is not None:
            at = operation, resource, name
            why = lambda: authorizer.deciding_rule(self.peer, *at)  # noqa: E731 - asked only for a line that is written
            audit.log_decision(self.peer, self.spec, *at, why, allowed=is_allowed, is_look=is_look)
        return is_allowed

    def may_any(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Return True if the client is authorized for an operation on at least one resource of a type.

        It is always True without an authorizer. Unlike `may` it does not write to the audit log.
        """
        authorizer = self.services.authorizer
        return authorizer is None or authorizer.may_any(self.peer, operation, resource)

    def mutation_quota(self) -> ControllerMutationQuota | None:
        """Return the controller mutation quota for partitions that this request creates or deletes; or None.

        It is None if the client has no such quota, or the API none.
        """
        quotas = self.services.quota_holder.quotas
        if quotas is None:
            return None
        return quotas.new_mutation_quota(self.peer, self.client_id, self.spec.quota, self.version)

    def authorized_operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the client's authorized operations on a resource as the bit field ``authorized_operations``.

        Without an authorizer these are all operations that Kafka supports on the resource type.
        """
        authorizer = self.services.authorizer
        return (
            supported_operation_bits(resource)
            if authorizer is None
            else authorizer.authorized_operations(self.peer, resource, name)
        )


def decode_request_job(spec: ApiSpec, request: RequestFrame) -> Job[Message]:
    """Decode the body of a request, as a job; one of ``spec.large_bytes`` or more within a memory budget.

    A smaller request is decoded in one step.

    Raises:
        WireError: The body is malformed or would exceed the budget.
    """
    cls, size_bytes = request_class(request.key), len(request.frame)
    if size_bytes < spec.large_bytes:
        return compiler.decode(cls, request.version, request.frame, request.body_position)[0]
    budget = DecodeBudget(size_bytes, keeps=spec.retains_buffer)
    body, _ = yield from compiler.decode_job(cls, request.version, request.frame, request.body_position, budget)
    return body


@cache
def load_handler(module: str) -> Handler:
    """Import a handler module below `ottla.broker.handlers` on first use, and return its ``handle`` function."""
    # lazy: 112.0 ms, 5180 kB: all of them; the first request of an API imports one
    handler: Handler = import_module(f"ottla.broker.handlers.{module}").handle
    return handler


@cache
def with_authorization(handler: Handler, spec: ApiSpec, *, at_controller: bool) -> Handler:
    """Return a handler that applies the authorization rules of the API's endpoint before ``handler``.

    ``handler`` itself is returned if it checks all of its permissions.
    """
    # lazy: 2.3 ms, 79 kB
    from ottla.broker.security.authz.request_authorization import authorize_and_handle, is_authorized_by_handler

    if is_authorized_by_handler(spec, at_controller=at_controller):
        return handler
    return lambda context, body: authorize_and_handle(context, body, handler, at_controller=at_controller)


class Dispatcher:
    """Dispatcher of one listener: decodes requests and calls the handlers of its API table."""

    def __init__(
        self,
        services: BrokerServices,
        apis: Mapping[ApiKey, ApiSpec] = BROKER_APIS,
        listener: str = "PLAINTEXT",
        observer: RequestObserver | None = None,
    ) -> None:
        self.services = services
        self.observer = observer
        self.apis = apis
        self.listener = listener
        self._env = services.env
        self._handlers: dict[ApiKey, Handler] = {}
        """Handlers that were used so far, including authorization."""

    @property
    def serves_controllers(self) -> bool:
        """True if this dispatcher serves a controller listener, with the controller's APIs, instead of a broker's."""
        return ApiKey.ENVELOPE in self.apis

    @cached_property
    def connection_log(self) -> RateLimitedLog:
        """Rate-limited log of this listener's connections, created on first use."""
        # lazy: 0.5 ms, 7 kB: most connections log nothing
        from ottla.broker.dispatch.rate_limited_log import RateLimitedLog

        return RateLimitedLog(self._env, self.listener)

    def handle_request(self, peer: Peer, request: RequestFrame) -> HandlerResult:
        """Decode a request's body and call its handler; return the response, None for none, or a job that returns it.

        A large request is decoded within that job. ApiVersions in an unknown version gets UNSUPPORTED_VERSION.

        Raises:
            WireError: An unsupported API or version, or a malformed body: the connection must be closed.
        """
        key, version = request.key, request.version
        route = self.apis.get(key)
        if route is None:
            raise WireError(f"Received request api key {key.name} which is not enabled")
        context = RequestContext(
            self.services, peer, key, version, request.client_id, self._env.now_ms(), self.apis, request.frame
        )
        if key is _API_VERSIONS and not route.min_version <= version <= route.max_version:
            return self._unsupported_api_versions()
        if (
            not (route.min_version if route.oldest_supported is None else route.oldest_supported)
            <= version
            <= route.max_version
        ):
            raise WireError(
                f"Received request api key {key.name} with version {version} which is not enabled "
                f"(supported: {route.min_version} to {route.max_version})"
            )
        handler = self._handlers.get(key) or self._handler(key, route)
        if len(request.frame) >= route.large_bytes:
            return self._decode_large(context, request, handler)
        body, _ = compiler.decode(request_class(key), version, request.frame, request.body_position)
        if self.services.log_creator:
            return self._call_handler(context, handler, body)
        return handler(context, body)

    def _handler(self, key: ApiKey, route: ApiSpec) -> Handler:
        """Return the handler of an API with its authorization rules; keep it, as the authorizer is fixed at startup."""
        handler = load_handler(route.endpoint(at_controller=self.serves_controllers).handler_module)
        if self.services.authorizer is not None:
            handler = with_authorization(handler, route, at_controller=self.serves_controllers)
        self._handlers[key] = handler
        return handler

    def _call_handler(self, context: RequestContext, handler: Handler, body: Any) -> HandlerResult:
        # logs of a new topic with many partitions are still being created
        if self.services.log_creator and context.spec.partitions is not None:
            return self._handle_after_creation(context, handler, body)
        return handler(context, body)

    def _decode_large(self, context: RequestContext, request: RequestFrame, handler: Handler) -> ResponseJob:
        """Decode a large request in time slices and call its handler, as a job that returns the response."""
        body = yield from decode_request_job(context.spec, request)
        return (yield from as_job(self._call_handler(context, handler, body)))

    def _handle_after_creation(self, context: RequestContext, handler: Handler, body: Any) -> ResponseJob:
        """Wait until the logs of the request's partitions are created, at most 5 s, then call the handler; as a job."""
        partitions = yield from partitions_to_create(context.spec, body, self.services)
        if partitions:
            yield self.services.log_creator.wait_created(partitions, LOG_CREATION_TIMEOUT_S)
            context.now_ms = self._env.now_ms()
        return (yield from as_job(handler(context, body)))

    def _unsupported_api_versions(self) -> Message:
        """Return ApiVersions' response with UNSUPPORTED_VERSION and the version range of the API itself (KIP-35)."""
        # lazy: 0.7 ms, 18 kB
        from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

        own = self.apis[_API_VERSIONS]
        return ApiVersionsResponse(
            ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(own.key, own.min_version, own.max_version)]
        )
