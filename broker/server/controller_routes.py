"""The controller listener's APIs: what nodes ask of the quorum and of the active controller, and what brokers pass on.

Only what works is here, and ApiVersions is computed from it. Versions are those of the schemas.

Source: ``ControllerApis.scala``, the schemas' ``listeners`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Route
from ottla.wire.apis import ApiKey

CONTROLLER_ROUTES: dict[ApiKey, Route] = {
    ApiKey.FETCH: Route(4, 18, "quorum.raft", ends_with_peer=True),
    ApiKey.SASL_HANDSHAKE: Route(0, 1, "sasl_handshake"),
    ApiKey.API_VERSIONS: Route(0, 4, "api_versions"),
    ApiKey.CREATE_TOPICS: Route(2, 7, "quorum.decided"),
    ApiKey.DELETE_TOPICS: Route(1, 6, "quorum.delete_topics"),
    ApiKey.ALTER_CLIENT_QUOTAS: Route(0, 1, "quorum.decided"),
    ApiKey.CREATE_ACLS: Route(1, 3, "quorum.decided"),
    ApiKey.DELETE_ACLS: Route(1, 3, "quorum.decided"),
    ApiKey.DESCRIBE_CONFIGS: Route(1, 4, "describe_configs"),
    ApiKey.ALTER_CONFIGS: Route(0, 2, "quorum.decided"),
    ApiKey.SASL_AUTHENTICATE: Route(0, 2, "sasl_authenticate"),
    ApiKey.CREATE_PARTITIONS: Route(0, 3, "quorum.decided"),
    ApiKey.CREATE_DELEGATION_TOKEN: Route(1, 3, "quorum.delegation_tokens"),
    ApiKey.RENEW_DELEGATION_TOKEN: Route(1, 2, "quorum.delegation_tokens"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Route(1, 2, "quorum.delegation_tokens"),
    ApiKey.ELECT_LEADERS: Route(0, 2, "quorum.decided"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Route(0, 1, "quorum.incremental_alter_configs"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Route(0, 1, "quorum.decided"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Route(0, 0, "quorum.decided"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Route(0, 0, "quorum.decided"),
    ApiKey.VOTE: Route(0, 2, "quorum.raft"),
    ApiKey.BEGIN_QUORUM_EPOCH: Route(0, 1, "quorum.raft"),
    ApiKey.END_QUORUM_EPOCH: Route(0, 1, "quorum.raft"),
    ApiKey.DESCRIBE_QUORUM: Route(0, 2, "quorum.raft"),
    ApiKey.ALTER_PARTITION: Route(2, 3, "quorum.decided"),
    ApiKey.UPDATE_FEATURES: Route(0, 2, "quorum.decided"),
    ApiKey.ENVELOPE: Route(0, 0, "quorum.envelope"),
    ApiKey.FETCH_SNAPSHOT: Route(0, 1, "quorum.raft"),
    ApiKey.DESCRIBE_CLUSTER: Route(0, 2, "quorum.describe_cluster"),
    ApiKey.BROKER_REGISTRATION: Route(0, 4, "quorum.decided"),
    ApiKey.BROKER_HEARTBEAT: Route(0, 2, "quorum.heartbeat"),
    ApiKey.UNREGISTER_BROKER: Route(0, 0, "quorum.decided"),
    ApiKey.ALLOCATE_PRODUCER_IDS: Route(0, 0, "quorum.decided"),
    ApiKey.CONTROLLER_REGISTRATION: Route(0, 0, "quorum.decided"),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Route(0, 0, "quorum.decided"),
    ApiKey.ADD_RAFT_VOTER: Route(0, 1, "quorum.raft"),
    ApiKey.REMOVE_RAFT_VOTER: Route(0, 0, "quorum.raft"),
    ApiKey.UPDATE_RAFT_VOTER: Route(0, 0, "quorum.raft"),
}
