"""Stories of consumer groups (KIP-848): members that join, hand over, fall behind, come back; patterns; old and new."""

from __future__ import annotations

from typing import Any

from compat_tests.support.raw_client import wait_until
from compat_tests.vs_kafka.scenarios.classic_group_scenarios import subscription
from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import consumer_group_describe as cd
from ottla.wire.messages import consumer_group_heartbeat as hb
from ottla.wire.messages import create_partitions as cp
from ottla.wire.messages import delete_groups as dgr
from ottla.wire.messages import delete_topics as dt
from ottla.wire.messages import describe_groups as dg
from ottla.wire.messages import find_coordinator as fc
from ottla.wire.messages import heartbeat as beat
from ottla.wire.messages import join_group as j
from ottla.wire.messages import leave_group as lg
from ottla.wire.messages import list_groups as ls
from ottla.wire.messages import offset_commit as oc
from ottla.wire.messages import offset_delete as od
from ottla.wire.messages import offset_fetch as of
from ottla.wire.messages import share_group_describe as shd
from ottla.wire.messages import share_group_heartbeat as shb
from ottla.wire.messages import streams_group_describe as std
from ottla.wire.messages import streams_group_heartbeat as sth
from ottla.wire.messages import sync_group as sg

GROUP = 32
HEARTBEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
AssignedPartitionsById = dict[bytes, list[int]]


def _owned(has: AssignedPartitionsById) -> list[hb.ConsumerGroupHeartbeatRequestTopicPartitions]:
    return [hb.ConsumerGroupHeartbeatRequestTopicPartitions(topic, numbers) for topic, numbers in has.items()]


def _join(group: str, member: str, *topics: str, **fields: Any) -> Any:
    said = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": list(topics), "topic_partitions": []}
    return hb.ConsumerGroupHeartbeatRequest(**{"group_id": group, "member_id": member, **said, **fields})


def _beat(group: str, member: str, epoch: int, has: AssignedPartitionsById | None = None, **fields: Any) -> Any:
    if has is not None:
        fields["topic_partitions"] = _owned(has)
    return hb.ConsumerGroupHeartbeatRequest(group, member, epoch, **fields)


def prepare_group(stage: ScenarioSession, group: str, setting: str = "consumer.assignment.interval.ms") -> None:
    """A group that waits for nothing between two targets, and whose coordinator is there."""
    stage.alter_configs(f"settings of {group}", GROUP, group, (setting, 0, "0"))
    peer = stage["a"]

    def is_led() -> bool:
        peer.call(ApiKey.FIND_COORDINATOR, 4, fc.FindCoordinatorRequest(coordinator_keys=[group]))
        row = peer.call(DESCRIBE, 1, cd.ConsumerGroupDescribeRequest([group])).groups[0]
        return row.error_code not in (14, 15, 16)

    wait_until(is_led)
    stage.wait_until_current()


def describe_group(stage: ScenarioSession, group: str, when: str, version: int = 1) -> None:
    """Describe it."""
    stage.call(f"describe {when}", DESCRIBE, version, cd.ConsumerGroupDescribeRequest([group], True), "looker")


def offset_commit_request(
    group: str, epoch: int, member: str, topic: str, partition: int = 0, instance: str | None = None
) -> Any:
    """A commit of one partition."""
    part = oc.OffsetCommitRequestPartition(partition, 3, -1, "m")
    rows = [oc.OffsetCommitRequestTopic(topic, partitions=[part])]
    return oc.OffsetCommitRequest(group, epoch, member, instance, topics=rows)


def offset_fetch_request(group: str, member: str | None = None, epoch: int = -1) -> Any:
    """All of a group's positions, asked by somebody."""
    return of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group, member, epoch, None)])


def delete_groups_request(group: str) -> Any:
    """A group is to go."""
    return dgr.DeleteGroupsRequest([group])


