"""How replication stands on this node, in numbers: partitions led from here that lack replicas, and followers behind.

Source: the beans of ``ReplicaManager.scala``, ``AbstractFetcherManager.scala`` and ``Partition.scala`` (apache/kafka
4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.broker.replica.partition import Leading
from ottla.broker.replica.replica import Replica
from ottla.broker.turn import Job


@dataclass(slots=True)
class Health:
    """Counts of partitions; ``most_lag`` is in records."""

    leading: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    most_lag: int = 0


def looking(replicas: Iterable[Replica]) -> Job[Health]:
    """Look at every partition, a step each."""
    out = Health()
    for replica in list(replicas):
        state = replica.state
        if type(state) is Leading:
            in_sync = len(state.in_sync)
            least = state.effective_min_isr(replica.log.config.min_insync_replicas)
            out.leading += 1
            out.under_replicated += in_sync <= len(state.followers)
            out.under_min_isr += in_sync < least
            out.at_min_isr += in_sync == least
        else:
            out.most_lag = max(out.most_lag, replica.lag)
        yield
    return out
