"""The requests of the walk under access rules: each filled from its schema, and what it needs.

Nothing of it changes anything that another request sees.
"""

from __future__ import annotations

import typing
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from msgspec import Struct

from ottla.controller.acl import Operation, Resource
from ottla.wire.apis import ApiKey, request_class
from ottla.wire.schema import Message

O, R = Operation, Resource  # noqa: E741 - rows are short
CLUSTER = (R.CLUSTER, "kafka-cluster")
T, G, X = (R.TOPIC, "walk"), (R.GROUP, "walkers"), (R.TRANSACTIONAL_ID, "walking")
NO_TOPIC, NEW_TOPIC = (R.TOPIC, "walks none"), (R.TOPIC, "walking-new")
NO_GROUP, NEW_GROUP = (R.GROUP, "walkers none"), (R.GROUP, "walkers new")
Need = tuple[Operation, tuple[Resource, str]]
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


class Asked(NamedTuple):
    """One request and what it needs; where there are several needs, each of them may be what is missing."""

    what: str
    key: ApiKey
    version: int
    body: Message
    needs: tuple[Need, ...]


@cache
def _hints(cls: type[Struct]) -> dict[str, Any]:
    module = import_module(cls.__module__)
    return {k: v for k, v in typing.get_type_hints(cls, vars(module)).items() if k in cls.__struct_fields__}


def fill(cls: type[Struct], over: dict[str, Any]) -> Any:
    """A message with one of everything it names; ``over``: fields that are otherwise, wherever they stand."""
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
                setattr(out, field, [fill(one, over)])
        elif one is str and field in _NAMES:
            setattr(out, field, [_NAMES[field]] if is_list else _NAMES[field])
        elif one is int and is_list:
            setattr(out, field, [0])
        elif field in _NUMBERS:
            setattr(out, field, _NUMBERS[field])
    return out


def _row(what: str, key: str, version: int, *needs: Need, **over: Any) -> Asked:
    api = ApiKey[key]
    return Asked(what, api, version, fill(request_class(api), over), needs)