def consumer_refusals(stage: ScenarioSession) -> None:
    """What a group does not take."""
    stage.topic("consumer-none", 1)
    g = "consumer-refusals"
    prepare_group(stage, g)
    for version in (0, 1):
        describe_group(stage, g, f"nothing, v{version}", version)
        describe_group(stage, "", f"no name, v{version}", version)
        stage.call(f"nobody's beat v{version}", HEARTBEAT, version, _beat(g, "a", 5))
        stage.call(f"nobody leaves v{version}", HEARTBEAT, version, _beat(g, "a", -1))
        stage.call(f"nobody pauses v{version}", HEARTBEAT, version, _beat(g, "a", -2, instance_id="i"))
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
    for number, (what, fields) in enumerate(odd.items()):
        stage.call(
            what, HEARTBEAT, 1, _join(f"{g}-{number}", "a", "consumer-none", **{"group_id": f"{g}-{number}", **fields})
        )
    stage.call("no id needed in v0", HEARTBEAT, 0, _join(f"{g}-v0", "", "consumer-none"))
    stage.call("an id that is needed later", HEARTBEAT, 0, _beat(g, "", 3))
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
    several = cd.ConsumerGroupDescribeRequest([g, "", "x", f"{g}-v0"])
    stage.call("describe several", DESCRIBE, 1, several)


def consumer_handover(stage: ScenarioSession) -> None:
    """Two members share partitions; one falls behind, one goes."""
    own = stage.topic("consumer-in", 4)
    g = "consumer-handover"
    prepare_group(stage, g)
    stage.call("a joins", HEARTBEAT, 1, _join(g, "a", "consumer-in", rack_id="r"))
    describe_group(stage, g, "one member")
    stage.call("a goes on", HEARTBEAT, 1, _beat(g, "a", 2, {own: [0, 1, 2, 3]}))
    stage.call("a says nothing new", HEARTBEAT, 1, _beat(g, "a", 2))
    stage.call(
        "a says it all again",
        HEARTBEAT,
        1,
        _join(g, "a", "consumer-in", member_epoch=2, topic_partitions=_owned({own: [0, 1, 2, 3]})),
    )
    stage.call("b joins", HEARTBEAT, 1, _join(g, "b", "consumer-in"))
    describe_group(stage, g, "b waits")
    stage.call("b beats", HEARTBEAT, 1, _beat(g, "b", 3, {}))
    stage.call("a is to give up", HEARTBEAT, 1, _beat(g, "a", 2, {own: [0, 1, 2, 3]}))
    describe_group(stage, g, "a gives up")
    describe_group(stage, g, "a gives up, v0", 0)
    stage.call("a is not done", HEARTBEAT, 1, _beat(g, "a", 2, {own: [0, 1, 2, 3]}))
    stage.call("a says nothing of it", HEARTBEAT, 1, _beat(g, "a", 2))
    for number in (0, 2, 3):
        stage.call(
            f"commit of {number} meanwhile",
            ApiKey.OFFSET_COMMIT,
            9,
            offset_commit_request(g, 2, "a", "consumer-in", number),
        )
    stage.call("b beats too early", HEARTBEAT, 1, _beat(g, "b", 3, {}))
    stage.call("commit of what b has not", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, 3, "b", "consumer-in", 3))
    stage.call("a has given up", HEARTBEAT, 1, _beat(g, "a", 2, {own: [0, 1]}))
    stage.call("b has it", HEARTBEAT, 1, _beat(g, "b", 3, {}))
    describe_group(stage, g, "two members")
    stage.call("the epoch before", HEARTBEAT, 1, _beat(g, "a", 2, {own: [0]}))
    stage.call("the epoch before, other partitions", HEARTBEAT, 1, _beat(g, "a", 2, {own: [2]}))
    stage.call("the epoch before, nothing told", HEARTBEAT, 1, _beat(g, "a", 2))
    stage.call("an epoch too high", HEARTBEAT, 1, _beat(g, "a", 9))
    stage.call("nobody", HEARTBEAT, 1, _beat(g, "x", 3))
    stage.call("nobody leaves", HEARTBEAT, 1, _beat(g, "x", -1))
    stage.call("an instance that is not", HEARTBEAT, 1, _beat(g, "a", 3, instance_id="i"))
    for name, epoch, who in (("own", 3, "a"), ("old", 2, "a"), ("older", 1, "a"), ("next", 4, "a"), ("none", 3, "x")):
        stage.call(
            f"commit, {name} epoch", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, epoch, who, "consumer-in")
        )
    stage.call("commit in an old version", ApiKey.OFFSET_COMMIT, 8, offset_commit_request(g, 3, "a", "consumer-in"))
    stage.call("commit from outside", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, -1, "", "consumer-in"))
    for name, member, epoch in (("a", "a", 3), ("stale", "a", 2), ("nobody", "x", 3), ("from outside", None, -1)):
        stage.call(f"positions, {name}", ApiKey.OFFSET_FETCH, 9, offset_fetch_request(g, member, epoch))
    for states, types in (([], ["consumer"]), (["stable"], ["CONSUMER"]), (["Assigning"], []), ([], ["nonsense"])):
        stage.call(f"list {states} {types}", ApiKey.LIST_GROUPS, 5, ls.ListGroupsRequest(states, types))
    _other_kinds(stage, g, own)
    _ends(stage, g, own)


