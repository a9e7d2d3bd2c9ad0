"""DescribeLogDirs (35), v1-5: the data directory, its partitions with their sizes, and the room that is left.

Behaviour: null topics mean all; a partition that does not lie here is left out.

Source: ``ReplicaManager.describeLogDirs`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.dispatch import Answer, Context
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(context: Context, request: DescribeLogDirsRequest) -> Answer:
    """Describe the one directory there is."""
    directory = context.node.directory
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    topics: dict[str, DescribeLogDirsTopic] = {}
    for (name, partition), log in sorted(directory.logs.items()):
        if wanted is None or (name, partition) in wanted:
            row = DescribeLogDirsPartition(partition, log.size_bytes)
            topics.setdefault(name, DescribeLogDirsTopic(name)).partitions.append(row)
    total, usable = context.node.env.disk.usage(directory.path)
    result = DescribeLogDirsResult(0, directory.full_path, list(topics.values()), total, usable)
    return DescribeLogDirsResponse(results=[result])
