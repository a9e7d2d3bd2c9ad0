"""Sending of Raft requests to the other controllers; their outcomes become events of the state machine.

Loaded on the first request: a single node does not need it. Source: ``KafkaNetworkChannel.java``, ``RaftUtil.java``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ottla.client.channel import ChannelTraffic
from ottla.controller.raft.driver.raft_channel import PeerConnectionRefusedError, RaftChannel, UnsupportedByPeer
from ottla.controller.raft.messages.conversion_types import DecodedRaftResponse, RaftErrorResponse
from ottla.controller.raft.messages.fetched_batches import parse_fetched_batches
from ottla.controller.raft.messages.message_conversion import from_response_message, to_message
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.state_machine import events
from ottla.controller.raft.state_machine.events import (
    AnyRaftResponse,
    FetchSnapshot,
    OutboundRequest,
    RaftEvent,
    RaftRequest,
    ReplicaKey,
    Vote,
)
from ottla.env.env import Env
from ottla.env.hosts import format_address
from ottla.jobs.pending_request import PendingRequest
from ottla.log.directory.meta_properties import MetaProperties
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode

logger = logging.getLogger("ottla.controller")

_API_KEYS = {
    events.Vote: ApiKey.VOTE,
    events.BeginEpoch: ApiKey.BEGIN_QUORUM_EPOCH,
    events.EndEpoch: ApiKey.END_QUORUM_EPOCH,
    events.Fetch: ApiKey.FETCH,
    events.FetchSnapshot: ApiKey.FETCH_SNAPSHOT,
    events.AddVoter: ApiKey.ADD_RAFT_VOTER,
    events.RemoveVoter: ApiKey.REMOVE_RAFT_VOTER,
    events.UpdateVoter: ApiKey.UPDATE_RAFT_VOTER,
    events.QueryKRaftVersions: ApiKey.API_VERSIONS,
}

PRE_VOTE_MIN_VERSION = 2
"""Vote requests below this version have no pre-vote (R-207)."""

OnRaftResponse = Callable[[AnyRaftResponse, ListenerEndpoint | None], None]
"""Callback with a response and the endpoint of the leader in it, called before the state machine gets the event."""


class RaftRequestSender:
    """Sender of this node's Raft requests; enqueues the response, or the failure, as an event of the state machine."""

    def __init__(
        self,
        env: Env,
        identity: MetaProperties,
        quorum: QuorumConfig,
        address_of: Callable[[int], tuple[str, int] | None],
        on_response: OnRaftResponse,
        hand_in: Callable[[RaftEvent], None],
    ) -> None:
        self._identity = identity
        self._quorum = quorum
        self._address_of = address_of
        self._on_response = on_response
        self._enqueue = hand_in
        self._has_reported_foreign_cluster = False
        """True once a response with INCONSISTENT_CLUSTER_ID was logged."""
        self._channel = RaftChannel(env, identity.node_id, quorum.timeouts.request_ms, address_of, quorum.access)
        self.run = self._channel.run

    @property
    def traffic(self) -> ChannelTraffic:
        """Requests and bytes that were sent to the other controllers and received from them."""
        return self._channel.traffic

    def send(
        self, send: OutboundRequest, to: ReplicaKey, also: Callable[[DecodedRaftResponse | None], None] = lambda _: None
    ) -> None:
        """Queue a Raft request for its destination; its outcome becomes an event of the state machine later.

        ``to``: replica key of the destination, which Vote and BeginQuorumEpoch name. ``also``: called with the decoded
        response and its records; with None after a failure or an error for the whole request.
        """
        peer, request = send

        def encode(version: int) -> Message:
            if isinstance(request, Vote) and request.pre_vote and version < PRE_VOTE_MIN_VERSION:
                raise UnsupportedByPeer("pre-vote (Vote version 2 or later)")
            return to_message(request, to, self._identity.cluster_id, version, self._quorum.endpoints)

        def done(got: Any) -> None:
            decoded = None if isinstance(got, Exception) else from_response_message(got, self._quorum.listener)
            if isinstance(got, PeerConnectionRefusedError):
                self._enqueue(events.PeerConnectionRefused(peer))
            self._enqueue(self._response_event(peer, request, got, decoded))
            also(None if isinstance(decoded, RaftErrorResponse) else decoded)

        self._channel.send(peer, _API_KEYS[type(request)], encode, done)

    async def fetch_snapshot(self, peer: int, to: ReplicaKey, request: FetchSnapshot) -> DecodedRaftResponse | None:
        """Send a FetchSnapshot and wait for the response; return None if it fails or is an error as a whole.

        The state machine gets the outcome too.
        """
        pending = PendingRequest(request)
        self.send(OutboundRequest(peer, request), to, pending.complete)
        decoded: DecodedRaftResponse | None = await pending.wait()
        return decoded

    def _response_event(
        self, peer: int, request: RaftRequest, got: Any, decoded: DecodedRaftResponse | RaftErrorResponse | None
    ) -> RaftEvent:
        """Return the state machine's event for the outcome of a request.

        ``got``: response message, or the exception of the request. ``decoded``: the decoded response; None after an
        exception.
        """
        if isinstance(got, UnsupportedByPeer):
            return events.RequestRejected(peer, request, ErrorCode.UNSUPPORTED_VERSION)
        if decoded is None:
            return events.RequestFailed(peer, request)
        if isinstance(decoded, RaftErrorResponse):
            if decoded.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
                self._report_foreign_cluster(peer)
            return events.RequestRejected(peer, request, decoded.error)
        self._on_response(decoded.response, decoded.leader_endpoint)
        answer, batches = decoded.response, parse_fetched_batches(None)
        if isinstance(request, events.Fetch) and isinstance(answer, events.RaftFetchResponse) and decoded.records:
            answer, batches = answer._replace(offset=request.offset), parse_fetched_batches(decoded.records)
        return events.ResponseReceived(peer, request, answer, batches)

    def _report_foreign_cluster(self, peer: int) -> None:
        """Log once that a controller belongs to another cluster; requests to it are retried for ever, as in Kafka."""
        if not self._has_reported_foreign_cluster:
            self._has_reported_foreign_cluster = True
            logger.error(
                "INCONSISTENT_CLUSTER_ID: the controller at %s belongs to another cluster; this node has cluster id %s",
                format_address(*(self._address_of(peer) or ("?", 0))),
                self._identity.cluster_id,
            )