def _ends(stage: ScenarioSession, g: str, own: bytes) -> None:
    """The two members of the handover want another assignor, and go."""
    wanted = od.OffsetDeleteRequestTopic("consumer-in", [od.OffsetDeleteRequestPartition(0)])
    stage.call("forget a position that is read", ApiKey.OFFSET_DELETE, 0, od.OffsetDeleteRequest(g, [wanted]))
    stage.call("delete while alive", ApiKey.DELETE_GROUPS, 2, delete_groups_request(g))
    stage.call("a wants the range assignor", HEARTBEAT, 1, _beat(g, "a", 3, {own: [0, 1]}, server_assignor="range"))
    describe_group(stage, g, "one for each assignor")
    stage.call("b joins anew", HEARTBEAT, 1, _join(g, "b", "consumer-in", server_assignor="range"))
    describe_group(stage, g, "both want range")
    stage.call("b leaves", HEARTBEAT, 1, _beat(g, "b", -1))
    stage.call("a gets all of it", HEARTBEAT, 1, _beat(g, "a", 3, {own: [0, 1]}))
    stage.call("b beats once more", HEARTBEAT, 1, _beat(g, "b", 4))
    stage.call("a wants nothing", HEARTBEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), subscribed_topic_names=[]))
    describe_group(stage, g, "nothing wanted")
    stage.call("a leaves", HEARTBEAT, 1, _beat(g, "a", -1))
    describe_group(stage, g, "empty")
    stage.call("forget a position", ApiKey.OFFSET_DELETE, 0, od.OffsetDeleteRequest(g, [wanted]))
    stage.call("positions then", ApiKey.OFFSET_FETCH, 9, offset_fetch_request(g))
    stage.call("c begins anew", HEARTBEAT, 1, _join(g, "c", "consumer-in"))
    stage.call("c leaves", HEARTBEAT, 1, _beat(g, "c", -1))
    stage.call("delete", ApiKey.DELETE_GROUPS, 2, delete_groups_request(g))
    describe_group(stage, g, "dead")


def _epoch(stage: ScenarioSession, group: str, member: str) -> int:
    row = stage["a"].call(DESCRIBE, 1, cd.ConsumerGroupDescribeRequest([group])).groups[0]
    epoch: int = next(each.member_epoch for each in row.members if each.member_id == member)
    return epoch


def _other_kinds(stage: ScenarioSession, group: str, topic_id: bytes) -> None:
    """A consumer group is asked for as a group of each other kind."""
    stage.call("as a classic group", ApiKey.DESCRIBE_GROUPS, 6, dg.DescribeGroupsRequest([group]))
    stage.call("as a share group", ApiKey.SHARE_GROUP_DESCRIBE, 1, shd.ShareGroupDescribeRequest([group]))
    stage.call("as a streams group", ApiKey.STREAMS_GROUP_DESCRIBE, 0, std.StreamsGroupDescribeRequest([group]))
    joins = shb.ShareGroupHeartbeatRequest(group, "s", 0, None, ["consumer-in"])
    stage.call("a member of a share group", ApiKey.SHARE_GROUP_HEARTBEAT, 1, joins)
    thread = sth.StreamsGroupHeartbeatRequest(group, "t", 0, rebalance_timeout_ms=1000, process_id="p")
    thread.topology = sth.Topology(0, [sth.Subtopology("0", ["consumer-in"])])
    thread.active_tasks, thread.standby_tasks, thread.warmup_tasks = [], [], []
    stage.call("a thread of a streams group", ApiKey.STREAMS_GROUP_HEARTBEAT, 0, thread)


