"""Connection to the active controller on another node: requests of this node, and client requests in an Envelope.

Imported on first use: never on a standalone node.

Source: ``NodeToControllerRequestThread.java``, ``ForwardingManager.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from ottla.broker.requests.error_responses import contains_error
from ottla.broker.requests.peer import Peer
from ottla.client.channel import Channel
from ottla.client.connection_security import ConnectionSecurity
from ottla.client.node_connection import NodeConnection
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.jobs.time_slice import TimeSlice
from ottla.wire.api_keys import ApiKey, response_class, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.codec.decode_budget import DecodeBudget
from ottla.wire.codec.primitives import Buffer
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.framing import parse_request
from ottla.wire.messages.consumer_protocol import DefaultPrincipalData
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.messages.headers import ResponseHeader

if TYPE_CHECKING:
    from ottla.broker.requests.forwardable_request import ForwardableRequest

logger = logging.getLogger("ottla.channel")

RESPONSE_TIMEOUT_S = 30.0
"""Maximum time in seconds for a response while the controller does not change (``controller.socket.timeout.ms``)."""
LEADER_CHECK_INTERVAL_S = 0.25
"""Interval in seconds of checks whether the active controller has changed while a response is awaited."""
_PRINCIPAL_VERSION = bytes(2)
_UNKNOWN_ADDRESS = bytes(4)
_RESPONSE_BUDGET_BYTES = 2**50
"""Memory budget in bytes of a controller's response, practically unlimited.

The controller is trusted, and has executed the request.
"""


class RemoteController:
    """Connection to the active controller, opened again when the controller changes; one request at a time."""

    def __init__(
        self,
        env: Env,
        client_id: str,
        address: Callable[[], tuple[str, int] | None],
        access: Callable[[], ConnectionSecurity | None],
    ) -> None:
        """Create the object without a connection.

        ``address`` returns the controller's address, None unless it is on another node; ``access`` returns the security
        settings of its listener.
        """
        self._env = env
        self._connection = NodeConnection(
            env,
            client_id,
            "the controller",
            address,
            RESPONSE_TIMEOUT_S,
            access=access,
            check_interval_s=LEADER_CHECK_INTERVAL_S,
        )
        self.close = self._connection.close

    async def send(self, request: Any, version: int, context: ForwardableRequest | None) -> Any:
        """Send a request and return the response; None if the other node is not the active controller.

        ``context`` is a client's request to forward in an Envelope; None for a request of this node.

        Raises:
            OSError, WireError: The connection failed, or the response is malformed.
            ProtocolError: UNSUPPORTED_VERSION: the controller does not support the request; UNKNOWN_SERVER_ERROR:
                another error of the Envelope, or an invalid response in it.
        """
        if context is not None:
            return await self._connection.exchange(lambda channel: _send_in_envelope(self._env, channel, context))
        answer = await self._connection.exchange(lambda channel: _send_plain(channel, request, version))
        return None if await TimeSlice(self._env).run(contains_error(answer, ErrorCode.NOT_CONTROLLER)) else answer


async def _send_plain(channel: Channel, request: Any, version: int) -> Any:
    """Send a request of this node and return its response; ``version``: the newest to use.

    Raises:
        ProtocolError: UNSUPPORTED_VERSION: the controller has no common version.
        OSError, WireError: See `RemoteController.send`.
    """
    try:
        spoken = channel.version_for(ApiKey(request.SPEC.key), version)
    except WireError as error:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
    return await channel.call(request, spoken)


async def _send_in_envelope(env: Env, channel: Channel, asking: ForwardableRequest) -> Message | None:
    """Send a client's request in an Envelope and return the inner response (R-304).

    Returns:
        None if the other node is not the active controller (R-305).

    Raises:
        ProtocolError: UNSUPPORTED_VERSION: the controller cannot read the request; UNKNOWN_SERVER_ERROR: it does not
            support Envelope, returned another error, or the inner response is invalid.
    """
    if ApiKey.ENVELOPE not in channel.versions:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
    principal = _PRINCIPAL_VERSION + compiler.encode(_principal(asking.peer), 0)
    envelope = EnvelopeRequest(bytes(asking.frame), principal, _address(asking.peer.host))
    answer: EnvelopeResponse = await channel.call(envelope, 0)
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.NOT_CONTROLLER:
        return None
    if code is ErrorCode.UNSUPPORTED_VERSION:
        raise ProtocolError(code, "it cannot read the request")
    if code is not ErrorCode.NONE or answer.response_data is None:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return await TimeSlice(env).run(_decode_inner_response(asking.frame, answer.response_data))


def _decode_inner_response(request_frame: Buffer, data: bytes) -> Job[Message]:
    """Decode the response inside an Envelope response, as a job; ``request_frame`` is the client's request.

    Raises:
        ProtocolError: UNKNOWN_SERVER_ERROR if it is malformed or has another correlation id.
    """
    request = parse_request(memoryview(request_frame))
    key, version = request.key, request.version
    try:
        header, pos = compiler.decode(ResponseHeader, response_header_version(key, version), data)
        if header.correlation_id != request.correlation_id:
            ids = f"response ({header.correlation_id}) does not match request ({request.correlation_id})"
            raise WireError(f"Correlation id for {ids}")
        steps = compiler.decode_job(
            response_class(key), version, data, pos, DecodeBudget(_RESPONSE_BUDGET_BYTES, keeps=True)
        )
        answer: Message = (yield from steps)[0]
    except WireError as error:
        logger.warning("Invalid response of the controller to %s: %s", key.name, error)
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    return answer


def _principal(peer: Peer) -> DefaultPrincipalData:
    kind, _, name = peer.principal.partition(":")
    return DefaultPrincipalData(kind, name, peer.token_authenticated)


def _address(host: str) -> bytes:
    """Return a client's IP address as 4 or 16 bytes; 0.0.0.0 if it is malformed."""
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return _UNKNOWN_ADDRESS
