"""Replication metrics of this node: under-replicated leaders, and lag of followers.

Source: the beans of ``ReplicaManager.scala``, ``AbstractFetcherManager.scala`` and ``Partition.scala`` (apache/kafka
4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.partition_state import LeaderState
from ottla.jobs.job import Job


@dataclass(slots=True)
class ReplicationStats:
    """Counts of partitions; ``max_lag`` is in records."""

    leader_count: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    max_lag: int = 0


def collect_metrics(replicas: Iterable[HostedPartition]) -> Job[ReplicationStats]:
    """Look at every partition, a step each."""
    out = ReplicationStats()
    for replica in list(replicas):
        state = replica.state
        if type(state) is LeaderState:
            in_sync = len(state.committed_isr)
            least = state.effective_min_isr(replica.log.config.min_insync_replicas)
            out.leader_count += 1
            out.under_replicated += in_sync <= len(state.followers)
            out.under_min_isr += in_sync < least
            out.at_min_isr += in_sync == least
        else:
            out.max_lag = max(out.max_lag, replica.lag)
        yield None
    return out
