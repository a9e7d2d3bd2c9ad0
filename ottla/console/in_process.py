"""Kafka requests of a console session: answered by the dispatcher of this node, without a socket.

A request for a partition or group of another broker is answered here first: the node authorizes it before it finds
that another broker is responsible. Only then it is sent there, with the credentials of this node. Topics of a group,
which only its coordinator knows, are checked in the response (`topic_permissions`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import trio

from ottla.broker.config.listener_config import ANY_HOST
from ottla.broker.dispatch.dispatcher import Dispatcher, RequestContext
from ottla.broker.interbroker.connections import BrokerConnections
from ottla.broker.interbroker.credentials import inter_broker_access
from ottla.broker.requests.peer import Peer, PeerDisconnectedError
from ottla.client.channel import Channel, Disconnected
from ottla.client.cluster_client import ClusterClient
from ottla.console.topic_permissions import hide_topics, may_send
from ottla.controller.metadata.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.env.disk import FileSlice
from ottla.env.env import FOREVER_S
from ottla.jobs.job import as_job
from ottla.jobs.time_slice import BACKGROUND_SLICE_MS, TimeSlice
from ottla.wire.api_keys import ApiKey, response_class, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.codec.decode_budget import DecodeBudget
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.framing import encode_request, parse_request, start_encoding_response
from ottla.wire.messages.headers import ResponseHeader

if TYPE_CHECKING:
    from ottla.broker.services import BrokerServices
    from ottla.env.env import Env
    from ottla.wire.messages.fetch import FetchRequest

CLIENT_ID = "ottla-console"
REMOTE_TIMEOUT_S = 10.0
LEADER_ONLY_FETCH_VERSION = 10
"""Newest version of Fetch that followers refuse.

