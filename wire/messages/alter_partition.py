"""AlterPartition (api 56): leader to controller: change the in-sync replicas.

Made by KIP-497; version 2 brings topic ids (KIP-841), 3 the replicas' epochs (KIP-903).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Int64, Message, MessageSpec, request, response, wire_field


class BrokerState(Message):
    broker_id: A[int, wire_field("int32", "3+")] = 0
    broker_epoch: A[int, wire_field("int64", "3+")] = -1


class AlterPartitionRequestPartitionData(Message):
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: A[list[int], wire_field("[]int32", "0-2")] = field(default_factory=list)
    new_isr_with_epochs: A[list[BrokerState], wire_field("[]struct", "3+")] = field(default_factory=list)
    leader_recovery_state: A[int, wire_field("int8", "1+")] = 0
    partition_epoch: Int32 = 0


class AlterPartitionRequestTopicData(Message):
    topic_id: A[bytes, wire_field("uuid", "2+", ignorable=True)] = ZERO_UUID
    partitions: A[list[AlterPartitionRequestPartitionData], wire_field("[]struct")] = field(default_factory=list)


class AlterPartitionRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(56, "2-3", "0+", "controller")
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: A[list[AlterPartitionRequestTopicData], wire_field("[]struct")] = field(default_factory=list)


class AlterPartitionResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    leader_recovery_state: A[int, wire_field("int8", "1+", ignorable=True)] = 0
    partition_epoch: Int32 = 0


class AlterPartitionResponseTopicData(Message):
    topic_id: A[bytes, wire_field("uuid", "2+", ignorable=True)] = ZERO_UUID
    partitions: A[list[AlterPartitionResponsePartitionData], wire_field("[]struct")] = field(default_factory=list)


class AlterPartitionResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(56, "2-3", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: A[list[AlterPartitionResponseTopicData], wire_field("[]struct")] = field(default_factory=list)
