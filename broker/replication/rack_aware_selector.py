"""Selection of a replica for a consumer: one in its own rack, if the rack-aware selector is configured.

Pure. Source: ``RackAwareReplicaSelector.java``, ``ReplicaManager.findPreferredReadReplica`` (apache/kafka 4.3.1);
KIP-392.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.replication.partition_state import LeaderState

READ_FROM_LEADER = -1


def select_replica(leading: LeaderState, racks: Mapping[int, str | None], rack: str, offset: int, now_ms: int) -> int:
    """Return the broker to read ``offset`` from (R-340); -1 for the leader.

    ``racks``: of the brokers a consumer can reach where it came in. Only members of the ISR that hold the offset are
    candidates; of several in the consumer's rack the one that is furthest wins, then the one that lags least.
    """
    if not rack or racks.get(leading.local_id) == rack:
        return READ_FROM_LEADER
    here = [
        (follower.end_offset, follower.caught_up_ms - now_ms, broker)
        for broker, follower in leading.followers.items()
        if broker in leading.committed_isr
        and follower.log_start_offset <= offset <= follower.end_offset
        and racks.get(broker) == rack
    ]
    return max(here)[2] if here else READ_FROM_LEADER
