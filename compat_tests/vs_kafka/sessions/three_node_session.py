"""Session with a cluster of three, at brokers and controllers: elections, reassignments, errors of each kind.

The leader of the quorum is random, and so are ids and ports; all else must be equal at any two clusters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from compat_tests.support.raw_client import RawClient, wait_until, wait_until_brokers_current
from compat_tests.vs_kafka.sessions.api_session import batch
from compat_tests.vs_kafka.sessions.quorum_session import quorum, registration
from ottla.tools.dump import to_json_value
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID, Message
from ottla.wire.messages import alter_partition, alter_partition_reassignments, create_partitions, create_topics, fetch
from ottla.wire.messages import incremental_alter_configs as config_changes
from ottla.wire.messages import offset_for_leader_epoch as leader_epochs
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BROKERS = (1, 2, 3)
METADATA_TOPIC = "__cluster_metadata"
MISSING_ID = bytes(15) + b"\x63"
_RANDOM_FIELDS = ("controller_id", "throttle_time_ms")
_IN_ANY_ORDER = {"isr_nodes"}
_QUORUM = ("leader_id", "leader_epoch", "high_watermark", "end_offset", "size", "epoch", "node_endpoints")
"""Fields that depend on the elections of the quorum."""


class NodePorts(NamedTuple):
    """Ports of a node on this machine."""

    broker: int
    controller: int


class RecordedAnswer(NamedTuple):
    """Request and its response, in comparable form."""

    label: str
    answer: Any


class ThreeNodeSession:
    """Connections to the nodes of a cluster, and the recorded responses."""

    def __init__(self, nodes: Sequence[NodePorts]) -> None:
        self._nodes = dict(zip(BROKERS, nodes, strict=True))
        self._clients: dict[tuple[str, int], RawClient] = {}
        self.answers: list[RecordedAnswer] = []
        self.topic_ids: dict[str, bytes] = {}

    def _client(self, role: str, node: int) -> RawClient:
        at = (role, node)
        if at not in self._clients:
            self._clients[at] = RawClient(getattr(self._nodes[node], role))
        return self._clients[at]

    def close(self) -> None:
        """Close all connections."""
        for line in self._clients.values():
            line.close()

    # ------------------------------------------------------------------ requests

    def call_unrecorded(self, node: int, key: ApiKey, version: int, body: Message) -> Any:
        """Send a broker a request that is not compared."""
        return self._client("broker", node).call(key, version, body)

    def call(self, label: str, node: int, key: ApiKey, version: int, body: Message) -> Any:
        """Send a request to a broker."""
        return self._record_call(f"{label}: broker {node}", "broker", node, key, version, body)

    def call_each_version(
        self, label: str, key: ApiKey, versions: range, body: Callable[[int], Message], node: int = 2
    ) -> None:
        """Send a request to a broker in each version."""
        for version in versions:
            self.call(label, node, key, version, body(version))

    def call_active_controller(self, label: str, key: ApiKey, version: int, body: Message) -> Any:
        """Send a request to the active controller at its own listener."""
        return self._record_call(
            f"{label}: active controller", "controller", self.active_controller_id(), key, version, body
        )

    def call_standby_controller(self, label: str, key: ApiKey, version: int, body: Message) -> Any:
        """Send a request to a controller that is not active."""
        node = next(i for i in BROKERS if i != self.active_controller_id())
        return self._record_call(f"{label}: another controller", "controller", node, key, version, body)

    def active_controller_id(self) -> int:
        """Return the leader of the quorum."""
        return int(self.quorum().leader_id)

    def quorum(self) -> Any:
        """Return the quorum as a broker describes it."""
        wanted = DescribeQuorumRequestTopicData(METADATA_TOPIC, [DescribeQuorumRequestPartitionData(0)])
        answer = self.call_unrecorded(1, ApiKey.DESCRIBE_QUORUM, 2, DescribeQuorumRequest([wanted]))
        return answer.topics[0].partitions[0]

    def _record_call(self, label: str, role: str, node: int, key: ApiKey, version: int, body: Message) -> Any:
        label = f"{label}: {key.name} v{version}"
        try:
            answer = self._client(role, node).call(key, version, body)
        except ConnectionError:
            del self._clients[role, node]
            self.answers.append(RecordedAnswer(label, "closed"))
            return None
        self.answers.append(
            RecordedAnswer(label, without_variable_fields(to_json_value(answer), quorum=role == "controller"))
        )
        return answer

    # ------------------------------------------------------------------ topics

    def create_topic(self, name: str, replicas: list[list[int]], **settings: str) -> None:
        """Create a topic with the given replicas."""
        rows = [create_topics.CreatableReplicaAssignment(number, to) for number, to in enumerate(replicas)]
        configs = [create_topics.CreatableTopicConfig(k.replace("_", "."), v) for k, v in settings.items()]
        request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic(name, -1, -1, rows, configs)], 10_000)
        answer = self.call(f"make {name}", 2, ApiKey.CREATE_TOPICS, 7, request)
        assert answer.topics[0].error_code == 0
        self.topic_ids[name] = answer.topics[0].topic_id
        for node in BROKERS:
            wait_until(lambda node=node: self._is_served(node, name, replicas))

    def _is_served(self, node: int, name: str, replicas: list[list[int]]) -> bool:
        rows = self.partitions(node, name)
        return [sorted(row.isr_nodes) for row in rows] == [sorted(to) for to in replicas]

    def partitions(self, node: int, name: str) -> list[Any]:
        """Return a topic's partitions in the metadata of a broker."""
        request = DescribeTopicPartitionsRequest([TopicRequest(name)])
        answer = self.call_unrecorded(node, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        return sorted(answer.topics[0].partitions, key=lambda row: int(row.partition_index))

    def wait_until_current(self) -> None:
        """Wait until every broker has every change."""
        wait_until_brokers_current(*(self._client("broker", node) for node in (2, 1, 3)))

    def wait_for_follower(self, index: int, leader: int, follower: int) -> None:
        """Wait until a follower has the high watermark of its leader for a partition of ``e``."""
        wait_until(lambda: self._high_watermark(follower, index) == self._high_watermark(leader, index))

    def _high_watermark(self, node: int, index: int) -> int:
        answer = self.call_unrecorded(node, ApiKey.FETCH, 12, _fetched(12, self, index))
        return int(answer.responses[0].partitions[0].high_watermark)

    def record_partitions(self, label: str, name: str) -> None:
        """Record a topic's partitions: equal at each broker once stable."""
        self.wait_until_current()
        request = DescribeTopicPartitionsRequest([TopicRequest(name)])
        for node in BROKERS:
            self.call(label, node, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)

    def elect(self, label: str, kind: int, name: str, partitions: list[int], version: int = 2) -> None:
        """Run an election, and record the topic afterwards."""
        request = ElectLeadersRequest(kind, [TopicPartitions(name, partitions)], 10_000)
        self.call(label, 2, ApiKey.ELECT_LEADERS, version, request)

    def reassign(
        self, label: str, name: str, to: dict[int, list[int] | None], version: int = 1, change: bool = True
    ) -> None:
        """Run a reassignment, and wait until it has completed."""
        rows = [
            alter_partition_reassignments.ReassignablePartition(number, replicas) for number, replicas in to.items()
        ]
        topics = [alter_partition_reassignments.ReassignableTopic(name, rows)]
        request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(10_000, change, topics)
        self.call(label, 2, ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, request)
        under_way = ListPartitionReassignmentsRequest(10_000, None)
        wait_until(lambda: not self.call_unrecorded(2, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, under_way).topics)


def without_variable_fields(value: Any, *, quorum: bool) -> Any:
    """Return a response without random parts."""
    if isinstance(value, dict):
        gone = _RANDOM_FIELDS + (_QUORUM if quorum else ())
        out = {k: without_variable_fields(v, quorum=quorum) for k, v in value.items() if k not in gone}
        for name in _IN_ANY_ORDER & out.keys():
            out[name] = sorted(out[name])  # in the order of catching up
        return out
    if isinstance(value, list):
        return [without_variable_fields(v, quorum=quorum) for v in value]
    if isinstance(value, str):
        return re.sub(r"(active controller appears to be node|Local controller) \d", r"\1 N", value)
    return value


# ---------------------------------------------------------------------- requests to brokers


def elections(three: ThreeNodeSession) -> None:
    """Move and elect leaders, validly and invalidly."""
    three.create_topic("e", [[1, 2, 3], [2, 3, 1], [3, 1, 2]], min_insync_replicas="2")
    three.reassign("fewer", "e", {2: [3, 1]})
    three.record_partitions("as made", "e")
    for kind in (0, 1, 2):
        three.elect(f"not needed {kind}", kind, "e", [0, 1])
    three.reassign("order", "e", {0: [2, 3, 1], 1: [1, 2, 3]})
    three.record_partitions("another order", "e")
    three.elect("one of two", 0, "e", [0])
    three.record_partitions("one elected", "e")
    for version in (0, 1, 2):
        three.elect("the rest", 0, "e", [0, 1, 2, 7], version)
    three.record_partitions("all elected", "e")
    three.elect("unclean with a leader", 1, "e", [0])
    three.elect("nowhere", 0, "nowhere", [0])
    three.call("all", 2, ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(0, None, 10_000))
    three.call("none", 2, ApiKey.ELECT_LEADERS, 2, ElectLeadersRequest(0, [], 10_000))


def reassignments(three: ThreeNodeSession) -> None:
    """Move replicas, validly and invalidly."""
    three.create_topic("m", [[1, 2], [2, 3]])
    for name, to in (
        ("away", {0: [3]}),
        ("back and more", {0: [1, 2, 3]}),
        ("the leader goes", {1: [1, 3]}),
        ("the same", {1: [1, 3]}),
        ("nothing to cancel", {0: None}),
        ("no such partition", {9: [1]}),
        ("twice", {0: [1, 1]}),
        ("nobody", {0: []}),
        ("no such broker", {0: [1, 8]}),
        ("a negative one", {0: [1, -2]}),
    ):
        three.reassign(name, "m", to)
        three.record_partitions(name, "m")
    three.reassign("fewer is not allowed", "m", {0: [1]}, change=False)
    three.reassign("as many is", "m", {0: [3, 1, 2]}, change=False)
    three.reassign("an older version", "m", {0: [2, 1]}, version=0)
    three.reassign("nowhere", "nowhere", {0: [1]})
    three.record_partitions("in the end", "m")
    for topics in (None, [], [ListPartitionReassignmentsTopics("m", [0, 9])]):
        three.call("list", 2, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest(10_000, topics))


def topic_creation(three: ThreeNodeSession) -> None:
    """Create topics with manual assignments, valid and invalid."""
    for name, rows, count, factor in (
        ("a hole", {0: [1], 2: [2]}, -1, -1),
        ("uneven", {0: [1], 1: [2, 3]}, -1, -1),
        ("twice the same", {0: [1, 1]}, -1, -1),
        ("nobody", {0: []}, -1, -1),
        ("no such broker", {0: [1, 9]}, -1, -1),
        ("both", {0: [1]}, 1, 1),
        ("too many copies", {}, 1, 4),
        ("no copies", {}, 1, 0),
        ("no partitions", {}, 0, 3),
    ):
        assigned = [create_topics.CreatableReplicaAssignment(number, to) for number, to in rows.items()]
        for dry in (True, False):
            request = create_topics.CreateTopicsRequest(
                [create_topics.CreatableTopic("c", count, factor, assigned)], 10_000, dry
            )
            three.call(name, 2, ApiKey.CREATE_TOPICS, 6, request)
    three.create_topic("grows", [[1, 2]])
    for name, count, to in (
        ("as many", 1, None),
        ("wrong number", 3, [[1, 2]]),
        ("uneven", 2, [[3]]),
        ("no such broker", 2, [[1, 9]]),
        ("where it says", 2, [[3, 1]]),
    ):
        more = None if to is None else [create_partitions.CreatePartitionsAssignment(x) for x in to]
        request = create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic("grows", count, more)], 10_000
        )
        three.call(name, 2, ApiKey.CREATE_PARTITIONS, 3, request)
    three.record_partitions("grown", "grows")


