"""Registry of the APIs that the broker and controller listeners serve.

Source: ``ApiKeys.java``, the schemas' ``listeners``, ``ControllerApis.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.wire.api_keys import ApiKey


class ApiSpec(NamedTuple):
    """Versions we speak and advertise, the oldest that is really answered, and where the handler is."""

    min_version: int
    max_version: int
    handler_module: str
    oldest_supported: int | None = None
    cancel_on_disconnect: bool = False
    """Whether its waiting is given up when the client leaves: nothing but the answer hangs on it."""
    retains_buffer: bool = False
    """Whether parts of the request are kept beyond its answer."""


BROKER_APIS: dict[ApiKey, ApiSpec] = {
    # Advertised from 0 so that old librdkafka does not give up; 0 to 2 close the connection, as in Kafka.
    ApiKey.PRODUCE: ApiSpec(0, 13, "produce.produce", oldest_supported=3, cancel_on_disconnect=True),
    ApiKey.FETCH: ApiSpec(4, 18, "fetch.fetch", cancel_on_disconnect=True),
    ApiKey.LIST_OFFSETS: ApiSpec(1, 11, "offsets.list_offsets"),
    ApiKey.METADATA: ApiSpec(0, 13, "admin.metadata"),
    ApiKey.OFFSET_COMMIT: ApiSpec(2, 10, "offsets.offset_commit"),
    ApiKey.OFFSET_FETCH: ApiSpec(1, 10, "offsets.offset_fetch"),
    ApiKey.FIND_COORDINATOR: ApiSpec(0, 6, "groups.find_coordinator"),
    ApiKey.JOIN_GROUP: ApiSpec(0, 9, "groups.join_group", cancel_on_disconnect=True, retains_buffer=True),
    ApiKey.HEARTBEAT: ApiSpec(0, 4, "groups.heartbeat"),
    ApiKey.LEAVE_GROUP: ApiSpec(0, 5, "groups.leave_group", retains_buffer=True),
    ApiKey.SYNC_GROUP: ApiSpec(0, 5, "groups.sync_group", cancel_on_disconnect=True, retains_buffer=True),
    ApiKey.DESCRIBE_GROUPS: ApiSpec(0, 6, "groups.describe_groups"),
    ApiKey.LIST_GROUPS: ApiSpec(0, 5, "groups.list_groups"),
    ApiKey.SASL_HANDSHAKE: ApiSpec(0, 1, "security.sasl_handshake"),
    ApiKey.API_VERSIONS: ApiSpec(0, 4, "admin.api_versions"),
    ApiKey.CREATE_TOPICS: ApiSpec(2, 7, "admin.forward_to_controller"),
    ApiKey.DELETE_TOPICS: ApiSpec(1, 6, "admin.delete_topics"),
    ApiKey.DELETE_RECORDS: ApiSpec(0, 2, "admin.delete_records"),
    ApiKey.INIT_PRODUCER_ID: ApiSpec(0, 5, "transactions.init_producer_id"),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiSpec(0, 5, "transactions.add_partitions_to_txn"),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiSpec(0, 4, "transactions.add_offsets_to_txn"),
    ApiKey.END_TXN: ApiSpec(0, 5, "transactions.end_txn"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiSpec(2, 4, "offsets.offset_for_leader_epoch"),
    ApiKey.WRITE_TXN_MARKERS: ApiSpec(1, 2, "transactions.write_txn_markers"),
    ApiKey.TXN_OFFSET_COMMIT: ApiSpec(0, 5, "transactions.txn_offset_commit"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiSpec(0, 1, "admin.describe_client_quotas"),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiSpec(0, 1, "admin.forward_to_controller"),
    ApiKey.DESCRIBE_ACLS: ApiSpec(1, 3, "security.describe_acls"),
    ApiKey.CREATE_ACLS: ApiSpec(1, 3, "admin.forward_to_controller"),
    ApiKey.DELETE_ACLS: ApiSpec(1, 3, "admin.forward_to_controller"),
    ApiKey.DESCRIBE_CONFIGS: ApiSpec(1, 4, "admin.describe_configs"),
    ApiKey.ALTER_CONFIGS: ApiSpec(0, 2, "admin.alter_configs"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ApiSpec(1, 2, "admin.alter_replica_log_dirs"),
    ApiKey.DESCRIBE_LOG_DIRS: ApiSpec(1, 5, "admin.describe_log_dirs"),
    ApiKey.SASL_AUTHENTICATE: ApiSpec(0, 2, "security.sasl_authenticate"),
    ApiKey.CREATE_PARTITIONS: ApiSpec(0, 3, "admin.forward_to_controller"),
    ApiKey.CREATE_DELEGATION_TOKEN: ApiSpec(1, 3, "security.delegation_tokens"),
    ApiKey.RENEW_DELEGATION_TOKEN: ApiSpec(1, 2, "security.delegation_tokens"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ApiSpec(1, 2, "security.delegation_tokens"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ApiSpec(1, 3, "security.describe_delegation_token"),
    ApiKey.DELETE_GROUPS: ApiSpec(0, 2, "groups.delete_groups"),
    ApiKey.ELECT_LEADERS: ApiSpec(0, 2, "admin.forward_to_controller"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiSpec(0, 1, "admin.incremental_alter_configs"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiSpec(0, 1, "admin.forward_to_controller"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiSpec(0, 0, "admin.forward_to_controller"),
    ApiKey.OFFSET_DELETE: ApiSpec(0, 0, "offsets.offset_delete"),
    ApiKey.DESCRIBE_QUORUM: ApiSpec(0, 2, "admin.forward_to_controller"),
    ApiKey.UPDATE_FEATURES: ApiSpec(0, 2, "admin.forward_to_controller"),
    ApiKey.DESCRIBE_CLUSTER: ApiSpec(0, 2, "admin.describe_cluster"),
    ApiKey.UNREGISTER_BROKER: ApiSpec(0, 0, "admin.forward_to_controller"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiSpec(0, 0, "security.describe_user_scram_credentials"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiSpec(0, 0, "admin.forward_to_controller"),
    ApiKey.DESCRIBE_PRODUCERS: ApiSpec(0, 0, "transactions.describe_producers"),
    ApiKey.SHARE_GROUP_HEARTBEAT: ApiSpec(1, 1, "share.share_group_heartbeat", retains_buffer=True),
    ApiKey.SHARE_GROUP_DESCRIBE: ApiSpec(1, 1, "share.share_group_describe"),
    ApiKey.SHARE_FETCH: ApiSpec(1, 2, "share.share_fetch", cancel_on_disconnect=True),
    ApiKey.SHARE_ACKNOWLEDGE: ApiSpec(1, 2, "share.share_acknowledge"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ApiSpec(0, 1, "share.describe_share_group_offsets"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ApiSpec(0, 0, "share.alter_share_group_offsets", retains_buffer=True),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ApiSpec(0, 0, "share.delete_share_group_offsets", retains_buffer=True),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ApiSpec(0, 0, "share.initialize_share_group_state"),
    ApiKey.READ_SHARE_GROUP_STATE: ApiSpec(0, 0, "share.read_share_group_state"),
    ApiKey.WRITE_SHARE_GROUP_STATE: ApiSpec(0, 1, "share.write_share_group_state"),
    ApiKey.DELETE_SHARE_GROUP_STATE: ApiSpec(0, 0, "share.delete_share_group_state"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ApiSpec(0, 1, "share.read_share_group_state_summary"),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ApiSpec(0, 0, "admin.get_telemetry_subscriptions"),
    ApiKey.PUSH_TELEMETRY: ApiSpec(0, 0, "admin.push_telemetry"),
    ApiKey.LIST_CONFIG_RESOURCES: ApiSpec(0, 1, "admin.list_config_resources"),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiSpec(0, 0, "transactions.describe_transactions"),
    ApiKey.LIST_TRANSACTIONS: ApiSpec(0, 2, "transactions.list_transactions"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiSpec(0, 1, "groups.consumer_group_heartbeat", retains_buffer=True),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiSpec(0, 1, "groups.consumer_group_describe"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiSpec(0, 0, "admin.describe_topic_partitions"),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ApiSpec(0, 0, "groups.streams_group_heartbeat", retains_buffer=True),
    ApiKey.STREAMS_GROUP_DESCRIBE: ApiSpec(0, 0, "groups.streams_group_describe"),
    ApiKey.ADD_RAFT_VOTER: ApiSpec(0, 1, "admin.forward_to_controller"),
    ApiKey.REMOVE_RAFT_VOTER: ApiSpec(0, 0, "admin.forward_to_controller"),
}
"""APIs of listeners for clients and brokers; ApiVersions is computed from them."""

CONTROLLER_APIS: dict[ApiKey, ApiSpec] = {
    ApiKey.FETCH: ApiSpec(4, 18, "controller.raft_requests", cancel_on_disconnect=True),
    ApiKey.SASL_HANDSHAKE: ApiSpec(0, 1, "security.sasl_handshake"),
    ApiKey.API_VERSIONS: ApiSpec(0, 4, "admin.api_versions"),
    ApiKey.CREATE_TOPICS: ApiSpec(2, 7, "controller.controller_requests"),
    ApiKey.DELETE_TOPICS: ApiSpec(1, 6, "controller.delete_topics"),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiSpec(0, 1, "controller.controller_requests"),
    ApiKey.CREATE_ACLS: ApiSpec(1, 3, "controller.controller_requests"),
    ApiKey.DELETE_ACLS: ApiSpec(1, 3, "controller.controller_requests"),
    ApiKey.DESCRIBE_CONFIGS: ApiSpec(1, 4, "admin.describe_configs"),
    ApiKey.ALTER_CONFIGS: ApiSpec(0, 2, "controller.controller_requests"),
    ApiKey.SASL_AUTHENTICATE: ApiSpec(0, 2, "security.sasl_authenticate"),
    ApiKey.CREATE_PARTITIONS: ApiSpec(0, 3, "controller.controller_requests"),
    ApiKey.CREATE_DELEGATION_TOKEN: ApiSpec(1, 3, "controller.delegation_tokens"),
    ApiKey.RENEW_DELEGATION_TOKEN: ApiSpec(1, 2, "controller.delegation_tokens"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ApiSpec(1, 2, "controller.delegation_tokens"),
    ApiKey.ELECT_LEADERS: ApiSpec(0, 2, "controller.controller_requests"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiSpec(0, 1, "controller.incremental_alter_configs"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiSpec(0, 1, "controller.controller_requests"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiSpec(0, 0, "controller.controller_requests"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiSpec(0, 0, "controller.controller_requests"),
    ApiKey.VOTE: ApiSpec(0, 2, "controller.raft_requests"),
    ApiKey.BEGIN_QUORUM_EPOCH: ApiSpec(0, 1, "controller.raft_requests"),
    ApiKey.END_QUORUM_EPOCH: ApiSpec(0, 1, "controller.raft_requests"),
    ApiKey.DESCRIBE_QUORUM: ApiSpec(0, 2, "controller.raft_requests"),
    ApiKey.ALTER_PARTITION: ApiSpec(2, 3, "controller.controller_requests"),
    ApiKey.UPDATE_FEATURES: ApiSpec(0, 2, "controller.controller_requests"),
    ApiKey.ENVELOPE: ApiSpec(0, 0, "controller.envelope"),
    ApiKey.FETCH_SNAPSHOT: ApiSpec(0, 1, "controller.raft_requests"),
    ApiKey.DESCRIBE_CLUSTER: ApiSpec(0, 2, "controller.describe_cluster"),
    ApiKey.BROKER_REGISTRATION: ApiSpec(0, 4, "controller.controller_requests"),
    ApiKey.BROKER_HEARTBEAT: ApiSpec(0, 2, "controller.broker_heartbeat"),
    ApiKey.UNREGISTER_BROKER: ApiSpec(0, 0, "controller.controller_requests"),
    ApiKey.ALLOCATE_PRODUCER_IDS: ApiSpec(0, 0, "controller.controller_requests"),
    ApiKey.CONTROLLER_REGISTRATION: ApiSpec(0, 0, "controller.controller_requests"),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ApiSpec(0, 0, "controller.controller_requests"),
    ApiKey.ADD_RAFT_VOTER: ApiSpec(0, 1, "controller.raft_requests"),
    ApiKey.REMOVE_RAFT_VOTER: ApiSpec(0, 0, "controller.raft_requests"),
    ApiKey.UPDATE_RAFT_VOTER: ApiSpec(0, 0, "controller.raft_requests"),
}
"""APIs of controller listeners: requests of nodes to the quorum and the active controller, and forwarded requests."""
