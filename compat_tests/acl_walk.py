"""Requests, and what somebody may who sends them: each of them asked under many sets of access rules.

Who asks is User:ANONYMOUS at 127.0.0.2; the one at 127.0.0.1 may everything and sets the rules. What is told of an
answer is what rules decide: names, error codes, bits of authorized operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

from compat_tests.raw import RawClient, until
from ottla.controller.acl import Operation, Resource
from ottla.tools.dump import plain
from ottla.wire.apis import ApiKey
from ottla.wire.messages import create_acls as ca
from ottla.wire.messages import create_topics as ct
from ottla.wire.messages import delete_acls as da
from ottla.wire.messages import describe_acls as ds
from ottla.wire.schema import Message

O, R = Operation, Resource  # noqa: E741 - rows are short
OWNER, ASKER = "127.0.0.1", "127.0.0.2"
HOSTS = (OWNER, "0:0:0:0:0:0:0:1")
"""Of who may everything: Kafka's own processes speak to each other by either."""
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
CLUSTER = (R.CLUSTER, "kafka-cluster")
T, G, X = (R.TOPIC, "walk"), (R.GROUP, "walkers"), (R.TRANSACTIONAL_ID, "walking")
Need = tuple[Operation, tuple[Resource, str]]
Rule = tuple[int, Operation, tuple[Resource, str], int, str, str]
"""Permission, operation, resource with its name, pattern, principal, host."""
EVERYTHING = (R.CLUSTER, R.TOPIC, R.GROUP, R.TRANSACTIONAL_ID)
IMPLIED = {
    O.DESCRIBE: (O.READ, O.WRITE, O.DELETE, O.ALTER, O.CREATE),
    O.DESCRIBE_CONFIGS: (O.ALTER_CONFIGS, O.ALTER),
}


class Asked(NamedTuple):
    """One request and what it needs; where there are several needs, each of them may be what is missing."""

    what: str
    key: ApiKey
    version: int
    body: Message
    needs: tuple[Need, ...]


def of(key: ApiKey, name: str, *values: Any) -> Any:
    """A struct of an API's messages."""
    return getattr(import_module(f"ottla.wire.messages.{key.name.lower()}"), name)(*values)


def _topics(key: ApiKey, prefix: str, part: str, *values: Any) -> list[Any]:
    return [of(key, f"{prefix}Topic", "walk", [of(key, part, *values)])]


