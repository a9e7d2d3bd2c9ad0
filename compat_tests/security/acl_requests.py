"""Requests of the ACL tests: each filled from its schema, with the permissions it needs.

No request changes what another request returns.
"""

from __future__ import annotations

import typing
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from msgspec import Struct

from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.codec.schema import Message

O, R = AclOperation, ResourceType  # noqa: E741 - rows are short
CLUSTER = (R.CLUSTER, "kafka-cluster")
T, G, X = (R.TOPIC, "walk"), (R.GROUP, "walkers"), (R.TRANSACTIONAL_ID, "walking")
NO_TOPIC, NEW_TOPIC = (R.TOPIC, "walks none"), (R.TOPIC, "walking-new")
NO_GROUP, NEW_GROUP = (R.GROUP, "walkers none"), (R.GROUP, "walkers new")
RequiredRight = tuple[AclOperation, tuple[ResourceType, str]]
_NAMES = {
    "topic": "walk",
    "name": "walk",
    "resource_name": "walk",
    "group_id": "walkers",
    "groups": "walkers",
    "group_ids": "walkers none",
    "groups_names": "walkers none",
    "transactional_id": "walking",
    "transactional_ids": "walking",
    "member_id": "nobody",
    "subscribed_topic_names": "walk",
    "v3_and_below_transactional_id": "walking",
}
_NUMBERS = {"timeout_ms": 5000, "resource_type": 2, "timestamp": -1, "num_partitions": 1, "replication_factor": 1}


class AclRequest(NamedTuple):
    """Request and the permissions it needs; with several, each of them may be the missing one."""

    label: str
    key: ApiKey
    version: int
    body: Message
    required_rights: tuple[RequiredRight, ...]


@cache
def _hints(cls: type[Struct]) -> dict[str, Any]:
    module = import_module(cls.__module__)
    return {k: v for k, v in typing.get_type_hints(cls, vars(module)).items() if k in cls.__struct_fields__}


def fill_message(cls: type[Struct], over: dict[str, Any]) -> Any:
    """Return a message with one element in each array; ``over`` has values of fields, at any depth."""
    out = cls()
    for field, hint in _hints(cls).items():
        if field in over:
            setattr(out, field, over[field])
            continue
        inner = [a for a in typing.get_args(hint) if a is not type(None)] or [hint]
        one = inner[0]
        if typing.get_origin(inner[0]) is list:
            one = typing.get_args(inner[0])[0]
        is_list = typing.get_origin(hint) is list or typing.get_origin(inner[0]) is list
        if isinstance(one, type) and issubclass(one, Struct):
            if is_list:
                setattr(out, field, [fill_message(one, over)])
        elif one is str and field in _NAMES:
            setattr(out, field, [_NAMES[field]] if is_list else _NAMES[field])
        elif one is int and is_list:
            setattr(out, field, [0])
        elif field in _NUMBERS:
            setattr(out, field, _NUMBERS[field])
    return out


def _row(label: str, key: str, version: int, *needs: RequiredRight, **over: Any) -> AclRequest:
    api = ApiKey[key]
    return AclRequest(label, api, version, fill_message(request_class(api), over), needs)


SEE, ACTION, ALTER, LOOK = (O.DESCRIBE, T), (O.CLUSTER_ACTION, CLUSTER), (O.ALTER, CLUSTER), (O.DESCRIBE, CLUSTER)
READ, SEE_GROUP, WRITE_AS = (O.READ, G), (O.DESCRIBE, G), (O.WRITE, X)
BITS = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
DRY = {"validate_only": True}


def acl_requests() -> list[AclRequest]:
    """Return all requests."""
    return [
        *_of_topics(),
        *_of_groups(),
        *_of_producers(),
        *_of_rules_and_settings(),
        *_of_the_cluster(),
        *_of_transactions(),
        *_of_sharing(),
    ]


