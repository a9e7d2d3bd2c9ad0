"""Where the controllers of a cluster are, as a node's settings say it: what it starts to look for the quorum with.

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
    """Where a listener is reached."""

    name: str
    host: str
    port: int


class QuorumConfig(NamedTuple):
    """A node's part in the quorum, and the addresses it knows of before anybody has told it any."""

    listener: str = "CONTROLLER"
    """First of ``controller.listener.names``: where peers are spoken to (R-240)."""
    endpoints: tuple[ListenerEndpoint, ...] = ()
    """This node's own controller listeners as others reach them; empty: a broker only."""
    static_voters: tuple[tuple[int, ListenerEndpoint], ...] = ()
    """``controller.quorum.voters``; they count only until the log holds a set of voters (R-237)."""
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    """``controller.quorum.bootstrap.servers``."""
    timeouts: QuorumTimeouts = DEFAULT_TIMEOUTS
    auto_join: bool = False
    """``controller.quorum.auto.join.enable``."""
    access: Callable[[], ConnectionSecurity | None] = _no_access
    """What the controllers' listener wants of who speaks to them; asked when the first of them is spoken to."""
