"""Quorum settings of a node: its listeners, the static voters or bootstrap servers, and timeouts.

From KIP-595 (static voters) and KIP-853 (voters as records, bootstrap servers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.controller.raft.state_machine.quorum_timeouts import DEFAULT_TIMEOUTS, QuorumTimeouts

if TYPE_CHECKING:
    from ottla.client.connection_security import ConnectionSecurity


def _no_access() -> None:
    return None


class ListenerEndpoint(NamedTuple):
    """Name, host and port of a listener."""

    name: str
    host: str
    port: int


class QuorumConfig(NamedTuple):
    """Quorum settings of a node (``controller.quorum...``): listeners, initially known controllers, timeouts."""

    listener: str = "CONTROLLER"
    """First of ``controller.listener.names``: listener of the connections to other controllers (R-240)."""
    endpoints: tuple[ListenerEndpoint, ...] = ()
    """Advertised controller listeners of this node; empty if it has the broker role only."""
    static_voters: tuple[tuple[int, ListenerEndpoint], ...] = ()
    """``controller.quorum.voters`` as (node id, endpoint): the voters until the log has a VotersRecord (R-237)."""
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    """``controller.quorum.bootstrap.servers`` as (host, port)."""
    timeouts: QuorumTimeouts = DEFAULT_TIMEOUTS
    auto_join: bool = False
    """``controller.quorum.auto.join.enable``."""
    access: Callable[[], ConnectionSecurity | None] = _no_access
    """Function that returns the security settings of a connection to a controller; called for each new connection."""
