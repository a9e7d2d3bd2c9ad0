"""Requests of ``kafka-reassign-partitions``: list and alter reassignments, describe topics, set and clear throttles.

Source: ``ReassignPartitionsCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping, Sequence

from ottla.cli.kafka_tools.java_errors import message_text
from ottla.cli.kafka_tools.reassignment_files import PartitionReplica, numbers
from ottla.cli.kafka_tools.replica_log_dirs import describe_log_dirs
from ottla.cli.kafka_tools.tool_options import admin_channel, has, raise_for
from ottla.client.cluster_client import ClusterClient
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from ottla.controller.partitions.reassignment_plan import PlannedPartition, PlannedReassignment
from ottla.tools.reassignment_throttle import ROLES, throttle_configs
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import (
    alter_partition_reassignments,
    incremental_alter_configs,
    list_partition_reassignments,
    metadata,
)

TIMEOUT_MS = 30_000
DIRS_THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
_SET, _DELETE = 0, 1
VERIFY_WARNING = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
Reassignments = dict[PlannedPartition, list_partition_reassignments.OngoingPartitionReassignment]


async def ongoing_reassignments(
    client: ClusterClient, options: argparse.Namespace, partitions: Collection[PlannedPartition] | None = None
) -> Reassignments:
    """Return the reassignments in progress, of all partitions or of those in ``partitions``.

    Raises:
        ProtocolError: ListPartitionReassignments was refused.
    """
    topics = None
    if partitions is not None:
        topics = [
            list_partition_reassignments.ListPartitionReassignmentsTopics(topic, rows)
            for topic, rows in _by_topic(partitions).items()
        ]
    channel = await admin_channel(client, options)
    answer = await channel.call(list_partition_reassignments.ListPartitionReassignmentsRequest(TIMEOUT_MS, topics))
    raise_for(answer.error_code, answer.error_message)
    return {(topic.name, row.partition_index): row for topic in answer.topics for row in topic.partitions}


def _by_topic(partitions: Iterable[PlannedPartition]) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        out.setdefault(topic, []).append(number)
    return out


async def alter_reassignments(
    client: ClusterClient,
    options: argparse.Namespace,
    targets: Mapping[PlannedPartition, list[int] | None],
) -> dict[PlannedPartition, str]:
    """Start the reassignment of each partition to its target replicas, or cancel it where the target is None.

    Returns:
        The error message of each partition with a refused change.

    Raises:
        ProtocolError: the whole request was refused.
    """
    rows = [
        alter_partition_reassignments.ReassignableTopic(
            topic,
            [
                alter_partition_reassignments.ReassignablePartition(number, targets[topic, number])
                for number in partitions
            ],
        )
        for topic, partitions in _by_topic(targets).items()
    ]
    may_change = not options.disallow_replication_factor_change
    channel = await admin_channel(client, options)
    answer = await channel.call(
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(TIMEOUT_MS, may_change, rows)
    )
    raise_for(answer.error_code, answer.error_message)
    return {
        (topic.name, row.partition_index): message_text(ProtocolError(ErrorCode(row.error_code), row.error_message))
        for topic in answer.responses
        for row in topic.partitions
        if row.error_code
    }


async def topics_by_name(client: ClusterClient, names: Iterable[str]) -> dict[str, metadata.MetadataResponseTopic]:
    """Return the Metadata rows of topics by name.

    Raises:
        ProtocolError: a topic has an error, such as UNKNOWN_TOPIC_OR_PARTITION.
    """
    wanted = sorted(set(names))
    found = {topic.name or "": topic for topic in (await client.metadata(wanted)).topics} if wanted else {}
    for name, topic in found.items():
        if topic.error_code:
            is_missing = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise_for(topic.error_code, f"Topic {name} not found." if is_missing else None)
    return found


def replicas_of(topics: Mapping[str, metadata.MetadataResponseTopic]) -> dict[PlannedPartition, list[int]]:
    """Return the node ids of the replicas of each partition of topics, by topic and partition number."""
    return {(name, row.partition_index): list(row.replica_nodes) for name, x in topics.items() for row in x.partitions}


async def current_log_dirs(
    client: ClusterClient, current: Mapping[PlannedPartition, list[int]]
) -> dict[PartitionReplica, str]:
    """Return the log directory of each replica on a live broker; a replica without an online one is left out.

    ``current``: present replicas of each partition.

    Raises:
        ProtocolError: a broker refused DescribeLogDirs.
    """
    live = {broker.node_id for broker in (await client.metadata([])).brokers}
    replicas = [PartitionReplica(b, topic, n) for (topic, n), ids in current.items() for b in ids if b in live]
    found = await describe_log_dirs(client, replicas)
    return {replica: dirs.current for replica, dirs in found.items() if dirs.current is not None}


async def node_ids(client: ClusterClient, options: argparse.Namespace) -> set[int]:
    """Request the ids of the live brokers, or with ``--bootstrap-controller`` of the controllers.

    ``client`` can connect to these nodes by `ClusterClient.broker` then.
    """
    if has(options, "bootstrap-controller"):
        return {row.broker_id for row in (await client.controllers()).brokers}
    return {broker.node_id for broker in (await client.metadata([])).brokers}


async def _alter_configs(
    client: ClusterClient, options: argparse.Namespace, rows: Sequence[incremental_alter_configs.AlterConfigsResource]
) -> None:
    """Send IncrementalAlterConfigs for resources; for a broker's configuration to that broker, as Kafka's client does.

    After an error of a resource, such as a broker that is not available, the other resources are still changed.

    Raises:
        ProtocolError, OSError: the first error of a resource.
    """
    failure: ProtocolError | OSError | None = None
    for row in rows:
        try:
            channel = await admin_channel(client, options)
            if row.resource_type == RESOURCE_BROKER and not has(options, "bootstrap-controller"):
                channel = await client.broker(int(row.resource_name))
            answer = await channel.call(incremental_alter_configs.IncrementalAlterConfigsRequest([row], False))
            for result in answer.responses:
                raise_for(result.error_code, result.error_message)
        except (ProtocolError, OSError) as error:
            failure = failure or error
    if failure is not None:
        raise failure


async def set_throttles(
    client: ClusterClient,
    options: argparse.Namespace,
    ongoing: Reassignments,
    current: Mapping[PlannedPartition, Sequence[int]],
    targets: Sequence[tuple[PlannedPartition, list[int]]],
    log_dirs: Iterable[PartitionReplica],
) -> None:
    """Set the throttles of ``--throttle`` and ``--replica-alter-log-dirs-throttle``; do nothing if both are negative.

    An option that is not given counts as negative.

    Args:
        client: client of the cluster.
        options: parsed arguments.
        ongoing: reassignments in progress; their replicas are throttled, too.
        current: present replicas of each partition.
        targets: target replicas of each partition.
        log_dirs: replicas that move to another log directory; their brokers are throttled.

    Raises:
        ProtocolError, OSError: the first error of a broker or topic, after the changes of the same throttle for the
            others. After an error of ``--throttle`` the throttle between log directories is not set.
    """
    rate = -1 if options.throttle is None else options.throttle
    dirs_rate = -1 if options.replica_alter_log_dirs_throttle is None else options.replica_alter_log_dirs_throttle
    if rate < 0 and dirs_rate < 0:
        return
    print(VERIFY_WARNING)
    if rate >= 0:
        moves = {at: list(row.adding_replicas) for at, row in ongoing.items()} | dict(targets)
        before = {at: list(ids) for at, ids in current.items()}
        for at, row in ongoing.items():
            before[at] = [i for i in row.replicas if i not in row.adding_replicas]
        planned = [PlannedReassignment(at, tuple(ids)) for at, ids in moves.items()]
        await _alter_configs(client, options, throttle_configs(planned, before, rate, with_unchanged=True))
        print(f"The inter-broker throttle limit was set to {rate} B/s")
    if dirs_rate >= 0:
        rows = [
            incremental_alter_configs.AlterConfigsResource(
                RESOURCE_BROKER,
                str(broker),
                [incremental_alter_configs.AlterableConfig(DIRS_THROTTLE, _SET, str(dirs_rate))],
            )
            for broker in sorted({replica.broker for replica in log_dirs})
        ]
        await _alter_configs(client, options, rows)
        print(f"The replica-alter-dir throttle limit was set to {dirs_rate} B/s")


async def clear_throttles(
    client: ClusterClient, options: argparse.Namespace, targets: Sequence[tuple[PlannedPartition, list[int]]]
) -> None:
    """Delete all reassignment throttles of the live brokers and those in ``targets``, and of the topics of ``targets``.

    Raises:
        ProtocolError, OSError: the first error of a broker, after the other brokers; topics are not changed then.
    """
    brokers = sorted(await node_ids(client, options) | {i for _, ids in targets for i in ids})
    rates = [*(f"{role}.replication.throttled.rate" for role in ROLES), DIRS_THROTTLE]
    print(f"Clearing broker-level throttles on broker{'s' if len(brokers) != 1 else ''} {numbers(brokers)}")
    await _delete_configs(client, options, RESOURCE_BROKER, map(str, brokers), rates)
    topics = sorted({topic for (topic, _), _ in targets})
    print(f"Clearing topic-level throttles on topic{'s' if len(topics) != 1 else ''} {','.join(topics)}")
    lists = [f"{role}.replication.throttled.replicas" for role in ROLES]
    await _delete_configs(client, options, RESOURCE_TOPIC, topics, lists)


async def _delete_configs(
    client: ClusterClient, options: argparse.Namespace, kind: int, names: Iterable[str], keys: Sequence[str]
) -> None:
    removals = [incremental_alter_configs.AlterableConfig(key, _DELETE, None) for key in keys]
    await _alter_configs(
        client, options, [incremental_alter_configs.AlterConfigsResource(kind, name, removals) for name in names]
    )
