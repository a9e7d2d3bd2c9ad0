"""Registry of the APIs that this node serves: one `ApiSpec` for each API of Apache Kafka.

Source: ``ApiKeys.java``, the schemas' ``listeners``, ``KafkaApis.scala``, ``ControllerApis.scala``,
``AuthHelper.scala``, the ``getErrorResponse`` of each request class in ``clients`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.api_spec import (
    LARGE_PRODUCE_BYTES,
    ApiSpec,
    AuthorizationRule,
    ConfigResourceRule,
    CoordinatorPartitions,
    CreatedConfigsRule,
    DeleteTopicsRule,
    Endpoint,
    ErrorMessage,
    ErrorResponse,
    ErrorResults,
    Forwarding,
    ForwardingTarget,
    MutationQuota,
    NamedPartitions,
    Permission,
    QuotaKind,
    RequestRule,
    ResourceRule,
)
from ottla.controller.config.config_keys import METRICS_LISTENER
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode

ALTER, ALTER_CONFIGS, CLUSTER_ACTION = AclOperation.ALTER, AclOperation.ALTER_CONFIGS, AclOperation.CLUSTER_ACTION
CREATE, CREATE_TOKENS, DELETE = AclOperation.CREATE, AclOperation.CREATE_TOKENS, AclOperation.DELETE
DESCRIBE, DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
DESCRIBE_TOKENS, IDEMPOTENT_WRITE = AclOperation.DESCRIBE_TOKENS, AclOperation.IDEMPOTENT_WRITE
READ, WRITE = AclOperation.READ, AclOperation.WRITE
CLUSTER, DELEGATION_TOKEN, GROUP = ResourceType.CLUSTER, ResourceType.DELEGATION_TOKEN, ResourceType.GROUP
TOPIC, TRANSACTIONAL_ID, USER = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID, ResourceType.USER

READ_GROUP = RequestRule(READ, GROUP, "group_id")
WRITE_TRANSACTIONAL_ID = RequestRule(WRITE, TRANSACTIONAL_ID, "transactional_id")
ALTER_CLUSTER, DESCRIBE_CLUSTER = RequestRule(ALTER), RequestRule(DESCRIBE)
CLUSTER_MEMBERS_ONLY = RequestRule(CLUSTER_ACTION)
GROUP_AND_TOPICS = Permission(DESCRIBE, GROUP), Permission(DESCRIBE, TOPIC)
READ_GROUP_AND_TOPICS = Permission(READ, GROUP), Permission(READ, TOPIC)

FORWARD = Endpoint("admin.forward_to_controller")
"""Broker endpoint of an API that the broker only forwards and the controller authorizes and handles."""
FORWARDED = Forwarding()
FORWARDED_TO_QUORUM = Forwarding(ForwardingTarget.QUORUM)
FORWARDED_WITH_REQUESTER = Forwarding(ForwardingTarget.CONTROLLER_WITH_REQUESTER)

PARTITION_RESULTS = ErrorResults("partitions", "partitions", ("partition_index",))
CONFIG_RESULTS = ErrorResults("resources", "responses", ("resource_type", "resource_name"))
TOPIC_PARTITION_RESULTS = ErrorResults("topics", "topics", ("name",), nested=PARTITION_RESULTS)
PRODUCE_RESULTS = ErrorResults(
    "topic_data",
    "responses",
    ("name", "topic_id"),
    nested=ErrorResults("partition_data", "partition_responses", ("index",), values=(("base_offset", -1),)),
)
FETCH_RESULTS = ErrorResults(
    "topics",
    "responses",
    ("topic", "topic_id"),
    nested=ErrorResults(
        "partitions",
        "partitions",
        ("partition_index",),
        ("partition",),
        values=(("high_watermark", -1), ("records", b"")),  # librdkafka cannot parse null records
    ),
)
ADDED_PARTITION_RESULTS = ErrorResults(
    "v3_and_below_topics",
    "results_by_topic_v3_and_below",
    ("name",),
    nested=ErrorResults("partitions", "results_by_partition", ("partition_index",)),
)
DESCRIBED_GROUP_RESULTS = ErrorResults("group_ids", "groups", ("group_id",))
ERROR_TEXT = ErrorResponse(message=ErrorMessage.ERROR_TEXT)


def _results(results: ErrorResults) -> ErrorResponse:
    """Return the layout of an error response with all error codes in a single list of rows."""
    return ErrorResponse((results,))


def _controller(*rules: AuthorizationRule) -> Endpoint:
    """Return the controller endpoint of an API that the active controller handles, with its authorization rules."""
    return Endpoint("controller.controller_requests", rules)


def _raft(*rules: AuthorizationRule) -> Endpoint:
    """Return the controller endpoint of an API that this node's Raft client handles, with its authorization rules."""
    return Endpoint("controller.raft_requests", rules)


