"""AlterReplicaLogDirs (34), v1-2: move replicas of this node to other directories of it.

Behaviour: a row is answered once there is an empty copy in the other directory; it is filled in the background, and
takes the replica's place when it has everything. A repeated request has no effect; another directory cancels the first
move, and the replica's current directory cancels any. A replica that does not exist yet will be created in the
requested directory, and the response is REPLICA_NOT_AVAILABLE. For a duplicate partition the last directory counts.

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
    """Begin, or give up, one move after the other."""
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
