"""Scenarios of streams groups (KIP-1071): join, tasks, conflicting topologies, leave; internal topics; offsets."""

from __future__ import annotations

from typing import Any

from compat_tests.support.raw_client import wait_until
from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import delete_groups as dgr
from ottla.wire.messages import (
    describe_groups,
    find_coordinator,
    incremental_alter_configs,
    join_group,
    list_groups,
    offset_commit,
    offset_fetch,
    streams_group_describe,
    streams_group_heartbeat,
)

GROUP = 32
BEAT, DESCRIBE = ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE


def _info(name: str, partitions: int = 0, *configs: tuple[str, str]) -> streams_group_heartbeat.TopicInfo:
    return streams_group_heartbeat.TopicInfo(
        name, partitions, 0, [streams_group_heartbeat.KeyValue(*config) for config in configs]
    )


def _tasks(**tasks: list[int]) -> list[streams_group_heartbeat.StreamsGroupHeartbeatRequestTaskIds]:
    return [
        streams_group_heartbeat.StreamsGroupHeartbeatRequestTaskIds(name[1:], numbers)
        for name, numbers in tasks.items()
    ]


def _owned(expected: Any) -> list[streams_group_heartbeat.StreamsGroupHeartbeatRequestTaskIds]:
    return [
        streams_group_heartbeat.StreamsGroupHeartbeatRequestTaskIds(row.subtopology_id, row.partitions)
        for row in expected
    ]


READS = streams_group_heartbeat.Topology(0, [streams_group_heartbeat.Subtopology("0", ["streams-in"])])
COUNTS = streams_group_heartbeat.Topology(
    0,
    [
        streams_group_heartbeat.Subtopology("0", ["streams-in"], [], [], ["streams-by-word"]),
        streams_group_heartbeat.Subtopology(
            "1",
            ["streams-more"],
            [],
            [_info("streams-log", 0, ("cleanup.policy", "compact"), ("segment.bytes", "52428800"))],
            [],
            [_info("streams-by-word", 0, ("retention.ms", "-1"))],
            [streams_group_heartbeat.CopartitionGroup([0], [], [0])],
        ),
    ],
)