def _of_topics() -> list[AclRequest]:
    """Return requests for topics and their records."""
    return [
        _row("topic", "METADATA", 12, SEE, **BITS),
        _row("all topics", "METADATA", 12, SEE, topics=None, **BITS),
        _row("missing", "METADATA", 12, (O.DESCRIBE, NO_TOPIC), name="walks none", **BITS),
        _row("cluster bits", "METADATA", 10, LOOK, topics=[], include_cluster_authorized_operations=True),
        _row("cluster", "DESCRIBE_CLUSTER", 1, LOOK, include_cluster_authorized_operations=True),
        _row("offsets", "LIST_OFFSETS", 7, SEE, replica_id=-1),
        _row("fetch", "FETCH", 12, (O.READ, T), max_wait_ms=0, forgotten_topics_data=[]),
        _row("follow", "FETCH", 12, ACTION, max_wait_ms=0, replica_id=7, forgotten_topics_data=[]),
        _row("produce", "PRODUCE", 9, (O.WRITE, T), transactional_id=None, acks=-1, index=99, records=b""),
        _row(
            "produce to none",
            "PRODUCE",
            9,
            (O.WRITE, NO_TOPIC),
            transactional_id=None,
            acks=-1,
            name="walks none",
            records=b"",
        ),
        _row("epochs", "OFFSET_FOR_LEADER_EPOCH", 4, SEE, replica_id=-1),
        _row("epochs as a broker", "OFFSET_FOR_LEADER_EPOCH", 4, ACTION, replica_id=-1),
        _row("cut", "DELETE_RECORDS", 2, (O.DELETE, T)),
        _row("producers", "DESCRIBE_PRODUCERS", 0, (O.READ, T)),
        _row("topic partitions", "DESCRIBE_TOPIC_PARTITIONS", 0, SEE),
    ]


def _of_groups() -> list[AclRequest]:
    """Return requests for groups."""
    return [
        _row("find group", "FIND_COORDINATOR", 4, SEE_GROUP, coordinator_keys=["walkers"]),
        _row("find transaction", "FIND_COORDINATOR", 4, (O.DESCRIBE, X), key_type=1, coordinator_keys=["walking"]),
        _row("commit", "OFFSET_COMMIT", 8, READ, (O.READ, T), member_id="", committed_offset=5),
        _row("positions", "OFFSET_FETCH", 8, SEE_GROUP, SEE, **_positions(all_of_them=False)),
        _row("all positions", "OFFSET_FETCH", 8, SEE_GROUP, SEE, **_positions(all_of_them=True)),
        _row("forget position", "OFFSET_DELETE", 0, (O.DELETE, G), (O.READ, T), partition_index=3),
        _row("join", "JOIN_GROUP", 5, READ, session_timeout_ms=6000, protocol_type="consumer", protocols=[]),
        _row("sync", "SYNC_GROUP", 4, READ, generation_id=1, assignments=[]),
        _row("heartbeat", "HEARTBEAT", 4, READ, generation_id=1),
        _row("leave", "LEAVE_GROUP", 2, READ, members=[]),
        _row("describe group", "DESCRIBE_GROUPS", 5, SEE_GROUP, include_authorized_operations=True),
        _row("groups", "LIST_GROUPS", 4, SEE_GROUP),
        _row("groups by the cluster", "LIST_GROUPS", 4, LOOK),
        _row("forget group", "DELETE_GROUPS", 2, (O.DELETE, NO_GROUP)),
        _row(
            "consumer heartbeat",
            *("CONSUMER_GROUP_HEARTBEAT", 0, (O.READ, NEW_GROUP), SEE),
            group_id="walkers new",
            member_epoch=5,
            topic_partitions=None,
        ),
        _row("consumers", "CONSUMER_GROUP_DESCRIBE", 0, (O.DESCRIBE, NO_GROUP), include_authorized_operations=True),
    ]


def _of_producers() -> list[AclRequest]:
    """Return requests for producers and transactions."""
    return [
        _row("an id", "INIT_PRODUCER_ID", 4, (O.IDEMPOTENT_WRITE, CLUSTER), transactional_id=None),
        _row("an id to write with", "INIT_PRODUCER_ID", 4, (O.WRITE, T), transactional_id=None),
        _row("an epoch", "INIT_PRODUCER_ID", 4, WRITE_AS, transaction_timeout_ms=-5),
        _row("end", "END_TXN", 3, WRITE_AS, producer_id=1),
        _row("add positions", "ADD_OFFSETS_TO_TXN", 3, WRITE_AS, READ, producer_id=1),
        _row("transactions", "DESCRIBE_TRANSACTIONS", 0, (O.DESCRIBE, X)),
        _row("markers", "WRITE_TXN_MARKERS", 1, ACTION, markers=[]),
        _row("markers by an admin", "WRITE_TXN_MARKERS", 1, ALTER, markers=[]),
    ]