def requests() -> list[Asked]:
    """Everything that is asked."""
    see, action, alter, look = (O.DESCRIBE, T), (O.CLUSTER_ACTION, CLUSTER), (O.ALTER, CLUSTER), (O.DESCRIBE, CLUSTER)
    read, see_group, write_as = (O.READ, G), (O.DESCRIBE, G), (O.WRITE, X)
    bits = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
    dry = {"validate_only": True}
    return [
        _row("topic", "METADATA", 12, see, **bits),
        _row("all topics", "METADATA", 12, see, topics=None, **bits),
        _row("missing", "METADATA", 12, (O.DESCRIBE, NO_TOPIC), name="walks none", **bits),
        _row("cluster bits", "METADATA", 10, look, topics=[], include_cluster_authorized_operations=True),
        _row("cluster", "DESCRIBE_CLUSTER", 1, look, include_cluster_authorized_operations=True),
        _row("offsets", "LIST_OFFSETS", 7, see, replica_id=-1),
        _row("fetch", "FETCH", 12, (O.READ, T), max_wait_ms=0, forgotten_topics_data=[]),
        _row("follow", "FETCH", 12, action, max_wait_ms=0, replica_id=7, forgotten_topics_data=[]),
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
        _row("epochs", "OFFSET_FOR_LEADER_EPOCH", 4, see, replica_id=-1),
        _row("epochs as a broker", "OFFSET_FOR_LEADER_EPOCH", 4, action, replica_id=-1),
        _row("cut", "DELETE_RECORDS", 2, (O.DELETE, T)),
        _row("producers", "DESCRIBE_PRODUCERS", 0, (O.READ, T)),
        _row("topic partitions", "DESCRIBE_TOPIC_PARTITIONS", 0, see),
        _row("find group", "FIND_COORDINATOR", 4, see_group, coordinator_keys=["walkers"]),
        _row("find transaction", "FIND_COORDINATOR", 4, (O.DESCRIBE, X), key_type=1, coordinator_keys=["walking"]),
        _row("commit", "OFFSET_COMMIT", 8, read, (O.READ, T), member_id="", committed_offset=5),
        _row("positions", "OFFSET_FETCH", 8, see_group, see, **_positions(all_of_them=False)),
        _row("all positions", "OFFSET_FETCH", 8, see_group, see, **_positions(all_of_them=True)),
        _row("forget position", "OFFSET_DELETE", 0, (O.DELETE, G), (O.READ, T), partition_index=3),
        _row("join", "JOIN_GROUP", 5, read, session_timeout_ms=6000, protocol_type="consumer", protocols=[]),
        _row("sync", "SYNC_GROUP", 4, read, generation_id=1, assignments=[]),
        _row("heartbeat", "HEARTBEAT", 4, read, generation_id=1),
        _row("leave", "LEAVE_GROUP", 2, read, members=[]),
        _row("describe group", "DESCRIBE_GROUPS", 5, see_group, include_authorized_operations=True),
        _row("groups", "LIST_GROUPS", 4, see_group),
        _row("groups by the cluster", "LIST_GROUPS", 4, look),
        _row("forget group", "DELETE_GROUPS", 2, (O.DELETE, NO_GROUP)),
        _row(
            "consumer heartbeat",
            *("CONSUMER_GROUP_HEARTBEAT", 0, (O.READ, NEW_GROUP), see),
            group_id="walkers new",
            member_epoch=5,
            topic_partitions=None,
        ),
        _row("consumers", "CONSUMER_GROUP_DESCRIBE", 0, (O.DESCRIBE, NO_GROUP), include_authorized_operations=True),
        _row("an id", "INIT_PRODUCER_ID", 4, (O.IDEMPOTENT_WRITE, CLUSTER), transactional_id=None),
        _row("an id to write with", "INIT_PRODUCER_ID", 4, (O.WRITE, T), transactional_id=None),
        _row("an epoch", "INIT_PRODUCER_ID", 4, write_as, transaction_timeout_ms=-5),
        _row("end", "END_TXN", 3, write_as, producer_id=1),
        _row("add positions", "ADD_OFFSETS_TO_TXN", 3, write_as, read, producer_id=1),
        _row("transactions", "DESCRIBE_TRANSACTIONS", 0, (O.DESCRIBE, X)),
        _row("markers", "WRITE_TXN_MARKERS", 1, action, markers=[]),
        _row("markers by an admin", "WRITE_TXN_MARKERS", 1, alter, markers=[]),
        _row("rules", "DESCRIBE_ACLS", 2, look, **_filter(7)),
        _row("no rule", "DELETE_ACLS", 2, alter, **_filter(7)),
        _row("directories", "DESCRIBE_LOG_DIRS", 3, look, topics=[]),
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
        _row("change", "INCREMENTAL_ALTER_CONFIGS", 1, (O.ALTER_CONFIGS, T), configs=[], **dry),
        _row(
            "change a broker",
            *("INCREMENTAL_ALTER_CONFIGS", 1, (O.ALTER_CONFIGS, CLUSTER)),
            **{"resource_type": 4, "resource_name": "1", "configs": [], **dry},
        ),
        _row(
            "change a group",
            *("INCREMENTAL_ALTER_CONFIGS", 1, (O.ALTER_CONFIGS, G)),
            **{"resource_type": 32, "resource_name": "walkers", "configs": [], **dry},
        ),
        _row("change as of old", "ALTER_CONFIGS", 1, (O.ALTER_CONFIGS, T), configs=[], **dry),
        _row("make", "CREATE_TOPICS", 7, (O.CREATE, NEW_TOPIC), **_new(), **dry),
        _row(
            "make anywhere", "CREATE_TOPICS", 7, (O.CREATE, CLUSTER), (O.DESCRIBE_CONFIGS, NEW_TOPIC), **_new(), **dry
        ),
        _row("widen", "CREATE_PARTITIONS", 3, (O.ALTER, T), count=3, assignments=None, **dry),
        _row("delete none", "DELETE_TOPICS", 6, (O.DESCRIBE, NO_TOPIC), name="walks none", topic_names=[]),
        _row("delete anything", "DELETE_TOPICS", 6, (O.DELETE, CLUSTER), name="walks none", topic_names=[]),
        _row("elect", "ELECT_LEADERS", 2, alter),
        _row("move", "ALTER_PARTITION_REASSIGNMENTS", 0, alter, topics=[]),
        _row("moves", "LIST_PARTITION_REASSIGNMENTS", 0, look, topics=[]),
        _row("quorum", "DESCRIBE_QUORUM", 0, look, topics=[]),
        _row("features", "UPDATE_FEATURES", 1, alter, feature_updates=[]),
        _row("strike off", "UNREGISTER_BROKER", 0, alter, broker_id=77),
        _row("versions", "API_VERSIONS", 0, look),
        _row("users", "DESCRIBE_USER_SCRAM_CREDENTIALS", 0, look, users=None),
        _row("no user", "ALTER_USER_SCRAM_CREDENTIALS", 0, alter, name="nobody", mechanism=1, upsertions=[]),
        _row("quotas", "DESCRIBE_CLIENT_QUOTAS", 1, (O.DESCRIBE_CONFIGS, CLUSTER), components=[]),
        _row("no quota", "ALTER_CLIENT_QUOTAS", 1, (O.ALTER_CONFIGS, CLUSTER), entity=[], ops=[]),
    ]


def _positions(*, all_of_them: bool) -> dict[str, Any]:
    module = import_module("ottla.wire.messages.offset_fetch")
    topics = None if all_of_them else [module.OffsetFetchRequestTopics("walk", bytes(16), [0])]
    groups = [module.OffsetFetchRequestGroup("walkers", None, -1, topics)]
    return {"group_id": "", "topics": [], "groups": groups}


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
