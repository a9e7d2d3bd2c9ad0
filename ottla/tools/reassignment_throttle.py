"""Throttle settings of partition reassignments and their removal, as in Kafka's own tool.

A rate is a broker's; which of its replicas it counts for is a topic's: the old ones of a partition on the leader's
side, the new ones on the follower's. Replicas in sync are never held back, whatever is set.

Source: ``ReassignPartitionsCommand.java`` (apache/kafka 4.3.1); KIP-73.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from ottla.controller.partitions.reassignment_plan import PlannedPartition, PlannedReassignment
from ottla.wire.messages import incremental_alter_configs as ia

ROLES = ("leader", "follower")
_SET, _DELETE = 0, 1


def throttle_configs(
    moves: Iterable[PlannedReassignment], before: Mapping[PlannedPartition, Sequence[int]], rate_bytes_s: int
) -> list[ia.AlterConfigsResource]:
    """Return the settings of the throttle. ``before``: current replicas of each partition."""
    old: dict[str, list[str]] = {}
    new: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for (topic, number), target in moves:
        had = before[topic, number]
        comes = [i for i in target if i not in had]
        if comes:
            old.setdefault(topic, []).extend(f"{number}:{i}" for i in had)
            new.setdefault(topic, []).extend(f"{number}:{i}" for i in comes)
            brokers.update(had, comes)
    rows = []
    for topic, replicas in old.items():
        named = zip(ROLES, (replicas, new[topic]), strict=True)
        configs = [ia.AlterableConfig(f"{s}.replication.throttled.replicas", _SET, ",".join(x)) for s, x in named]
        rows.append(ia.AlterConfigsResource(RESOURCE_TOPIC, topic, configs))
    for broker in sorted(brokers):
        configs = [ia.AlterableConfig(f"{s}.replication.throttled.rate", _SET, str(rate_bytes_s)) for s in ROLES]
        rows.append(ia.AlterConfigsResource(RESOURCE_BROKER, str(broker), configs))
    return rows


def throttle_removals(rows: Iterable[ia.AlterConfigsResource]) -> list[ia.AlterConfigsResource]:
    """Return the changes that remove the throttle settings."""
    return [
        ia.AlterConfigsResource(
            row.resource_type, row.resource_name, [ia.AlterableConfig(x.name, _DELETE, None) for x in row.configs]
        )
        for row in rows
    ]
