"""Records of `__cluster_metadata` (KIP-631).

The state of the cluster, written by the active controller and applied by all nodes. A record is a value without a key,
which begins with a frame version, the type and the version.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

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
    """Abort of a metadata transaction, type 25: the records since its begin are ignored (KIP-868)."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 25)
    reason: Annotated[str | None, wire_field("string", nullable="0+", tagged="0+", tag=0)] = None
    """Reason of the abort, null for none. A new active controller aborts a transaction that its predecessor left open.
    """


class AccessControlEntryRecord(Message):
    """New ACL, type 18: resource pattern, principal, host, operation, and allow or deny."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 18)
    id: Uuid = ZERO_UUID
    """UUID of the ACL, by which it is removed."""
    resource_type: Int8 = 0
    """2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user."""
    resource_name: String = ""
    """Name or prefix of the resources; `*` for all of them, and `kafka-cluster` for the cluster."""
    pattern_type: Int8 = 0
    """3 literal: the name itself, or `*`. 4 prefixed: all names that begin with it (KIP-290)."""
    principal: String = ""
    """Principal as type and name, such as `User:alice`; `User:*` for all users."""
    host: String = ""
    """Address of the client; `*` for all addresses."""
    operation: Int8 = 0
    """2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, 10 describe configs, 11 alter
    configs, 12 idempotent write, 13 create tokens, 14 describe tokens, 15 two phase commit.
    """
    permission_type: Int8 = 0
    """2 deny, 3 allow. A matching deny has precedence over every allow."""


class BeginTransactionRecord(Message):
    """Begin of a metadata transaction, type 23: the records after it take effect at its end (KIP-868)."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 23)
    name: Annotated[str | None, wire_field("string", nullable="0+", tagged="0+", tag=0)] = None
    """Description of the transaction, null for none."""


class BrokerRegistrationChangeRecord(Message):
    """Change of a registered broker, type 17: fencing, controlled shutdown or log directories."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0-3", "0+", 17)
    """Version 1 adds the controlled shutdown (KIP-841), 2 log directories (KIP-858), 3 cordoned ones (KIP-1066)."""
    broker_id: Int32 = 0
    """Node id of the broker."""
    broker_epoch: Int64 = 0
    """Broker epoch of the registration. If the broker has registered again since, the record is ignored."""
    fenced: Annotated[int, wire_field("int8", tagged="0+", tag=0)] = 0
    """1 if the broker is fenced now, -1 if it is unfenced, 0 for no change."""
    in_controlled_shutdown: Annotated[int, wire_field("int8", "1+", tagged="1+", tag=1)] = 0
    """1 if a controlled shutdown has begun, 0 for no change. A new registration ends it."""
    log_dirs: Annotated[list[bytes], wire_field("[]uuid", "2+", tagged="2+", tag=2)] = field(default_factory=list)
    """Ids of the log directories that are online now, empty for no change."""
    cordoned_log_dirs: Annotated[list[bytes] | None, wire_field("[]uuid", "3+", nullable="3+", tagged="3+", tag=3)] = (
        None
    )
    """Ids of log directories that receive no new partitions now (`cordoned.log.dirs`), null for no change."""


class ClearElrRecord(Message):
    """Removal of the eligible leader replicas of one or all topics, type 28 (KIP-966)."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 28)
    topic_name: String = ""
    """Topic with the partitions to change, empty for all topics."""


class EntityData(Message):
    """Part of the quota entity of a ClientQuotaRecord: type (user, client id or IP address) and name."""

    entity_type: String = ""
    """`user`, `client-id` or `ip`."""
    entity_name: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Principal name, client id or IP address; null for the default of this type."""


class ClientQuotaRecord(Message):
    """New value or removal of a quota of a quota entity, type 14."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 14)
    entity: Annotated[list[EntityData], wire_field("[]struct")] = field(default_factory=list)
    """Parts of the entity, such as a user and a client id."""
    key: String = ""
    """`producer_byte_rate`, `consumer_byte_rate`, `request_percentage`, `controller_mutation_rate` or
    `connection_creation_rate`.
    """
    value: Float64 = 0.0
    """New limit: bytes/s, percent of a request handler thread, or partition changes or connections per second. Ignored
    for a removal.
    """
    remove: Bool = False
    """True to remove the quota, false to set `value`."""


