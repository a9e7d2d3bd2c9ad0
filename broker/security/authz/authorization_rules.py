"""What every request needs: the one table of (API, resource, operation, what a refusal looks like).

A request may need something as a whole (`RequestRule`): refused, nothing of it is done, and the error stands where the
API has its errors. Or for each thing it names (`ResourceRule`): what is refused gets a row with the error, and the rest
is done. Both are looked at before the handler, which knows nothing of it. What else a request needs, its handler asks
itself (`HandlerRule`): lists from which things are left out, errors on the way, fields that tell what is allowed.

Requests that brokers pass on are looked at where they are decided: at the controller.

Source: ``KafkaApis.scala``, ``ControllerApis.scala``, ``AuthHelper.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode


class RequestRule(NamedTuple):
    """Something without which nothing of the request is done."""

    operation: AclOperation
    resource: ResourceType = ResourceType.CLUSTER
    field: str | None = None
    """Where the request names it; None: it is the cluster."""


class ResourceRule(NamedTuple):
    """Something for each thing the request names."""

    operation: AclOperation
    resource: ResourceType
    request_list: str
    """The request's list of what it names."""
    response_list: str
    """The answer's list."""
    row_class: str
    """The class of a row there."""
    partition_list: str | None = None
    """A row's list of partitions, in the request."""
    partition_class: str = ""
    """The class of a partition's row; its list is called ``partitions``."""
    names_topics_by_id: bool = False
    cluster_operation: AclOperation | None = None
    """Who may do this to the whole cluster may do it to each of them."""
    has_message: bool = False
    """Whether a refused row says so in words."""
    rejects_duplicates: bool = False
    """Whether what is named twice is wrong in any case, which the handler tells."""


class HandlerRule(NamedTuple):
    """What the handler asks itself, and what becomes of what is refused."""

    operation: AclOperation
    resource: ResourceType
    denial: str
    """``row``: a row of its own with the error; ``left out``; ``whole``; ``bits``: of authorized operations."""


AuthorizationRule = RequestRule | ResourceRule | HandlerRule

