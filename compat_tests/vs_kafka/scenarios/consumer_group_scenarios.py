"""Scenarios of consumer groups (KIP-848): join, reassignment, fencing, rejoin; regular expressions; migration."""

from __future__ import annotations

from typing import Any

from compat_tests.support.raw_client import wait_until
from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    delete_topics,
    describe_groups,
    find_coordinator,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from ottla.wire.messages import delete_groups as dgr
from ottla.wire.messages import share_group_describe as shd
from ottla.wire.messages import share_group_heartbeat as shb
from ottla.wire.messages import streams_group_describe as std
from ottla.wire.messages import streams_group_heartbeat as sth

GROUP = 32
HEARTBEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
AssignedPartitionsById = dict[bytes, list[int]]


def _owned(has: AssignedPartitionsById) -> list[consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions]:
    return [
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions(topic, numbers)
        for topic, numbers in has.items()
    ]


def join(group: str, member: str, *topics: str, **fields: Any) -> Any:
    """Return a heartbeat that joins."""
    text = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": list(topics), "topic_partitions": []}
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        **{"group_id": group, "member_id": member, **text, **fields}
    )


def heartbeat(group: str, member: str, epoch: int, has: AssignedPartitionsById | None = None, **fields: Any) -> Any:
    """Return a heartbeat of a member."""
    if has is not None:
        fields["topic_partitions"] = _owned(has)
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group, member, epoch, **fields)


def prepare_group(stage: ScenarioSession, group: str, setting: str = "consumer.assignment.interval.ms") -> None:
    """Create a group without an assignment interval, and wait until its coordinator is available."""
    stage.alter_configs(f"settings of {group}", GROUP, group, (setting, 0, "0"))
    peer = stage["a"]

    def is_led() -> bool:
        peer.call(ApiKey.FIND_COORDINATOR, 4, find_coordinator.FindCoordinatorRequest(coordinator_keys=[group]))
        row = peer.call(DESCRIBE, 1, consumer_group_describe.ConsumerGroupDescribeRequest([group])).groups[0]
        return row.error_code not in (14, 15, 16)

    wait_until(is_led)
    stage.wait_until_current()


def describe_group(stage: ScenarioSession, group: str, when: str, version: int = 1) -> None:
    """Describe the group."""
    stage.call(
        f"describe {when}",
        DESCRIBE,
        version,
        consumer_group_describe.ConsumerGroupDescribeRequest([group], True),
        "looker",
    )


def offset_commit_request(
    group: str, epoch: int, member: str, topic: str, partition: int = 0, instance: str | None = None
) -> Any:
    """Return a commit of one partition."""
    part = offset_commit.OffsetCommitRequestPartition(partition, 3, -1, "m")
    rows = [offset_commit.OffsetCommitRequestTopic(topic, partitions=[part])]
    return offset_commit.OffsetCommitRequest(group, epoch, member, instance, topics=rows)


def offset_fetch_request(group: str, member: str | None = None, epoch: int = -1) -> Any:
    """Return a request for all offsets of a group, with or without a member."""
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group, member, epoch, None)])


def delete_groups_request(group: str) -> Any:
    """Return a request that deletes a group."""
    return dgr.DeleteGroupsRequest([group])


