"""DescribeLogDirs (35), v1-5: each data directory, its partitions with their sizes, and the room that is left.

Behaviour: null topics mean all; a partition that does not lie here is left out. A directory that has failed says
KAFKA_STORAGE_ERROR and nothing else.

Source: ``ReplicaManager.describeLogDirs`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.log.directory import LogDirectory, TopicPartition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def _row(context: Context, directory: LogDirectory, wanted: set[TopicPartition] | None) -> DescribeLogDirsResult:
    failed = DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, directory.full_path)
    if directory.path in context.services.storage.failed:
        return failed
    try:
        total, usable = directory.disk.usage(directory.path)
    except OSError as error:
        context.services.fail(error, directory)
        return failed
    topics: dict[str, DescribeLogDirsTopic] = {}
    for (name, partition), log in sorted(directory.logs.items()):
        if wanted is None or (name, partition) in wanted:
            row = DescribeLogDirsPartition(partition, log.size_bytes)
            topics.setdefault(name, DescribeLogDirsTopic(name)).partitions.append(row)
    return DescribeLogDirsResult(0, directory.full_path, list(topics.values()), total, usable)


def handle(context: Context, request: DescribeLogDirsRequest) -> Answer:
    """Describe every directory."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    results = [_row(context, directory, wanted) for directory in context.services.storage.directories]
    return DescribeLogDirsResponse(results=results)
