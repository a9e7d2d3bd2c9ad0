"""AlterReplicaLogDirs (api 34): move replicas between directories of one broker.

Made by KIP-113.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class AlterReplicaLogDirTopic(Message):
    name: String = ""
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class AlterReplicaLogDir(Message):
    path: String = ""
    topics: A[list[AlterReplicaLogDirTopic], wire_field("[]struct")] = field(default_factory=list)


class AlterReplicaLogDirsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(34, "1-2", "2+", "broker")
    dirs: A[list[AlterReplicaLogDir], wire_field("[]struct")] = field(default_factory=list)


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(Message):
    topic_name: String = ""
    partitions: A[list[AlterReplicaLogDirPartitionResult], wire_field("[]struct")] = field(default_factory=list)


class AlterReplicaLogDirsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(34, "1-2", "2+")
    throttle_time_ms: Int32 = 0
    results: A[list[AlterReplicaLogDirTopicResult], wire_field("[]struct")] = field(default_factory=list)