A later one would be answered by a follower on this node (KIP-392), which may not know the newest high watermark yet.
"""
_DECODED_BYTES = 64 * 1024 * 1024
"""Maximum memory for the decoded elements of a response of this node."""
_ELSEWHERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR})
"""Errors that indicate that another broker must answer the request."""


class Principal:
    """Principal and client address of a session, for authorization."""

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host


class LocalNode:
    """Access to the node of the console and, through it, to other brokers."""

    def __init__(self, services: BrokerServices, port: int) -> None:
        """Create a dispatcher for the first client listener; ``port`` is the bound port of that listener."""
        config = services.config
        self.services = services
        host = config.client_listeners[0].host
        self._address = ("localhost" if host in ANY_HOST else host, port)
        self.dispatcher = Dispatcher(services, listener=config.client_listeners[0].name)
        self._connections = self.create_connections()

    def create_connections(self) -> BrokerConnections:
        """Return new connections to other brokers with the credentials of this node; the caller closes them."""
        services, config = self.services, self.services.config
        return BrokerConnections(
            services.env,
            CLIENT_ID,
            lambda node: services.replica_manager.image.unfenced_broker_address(node, config.inter_broker_listener),
            lambda: inter_broker_access(config),
            REMOTE_TIMEOUT_S,
        )

    @property
    def env(self) -> Env:
        """Environment (clock, network) of the node."""
        return self.services.env

    @property
    def node_id(self) -> int:
        """Id of the node."""
        return self.services.config.node_id

    def create_peer(self, principal: Principal) -> Peer:
        """Return a peer with the session's principal, for one request to the dispatcher."""
        peer = Peer(principal.host, self._address, self.dispatcher.listener)
        peer.principal = principal.name
        peer.prepares_requests = False
        return peer

    def may(
        self, principal: Principal, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME
    ) -> bool:
        """Return True if a principal is authorized for an operation on a resource, or the node has no authorizer.

        It is used where no request of Kafka checks the permission. ``name``: by default the cluster.
        """
        peer, env = self.create_peer(principal), self.env
        apis = self.dispatcher.apis
        context = RequestContext(self.services, peer, ApiKey.DESCRIBE_CLUSTER, 0, CLIENT_ID, env.now_ms(), apis)
        return context.may(operation, resource, name)

    async def call(self, principal: Principal, request: Message, version: int) -> Any:
        """Send a request to this node's dispatcher and return the response, after the throttle time of the user.

        Error codes in the response are not checked. A cancellation is raised once the handler has ended
        (`_run_uncancelled`): the request may have been executed.

        Raises:
            WireError: the request cannot be encoded.
        """
        key = ApiKey(request.SPEC.key)  # type: ignore[attr-defined]
        frame = memoryview(bytearray(encode_request(key, version, 0, CLIENT_ID, request)))[4:]
        peer = self.create_peer(principal)
        try:
            chunks = await self._run_uncancelled(peer, frame, key, version)
            if peer.throttle_ms:
                await self.env.sleep(peer.throttle_ms / 1000)
        finally:
            peer.mark_disconnected()
        raw = b"".join(chunk.read_all() if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in chunks)
        _, position = compiler.decode(ResponseHeader, response_header_version(key, version), raw, 4)
        budget = DecodeBudget(len(raw) + _DECODED_BYTES)
        job = compiler.decode_job(response_class(key), version, raw, position, budget)
        return (await TimeSlice(self.env, BACKGROUND_SLICE_MS).run(job))[0]

    async def _run_uncancelled(self, peer: Peer, frame: memoryview, key: ApiKey, version: int) -> list[Any]:
        """Run a request's handler to its end; return the chunks of the response frame, with size prefix and header.

        A cancellation does not interrupt the handler: it sees a disconnection of the client, and Cancelled is raised
        at its end. Otherwise its exceptions are raised as they are, without a group. At the end ``peer`` is marked as
        disconnected in any case.
        """
        chunks: list[Any] = []
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._disconnect_when_cancelled, peer)
            with trio.CancelScope(shield=True):
                try:
                    chunks = await self._handle(peer, frame, key, version)
                except Exception as error:  # noqa: BLE001,RUF100 - raised outside of the nursery, without a group
                    failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return chunks

    async def _disconnect_when_cancelled(self, peer: Peer) -> None:
        try:
            await self.env.sleep(FOREVER_S)
        finally:
            peer.mark_disconnected()

    async def _handle(self, peer: Peer, frame: memoryview, key: ApiKey, version: int) -> list[Any]:
        """Handle a request and return the chunks of its encoded response.

        The time counts for the principal's request quota (KIP-124), as for any client.
        """
        holder = self.services.quota_holder
        if not holder.times_requests:
            return await self._answer(peer, frame, key, version)
        # lazy: 1.1 ms, 24 kB: few nodes have request quotas
        from ottla.broker.quotas.request_timer import RequestTimer

        watch = peer.request_timer = RequestTimer(self.env.monotonic_ms, holder)
        try:
            return await watch.run(self._answer(peer, frame, key, version))
        finally:
            watch.stop(peer)
            peer.request_timer = None

    async def _answer(self, peer: Peer, frame: memoryview, key: ApiKey, version: int) -> list[Any]:
        time_slice = TimeSlice(self.env, BACKGROUND_SLICE_MS)
        request = parse_request(frame)
        try:
            response = await time_slice.run(as_job(self.dispatcher.handle_request(peer, request)))
        except PeerDisconnectedError:
            raise Disconnected("the request was cancelled") from None
        if peer.request_timer is not None:
            peer.request_timer.set_throttle_time(peer, request, response, self.dispatcher.apis[key].quota)
        encoded = start_encoding_response(key, version, 0, cast("Message", response))
        return encoded if isinstance(encoded, list) else await time_slice.run(encoded)

    async def call_at(self, node: int, principal: Principal, request: Message, version: int) -> Any:
        """Send a request to this node; if the node answers that another broker is responsible, send it to ``node``.

        All error codes of the response must indicate that. This node has authorized the principal then; the second
        request has the credentials of this node. Topics that the principal may not describe are removed from the
        response of the other broker.

        Raises:
            ProtocolError: TOPIC_AUTHORIZATION_FAILED, before the second request.
            OSError: the other broker cannot be reached.
            WireError: as `call`, or the response of the other broker is malformed.
        """
        response = await self.call(principal, request, version)
        if node == self.node_id or not _is_elsewhere(response):
            return response
        if not may_send(request, partial(self.may, principal, AclOperation.READ, ResourceType.TOPIC)):
            raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        response = await self._connections.call(node, request, version)
        hide_topics(response, partial(self.may, principal, AclOperation.DESCRIBE, ResourceType.TOPIC))
        return response

    async def call_remote(self, node: int, request: Message, version: int) -> Any:
        """Send a request to another broker with the credentials of this node; the caller must authorize the response.

        Raises:
            OSError: the broker cannot be reached.
            WireError: the request cannot be encoded, or the response is malformed.
        """
        return await self._connections.call(node, request, version)

    def close(self) -> None:
        """Close the connections to other brokers; the node itself goes on."""
        self._connections.close()


