"""Session with three controllers: requests of voters, of registering brokers, and of administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.directory.log_directory import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import (
    add_raft_voter,
    allocate_producer_ids,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    create_topics,
    describe_cluster,
    describe_quorum,
    elect_leaders,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    list_partition_reassignments,
    remove_raft_voter,
    unregister_broker,
    update_features,
    update_raft_voter,
    vote,
)

if TYPE_CHECKING:
    from compat_tests.vs_kafka.sessions.three_node_session import ThreeNodeSession

ANOTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
UNKNOWN_DIRECTORY_ID = b"nobody's dir id."


def quorum(three: ThreeNodeSession) -> None:
    """Send requests of raft without an effect: of another cluster, of old epochs, of unknown nodes."""
    _described(three)
    _votes(three)
    _quorum_epochs(three)
    _read(three)
    _voters(three)


def _both(three: ThreeNodeSession, label: str, key: ApiKey, version: int, request: object) -> None:
    three.call_active_controller(label, key, version, request)  # type: ignore[arg-type]
    three.call_standby_controller(label, key, version, request)  # type: ignore[arg-type]


def _described(three: ThreeNodeSession) -> None:
    for version in (0, 1, 2):
        for name in (METADATA_TOPIC, "e"):
            wanted = describe_quorum.DescribeQuorumRequestTopicData(
                name, [describe_quorum.DescribeQuorumRequestPartitionData(0)]
            )
            _both(
                three,
                f"describe {name}",
                ApiKey.DESCRIBE_QUORUM,
                version,
                describe_quorum.DescribeQuorumRequest([wanted]),
            )
        for endpoint in (1, 2, 3):
            request = describe_cluster.DescribeClusterRequest(endpoint_type=endpoint if version else 1)
            three.call(f"cluster {endpoint}", 3, ApiKey.DESCRIBE_CLUSTER, version, request)
            _both(three, f"cluster {endpoint}", ApiKey.DESCRIBE_CLUSTER, version, request)


def _votes(three: ThreeNodeSession) -> None:
    for version in (0, 1, 2):
        for name, cluster, topic, epoch in (
            ("of another cluster", ANOTHER_CLUSTER, METADATA_TOPIC, 0),
            ("of an old epoch", None, METADATA_TOPIC, 0),
            ("about another topic", None, "e", 0),
        ):
            row = vote.VoteRequestPartitionData(0, epoch, 2)
            request = vote.VoteRequest(cluster, -1, [vote.VoteRequestTopicData(topic, [row])])
            _both(three, f"vote {name}", ApiKey.VOTE, version, request)


def _quorum_epochs(three: ThreeNodeSession) -> None:
    for version in (0, 1):
        for name, cluster, leader, epoch in (
            ("of another cluster", ANOTHER_CLUSTER, 1, 0),
            ("of an old epoch", None, 1, 0),
            ("of nobody", None, 9, 0),
        ):
            row = begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(0, leader_id=leader, leader_epoch=epoch)
            begun = begin_quorum_epoch.BeginQuorumEpochRequest(
                cluster, -1, [begin_quorum_epoch.BeginQuorumEpochRequestTopicData(METADATA_TOPIC, [row])]
            )
            _both(three, f"begun {name}", ApiKey.BEGIN_QUORUM_EPOCH, version, begun)
            end = end_quorum_epoch.EndQuorumEpochRequestPartitionData(0, leader, epoch)
            ended = end_quorum_epoch.EndQuorumEpochRequest(
                cluster, [end_quorum_epoch.EndQuorumEpochRequestTopicData(METADATA_TOPIC, [end])]
            )
            _both(three, f"ended {name}", ApiKey.END_QUORUM_EPOCH, version, ended)


def _read(three: ThreeNodeSession) -> None:
    for version in range(13, 19):
        for name, cluster, epoch, offset, last in (
            ("of another cluster", ANOTHER_CLUSTER, -1, 0, 0),
            ("of an old epoch", None, 0, 0, 0),
            ("of a younger last epoch", None, 0, 0, 1),
            ("from nowhere", None, 0, -1, 0),
        ):
            part = fetch.FetchPartition(0, epoch, offset, last, 0, 1 << 20)
            topics = [fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[part])]
            request = fetch.FetchRequest(cluster, max_wait_ms=0, max_bytes=1 << 20, topics=topics)
            _both(three, f"fetch {name}", ApiKey.FETCH, version, request)
    for version in (0, 1):  # Kafka returns UNKNOWN_SERVER_ERROR for an invalid snapshot id
        wanted = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
            0, 0, fetch_snapshot.FetchSnapshotRequestSnapshotId(0, 0)
        )
        snapshots = [fetch_snapshot.FetchSnapshotRequestTopicSnapshot(METADATA_TOPIC, [wanted])]
        query = fetch_snapshot.FetchSnapshotRequest(ANOTHER_CLUSTER, topics=snapshots)
        _both(three, "snapshot of another cluster", ApiKey.FETCH_SNAPSHOT, version, query)


def _voters(three: ThreeNodeSession) -> None:
    listeners = [add_raft_voter.Listener("CONTROLLER", "localhost", 9)]
    for version in (0, 1):
        added = add_raft_voter.AddRaftVoterRequest(ANOTHER_CLUSTER, 1000, 7, UNKNOWN_DIRECTORY_ID, listeners)
        _both(three, "add to another cluster", ApiKey.ADD_RAFT_VOTER, version, added)
    removed = remove_raft_voter.RemoveRaftVoterRequest(ANOTHER_CLUSTER, 7, UNKNOWN_DIRECTORY_ID)
    _both(three, "remove from another cluster", ApiKey.REMOVE_RAFT_VOTER, 0, removed)
    updated = update_raft_voter.UpdateRaftVoterRequest(
        ANOTHER_CLUSTER, 0, 7, UNKNOWN_DIRECTORY_ID, [update_raft_voter.Listener("CONTROLLER", "localhost", 9)]
    )
    _both(three, "update of another cluster", ApiKey.UPDATE_RAFT_VOTER, 0, updated)


def registration(three: ThreeNodeSession) -> None:
    """Send invalid requests of brokers to controllers, and requests that brokers forward."""
    for version in range(5):
        request = broker_registration.BrokerRegistrationRequest(9, ANOTHER_CLUSTER, UNKNOWN_DIRECTORY_ID, rack=None)
        _both(three, "of another cluster", ApiKey.BROKER_REGISTRATION, version, request)
    for version in (0, 1, 2):
        for broker, epoch in ((9, 1), (1, 0)):
            _both(
                three,
                f"beat of {broker}",
                ApiKey.BROKER_HEARTBEAT,
                version,
                broker_heartbeat.BrokerHeartbeatRequest(broker, epoch),
            )
    for broker in (1, 9):
        _both(
            three,
            f"ids for {broker}",
            ApiKey.ALLOCATE_PRODUCER_IDS,
            0,
            allocate_producer_ids.AllocateProducerIdsRequest(broker, 0),
        )
        where = assign_replicas_to_dirs.AssignReplicasToDirsRequest(
            broker, 0, [assign_replicas_to_dirs.AssignReplicasToDirsRequestDirectoryData(UNKNOWN_DIRECTORY_ID)]
        )
        _both(three, f"place for {broker}", ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, where)
    _both(three, "strike off nobody", ApiKey.UNREGISTER_BROKER, 0, unregister_broker.UnregisterBrokerRequest(9))
    three.call("strike off nobody", 3, ApiKey.UNREGISTER_BROKER, 0, unregister_broker.UnregisterBrokerRequest(9))
    for version in (0, 1, 2):
        feature = [update_features.FeatureUpdateKey("no.such", 1)]
        _both(
            three,
            "no such feature",
            ApiKey.UPDATE_FEATURES,
            version,
            update_features.UpdateFeaturesRequest(1000, feature),
        )
        elected = elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions("nowhere", [0])], 1000)
        _both(three, "elect nowhere", ApiKey.ELECT_LEADERS, version, elected)
    reassigned = list_partition_reassignments.ListPartitionReassignmentsRequest(1000, None)
    three.call_active_controller("list moves", ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, reassigned)
    for version in range(2, 8):
        bad = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("bad name", 1, 1)], 1000)
        _both(three, "bad name", ApiKey.CREATE_TOPICS, version, bad)
