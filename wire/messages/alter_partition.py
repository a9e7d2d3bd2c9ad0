"""AlterPartition (api 56): leader to controller: change the in-sync replicas.

Made by KIP-497; version 2 brings topic ids (KIP-841), 3 the replicas' epochs (KIP-903).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import ZERO_UUID, Int16, Int32, Int64, Message, Spec, request, response, w


class BrokerState(Message):
    broker_id: A[int, w("int32", "3+")] = 0
    broker_epoch: A[int, w("int64", "3+")] = -1


class AlterPartitionRequestPartitionData(Message):
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: A[list[int], w("[]int32", "0-2")] = field(default_factory=list)
    new_isr_with_epochs: A[list[BrokerState], w("[]struct", "3+")] = field(default_factory=list)
    leader_recovery_state: A[int, w("int8", "1+")] = 0
    partition_epoch: Int32 = 0


class AlterPartitionRequestTopicData(Message):
    topic_id: A[bytes, w("uuid", "2+", ignorable=True)] = ZERO_UUID
    partitions: A[list[AlterPartitionRequestPartitionData], w("[]struct")] = field(default_factory=list)


class AlterPartitionRequest(Message):
    SPEC: ClassVar[Spec] = request(56, "2-3", "0+", "controller")
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: A[list[AlterPartitionRequestTopicData], w("[]struct")] = field(default_factory=list)


class AlterPartitionResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: A[list[int], w("[]int32")] = field(default_factory=list)
    leader_recovery_state: A[int, w("int8", "1+", ignorable=True)] = 0
    partition_epoch: Int32 = 0


class AlterPartitionResponseTopicData(Message):
    topic_id: A[bytes, w("uuid", "2+", ignorable=True)] = ZERO_UUID
    partitions: A[list[AlterPartitionResponsePartitionData], w("[]struct")] = field(default_factory=list)


class AlterPartitionResponse(Message):
    SPEC: ClassVar[Spec] = response(56, "2-3", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: A[list[AlterPartitionResponseTopicData], w("[]struct")] = field(default_factory=list)