def consumer_refusals(stage: ScenarioSession) -> None:
    """Send requests that a consumer group rejects."""
    stage.topic("consumer-none", 1)
    g = "consumer-refusals"
    prepare_group(stage, g)
    for version in (0, 1):
        describe_group(stage, g, f"nothing, v{version}", version)
        describe_group(stage, "", f"no name, v{version}", version)
        stage.call(f"nobody's beat v{version}", HEARTBEAT, version, heartbeat(g, "a", 5))
        stage.call(f"nobody leaves v{version}", HEARTBEAT, version, heartbeat(g, "a", -1))
        stage.call(f"nobody pauses v{version}", HEARTBEAT, version, heartbeat(g, "a", -2, instance_id="i"))
    odd: dict[str, dict[str, Any]] = {
        "no group": {"group_id": ""},
        "a blank group": {"group_id": " "},
        "no id": {"member_id": ""},
        "a long id": {"member_id": "m" * 40},
        "no instance": {"instance_id": ""},
        "no rack": {"rack_id": ""},
        "no timeout": {"rebalance_timeout_ms": -1},
        "a timeout of nothing": {"rebalance_timeout_ms": 0},
        "partitions while joining": {"topic_partitions": _owned({bytes(16): [0]})},
        "no partitions told": {"topic_partitions": None},
        "neither names nor pattern": {"subscribed_topic_names": None},
        "no names": {"subscribed_topic_names": []},
        "an unknown assignor": {"server_assignor": "best"},
        "an assignor of another kind": {"server_assignor": "simple"},
        "an epoch below all": {"member_epoch": -3},
        "gone for a while, nobody's": {"member_epoch": -2},
    }
    for number, (name, fields) in enumerate(odd.items()):
        stage.call(
            name, HEARTBEAT, 1, join(f"{g}-{number}", "a", "consumer-none", **{"group_id": f"{g}-{number}", **fields})
        )
    stage.call("no id needed in v0", HEARTBEAT, 0, join(f"{g}-v0", "", "consumer-none"))
    stage.call("an id that is needed later", HEARTBEAT, 0, heartbeat(g, "", 3))
    describe_group(stage, g, "still nothing")
    stage.call(
        "commit to nothing with an epoch", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, 5, "a", "consumer-none")
    )
    stage.call(
        "commit to nothing in an old version",
        ApiKey.OFFSET_COMMIT,
        8,
        offset_commit_request(g, 5, "a", "consumer-none"),
    )
    stage.call("positions of nothing as somebody", ApiKey.OFFSET_FETCH, 9, offset_fetch_request(g, "a", 5))
    stage.call("delete nothing", ApiKey.DELETE_GROUPS, 2, delete_groups_request(g))
    several = consumer_group_describe.ConsumerGroupDescribeRequest([g, "", "x", f"{g}-v0"])
    stage.call("describe several", DESCRIBE, 1, several)