def requests() -> list[Asked]:
    """Everything that is asked: nothing of it changes anything that another request sees."""
    k = ApiKey
    see, action, alter = (O.DESCRIBE, T), (O.CLUSTER_ACTION, CLUSTER), (O.ALTER, CLUSTER)
    read_group = (O.READ, G)
    out = [
        Asked("topic", k.METADATA, 12, of(k.METADATA, "MetadataRequest", [of(k.METADATA, "MetadataRequestTopic", b"\0" * 16, "walk")], False, False, True), (see,)),
        Asked("all topics", k.METADATA, 12, of(k.METADATA, "MetadataRequest", None, False, False, True), (see,)),
        Asked("missing", k.METADATA, 12, of(k.METADATA, "MetadataRequest", [of(k.METADATA, "MetadataRequestTopic", b"\0" * 16, "walks none")], False, False, True), ((O.DESCRIBE, (R.TOPIC, "walks none")),)),
        Asked("cluster bits", k.METADATA, 10, of(k.METADATA, "MetadataRequest", [], False, True, False), ((O.DESCRIBE, CLUSTER),)),
        Asked("cluster", k.DESCRIBE_CLUSTER, 1, of(k.DESCRIBE_CLUSTER, "DescribeClusterRequest", True), ((O.DESCRIBE, CLUSTER),)),
        Asked("offsets", k.LIST_OFFSETS, 7, of(k.LIST_OFFSETS, "ListOffsetsRequest", -1, 0, _topics(k.LIST_OFFSETS, "ListOffsets", "ListOffsetsPartition", 0, -1, -1)), (see,)),
        Asked("fetch", k.FETCH, 12, _fetch(-1), ((O.READ, T),)),
        Asked("follow", k.FETCH, 12, _fetch(7), (action,)),
        Asked("produce", k.PRODUCE, 9, _produce("walk"), ((O.WRITE, T),)),
        Asked("produce to none", k.PRODUCE, 9, _produce("walks none"), ((O.WRITE, (R.TOPIC, "walks none")),)),
        Asked("epochs", k.OFFSET_FOR_LEADER_EPOCH, 4, of(k.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpochRequest", -1, [of(k.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderTopic", "walk", [of(k.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderPartition", 0, -1, 0)])]), (see,)),
        Asked("epochs as a broker", k.OFFSET_FOR_LEADER_EPOCH, 4, of(k.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpochRequest", -1, [of(k.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderTopic", "walk", [of(k.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderPartition", 0, -1, 0)])]), (action,)),
        Asked("cut", k.DELETE_RECORDS, 2, of(k.DELETE_RECORDS, "DeleteRecordsRequest", _topics(k.DELETE_RECORDS, "DeleteRecords", "DeleteRecordsPartition", 0, 0), 5000), ((O.DELETE, T),)),
        Asked("producers", k.DESCRIBE_PRODUCERS, 0, of(k.DESCRIBE_PRODUCERS, "DescribeProducersRequest", [of(k.DESCRIBE_PRODUCERS, "TopicRequest", "walk", [0])]), ((O.READ, T),)),
        Asked("topic partitions", k.DESCRIBE_TOPIC_PARTITIONS, 0, of(k.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitionsRequest", [of(k.DESCRIBE_TOPIC_PARTITIONS, "TopicRequest", "walk")]), (see,)),
        Asked("find group", k.FIND_COORDINATOR, 4, of(k.FIND_COORDINATOR, "FindCoordinatorRequest", "", 0, ["walkers"]), ((O.DESCRIBE, G),)),
        Asked("find transaction", k.FIND_COORDINATOR, 4, of(k.FIND_COORDINATOR, "FindCoordinatorRequest", "", 1, ["walking"]), ((O.DESCRIBE, X),)),
        Asked("commit", k.OFFSET_COMMIT, 8, of(k.OFFSET_COMMIT, "OffsetCommitRequest", "walkers", -1, "", None, -1, [of(k.OFFSET_COMMIT, "OffsetCommitRequestTopic", "walk", b"\0" * 16, [of(k.OFFSET_COMMIT, "OffsetCommitRequestPartition", 0, 5)])]), (read_group, (O.READ, T))),
        Asked("positions", k.OFFSET_FETCH, 8, of(k.OFFSET_FETCH, "OffsetFetchRequest", "", [], [of(k.OFFSET_FETCH, "OffsetFetchRequestGroup", "walkers", None, -1, [of(k.OFFSET_FETCH, "OffsetFetchRequestTopics", "walk", b"\0" * 16, [0])])]), ((O.DESCRIBE, G), see)),
        Asked("all positions", k.OFFSET_FETCH, 8, of(k.OFFSET_FETCH, "OffsetFetchRequest", "", [], [of(k.OFFSET_FETCH, "OffsetFetchRequestGroup", "walkers", None, -1, None)]), ((O.DESCRIBE, G), see)),
        Asked("forget position", k.OFFSET_DELETE, 0, of(k.OFFSET_DELETE, "OffsetDeleteRequest", "walkers", [of(k.OFFSET_DELETE, "OffsetDeleteRequestTopic", "walk", [of(k.OFFSET_DELETE, "OffsetDeleteRequestPartition", 3)])]), ((O.DELETE, G), (O.READ, T))),
        Asked("join", k.JOIN_GROUP, 5, of(k.JOIN_GROUP, "JoinGroupRequest", "walkers", 6000, 6000, "nobody", None, "consumer", []), (read_group,)),
        Asked("sync", k.SYNC_GROUP, 5, of(k.SYNC_GROUP, "SyncGroupRequest", "walkers", 1, "nobody"), (read_group,)),
        Asked("heartbeat", k.HEARTBEAT, 4, of(k.HEARTBEAT, "HeartbeatRequest", "walkers", 1, "nobody"), (read_group,)),
        Asked("leave", k.LEAVE_GROUP, 3, of(k.LEAVE_GROUP, "LeaveGroupRequest", "walkers", "", [of(k.LEAVE_GROUP, "MemberIdentity", "nobody")]), (read_group,)),
        Asked("describe group", k.DESCRIBE_GROUPS, 5, of(k.DESCRIBE_GROUPS, "DescribeGroupsRequest", ["walkers"], True), ((O.DESCRIBE, G),)),
        Asked("groups", k.LIST_GROUPS, 4, of(k.LIST_GROUPS, "ListGroupsRequest"), ((O.DESCRIBE, G),)),
        Asked("groups by the cluster", k.LIST_GROUPS, 4, of(k.LIST_GROUPS, "ListGroupsRequest"), ((O.DESCRIBE, CLUSTER),)),
        Asked("forget group", k.DELETE_GROUPS, 2, of(k.DELETE_GROUPS, "DeleteGroupsRequest", ["walkers none"]), ((O.DELETE, (R.GROUP, "walkers none")),)),
        Asked("consumer heartbeat", k.CONSUMER_GROUP_HEARTBEAT, 0, of(k.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeatRequest", "walkers new", "nobody", 5, None, None, -1, ["walk"]), ((O.READ, (R.GROUP, "walkers new")), see)),
        Asked("consumer groups", k.CONSUMER_GROUP_DESCRIBE, 0, of(k.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribeRequest", ["walkers none"], True), ((O.DESCRIBE, (R.GROUP, "walkers none")),)),
        Asked("an id", k.INIT_PRODUCER_ID, 4, of(k.INIT_PRODUCER_ID, "InitProducerIdRequest", None, -1), ((O.IDEMPOTENT_WRITE, CLUSTER),)),
        Asked("an id to write with", k.INIT_PRODUCER_ID, 4, of(k.INIT_PRODUCER_ID, "InitProducerIdRequest", None, -1), ((O.WRITE, T),)),
        Asked("an epoch", k.INIT_PRODUCER_ID, 4, of(k.INIT_PRODUCER_ID, "InitProducerIdRequest", "walking", -5), ((O.WRITE, X),)),
        Asked("end", k.END_TXN, 3, of(k.END_TXN, "EndTxnRequest", "walking", 1, 0, True), ((O.WRITE, X),)),
        Asked("add", k.ADD_PARTITIONS_TO_TXN, 3, of(k.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxnRequest", [], "walking", 1, 0, [of(k.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxnTopic", "walk", [0])]), ((O.WRITE, X), (O.WRITE, T))),
        Asked("add positions", k.ADD_OFFSETS_TO_TXN, 3, of(k.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxnRequest", "walking", 1, 0, "walkers"), ((O.WRITE, X), read_group)),
        Asked("transactions", k.DESCRIBE_TRANSACTIONS, 0, of(k.DESCRIBE_TRANSACTIONS, "DescribeTransactionsRequest", ["walking"]), ((O.DESCRIBE, X),)),
        Asked("markers", k.WRITE_TXN_MARKERS, 1, of(k.WRITE_TXN_MARKERS, "WriteTxnMarkersRequest", []), (action,)),
        Asked("markers by an admin", k.WRITE_TXN_MARKERS, 1, of(k.WRITE_TXN_MARKERS, "WriteTxnMarkersRequest", []), (alter,)),
        Asked("rules", k.DESCRIBE_ACLS, 2, ds.DescribeAclsRequest(7, None, 1, None, None, 1, 1), ((O.DESCRIBE, CLUSTER),)),
        Asked("a rule", k.CREATE_ACLS, 2, ca.CreateAclsRequest([ca.AclCreation(2, "", 3, "User:x", "*", 3, 3)]), (alter,)),
        Asked("no rule", k.DELETE_ACLS, 2, da.DeleteAclsRequest([da.DeleteAclsFilter(7, "none", 3, None, None, 1, 1)]), (alter,)),
        Asked("directories", k.DESCRIBE_LOG_DIRS, 3, of(k.DESCRIBE_LOG_DIRS, "DescribeLogDirsRequest", []), ((O.DESCRIBE, CLUSTER),)),
        Asked("resources", k.LIST_CONFIG_RESOURCES, 0, of(k.LIST_CONFIG_RESOURCES, "ListConfigResourcesRequest"), ((O.DESCRIBE_CONFIGS, CLUSTER),)),
        Asked("settings", k.DESCRIBE_CONFIGS, 4, _settings(k.DESCRIBE_CONFIGS, 2, "walk", ["retention.ms"]), ((O.DESCRIBE_CONFIGS, T),)),
        Asked("a broker's settings", k.DESCRIBE_CONFIGS, 4, _settings(k.DESCRIBE_CONFIGS, 4, "1", ["node.id"]), ((O.DESCRIBE_CONFIGS, CLUSTER),)),
        Asked("a group's settings", k.DESCRIBE_CONFIGS, 4, _settings(k.DESCRIBE_CONFIGS, 32, "walkers", ["none"]), ((O.DESCRIBE_CONFIGS, G),)),
        Asked("change", k.INCREMENTAL_ALTER_CONFIGS, 1, of(k.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigsRequest", [of(k.INCREMENTAL_ALTER_CONFIGS, "AlterConfigsResource", 2, "walk")], True), ((O.ALTER_CONFIGS, T),)),
        Asked("change a broker", k.INCREMENTAL_ALTER_CONFIGS, 1, of(k.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigsRequest", [of(k.INCREMENTAL_ALTER_CONFIGS, "AlterConfigsResource", 4, "1")], True), ((O.ALTER_CONFIGS, CLUSTER),)),
        Asked("change a group", k.INCREMENTAL_ALTER_CONFIGS, 1, of(k.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigsRequest", [of(k.INCREMENTAL_ALTER_CONFIGS, "AlterConfigsResource", 32, "walkers")], True), ((O.ALTER_CONFIGS, G),)),
        Asked("change as of old", k.ALTER_CONFIGS, 1, of(k.ALTER_CONFIGS, "AlterConfigsRequest", [of(k.ALTER_CONFIGS, "AlterConfigsResource", 2, "walk")], True), ((O.ALTER_CONFIGS, T),)),
        Asked("make", k.CREATE_TOPICS, 7, ct.CreateTopicsRequest([ct.CreatableTopic("walk new", 1, 1), ct.CreatableTopic("walking-new", 1, 1)], 5000, True), ((O.CREATE, (R.TOPIC, "walking-new")),)),
        Asked("make by the cluster", k.CREATE_TOPICS, 7, ct.CreateTopicsRequest([ct.CreatableTopic("walking-new", 1, 1)], 5000, True), ((O.CREATE, CLUSTER), (O.DESCRIBE_CONFIGS, (R.TOPIC, "walking-new")))),
        Asked("widen", k.CREATE_PARTITIONS, 3, of(k.CREATE_PARTITIONS, "CreatePartitionsRequest", [of(k.CREATE_PARTITIONS, "CreatePartitionsTopic", "walk", 3)], 5000, True), ((O.ALTER, T),)),
        Asked("delete none", k.DELETE_TOPICS, 6, of(k.DELETE_TOPICS, "DeleteTopicsRequest", [of(k.DELETE_TOPICS, "DeleteTopicState", "walks none")], [], 5000), ((O.DESCRIBE, (R.TOPIC, "walks none")),)),
        Asked("delete none by the cluster", k.DELETE_TOPICS, 6, of(k.DELETE_TOPICS, "DeleteTopicsRequest", [of(k.DELETE_TOPICS, "DeleteTopicState", "walks none")], [], 5000), ((O.DELETE, CLUSTER),)),
        Asked("elect", k.ELECT_LEADERS, 2, of(k.ELECT_LEADERS, "ElectLeadersRequest", 0, [of(k.ELECT_LEADERS, "TopicPartitions", "walk", [0])], 5000), (alter,)),
        Asked("move", k.ALTER_PARTITION_REASSIGNMENTS, 0, of(k.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignmentsRequest", 5000, True, []), (alter,)),
        Asked("moves", k.LIST_PARTITION_REASSIGNMENTS, 0, of(k.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignmentsRequest", 5000, []), ((O.DESCRIBE, CLUSTER),)),
        Asked("quorum", k.DESCRIBE_QUORUM, 0, of(k.DESCRIBE_QUORUM, "DescribeQuorumRequest", []), ((O.DESCRIBE, CLUSTER),)),
        Asked("features", k.UPDATE_FEATURES, 1, of(k.UPDATE_FEATURES, "UpdateFeaturesRequest", 5000, [], True), (alter,)),
        Asked("strike off", k.UNREGISTER_BROKER, 0, of(k.UNREGISTER_BROKER, "UnregisterBrokerRequest", 77), (alter,)),
        Asked("versions", k.API_VERSIONS, 0, of(k.API_VERSIONS, "ApiVersionsRequest"), ((O.DESCRIBE, CLUSTER),)),
        Asked("users", k.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, of(k.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentialsRequest", None), ((O.DESCRIBE, CLUSTER),)),
        Asked("no user", k.ALTER_USER_SCRAM_CREDENTIALS, 0, of(k.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentialsRequest", [of(k.ALTER_USER_SCRAM_CREDENTIALS, "ScramCredentialDeletion", "nobody", 1)], []), (alter,)),
    ]
    return out


def _fetch(replica: int) -> Any:
    k = ApiKey.FETCH
    part = of(k, "FetchPartition", 0, -1, 0, -1, -1, 1000)
    request = of(k, "FetchRequest")
    request.replica_id, request.max_wait_ms, request.max_bytes = replica, 0, 1000
    request.topics = [of(k, "FetchTopic", "walk", b"\0" * 16, [part])]
    return request


def _produce(topic: str) -> Any:
    k = ApiKey.PRODUCE
    part = of(k, "PartitionProduceData", 99, b"")
    return of(k, "ProduceRequest", None, -1, 5000, [of(k, "TopicProduceData", topic, b"\0" * 16, [part])])


def _settings(key: ApiKey, kind: int, name: str, keys: list[str]) -> Any:
    return of(key, "DescribeConfigsRequest", [of(key, "DescribeConfigsResource", kind, name, keys)])


def rules_for(asked: Asked) -> Iterator[tuple[str, list[Rule]]]:
    """Sets of rules a request is sent under, by name."""
    for number, (operation, at) in enumerate(asked.needs):
        others = [_rule(ALLOW, o, r) for n, (o, r) in enumerate(asked.needs) if n != number]
        allow = _rule(ALLOW, operation, at)
        prefix = (at[0], at[1][:3])
        pre = f"{number}:" if number else ""
        yield f"{pre}none", others
        yield f"{pre}allow", [*others, allow]
        yield f"{pre}all", [*others, _rule(ALLOW, O.ALL, at)]
        yield f"{pre}another", [*others, _rule(ALLOW, O.CLUSTER_ACTION if at[0] is not R.CLUSTER else O.CREATE, at)]
        yield f"{pre}everybody", [*others, _rule(ALLOW, operation, at, principal="User:*", host="*")]
        yield f"{pre}somebody else", [*others, _rule(ALLOW, operation, at, principal="User:other")]
        yield f"{pre}elsewhere", [*others, _rule(ALLOW, operation, at, host="127.0.0.3")]
        yield f"{pre}denied", [*others, allow, _rule(DENY, operation, at)]
        yield f"{pre}all denied", [*others, allow, _rule(DENY, O.ALL, at)]
        yield f"{pre}others denied", [*others, allow, _rule(DENY, operation, at, principal="User:other")]
        if at[0] is not R.CLUSTER:
            wildcard = (at[0], "*")
            yield f"{pre}prefix", [*others, _rule(ALLOW, operation, prefix, PREFIXED)]
            yield f"{pre}wildcard", [*others, _rule(ALLOW, operation, wildcard)]
            yield f"{pre}prefix denied", [*others, allow, _rule(DENY, operation, prefix, PREFIXED)]
            yield f"{pre}wildcard denied", [*others, allow, _rule(DENY, operation, wildcard)]
            yield f"{pre}not a prefix", [*others, _rule(ALLOW, operation, prefix)]
            yield f"{pre}another name", [*others, _rule(ALLOW, operation, (at[0], "zebra"))]
        for implying in IMPLIED.get(operation, ()):
            if not (at[0] is R.GROUP and implying in (O.WRITE, O.ALTER, O.CREATE)):
                yield f"{pre}{implying.name}", [*others, _rule(ALLOW, implying, at)]
                yield f"{pre}{implying.name} denied", [*others, allow, _rule(DENY, implying, at)]


def _rule(
    permission: int,
    operation: Operation,
    at: tuple[Resource, str],
    pattern: int = LITERAL,
    principal: str = "User:ANONYMOUS",
    host: str = ASKER,
) -> Rule:
    return permission, operation, at, pattern, principal, host


class Walk:
    """A node, who owns it and who asks."""

    def __init__(self, port: int) -> None:
        self._owner = RawClient(port)
        self._port = port
        self._asker = RawClient(port, 5, source=ASKER)

    def begin(self) -> None:
        """Take the node over, and make what is asked about."""
        self._add([_rule(ALLOW, O.ALL, (r, _any(r)), host=h) for r in EVERYTHING for h in HOSTS])
        made = self._owner.call(
            ApiKey.CREATE_TOPICS, 7, ct.CreateTopicsRequest([ct.CreatableTopic(n, 1, 1) for n in ("walk", "other")], 9000)
        )
        assert not any(t.error_code for t in made.topics), made
        commit = next(a for a in requests() if a.what == "commit")
        for kind, name in ((0, "walkers"), (1, "walking")):
            find = of(ApiKey.FIND_COORDINATOR, "FindCoordinatorRequest", "", kind, [name])
            until(lambda: not self._owner.call(ApiKey.FIND_COORDINATOR, 4, find).coordinators[0].error_code)
        until(
            lambda: not self._owner.call(commit.key, commit.version, commit.body).topics[0].partitions[0].error_code
        )
        begin = of(ApiKey.INIT_PRODUCER_ID, "InitProducerIdRequest", "walking", 60_000)
        until(lambda: not self._owner.call(ApiKey.INIT_PRODUCER_ID, 4, begin).error_code)

    def under(self, rules: list[Rule], asked: Asked) -> Any:
        """What the asker is told under these rules."""
        self._drop()
        self._add(rules)
        try:
            return told(plain(self._asker.call(asked.key, asked.version, asked.body)))
        except (ConnectionError, TimeoutError) as error:
            self._asker = RawClient(self._port, 5, source=ASKER)
            return type(error).__name__

    def _add(self, rules: list[Rule]) -> None:
        rows = [ca.AclCreation(r[0], r[1], pattern, who, host, o, p) for p, o, r, pattern, who, host in rules]
        answer = self._owner.call(ApiKey.CREATE_ACLS, 2, ca.CreateAclsRequest(rows))
        assert not any(row.error_code for row in answer.results), answer
        self._seen(len({r for r in rules if r[5] not in HOSTS}))

    def _drop(self) -> None:
        filters = [da.DeleteAclsFilter(1, None, 1, None, host, 1, 1) for host in (ASKER, "*", "127.0.0.3")]
        self._owner.call(ApiKey.DELETE_ACLS, 2, da.DeleteAclsRequest(filters))
        self._seen(0)

    def _seen(self, count: int) -> None:
        """Wait until the broker knows what the controller decided."""
        everything = ds.DescribeAclsRequest(1, None, 1, None, None, 1, 1)

        def is_so() -> bool:
            answer = self._owner.call(ApiKey.DESCRIBE_ACLS, 2, everything)
            return sum(a.host not in HOSTS for r in answer.resources for a in r.acls) == count

        until(is_so)


def _any(resource: Resource) -> str:
    return "kafka-cluster" if resource is R.CLUSTER else "*"


KEPT = (
    "error_code",
    "partition_error_code",
    "topic_config_error_code",
    "name",
    "topic",
    "group_id",
    "transactional_id",
    "resource_name",
    "topic_authorized_operations",
    "cluster_authorized_operations",
    "authorized_operations",
    "key",
    "num_partitions",
)


def told(answer: Any) -> Any:
    """What rules decide of an answer."""
    if isinstance(answer, dict):
        rows = {k: told(v) for k, v in answer.items() if k in KEPT or isinstance(v, (dict, list))}
        return {k: v for k, v in rows.items() if v not in ([], {}, None)}
    if isinstance(answer, list):
        return sorted((told(x) for x in answer if isinstance(x, dict)), key=repr)
    return answer


def walk(port: int) -> dict[str, Any]:
    """Every request under every set of rules: what was told, by name."""
    steps = Walk(port)
    steps.begin()
    out = {}
    for asked in requests():
        for name, rules in rules_for(asked):
            out[f"{asked.what}: {name}"] = steps.under(rules, asked)
    return out
