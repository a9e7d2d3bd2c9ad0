"""Example messages for the reference pages: fixed values by the names of fields, with exceptions for some classes."""

from __future__ import annotations

import uuid
from typing import Any

from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.schema import FieldSpec, Message, fields_of
from ottla.wire.record_batch.records import NewRecord, build_batch

TIMESTAMP_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
TOPIC_ID = uuid.UUID("6f1ed002-ab5f-4f2c-8c2a-7d3b1c0e9a55").bytes
DIRECTORY_ID = uuid.UUID("0b5c7a52-9d0e-4c55-9f0b-1a2b3c4d5e6f").bytes
CLIENT_INSTANCE_ID = uuid.UUID("c1a0e6d4-53b2-4b1e-9a37-5f60718293a4").bytes
MEMBER_ID = "app-1-7b1f"
RECORDS = bytes(build_batch([NewRecord(b"key-1", b"value-1", TIMESTAMP_MS)]))

STRINGS = {
    "assignor_name": "range",
    "client_host": "/192.0.2.10",
    "client_id": "app-1",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.3.1",
    "cluster_id": "4L6g3nShT-eMCtK--X86sw",
    "committed_metadata": "",
    "entity_name": "app-1",
    "entity_type": "client-id",
    "feature": "metadata.version",
    "group": "billing",
    "group_id": "billing",
    "group_state": "Stable",
    "group_type": "classic",
    "host": "kafka1.example",
    "host_filter": "*",
    "key": "billing",
    "leader": MEMBER_ID,
    "log_dir": "/var/lib/ottla",
    "match": "app-1",
    "mechanism": "SCRAM-SHA-256",
    "member_id": MEMBER_ID,
    "metadata": "",
    "name": "orders",
    "owner": "User:alice",
    "path": "/var/lib/ottla",
    "principal": "User:alice",
    "principal_filter": "User:alice",
    "principal_name": "alice",
    "principal_type": "User",
    "process_id": "process-1",
    "protocol": "range",
    "protocol_name": "range",
    "protocol_type": "consumer",
    "rack": "rack-a",
    "rack_id": "rack-a",
    "resource_name": "orders",
    "resource_name_filter": "orders",
    "server_assignor": "uniform",
    "states_filter": "Stable",
    "state_filters": "Ongoing",
    "subtopology_id": "0",
    "token_id": "Hs6mPRK9T4uqm8Hq8M7dFw",
    "topic": "orders",
    "topic_name": "orders",
    "topic_names": "orders",
    "topics": "orders",
    "subscribed_topic_names": "orders",
    "source_topics": "orders",
    "transaction_state": "Ongoing",
    "transactional_id": "payments-1",
    "transactional_ids": "payments-1",
    "type": "consumer",
    "types_filter": "consumer",
    "user": "alice",
    "value": "604800000",
    "configuration_keys": "retention.ms",
    "coordinator_keys": "billing",
    "group_ids": "billing",
    "groups": "billing",
    "groups_names": "billing",
    "mechanisms": "SCRAM-SHA-256",
    "requested_metrics": "org.apache.kafka.producer.",
    "owner_principal_name": "alice",
    "owner_principal_type": "User",
    "token_requester_principal_name": "alice",
    "token_requester_principal_type": "User",
    "requester": "User:alice",
    "renewers": "User:bob",
}
NUMBERS = {
    "acks": -1,
    "adding_replicas": 3,
    "api_key": 18,
    "broker_epoch": 40,
    "broker_id": 1,
    "broker_ids": 1,
    "candidate_id": 2,
    "committed_offset": 1500,
    "compression_type": 0,
    "controller_id": 1,
    "correlation_id": 7,
    "current_leader_epoch": 5,
    "delivery_count": 1,
    "election_type": 0,
    "end_offset": 1501,
    "epoch": 5,
    "fetch_offset": 1500,
    "first_offset": 1500,
    "generation": 3,
    "generation_id": 3,
    "generation_id_or_member_epoch": 3,
    "group_epoch": 3,
    "assignment_epoch": 3,
    "heartbeat_interval_ms": 5000,
    "high_watermark": 1501,
    "id": 1,
    "isolation_level": 1,
    "isr": 1,
    "isr_nodes": 1,
    "issue_timestamp_ms": TIMESTAMP_MS,
    "issue_timestamp": TIMESTAMP_MS,
    "iterations": 4096,
    "last_contained_log_timestamp": TIMESTAMP_MS,
    "last_fetched_epoch": 5,
    "last_offset": 1501,
    "last_offset_epoch": 5,
    "last_stable_offset": 1501,
    "last_timestamp": TIMESTAMP_MS,
    "leader": 1,
    "leader_epoch": 5,
    "leader_id": 1,
    "log_append_time_ms": -1,
    "log_end_offset": 1501,
    "log_start_offset": 0,
    "low_watermark": 1000,
    "max_bytes": 52428800,
    "max_lifetime_ms": 604800000,
    "max_records": 500,
    "max_timestamp": TIMESTAMP_MS,
    "max_timestamp_ms": TIMESTAMP_MS + 604800000,
    "max_version": 4,
    "max_wait_ms": 500,
    "member_epoch": 3,
    "min_bytes": 1,
    "new_isr": 1,
    "next_producer_id": 2000,
    "node_id": 1,
    "num_partitions": 3,
    "offset": 1500,
    "operation": 3,
    "partition": 0,
    "partition_epoch": 7,
    "partition_max_bytes": 1048576,
    "partition_size": 1073741824,
    "permission_type": 3,
    "pattern_type": 3,
    "pattern_type_filter": 3,
    "port": 9092,
    "preferred_read_replica": -1,
    "previous_member_epoch": 2,
    "producer_epoch": 0,
    "producer_id": 1000,
    "producer_id_len": 1000,
    "producer_id_start": 1000,
    "push_interval_ms": 300000,
    "rebalance_timeout": 300000,
    "rebalance_timeout_ms": 300000,
    "renew_period_ms": 86400000,
    "expiry_time_period_ms": 86400000,
    "expiry_timestamp": TIMESTAMP_MS + 86400000,
    "expiry_timestamp_ms": TIMESTAMP_MS + 86400000,
    "expiration_timestamp": TIMESTAMP_MS + 86400000,
    "replica_id": -1,
    "replica_nodes": 1,
    "replicas": 1,
    "replication_factor": 3,
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_types": 2,
    "session_epoch": 0,
    "session_id": 0,
    "session_lifetime_ms": 0,
    "session_timeout": 45000,
    "session_timeout_ms": 45000,
    "size": 1073741824,
    "start_offset": 1500,
    "state_epoch": 1,
    "snapshot_epoch": 1,
    "subscription_id": 1001,
    "timeout_ms": 30000,
    "timestamp": TIMESTAMP_MS,
    "transaction_timeout_ms": 60000,
    "transaction_start_time_ms": TIMESTAMP_MS,
    "total_bytes": 107374182400,
    "usable_bytes": 53687091200,
    "acquisition_lock_timeout_ms": 30000,
    "voter_id": 2,
    "voted_id": 2,
    "commit_timestamp": TIMESTAMP_MS,
    "create_timestamp": TIMESTAMP_MS,
    "current_state_timestamp": TIMESTAMP_MS,
    "write_timestamp": TIMESTAMP_MS,
    "batch_size": 500,
    "coordinator_epoch": 2,
    "security_protocol": 0,
    "telemetry_max_bytes": 1048576,
    "acceptable_recovery_lag": 10000,
    "task_offset_interval_ms": 60000,
    "last_caught_up_timestamp": TIMESTAMP_MS,
    "last_fetch_timestamp": TIMESTAMP_MS,
    "last_update_timestamp": TIMESTAMP_MS,
    "feature_level": 29,
    "max_version_level": 29,
    "min_version_level": 7,
    "max_supported_version": 29,
    "min_supported_version": 7,
    "request_api_key": 18,
    "request_api_version": 4,
    "current_metadata_offset": 2400,
    "accepted_compression_types": 4,
    "acknowledge_types": 1,
    "partitions": 0,
    "partition_indexes": 0,
    "partition_ids": 0,
    "k_raft_version": 1,
    "crc": 0x1C2D3E4F,
}
BYTES = {
    "assignment": bytes.fromhex("0000000000010006 6f72646572730000 000100000000ffffffff"),
    "member_assignment": bytes.fromhex("0000000000010006 6f72646572730000 000100000000ffffffff"),
    "metadata": bytes.fromhex("0000000000010006 6f72646572 73ffffffff"),
    "member_metadata": bytes.fromhex("0000000000010006 6f72646572 73ffffffff"),
    "subscription": bytes.fromhex("0000000000010006 6f72646572 73ffffffff"),
    "auth_bytes": b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL",
    "client_host_address": bytes((192, 0, 2, 10)),
    "hmac": bytes(range(16)),
    "salt": bytes(range(8)),
    "salted_password": bytes(range(8)),
    "stored_key": bytes(range(8)),
    "server_key": bytes(range(8)),
    "request_data": bytes.fromhex("00130007 0000 0001 0000"),
    "request_principal": bytes.fromhex("0000 05 55736572 06 616c696365 00 00"),
    "response_data": bytes.fromhex("00000001 00 00"),
    "metrics": bytes.fromhex("0a00"),
}
UUIDS = {
    "topic_id": TOPIC_ID,
    "client_instance_id": CLIENT_INSTANCE_ID,
}
BOOLEANS = {
    "allow_auto_topic_creation": True,
    "committed": True,
    "transaction_result": True,
    "vote_granted": True,
    "ack_when_committed": True,
    "is_caught_up": True,
}
NULL_FIELDS = frozenset(
    {"error_message", "acknowledge_error_message", "batch_index_error_message", "next_cursor", "cursor", "owners"}
    | {"group_instance_id", "instance_id", "user_data", "status_detail", "custom_metadata", "documentation"}
)
"""Nullable fields that are null in an example although it has a value for most other fields."""