class ConfigRecord(Message):
    """New value or removal of a dynamic setting of a resource, type 4."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 4)
    resource_type: Int8 = 0
    """2 topic, 4 broker, 16 client metrics, 32 group."""
    resource_name: String = ""
    """Topic name, node id, subscription name or group id. For type 4, empty means the dynamic defaults of all brokers.
    """
    name: String = ""
    """Name of the setting, such as `cleanup.policy`."""
    value: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """New value as text; null to remove the setting, so that its default applies."""


class DelegationTokenRecord(Message):
    """Delegation token, type 10. Its secret is not stored: it is an HMAC of the token id."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 10)
    owner: String = ""
    """Owner as type and name, such as `User:alice`. Clients that log in with the token have its rights."""
    requester: String = ""
    """Principal that requested the token, as type and name."""
    renewers: Annotated[list[str], wire_field("[]string")] = field(default_factory=list)
    """Principals that may renew and expire the token besides its owner, as type and name."""
    issue_timestamp: Int64 = 0
    """Time of issue in ms since the epoch."""
    max_timestamp: Int64 = 0
    """Time in ms since the epoch up to which the token can be renewed."""
    expiration_timestamp: Int64 = 0
    """Time in ms since the epoch when the token expires unless it is renewed. The controller removes expired tokens."""
    token_id: String = ""
    """Id of the token, the user name of a SCRAM login with it."""


class EndTransactionRecord(Message):
    """End of a metadata transaction, type 24: the records since its begin take effect together (KIP-868)."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 24)


class FeatureLevelRecord(Message):
    """Finalized level of a feature, type 12. In a snapshot that of `metadata.version` precedes the rest."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 12)
    name: String = ""
    """Name of the feature, such as `metadata.version`. `kraft.version` has a control record of its own."""
    feature_level: Int16 = 0
    """New finalized level; 0 disables the feature."""


class FenceBrokerRecord(Message):
    """Fencing of a broker, type 7. Superseded by type 17, and ignored by Ottla."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 7)
    id: Int32 = 0
    """Node id of the broker."""
    epoch: Int64 = 0
    """Broker epoch of the registration."""


class NoOpRecord(Message):
    """Record without effect, type 20, every `metadata.max.idle.interval.ms` (KIP-835)."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 20)


class PartitionChangeRecord(Message):
    """Change of a partition, type 5: ISR, leader, replicas and others. Fields left out keep their values."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0-2", "0+", 5)
    """Version 1 adds log directories (KIP-858), 2 eligible leader replicas (KIP-966)."""
    partition_id: Int32 = -1
    """Index of the partition in its topic."""
    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    isr: Annotated[list[int] | None, wire_field("[]int32", nullable="0+", tagged="0+", tag=0)] = None
    """Node ids of the new ISR, null for no change."""
    leader: Annotated[int, wire_field("int32", tagged="0+", tag=1)] = -2
    """Node id of the new leader, -1 for none, -2 for no change. Any value but -2 raises the leader epoch, also that of
    the present leader. The partition epoch grows with each record.
    """
    replicas: Annotated[list[int] | None, wire_field("[]int32", nullable="0+", tagged="0+", tag=2)] = None
    """Node ids of all replicas from now on, the preferred leader first; null for no change."""
    removing_replicas: Annotated[list[int] | None, wire_field("[]int32", nullable="0+", tagged="0+", tag=3)] = None
    """Node ids of the replicas that the reassignment removes at its end, empty after it; null for no change."""
    adding_replicas: Annotated[list[int] | None, wire_field("[]int32", nullable="0+", tagged="0+", tag=4)] = None
    """Node ids of the replicas that the reassignment adds, empty after it; null for no change."""
    leader_recovery_state: Annotated[int, wire_field("int8", tagged="0+", tag=5)] = -1
    """1 after an unclean election, until the leader has recovered; 0 once it has (KIP-704). -1 for no change."""
    directories: Annotated[list[bytes] | None, wire_field("[]uuid", "1+", nullable="1+", tagged="1+", tag=8)] = None
    """Ids of the log directories, in the order of the replicas; null for no change. In place of an id, 0 means unknown
    and 1 not assigned yet.
    """
    eligible_leader_replicas: Annotated[
        list[int] | None, wire_field("[]int32", "2+", nullable="2+", tagged="2+", tag=6)
    ] = None
    """Node ids of replicas outside the ISR that have all committed records and may become leader; null for no change.
    """
    last_known_elr: Annotated[list[int] | None, wire_field("[]int32", "2+", nullable="2+", tagged="2+", tag=7)] = None
    """Node id of the last leader of a partition without leader, empty once there is one; null for no change."""


class PartitionRecord(Message):
    """New partition, type 3; in a snapshot, the whole state of a partition."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0-2", "0+", 3)
    """Version 1 adds log directories (KIP-858), 2 eligible leader replicas (KIP-966)."""
    partition_id: Int32 = -1
    """Index of the partition in its topic."""
    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    replicas: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of all replicas, the preferred leader first."""
    isr: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of the in-sync replicas."""
    removing_replicas: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of the replicas that a reassignment in progress removes at its end."""
    adding_replicas: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of the replicas that a reassignment in progress adds."""
    leader: Int32 = -1
    """Node id of the leader, -1 if there is none."""
    leader_recovery_state: Annotated[int, wire_field("int8", tagged="0+", tag=0)] = 0
    """1 while the leader recovers from an unclean election, else 0."""
    leader_epoch: Int32 = -1
    """Current leader epoch, raised by each change of the leader. 0 in a new partition."""
    partition_epoch: Int32 = -1
    """Number of changes of the partition so far. 0 in a new partition."""
    directories: Annotated[list[bytes], wire_field("[]uuid", "1+")] = field(default_factory=list)
    """Ids of the log directories, in the order of the replicas. In place of an id, 0 means unknown and 1 not assigned
    yet.
    """
    eligible_leader_replicas: Annotated[
        list[int] | None, wire_field("[]int32", "2+", nullable="2+", tagged="2+", tag=1)
    ] = None
    """Node ids of replicas outside the ISR that have all committed records and may become leader; null if there are
    none.
    """
    last_known_elr: Annotated[list[int] | None, wire_field("[]int32", "2+", nullable="2+", tagged="2+", tag=2)] = None
    """Node id of the last leader, if the partition has no leader; null if there is none."""


