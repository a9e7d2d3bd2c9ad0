"""Addresses of the other controllers, and the endpoints returned to clients.

The voter set in the log takes precedence, then the leader's own endpoints, then the settings (R-223, R-240). Source:
``VoterSet.java``, ``RequestManager.java``, ``KafkaRaftClient.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.wire.messages.control_records import VotersRecord

FIRST_BOOTSTRAP_ID = -2
"""Ids of the bootstrap servers go down from here (``RequestManager``)."""


class ControllerAddresses:
    """The addresses a node knows."""

    def __init__(self, me: int, quorum: QuorumConfig, voters: Callable[[], VotersRecord | None]) -> None:
        """``voters``: the voters now, as the log has them."""
        self._local_id = me
        self._quorum = quorum
        self._voters = voters
        self._learned: dict[int, tuple[ListenerEndpoint, ...]] = {}

    @property
    def bootstrap(self) -> tuple[int, ...]:
        """Return the ids to search the leader at: bootstrap servers by number, or the static voters (R-223)."""
        if self._quorum.bootstrap_servers:
            return tuple(FIRST_BOOTSTRAP_ID - n for n in range(len(self._quorum.bootstrap_servers)))
        return tuple(i for i, _ in self._quorum.static_voters)

    @property
    def learned_node_ids(self) -> set[int]:
        """Return the ids of nodes that sent their endpoints."""
        return set(self._learned)

    def learn(self, node_id: int, endpoints: Iterable[ListenerEndpoint]) -> None:
        """Record the endpoints of a leader."""
        found = tuple(endpoints)
        if found and node_id >= 0:
            self._learned[node_id] = found

    def endpoints_of(self, node_id: int) -> tuple[ListenerEndpoint, ...]:
        """Return a controller's known listeners."""
        if node_id == self._local_id and self._quorum.endpoints:
            return self._quorum.endpoints
        voters = self._voters()
        for voter in voters.voters if voters is not None else ():
            if voter.voter_id == node_id and voter.endpoints:
                return tuple(ListenerEndpoint(e.name, e.host, e.port) for e in voter.endpoints)
        static = tuple(e for i, e in self._quorum.static_voters if i == node_id)
        return self._learned.get(node_id, static)

    def endpoint(self, node_id: int, listener: str) -> ListenerEndpoint | None:
        """Return a controller's endpoint of a listener name, as responses name a leader (R-213, R-256)."""
        return next((e for e in self.endpoints_of(node_id) if e.name == listener), None)

    def dial_address(self, peer: int) -> tuple[str, int] | None:
        """Return host and port of a raft peer; None if unknown."""
        if peer <= FIRST_BOOTSTRAP_ID:
            servers = self._quorum.bootstrap_servers
            at = FIRST_BOOTSTRAP_ID - peer
            return servers[at] if at < len(servers) else None
        found = self.endpoint(peer, self._quorum.listener)
        return None if found is None else (found.host, found.port)
