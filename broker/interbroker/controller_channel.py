"""Channel to the active controller: in this process if it is active here, else over one connection.

An inactive controller returns NOT_CONTROLLER, and a connection may fail: then the leader is looked up again, and the
request is sent again. So a request may be executed twice: the response may then be an error of the second execution,
such as TOPIC_ALREADY_EXISTS. Over the network, requests of the broker itself are sent as they are, a client's request
in an Envelope with the client's principal.

Source: ``NodeToControllerChannelManagerImpl.java``, ``ForwardingManager.scala`` (apache/kafka 4.3.1).
From KIP-590.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.api_spec import ForwardingTarget
from ottla.controller.quorum_controller import QuorumController
from ottla.env.env import FOREVER_S, Env
from ottla.env.hosts import format_address
from ottla.jobs.job import Job, as_job
from ottla.jobs.time_slice import TimeSlice
from ottla.wire.api_keys import ApiKey, request_spec
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError, WireError

if TYPE_CHECKING:
    from ottla.broker.interbroker.remote_controller import RemoteController
    from ottla.broker.requests.forwardable_request import ForwardableRequest
    from ottla.client.connection_security import ConnectionSecurity

logger = logging.getLogger("ottla.channel")

RETRY_S = 0.05
"""Delay in seconds before a request is sent again to a controller."""
FORWARDING_TIMEOUT_S = 60.0
REGISTRATION_TIMEOUT_S = 5.0


class ControllerChannel:
    """Channel to the active controller; over the network one request at a time, so urgent ones have their own."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        controller: QuorumController,
        listener: str,
        limit_s: float = FORWARDING_TIMEOUT_S,
        access: Callable[[], ConnectionSecurity | None] = lambda: None,
    ) -> None:
        """Create a channel.

        ``listener`` is the controller listener's name, ``access`` returns its security settings; ``limit_s`` is the
        maximum time in seconds for a request with all retries.
        """
        self._env = env
        self._client_id = str(node_id)
        self._controller = controller
        self._listener = listener
        self._access = access
        self._timeout_s = limit_s
        self._remote: RemoteController | None = None
        self._logged_address: tuple[str, int] | None = None
        """Address of the controller whose failure was logged already."""

    async def submit(self, request: Any, version: int = 0) -> Any:
        """Submit a request of this node; return the response once its changes are committed.

        ``version``: the newest version to use; 0 means the newest that both sides support.

        Raises:
            ProtocolError: REQUEST_TIMED_OUT without a response in time; UNSUPPORTED_VERSION if the controller does not
                support the request; or the error of the whole request.
            OSError: The local metadata log could not be written; the node stops.
        """
        newest = request_spec(ApiKey(request.SPEC.key)).versions.high
        return await self._submit_within_timeout(request, version or newest)

    async def forward(self, context: ForwardableRequest, request: Message) -> Message:
        """Forward a client's request with the client's principal; return the response for the client.

        No response in time, and another error of the whole request, become an error response.

        Raises:
            WireError: The controller does not support the API or version: the client's connection must be closed.
            OSError: The local metadata log could not be written; the node stops.
        """
        try:
            answer: Message = await self._submit_within_timeout(request, context.version, context)
        except ProtocolError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise WireError(f"the controller: {error.message}") from None
            # lazy: 1.1 ms, 36 kB
            from ottla.broker.requests.error_responses import build_error_response

            return await TimeSlice(self._env).run(build_error_response(context, request, error.code, error.message))
        return answer

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if self._remote is not None:
            self._remote.close()

    def _connect_remote(self) -> RemoteController:
        """Return the connection to a controller on another node, created on first use."""
        if self._remote is None:
            # lazy: 8.0 ms, 214 kB
            from ottla.broker.interbroker.remote_controller import RemoteController

            self._remote = RemoteController(self._env, self._client_id, self._remote_address, self._access)
        return self._remote

    # ------------------------------------------------------------------ one request

    async def _submit_within_timeout(self, request: Any, version: int, asking: ForwardableRequest | None = None) -> Any:
        if self._timeout_s == FOREVER_S:
            return await self._submit_until_answered(request, version, asking)
        with self._env.timeout(self._timeout_s):
            return await self._submit_until_answered(request, version, asking)
        raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT)

    async def _submit_until_answered(self, request: Any, version: int, asking: ForwardableRequest | None) -> Any:
        """Submit a request until the active controller returns a response (R-345); without a time-out.

        ``asking``: context of a client's request to forward, None for a request of this node.
        """
        while True:
            if self._controller.is_active:
                answer = await self._submit_authorized(request, version, asking)
            else:
                answer = await self._submit_remote(request, version, asking)
            if answer is not None:
                return answer
            await self._env.sleep(RETRY_S)

    async def _submit_authorized(self, request: Any, version: int, asking: ForwardableRequest | None) -> Any:
        """Submit to the controller in this process, with the part of the request for which the client is authorized.

        A request of this node (``asking`` None), or without an authorizer, is submitted as it is. Returns None if the
        controller is no longer active.
        """
        if asking is None or not asking.has_authorizer:
            return await self._submit_local(request, version, asking)
        # lazy: 2.3 ms, 79 kB
        from ottla.broker.security.authz.request_authorization import authorize_and_handle

        def submit(_: Any, rest: Any) -> Job[Any]:
            return (yield self._submit_local(rest, version, asking))

        answer = authorize_and_handle(asking, request, submit, at_controller=True)
        return await TimeSlice(self._env).run(as_job(answer))

    async def _submit_local(self, request: Any, version: int, asking: ForwardableRequest | None) -> Any:
        """Return the response of the controller in this process; None if it is no longer active.

        A broker's heartbeat is recorded for its session first.
        """
        if request.SPEC.key == ApiKey.BROKER_HEARTBEAT:
            self._controller.record_heartbeat(request.broker_id, request.broker_epoch)
        forwarding = None if asking is None else asking.spec.forwarding
        target = None if forwarding is None else forwarding.target
        try:
            if asking is not None and target is ForwardingTarget.CONTROLLER_WITH_REQUESTER:
                # lazy: 1.8 ms, 60 kB
                from ottla.controller.control.delegation_tokens import TokenRequestContext

                token_request = TokenRequestContext(request, asking.peer.principal, self._env.now_ms())
                return await self._controller.submit(token_request, version)
            if target is not ForwardingTarget.QUORUM:
                changes = None if asking is None else asking.mutation_quota()
                if changes is None:
                    return await self._controller.submit(request, version)
                answer = await self._controller.submit(request, version, changes.record)
                changes.set_throttle_time(answer)
                return answer
            answer = await self._controller.handle_raft_request(request, version, self._listener)
        except ProtocolError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            return None
        if asking is not None and forwarding is not None:  # an error of a voter change is returned to the client
            # lazy: 1.1 ms, 36 kB
            from ottla.broker.requests.error_responses import contains_error

            if await TimeSlice(self._env).run(contains_error(answer, forwarding.moved_error)):
                return None
        return answer

    async def _submit_remote(self, request: Any, version: int, asking: ForwardableRequest | None) -> Any:
        """Return the response of a controller on another node; None if the request must be sent again."""
        address = self._remote_address()
        if address is None or self._controller.leader_id == self._controller.node_id:
            return None  # unknown, or this node will become active
        try:
            answer = await self._connect_remote().send(request, version, asking)
        except (OSError, WireError) as error:
            self._log_failure(address, error)
            return None
        self._logged_address = None
        return answer

    def _remote_address(self) -> tuple[str, int] | None:
        """Return the address of the active controller on another node; None if it is unknown, or this node is active.

        `RemoteController` polls this: another address than that of its connection ends a request in progress.
        """
        return None if self._controller.is_active else self._controller.leader_address()

    def _log_failure(self, address: tuple[str, int], error: Exception) -> None:
        """Log a failure of the connection to the controller, once per address, as there are 20 attempts per second."""
        if self._logged_address != address:
            self._logged_address = address
            logger.info("Connection to the controller at %s failed: %s", format_address(*address), error)
