"""AlterReplicaLogDirs (34), v1-2: move replicas of this broker to other log directories of the same broker.

Behaviour: a partition's result is returned once an empty future log exists in the target directory. The future log is
filled in the background and replaces the current log when it has caught up. A repeated request has no effect; another
target directory cancels the first move, and the replica's current directory cancels any move. A replica that does not
exist yet will be created in the requested directory, and its error is REPLICA_NOT_AVAILABLE, or
UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist. For a duplicate partition the last directory applies.

Source: ``KafkaApis.handleAlterReplicaLogDirsRequest``, ``ReplicaManager.alterReplicaLogDirs`` (apache/kafka 4.3.1).
From KIP-113; cordoned directories: KIP-1066.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> ResponseJob:
    """Start or cancel the move of each replica in the order of the request; return an error code for each partition.

    A move counts as started once its empty future log exists; the copy is not awaited.
    """
    paths: dict[tuple[str, int], str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                paths[topic.name, number] = directory.path
                yield None
            yield None
        yield None
    response = AlterReplicaLogDirsResponse()
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, number), path in paths.items():
        code = yield context.services.alter_log_dirs.alter((name, number), path)
        if name not in topics:
            topics[name] = AlterReplicaLogDirTopicResult(name)
            response.results.append(topics[name])
        topics[name].partitions.append(AlterReplicaLogDirPartitionResult(number, code))
        yield None
    return response