def metadata(three: ThreeNodeSession) -> None:
    """Record the metadata of each broker."""
    for version in range(14):
        topics = [MetadataRequestTopic(name="e"), MetadataRequestTopic(name="nowhere")]
        for node in (1, 3):
            request = MetadataRequest(topics, allow_auto_topic_creation=version < 4)
            three.call(
                "topics", node, ApiKey.METADATA, version, request if version >= 4 else MetadataRequest(topics[:1])
            )


# ---------------------------------------------------------------------- records, at leaders and other brokers


def _produced(version: int, three: ThreeNodeSession, index: int, acks: int) -> Message:
    ident = three.topic_ids["e"] if version >= 13 else ZERO_UUID
    topic = TopicProduceData("e", ident, [PartitionProduceData(index, batch())])
    return ProduceRequest(None, acks, 10_000, [topic])


def _fetched(version: int, three: ThreeNodeSession, index: int, epoch: int = -1, **more: Any) -> Message:
    part = fetch.FetchPartition(index, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1 << 20)
    ident = three.topic_ids["e"] if version >= 13 else ZERO_UUID
    topics = [fetch.FetchTopic("e", ident, [part])]
    return fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics, **more)


def records(three: ThreeNodeSession) -> None:
    """Produce and fetch at leaders and other brokers.

    Partition 0 of ``e`` is led by broker 2, with replicas everywhere; partition 2 by 3, without a replica on broker 2.
    """
    for version in range(3, 14):
        for node, index in ((2, 0), (1, 0), (2, 2), (2, 9)):
            three.call(f"write {index}", node, ApiKey.PRODUCE, version, _produced(version, three, index, -1))
    alter = config_changes.AlterConfigsResource(2, "e", [config_changes.AlterableConfig("min.insync.replicas", 0, "3")])
    three.call(
        "three copies", 2, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, config_changes.IncrementalAlterConfigsRequest([alter])
    )
    three.wait_until_current()
    for acks in (1, -1, 7):
        three.call(f"acks {acks}", 3, ApiKey.PRODUCE, 11, _produced(11, three, 2, acks))
    three.wait_for_follower(0, 2, 1)
    for version in range(4, 19):
        for node, index in ((2, 0), (1, 0), (2, 2), (2, 9)):
            three.call(f"read {index}", node, ApiKey.FETCH, version, _fetched(version, three, index))
    for epoch in (0, 9):
        for node in (1, 2):
            three.call(f"epoch {epoch}", node, ApiKey.FETCH, 12, _fetched(12, three, 0, epoch))
    for replica, version in ((9, 12), (9, 15), (1, 12), (3, 17)):
        state = {"replica_state": fetch.ReplicaState(replica, 7)} if version >= 15 else {"replica_id": replica}
        for epoch in (0, 9):
            three.call(
                f"as {replica} in {epoch}", 2, ApiKey.FETCH, version, _fetched(version, three, 0, epoch, **state)
            )
        three.call(f"as {replica}, elsewhere", 1, ApiKey.FETCH, version, _fetched(version, three, 0, **state))


