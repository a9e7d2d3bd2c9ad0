"""Quorum settings of a node: endpoints of the controllers, with which it finds the quorum.

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
    """Host and port of a listener."""

    name: str
    host: str
    port: int


class QuorumConfig(NamedTuple):
    """Quorum settings of a node, and the initially known addresses."""

    listener: str = "CONTROLLER"
    """First of ``controller.listener.names``: where peers are spoken to (R-240)."""
    endpoints: tuple[ListenerEndpoint, ...] = ()
    """Advertised controller listeners of this node; empty: broker role only."""
    static_voters: tuple[tuple[int, ListenerEndpoint], ...] = ()
    """``controller.quorum.voters``; they count only until the log holds a set of voters (R-237)."""
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    """``controller.quorum.bootstrap.servers``."""
    timeouts: QuorumTimeouts = DEFAULT_TIMEOUTS
    auto_join: bool = False
    """``controller.quorum.auto.join.enable``."""
    access: Callable[[], ConnectionSecurity | None] = _no_access
    """Security settings for connections to the controllers; called for the first connection."""