def consumer_handover(stage: ScenarioSession) -> None:
    """Share partitions between two members; one is fenced, one leaves."""
    own = stage.topic("consumer-in", 4)
    g = "consumer-handover"
    prepare_group(stage, g)
    stage.call("a joins", HEARTBEAT, 1, join(g, "a", "consumer-in", rack_id="r"))
    describe_group(stage, g, "one member")
    stage.call("a goes on", HEARTBEAT, 1, heartbeat(g, "a", 2, {own: [0, 1, 2, 3]}))
    stage.call("a says nothing new", HEARTBEAT, 1, heartbeat(g, "a", 2))
    stage.call(
        "a says it all again",
        HEARTBEAT,
        1,
        join(g, "a", "consumer-in", member_epoch=2, topic_partitions=_owned({own: [0, 1, 2, 3]})),
    )
    stage.call("b joins", HEARTBEAT, 1, join(g, "b", "consumer-in"))
    describe_group(stage, g, "b waits")
    stage.call("b beats", HEARTBEAT, 1, heartbeat(g, "b", 3, {}))
    stage.call("a is to give up", HEARTBEAT, 1, heartbeat(g, "a", 2, {own: [0, 1, 2, 3]}))
    describe_group(stage, g, "a gives up")
    describe_group(stage, g, "a gives up, v0", 0)
    stage.call("a is not done", HEARTBEAT, 1, heartbeat(g, "a", 2, {own: [0, 1, 2, 3]}))
    stage.call("a says nothing of it", HEARTBEAT, 1, heartbeat(g, "a", 2))
    for number in (0, 2, 3):
        stage.call(
            f"commit of {number} meanwhile",
            ApiKey.OFFSET_COMMIT,
            9,
            offset_commit_request(g, 2, "a", "consumer-in", number),
        )
    stage.call("b beats too early", HEARTBEAT, 1, heartbeat(g, "b", 3, {}))
    stage.call("commit of what b has not", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, 3, "b", "consumer-in", 3))
    stage.call("a has given up", HEARTBEAT, 1, heartbeat(g, "a", 2, {own: [0, 1]}))
    stage.call("b has it", HEARTBEAT, 1, heartbeat(g, "b", 3, {}))
    describe_group(stage, g, "two members")
    stage.call("the epoch before", HEARTBEAT, 1, heartbeat(g, "a", 2, {own: [0]}))
    stage.call("the epoch before, other partitions", HEARTBEAT, 1, heartbeat(g, "a", 2, {own: [2]}))
    stage.call("the epoch before, nothing told", HEARTBEAT, 1, heartbeat(g, "a", 2))
    stage.call("an epoch too high", HEARTBEAT, 1, heartbeat(g, "a", 9))
    stage.call("nobody", HEARTBEAT, 1, heartbeat(g, "x", 3))
    stage.call("nobody leaves", HEARTBEAT, 1, heartbeat(g, "x", -1))
    stage.call("an instance that is not", HEARTBEAT, 1, heartbeat(g, "a", 3, instance_id="i"))
    for name, epoch, identity in (
        ("own", 3, "a"),
        ("old", 2, "a"),
        ("older", 1, "a"),
        ("next", 4, "a"),
        ("none", 3, "x"),
    ):
        stage.call(
            f"commit, {name} epoch", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, epoch, identity, "consumer-in")
        )
    stage.call("commit in an old version", ApiKey.OFFSET_COMMIT, 8, offset_commit_request(g, 3, "a", "consumer-in"))
    stage.call("commit from outside", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, -1, "", "consumer-in"))
    for name, member, epoch in (("a", "a", 3), ("stale", "a", 2), ("nobody", "x", 3), ("from outside", None, -1)):
        stage.call(f"positions, {name}", ApiKey.OFFSET_FETCH, 9, offset_fetch_request(g, member, epoch))
    for states, types in (([], ["consumer"]), (["stable"], ["CONSUMER"]), (["Assigning"], []), ([], ["nonsense"])):
        stage.call(f"list {states} {types}", ApiKey.LIST_GROUPS, 5, list_groups.ListGroupsRequest(states, types))
    _other_kinds(stage, g, own)
    _ends(stage, g, own)


def _ends(stage: ScenarioSession, g: str, own: bytes) -> None:
    """Let the two members select another assignor, and leave."""
    wanted = offset_delete.OffsetDeleteRequestTopic("consumer-in", [offset_delete.OffsetDeleteRequestPartition(0)])
    stage.call(
        "forget a position that is read", ApiKey.OFFSET_DELETE, 0, offset_delete.OffsetDeleteRequest(g, [wanted])
    )
    stage.call("delete while alive", ApiKey.DELETE_GROUPS, 2, delete_groups_request(g))
    stage.call("a wants the range assignor", HEARTBEAT, 1, heartbeat(g, "a", 3, {own: [0, 1]}, server_assignor="range"))
    describe_group(stage, g, "one for each assignor")
    stage.call("b joins anew", HEARTBEAT, 1, join(g, "b", "consumer-in", server_assignor="range"))
    describe_group(stage, g, "both want range")
    stage.call("b leaves", HEARTBEAT, 1, heartbeat(g, "b", -1))
    stage.call("a gets all of it", HEARTBEAT, 1, heartbeat(g, "a", 3, {own: [0, 1]}))
    stage.call("b beats once more", HEARTBEAT, 1, heartbeat(g, "b", 4))
    stage.call(
        "a wants nothing", HEARTBEAT, 1, heartbeat(g, "a", member_epoch(stage, g, "a"), subscribed_topic_names=[])
    )
    describe_group(stage, g, "nothing wanted")
    stage.call("a leaves", HEARTBEAT, 1, heartbeat(g, "a", -1))
    describe_group(stage, g, "empty")
    stage.call("forget a position", ApiKey.OFFSET_DELETE, 0, offset_delete.OffsetDeleteRequest(g, [wanted]))
    stage.call("positions then", ApiKey.OFFSET_FETCH, 9, offset_fetch_request(g))
    stage.call("c begins anew", HEARTBEAT, 1, join(g, "c", "consumer-in"))
    stage.call("c leaves", HEARTBEAT, 1, heartbeat(g, "c", -1))
    stage.call("delete", ApiKey.DELETE_GROUPS, 2, delete_groups_request(g))
    describe_group(stage, g, "dead")