def consumer_static(stage: ScenarioSession) -> None:
    """A static member goes, comes back as somebody else, and is in another's way."""
    own = stage.topic("consumer-static", 2)
    g = "consumer-static"
    prepare_group(stage, g)
    stage.call("a joins", HEARTBEAT, 1, _join(g, "a", g, instance_id="i"))
    stage.call("another while a is there", HEARTBEAT, 1, _join(g, "b", g, instance_id="i"))
    stage.call("a as another instance", HEARTBEAT, 1, _beat(g, "a", 2, instance_id="k"))
    stage.call("a goes on", HEARTBEAT, 1, _beat(g, "a", 2, {own: [0, 1]}, instance_id="i"))
    stage.call("a without its instance", HEARTBEAT, 1, _beat(g, "a", 2, {own: [0, 1]}))
    stage.call("a pauses", HEARTBEAT, 1, _beat(g, "a", -2, instance_id="i"))
    describe_group(stage, g, "a pauses")
    stage.call("a pauses again", HEARTBEAT, 1, _beat(g, "a", -2, instance_id="i"))
    stage.call("commit while away", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, 2, "a", g, 0, "i"))
    stage.call("b comes back as a", HEARTBEAT, 1, _join(g, "b", g, instance_id="i"))
    describe_group(stage, g, "b is here")
    stage.call("a beats", HEARTBEAT, 1, _beat(g, "a", 2, instance_id="i"))
    stage.call("a leaves", HEARTBEAT, 1, _beat(g, "a", -1, instance_id="i"))
    stage.call("b goes on", HEARTBEAT, 1, _beat(g, "b", 2, {own: [0, 1]}, instance_id="i"))
    stage.call("commit of the old one", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, 2, "a", g, 0, "i"))
    stage.call("commit of the new one", ApiKey.OFFSET_COMMIT, 9, offset_commit_request(g, 2, "b", g, 0, "i"))
    stage.call("c joins", HEARTBEAT, 1, _join(g, "c", g, instance_id="k"))
    stage.call("b gives up", HEARTBEAT, 1, _beat(g, "b", 2, {own: [0, 1]}, instance_id="i"))
    stage.call("b pauses while it gives up", HEARTBEAT, 1, _beat(g, "b", -2, instance_id="i"))
    stage.call("c goes on", HEARTBEAT, 1, _beat(g, "c", 3, {}, instance_id="k"))
    describe_group(stage, g, "c beside one who is away")
    stage.call("d comes back as b, and wants another", HEARTBEAT, 1, _join(g, "d", "consumer-in", instance_id="i"))
    describe_group(stage, g, "d wants another")
    gone = [lg.MemberIdentity("", "i"), lg.MemberIdentity("", "x"), lg.MemberIdentity("c", "k"), lg.MemberIdentity("n")]
    stage.call("removed by an administrator", ApiKey.LEAVE_GROUP, 5, lg.LeaveGroupRequest(g, members=gone))
    describe_group(stage, g, "nobody is left")