def _of_rules_and_settings() -> list[AclRequest]:
    """Return requests for ACLs and configs."""
    return [
        _row("rules", "DESCRIBE_ACLS", 2, LOOK, **_filter(7)),
        _row("no rule", "DELETE_ACLS", 2, ALTER, **_filter(7)),
        _row("directories", "DESCRIBE_LOG_DIRS", 3, LOOK, topics=[]),
        _row("other directories", "ALTER_REPLICA_LOG_DIRS", 2, ALTER, path="/nowhere"),
        _row("resources", "LIST_CONFIG_RESOURCES", 0, (O.DESCRIBE_CONFIGS, CLUSTER), resource_types=[]),
        _row("settings", "DESCRIBE_CONFIGS", 4, (O.DESCRIBE_CONFIGS, T), configuration_keys=["retention.ms"]),
        _row(
            "a broker's settings",
            *("DESCRIBE_CONFIGS", 4, (O.DESCRIBE_CONFIGS, CLUSTER)),
            resource_type=4,
            resource_name="1",
            configuration_keys=["node.id"],
        ),
        _row(
            "a group's settings",
            *("DESCRIBE_CONFIGS", 4, (O.DESCRIBE_CONFIGS, G)),
            resource_type=32,
            resource_name="walkers",
            configuration_keys=["none"],
        ),
        _row("change", "INCREMENTAL_ALTER_CONFIGS", 1, (O.ALTER_CONFIGS, T), configs=[], **DRY),
        _row(
            "change a broker",
            *("INCREMENTAL_ALTER_CONFIGS", 1, (O.ALTER_CONFIGS, CLUSTER)),
            **{"resource_type": 4, "resource_name": "1", "configs": [], **DRY},
        ),
        _row(
            "change a group",
            *("INCREMENTAL_ALTER_CONFIGS", 1, (O.ALTER_CONFIGS, G)),
            **{"resource_type": 32, "resource_name": "walkers", "configs": [], **DRY},
        ),
        _row("change as of old", "ALTER_CONFIGS", 1, (O.ALTER_CONFIGS, T), configs=[], **DRY),
    ]


def _of_the_cluster() -> list[AclRequest]:
    """Return requests for the cluster and for users."""
    return [
        _row("make", "CREATE_TOPICS", 7, (O.CREATE, NEW_TOPIC), **_new(), **DRY),
        _row(
            "make anywhere", "CREATE_TOPICS", 7, (O.CREATE, CLUSTER), (O.DESCRIBE_CONFIGS, NEW_TOPIC), **_new(), **DRY
        ),
        _row("widen", "CREATE_PARTITIONS", 3, (O.ALTER, T), count=3, assignments=None, **DRY),
        _row("delete none", "DELETE_TOPICS", 6, (O.DESCRIBE, NO_TOPIC), name="walks none", topic_names=[]),
        _row("delete anything", "DELETE_TOPICS", 6, (O.DELETE, CLUSTER), name="walks none", topic_names=[]),
        _row("elect", "ELECT_LEADERS", 2, ALTER),
        _row("move", "ALTER_PARTITION_REASSIGNMENTS", 0, ALTER, topics=[]),
        _row("moves", "LIST_PARTITION_REASSIGNMENTS", 0, LOOK, topics=[]),
        _row("quorum", "DESCRIBE_QUORUM", 0, LOOK, topics=[]),
        _row("features", "UPDATE_FEATURES", 1, ALTER, feature_updates=[]),
        _row("strike off", "UNREGISTER_BROKER", 0, ALTER, broker_id=77),
        _row("versions", "API_VERSIONS", 0, LOOK),
        _row("users", "DESCRIBE_USER_SCRAM_CREDENTIALS", 0, LOOK, name="nobody"),
        _row("no user", "ALTER_USER_SCRAM_CREDENTIALS", 0, ALTER, name="nobody", mechanism=1, upsertions=[]),
        _row("quotas", "DESCRIBE_CLIENT_QUOTAS", 1, (O.DESCRIBE_CONFIGS, CLUSTER), components=[]),
        _row("no quota", "ALTER_CLIENT_QUOTAS", 1, (O.ALTER_CONFIGS, CLUSTER), entity=[], ops=[]),
        _row("no new rule", "CREATE_ACLS", 2, ALTER, creations=[]),
    ]


def _of_transactions() -> list[AclRequest]:
    """Return requests within a transaction."""
    return [
        _row("write in a transaction", "PRODUCE", 9, WRITE_AS, (O.WRITE, T), acks=-1, index=99, records=b""),
        _row("add partitions", "ADD_PARTITIONS_TO_TXN", 3, WRITE_AS, (O.WRITE, T), **_v3(), **_batch([])),
        _row("add partitions as a broker", "ADD_PARTITIONS_TO_TXN", 4, ACTION, **_batch(None)),
        _row("commit in a transaction", "TXN_OFFSET_COMMIT", 3, WRITE_AS, READ, (O.READ, T), producer_id=1),
        _row("list transactions", "LIST_TRANSACTIONS", 0, (O.DESCRIBE, X), state_filters=[], producer_id_filters=[]),
        _row("a voter less", "REMOVE_RAFT_VOTER", 0, ALTER, cluster_id=None, voter_id=77),
    ]


