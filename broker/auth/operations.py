"""What every request needs: the one table of (API, resource, operation, what a refusal looks like).

A request may need something as a whole (`Whole`): refused, nothing of it is done, and the error stands where the API
has its errors. Or for each thing it names (`Rows`): what is refused gets a row with the error, and the rest is done.
Both are looked at before the handler, which knows nothing of it. What else a request needs, its handler asks itself
(`Asks`): lists from which things are left out, errors on the way, fields that tell what is allowed.

Requests that brokers pass on are looked at where they are decided: at the controller.

Source: ``KafkaApis.scala``, ``ControllerApis.scala``, ``AuthHelper.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.controller.acl import AclOperation, ResourceType
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode


class Whole(NamedTuple):
    """Something without which nothing of the request is done."""

    operation: AclOperation
    resource: ResourceType = ResourceType.CLUSTER
    field: str | None = None
    """Where the request names it; None: it is the cluster."""


class Rows(NamedTuple):
    """Something for each thing the request names."""

    operation: AclOperation
    resource: ResourceType
    asked: str
    """The request's list of what it names."""
    answered: str
    """The answer's list."""
    row: str
    """The class of a row there."""
    parts: str | None = None
    """A row's list of partitions, in the request."""
    part: str = ""
    """The class of a partition's row; its list is called ``partitions``."""
    names_topics_by_id: bool = False
    instead: AclOperation | None = None
    """Who may do this to the whole cluster may do it to each of them."""
    tells_why: bool = False
    """Whether a refused row says so in words."""
    twice_is_wrong: bool = False
    """Whether what is named twice is wrong in any case, which the handler tells."""


class Asks(NamedTuple):
    """What the handler asks itself, and what becomes of what is refused."""

    operation: AclOperation
    resource: ResourceType
    refusal: str
    """``row``: a row of its own with the error; ``left out``; ``whole``; ``bits``: of authorized operations."""


Need = Whole | Rows | Asks