class ProducerIdsRecord(Message):
    """Assignment of a block of producer ids to a broker, type 15 (KIP-730)."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 15)
    broker_id: Int32 = 0
    """Node id of the broker."""
    broker_epoch: Int64 = -1
    """Broker epoch of the broker at that time."""
    next_producer_id: Int64 = 0
    """First producer id after the block, with which the next block begins."""


class BrokerEndpoint(Message):
    """Advertised endpoint of a broker in a RegisterBrokerRecord."""

    name: String = ""
    """Listener name, from `advertised.listeners`."""
    host: String = ""
    """Advertised host name or address."""
    port: Uint16 = 0
    """Advertised port."""
    security_protocol: Int16 = 0
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


class BrokerFeature(Message):
    """Feature in a RegisterBrokerRecord, with the range of levels that the broker supports."""

    name: String = ""
    """Feature name, such as `metadata.version`."""
    min_supported_version: Int16 = 0
    """Lowest supported level."""
    max_supported_version: Int16 = 0
    """Highest supported level."""


class RegisterBrokerRecord(Message):
    """Registration of a broker process, type 0. It replaces an earlier one of the same node id."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0-4", "0+", 0)
    """Version 1 adds the controlled shutdown (KIP-841), 2 the migration from ZooKeeper (KIP-866), 3 log directories
    (KIP-858), 4 cordoned ones (KIP-1066).
    """
    broker_id: Int32 = 0
    """Node id of the broker."""
    is_migrating_zk_broker: Annotated[bool, wire_field("bool", "2+")] = False
    """False: the migration from ZooKeeper ended with Apache Kafka 3.9."""
    incarnation_id: Uuid = ZERO_UUID
    """Random id of the process. The same id again keeps the broker epoch; a new one means a restart."""
    broker_epoch: Int64 = 0
    """Broker epoch: the end of the metadata log before the registration, so that a later one is higher."""
    end_points: Annotated[list[BrokerEndpoint], wire_field("[]struct")] = field(default_factory=list)
    """Endpoints that other nodes and clients receive."""
    features: Annotated[list[BrokerFeature], wire_field("[]struct")] = field(default_factory=list)
    """Features that the broker supports."""
    rack: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """`broker.rack`, null if not set. Used to spread replicas."""
    fenced: Bool = True
    """True if the broker is fenced, as a new process is until it has applied its own registration."""
    in_controlled_shutdown: Annotated[bool, wire_field("bool", "1+")] = False
    """True during a controlled shutdown, in which the broker may not become leader."""
    log_dirs: Annotated[list[bytes], wire_field("[]uuid", "3+", tagged="3+", tag=0)] = field(default_factory=list)
    """Ids of the log directories that are online."""
    cordoned_log_dirs: Annotated[list[bytes] | None, wire_field("[]uuid", "4+", nullable="4+", tagged="4+", tag=1)] = (
        None
    )
    """Ids of log directories that receive no new partitions (`cordoned.log.dirs`). Null until a heartbeat of the broker
    reports them.
    """