def _join(group: str, member: str, topology: streams_group_heartbeat.Topology | None = READS, **fields: Any) -> Any:
    text = {"rebalance_timeout_ms": 60_000, "process_id": f"process-{member}", "topology": topology}
    text |= {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    return streams_group_heartbeat.StreamsGroupHeartbeatRequest(
        **{"group_id": group, "member_id": member, **text, **fields}
    )


def _beat(group: str, member: str, epoch: int, active: Any = None, standby: Any = (), **fields: Any) -> Any:
    tasks = {} if active is None else {"active_tasks": active, "standby_tasks": list(standby), "warmup_tasks": []}
    return streams_group_heartbeat.StreamsGroupHeartbeatRequest(group, member, epoch, **{**tasks, **fields})


def _ready(stage: ScenarioSession, group: str, **settings: str) -> None:
    """Create a group without delays for members and assignments."""
    text = {"streams_initial_rebalance_delay_ms": "0", "streams_assignment_interval_ms": "0", **settings}
    rows = [incremental_alter_configs.AlterableConfig(name.replace("_", "."), 0, value) for name, value in text.items()]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(GROUP, group, rows)]
    )
    stage.call(f"settings of {group}", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    peer = stage["a"]

    def is_led() -> bool:
        peer.call(ApiKey.FIND_COORDINATOR, 4, find_coordinator.FindCoordinatorRequest(coordinator_keys=[group]))
        row = peer.call(DESCRIBE, 0, streams_group_describe.StreamsGroupDescribeRequest([group])).groups[0]
        return row.error_code not in (14, 15, 16)

    wait_until(is_led)
    stage.wait_until_current()


def _look(stage: ScenarioSession, group: str, when: str) -> None:
    stage.call(
        f"describe {when}", DESCRIBE, 0, streams_group_describe.StreamsGroupDescribeRequest([group], True), "looker"
    )


def _commit(group: str, epoch: int, member: str, topic: str = "streams-in", partition: int = 0) -> Any:
    part = offset_commit.OffsetCommitRequestPartition(partition, 3, -1, "m")
    return offset_commit.OffsetCommitRequest(
        group, epoch, member, topics=[offset_commit.OffsetCommitRequestTopic(topic, partitions=[part])]
    )


def streams_refusals(stage: ScenarioSession) -> None:
    """Send requests that a streams group rejects."""
    stage.topic("streams-in", 3)
    g = "streams-refusals"
    _ready(stage, g)
    _look(stage, g, "nothing")
    _look(stage, "", "no name")
    stage.call("nobody's beat", BEAT, 0, _beat(g, "a", 5))
    stage.call("nobody leaves", BEAT, 0, _beat(g, "a", -1))
    odd: dict[str, dict[str, Any]] = {
        "a static member": {"instance_id": "i"},
        "no id": {"member_id": ""},
        "no group": {"group_id": " "},
        "an empty rack": {"rack_id": ""},
        "no timeout": {"rebalance_timeout_ms": -1},
        "tasks while joining": {"active_tasks": _tasks(_0=[0])},
        "no standby tasks": {"standby_tasks": None},
        "warm-up tasks": {"warmup_tasks": _tasks(_0=[0])},
        "no topology": {"topology": None},
        "offsets of tasks": {"task_offsets": []},
        "end offsets of tasks": {"task_end_offsets": []},
        "gone for a while": {"member_epoch": -2},
        "an epoch below all": {"member_epoch": -3},
        "a topology of who goes on": {"member_epoch": 1},
        "tags named twice": {
            "client_tags": [streams_group_heartbeat.KeyValue("k", "1"), streams_group_heartbeat.KeyValue("k", "2")]
        },
    }
    for name, fields in odd.items():
        stage.call(name, BEAT, 0, _join(g, "a", **fields))
    sub = streams_group_heartbeat.Subtopology
    topologies = {
        "a regular expression": [sub("0", ["streams-in"], ["s.*"])],
        "a sized changelog": [sub("0", ["streams-in"], [], [_info("log", 3)])],
        "an internal topic": [sub("0", ["__consumer_offsets"])],
        "no topic's name": [sub("0", ["a b"])],
        "a loop": [sub("0", [], [], [], ["r"], [_info("r")])],
        "nobody writes it": [sub("0", ["streams-in"], [], [], [], [_info("r")])],
        "no sources": [sub("0")],
        "a place beyond the list": [
            sub("0", ["streams-in"], copartition_groups=[streams_group_heartbeat.CopartitionGroup([4])])
        ],
        "named twice": [sub("0", ["streams-in"]), sub("0", ["streams-in"])],
    }
    for name, rows in topologies.items():
        stage.call(name, BEAT, 0, _join(g, "a", streams_group_heartbeat.Topology(0, rows)))
    stage.call("an epoch below zero", BEAT, 0, _join(g, "a", streams_group_heartbeat.Topology(-1, READS.subtopologies)))
    _look(stage, g, "still nothing")


def streams_tasks(stage: ScenarioSession) -> None:
    """Share tasks between two members; one leaves."""
    stage.topic("streams-in", 3)
    g = "streams-tasks"
    _ready(stage, g)
    stage.call(
        "a joins", BEAT, 0, _join(g, "a", rack_id="r", client_tags=[streams_group_heartbeat.KeyValue("zone", "z")])
    )
    _look(stage, g, "one member")
    stage.call("a goes on", BEAT, 0, _beat(g, "a", 2, _tasks(_0=[0, 1, 2])))
    stage.call("b joins", BEAT, 0, _join(g, "b"))
    _look(stage, g, "b waits")
    stage.call("a gives up", BEAT, 0, _beat(g, "a", 2, _tasks(_0=[0, 1, 2])))
    _look(stage, g, "a gives up")
    stage.call("commit of what is given up", ApiKey.OFFSET_COMMIT, 9, _commit(g, 2, "a", partition=2))
    stage.call("b too early", BEAT, 0, _beat(g, "b", 3, []))
    stage.call("a has given up", BEAT, 0, _beat(g, "a", 2, _tasks(_0=[0, 1])))
    stage.call("b has it", BEAT, 0, _beat(g, "b", 3, []))
    _look(stage, g, "two members")
    stage.call("the epoch before", BEAT, 0, _beat(g, "a", 2, _tasks(_0=[0])))
    stage.call("the epoch before, other tasks", BEAT, 0, _beat(g, "a", 2, _tasks(_0=[2])))
    stage.call("the epoch before, no tasks", BEAT, 0, _beat(g, "a", 2))
    stage.call("an epoch too high", BEAT, 0, _beat(g, "a", 9))
    stage.call("nobody", BEAT, 0, _beat(g, "x", 3))
    stage.call("a task that is none", BEAT, 0, _beat(g, "a", 3, _tasks(_0=[3])))
    stage.call("a subtopology that is none", BEAT, 0, _beat(g, "a", 3, _tasks(_1=[0])))
    stage.call("another topology", BEAT, 0, _join(g, "c", COUNTS))
    stage.call("a later topology", BEAT, 0, _join(g, "c", streams_group_heartbeat.Topology(1, READS.subtopologies)))
    for name, epoch, identity in (
        ("own", 3, "a"),
        ("old", 2, "a"),
        ("older", 1, "a"),
        ("next", 4, "a"),
        ("none", 3, "x"),
    ):
        stage.call(f"commit, {name} epoch", ApiKey.OFFSET_COMMIT, 9, _commit(g, epoch, identity))
    stage.call("commit in an old version", ApiKey.OFFSET_COMMIT, 8, _commit(g, 3, "a"))
    stage.call("commit from outside", ApiKey.OFFSET_COMMIT, 9, _commit(g, -1, ""))
    for name, member, epoch in (("a", "a", 3), ("stale", "a", 1), ("nobody", "x", 3), ("from outside", None, -1)):
        request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(g, member, epoch)])
        stage.call(f"positions, {name}", ApiKey.OFFSET_FETCH, 9, request)
    for states, types in (([], ["streams"]), (["Stable"], ["STREAMS"]), (["not_ready"], ["streams"])):
        stage.call(f"list {states} {types}", ApiKey.LIST_GROUPS, 5, list_groups.ListGroupsRequest(states, types))
    stage.call("as a classic group", ApiKey.DESCRIBE_GROUPS, 6, describe_groups.DescribeGroupsRequest([g]))
    classic = join_group.JoinGroupRequest(
        g, 30_000, 60_000, "", None, "consumer", [join_group.JoinGroupRequestProtocol("range", b"")]
    )
    stage.call("a classic member", ApiKey.JOIN_GROUP, 9, classic)
    stage.call("delete while alive", ApiKey.DELETE_GROUPS, 2, dgr.DeleteGroupsRequest([g]))
    stage.call("a wants the end", BEAT, 0, _beat(g, "a", 3, shutdown_application=True))
    stage.call("b hears of it", BEAT, 0, _beat(g, "b", 3))
    stage.call("a leaves", BEAT, 0, _beat(g, "a", -1))
    stage.call("b goes on", BEAT, 0, _beat(g, "b", 3, _tasks(_0=[2])))
    stage.call("b leaves", BEAT, 0, _beat(g, "b", -1))
    _look(stage, g, "empty")
    stage.call("c begins anew", BEAT, 0, _join(g, "c"))
    stage.call("c leaves", BEAT, 0, _beat(g, "c", -1))
    stage.call("delete", ApiKey.DELETE_GROUPS, 2, dgr.DeleteGroupsRequest([g]))
    _look(stage, g, "dead")