API_SPECS: tuple[ApiSpec, ...] = (
    ApiSpec(
        ApiKey.PRODUCE,
        0,  # advertised so that old librdkafka does not give up; 0 to 2 close the connection, as in Kafka
        13,
        Endpoint("produce.produce", (Permission(WRITE, TRANSACTIONAL_ID), Permission(WRITE, TOPIC))),
        oldest_supported=3,
        error_response=_results(PRODUCE_RESULTS),
        quota=QuotaKind.PRODUCE,
        partitions=NamedPartitions("topic_data", "name", "topic_id", "partition_data", "index"),
        large_bytes=LARGE_PRODUCE_BYTES,
        handler_counts_errors=True,
    ),
    ApiSpec(
        ApiKey.FETCH,
        4,
        18,
        Endpoint("fetch.fetch", (Permission(READ, TOPIC), Permission(CLUSTER_ACTION, CLUSTER))),
        _raft(CLUSTER_MEMBERS_ONLY),
        error_response=_results(FETCH_RESULTS),
        quota=QuotaKind.FETCH,
        partitions=NamedPartitions("topics", "topic", "topic_id", "partitions", "partition"),
        handler_counts_errors=True,
    ),
    ApiSpec(
        ApiKey.LIST_OFFSETS,
        1,
        11,
        Endpoint("offsets.list_offsets", (ResourceRule(DESCRIBE, TOPIC),)),
        error_response=_results(TOPIC_PARTITION_RESULTS),
        partitions=NamedPartitions(),
    ),
    ApiSpec(
        ApiKey.METADATA,
        0,
        13,
        Endpoint(
            "admin.metadata",
            (
                Permission(DESCRIBE, TOPIC),
                Permission(CREATE, TOPIC),
                Permission(CREATE, CLUSTER, logs_denial=False),
                Permission(DESCRIBE, CLUSTER),
            ),
        ),
        error_response=_results(ErrorResults("topics", "topics", ("name", "topic_id"))),
    ),
    ApiSpec(
        ApiKey.OFFSET_COMMIT,
        2,
        10,
        Endpoint("offsets.offset_commit", (READ_GROUP, ResourceRule(READ, TOPIC, ids_since=10))),
        error_response=_results(ErrorResults("topics", "topics", ("name", "topic_id"), nested=PARTITION_RESULTS)),
    ),
    ApiSpec(
        ApiKey.OFFSET_FETCH,
        1,
        10,
        Endpoint("offsets.offset_fetch", GROUP_AND_TOPICS),
        error_response=_results(ErrorResults("groups", "groups", ("group_id",))),
    ),
    ApiSpec(
        ApiKey.FIND_COORDINATOR,
        0,
        6,
        Endpoint(
            "groups.find_coordinator",
            (Permission(DESCRIBE, GROUP), Permission(DESCRIBE, TRANSACTIONAL_ID), Permission(CLUSTER_ACTION, CLUSTER)),
        ),
        partitions=CoordinatorPartitions(),
    ),
    ApiSpec(
        ApiKey.JOIN_GROUP,
        0,
        9,
        Endpoint("groups.join_group", (READ_GROUP,)),
        error_response=ErrorResponse(values=(("protocol_name", None),)),
        retains_buffer=True,
    ),
    ApiSpec(ApiKey.HEARTBEAT, 0, 4, Endpoint("groups.heartbeat", (READ_GROUP,))),
    ApiSpec(ApiKey.LEAVE_GROUP, 0, 5, Endpoint("groups.leave_group", (READ_GROUP,)), retains_buffer=True),
    ApiSpec(
        ApiKey.SYNC_GROUP,
        0,
        5,
        Endpoint("groups.sync_group", (READ_GROUP,)),
        retains_buffer=True,
    ),
    ApiSpec(
        ApiKey.DESCRIBE_GROUPS,
        0,
        6,
        Endpoint("groups.describe_groups", (Permission(DESCRIBE, GROUP),)),
        error_response=_results(ErrorResults("groups", "groups", ("group_id",))),
    ),
    ApiSpec(
        ApiKey.LIST_GROUPS,
        0,
        5,
        Endpoint(
            "groups.list_groups",
            (Permission(DESCRIBE, CLUSTER, logs_denial=False), Permission(DESCRIBE, GROUP, logs_denial=False)),
        ),
    ),
    ApiSpec(ApiKey.SASL_HANDSHAKE, 0, 1, Endpoint("security.sasl_handshake"), Endpoint("security.sasl_handshake")),
    ApiSpec(ApiKey.API_VERSIONS, 0, 4, Endpoint("admin.api_versions"), Endpoint("admin.api_versions")),
    ApiSpec(
        ApiKey.CREATE_TOPICS,
        2,
        7,
        FORWARD,
        _controller(
            ResourceRule(
                CREATE, TOPIC, cluster_operation=CREATE, denial_message="Authorization failed.", rejects_duplicates=True
            ),
            CreatedConfigsRule(),
        ),
        forwarding=FORWARDED,
        error_response=_results(ErrorResults("topics", "topics", ("name",))),
        quota=MutationQuota(strict_since=6),
    ),
    ApiSpec(
        ApiKey.DELETE_TOPICS,
        1,
        6,
        Endpoint("admin.delete_topics"),
        Endpoint("controller.delete_topics", (DeleteTopicsRule(),)),
        forwarding=FORWARDED,
        error_response=ErrorResponse(
            (
                ErrorResults("topic_names", "responses", ("name",)),
                ErrorResults("topics", "responses", ("name", "topic_id")),
            ),
            message=ErrorMessage.NONE,
        ),
        quota=MutationQuota(strict_since=5),
    ),
    ApiSpec(
        ApiKey.DELETE_RECORDS,
        0,
        2,
        Endpoint("admin.delete_records", (ResourceRule(DELETE, TOPIC),)),
        error_response=_results(
            ErrorResults(
                "topics", "topics", ("name",), nested=PARTITION_RESULTS._replace(values=(("low_watermark", -1),))
            )
        ),
        partitions=NamedPartitions(),
    ),
    ApiSpec(
        ApiKey.INIT_PRODUCER_ID,
        0,
        5,
        Endpoint(
            "transactions.init_producer_id",
            (
                Permission(WRITE, TRANSACTIONAL_ID),
                Permission(IDEMPOTENT_WRITE, CLUSTER, logs_denial=False),
                Permission(WRITE, TOPIC),
            ),
        ),
        error_response=ErrorResponse(values=(("producer_epoch", -1),)),
    ),
    ApiSpec(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        2,
        4,
        Endpoint("offsets.offset_for_leader_epoch", (ResourceRule(DESCRIBE, TOPIC, cluster_operation=CLUSTER_ACTION),)),
        error_response=_results(
            ErrorResults(
                "topics", "topics", ("topic",), nested=ErrorResults("partitions", "partitions", ("partition",))
            )
        ),
        partitions=NamedPartitions("topics", "topic", None, "partitions", "partition"),
    ),
    ApiSpec(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        0,
        5,
        Endpoint(
            "transactions.add_partitions_to_txn",
            (Permission(CLUSTER_ACTION, CLUSTER), Permission(WRITE, TRANSACTIONAL_ID), Permission(WRITE, TOPIC)),
        ),
        error_response=_results(ADDED_PARTITION_RESULTS),
    ),
    ApiSpec(
        ApiKey.ADD_OFFSETS_TO_TXN,
        0,
        4,
        Endpoint("transactions.add_offsets_to_txn", (WRITE_TRANSACTIONAL_ID, READ_GROUP)),
    ),
    ApiSpec(ApiKey.END_TXN, 0, 5, Endpoint("transactions.end_txn", (WRITE_TRANSACTIONAL_ID,))),
    ApiSpec(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        2,
        Endpoint(
            "transactions.write_txn_markers",
            (Permission(ALTER, CLUSTER, logs_denial=False), Permission(CLUSTER_ACTION, CLUSTER)),
        ),
        quota=QuotaKind.EXEMPT,
    ),
    ApiSpec(
        ApiKey.TXN_OFFSET_COMMIT,
        0,
        5,
        Endpoint(
            "transactions.txn_offset_commit",
            (Permission(WRITE, TRANSACTIONAL_ID), Permission(READ, GROUP), Permission(READ, TOPIC)),
        ),
        error_response=_results(TOPIC_PARTITION_RESULTS),
    ),
    ApiSpec(
        ApiKey.DESCRIBE_ACLS,
        1,
        3,
        Endpoint("security.describe_acls", (DESCRIBE_CLUSTER,)),
        Endpoint("security.describe_acls", (DESCRIBE_CLUSTER,)),
    ),
    ApiSpec(
        ApiKey.CREATE_ACLS,
        1,
        3,
        FORWARD,
        _controller(ALTER_CLUSTER),
        forwarding=FORWARDED,
        error_response=_results(ErrorResults("creations", "results")),
    ),
    ApiSpec(
        ApiKey.DELETE_ACLS,
        1,
        3,
        FORWARD,
        _controller(ALTER_CLUSTER),
        forwarding=FORWARDED,
        error_response=_results(ErrorResults("filters", "filter_results")),
    ),
    ApiSpec(
        ApiKey.DESCRIBE_CONFIGS,
        1,
        4,
        Endpoint("admin.describe_configs", (ConfigResourceRule(DESCRIBE_CONFIGS),)),
        Endpoint("admin.describe_configs", (ConfigResourceRule(DESCRIBE_CONFIGS),)),
        error_response=_results(CONFIG_RESULTS._replace(response_list="results")),
    ),
    ApiSpec(
        ApiKey.ALTER_CONFIGS,
        0,
        2,
        Endpoint("admin.alter_configs"),
        _controller(ConfigResourceRule(ALTER_CONFIGS)),
        forwarding=FORWARDED,
        error_response=_results(CONFIG_RESULTS),
    ),
    ApiSpec(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        1,
        2,
        Endpoint("admin.alter_replica_log_dirs", (ALTER_CLUSTER,)),
        error_response=_results(
            ErrorResults(
                "topics", "results", ("topic_name",), ("name",), nested=PARTITION_RESULTS, request_parent="dirs"
            )
        ),
    ),
    ApiSpec(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, Endpoint("admin.describe_log_dirs", (DESCRIBE_CLUSTER,))),
    ApiSpec(
        ApiKey.SASL_AUTHENTICATE, 0, 2, Endpoint("security.sasl_authenticate"), Endpoint("security.sasl_authenticate")
    ),
    ApiSpec(
        ApiKey.CREATE_PARTITIONS,
        0,
        3,
        FORWARD,
        _controller(ResourceRule(ALTER, TOPIC, rejects_duplicates=True)),
        forwarding=FORWARDED,
        error_response=_results(ErrorResults("topics", "results", ("name",))),
        quota=MutationQuota(strict_since=3),
    ),
    ApiSpec(
        ApiKey.CREATE_DELEGATION_TOKEN,
        1,
        3,
        Endpoint("security.delegation_tokens", (Permission(CREATE_TOKENS, USER),)),
        Endpoint("controller.delegation_tokens", (Permission(CREATE_TOKENS, USER),)),
        forwarding=FORWARDED_WITH_REQUESTER,
        error_response=ErrorResponse(
            values=(
                ("principal_type", "User"),
                ("principal_name", "ANONYMOUS"),
                ("token_requester_principal_type", "User"),
                ("token_requester_principal_name", "ANONYMOUS"),
                ("issue_timestamp_ms", -1),
                ("expiry_timestamp_ms", -1),
                ("max_timestamp_ms", -1),
            )
        ),
    ),
    ApiSpec(
        ApiKey.RENEW_DELEGATION_TOKEN,
        1,
        2,
        Endpoint("security.delegation_tokens"),
        Endpoint("controller.delegation_tokens"),
        forwarding=FORWARDED_WITH_REQUESTER,
    ),
    ApiSpec(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        1,
        2,
        Endpoint("security.delegation_tokens"),
        Endpoint("controller.delegation_tokens"),
        forwarding=FORWARDED_WITH_REQUESTER,
    ),
    ApiSpec(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        1,
        3,
        Endpoint(
            "security.describe_delegation_token",
            (Permission(DESCRIBE, DELEGATION_TOKEN), Permission(DESCRIBE_TOKENS, USER)),
        ),
    ),
    ApiSpec(
        ApiKey.DELETE_GROUPS,
        0,
        2,
        Endpoint("groups.delete_groups", (ResourceRule(DELETE, GROUP),)),
        error_response=_results(ErrorResults("groups_names", "results", ("group_id",))),
    ),
    ApiSpec(
        ApiKey.ELECT_LEADERS,
        0,
        2,
        FORWARD,
        _controller(ALTER_CLUSTER),
        forwarding=FORWARDED,
        error_response=_results(
            ErrorResults(
                "topic_partitions",
                "replica_election_results",
                ("topic",),
                nested=ErrorResults("partitions", "partition_result", ("partition_id",)),
            )
        ),
    ),
    ApiSpec(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        0,
        1,
        Endpoint("admin.incremental_alter_configs", (Permission(ALTER_CONFIGS, CLUSTER),)),
        Endpoint(
            "controller.incremental_alter_configs",
            (ConfigResourceRule(ALTER_CONFIGS), Permission(CLUSTER_ACTION, CLUSTER)),
        ),
        forwarding=FORWARDED,
        error_response=_results(CONFIG_RESULTS),
    ),
    ApiSpec(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        1,
        FORWARD,
        _controller(ALTER_CLUSTER),
        forwarding=FORWARDED,
        error_response=_results(ErrorResults("topics", "responses", ("name",), nested=PARTITION_RESULTS)),
    ),
    ApiSpec(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        0,
        FORWARD,
        _controller(DESCRIBE_CLUSTER),
        forwarding=FORWARDED,
        error_response=_results(
            ErrorResults(
                "topics", "topics", ("name",), nested=PARTITION_RESULTS._replace(request_list="partition_indexes")
            )
        ),
    ),
    ApiSpec(
        ApiKey.OFFSET_DELETE,
        0,
        0,
        Endpoint("offsets.offset_delete", (RequestRule(DELETE, GROUP, "group_id"), ResourceRule(READ, TOPIC))),
        error_response=ErrorResponse(
            (ErrorResults("topics", "topics", ("name",), nested=PARTITION_RESULTS),), results_only_for_denied=True
        ),
    ),
    ApiSpec(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        0,
        1,
        Endpoint("admin.describe_client_quotas", (RequestRule(DESCRIBE_CONFIGS),)),
        error_response=ErrorResponse(values=(("entries", None),)),
    ),
    ApiSpec(
        ApiKey.ALTER_CLIENT_QUOTAS,
        0,
        1,
        FORWARD,
        _controller(RequestRule(ALTER_CONFIGS)),
        forwarding=FORWARDED,
        error_response=_results(
            ErrorResults("entries", "entries", nested=ErrorResults("entity", "entity", ("entity_type", "entity_name")))
        ),
    ),
    ApiSpec(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        0,
        Endpoint("security.describe_user_scram_credentials", (DESCRIBE_CLUSTER,)),
        error_response=_results(ErrorResults("users", "results")),
    ),
    ApiSpec(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        0,
        FORWARD,
        _controller(ALTER_CLUSTER),
        forwarding=FORWARDED,
        error_response=ErrorResponse(
            (
                ErrorResults("deletions", "results", ("user",), ("name",)),
                ErrorResults("upsertions", "results", ("user",), ("name",)),
            ),
            has_unique_results=True,
        ),
    ),
    ApiSpec(ApiKey.VOTE, 0, 2, controller=_raft(CLUSTER_MEMBERS_ONLY)),
    ApiSpec(ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, controller=_raft(CLUSTER_MEMBERS_ONLY)),
    ApiSpec(ApiKey.END_QUORUM_EPOCH, 0, 1, controller=_raft(CLUSTER_MEMBERS_ONLY)),
    ApiSpec(
        ApiKey.DESCRIBE_QUORUM,
        0,
        2,
        FORWARD,
        _raft(DESCRIBE_CLUSTER),
        forwarding=Forwarding(ForwardingTarget.QUORUM, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        error_response=ERROR_TEXT,
    ),
    ApiSpec(ApiKey.ALTER_PARTITION, 2, 3, controller=_controller(CLUSTER_MEMBERS_ONLY)),
    ApiSpec(ApiKey.UPDATE_FEATURES, 0, 2, FORWARD, _controller(ALTER_CLUSTER), forwarding=FORWARDED),
    ApiSpec(ApiKey.ENVELOPE, 0, 0, controller=Endpoint("controller.envelope", (CLUSTER_MEMBERS_ONLY,))),
    ApiSpec(ApiKey.FETCH_SNAPSHOT, 0, 1, controller=_raft(CLUSTER_MEMBERS_ONLY)),
    ApiSpec(
        ApiKey.DESCRIBE_CLUSTER,
        0,
        2,
        Endpoint("admin.describe_cluster", (Permission(DESCRIBE, CLUSTER),)),
        Endpoint("controller.describe_cluster", (ALTER_CLUSTER, Permission(DESCRIBE, CLUSTER))),
    ),
    ApiSpec(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        0,
        Endpoint(
            "transactions.describe_producers",
            (ResourceRule(READ, TOPIC, denial_message=ErrorCode.TOPIC_AUTHORIZATION_FAILED.text),),
        ),
        error_response=_results(
            ErrorResults(
                "topics", "topics", ("name",), nested=PARTITION_RESULTS._replace(request_list="partition_indexes")
            )
        ),
        partitions=NamedPartitions("topics", "name", None, "partition_indexes", None),
    ),
    ApiSpec(ApiKey.BROKER_REGISTRATION, 0, 4, controller=_controller(CLUSTER_MEMBERS_ONLY)),
    ApiSpec(ApiKey.BROKER_HEARTBEAT, 0, 2, controller=Endpoint("controller.broker_heartbeat", (CLUSTER_MEMBERS_ONLY,))),
    ApiSpec(ApiKey.UNREGISTER_BROKER, 0, 0, FORWARD, _controller(ALTER_CLUSTER), forwarding=FORWARDED),
    ApiSpec(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        0,
        Endpoint(
            "transactions.describe_transactions", (Permission(DESCRIBE, TRANSACTIONAL_ID), Permission(DESCRIBE, TOPIC))
        ),
        error_response=_results(ErrorResults("transactional_ids", "transaction_states", ("transactional_id",))),
    ),
    ApiSpec(
        ApiKey.LIST_TRANSACTIONS,
        0,
        2,
        Endpoint("transactions.list_transactions", (Permission(DESCRIBE, TRANSACTIONAL_ID),)),
    ),
    ApiSpec(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, controller=_controller(CLUSTER_MEMBERS_ONLY), forwarding=FORWARDED),
    ApiSpec(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        1,
        Endpoint("groups.consumer_group_heartbeat", (READ_GROUP, Permission(DESCRIBE, TOPIC))),
        retains_buffer=True,
    ),
    ApiSpec(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        0,
        1,
        Endpoint("groups.consumer_group_describe", GROUP_AND_TOPICS),
        error_response=_results(DESCRIBED_GROUP_RESULTS),
    ),
    ApiSpec(
        ApiKey.CONTROLLER_REGISTRATION, 0, 0, controller=_controller(CLUSTER_MEMBERS_ONLY), error_response=ERROR_TEXT
    ),
    ApiSpec(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        0,
        0,
        Endpoint("admin.get_telemetry_subscriptions"),
        required_config=METRICS_LISTENER,
    ),
    ApiSpec(ApiKey.PUSH_TELEMETRY, 0, 0, Endpoint("admin.push_telemetry"), required_config=METRICS_LISTENER),
    ApiSpec(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, controller=_controller(CLUSTER_MEMBERS_ONLY)),
    ApiSpec(
        ApiKey.LIST_CONFIG_RESOURCES, 0, 1, Endpoint("admin.list_config_resources", (RequestRule(DESCRIBE_CONFIGS),))
    ),
    ApiSpec(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        0,
        Endpoint("admin.describe_topic_partitions", (Permission(DESCRIBE, TOPIC),)),
        error_response=_results(ErrorResults("topics", "topics", ("name",))),
    ),
    ApiSpec(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        1,
        1,
        Endpoint("share.share_group_heartbeat", (Permission(READ, GROUP), Permission(DESCRIBE, TOPIC))),
        retains_buffer=True,
    ),
    ApiSpec(
        ApiKey.SHARE_GROUP_DESCRIBE,
        1,
        1,
        Endpoint("share.share_group_describe", GROUP_AND_TOPICS),
        error_response=_results(DESCRIBED_GROUP_RESULTS),
    ),
    ApiSpec(
        ApiKey.SHARE_FETCH,
        1,
        2,
        Endpoint("share.share_fetch", READ_GROUP_AND_TOPICS),
        quota=QuotaKind.SHARE_FETCH,
    ),
    ApiSpec(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, Endpoint("share.share_acknowledge", READ_GROUP_AND_TOPICS)),
    ApiSpec(
        ApiKey.ADD_RAFT_VOTER,
        0,
        1,
        FORWARD,
        _raft(ALTER_CLUSTER),
        forwarding=FORWARDED_TO_QUORUM,
        error_response=ERROR_TEXT,
    ),
    ApiSpec(
        ApiKey.REMOVE_RAFT_VOTER,
        0,
        0,
        FORWARD,
        _raft(ALTER_CLUSTER),
        forwarding=FORWARDED_TO_QUORUM,
        error_response=ERROR_TEXT,
    ),
    ApiSpec(ApiKey.UPDATE_RAFT_VOTER, 0, 0, controller=_raft(CLUSTER_MEMBERS_ONLY)),
    ApiSpec(
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        0,
        0,
        Endpoint("share.initialize_share_group_state", (Permission(CLUSTER_ACTION, CLUSTER),)),
    ),
    ApiSpec(
        ApiKey.READ_SHARE_GROUP_STATE,
        0,
        0,
        Endpoint("share.read_share_group_state", (Permission(CLUSTER_ACTION, CLUSTER),)),
    ),
    ApiSpec(
        ApiKey.WRITE_SHARE_GROUP_STATE,
        0,
        1,
        Endpoint("share.write_share_group_state", (Permission(CLUSTER_ACTION, CLUSTER),)),
    ),
    ApiSpec(
        ApiKey.DELETE_SHARE_GROUP_STATE,
        0,
        0,
        Endpoint("share.delete_share_group_state", (Permission(CLUSTER_ACTION, CLUSTER),)),
    ),
    ApiSpec(
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        0,
        1,
        Endpoint("share.read_share_group_state_summary", (Permission(CLUSTER_ACTION, CLUSTER),)),
    ),
    ApiSpec(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        0,
        0,
        Endpoint(
            "groups.streams_group_heartbeat",
            (
                Permission(READ, GROUP),
                Permission(DESCRIBE, TOPIC),
                Permission(CREATE, CLUSTER, logs_denial=False),
                Permission(CREATE, TOPIC),
            ),
        ),
        retains_buffer=True,
    ),
    ApiSpec(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        0,
        0,
        Endpoint("groups.streams_group_describe", GROUP_AND_TOPICS),
        error_response=_results(DESCRIBED_GROUP_RESULTS),
    ),
    ApiSpec(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, Endpoint("share.describe_share_group_offsets", GROUP_AND_TOPICS)
    ),
    ApiSpec(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        0,
        Endpoint("share.alter_share_group_offsets", READ_GROUP_AND_TOPICS),
        error_response=ErrorResponse(message=ErrorMessage.REASON_OR_TEXT),
        retains_buffer=True,
    ),
    ApiSpec(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        0,
        0,
        Endpoint("share.delete_share_group_offsets", (Permission(DELETE, GROUP), Permission(READ, TOPIC))),
        error_response=ErrorResponse(message=ErrorMessage.REASON_OR_TEXT),
        retains_buffer=True,
    ),
)

BROKER_APIS: dict[ApiKey, ApiSpec] = {spec.key: spec for spec in API_SPECS if spec.broker is not None}
"""APIs of broker listeners by key; the response of ApiVersions is computed from them."""

CONTROLLER_APIS: dict[ApiKey, ApiSpec] = {spec.key: spec for spec in API_SPECS if spec.controller is not None}
"""APIs of controller listeners by key: requests to the KRaft quorum, to the active controller, and forwarded ones."""