def _is_elsewhere(response: Message) -> bool:
    """Return True if all errors of a response are `_ELSEWHERE`: another broker must answer; False without errors."""
    codes = {code for code in _error_codes(response) if code}
    return bool(codes) and codes <= _ELSEWHERE


def _error_codes(response: Any) -> set[int]:
    out: set[int] = set()
    pending = [response]
    while pending:
        message = pending.pop()
        out.add(getattr(message, "error_code", 0))
        for name in message.__struct_fields__:
            rows = getattr(message, name)
            if isinstance(rows, list) and rows and isinstance(rows[0], Message):
                pending += rows
    return out


class SessionChannel(Channel):
    """Channel of a session to one broker, by `LocalNode.call_at`."""

    def __init__(self, local: LocalNode, principal: Principal, node: int) -> None:
        self._local = local
        self._principal = principal
        self._node = node
        self.closed = False
        self.versions = {key: (spec.min_version, spec.max_version) for key, spec in local.dispatcher.apis.items()}

    async def call(self, request: Message, version: int | None = None) -> Any:
        """Send a request with the principal of the session and return the response; error codes are not checked.

        ``version``: None stands for the newest one that the node serves.

        Raises:
            ProtocolError, OSError, WireError: as `LocalNode.call_at`.
        """
        if version is None:
            version = self.version_for(ApiKey(request.SPEC.key))  # type: ignore[attr-defined]
        return await self._local.call_at(self._node, self._principal, request, version)

    def close(self) -> None:
        """Do nothing: there is no connection."""


class SessionClient(ClusterClient):
    """Client of the cluster whose requests have the principal of a session."""

    def __init__(self, local: LocalNode, principal: Principal) -> None:
        super().__init__(local.env, "", CLIENT_ID)
        self._local = local
        self._principal = principal

    async def bootstrap_channel(self) -> Channel:
        """Return a channel to this node's dispatcher; its requests have the principal of the session."""
        return SessionChannel(self._local, self._principal, self._local.node_id)

    async def brokers(self) -> list[int]:
        """Request the metadata and return the ids of the brokers in the response, sorted."""
        await self.metadata([])
        return sorted(self._brokers)

    def find_leader_id(self, topic: str, partition: int) -> int:
        """Return the leader of a partition in the metadata responses so far; -1 without one. Nothing is requested."""
        return self._leaders.get((topic, partition), -1)

    async def leader(self, topic: str, partition: int) -> Channel:
        """Return a channel to the leader of a partition; metadata is requested if no response so far had the partition.

        Raises:
            ProtocolError: LEADER_NOT_AVAILABLE, the partition has no leader or does not exist.
        """
        if (topic, partition) not in self._leaders:
            await self.metadata([topic])
        node = self._leaders.get((topic, partition), -1)
        if node < 0:
            raise ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return SessionChannel(self._local, self._principal, node)

    async def broker(self, node_id: int) -> Channel:
        """Return a channel to a broker of the last metadata response.

        Raises:
            ProtocolError: BROKER_NOT_AVAILABLE, the response has no such broker.
        """
        if node_id not in self._brokers:
            raise ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id}")
        return SessionChannel(self._local, self._principal, node_id)

    def create_connections(self) -> BrokerConnections:
        """Return new connections to other brokers, for `fetch_over`; the caller closes them."""
        return self._local.create_connections()

    async def fetch_over(
        self, connections: BrokerConnections, node_id: int, request: FetchRequest, version: int
    ) -> Any:
        """Send a Fetch request to another broker over given connections and return the response.

        It has the credentials of this node; the session must be authorized to read the topics.

        Raises:
            ProtocolError: TOPIC_AUTHORIZATION_FAILED, before the request is sent.
            OSError: the broker cannot be reached.
            WireError: the response is malformed.
        """
        if not all(self.may(AclOperation.READ, ResourceType.TOPIC, row.topic) for row in request.topics):
            raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return await connections.call(node_id, request, version)

    def may(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return True if the session is authorized for an operation on a resource, as `LocalNode.may`."""
        return self._local.may(self._principal, operation, resource, name)