class ControllerEndpoint(Message):
    """Endpoint of a controller in a RegisterControllerRecord: listener name, host and port."""

    name: String = ""
    """Listener name, from `controller.listener.names`."""
    host: String = ""
    """Advertised host name or address."""
    port: Uint16 = 0
    """Advertised port."""
    security_protocol: Int16 = 0
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


class ControllerFeature(Message):
    """Feature in a RegisterControllerRecord, with the range of levels that the controller supports."""

    name: String = ""
    """Feature name, such as `metadata.version`."""
    min_supported_version: Int16 = 0
    """Lowest supported level."""
    max_supported_version: Int16 = 0
    """Highest supported level."""


class RegisterControllerRecord(Message):
    """Registration of a controller process, type 27 (KIP-919)."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 27)
    controller_id: Int32 = 0
    """Node id of the controller."""
    incarnation_id: Uuid = ZERO_UUID
    """Random id of the process. It registers again when the metadata has another id for its node."""
    zk_migration_ready: Bool = False
    """False: the migration from ZooKeeper ended with Apache Kafka 3.9."""
    end_points: Annotated[list[ControllerEndpoint], wire_field("[]struct")] = field(default_factory=list)
    """Endpoints of the controller."""
    features: Annotated[list[ControllerFeature], wire_field("[]struct")] = field(default_factory=list)
    """Features that the controller supports."""


class RemoveAccessControlEntryRecord(Message):
    """Removal of an ACL by its id, type 19."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 19)
    id: Uuid = ZERO_UUID
    """UUID of the ACL, from its record."""


class RemoveDelegationTokenRecord(Message):
    """Removal of a delegation token, type 26, after it has expired or was expired by a client."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 26)
    token_id: String = ""
    """Id of the token, from its record."""


class RemoveTopicRecord(Message):
    """Deletion of a topic with its partitions and settings, type 9."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 9)
    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""


class RemoveUserScramCredentialRecord(Message):
    """Removal of the SCRAM credential of a user for a mechanism, type 22."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 22)
    name: String = ""
    """User name."""
    mechanism: Int8 = 0
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""


class TopicRecord(Message):
    """New topic with name and id, type 2. PartitionRecords of its partitions follow."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 2)
    name: String = ""
    """Topic name."""
    topic_id: Uuid = ZERO_UUID
    """Random UUID of the topic. A topic that is created again under the same name has another one."""


class UnfenceBrokerRecord(Message):
    """Unfencing of a broker, type 8. Superseded by type 17, and ignored by Ottla."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 8)
    id: Int32 = 0
    """Node id of the broker."""
    epoch: Int64 = 0
    """Broker epoch of the registration."""


class UnregisterBrokerRecord(Message):
    """Removal of a broker's registration, type 1, by an UnregisterBroker request."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 1)
    broker_id: Int32 = 0
    """Node id of the broker."""
    broker_epoch: Int64 = 0
    """Broker epoch of the registration."""


class UserScramCredentialRecord(Message):
    """SCRAM credential of a user, type 11 (KIP-900). It replaces one of the same user and mechanism."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 11)
    name: String = ""
    """User name."""
    mechanism: Int8 = 0
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512. A user may have a credential of each."""
    salt: Bytes = b""
    """Random salt of the client that creates the credential. Each client that logs in receives it."""
    stored_key: Bytes = b""
    """StoredKey of RFC 5802, by which the broker verifies the client. The password cannot be derived from it."""
    server_key: Bytes = b""
    """ServerKey of RFC 5802, by which the broker proves to the client that it has the credential."""
    iterations: Int32 = 0
    """Iterations of the key derivation, from 4,096 to 16,384."""


class ZkMigrationStateRecord(Message):
    """State of a migration from ZooKeeper, type 21 (KIP-866). Ottla ignores it."""

    SPEC: ClassVar[MessageSpec] = data("metadata", "0", "0+", 21)
    zk_migration_state: Int8 = 0
    """0 none, 1 migration, 2 pre-migration, 3 post-migration. In records of Apache Kafka 3.4, 1 and 2 are exchanged."""