EMPTY_FIELDS = frozenset({"task_offsets", "task_end_offsets", "warmup_tasks"})
"""Arrays that are empty in an example, because Kafka 4.3.1 does not support their elements yet."""

CLASS_FIELDS: dict[str, dict[str, Any]] = {
    "AlterableConfig": {"name": "retention.ms"},
    "CreatableTopicConfig": {"name": "retention.ms"},
    "CreatableTopicConfigs": {"name": "retention.ms"},
    "DescribeConfigsResourceResult": {"name": "retention.ms"},
    "DescribeConfigsSynonym": {"name": "retention.ms"},
    "ConfigRecord": {"name": "retention.ms"},
    "CreateTopicsRequest": {"timeout_ms": 30000},
    "CreatableTopic": {"assignments": []},
    "CreatePartitionsTopic": {"count": 6, "assignments": None},
    "AlterPartitionReassignmentsRequest": {},
    "FeatureLevelRecord": {"name": "metadata.version"},
    "FeatureUpdateKey": {"max_version_level": 30, "upgrade_type": 1},
    "SupportedFeatureKey": {"name": "metadata.version", "min_version": 7, "max_version": 29},
    "Listener": {"name": "PLAINTEXT"},
    "BrokerEndpoint": {"name": "PLAINTEXT"},
    "KRaftVersionFeature": {"min_supported_version": 0, "max_supported_version": 1},
    "ControllerEndpoint": {"name": "CONTROLLER", "port": 9093},
    "Feature": {"name": "metadata.version", "min_supported_version": 7, "max_supported_version": 29},
    "BrokerFeature": {"name": "metadata.version"},
    "ControllerFeature": {"name": "metadata.version"},
    "Endpoint": {"name": "CONTROLLER", "port": 9093},
    "JoinGroupRequestProtocol": {"name": "range"},
    "FindCoordinatorRequest": {"key_type": 0},
    "ListOffsetsPartition": {"timestamp": -1},
    "InitProducerIdRequest": {"producer_id": -1, "producer_epoch": -1},
    "PartitionProduceData": {"records": RECORDS},
    "PartitionData": {"records": RECORDS},
    "ComponentData": {"entity_type": "client-id", "match_type": 0},
    "OpData": {"key": "producer_byte_rate", "value": 1048576.0, "remove": False},
    "ValueData": {"key": "producer_byte_rate", "value": 1048576.0},
    "ClientQuotaRecord": {"key": "producer_byte_rate", "value": 1048576.0},
    "ScramCredentialUpsertion": {"name": "alice", "mechanism": 1},
    "ScramCredentialDeletion": {"name": "bob", "mechanism": 1},
    "UserScramCredentialRecord": {"name": "alice", "mechanism": 1},
    "RemoveUserScramCredentialRecord": {"name": "alice", "mechanism": 1},
    "UserName": {"name": "alice"},
    "CredentialInfo": {"mechanism": 1},
    "EntityData": {"entity_type": "client-id", "entity_name": "app-1"},
    "RequestHeader": {"request_api_key": 18, "request_api_version": 4},
    "DescribeQuorumRequest": {},
    "GroupMetadataValue": {"protocol": "range"},
    "GetTelemetrySubscriptionsResponse": {"delta_temporality": True},
    "StreamsGroupHeartbeatRequest": {"member_epoch": 0, "active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    | {"task_offsets": None, "task_end_offsets": None, "endpoint_information_epoch": -1},
    "StreamsGroupHeartbeatResponse": {"acceptable_recovery_lag": 0, "task_offset_interval_ms": 0},
    "Subtopology": {"source_topic_regex": [], "repartition_sink_topics": ["billing-by-user-repartition"]},
    "CopartitionGroup": {"source_topic_regex": []},
}
"""Values of fields that differ from those of other fields of that name, by class.

They make an example that the broker accepts: rules such as "must be null" hold, which the explanations of fields state.
"""

STRUCT_FIELDS: dict[str, dict[str, Any]] = {
    "state_changelog_topics": {"name": "billing-totals-changelog"},
    "repartition_source_topics": {"name": "billing-by-user-repartition"},
    "topic_configs": {"key": "cleanup.policy", "value": "compact"},
    "client_tags": {"key": "zone", "value": "a"},
}
"""Values of fields in the structs that a field contains, by the name of that field."""


class ExampleBuilder:
    """Builder of example messages in one version."""

    def __init__(self, version: int) -> None:
        self.version = version

    def build(self, cls: type[Message], parent: str = "") -> Message:
        """Return an example of the message class ``cls``, or of the struct ``cls`` in the field ``parent``.

        Fields that the version lacks and tagged fields have their default.
        """
        own = {**CLASS_FIELDS.get(cls.__name__, {}), **STRUCT_FIELDS.get(parent, {})}
        values = {}
        for spec in fields_of(cls):
            is_present = self.version in spec.versions and self.version not in spec.tagged
            if spec.name in own:
                values[spec.name] = own[spec.name] if is_present else spec.default_value()
            else:
                values[spec.name] = self._value(spec) if is_present else spec.default_value()
        return cls(**values)

    def _value(self, spec: FieldSpec) -> Any:
        if self.version in spec.nullable and spec.name in NULL_FIELDS:
            return None
        if spec.name in EMPTY_FIELDS:
            return []
        if spec.struct is not None:
            struct = self.build(spec.struct, spec.name)
            return [struct] if spec.is_array else struct
        if spec.is_array:
            return [_scalar(spec.name, spec.element)]
        value = _scalar(spec.name, spec.kind)
        return spec.default_value() if value is None else value


def _scalar(name: str, kind: str) -> Any:
    match kind:
        case "string":
            return STRINGS.get(name, "")
        case "bool":
            return BOOLEANS.get(name, False)
        case "uuid":
            return UUIDS.get(name, DIRECTORY_ID)
        case "bytes":
            return BYTES.get(name, b"")
        case "records":
            return RECORDS
        case "float64":
            return 1048576.0
        case "int8":
            value = NUMBERS.get(name, 0)
            return value if -128 <= value <= 127 else 0
        case _:
            return NUMBERS.get(name, 0)


def example_message(cls: type[Message], version: int) -> Message:
    """Return an example of a message class for a version, which must be one of its versions."""
    spec = spec_of(cls)
    assert version in spec.versions, f"{cls.__name__} has no version {version}"
    return ExampleBuilder(version).build(cls)