def consumer_patterns(stage: ScenarioSession) -> None:
    """Members that name topics by pattern; topics that come, grow and go."""
    stage.topic("consumer-re-1", 1)
    g = "consumer-patterns"
    prepare_group(stage, g)
    stage.call(
        "a joins", HEARTBEAT, 1, _join(g, "a", subscribed_topic_names=None, subscribed_topic_regex="consumer-re-.*")
    )
    peer = stage["a"]

    def has(count: int) -> bool:
        peer.call(HEARTBEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), {}))
        row = peer.call(DESCRIBE, 1, cd.ConsumerGroupDescribeRequest([g])).groups[0]
        return sum(len(x.partitions) for x in row.members[0].assignment.topic_partitions) == count

    wait_until(lambda: has(1))
    describe_group(stage, g, "one topic")
    stage.call(
        "the same pattern", HEARTBEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), subscribed_topic_regex="consumer-re-.*")
    )
    grows = cp.CreatePartitionsRequest([cp.CreatePartitionsTopic("consumer-re-1", 3, None)], 10_000)
    stage.call("it grows", ApiKey.CREATE_PARTITIONS, 3, grows)
    stage.wait_until_current()
    wait_until(lambda: has(3))
    describe_group(stage, g, "three partitions")
    stage.call(
        "a name beside it", HEARTBEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), subscribed_topic_names=["consumer-in"])
    )
    wait_until(lambda: has(7))
    describe_group(stage, g, "a name, too")
    stage.call("only the name", HEARTBEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), subscribed_topic_regex=""))
    for bad in ("[", "(", "a(?=b)"):
        told = peer.call(HEARTBEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), subscribed_topic_regex=bad))
        stage.record_normalized(f"a bad pattern {bad}", told.error_code)  # who finds it bad has its own words for it
    describe_group(stage, g, "only the name")
    gone = dt.DeleteTopicsRequest([dt.DeleteTopicState("consumer-re-1")], timeout_ms=10_000)
    stage.call(
        "the name of what goes",
        HEARTBEAT,
        1,
        _beat(g, "a", _epoch(stage, g, "a"), subscribed_topic_names=["consumer-re-1"]),
    )
    stage.call("the topic goes", ApiKey.DELETE_TOPICS, 6, gone)
    stage.wait_until_current()
    wait_until(lambda: has(0))
    describe_group(stage, g, "its topic is gone")
    stage.call("a leaves", HEARTBEAT, 1, _beat(g, "a", -1))
    describe_group(stage, g, "empty")


def _classic(group: str, member: str, instance: str | None = None, *names: str, topics: tuple[str, ...] = ()) -> Any:
    raw = subscription(*(topics or ("consumer-both",)))
    protocols = [j.JoinGroupRequestProtocol(name, raw) for name in names or ("range",)]
    return j.JoinGroupRequest(group, 50_000, 60_000, member, instance, "consumer", protocols)


def _sync(group: str, generation: int, member: str, name: str | None = "range", kind: str | None = "consumer") -> Any:
    return sg.SyncGroupRequest(group, generation, member, None, kind, name, [])


