"""Addresses of the other controllers: used to connect to them, and returned in responses as the leader's endpoint.

The voter set in the log takes precedence, then endpoints that a leader has sent, then the settings (R-223, R-240).
Source: ``VoterSet.java``, ``RequestManager.java``, ``KafkaRaftClient.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.wire.messages.control_records import VotersRecord

FIRST_BOOTSTRAP_ID = -2
"""Node id of the first bootstrap server; the following ones are -3, -4, ... (``RequestManager``)."""


class ControllerAddresses:
    """Endpoints of the controllers that a node knows, from voter set, leaders' endpoints and settings."""

    def __init__(self, me: int, quorum: QuorumConfig, voters: Callable[[], VotersRecord | None]) -> None:
        """Create the addresses of node ``me``; ``voters`` returns the latest VotersRecord of the log, or None."""
        self._local_id = me
        self._quorum = quorum
        self._voters = voters
        self._learned: dict[int, tuple[ListenerEndpoint, ...]] = {}

    @property
    def bootstrap(self) -> tuple[int, ...]:
        """Node ids to fetch from to find the leader: bootstrap servers (-2, -3, ...), or the static voters (R-223)."""
        if self._quorum.bootstrap_servers:
            return tuple(FIRST_BOOTSTRAP_ID - n for n in range(len(self._quorum.bootstrap_servers)))
        return tuple(i for i, _ in self._quorum.static_voters)

    @property
    def learned_node_ids(self) -> set[int]:
        """Ids of the nodes whose endpoints were received in messages, as those of a leader or of a new voter."""
        return set(self._learned)

    def learn(self, node_id: int, endpoints: Iterable[ListenerEndpoint]) -> None:
        """Record the endpoints of a leader or new voter; no endpoint or a negative ``node_id`` changes nothing."""
        found = tuple(endpoints)
        if found and node_id >= 0:
            self._learned[node_id] = found

    def endpoints_of(self, node_id: int) -> tuple[ListenerEndpoint, ...]:
        """Return the endpoints of all listeners of a controller, empty if unknown."""
        if node_id == self._local_id and self._quorum.endpoints:
            return self._quorum.endpoints
        voters = self._voters()
        for voter in voters.voters if voters is not None else ():
            if voter.voter_id == node_id and voter.endpoints:
                return tuple(ListenerEndpoint(e.name, e.host, e.port) for e in voter.endpoints)
        static = tuple(e for i, e in self._quorum.static_voters if i == node_id)
        return self._learned.get(node_id, static)

    def endpoint(self, node_id: int, listener: str) -> ListenerEndpoint | None:
        """Return a controller's endpoint of the listener name ``listener``, for responses with the leader, or None."""
        return next((e for e in self.endpoints_of(node_id) if e.name == listener), None)

    def dial_address(self, peer: int) -> tuple[str, int] | None:
        """Return host and port to connect to a controller, or (id <= -2) to a bootstrap server; None if unknown."""
        if peer <= FIRST_BOOTSTRAP_ID:
            servers = self._quorum.bootstrap_servers
            at = FIRST_BOOTSTRAP_ID - peer
            return servers[at] if at < len(servers) else None
        found = self.endpoint(peer, self._quorum.listener)
        return None if found is None else (found.host, found.port)
