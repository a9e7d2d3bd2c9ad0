"""Scenarios of share group offsets (KIP-932): described, altered, deleted; the state at a share coordinator."""

from __future__ import annotations

from typing import Any

from compat_tests.support.raw_client import wait_until
from compat_tests.vs_kafka.scenarios.consumer_group_scenarios import delete_groups_request
from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession
from compat_tests.vs_kafka.scenarios.share_consumer import (
    ACCEPT,
    HEARTBEAT,
    RELEASE,
    RawShareConsumer,
    describe_group,
    describe_offsets,
    heartbeat_request,
    prepare_share_group,
    record_batch,
)
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import (
    alter_share_group_offsets,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_groups,
    find_coordinator,
    list_groups,
    offset_commit,
    offset_fetch,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.wire.messages import initialize_share_group_state as ins

NOWHERE = bytes(15) + b"\x63"


def _alter(group: str, topic: str, **starts: int) -> Any:
    parts = [
        alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(int(key[1:]), start)
        for key, start in starts.items()
    ]
    return alter_share_group_offsets.AlterShareGroupOffsetsRequest(
        group, [alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(topic, parts)]
    )


def _forget(group: str, *topics: str) -> Any:
    return delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
        group, [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(name) for name in topics]
    )


def share_offsets(stage: ScenarioSession) -> None:
    """Describe, alter and delete the offsets of a share group."""
    g = "share-offsets"
    own = prepare_share_group(stage, g)
    for number in range(5):
        stage.produce(f"record {number}", g, record_batch(1, number))
    alter, forget = ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS
    stage.call("forget in no group", forget, 0, _forget(g, g))
    stage.call("set in a group without a name", alter, 0, _alter("", g, p0=1))
    stage.call("set where no topic is", alter, 0, _alter(f"{g}-none", "nowhere", p0=1))
    describe_group(stage, f"{g}-none", "of a group that was asked for")
    stage.call("set in a new group", alter, 0, _alter(g, g, p0=2))
    describe_group(stage, g, "made by it")
    for version in (0, 1):
        describe_offsets(stage, g, f"set, v{version}", g, version)
        describe_offsets(stage, g, f"set, all, v{version}", None, version)
    stage.call("set where no partition is", alter, 0, _alter(g, g, p0=3, p7=1))
    describe_offsets(stage, g, "set again", g)
    stage.call("set beyond the end", alter, 0, _alter(g, g, p0=1000))
    stage.call("set before the beginning", alter, 0, _alter(g, g, p0=-7))
    stage.call("set to something", alter, 0, _alter(g, g, p0=1))
    for states, types in (([], ["share"]), (["empty"], ["SHARE"]), (["Stable"], ["share"])):
        stage.call(f"list {states} {types}", ApiKey.LIST_GROUPS, 5, list_groups.ListGroupsRequest(states, types))
    a = RawShareConsumer(stage, g, "a", own)
    a.join(g)
    a.fetch_until_records("gets what lies there")
    a.acknowledge("accepts some", (1, 2, [ACCEPT]))
    describe_offsets(stage, g, "some accepted", g)
    stage.call("set while it is alive", alter, 0, _alter(g, g, p0=0))
    stage.call("forget while it is alive", forget, 0, _forget(g, g))
    stage.call("delete while it is alive", ApiKey.DELETE_GROUPS, 2, delete_groups_request(g))
    a.acknowledge("gives back", (3, 4, [RELEASE]))
    _other_kinds(stage, g)
    stage.call("a leaves", HEARTBEAT, 1, heartbeat_request(g, "a", -1))
    stage.call("forget what is not read", forget, 0, _forget(g, "nowhere"))
    stage.call("forget what was read", forget, 0, _forget(g, g, "nowhere"))
    describe_offsets(stage, g, "forgotten", g)
    stage.call("forget again", forget, 0, _forget(g, g))
    stage.call("set once more", alter, 0, _alter(g, g, p0=4))
    describe_offsets(stage, g, "set once more")
    stage.call("delete", ApiKey.DELETE_GROUPS, 2, delete_groups_request(g))
    describe_offsets(stage, g, "of a group that is gone", g)
    describe_group(stage, g, "dead")


def _other_kinds(stage: ScenarioSession, group: str) -> None:
    """Describe a share group as a group of another kind."""
    stage.call("as a classic group", ApiKey.DESCRIBE_GROUPS, 6, describe_groups.DescribeGroupsRequest([group]))
    request = consumer_group_describe.ConsumerGroupDescribeRequest([group])
    stage.call("as a consumer group", ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request)
    joins = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group, "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["x"]
    )
    joins.topic_partitions = []
    stage.call("a member of a consumer group", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joins)
    part = offset_commit.OffsetCommitRequestPartition(0, 3, -1, "m")
    commits = offset_commit.OffsetCommitRequest(
        group, -1, "", topics=[offset_commit.OffsetCommitRequestTopic(group, partitions=[part])]
    )
    stage.call("a commit", ApiKey.OFFSET_COMMIT, 9, commits)
    query = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group, topics=None)])
    stage.call("positions", ApiKey.OFFSET_FETCH, 9, query)


