"""AssignReplicasToDirs (api 73): a broker tells in which directory a replica lies.

Made by KIP-858.
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    Uuid,
    request,
    response,
    wire_field,
)


class AssignReplicasToDirsRequestPartitionData(Message):
    partition_index: Int32 = 0


class AssignReplicasToDirsRequestTopicData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[AssignReplicasToDirsRequestPartitionData], wire_field("[]struct")] = field(default_factory=list)


class AssignReplicasToDirsRequestDirectoryData(Message):
    id: Uuid = ZERO_UUID
    topics: A[list[AssignReplicasToDirsRequestTopicData], wire_field("[]struct")] = field(default_factory=list)


class AssignReplicasToDirsRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(73, "0", "0+", "controller")
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    directories: A[list[AssignReplicasToDirsRequestDirectoryData], wire_field("[]struct")] = field(default_factory=list)


class AssignReplicasToDirsResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AssignReplicasToDirsResponseTopicData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[AssignReplicasToDirsResponsePartitionData], wire_field("[]struct")] = field(default_factory=list)


class AssignReplicasToDirsResponseDirectoryData(Message):
    id: Uuid = ZERO_UUID
    topics: A[list[AssignReplicasToDirsResponseTopicData], wire_field("[]struct")] = field(default_factory=list)


class AssignReplicasToDirsResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(73, "0", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: A[list[AssignReplicasToDirsResponseDirectoryData], wire_field("[]struct")] = field(
        default_factory=list
    )
