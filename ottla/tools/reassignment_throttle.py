"""Configuration changes that throttle the replication of partition reassignments, and that end the throttle.

The rate is a broker's configuration; the throttled replicas are a topic's: the present replicas on the leader's side,
the added ones on the follower's. In-sync replicas are never throttled.

Source: ``ReassignPartitionsCommand.java`` (apache/kafka 4.3.1); KIP-73.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from ottla.controller.partitions.reassignment_plan import PlannedPartition, PlannedReassignment
from ottla.wire.messages import incremental_alter_configs

ROLES = ("leader", "follower")
_SET, _DELETE = 0, 1


def throttle_configs(
    moves: Iterable[PlannedReassignment],
    before: Mapping[PlannedPartition, Sequence[int]],
    rate_bytes_s: int,
    *,
    with_unchanged: bool = False,
) -> list[incremental_alter_configs.AlterConfigsResource]:
    """Return the configuration changes of topics and brokers that throttle reassignments; nothing is sent.

    Args:
        moves: the reassignments.
        before: present replicas of each partition.
        rate_bytes_s: rate of each broker in bytes per second.
        with_unchanged: include partitions to which no replica is added, as Kafka's tool does.
    """
    old: dict[str, list[str]] = {}
    new: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for (topic, number), target in moves:
        had = before[topic, number]
        comes = [i for i in target if i not in had]
        if comes or with_unchanged:
            old.setdefault(topic, []).extend(f"{number}:{i}" for i in had)
            new.setdefault(topic, []).extend(f"{number}:{i}" for i in comes)
            brokers.update(had, comes)
    rows = []
    for topic, replicas in old.items():
        named = zip(ROLES, (replicas, new[topic]), strict=True)
        configs = [
            incremental_alter_configs.AlterableConfig(f"{s}.replication.throttled.replicas", _SET, ",".join(sorted(x)))
            for s, x in named
        ]
        rows.append(incremental_alter_configs.AlterConfigsResource(RESOURCE_TOPIC, topic, configs))
    for broker in sorted(brokers):
        configs = [
            incremental_alter_configs.AlterableConfig(f"{s}.replication.throttled.rate", _SET, str(rate_bytes_s))
            for s in ROLES
        ]
        rows.append(incremental_alter_configs.AlterConfigsResource(RESOURCE_BROKER, str(broker), configs))
    return rows


def throttle_removals(
    rows: Iterable[incremental_alter_configs.AlterConfigsResource],
) -> list[incremental_alter_configs.AlterConfigsResource]:
    """Return the configuration changes that delete the configurations that ``rows`` set."""
    return [
        incremental_alter_configs.AlterConfigsResource(
            row.resource_type,
            row.resource_name,
            [incremental_alter_configs.AlterableConfig(x.name, _DELETE, None) for x in row.configs],
        )
        for row in rows
    ]