class _States:
    """Requests to a share coordinator for one share partition."""

    def __init__(self, stage: ScenarioSession, group: str, topic: bytes) -> None:
        self.stage, self.group, self.topic = stage, group, topic

    def initialize(self, label: str, epoch: int = 0, start: int = 0, partition: int = 0) -> None:
        rows = [ins.InitializeStateData(self.topic, [ins.PartitionData(partition, epoch, start)])]
        request = ins.InitializeShareGroupStateRequest(self.group, rows)
        self.stage.call(f"initialize {label}", ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, request)

    def read(self, label: str, leader_epoch: int = 0, partition: int = 0) -> None:
        rows = [
            read_share_group_state.ReadStateData(
                self.topic, [read_share_group_state.PartitionData(partition, leader_epoch)]
            )
        ]
        request = read_share_group_state.ReadShareGroupStateRequest(self.group, rows)
        self.stage.call(f"read {label}", ApiKey.READ_SHARE_GROUP_STATE, 0, request)

    def write(self, label: str, *rows: tuple[int, int, int, int], version: int = 1, **fields: Any) -> None:
        text = {"partition": 0, "state_epoch": 1, "leader_epoch": 0, "start_offset": -1, **fields}
        if version < 1:
            text.pop("delivery_complete_count", None)
        part = write_share_group_state.PartitionData(
            **text, state_batches=[write_share_group_state.StateBatch(*row) for row in rows]
        )
        request = write_share_group_state.WriteShareGroupStateRequest(
            self.group, [write_share_group_state.WriteStateData(self.topic, [part])]
        )
        self.stage.call(f"write {label}", ApiKey.WRITE_SHARE_GROUP_STATE, version, request)

    def sum_up(self, label: str, leader_epoch: int = -1, partition: int = 0, version: int = 1) -> None:
        rows = [
            read_share_group_state_summary.ReadStateSummaryData(
                self.topic, [read_share_group_state_summary.PartitionData(partition, leader_epoch)]
            )
        ]
        request = read_share_group_state_summary.ReadShareGroupStateSummaryRequest(self.group, rows)
        self.stage.call(f"sum up {label}", ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, version, request)

    def delete(self, label: str, partition: int = 0) -> None:
        rows = [
            delete_share_group_state.DeleteStateData(self.topic, [delete_share_group_state.PartitionData(partition)])
        ]
        request = delete_share_group_state.DeleteShareGroupStateRequest(self.group, rows)
        self.stage.call(f"delete {label}", ApiKey.DELETE_SHARE_GROUP_STATE, 0, request)


def _coordinated(stage: ScenarioSession, g: str, own: bytes) -> None:
    """Find the coordinator of a share partition, and wait until it is loaded."""
    key = f"{g}:{_text(own)}:0"
    peer = stage["a"]
    request = find_coordinator.FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    wait_until(lambda: not peer.call(ApiKey.FIND_COORDINATOR, 6, request).coordinators[0].error_code)
    for bad in ("x", f"{g}:{_text(own)}", f"{g}:x:0", f"{g}:{_text(own)}:y", f":{_text(own)}:0"):
        odd = find_coordinator.FindCoordinatorRequest(key_type=2, coordinator_keys=[bad])
        answer = peer.call(ApiKey.FIND_COORDINATOR, 6, odd)
        stage.record_normalized("who coordinates it", [row.error_code for row in answer.coordinators])
    rows = read_share_group_state_summary.ReadShareGroupStateSummaryRequest(
        g,
        [
            read_share_group_state_summary.ReadStateSummaryData(
                own, [read_share_group_state_summary.PartitionData(0, -1)]
            )
        ],
    )

    def is_loaded() -> bool:
        row = peer.call(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, rows).results[0].partitions[0]
        return row.error_code not in (14, 15, 16)

    wait_until(is_loaded)


def share_states(stage: ScenarioSession) -> None:
    """Initialize, write, read, summarize and delete the state of a share partition.

    Some requests have old epochs or invalid values.
    """
    g = "share-states"
    own = stage.topic(g, 1)
    _coordinated(stage, g, own)
    states = _States(stage, g, own)
    states.read("nothing")
    states.write("nothing", (0, 1, 0, 1))
    states.sum_up("nothing")
    states.delete("nothing")
    states.initialize("it", 1, 5)
    states.initialize("it again", 1, 7)
    states.initialize("it with an older epoch", 0, 9)
    states.initialize("a partition below all", 1, 0, -1)
    states.initialize("a partition that is none", 1, 0, 3)
    states.read("it")
    states.write("some", (5, 9, 0, 1), (10, 12, 2, 1), (13, 13, 4, 5), delivery_complete_count=4)
    states.sum_up("some")
    states.sum_up("some, v0", version=0)
    states.read("some")
    states.write("what overlaps", (8, 10, 4, 2), (14, 20, 0, 3), delivery_complete_count=5)
    states.read("what overlaps")
    states.write("a later start", start_offset=9, delivery_complete_count=2)
    states.read("after a later start")
    states.write("an earlier start", (3, 4, 0, 1), start_offset=6, version=0)
    states.read("after an earlier start")
    states.write("as an older leader", (30, 31, 2, 1), leader_epoch=-1)
    states.read("as a later leader", 4)
    states.read("as an older leader", 2)
    states.write("as an older leader too", (30, 31, 2, 1), leader_epoch=3)
    states.write("in an older epoch", (30, 31, 2, 1), leader_epoch=4, state_epoch=0)
    states.write("in a later epoch", (30, 31, 2, 1), leader_epoch=4, state_epoch=2)
    states.sum_up("as an older leader", 1)
    states.sum_up("as a later leader", 9)
    states.read("no partition", 0, -1)
    states.sum_up("no partition", -1, -1)
    states.write("no partition", partition=-1)
    states.initialize("it anew", 3, 100)
    states.read("it anew", 4)
    states.delete("it")
    states.delete("it again")
    states.read("what is gone", 4)
    nowhere = _States(stage, g, NOWHERE)
    nowhere.initialize("in a topic that is none", 1)
    nowhere.read("in a topic that is none")
    nowhere.delete("in a topic that is none")
    gone = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(g)], timeout_ms=10_000)
    stage.call("the topic goes", ApiKey.DELETE_TOPICS, 6, gone)


def _text(topic_id: bytes) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(topic_id).decode().rstrip("=")