DENIED: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""How each kind is refused."""

O, R = AclOperation, ResourceType  # noqa: E741 - the table is read by its columns
_GROUP = Whole(O.READ, R.GROUP, "group_id")
_ACTION = (Whole(O.CLUSTER_ACTION),)
_ALTER = (Whole(O.ALTER),)
_DESCRIBE = (Whole(O.DESCRIBE),)
_CLUSTER_BITS = Asks(O.DESCRIBE, R.CLUSTER, "bits")

BROKER: Mapping[ApiKey, tuple[Need, ...]] = {
    ApiKey.PRODUCE: (
        Asks(O.WRITE, R.TRANSACTIONAL_ID, "whole"),
        Asks(O.WRITE, R.TOPIC, "row"),
    ),
    ApiKey.FETCH: (Asks(O.READ, R.TOPIC, "row"), Asks(O.CLUSTER_ACTION, R.CLUSTER, "row")),
    ApiKey.LIST_OFFSETS: (
        Rows(
            O.DESCRIBE,
            R.TOPIC,
            "topics",
            "topics",
            "ListOffsetsTopicResponse",
            "partitions",
            "ListOffsetsPartitionResponse",
        ),
    ),
    ApiKey.METADATA: (
        Asks(O.DESCRIBE, R.TOPIC, "row"),
        Asks(O.CREATE, R.TOPIC, "row"),
        Asks(O.CREATE, R.CLUSTER, "row"),
        _CLUSTER_BITS,
    ),
    ApiKey.OFFSET_COMMIT: (
        _GROUP,
        Rows(
            O.READ,
            R.TOPIC,
            "topics",
            "topics",
            "OffsetCommitResponseTopic",
            "partitions",
            "OffsetCommitResponsePartition",
            names_topics_by_id=True,
        ),
    ),
    ApiKey.OFFSET_FETCH: (Asks(O.DESCRIBE, R.GROUP, "row"), Asks(O.DESCRIBE, R.TOPIC, "row")),
    ApiKey.FIND_COORDINATOR: (
        Asks(O.DESCRIBE, R.GROUP, "row"),
        Asks(O.DESCRIBE, R.TRANSACTIONAL_ID, "row"),
        Asks(O.CLUSTER_ACTION, R.CLUSTER, "whole"),
    ),
    ApiKey.JOIN_GROUP: (_GROUP,),
    ApiKey.HEARTBEAT: (_GROUP,),
    ApiKey.LEAVE_GROUP: (_GROUP,),
    ApiKey.SYNC_GROUP: (_GROUP,),
    ApiKey.DESCRIBE_GROUPS: (Asks(O.DESCRIBE, R.GROUP, "row"),),
    ApiKey.LIST_GROUPS: (Asks(O.DESCRIBE, R.CLUSTER, "left out"), Asks(O.DESCRIBE, R.GROUP, "left out")),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (),
    ApiKey.PUSH_TELEMETRY: (),
    ApiKey.API_VERSIONS: (),
    ApiKey.DELETE_RECORDS: (
        Rows(
            O.DELETE,
            R.TOPIC,
            "topics",
            "topics",
            "DeleteRecordsTopicResult",
            "partitions",
            "DeleteRecordsPartitionResult",
        ),
    ),
    ApiKey.INIT_PRODUCER_ID: (
        Asks(O.WRITE, R.TRANSACTIONAL_ID, "whole"),
        Asks(O.IDEMPOTENT_WRITE, R.CLUSTER, "whole"),
        Asks(O.WRITE, R.TOPIC, "whole"),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Rows(
            O.DESCRIBE,
            R.TOPIC,
            "topics",
            "topics",
            "OffsetForLeaderTopicResult",
            "partitions",
            "EpochEndOffset",
            instead=O.CLUSTER_ACTION,
        ),
    ),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        Asks(O.CLUSTER_ACTION, R.CLUSTER, "whole"),
        Asks(O.WRITE, R.TRANSACTIONAL_ID, "row"),
        Asks(O.WRITE, R.TOPIC, "row"),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (Whole(O.WRITE, R.TRANSACTIONAL_ID, "transactional_id"), _GROUP),
    ApiKey.END_TXN: (Whole(O.WRITE, R.TRANSACTIONAL_ID, "transactional_id"),),
    ApiKey.TXN_OFFSET_COMMIT: (
        Asks(O.WRITE, R.TRANSACTIONAL_ID, "whole"),
        Asks(O.READ, R.GROUP, "whole"),
        Asks(O.READ, R.TOPIC, "row"),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (Asks(O.DESCRIBE, R.TRANSACTIONAL_ID, "row"), Asks(O.DESCRIBE, R.TOPIC, "left out")),
    ApiKey.LIST_TRANSACTIONS: (Asks(O.DESCRIBE, R.TRANSACTIONAL_ID, "left out"),),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (_GROUP, Asks(O.DESCRIBE, R.TOPIC, "whole")),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Asks(O.DESCRIBE, R.GROUP, "row"), Asks(O.DESCRIBE, R.TOPIC, "row")),
    ApiKey.SHARE_GROUP_HEARTBEAT: (Asks(O.READ, R.GROUP, "whole"), Asks(O.DESCRIBE, R.TOPIC, "whole")),
    ApiKey.SHARE_GROUP_DESCRIBE: (Asks(O.DESCRIBE, R.GROUP, "row"), Asks(O.DESCRIBE, R.TOPIC, "row")),
    ApiKey.SHARE_FETCH: (Asks(O.READ, R.GROUP, "whole"), Asks(O.READ, R.TOPIC, "row")),
    ApiKey.SHARE_ACKNOWLEDGE: (Asks(O.READ, R.GROUP, "whole"), Asks(O.READ, R.TOPIC, "row")),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (Asks(O.DESCRIBE, R.GROUP, "row"), Asks(O.DESCRIBE, R.TOPIC, "row")),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (Asks(O.READ, R.GROUP, "whole"), Asks(O.READ, R.TOPIC, "row")),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (Asks(O.DELETE, R.GROUP, "whole"), Asks(O.READ, R.TOPIC, "row")),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (Asks(O.CLUSTER_ACTION, R.CLUSTER, "row"),),
    ApiKey.READ_SHARE_GROUP_STATE: (Asks(O.CLUSTER_ACTION, R.CLUSTER, "row"),),
    ApiKey.WRITE_SHARE_GROUP_STATE: (Asks(O.CLUSTER_ACTION, R.CLUSTER, "row"),),
    ApiKey.DELETE_SHARE_GROUP_STATE: (Asks(O.CLUSTER_ACTION, R.CLUSTER, "row"),),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (Asks(O.CLUSTER_ACTION, R.CLUSTER, "row"),),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (
        Asks(O.READ, R.GROUP, "whole"),
        Asks(O.DESCRIBE, R.TOPIC, "whole"),
        Asks(O.CREATE, R.CLUSTER, "row"),
        Asks(O.CREATE, R.TOPIC, "row"),
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: (Asks(O.DESCRIBE, R.GROUP, "row"), Asks(O.DESCRIBE, R.TOPIC, "row")),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE,
    ApiKey.WRITE_TXN_MARKERS: (
        Asks(O.ALTER, R.CLUSTER, "whole"),
        Asks(O.CLUSTER_ACTION, R.CLUSTER, "whole"),
    ),
    ApiKey.DESCRIBE_ACLS: _DESCRIBE,
    ApiKey.DESCRIBE_CONFIGS: (Asks(O.DESCRIBE_CONFIGS, R.TOPIC, "row"), Asks(O.DESCRIBE_CONFIGS, R.CLUSTER, "row")),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (Asks(O.ALTER_CONFIGS, R.CLUSTER, "row"),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER,
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (Whole(O.DESCRIBE_CONFIGS),),
    ApiKey.CREATE_DELEGATION_TOKEN: (Asks(O.CREATE_TOKENS, R.USER, "whole"),),
    ApiKey.RENEW_DELEGATION_TOKEN: (),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (
        Asks(O.DESCRIBE, R.DELEGATION_TOKEN, "left out"),
        Asks(O.DESCRIBE_TOKENS, R.USER, "left out"),
    ),
    ApiKey.DELETE_GROUPS: (Rows(O.DELETE, R.GROUP, "groups_names", "results", "DeletableGroupResult"),),
    ApiKey.OFFSET_DELETE: (
        Whole(O.DELETE, R.GROUP, "group_id"),
        Rows(
            O.READ,
            R.TOPIC,
            "topics",
            "topics",
            "OffsetDeleteResponseTopic",
            "partitions",
            "OffsetDeleteResponsePartition",
        ),
    ),
    ApiKey.DESCRIBE_CLUSTER: (_CLUSTER_BITS,),
    ApiKey.DESCRIBE_PRODUCERS: (
        Rows(O.READ, R.TOPIC, "topics", "topics", "TopicResponse", "partition_indexes", "PartitionResponse"),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (Asks(O.DESCRIBE, R.TOPIC, "row"),),
    ApiKey.LIST_CONFIG_RESOURCES: (Whole(O.DESCRIBE_CONFIGS),),
}
"""At listeners for clients and brokers."""

CONTROLLER: Mapping[ApiKey, tuple[Need, ...]] = {
    ApiKey.FETCH: _ACTION,
    ApiKey.API_VERSIONS: (),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.CREATE_TOPICS: (
        Rows(
            O.CREATE,
            R.TOPIC,
            "topics",
            "topics",
            "CreatableTopicResult",
            instead=O.CREATE,
            tells_why=True,
            twice_is_wrong=True,
        ),
        Asks(O.DESCRIBE_CONFIGS, R.TOPIC, "left out"),
    ),
    ApiKey.DELETE_TOPICS: (Asks(O.DELETE, R.TOPIC, "row"), Asks(O.DESCRIBE, R.TOPIC, "row")),
    ApiKey.CREATE_ACLS: _ALTER,
    ApiKey.DELETE_ACLS: _ALTER,
    ApiKey.DESCRIBE_CONFIGS: (Asks(O.DESCRIBE_CONFIGS, R.CLUSTER, "row"),),
    ApiKey.ALTER_CONFIGS: (Asks(O.ALTER_CONFIGS, R.TOPIC, "row"), Asks(O.ALTER_CONFIGS, R.CLUSTER, "row")),
    ApiKey.CREATE_PARTITIONS: (
        Rows(O.ALTER, R.TOPIC, "topics", "results", "CreatePartitionsTopicResult", twice_is_wrong=True),
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: (Asks(O.CREATE_TOKENS, R.USER, "whole"),),
    ApiKey.RENEW_DELEGATION_TOKEN: (),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (),
    ApiKey.ELECT_LEADERS: _ALTER,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        Asks(O.ALTER_CONFIGS, R.TOPIC, "row"),
        Asks(O.ALTER_CONFIGS, R.CLUSTER, "row"),
        Asks(O.CLUSTER_ACTION, R.CLUSTER, "row"),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE,
    ApiKey.ALTER_CLIENT_QUOTAS: (Whole(O.ALTER_CONFIGS),),
    ApiKey.VOTE: _ACTION,
    ApiKey.BEGIN_QUORUM_EPOCH: _ACTION,
    ApiKey.END_QUORUM_EPOCH: _ACTION,
    ApiKey.DESCRIBE_QUORUM: _DESCRIBE,
    ApiKey.ALTER_PARTITION: _ACTION,
    ApiKey.UPDATE_FEATURES: _ALTER,
    ApiKey.ENVELOPE: _ACTION,
    ApiKey.FETCH_SNAPSHOT: _ACTION,
    ApiKey.DESCRIBE_CLUSTER: (*_ALTER, _CLUSTER_BITS),
    ApiKey.BROKER_REGISTRATION: _ACTION,
    ApiKey.BROKER_HEARTBEAT: _ACTION,
    ApiKey.UNREGISTER_BROKER: _ALTER,
    ApiKey.ALLOCATE_PRODUCER_IDS: _ACTION,
    ApiKey.CONTROLLER_REGISTRATION: _ACTION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _ACTION,
    ApiKey.ADD_RAFT_VOTER: _ALTER,
    ApiKey.REMOVE_RAFT_VOTER: _ALTER,
    ApiKey.UPDATE_RAFT_VOTER: _ACTION,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER,
}
"""At the controller's listener, and for what brokers pass on."""
