"""The controller listener's APIs: what nodes ask of the quorum and of the active controller, and what brokers pass on.

Only what works is here, and ApiVersions is computed from it. Versions are those of the schemas.

Source: ``ControllerApis.scala``, the schemas' ``listeners`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import ApiSpec
from ottla.wire.api_keys import ApiKey

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