DENIAL_ERRORS: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""How each kind is refused."""

_READ_GROUP = RequestRule(AclOperation.READ, ResourceType.GROUP, "group_id")
_CLUSTER_ACTION = (RequestRule(AclOperation.CLUSTER_ACTION),)
_ALTER_CLUSTER = (RequestRule(AclOperation.ALTER),)
_DESCRIBE_CLUSTER = (RequestRule(AclOperation.DESCRIBE),)
_CLUSTER_BITS = HandlerRule(AclOperation.DESCRIBE, ResourceType.CLUSTER, "bits")

BROKER_RULES: Mapping[ApiKey, tuple[AuthorizationRule, ...]] = {
    ApiKey.PRODUCE: (
        HandlerRule(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "whole"),
        HandlerRule(AclOperation.WRITE, ResourceType.TOPIC, "row"),
    ),
    ApiKey.FETCH: (
        HandlerRule(AclOperation.READ, ResourceType.TOPIC, "row"),
        HandlerRule(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "row"),
    ),
    ApiKey.LIST_OFFSETS: (
        ResourceRule(
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            "topics",
            "topics",
            "ListOffsetsTopicResponse",
            "partitions",
            "ListOffsetsPartitionResponse",
        ),
    ),
    ApiKey.METADATA: (
        HandlerRule(AclOperation.DESCRIBE, ResourceType.TOPIC, "row"),
        HandlerRule(AclOperation.CREATE, ResourceType.TOPIC, "row"),
        HandlerRule(AclOperation.CREATE, ResourceType.CLUSTER, "row"),
        _CLUSTER_BITS,
    ),
    ApiKey.OFFSET_COMMIT: (
        _READ_GROUP,
        ResourceRule(
            AclOperation.READ,
            ResourceType.TOPIC,
            "topics",
            "topics",
            "OffsetCommitResponseTopic",
            "partitions",
            "OffsetCommitResponsePartition",
            names_topics_by_id=True,
        ),
    ),
    ApiKey.OFFSET_FETCH: (
        HandlerRule(AclOperation.DESCRIBE, ResourceType.GROUP, "row"),
        HandlerRule(AclOperation.DESCRIBE, ResourceType.TOPIC, "row"),
    ),
    ApiKey.FIND_COORDINATOR: (
        HandlerRule(AclOperation.DESCRIBE, ResourceType.GROUP, "row"),
        HandlerRule(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "row"),
        HandlerRule(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "whole"),
    ),
    ApiKey.JOIN_GROUP: (_READ_GROUP,),
    ApiKey.HEARTBEAT: (_READ_GROUP,),
    ApiKey.LEAVE_GROUP: (_READ_GROUP,),
    ApiKey.SYNC_GROUP: (_READ_GROUP,),
    ApiKey.DESCRIBE_GROUPS: (HandlerRule(AclOperation.DESCRIBE, ResourceType.GROUP, "row"),),
    ApiKey.LIST_GROUPS: (
        HandlerRule(AclOperation.DESCRIBE, ResourceType.CLUSTER, "left out"),
        HandlerRule(AclOperation.DESCRIBE, ResourceType.GROUP, "left out"),
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (),
    ApiKey.PUSH_TELEMETRY: (),
    ApiKey.API_VERSIONS: (),
    ApiKey.DELETE_RECORDS: (
        ResourceRule(
            AclOperation.DELETE,
            ResourceType.TOPIC,
            "topics",
            "topics",
            "DeleteRecordsTopicResult",
            "partitions",
            "DeleteRecordsPartitionResult",
        ),
    ),
    ApiKey.INIT_PRODUCER_ID: (
        HandlerRule(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "whole"),
        HandlerRule(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "whole"),
        HandlerRule(AclOperation.WRITE, ResourceType.TOPIC, "whole"),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        ResourceRule(
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            "topics",
            "topics",
            "OffsetForLeaderTopicResult",
            "partitions",
            "EpochEndOffset",
            cluster_operation=AclOperation.CLUSTER_ACTION,
        ),
    ),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        HandlerRule(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "whole"),
        HandlerRule(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "row"),
        HandlerRule(AclOperation.WRITE, ResourceType.TOPIC, "row"),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        RequestRule(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
        _READ_GROUP,
    ),
    ApiKey.END_TXN: (RequestRule(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),),
    ApiKey.TXN_OFFSET_COMMIT: (
        HandlerRule(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "whole"),
        HandlerRule(AclOperation.READ, ResourceType.GROUP, "whole"),
        HandlerRule(AclOperation.READ, ResourceType.TOPIC, "row"),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        HandlerRule(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "row"),
        HandlerRule(AclOperation.DESCRIBE, ResourceType.TOPIC, "left out"),
    ),
    ApiKey.LIST_TRANSACTIONS: (HandlerRule(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "left out"),),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (_READ_GROUP, HandlerRule(AclOperation.DESCRIBE, ResourceType.TOPIC, "whole")),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        HandlerRule(AclOperation.DESCRIBE, ResourceType.GROUP, "row"),
        HandlerRule(AclOperation.DESCRIBE, ResourceType.TOPIC, "row"),
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: (
        HandlerRule(AclOperation.READ, ResourceType.GROUP, "whole"),
        HandlerRule(AclOperation.DESCRIBE, ResourceType.TOPIC, "whole"),
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: (
        HandlerRule(AclOperation.DESCRIBE, ResourceType.GROUP, "row"),
        HandlerRule(AclOperation.DESCRIBE, ResourceType.TOPIC, "row"),
    ),
    ApiKey.SHARE_FETCH: (
        HandlerRule(AclOperation.READ, ResourceType.GROUP, "whole"),
        HandlerRule(AclOperation.READ, ResourceType.TOPIC, "row"),
    ),
    ApiKey.SHARE_ACKNOWLEDGE: (
        HandlerRule(AclOperation.READ, ResourceType.GROUP, "whole"),
        HandlerRule(AclOperation.READ, ResourceType.TOPIC, "row"),
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        HandlerRule(AclOperation.DESCRIBE, ResourceType.GROUP, "row"),
        HandlerRule(AclOperation.DESCRIBE, ResourceType.TOPIC, "row"),
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
        HandlerRule(AclOperation.READ, ResourceType.GROUP, "whole"),
        HandlerRule(AclOperation.READ, ResourceType.TOPIC, "row"),
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
        HandlerRule(AclOperation.DELETE, ResourceType.GROUP, "whole"),
        HandlerRule(AclOperation.READ, ResourceType.TOPIC, "row"),
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (HandlerRule(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "row"),),
    ApiKey.READ_SHARE_GROUP_STATE: (HandlerRule(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "row"),),
    ApiKey.WRITE_SHARE_GROUP_STATE: (HandlerRule(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "row"),),
    ApiKey.DELETE_SHARE_GROUP_STATE: (HandlerRule(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "row"),),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (HandlerRule(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "row"),),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (
        HandlerRule(AclOperation.READ, ResourceType.GROUP, "whole"),
        HandlerRule(AclOperation.DESCRIBE, ResourceType.TOPIC, "whole"),
        HandlerRule(AclOperation.CREATE, ResourceType.CLUSTER, "row"),
        HandlerRule(AclOperation.CREATE, ResourceType.TOPIC, "row"),
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: (
        HandlerRule(AclOperation.DESCRIBE, ResourceType.GROUP, "row"),
        HandlerRule(AclOperation.DESCRIBE, ResourceType.TOPIC, "row"),
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE_CLUSTER,
    ApiKey.WRITE_TXN_MARKERS: (
        HandlerRule(AclOperation.ALTER, ResourceType.CLUSTER, "whole"),
        HandlerRule(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "whole"),
    ),
    ApiKey.DESCRIBE_ACLS: _DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_CONFIGS: (
        HandlerRule(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "row"),
        HandlerRule(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, "row"),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (HandlerRule(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, "row"),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (RequestRule(AclOperation.DESCRIBE_CONFIGS),),
    ApiKey.CREATE_DELEGATION_TOKEN: (HandlerRule(AclOperation.CREATE_TOKENS, ResourceType.USER, "whole"),),
    ApiKey.RENEW_DELEGATION_TOKEN: (),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (
        HandlerRule(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "left out"),
        HandlerRule(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "left out"),
    ),
    ApiKey.DELETE_GROUPS: (
        ResourceRule(AclOperation.DELETE, ResourceType.GROUP, "groups_names", "results", "DeletableGroupResult"),
    ),
    ApiKey.OFFSET_DELETE: (
        RequestRule(AclOperation.DELETE, ResourceType.GROUP, "group_id"),
        ResourceRule(
            AclOperation.READ,
            ResourceType.TOPIC,
            "topics",
            "topics",
            "OffsetDeleteResponseTopic",
            "partitions",
            "OffsetDeleteResponsePartition",
        ),
    ),
    ApiKey.DESCRIBE_CLUSTER: (_CLUSTER_BITS,),
    ApiKey.DESCRIBE_PRODUCERS: (
        ResourceRule(
            AclOperation.READ,
            ResourceType.TOPIC,
            "topics",
            "topics",
            "TopicResponse",
            "partition_indexes",
            "PartitionResponse",
        ),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (HandlerRule(AclOperation.DESCRIBE, ResourceType.TOPIC, "row"),),
    ApiKey.LIST_CONFIG_RESOURCES: (RequestRule(AclOperation.DESCRIBE_CONFIGS),),
}
"""At listeners for clients and brokers."""

CONTROLLER_RULES: Mapping[ApiKey, tuple[AuthorizationRule, ...]] = {
    ApiKey.FETCH: _CLUSTER_ACTION,
    ApiKey.API_VERSIONS: (),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.CREATE_TOPICS: (
        ResourceRule(
            AclOperation.CREATE,
            ResourceType.TOPIC,
            "topics",
            "topics",
            "CreatableTopicResult",
            cluster_operation=AclOperation.CREATE,
            has_message=True,
            rejects_duplicates=True,
        ),
        HandlerRule(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "left out"),
    ),
    ApiKey.DELETE_TOPICS: (
        HandlerRule(AclOperation.DELETE, ResourceType.TOPIC, "row"),
        HandlerRule(AclOperation.DESCRIBE, ResourceType.TOPIC, "row"),
    ),
    ApiKey.CREATE_ACLS: _ALTER_CLUSTER,
    ApiKey.DELETE_ACLS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_CONFIGS: (HandlerRule(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, "row"),),
    ApiKey.ALTER_CONFIGS: (
        HandlerRule(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, "row"),
        HandlerRule(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, "row"),
    ),
    ApiKey.CREATE_PARTITIONS: (
        ResourceRule(
            AclOperation.ALTER,
            ResourceType.TOPIC,
            "topics",
            "results",
            "CreatePartitionsTopicResult",
            rejects_duplicates=True,
        ),
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: (HandlerRule(AclOperation.CREATE_TOKENS, ResourceType.USER, "whole"),),
    ApiKey.RENEW_DELEGATION_TOKEN: (),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (),
    ApiKey.ELECT_LEADERS: _ALTER_CLUSTER,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        HandlerRule(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, "row"),
        HandlerRule(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, "row"),
        HandlerRule(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "row"),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER_CLUSTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE_CLUSTER,
    ApiKey.ALTER_CLIENT_QUOTAS: (RequestRule(AclOperation.ALTER_CONFIGS),),
    ApiKey.VOTE: _CLUSTER_ACTION,
    ApiKey.BEGIN_QUORUM_EPOCH: _CLUSTER_ACTION,
    ApiKey.END_QUORUM_EPOCH: _CLUSTER_ACTION,
    ApiKey.DESCRIBE_QUORUM: _DESCRIBE_CLUSTER,
    ApiKey.ALTER_PARTITION: _CLUSTER_ACTION,
    ApiKey.UPDATE_FEATURES: _ALTER_CLUSTER,
    ApiKey.ENVELOPE: _CLUSTER_ACTION,
    ApiKey.FETCH_SNAPSHOT: _CLUSTER_ACTION,
    ApiKey.DESCRIBE_CLUSTER: (*_ALTER_CLUSTER, _CLUSTER_BITS),
    ApiKey.BROKER_REGISTRATION: _CLUSTER_ACTION,
    ApiKey.BROKER_HEARTBEAT: _CLUSTER_ACTION,
    ApiKey.UNREGISTER_BROKER: _ALTER_CLUSTER,
    ApiKey.ALLOCATE_PRODUCER_IDS: _CLUSTER_ACTION,
    ApiKey.CONTROLLER_REGISTRATION: _CLUSTER_ACTION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _CLUSTER_ACTION,
    ApiKey.ADD_RAFT_VOTER: _ALTER_CLUSTER,
    ApiKey.REMOVE_RAFT_VOTER: _ALTER_CLUSTER,
    ApiKey.UPDATE_RAFT_VOTER: _CLUSTER_ACTION,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER_CLUSTER,
}
"""At the controller's listener, and for what brokers pass on."""