def streams_topics(stage: ScenarioSession) -> None:
    """Use missing sources, internal topics, standby tasks, endpoints."""
    stage.topic("streams-in", 3)
    g = "streams-topics"
    _ready(stage, g, streams_num_standby_replicas="1")
    end = streams_group_heartbeat.StreamsGroupHeartbeatRequestEndpoint("here", 7)
    stage.call("a joins", BEAT, 0, _join(g, "a", COUNTS, endpoint_information_epoch=-1))
    _look(stage, g, "not ready")
    stage.call("list not ready", ApiKey.LIST_GROUPS, 5, list_groups.ListGroupsRequest(["not_ready"], ["streams"]))
    stage.topic("streams-more", 2)
    peer = stage["a"]

    def answers() -> Any:
        return peer.call(BEAT, 0, _beat(g, "a", describe().members[0].member_epoch, []))

    def describe() -> Any:
        return peer.call(DESCRIBE, 0, streams_group_describe.StreamsGroupDescribeRequest([g])).groups[0]

    wait_until(lambda: not answers().status)
    row = describe()
    stage.record("topics are there", row.topology)
    stage.record("a's tasks", row.members[0].assignment)
    epoch = row.members[0].member_epoch
    stage.call("b joins", BEAT, 0, _join(g, "b", COUNTS, user_endpoint=end, endpoint_information_epoch=-1))
    mine = row.members[0].assignment.active_tasks
    has = _owned(mine)
    for round_ in range(3):
        for name in ("a", "b"):
            response = peer.call(BEAT, 0, _beat(g, name, epoch_of(describe(), name), has if name == "a" else None))
            if name == "a" and response.active_tasks is not None:
                has = [
                    streams_group_heartbeat.StreamsGroupHeartbeatRequestTaskIds(x.subtopology_id, x.partitions)
                    for x in response.active_tasks
                ]
        stage.record(f"after round {round_}", sorted_by_id(describe()))
    assert epoch > 0
    stage.call("endpoints", BEAT, 0, _beat(g, "a", epoch_of(describe(), "a"), endpoint_information_epoch=-1))


def epoch_of(group: Any, member: str) -> int:
    """Return the epoch of a member in the description of a group."""
    epoch: int = next(row.member_epoch for row in group.members if row.member_id == member)
    return epoch


def sorted_by_id(group: Any) -> list[Any]:
    """Sort the members of a group: their order has no meaning."""
    return [row.assignment for row in sorted(group.members, key=lambda row: row.member_id)]
