"""Which brokers hold a new partition's replicas.

Striped: the first replica moves on by one broker each partition, the others follow it round the ring, and after
each full round the followers shift, so that no two brokers share all their partitions.

Source: ``StripedReplicaPlacer.java`` (apache/kafka 4.3.1), for brokers of one rack.
"""

from __future__ import annotations

from ottla.wire.errors import ErrorCode, ProtocolError


def place(brokers: list[int], partitions: int, replication_factor: int, start: int) -> list[list[int]]:
    """Replica lists for ``partitions`` partitions.

    Raises:
        ProtocolError: INVALID_REPLICATION_FACTOR where there are too few brokers.
    """
    if replication_factor > len(brokers):
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered "
            "or some brokers have all their log directories cordoned.",
        )
    count = len(brokers)
    out = []
    for number in range(partitions):
        first = start + number
        shift = (first // count) % max(count - 1, 1)
        replicas = [brokers[first % count]]
        replicas += (
            brokers[(first + 1 + (shift + i) % max(count - 1, 1)) % count] for i in range(replication_factor - 1)
        )
        out.append(replicas)
    return out
