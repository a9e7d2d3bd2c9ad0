"""The records of `__cluster_metadata`: what the controller knows, as a log."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    Uint16,
    Uuid,
    data,
    wire_field,
)


class AbortTransactionRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 25)
    reason: A[str | None, wire_field("string", nullable="0+", tagged="0+", tag=0)] = None


class AccessControlEntryRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 18)
    id: Uuid = ZERO_UUID
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 0
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class BeginTransactionRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 23)
    name: A[str | None, wire_field("string", nullable="0+", tagged="0+", tag=0)] = None


class BrokerRegistrationChangeRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0-3", "0+", 17)
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: A[int, wire_field("int8", tagged="0+", tag=0)] = 0
    in_controlled_shutdown: A[int, wire_field("int8", "1+", tagged="1+", tag=1)] = 0
    log_dirs: A[list[bytes], wire_field("[]uuid", "2+", tagged="2+", tag=2)] = field(default_factory=list)
    cordoned_log_dirs: A[list[bytes] | None, wire_field("[]uuid", "3+", nullable="3+", tagged="3+", tag=3)] = None


class ClearElrRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 28)
    topic_name: String = ""


class EntityData(Message):
    entity_type: String = ""
    entity_name: A[str | None, wire_field("string", nullable="0+")] = ""


class ClientQuotaRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 14)
    entity: A[list[EntityData], wire_field("[]struct")] = field(default_factory=list)
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class ConfigRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 4)
    resource_type: Int8 = 0
    resource_name: String = ""
    name: String = ""
    value: A[str | None, wire_field("string", nullable="0+")] = ""


class DelegationTokenRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 10)
    owner: String = ""
    requester: String = ""
    renewers: A[list[str], wire_field("[]string")] = field(default_factory=list)
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: String = ""


class EndTransactionRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 24)


class FeatureLevelRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 12)
    name: String = ""
    feature_level: Int16 = 0


class FenceBrokerRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 7)
    id: Int32 = 0
    epoch: Int64 = 0


class NoOpRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 20)


class PartitionChangeRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0-2", "0+", 5)
    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    isr: A[list[int] | None, wire_field("[]int32", nullable="0+", tagged="0+", tag=0)] = None
    leader: A[int, wire_field("int32", tagged="0+", tag=1)] = -2
    replicas: A[list[int] | None, wire_field("[]int32", nullable="0+", tagged="0+", tag=2)] = None
    removing_replicas: A[list[int] | None, wire_field("[]int32", nullable="0+", tagged="0+", tag=3)] = None
    adding_replicas: A[list[int] | None, wire_field("[]int32", nullable="0+", tagged="0+", tag=4)] = None
    leader_recovery_state: A[int, wire_field("int8", tagged="0+", tag=5)] = -1
    directories: A[list[bytes] | None, wire_field("[]uuid", "1+", nullable="1+", tagged="1+", tag=8)] = None
    eligible_leader_replicas: A[list[int] | None, wire_field("[]int32", "2+", nullable="2+", tagged="2+", tag=6)] = None
    last_known_elr: A[list[int] | None, wire_field("[]int32", "2+", nullable="2+", tagged="2+", tag=7)] = None


class PartitionRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0-2", "0+", 3)
    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    replicas: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    isr: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    removing_replicas: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    adding_replicas: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    leader: Int32 = -1
    leader_recovery_state: A[int, wire_field("int8", tagged="0+", tag=0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: A[list[bytes], wire_field("[]uuid", "1+")] = field(default_factory=list)
    eligible_leader_replicas: A[list[int] | None, wire_field("[]int32", "2+", nullable="2+", tagged="2+", tag=1)] = None
    last_known_elr: A[list[int] | None, wire_field("[]int32", "2+", nullable="2+", tagged="2+", tag=2)] = None


class ProducerIdsRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 15)
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


class BrokerEndpoint(Message):
    name: String = ""
    host: String = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


class BrokerFeature(Message):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class RegisterBrokerRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0-4", "0+", 0)
    broker_id: Int32 = 0
    is_migrating_zk_broker: A[bool, wire_field("bool", "2+")] = False
    incarnation_id: Uuid = ZERO_UUID
    broker_epoch: Int64 = 0
    end_points: A[list[BrokerEndpoint], wire_field("[]struct")] = field(default_factory=list)
    features: A[list[BrokerFeature], wire_field("[]struct")] = field(default_factory=list)
    rack: A[str | None, wire_field("string", nullable="0+")] = ""
    fenced: Bool = True
    in_controlled_shutdown: A[bool, wire_field("bool", "1+")] = False
    log_dirs: A[list[bytes], wire_field("[]uuid", "3+", tagged="3+", tag=0)] = field(default_factory=list)
    cordoned_log_dirs: A[list[bytes] | None, wire_field("[]uuid", "4+", nullable="4+", tagged="4+", tag=1)] = None


class ControllerEndpoint(Message):
    name: String = ""
    host: String = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


class ControllerFeature(Message):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class RegisterControllerRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 27)
    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: Bool = False
    end_points: A[list[ControllerEndpoint], wire_field("[]struct")] = field(default_factory=list)
    features: A[list[ControllerFeature], wire_field("[]struct")] = field(default_factory=list)


class RemoveAccessControlEntryRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 19)
    id: Uuid = ZERO_UUID


class RemoveDelegationTokenRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 26)
    token_id: String = ""


class RemoveTopicRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 9)
    topic_id: Uuid = ZERO_UUID


class RemoveUserScramCredentialRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 22)
    name: String = ""
    mechanism: Int8 = 0


class TopicRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 2)
    name: String = ""
    topic_id: Uuid = ZERO_UUID


class UnfenceBrokerRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 8)
    id: Int32 = 0
    epoch: Int64 = 0


class UnregisterBrokerRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 1)
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


class UserScramCredentialRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 11)
    name: String = ""
    mechanism: Int8 = 0
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: Int32 = 0


class ZkMigrationStateRecord(Message):
    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 21)
    zk_migration_state: Int8 = 0
