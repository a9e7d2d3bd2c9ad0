"""Log directories of replicas on any broker: DescribeLogDirs and AlterReplicaLogDirs by broker.

Source: ``KafkaAdminClient.describeReplicaLogDirs``, ``alterReplicaLogDirs`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.cli.kafka_tools.reassignment_files import PartitionReplica
from ottla.cli.kafka_tools.tool_options import ToolFailed, raise_for
from ottla.client.cluster_client import ClusterClient
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import alter_replica_log_dirs as alter
from ottla.wire.messages import describe_log_dirs as describe


class ReplicaLogDirs(NamedTuple):
    """Present log directory of a replica, and the one it is moving to; each None if there is none."""

    current: str | None = None
    future: str | None = None
    size: int | None = None
    """Size in bytes of the segments in the present directory; None without one."""


def _by_broker(replicas: Iterable[PartitionReplica]) -> dict[int, dict[str, list[int]]]:
    out: dict[int, dict[str, list[int]]] = {}
    for broker, topic, partition in sorted(replicas):
        out.setdefault(broker, {}).setdefault(topic, []).append(partition)
    return out


async def describe_log_dirs(
    client: ClusterClient, replicas: Collection[PartitionReplica]
) -> dict[PartitionReplica, ReplicaLogDirs]:
    """Return the log directories of replicas; all None for a replica in an offline directory or not on its broker.

    A broker gets one request.

    Raises:
        ProtocolError: DescribeLogDirs was refused, or ``client`` knows no live broker with the id.
    """
    out = {replica: ReplicaLogDirs() for replica in replicas}
    for broker, topics in _by_broker(replicas).items():
        rows = [describe.DescribableLogDirTopic(topic, partitions) for topic, partitions in topics.items()]
        answer = await (await client.broker(broker)).call(describe.DescribeLogDirsRequest(rows))
        raise_for(answer.error_code, None)
        for result in answer.results:
            if result.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                continue
            raise_for(result.error_code, None)
            for topic in result.topics:
                for row in topic.partitions:
                    replica = PartitionReplica(broker, topic.name, row.partition_index)
                    if replica in out:
                        if row.is_future_key:
                            out[replica] = out[replica]._replace(future=result.log_dir)
                        else:
                            out[replica] = out[replica]._replace(current=result.log_dir, size=row.partition_size)
    return out


async def alter_log_dirs(client: ClusterClient, targets: Mapping[PartitionReplica, str]) -> list[PartitionReplica]:
    """Start to move replicas to log directories of their brokers; return those that have started to move, sorted.

    ``targets``: path of the log directory for each replica. A replica that is not on its broker yet
    (REPLICA_NOT_AVAILABLE) is left out; the caller may try again.

    Raises:
        ToolFailed: another error of a replica; replicas that have started to move go on.
        ProtocolError: ``client`` knows no live broker with the id.
    """
    started = []
    for broker, topics in _by_broker(targets).items():
        dirs: dict[str, dict[str, list[int]]] = {}
        for topic, partitions in topics.items():
            for partition in partitions:
                path = targets[PartitionReplica(broker, topic, partition)]
                dirs.setdefault(path, {}).setdefault(topic, []).append(partition)
        rows = [
            alter.AlterReplicaLogDir(path, [alter.AlterReplicaLogDirTopic(*item) for item in named.items()])
            for path, named in dirs.items()
        ]
        answer = await (await client.broker(broker)).call(alter.AlterReplicaLogDirsRequest(rows))
        for result in answer.results:
            for row in result.partitions:
                replica = PartitionReplica(broker, result.topic_name, row.partition_index)
                if row.error_code not in (0, ErrorCode.REPLICA_NOT_AVAILABLE):
                    raise ToolFailed(f"Failed to alter dir for {replica}")
                if not row.error_code:
                    started.append(replica)
    return sorted(started)