def consumer_and_classic(stage: ScenarioSession) -> None:
    """A classic group is taken over by the new protocol, its member stays for a while, and it is given back."""
    own = stage.topic("consumer-both", 2)
    g = "consumer-both"
    prepare_group(stage, g)
    member = stage.call("c asks for an id", ApiKey.JOIN_GROUP, 9, _classic(g, ""), "c").member_id
    stage.call("c joins", ApiKey.JOIN_GROUP, 9, _classic(g, member), "c")
    stage.call("a while c has not synced", HEARTBEAT, 1, _join(g, "a", "consumer-in"))
    rows = [sg.SyncGroupRequestAssignment(member, b"")]
    stage.call("c syncs", ApiKey.SYNC_GROUP, 5, sg.SyncGroupRequest(g, 1, member, None, "consumer", "range", rows), "c")
    describe_group(stage, g, "both")
    stage.call("c beats", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, 1, member), "c")
    stage.call("c beats in the new way", HEARTBEAT, 1, _beat(g, member, 1), "c")
    stage.call("c syncs a wrong protocol", ApiKey.SYNC_GROUP, 5, _sync(g, 1, member, "other"), "c")
    stage.call("c syncs a wrong kind", ApiKey.SYNC_GROUP, 5, _sync(g, 1, member, kind="connect"), "c")
    stage.call("c syncs a wrong generation", ApiKey.SYNC_GROUP, 5, _sync(g, 7, member), "c")
    stage.call("c joins with what nobody has", ApiKey.JOIN_GROUP, 9, _classic(g, member, None, "other"), "c")
    again = stage.call("c joins again", ApiKey.JOIN_GROUP, 9, _classic(g, member), "c")
    stage.call("c syncs again", ApiKey.SYNC_GROUP, 5, _sync(g, again.generation_id, member), "c")
    describe_group(stage, g, "c has joined again")
    epoch = again.generation_id
    stage.call("c beats once more", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, epoch, member), "c")
    stage.call("c beats an old generation", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, epoch - 1, member), "c")
    stage.call("c commits", ApiKey.OFFSET_COMMIT, 8, offset_commit_request(g, epoch, member, g), "c")
    stage.call(
        "c commits a later generation", ApiKey.OFFSET_COMMIT, 8, offset_commit_request(g, epoch + 1, member, g), "c"
    )
    stage.call("a beats in the old way", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, epoch, "a"))
    stage.call("a syncs", ApiKey.SYNC_GROUP, 5, _sync(g, epoch, "a"))
    stage.call("a wants it, too", HEARTBEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), {}, subscribed_topic_names=[g]))
    stage.call("c hears of it", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, epoch, member), "c")
    epoch = stage.call("c joins for less", ApiKey.JOIN_GROUP, 9, _classic(g, member), "c").generation_id
    stage.call("c syncs less", ApiKey.SYNC_GROUP, 5, _sync(g, epoch, member), "c")
    describe_group(stage, g, "c gives up")
    stage.call("a waits", HEARTBEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), {}))
    stage.call("an unknown one joins", ApiKey.JOIN_GROUP, 9, _classic(g, "nobody"), "d")
    stage.call(
        "an unknown one leaves", ApiKey.LEAVE_GROUP, 5, lg.LeaveGroupRequest(g, members=[lg.MemberIdentity("x")])
    )
    stage.call("describe as classic", ApiKey.DESCRIBE_GROUPS, 6, dg.DescribeGroupsRequest([g]))
    stage.call("a leaves", HEARTBEAT, 1, _beat(g, "a", -1))
    stage.call("describe as classic then", ApiKey.DESCRIBE_GROUPS, 6, dg.DescribeGroupsRequest([g]))
    describe_group(stage, g, "it is a classic group")
    stage.call("c beats after that", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, epoch, member), "c")
    stage.call("positions stay", ApiKey.OFFSET_FETCH, 9, offset_fetch_request(g))
    stage.call("c leaves", ApiKey.LEAVE_GROUP, 5, lg.LeaveGroupRequest(g, members=[lg.MemberIdentity(member)]), "c")
    stage.call("a in an empty classic group", HEARTBEAT, 1, _join(g, "a", g))
    stage.call("positions of the new group", ApiKey.OFFSET_FETCH, 9, offset_fetch_request(g))
    stage.call("a goes on", HEARTBEAT, 1, _beat(g, "a", 2, {own: [0, 1]}))
    stage.call("a leaves that", HEARTBEAT, 1, _beat(g, "a", -1))
    member = stage.call("c in an empty new group", ApiKey.JOIN_GROUP, 9, _classic(g, ""), "e").member_id
    stage.call("c begins anew", ApiKey.JOIN_GROUP, 9, _classic(g, member), "e")
    stage.call("describe as classic at last", ApiKey.DESCRIBE_GROUPS, 6, dg.DescribeGroupsRequest([g]))
    stage.call("c is gone", ApiKey.LEAVE_GROUP, 5, lg.LeaveGroupRequest(g, members=[lg.MemberIdentity(member)]), "e")


def consumer_beside_strangers(stage: ScenarioSession) -> None:
    """Classic groups that the new protocol does not take over."""
    stage.topic("consumer-odd", 1)
    for name, kind, raw in (
        ("connect", "connect", b"x"),
        ("garbage", "consumer", b"\x00"),
        ("future", "consumer", b""),
    ):
        g = f"consumer-odd-{name}"
        prepare_group(stage, g)
        request = _classic(g, "")
        request.protocol_type, request.protocols = kind, [j.JoinGroupRequestProtocol("range", raw)]
        request.member_id = stage.call(f"{name}: an id", ApiKey.JOIN_GROUP, 9, request, name).member_id
        stage.call(f"{name}: joins", ApiKey.JOIN_GROUP, 9, request, name)
        rows = [sg.SyncGroupRequestAssignment(request.member_id, b"")]
        synced = sg.SyncGroupRequest(g, 1, request.member_id, None, kind, "range", rows)
        stage.call(f"{name}: syncs", ApiKey.SYNC_GROUP, 5, synced, name)
        stage.call(f"{name}: a new member", HEARTBEAT, 1, _join(g, "a", "consumer-odd"))
        stage.call(f"{name}: describe", ApiKey.DESCRIBE_GROUPS, 6, dg.DescribeGroupsRequest([g]))
        describe_group(stage, g, f"{name} as a new group")
