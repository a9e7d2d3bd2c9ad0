"""Session with three controllers: requests of voters, of registering brokers, and of administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.directory.log_directory import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import add_raft_voter as av
from ottla.wire.messages import allocate_producer_ids as pi
from ottla.wire.messages import assign_replicas_to_dirs as ad
from ottla.wire.messages import begin_quorum_epoch as bq
from ottla.wire.messages import broker_heartbeat as bh
from ottla.wire.messages import broker_registration as br
from ottla.wire.messages import create_topics as ct
from ottla.wire.messages import describe_cluster as dc
from ottla.wire.messages import describe_quorum as dq
from ottla.wire.messages import elect_leaders as el
from ottla.wire.messages import end_quorum_epoch as eq
from ottla.wire.messages import fetch as f
from ottla.wire.messages import fetch_snapshot as fs
from ottla.wire.messages import list_partition_reassignments as lr
from ottla.wire.messages import remove_raft_voter as rv
from ottla.wire.messages import unregister_broker as ub
from ottla.wire.messages import update_features as uf
from ottla.wire.messages import update_raft_voter as uv
from ottla.wire.messages import vote as v

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
            wanted = dq.DescribeQuorumRequestTopicData(name, [dq.DescribeQuorumRequestPartitionData(0)])
            _both(three, f"describe {name}", ApiKey.DESCRIBE_QUORUM, version, dq.DescribeQuorumRequest([wanted]))
        for endpoint in (1, 2, 3):
            request = dc.DescribeClusterRequest(endpoint_type=endpoint if version else 1)
            three.call(f"cluster {endpoint}", 3, ApiKey.DESCRIBE_CLUSTER, version, request)
            _both(three, f"cluster {endpoint}", ApiKey.DESCRIBE_CLUSTER, version, request)


def _votes(three: ThreeNodeSession) -> None:
    for version in (0, 1, 2):
        for name, cluster, topic, epoch in (
            ("of another cluster", ANOTHER_CLUSTER, METADATA_TOPIC, 0),
            ("of an old epoch", None, METADATA_TOPIC, 0),
            ("about another topic", None, "e", 0),
        ):
            row = v.VoteRequestPartitionData(0, epoch, 2)
            request = v.VoteRequest(cluster, -1, [v.VoteRequestTopicData(topic, [row])])
            _both(three, f"vote {name}", ApiKey.VOTE, version, request)


def _quorum_epochs(three: ThreeNodeSession) -> None:
    for version in (0, 1):
        for name, cluster, leader, epoch in (
            ("of another cluster", ANOTHER_CLUSTER, 1, 0),
            ("of an old epoch", None, 1, 0),
            ("of nobody", None, 9, 0),
        ):
            row = bq.BeginQuorumEpochRequestPartitionData(0, leader_id=leader, leader_epoch=epoch)
            begun = bq.BeginQuorumEpochRequest(
                cluster, -1, [bq.BeginQuorumEpochRequestTopicData(METADATA_TOPIC, [row])]
            )
            _both(three, f"begun {name}", ApiKey.BEGIN_QUORUM_EPOCH, version, begun)
            end = eq.EndQuorumEpochRequestPartitionData(0, leader, epoch)
            ended = eq.EndQuorumEpochRequest(cluster, [eq.EndQuorumEpochRequestTopicData(METADATA_TOPIC, [end])])
            _both(three, f"ended {name}", ApiKey.END_QUORUM_EPOCH, version, ended)


def _read(three: ThreeNodeSession) -> None:
    for version in range(13, 19):
        for name, cluster, epoch, offset, last in (
            ("of another cluster", ANOTHER_CLUSTER, -1, 0, 0),
            ("of an old epoch", None, 0, 0, 0),
            ("of a younger last epoch", None, 0, 0, 1),
            ("from nowhere", None, 0, -1, 0),
        ):
            part = f.FetchPartition(0, epoch, offset, last, 0, 1 << 20)
            topics = [f.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[part])]
            request = f.FetchRequest(cluster, max_wait_ms=0, max_bytes=1 << 20, topics=topics)
            _both(three, f"fetch {name}", ApiKey.FETCH, version, request)
    for version in (0, 1):  # Kafka returns UNKNOWN_SERVER_ERROR for an invalid snapshot id
        wanted = fs.FetchSnapshotRequestPartitionSnapshot(0, 0, fs.FetchSnapshotRequestSnapshotId(0, 0))
        snapshots = [fs.FetchSnapshotRequestTopicSnapshot(METADATA_TOPIC, [wanted])]
        query = fs.FetchSnapshotRequest(ANOTHER_CLUSTER, topics=snapshots)
        _both(three, "snapshot of another cluster", ApiKey.FETCH_SNAPSHOT, version, query)


def _voters(three: ThreeNodeSession) -> None:
    listeners = [av.Listener("CONTROLLER", "localhost", 9)]
    for version in (0, 1):
        added = av.AddRaftVoterRequest(ANOTHER_CLUSTER, 1000, 7, UNKNOWN_DIRECTORY_ID, listeners)
        _both(three, "add to another cluster", ApiKey.ADD_RAFT_VOTER, version, added)
    removed = rv.RemoveRaftVoterRequest(ANOTHER_CLUSTER, 7, UNKNOWN_DIRECTORY_ID)
    _both(three, "remove from another cluster", ApiKey.REMOVE_RAFT_VOTER, 0, removed)
    updated = uv.UpdateRaftVoterRequest(
        ANOTHER_CLUSTER, 0, 7, UNKNOWN_DIRECTORY_ID, [uv.Listener("CONTROLLER", "localhost", 9)]
    )
    _both(three, "update of another cluster", ApiKey.UPDATE_RAFT_VOTER, 0, updated)


def registration(three: ThreeNodeSession) -> None:
    """Send invalid requests of brokers to controllers, and requests that brokers forward."""
    for version in range(5):
        request = br.BrokerRegistrationRequest(9, ANOTHER_CLUSTER, UNKNOWN_DIRECTORY_ID, rack=None)
        _both(three, "of another cluster", ApiKey.BROKER_REGISTRATION, version, request)
    for version in (0, 1, 2):
        for broker, epoch in ((9, 1), (1, 0)):
            _both(
                three, f"beat of {broker}", ApiKey.BROKER_HEARTBEAT, version, bh.BrokerHeartbeatRequest(broker, epoch)
            )
    for broker in (1, 9):
        _both(three, f"ids for {broker}", ApiKey.ALLOCATE_PRODUCER_IDS, 0, pi.AllocateProducerIdsRequest(broker, 0))
        where = ad.AssignReplicasToDirsRequest(
            broker, 0, [ad.AssignReplicasToDirsRequestDirectoryData(UNKNOWN_DIRECTORY_ID)]
        )
        _both(three, f"place for {broker}", ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, where)
    _both(three, "strike off nobody", ApiKey.UNREGISTER_BROKER, 0, ub.UnregisterBrokerRequest(9))
    three.call("strike off nobody", 3, ApiKey.UNREGISTER_BROKER, 0, ub.UnregisterBrokerRequest(9))
    for version in (0, 1, 2):
        feature = [uf.FeatureUpdateKey("no.such", 1)]
        _both(three, "no such feature", ApiKey.UPDATE_FEATURES, version, uf.UpdateFeaturesRequest(1000, feature))
        elected = el.ElectLeadersRequest(0, [el.TopicPartitions("nowhere", [0])], 1000)
        _both(three, "elect nowhere", ApiKey.ELECT_LEADERS, version, elected)
    reassigned = lr.ListPartitionReassignmentsRequest(1000, None)
    three.call_active_controller("list moves", ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, reassigned)
    for version in range(2, 8):
        bad = ct.CreateTopicsRequest([ct.CreatableTopic("bad name", 1, 1)], 1000)
        _both(three, "bad name", ApiKey.CREATE_TOPICS, version, bad)