def offsets_and_epochs(three: ThreeNodeSession) -> None:
    """List offsets and epochs, at leaders and other brokers."""
    for version in range(1, 12):
        for node in (1, 2):
            rows = [ListOffsetsPartition(0, -1, which) for which in (-1, -2)]
            for row in rows:
                request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("e", [row])])
                three.call(f"where {row.timestamp}", node, ApiKey.LIST_OFFSETS, version, request)
    for replica in (-1, -2, 1, 9):
        for epoch in (-1, 0, 9):
            rows = [ListOffsetsPartition(0, epoch, -1)]
            request = ListOffsetsRequest(replica, 0, [ListOffsetsTopic("e", rows)])
            three.call(f"{replica} in epoch {epoch}", 2, ApiKey.LIST_OFFSETS, 9, request)
    for version in (2, 3, 4):
        for node in (1, 2):
            for current, epoch in ((-1, 0), (-1, 1), (-1, 9), (0, 0), (9, 0)):
                wanted = [leader_epochs.OffsetForLeaderPartition(number, current, epoch) for number in (0, 9)]
                request = leader_epochs.OffsetForLeaderEpochRequest(
                    -1, [leader_epochs.OffsetForLeaderTopic("e", wanted)]
                )
                three.call(f"end of {epoch} in {current}", node, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)


