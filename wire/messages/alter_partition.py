"""AlterPartition (API 56): change the in-sync replicas of partitions, sent by their leaders (KIP-497)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Int64, Message, MessageSpec, request, response, wire_field


class BrokerState(Message):
    """Replica in the proposed ISR of a partition: node id and broker epoch."""

    broker_id: Annotated[int, wire_field("int32", "3+")] = 0
    """Node id of the replica."""
    broker_epoch: Annotated[int, wire_field("int64", "3+")] = -1
    """Broker epoch from the Fetch requests of the replica, -1 to leave it unchecked. If the broker has registered again
    since, the controller answers INELIGIBLE_REPLICA (KIP-903).
    """


class AlterPartitionRequestPartitionData(Message):
    """Partition with the ISR that its leader proposes, and the epochs that the change is based on."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    leader_epoch: Int32 = 0
    """Leader epoch of the sender. An older one than that of the controller is rejected with FENCED_LEADER_EPOCH, a
    newer one with NOT_CONTROLLER.
    """
    new_isr: Annotated[list[int], wire_field("[]int32", "0-2")] = field(default_factory=list)
    """Node ids of the proposed ISR, in version 2."""
    new_isr_with_epochs: Annotated[list[BrokerState], wire_field("[]struct", "3+")] = field(default_factory=list)
    """Proposed ISR with broker epochs, from version 3 on. It has to contain the leader, and replicas of the partition
    only.
    """
    leader_recovery_state: Annotated[int, wire_field("int8", "1+")] = 0
    """1 while the leader recovers from an unclean election, and then the ISR is the leader alone; 0 once it has
    recovered (KIP-704).
    """
    partition_epoch: Int32 = 0
    """Partition epoch that the change is based on. It grows with each change of the partition; an older one is rejected
    with INVALID_UPDATE_VERSION, so that two changes cannot overlap.
    """


class AlterPartitionRequestTopicData(Message):
    """Topic in an AlterPartition request, with the partitions to change."""

    topic_id: Annotated[bytes, wire_field("uuid", "2+", ignorable=True)] = ZERO_UUID
    """UUID of the topic. An unknown one yields UNKNOWN_TOPIC_ID for each partition."""
    partitions: Annotated[list[AlterPartitionRequestPartitionData], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partitions with their proposed ISR."""


class AlterPartitionRequest(Message):
    """Request of a broker to the controller to shrink or expand the ISR of partitions that it leads."""

    SPEC: ClassVar[MessageSpec] = request(56, "2-3", "0+", "controller")
    """Version 2 replaces topic names with topic ids and rejects ineligible replicas (KIP-841), version 3 adds broker
    epochs of the members (KIP-903). Versions 0 and 1 were removed in Apache Kafka 4.0.

    Flow: The leader of a partition sends it to the active controller to shrink or expand the ISR. The controller checks
    leader epoch, partition epoch and the state of the brokers, and appends a PartitionChangeRecord. The leader uses the
    new ISR when the change is committed.
    """
    broker_id: Int32 = 0
    """Node id of the sender, which must lead the partitions."""
    broker_epoch: Int64 = -1
    """Broker epoch from the registration of the sender. Another one than the current epoch is rejected with
    STALE_BROKER_EPOCH.
    """
    topics: Annotated[list[AlterPartitionRequestTopicData], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the partitions to change."""


class AlterPartitionResponsePartitionData(Message):
    """Leader, ISR and epochs of a partition after AlterPartition, or its error code."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0, or FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION (the leader waits for newer metadata), NOT_CONTROLLER,
    INELIGIBLE_REPLICA (a member is fenced or shuts down), NEW_LEADER_ELECTED (the change ended a reassignment that
    moved the leader), INVALID_REQUEST, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION.
    """
    leader_id: Int32 = 0
    """Node id of the leader, -1 if there is none."""
    leader_epoch: Int32 = 0
    """Leader epoch after the change."""
    isr: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of the ISR after the change."""
    leader_recovery_state: Annotated[int, wire_field("int8", "1+", ignorable=True)] = 0
    """1 while the leader recovers from an unclean election, else 0."""
    partition_epoch: Int32 = 0
    """Partition epoch after the change; the next change is based on it."""


class AlterPartitionResponseTopicData(Message):
    """Topic in an AlterPartition response, with the state or the error of each partition."""

    topic_id: Annotated[bytes, wire_field("uuid", "2+", ignorable=True)] = ZERO_UUID
    """Topic id from the request."""
    partitions: Annotated[list[AlterPartitionResponsePartitionData], wire_field("[]struct")] = field(
        default_factory=list
    )
    """States of the partitions after the change."""


class AlterPartitionResponse(Message):
    """Response to AlterPartition: the new state or the error of each partition."""

    SPEC: ClassVar[MessageSpec] = response(56, "2-3", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the controller reads no further request from this connection, because a quota is exceeded; 0
    if none is.
    """
    error_code: Int16 = 0
    """Error of the whole request: STALE_BROKER_EPOCH, NOT_CONTROLLER or CLUSTER_AUTHORIZATION_FAILED. 0 if the
    partitions have their own.
    """
    topics: Annotated[list[AlterPartitionResponseTopicData], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
