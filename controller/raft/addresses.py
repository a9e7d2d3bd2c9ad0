"""Where the other controllers are reached, and what others are told of it.

What the voter set in the log says counts; then what a leader said of itself, then the settings (R223, R240).
Source: ``VoterSet.java``, ``RequestManager.java``, ``KafkaRaftClient.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.controller.quorum_config import Endpoint, QuorumConfig
from ottla.wire.messages import control_records as ctl

FIRST_BOOTSTRAP = -2
"""Ids of the bootstrap servers go down from here (``RequestManager``)."""


class Addresses:
    """The addresses a node knows."""

    def __init__(self, me: int, quorum: QuorumConfig, voters: Callable[[], ctl.VotersRecord | None]) -> None:
        """``voters``: the voters now, as the log has them."""
        self._me = me
        self._quorum = quorum
        self._voters = voters
        self._told: dict[int, tuple[Endpoint, ...]] = {}

    @property
    def bootstrap(self) -> tuple[int, ...]:
        """Whom to ask for the leader: servers by number, or the static voters by id (R223)."""
        if self._quorum.bootstrap:
            return tuple(FIRST_BOOTSTRAP - n for n in range(len(self._quorum.bootstrap)))
        return tuple(i for i, _ in self._quorum.static_voters)

    @property
    def told(self) -> set[int]:
        """Who said where it is."""
        return set(self._told)

    def tell(self, node_id: int, endpoints: Iterable[Endpoint]) -> None:
        """A leader said where it is reached, or somebody said it of the leader."""
        found = tuple(endpoints)
        if found and node_id >= 0:
            self._told[node_id] = found

    def endpoints_of(self, node_id: int) -> tuple[Endpoint, ...]:
        """A controller's listeners, as far as they are known."""
        if node_id == self._me and self._quorum.endpoints:
            return self._quorum.endpoints
        voters = self._voters()
        for voter in voters.voters if voters is not None else ():
            if voter.voter_id == node_id and voter.endpoints:
                return tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints)
        static = tuple(e for i, e in self._quorum.static_voters if i == node_id)
        return self._told.get(node_id, static)

    def endpoint(self, node_id: int, listener: str) -> Endpoint | None:
        """A controller's listener of a name; what a leader is named with (R213, R256)."""
        return next((e for e in self.endpoints_of(node_id) if e.name == listener), None)

    def of(self, peer: int) -> tuple[str, int] | None:
        """Host and port to dial for a peer of the raft machine's; None where nobody knows."""
        if peer <= FIRST_BOOTSTRAP:
            servers = self._quorum.bootstrap
            at = FIRST_BOOTSTRAP - peer
            return servers[at] if at < len(servers) else None
        found = self.endpoint(peer, self._quorum.listener)
        return None if found is None else (found.host, found.port)
