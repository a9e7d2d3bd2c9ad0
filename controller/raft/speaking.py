"""The raft machine's requests on their way to the other controllers, and what comes back as events.

Loaded when there is somebody to speak with: a node alone does without.
Source: ``KafkaNetworkChannel.java``, ``RaftUtil.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ottla.controller.quorum_config import Endpoint, QuorumConfig
from ottla.controller.raft import events
from ottla.controller.raft.events import AnyAnswer, Event, FetchSnapshot, ReplicaKey, Request, Send, Vote
from ottla.controller.raft.peers import Gone, Peers, Unspoken
from ottla.controller.raft.received import batches_of
from ottla.controller.raft.wire_form import from_answer, to_message
from ottla.controller.raft.wire_values import Heard, Refusal
from ottla.controller.ticket import Ticket
from ottla.log.directory import MetaProperties
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import Message
from ottla.world.env import Env
from ottla.world.hosts import host_port

logger = logging.getLogger("ottla.controller")

_KEYS = {
    events.Vote: ApiKey.VOTE,
    events.BeginEpoch: ApiKey.BEGIN_QUORUM_EPOCH,
    events.EndEpoch: ApiKey.END_QUORUM_EPOCH,
    events.Fetch: ApiKey.FETCH,
    events.FetchSnapshot: ApiKey.FETCH_SNAPSHOT,
    events.AddVoter: ApiKey.ADD_RAFT_VOTER,
    events.RemoveVoter: ApiKey.REMOVE_RAFT_VOTER,
    events.UpdateVoter: ApiKey.UPDATE_RAFT_VOTER,
    events.AskVersions: ApiKey.API_VERSIONS,
}

PRE_VOTE_FROM = 2
"""A Vote below cannot say that it only asks (R207)."""

Told = Callable[[AnyAnswer, Endpoint | None], None]
"""Is told what an answer says, and where the leader it names listens, before the machine is."""


class Speaking:
    """The node's side of every conversation it begins."""

    def __init__(
        self,
        env: Env,
        identity: MetaProperties,
        quorum: QuorumConfig,
        address_of: Callable[[int], tuple[str, int] | None],
        told: Told,
        hand_in: Callable[[Event], None],
    ) -> None:
        self._identity = identity
        self._quorum = quorum
        self._address_of = address_of
        self._told = told
        self._hand_in = hand_in
        self._is_foreign = False
        """Whether somebody said that this node is of another cluster."""
        self._peers = Peers(env, identity.node_id, quorum.timeouts.request_ms, address_of, quorum.access)
        self.run = self._peers.run

    def say(self, send: Send, to: ReplicaKey, also: Callable[[Heard | None], None] = lambda _: None) -> None:
        """Send a request to ``to``, the voter it is meant for. ``also`` hears the answer with the bytes it brings."""
        peer, request = send

        def encode(version: int) -> Message:
            if isinstance(request, Vote) and request.pre and version < PRE_VOTE_FROM:
                raise Unspoken("a Vote that only asks")
            return to_message(request, to, self._identity.cluster_id, version, self._quorum.endpoints)

        def done(got: Any) -> None:
            heard = None if isinstance(got, Exception) else from_answer(got, self._quorum.listener)
            if isinstance(got, Gone):
                self._hand_in(events.Gone(peer))
            self._hand_in(self._event(peer, request, got, heard))
            also(None if isinstance(heard, Refusal) else heard)

        self._peers.ask(peer, _KEYS[type(request)], encode, done)

    async def fetch_snapshot(self, peer: int, to: ReplicaKey, request: FetchSnapshot) -> Heard | None:
        """Ask for a part of a snapshot; None where nothing came."""
        ticket = Ticket(request)
        self.say(Send(peer, request), to, ticket.give)
        heard: Heard | None = await ticket.wait()
        return heard

    def _event(self, peer: int, request: Request, got: Any, heard: Heard | Refusal | None) -> Event:
        """What came back, as an event."""
        if isinstance(got, Unspoken):
            return events.Refused(peer, request, ErrorCode.UNSUPPORTED_VERSION)
        if heard is None:
            return events.Unreachable(peer, request)
        if isinstance(heard, Refusal):
            if heard.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
                self._tell_foreign(peer)
            return events.Refused(peer, request, heard.error)
        self._told(heard.answer, heard.leader)
        answer, batches = heard.answer, batches_of(None)
        if isinstance(request, events.Fetch) and isinstance(answer, events.FetchAnswer) and heard.records:
            answer, batches = answer._replace(offset=request.offset), batches_of(heard.records)
        return events.Answered(peer, request, answer, batches)

    def _tell_foreign(self, peer: int) -> None:
        """Said once: it is tried again as long as this node runs, as Kafka's does."""
        if not self._is_foreign:
            self._is_foreign = True
            logger.error(
                "the controller at %s is of another cluster: this node's data directory is of cluster %s",
                host_port(*(self._address_of(peer) or ("?", 0))),
                self._identity.cluster_id,
            )