def refused_isr_changes(three: ThreeNodeSession) -> None:
    """Send changes of an ISR that the controller refuses."""
    for name, broker, broker_epoch in (("nobody's", 9, 1), ("an old one's", 1, 0)):
        for version in (2, 3):
            row = alter_partition.AlterPartitionRequestPartitionData(0, 0, partition_epoch=0)
            if version == 2:
                row.new_isr = [1, 2]
            else:
                row.new_isr_with_epochs = [alter_partition.BrokerState(1, -1), alter_partition.BrokerState(2, -1)]
            topic = alter_partition.AlterPartitionRequestTopicData(three.topic_ids["e"], [row])
            request = alter_partition.AlterPartitionRequest(broker, broker_epoch, [topic])
            three.call_active_controller(name, ApiKey.ALTER_PARTITION, version, request)
            three.call_standby_controller(name, ApiKey.ALTER_PARTITION, version, request)


def run_session(nodes: Sequence[NodePorts]) -> list[RecordedAnswer]:
    """Run the session with three nodes; return the responses."""
    three = ThreeNodeSession(nodes)
    try:
        for part in _parts(quorum, registration):
            part(three)
    finally:
        three.close()
    return three.answers


def _parts(*more: Callable[[ThreeNodeSession], None]) -> Iterator[Callable[[ThreeNodeSession], None]]:
    yield from (elections, reassignments, topic_creation, metadata, records, offsets_and_epochs, refused_isr_changes)
    yield from more