def member_epoch(stage: ScenarioSession, group: str, member: str) -> int:
    """Return the epoch of a member in the description of the group."""
    row = stage["a"].call(DESCRIBE, 1, consumer_group_describe.ConsumerGroupDescribeRequest([group])).groups[0]
    epoch: int = next(each.member_epoch for each in row.members if each.member_id == member)
    return epoch


def _other_kinds(stage: ScenarioSession, group: str, topic_id: bytes) -> None:
    """Describe a consumer group as a group of each other kind."""
    stage.call("as a classic group", ApiKey.DESCRIBE_GROUPS, 6, describe_groups.DescribeGroupsRequest([group]))
    stage.call("as a share group", ApiKey.SHARE_GROUP_DESCRIBE, 1, shd.ShareGroupDescribeRequest([group]))
    stage.call("as a streams group", ApiKey.STREAMS_GROUP_DESCRIBE, 0, std.StreamsGroupDescribeRequest([group]))
    joins = shb.ShareGroupHeartbeatRequest(group, "s", 0, None, ["consumer-in"])
    stage.call("a member of a share group", ApiKey.SHARE_GROUP_HEARTBEAT, 1, joins)
    thread = sth.StreamsGroupHeartbeatRequest(group, "t", 0, rebalance_timeout_ms=1000, process_id="p")
    thread.topology = sth.Topology(0, [sth.Subtopology("0", ["consumer-in"])])
    thread.active_tasks, thread.standby_tasks, thread.warmup_tasks = [], [], []
    stage.call("a thread of a streams group", ApiKey.STREAMS_GROUP_HEARTBEAT, 0, thread)


def consumer_static(stage: ScenarioSession) -> None:
    """Let a static member leave, rejoin with another member id, and conflict with an existing instance."""
    own = stage.topic("consumer-static", 2)
    g = "consumer-static"
    prepare_group(stage, g)
    stage.call("a joins", HEARTBEAT, 1, join(g, "a", g, instance_id="i"))
    stage.call("another while a is there", HEARTBEAT, 1, join(g, "b", g, instance_id="i"))
    stage.call("a as another instance", HEARTBEAT, 1, heartbeat(g, "a", 2, instance_id="k"))
    stage.call("a goes on", HEARTBEAT, 1, heartbeat(g, "a", 2, {own: [0, 1]}, instance_id="i"))
    stage.call("a without its instance", HEARTBEAT, 1, heartbeat(g, "a", 2, {own: [0, 1]}))
    stage.call("a pauses", HEARTBEAT, 1, heartbeat(g, "a", -2, instance_id="i"))
    describe_group(stage, g, "a pauses")
    stage.call("a pauses again", HEARTBEAT, 1, heartbeat(g, "a", -2, instance_id="i"))
    stage.call("commit while away", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, 2, "a", g, 0, "i"))
    stage.call("b comes back as a", HEARTBEAT, 1, join(g, "b", g, instance_id="i"))
    describe_group(stage, g, "b is here")
    stage.call("a beats", HEARTBEAT, 1, heartbeat(g, "a", 2, instance_id="i"))
    stage.call("a leaves", HEARTBEAT, 1, heartbeat(g, "a", -1, instance_id="i"))
    stage.call("b goes on", HEARTBEAT, 1, heartbeat(g, "b", 2, {own: [0, 1]}, instance_id="i"))
    stage.call("commit of the old one", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, 2, "a", g, 0, "i"))
    stage.call("commit of the new one", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, 2, "b", g, 0, "i"))
    stage.call("c joins", HEARTBEAT, 1, join(g, "c", g, instance_id="k"))
    stage.call("b gives up", HEARTBEAT, 1, heartbeat(g, "b", 2, {own: [0, 1]}, instance_id="i"))
    stage.call("b pauses while it gives up", HEARTBEAT, 1, heartbeat(g, "b", -2, instance_id="i"))
    stage.call("c goes on", HEARTBEAT, 1, heartbeat(g, "c", 3, {}, instance_id="k"))
    describe_group(stage, g, "c beside one who is away")
    stage.call("d comes back as b, and wants another", HEARTBEAT, 1, join(g, "d", "consumer-in", instance_id="i"))
    describe_group(stage, g, "d wants another")
    gone = [
        leave_group.MemberIdentity("", "i"),
        leave_group.MemberIdentity("", "x"),
        leave_group.MemberIdentity("c", "k"),
        leave_group.MemberIdentity("n"),
    ]
    stage.call("removed by an administrator", ApiKey.LEAVE_GROUP, 5, leave_group.LeaveGroupRequest(g, members=gone))
    describe_group(stage, g, "nobody is left")