def _of_sharing() -> list[AclRequest]:
    """Return requests for share groups."""
    return [
        _row(
            "share heartbeat", "SHARE_GROUP_HEARTBEAT", 1, (O.READ, NEW_GROUP), SEE, group_id="walkers new", **_gone()
        ),
        _row("share fetch", "SHARE_FETCH", 1, (O.READ, NEW_GROUP), group_id="walkers new", **_gone(), **_no_topics()),
        _row(
            "share acknowledge",
            "SHARE_ACKNOWLEDGE",
            1,
            (O.READ, NEW_GROUP),
            group_id="walkers new",
            **_gone(),
            topics=[],
        ),
        _row("share groups", "SHARE_GROUP_DESCRIBE", 1, (O.DESCRIBE, NO_GROUP), include_authorized_operations=True),
        _row("share positions", "DESCRIBE_SHARE_GROUP_OFFSETS", 0, (O.DESCRIBE, NO_GROUP), SEE, **_share(NO_GROUP[1])),
        _row(
            "set share positions", "ALTER_SHARE_GROUP_OFFSETS", 0, (O.READ, NO_GROUP), (O.READ, T), group_id=NO_GROUP[1]
        ),
        _row(
            "forget share positions",
            "DELETE_SHARE_GROUP_OFFSETS",
            0,
            (O.DELETE, NO_GROUP),
            (O.READ, T),
            group_id=NO_GROUP[1],
        ),
        _row("make share state", "INITIALIZE_SHARE_GROUP_STATE", 0, ACTION, topics=[]),
        _row("read share state", "READ_SHARE_GROUP_STATE", 0, ACTION, topics=[]),
        _row("write share state", "WRITE_SHARE_GROUP_STATE", 0, ACTION, topics=[]),
        _row("delete share state", "DELETE_SHARE_GROUP_STATE", 0, ACTION, topics=[]),
        _row("look at share state", "READ_SHARE_GROUP_STATE_SUMMARY", 0, ACTION, topics=[]),
    ]


def _positions(*, all_of_them: bool) -> dict[str, Any]:
    module = import_module("ottla.wire.messages.offset_fetch")
    topics = None if all_of_them else [module.OffsetFetchRequestTopics("walk", bytes(16), [0])]
    groups = [module.OffsetFetchRequestGroup("walkers", None, -1, topics)]
    return {"group_id": "", "topics": [], "groups": groups}


def _v3() -> dict[str, Any]:
    """Return AddPartitionsToTxn as clients send it."""
    module = import_module("ottla.wire.messages.add_partitions_to_txn")
    topics = [module.AddPartitionsToTxnTopic("walk", [0])]
    return {"v3_and_below_producer_id": 1, "v3_and_below_topics": topics}


def _batch(transactions: list[Any] | None) -> dict[str, Any]:
    """Return AddPartitionsToTxn as brokers send it: several transactions."""
    if transactions is not None:
        return {"transactions": transactions}
    module = import_module("ottla.wire.messages.add_partitions_to_txn")
    topics = [module.AddPartitionsToTxnTopic("walk", [0])]
    row = module.AddPartitionsToTxnTransaction("walking", 1, 0, verify_only=True, topics=topics)
    return {"transactions": [row], "v3_and_below_transactional_id": "", "v3_and_below_topics": []}


def _gone() -> dict[str, Any]:
    """Return an unknown member."""
    return {"member_id": "AAAAAAAAAAAAAAAAAAAAAQ", "member_epoch": 5}


def _no_topics() -> dict[str, Any]:
    return {"topics": [], "forgotten_topics_data": [], "share_session_epoch": 0, "max_wait_ms": 0}


def _share(group: str) -> dict[str, Any]:
    module = import_module("ottla.wire.messages.describe_share_group_offsets")
    topic = module.DescribeShareGroupOffsetsRequestTopic("walk", [0])
    return {"groups": [module.DescribeShareGroupOffsetsRequestGroup(group, [topic])]}


def _filter(kind: int) -> dict[str, Any]:
    return {
        "resource_type_filter": kind,
        "resource_name_filter": "none",
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def _new() -> dict[str, Any]:
    return {"name": "walking-new", "assignments": [], "configs": []}
