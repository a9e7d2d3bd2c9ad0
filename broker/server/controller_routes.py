"""The controller listener's APIs: what nodes ask of the quorum and of the active controller, and what brokers pass on.

Only what works is here, and ApiVersions is computed from it. Versions are those of the schemas.

Source: ``ControllerApis.scala``, the schemas' ``listeners`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.server.dispatch import ApiSpec
from ottla.wire.apis import ApiKey

CONTROLLER_APIS: dict[ApiKey, ApiSpec] = {
    ApiKey.FETCH: ApiSpec(4, 18, "quorum.raft", cancel_on_disconnect=True),
    ApiKey.SASL_HANDSHAKE: ApiSpec(0, 1, "sasl_handshake"),
    ApiKey.API_VERSIONS: ApiSpec(0, 4, "api_versions"),
    ApiKey.CREATE_TOPICS: ApiSpec(2, 7, "quorum.decided"),
    ApiKey.DELETE_TOPICS: ApiSpec(1, 6, "quorum.delete_topics"),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiSpec(0, 1, "quorum.decided"),
    ApiKey.CREATE_ACLS: ApiSpec(1, 3, "quorum.decided"),
    ApiKey.DELETE_ACLS: ApiSpec(1, 3, "quorum.decided"),
    ApiKey.DESCRIBE_CONFIGS: ApiSpec(1, 4, "describe_configs"),
    ApiKey.ALTER_CONFIGS: ApiSpec(0, 2, "quorum.decided"),
    ApiKey.SASL_AUTHENTICATE: ApiSpec(0, 2, "sasl_authenticate"),
    ApiKey.CREATE_PARTITIONS: ApiSpec(0, 3, "quorum.decided"),
    ApiKey.CREATE_DELEGATION_TOKEN: ApiSpec(1, 3, "quorum.delegation_tokens"),
    ApiKey.RENEW_DELEGATION_TOKEN: ApiSpec(1, 2, "quorum.delegation_tokens"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ApiSpec(1, 2, "quorum.delegation_tokens"),
    ApiKey.ELECT_LEADERS: ApiSpec(0, 2, "quorum.decided"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiSpec(0, 1, "quorum.incremental_alter_configs"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiSpec(0, 1, "quorum.decided"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiSpec(0, 0, "quorum.decided"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiSpec(0, 0, "quorum.decided"),
    ApiKey.VOTE: ApiSpec(0, 2, "quorum.raft"),
    ApiKey.BEGIN_QUORUM_EPOCH: ApiSpec(0, 1, "quorum.raft"),
    ApiKey.END_QUORUM_EPOCH: ApiSpec(0, 1, "quorum.raft"),
    ApiKey.DESCRIBE_QUORUM: ApiSpec(0, 2, "quorum.raft"),
    ApiKey.ALTER_PARTITION: ApiSpec(2, 3, "quorum.decided"),
    ApiKey.UPDATE_FEATURES: ApiSpec(0, 2, "quorum.decided"),
    ApiKey.ENVELOPE: ApiSpec(0, 0, "quorum.envelope"),
    ApiKey.FETCH_SNAPSHOT: ApiSpec(0, 1, "quorum.raft"),
    ApiKey.DESCRIBE_CLUSTER: ApiSpec(0, 2, "quorum.describe_cluster"),
    ApiKey.BROKER_REGISTRATION: ApiSpec(0, 4, "quorum.decided"),
    ApiKey.BROKER_HEARTBEAT: ApiSpec(0, 2, "quorum.heartbeat"),
    ApiKey.UNREGISTER_BROKER: ApiSpec(0, 0, "quorum.decided"),
    ApiKey.ALLOCATE_PRODUCER_IDS: ApiSpec(0, 0, "quorum.decided"),
    ApiKey.CONTROLLER_REGISTRATION: ApiSpec(0, 0, "quorum.decided"),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ApiSpec(0, 0, "quorum.decided"),
    ApiKey.ADD_RAFT_VOTER: ApiSpec(0, 1, "quorum.raft"),
    ApiKey.REMOVE_RAFT_VOTER: ApiSpec(0, 0, "quorum.raft"),
    ApiKey.UPDATE_RAFT_VOTER: ApiSpec(0, 0, "quorum.raft"),
}