def consumer_patterns(stage: ScenarioSession) -> None:
    """Subscribe by regular expression, with topics that are created, extended and deleted."""
    stage.topic("consumer-re-1", 1)
    g = "consumer-patterns"
    prepare_group(stage, g)
    stage.call(
        "a joins", HEARTBEAT, 1, join(g, "a", subscribed_topic_names=None, subscribed_topic_regex="consumer-re-.*")
    )
    peer = stage["a"]

    def has(count: int) -> bool:
        peer.call(HEARTBEAT, 1, heartbeat(g, "a", member_epoch(stage, g, "a"), {}))
        row = peer.call(DESCRIBE, 1, consumer_group_describe.ConsumerGroupDescribeRequest([g])).groups[0]
        return sum(len(x.partitions) for x in row.members[0].assignment.topic_partitions) == count

    wait_until(lambda: has(1))
    describe_group(stage, g, "one topic")
    stage.call(
        "the same pattern",
        HEARTBEAT,
        1,
        heartbeat(g, "a", member_epoch(stage, g, "a"), subscribed_topic_regex="consumer-re-.*"),
    )
    grows = create_partitions.CreatePartitionsRequest(
        [create_partitions.CreatePartitionsTopic("consumer-re-1", 3, None)], 10_000
    )
    stage.call("it grows", ApiKey.CREATE_PARTITIONS, 3, grows)
    stage.wait_until_current()
    wait_until(lambda: has(3))
    describe_group(stage, g, "three partitions")
    stage.call(
        "a name beside it",
        HEARTBEAT,
        1,
        heartbeat(g, "a", member_epoch(stage, g, "a"), subscribed_topic_names=["consumer-in"]),
    )
    wait_until(lambda: has(7))
    describe_group(stage, g, "a name, too")
    stage.call("only the name", HEARTBEAT, 1, heartbeat(g, "a", member_epoch(stage, g, "a"), subscribed_topic_regex=""))
    for bad in ("[", "(", "a(?=b)"):
        response = peer.call(HEARTBEAT, 1, heartbeat(g, "a", member_epoch(stage, g, "a"), subscribed_topic_regex=bad))
        # the message of an invalid regular expression differs
        stage.record_normalized(f"a bad pattern {bad}", response.error_code)
    describe_group(stage, g, "only the name")
    gone = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState("consumer-re-1")], timeout_ms=10_000)
    stage.call(
        "the name of what goes",
        HEARTBEAT,
        1,
        heartbeat(g, "a", member_epoch(stage, g, "a"), subscribed_topic_names=["consumer-re-1"]),
    )
    stage.call("the topic goes", ApiKey.DELETE_TOPICS, 6, gone)
    stage.wait_until_current()
    wait_until(lambda: has(0))
    describe_group(stage, g, "its topic is gone")
    stage.call("a leaves", HEARTBEAT, 1, heartbeat(g, "a", -1))
    describe_group(stage, g, "empty")
