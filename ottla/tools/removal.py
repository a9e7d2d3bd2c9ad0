"""May a node leave for good, and what must be done before: seen from outside, on any Kafka.

The rules are Ottla's own. Kafka leaves it to people to empty a broker, take a controller's vote away and strike the
broker off, and lets them do each at the wrong time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.controller.plan_moves import At
from ottla.wire.schema import ZERO_UUID

SILENT_MS = 10_000
"""A controller that has not fetched for so long does not count as alive."""


class Voter(NamedTuple):
    """A controller that votes."""

    directory_id: bytes
    alive: bool


class Partition(NamedTuple):
    """Where a partition lies."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int


class Sight(NamedTuple):
    """What is known of a cluster."""

    cluster_id: str
    brokers: Mapping[int, bool]
    """Those that are registered, and whether they are alive."""
    racks: Mapping[int, str | None]
    voters: Mapping[int, Voter]
    partitions: Mapping[At, Partition]

    def runs(self, node: int) -> bool:
        """Whether a node seems to run."""
        voter = self.voters.get(node)
        return self.brokers.get(node, voter is not None and voter.alive)

    def held(self, node: int) -> dict[At, Partition]:
        """What lies on a node."""
        return {at: p for at, p in self.partitions.items() if node in p.replicas}


def sight(cluster: Any, topics: Any, quorum: Any) -> Sight:
    """Out of the answers to DescribeCluster, Metadata and DescribeQuorum."""
    part = quorum.topics[0].partitions[0]
    newest_ms = max((v.last_fetch_timestamp for v in part.current_voters), default=-1)
    return Sight(
        cluster.cluster_id,
        {b.broker_id: not b.is_fenced for b in cluster.brokers},
        {b.broker_id: b.rack for b in cluster.brokers if not b.is_fenced},
        {
            v.replica_id: Voter(
                v.replica_directory_id,
                v.replica_id == part.leader_id or newest_ms - v.last_fetch_timestamp <= SILENT_MS,
            )
            for v in part.current_voters
        },
        {
            (topic.name or "", p.partition_index): Partition(tuple(p.replica_nodes), tuple(p.isr_nodes), p.leader_id)
            for topic in topics.topics
            for p in topic.partitions
        },
    )


def _named(partitions: list[At]) -> str:
    more = f" and {len(partitions) - 3} more" if len(partitions) > 3 else ""
    return ", ".join(f"{topic}:{number}" for topic, number in sorted(partitions)[:3]) + more


def refusal(seen: Sight, node: int, *, joins_again: bool = False) -> str | None:
    """Why a node must not leave; None where it may. ``joins_again``: running, it makes itself a voter."""
    if node not in seen.brokers and node not in seen.voters:
        return f"no node {node} in this cluster"
    runs = seen.runs(node)
    if not runs:
        lost = [at for at, p in seen.held(node).items() if p.leader < 0 or set(p.isr) <= {node}]
        if lost:
            return f"records would be lost: nobody but node {node} has all of {_named(lost)}; start it again first"
    if node not in seen.voters:
        return None
    left = {i: v for i, v in seen.voters.items() if i != node}
    alive = sum(v.alive for v in left.values())
    if not left:
        return f"node {node} is the only controller that votes: another one must vote first"
    if seen.voters[node].directory_id == ZERO_UUID:
        return "who votes is fixed by configuration here (kraft.version 0): raise it with kafka-features.sh first"
    if alive * 2 <= len(left):
        return f"the quorum would be lost: of the {len(left)} other controllers that vote only {alive} are alive"
    if runs and joins_again and alive * 2 <= len(seen.voters):
        return (
            f"with node {node} stopped nobody could take its vote away, and while it runs it takes it again: start it "
            "with controller.quorum.auto.join.enable=false, or have another controller vote first"
        )
    return None


def votes_to_the_end(seen: Sight, node: int) -> bool:
    """Whether a node's vote must be taken away while it runs: without it the others could decide nothing."""
    alive = sum(v.alive for i, v in seen.voters.items() if i != node)
    return node in seen.voters and alive * 2 <= len(seen.voters)
