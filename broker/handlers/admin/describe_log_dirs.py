"""DescribeLogDirs (35), v1-5: log directories with the sizes of their partitions, total and usable bytes.

Behaviour: null topics mean all; a partition without a log on this broker is left out. A future log
(AlterReplicaLogDirs) is an entry of its own in its target directory, with its lag. A failed directory has only
KAFKA_STORAGE_ERROR. Below metadata.version 4.3-IV0 no directory is reported as cordoned.

Source: ``ReplicaManager.describeLogDirs`` (apache/kafka 4.3.1).
From KIP-113; total and usable bytes: KIP-827; cordoned directories: KIP-1066.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.controller.metadata.record_serde import CORDONED_DIRS_MIN_VERSION, METADATA_VERSION
from ottla.jobs.job import Job
from ottla.jobs.sequences import sort_job
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.file_names import TopicPartition
from ottla.log.partition_log import PartitionLog
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def _row(
    context: RequestContext, directory: LogDirectory, wanted: set[TopicPartition] | None
) -> Job[DescribeLogDirsResult]:
    storage = context.services.log_dirs
    failed = DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, directory.full_path)
    if directory.path in storage.offline:
        return failed
    try:
        total, usable = directory.disk.usage(directory.path)
    except OSError as error:
        context.services.fail(error, directory)
        return failed
    topics: dict[str, DescribeLogDirsTopic] = {}
    for (name, partition), log in list(directory.logs.items()):
        if wanted is None or (name, partition) in wanted:
            lag = _lag(context, log) if log.is_future else 0
            row = DescribeLogDirsPartition(partition, log.size_bytes, lag, log.is_future)
            topics.setdefault(name, DescribeLogDirsTopic(name)).partitions.append(row)
        yield None
    for topic in topics.values():
        topic.partitions = yield from sort_job(topic.partitions, key=lambda row: row.partition_index)
        yield None
    knows = context.image.features.get(METADATA_VERSION, 0) >= CORDONED_DIRS_MIN_VERSION
    cordoned = knows and storage.is_cordoned(directory)
    rows = yield from sort_job(topics.values(), key=lambda row: row.name)
    return DescribeLogDirsResult(0, directory.full_path, rows, total, usable, cordoned)


def _lag(context: RequestContext, future: PartitionLog) -> int:
    """Return the lag of a future log behind the current log, in offsets; -1 without a current log."""
    replica = context.services.replica_manager.get(future.topic, future.partition)
    return -1 if replica is None else replica.log.log_end_offset - future.log_end_offset


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> ResponseJob:
    """Describe every log directory of this broker; one whose disk usage cannot be read fails, as by any I/O error.

    Partitions that have no log here, and a separate metadata directory, are left out. A failed directory has
    KAFKA_STORAGE_ERROR.
    """
    directories = context.services.log_dirs.directories
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = set()
        for topic in request.topics:
            for number in topic.partitions:
                if any((topic.topic, number) in directory.logs for directory in directories):
                    wanted.add((topic.topic, number))
                yield None
            yield None
    response = DescribeLogDirsResponse()
    for directory in directories:
        response.results.append((yield from _row(context, directory, wanted)))
    return response
