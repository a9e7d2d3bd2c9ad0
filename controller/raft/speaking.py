"""The raft machine's requests on their way to the other controllers, and what comes back as events.

Loaded when there is somebody to speak with: a node alone does without.
Source: ``KafkaNetworkChannel.java``, ``RaftUtil.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.controller.quorum_config import Endpoint, QuorumConfig
from ottla.controller.raft import events
from ottla.controller.raft.events import Event, FetchAnswer, ReplicaKey, Request, Send
from ottla.controller.raft.peers import Peers
from ottla.controller.raft.received import batches_of
from ottla.controller.raft.wire_form import Refusal, from_answer, to_message
from ottla.log.directory import Identity
from ottla.wire.apis import ApiKey
from ottla.wire.schema import Message
from ottla.world.env import Env

_KEYS = {
    events.Vote: ApiKey.VOTE,
    events.BeginEpoch: ApiKey.BEGIN_QUORUM_EPOCH,
    events.EndEpoch: ApiKey.END_QUORUM_EPOCH,
    events.Fetch: ApiKey.FETCH,
}

Heard = Callable[[events.Answer | FetchAnswer, Endpoint | None], None]
"""Is told what an answer says, and where the leader it names listens, before the machine is."""


class Speaking:
    """The node's side of every conversation it begins."""

    def __init__(
        self,
        env: Env,
        identity: Identity,
        quorum: QuorumConfig,
        address_of: Callable[[int], tuple[str, int] | None],
        heard: Heard,
        hand_in: Callable[[Event], None],
    ) -> None:
        self._identity = identity
        self._quorum = quorum
        self._heard = heard
        self._hand_in = hand_in
        self._peers = Peers(env, identity.node_id, quorum.timeouts.request_ms, address_of)
        self.run = self._peers.run

    def say(self, send: Send, to: ReplicaKey) -> None:
        """Send a request to ``to``, the voter it is meant for."""
        peer, request = send

        def encode(version: int) -> Message:
            return to_message(request, to, self._identity.cluster_id, version, self._quorum.endpoints)

        self._peers.ask(peer, _KEYS[type(request)], encode, lambda got: self._hand_in(self._event(peer, request, got)))

    def _event(self, peer: int, request: Request, got: Any) -> Event:
        """What came back, as an event."""
        if isinstance(got, Exception):
            return events.Unreachable(peer, request)
        heard = from_answer(got, self._quorum.listener)
        if isinstance(heard, Refusal):
            return events.Refused(peer, request, heard.error)
        self._heard(heard.answer, heard.leader)
        return events.Answered(peer, request, heard.answer, batches_of(heard.records))
