"""Fault injection, clocks, network pause and partitions: base classes of embedded nodes, clusters and their nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.env.hosts import format_address
from ottla.tools.async_calls import run_in_thread
from ottla.tools.network_partition import blocked_addresses

if TYPE_CHECKING:
    from ottla.tools.async_faults import AsyncFaults, AsyncNodeClock
    from ottla.tools.fault_client import FaultConnection, Faults, NodeClock


class FaultControls:
    """Fault injection, clock and network pause of a node with the setting ``ottla.faults=true``."""

    def _fault_dir(self) -> str:
        """Return the data directory of the node, which has its fault endpoint's address; subclasses override it."""
        raise NotImplementedError

    @property
    def fault_connection(self) -> FaultConnection:
        """HTTP client of the node's fault endpoint."""
        # lazy: 25 ms, 900 kB: only with faults
        from ottla.tools.fault_client import FaultConnection

        return FaultConnection(self._fault_dir())

    @property
    def faults(self) -> Faults:
        """Injection of faults into the node; the methods of `Faults` add a fault each, such as ``faults.error``."""
        # lazy: 25 ms, 900 kB: only with faults
        from ottla.tools.fault_client import Faults

        return Faults(self.fault_connection)

    @property
    def clock(self) -> NodeClock:
        """Clock of the node, such as ``clock.advance(days=7)``."""
        # lazy: 25 ms, 900 kB: only with faults
        from ottla.tools.fault_client import NodeClock

        return NodeClock(self.fault_connection)

    def pause(self) -> None:
        """Stop all network traffic of the node with clients and other nodes until `resume`; connections stay open.

        The fault endpoint responds during the pause.

        Raises:
            FaultsDisabled: the node does not run, or runs without ``ottla.faults=true``.
        """
        self.fault_connection.call("POST", "/network", {"paused": True})

    def resume(self) -> None:
        """Resume the network traffic; bytes sent during the pause are delivered.

        Raises:
            FaultsDisabled: the node does not run, or runs without ``ottla.faults=true``.
        """
        self.fault_connection.call("POST", "/network", {"paused": False})


class AsyncFaultControls:
    """Fault injection, clock and network pause of a node as coroutines, for asyncio and trio.

    Args:
        controls: blocking controls of the node.
    """

    def __init__(self, controls: FaultControls) -> None:
        self._controls = controls

    @property
    def faults(self) -> AsyncFaults:
        """Injection of faults into the node: `FaultControls.faults` with coroutines."""
        # lazy: 0.4 ms, 38 kB: only with faults
        from ottla.tools.async_faults import AsyncFaults

        return AsyncFaults(lambda: self._controls.faults)

    @property
    def clock(self) -> AsyncNodeClock:
        """Clock of the node, which a test can advance: `FaultControls.clock` with coroutines."""
        # lazy: 0.4 ms, 38 kB: only with faults
        from ottla.tools.async_faults import AsyncNodeClock

        return AsyncNodeClock(lambda: self._controls.clock)

    async def pause(self) -> None:
        """Stop the network traffic of the node with clients and other nodes, as `FaultControls.pause`.

        It stops until `resume`; connections stay open, and the fault endpoint responds.
        """
        await run_in_thread(self._controls.pause)

    async def resume(self) -> None:
        """Resume the network traffic of the node, as `FaultControls.resume`."""
        await run_in_thread(self._controls.resume)


class FaultedNode(Protocol):
    """Node of a cluster with ``ottla.faults=true``, as `ClusterFaultControls` needs it; `ClusterNode` implements it."""

    id: int
    host: str
    port: int
    controller_port: int

    @property
    def pid(self) -> int | None:
        """Process id of the node; None if it does not run."""

    @property
    def fault_connection(self) -> FaultConnection:
        """HTTP client of the node's fault endpoint."""

    @property
    def clock(self) -> NodeClock:
        """Clock of the node, which a test can advance."""


class ClusterFaultControls:
    """Network partitions and clocks of the nodes of a cluster with the setting ``ottla.faults=true``."""

    def _fault_nodes(self) -> Sequence[FaultedNode]:
        """Return all nodes of the cluster, running or not, for partitions and clocks; implemented by subclasses."""
        raise NotImplementedError

    def partition(self, *groups: Collection[int]) -> None:
        """Block the network between groups of node ids until `heal` or the next partition, which replaces this one.

        Nodes in no group, and clients, are not affected. Bytes are held back, and connections stay open.

        Raises:
            ValueError: a node is unknown, or in two groups.
            FaultsDisabled: a node in a group does not run, or any running node lacks ``ottla.faults=true``; other nodes
                may be blocked already.
        """
        nodes = {node.id: node for node in self._fault_nodes()}
        addresses = {
            node.id: [format_address(node.host, port) for port in (node.port, node.controller_port)]
            for node in nodes.values()
        }
        named = {node_id for group in groups for node_id in group}
        for node_id, blocked in blocked_addresses(addresses, groups).items():
            if node_id in named or nodes[node_id].pid is not None:
                nodes[node_id].fault_connection.call("POST", "/network", {"blocked": blocked})

    def heal(self) -> None:
        """Remove the network partition between all running nodes.

        Raises:
            FaultsDisabled: a node runs without ``ottla.faults=true``; nodes after it are not healed.
        """
        for node in self._fault_nodes():
            if node.pid is not None:
                node.fault_connection.call("POST", "/network", {"blocked": []})

    def advance_clocks(self, **duration: float) -> None:
        """Advance the clocks of all running nodes, with the arguments of `NodeClock.advance`, such as ``days=7``.

        Raises:
            FaultRejected: the duration is negative or too long; FaultsDisabled: a node runs without
                ``ottla.faults=true``, and clocks of others may be advanced already.
        """
        for node in self._fault_nodes():
            if node.pid is not None:
                node.clock.advance(**duration)
