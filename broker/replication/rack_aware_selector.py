"""Selection of a replica for a consumer: one in its own rack, if the rack-aware selector is configured.

Pure. Source: ``RackAwareReplicaSelector.java``, ``ReplicaManager.findPreferredReadReplica`` (apache/kafka 4.3.1);
KIP-392.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.replication.partition_state import LeaderState

READ_FROM_LEADER = -1


def select_replica(leading: LeaderState, racks: Mapping[int, str | None], rack: str, offset: int, now_ms: int) -> int:
    """Return the broker id of the replica to read ``offset`` from (R-340); -1 for the leader.

    ``racks`` are those of the brokers reachable on the consumer's listener, by id; ``rack`` is the consumer's.
    Candidates are ISR members that have the offset and are in the consumer's rack: the highest log end is selected,
    then the lowest lag in ms. It is the leader if it is in that rack itself, without a candidate, or for an empty
    ``rack``. ``now_ms`` is the wall clock.
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
