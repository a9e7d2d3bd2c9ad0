"""Administrative part of the session: topics, settings, logs, quorum, features."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID, Message
from ottla.wire.messages import (
    add_raft_voter,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    remove_raft_voter,
    update_features,
)

TOPIC = "talk"
NEW_ID = b"a new voter's id"


def topics(key: ApiKey, version: int) -> Iterator[Message]:
    """Yield the requests of an API for topics."""
    if key is ApiKey.CREATE_TOPICS:
        for topic in (
            create_topics.CreatableTopic(
                f"made-{version}", 2, 1, configs=[create_topics.CreatableTopicConfig("retention.ms", "5")]
            ),
            create_topics.CreatableTopic(TOPIC, 1, 1),
            create_topics.CreatableTopic("bad name", 1, 1),
            create_topics.CreatableTopic("x" * 250, 1, 1),
            create_topics.CreatableTopic("many", 1, 3),
            create_topics.CreatableTopic("none", 0, 1),
            create_topics.CreatableTopic("odd", 1, 1, configs=[create_topics.CreatableTopicConfig("no.such", "5")]),
            create_topics.CreatableTopic(
                "odd", 1, 1, configs=[create_topics.CreatableTopicConfig("retention.ms", "x")]
            ),
        ):
            yield create_topics.CreateTopicsRequest([topic], 5000)
        only = create_topics.CreatableTopic("dry", 1, 1)
        yield create_topics.CreateTopicsRequest([only], 5000, validate_only=True)
    elif key is ApiKey.CREATE_PARTITIONS:
        for name, count in ((f"made-{version + 2}", 3), (f"made-{version + 2}", 1), ("nowhere", 3)):
            topic_count = create_partitions.CreatePartitionsTopic(name, count, None)
            yield create_partitions.CreatePartitionsRequest([topic_count], 5000)
    else:
        for name in (f"made-{version + 1}", "nowhere"):
            if version >= 6:
                yield delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(name)], timeout_ms=5000)
            else:
                yield delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=5000)


def configs(key: ApiKey, version: int) -> Iterator[Message]:
    """Yield the requests of an API for settings."""
    if key is ApiKey.ALTER_CONFIGS:
        alter = alter_configs
        for kind, name, settings in (
            (2, TOPIC, {"retention.ms": "99", "max.message.bytes": "2000000"}),
            (2, TOPIC, {"retention.ms": "98"}),
            (2, TOPIC, {"no.such": "1"}),
            (2, TOPIC, {"retention.ms": None}),
            (2, "nowhere", {"retention.ms": "1"}),
            (2, TOPIC, {}),
        ):
            rows = [alter.AlterableConfig(k, v) for k, v in settings.items()]
            yield alter.AlterConfigsRequest([alter.AlterConfigsResource(kind, name, rows)])
        return
    if key is ApiKey.DESCRIBE_CONFIGS:
        for kind, name, keys in (
            (2, TOPIC, ["retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes"]),
            (2, "nowhere", None),
            (4, "1", ["num.partitions", "log.segment.bytes", "sasl.jaas.config"]),
            (4, "7", None),
            (32, "some-group", None),
        ):
            wanted = describe_configs.DescribeConfigsResource(kind, name, keys)
            yield describe_configs.DescribeConfigsRequest([wanted], include_synonyms=True)
        return
    ia = incremental_alter_configs
    for kind, name, setting, op, value in (
        (2, TOPIC, "retention.ms", 0, "777"),
        (2, TOPIC, "cleanup.policy", 2, "compact"),
        (2, TOPIC, "cleanup.policy", 1, None),
        (2, TOPIC, "retention.ms", 2, "5"),
        (2, TOPIC, "no.such", 0, "5"),
        (2, "nowhere", "retention.ms", 0, "5"),
        (2, TOPIC, "retention.ms", 0, "abc"),
        (2, TOPIC, "retention.ms", 1, None),
    ):
        change = ia.AlterConfigsResource(kind, name, [ia.AlterableConfig(setting, op, value)])
        yield ia.IncrementalAlterConfigsRequest([change])


def logs(key: ApiKey) -> Iterator[Message]:
    """Return requests for logs. Partition 1 of the topic is empty: its log start may advance."""
    if key is ApiKey.DELETE_RECORDS:
        for name, index, offset in (
            (TOPIC, 1, -1),
            (TOPIC, 1, 0),
            (TOPIC, 1, 10**6),
            (TOPIC, 1, -5),
            ("nowhere", 0, 0),
        ):
            part = delete_records.DeleteRecordsPartition(index, offset)
            yield delete_records.DeleteRecordsRequest([delete_records.DeleteRecordsTopic(name, [part])], 5000)
        compacted = delete_records.DeleteRecordsTopic(
            "__consumer_offsets", [delete_records.DeleteRecordsPartition(0, 0)]
        )
        yield delete_records.DeleteRecordsRequest([compacted], 5000)
    elif key is ApiKey.ALTER_REPLICA_LOG_DIRS:
        al = alter_replica_log_dirs
        for path, name in (("/nowhere", TOPIC), ("", TOPIC), ("/nowhere", "nowhere"), ("/nowhere", "x" * 230)):
            rows = [al.AlterReplicaLogDirTopic(name, [1, 77])]
            yield al.AlterReplicaLogDirsRequest([al.AlterReplicaLogDir(path, rows)])
        yield al.AlterReplicaLogDirsRequest()
    elif key is ApiKey.DESCRIBE_LOG_DIRS:
        for topics in ([(TOPIC, [1, 77])], [("nowhere", [0])]):
            rows = [describe_log_dirs.DescribableLogDirTopic(name, numbers) for name, numbers in topics]
            yield describe_log_dirs.DescribeLogDirsRequest(rows)
    else:
        for name, number in ((TOPIC, 1), (TOPIC, 77), ("nowhere", 0)):
            yield describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(name, [number])])


def leaders(version: int) -> Iterator[Message]:
    """Return elections without an effect, and impossible ones."""
    named = [(TOPIC, [0, 77]), ("nowhere", [0])]
    rows = [elect_leaders.TopicPartitions(name, numbers) for name, numbers in named]
    for kind in (0, 1, 2) if version >= 1 else (0,):
        yield elect_leaders.ElectLeadersRequest(kind, rows, 5000)
        yield elect_leaders.ElectLeadersRequest(kind, [], 5000)
    yield elect_leaders.ElectLeadersRequest(0, None, 5000)


def reassignments(key: ApiKey, version: int) -> Iterator[Message]:
    """Return reassignments to the current replicas, to unknown brokers, and to no broker."""
    if key is ApiKey.LIST_PARTITION_REASSIGNMENTS:
        lr = list_partition_reassignments
        for topics in (None, [], [lr.ListPartitionReassignmentsTopics(TOPIC, [0, 77])]):
            yield lr.ListPartitionReassignmentsRequest(5000, topics)
        return
    ar = alter_partition_reassignments
    for name, number, replicas in (
        (TOPIC, 0, [1]),
        (TOPIC, 0, None),
        (TOPIC, 0, []),
        (TOPIC, 0, [1, 1]),
        (TOPIC, 0, [1, 9]),
        (TOPIC, 77, [1]),
        ("nowhere", 0, [1]),
        ("nowhere", 0, None),
    ):
        row = ar.ReassignableTopic(name, [ar.ReassignablePartition(number, replicas)])
        for may_change in (True, False) if version >= 1 else (True,):
            yield ar.AlterPartitionReassignmentsRequest(5000, may_change, [row])
    yield ar.AlterPartitionReassignmentsRequest(5000)


def voters(key: ApiKey) -> Iterator[Message]:
    """Return invalid changes of the voters: another cluster, an unknown node, no address, an id that is a voter."""
    cases = (("another", 7, NEW_ID), (None, -1, NEW_ID), (None, 7, ZERO_UUID), (None, 7, NEW_ID), (None, 1, NEW_ID))
    if key is ApiKey.REMOVE_RAFT_VOTER:
        for cluster, voter, directory in cases:
            yield remove_raft_voter.RemoveRaftVoterRequest(cluster, voter, directory)
        return
    m = add_raft_voter
    for cluster, voter, directory in cases:
        for name in ("CONTROLLER", "ELSEWHERE") if voter != 7 or cluster else ("ELSEWHERE",):
            yield m.AddRaftVoterRequest(cluster, 1000, voter, directory, [m.Listener(name, "localhost", 9)])
    yield m.AddRaftVoterRequest(None, 1000, 7, NEW_ID)


def quorum() -> Iterator[Message]:
    """Yield the requests that describe the quorum."""
    m = describe_quorum
    for name, numbers in (("__cluster_metadata", [0]), ("__cluster_metadata", [1]), ("nowhere", [0])):
        parts = [m.DescribeQuorumRequestPartitionData(n) for n in numbers]
        yield m.DescribeQuorumRequest([m.DescribeQuorumRequestTopicData(name, parts)])
    yield m.DescribeQuorumRequest()


def features(version: int) -> Iterator[Message]:
    """Yield the requests that change levels of features."""
    m = update_features

    def one(name: str, level: int, kind: int = 1, *, dry: bool = False) -> Message:
        if version == 0:
            update = m.FeatureUpdateKey(name, level, allow_downgrade=kind != 1)
        else:
            update = m.FeatureUpdateKey(name, level, upgrade_type=kind)
        return m.UpdateFeaturesRequest(5000, [update], validate_only=dry and version > 0)

    yield m.UpdateFeaturesRequest(5000)
    for name, levels in (
        ("metadata.version", (30, 31, 29, 0, -1)),
        ("transaction.version", (2, 3, 1, 0)),
        ("kraft.version", (1, 2, 0)),
        ("no.such", (1, 0)),
        ("", (1,)),
    ):
        for level in levels:
            yield one(name, level)
    for name, level in (("metadata.version", 29), ("metadata.version", 20), ("kraft.version", 0), ("no.such", 0)):
        yield one(name, level, 2)
    for kind in (3, 7) if version else ():
        yield one("metadata.version", 29, kind)
        yield one("kraft.version", 0, kind)
    if version:
        yield one("transaction.version", 0, 3, dry=True)
    yield one("transaction.version", 1, 2)
    yield one("transaction.version", 2, 2)
    yield one("transaction.version", 2)
    yield one("eligible.leader.replicas.version", 0, 2)
    yield one("eligible.leader.replicas.version", 1)
