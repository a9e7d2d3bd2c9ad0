"""Conditions for the permanent removal of nodes from a Kafka cluster (``ottla cluster remove``), without I/O.

The rules are Ottla's own. Kafka has separate commands to drain a broker, to remove a voter and to unregister a broker,
and permits each of them even if records or the quorum would be lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ottla.controller.partitions.reassignment_plan import PlannedPartition
from ottla.wire.codec.schema import ZERO_UUID

LIVENESS_TIMEOUT_MS = 10_000
"""Time by which a voter's last fetch is older than the newest of any voter, after which it is considered dead."""


class VoterStatus(NamedTuple):
    """Voter of the quorum: its directory id, and True if it is alive.

    A voter is alive if it leads, or its last fetch is at most `LIVENESS_TIMEOUT_MS` older than the newest of any voter.
    """

    directory_id: bytes
    is_alive: bool


class PartitionReplicas(NamedTuple):
    """Node ids of the replicas, the in-sync replicas and the leader (-1 for none) of a partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int


class ClusterSnapshot(NamedTuple):
    """State of a cluster: brokers, voters and partitions."""

    cluster_id: str
    brokers: Mapping[int, bool]
    """Registered brokers by id; True for a live one, False for a fenced one."""
    racks: Mapping[int, str | None]
    """Racks of live brokers by broker id; None for a broker without a rack."""
    voters: Mapping[int, VoterStatus]
    partitions: Mapping[PlannedPartition, PartitionReplicas]

    def is_running(self, node: int) -> bool:
        """Return True if a node is a live broker, or a live voter that is not a broker; False for an unknown node."""
        voter = self.voters.get(node)
        return self.brokers.get(node, voter is not None and voter.is_alive)

    def remaining_voters(self, leaving: Collection[int]) -> list[VoterStatus]:
        """Return the voters that are not among the nodes ``leaving``."""
        return [v for i, v in self.voters.items() if i not in leaving]


def build_snapshot(cluster: Any, topics: Any, quorum: Any) -> ClusterSnapshot:
    """Return the state of a cluster from the responses to DescribeCluster, Metadata (all topics) and DescribeQuorum."""
    part = quorum.topics[0].partitions[0]
    newest_ms = max((v.last_fetch_timestamp for v in part.current_voters), default=-1)
    return ClusterSnapshot(
        cluster.cluster_id,
        {b.broker_id: not b.is_fenced for b in cluster.brokers},
        {b.broker_id: b.rack for b in cluster.brokers if not b.is_fenced},
        {
            v.replica_id: VoterStatus(
                v.replica_directory_id,
                v.replica_id == part.leader_id or newest_ms - v.last_fetch_timestamp <= LIVENESS_TIMEOUT_MS,
            )
            for v in part.current_voters
        },
        {
            (topic.name or "", p.partition_index): PartitionReplicas(
                tuple(p.replica_nodes), tuple(p.isr_nodes), p.leader_id
            )
            for topic in topics.topics
            for p in topic.partitions
        },
    )


def _named(partitions: list[PlannedPartition]) -> str:
    more = f" and {len(partitions) - 3} more" if len(partitions) > 3 else ""
    return ", ".join(f"{topic}:{number}" for topic, number in sorted(partitions)[:3]) + more


def _nodes(ids: Collection[int]) -> str:
    return f"node{'s' if len(ids) > 1 else ''} {', '.join(str(i) for i in sorted(ids))}"


def removal_obstacle(snapshot: ClusterSnapshot, leaving: Collection[int], *, joins_again: bool = False) -> str | None:
    """Return the reason why the nodes ``leaving`` must not be removed; None if they may.

    They may not be removed if records or the quorum would be lost, a node is unknown, or one is a static voter.
    Replicas on running nodes are not lost: they are moved before the removal.

    ``joins_again``: True if a running one of them has ``controller.quorum.auto.join.enable`` and would become a voter
    again.
    """
    for node in sorted(leaving):
        if node not in snapshot.brokers and node not in snapshot.voters:
            return f"no node {node} in this cluster"
    dead = {i for i in leaving if not snapshot.is_running(i)}
    lost = [
        at for at, p in snapshot.partitions.items() if dead & set(p.replicas) and (p.leader < 0 or set(p.isr) <= dead)
    ]
    if lost:
        return f"records would be lost: only {_nodes(dead)} has all of {_named(lost)}; start it again first"
    votes = [i for i in sorted(leaving) if i in snapshot.voters]
    if not votes:
        return None
    left = snapshot.remaining_voters(leaving)
    alive = sum(v.is_alive for v in left)
    if not left:
        return f"only {_nodes(votes)} is a voter: another controller must become a voter first"
    if any(snapshot.voters[i].directory_id == ZERO_UUID for i in votes):
        return "the voters are static (kraft.version 0): upgrade kraft.version with kafka-features.sh first"
    if alive * 2 <= len(left):
        return f"the quorum would be lost: of the {len(left)} other voters only {alive} are alive"
    if joins_again and must_remove_votes_first(snapshot, leaving):
        return (
            f"with {_nodes(votes)} stopped, no majority can remove the voter, and a running node rejoins as voter: "
            "start it with controller.quorum.auto.join.enable=false, or add another voter first"
        )
    return None


def must_remove_votes_first(snapshot: ClusterSnapshot, leaving: Collection[int]) -> bool:
    """Return True if the votes of the nodes ``leaving`` must be removed before the nodes stop.

    Otherwise the voters that remain alive would be no majority, and could not remove the votes.
    """
    alive = sum(v.is_alive for v in snapshot.remaining_voters(leaving))
    return any(i in snapshot.voters and snapshot.is_running(i) for i in leaving) and alive * 2 <= len(snapshot.voters)
