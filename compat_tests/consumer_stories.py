"""Stories of consumer groups (KIP-848): members that join, hand over, fall behind, come back; patterns; old and new."""

from __future__ import annotations

from typing import Any

from compat_tests.group_stories import subscription
from compat_tests.raw import until
from compat_tests.stage import Stage
from ottla.wire.apis import ApiKey
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
BEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
Held = dict[bytes, list[int]]


def _owned(has: Held) -> list[hb.ConsumerGroupHeartbeatRequestTopicPartitions]:
    return [hb.ConsumerGroupHeartbeatRequestTopicPartitions(topic, numbers) for topic, numbers in has.items()]


def _join(group: str, member: str, *topics: str, **fields: Any) -> Any:
    said = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": list(topics), "topic_partitions": []}
    return hb.ConsumerGroupHeartbeatRequest(**{"group_id": group, "member_id": member, **said, **fields})


def _beat(group: str, member: str, epoch: int, has: Held | None = None, **fields: Any) -> Any:
    if has is not None:
        fields["topic_partitions"] = _owned(has)
    return hb.ConsumerGroupHeartbeatRequest(group, member, epoch, **fields)


def ready(stage: Stage, group: str, setting: str = "consumer.assignment.interval.ms") -> None:
    """A group that waits for nothing between two targets, and whose coordinator is there."""
    stage.change(f"settings of {group}", GROUP, group, (setting, 0, "0"))
    peer = stage["a"]

    def is_led() -> bool:
        peer.call(ApiKey.FIND_COORDINATOR, 4, fc.FindCoordinatorRequest(coordinator_keys=[group]))
        row = peer.call(DESCRIBE, 1, cd.ConsumerGroupDescribeRequest([group])).groups[0]
        return row.error_code not in (14, 15, 16)

    until(is_led)
    stage.settle()


def look(stage: Stage, group: str, when: str, version: int = 1) -> None:
    """Describe it."""
    stage.say(f"describe {when}", DESCRIBE, version, cd.ConsumerGroupDescribeRequest([group], True), "looker")


def commit(group: str, epoch: int, member: str, topic: str, partition: int = 0, instance: str | None = None) -> Any:
    """A commit of one partition."""
    part = oc.OffsetCommitRequestPartition(partition, 3, -1, "m")
    rows = [oc.OffsetCommitRequestTopic(topic, partitions=[part])]
    return oc.OffsetCommitRequest(group, epoch, member, instance, topics=rows)


def positions(group: str, member: str | None = None, epoch: int = -1) -> Any:
    """All of a group's positions, asked by somebody."""
    return of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group, member, epoch, None)])


def delete(group: str) -> Any:
    """A group is to go."""
    return dgr.DeleteGroupsRequest([group])


def consumer_refusals(stage: Stage) -> None:
    """What a group does not take."""
    stage.topic("consumer-none", 1)
    g = "consumer-refusals"
    ready(stage, g)
    for version in (0, 1):
        look(stage, g, f"nothing, v{version}", version)
        look(stage, "", f"no name, v{version}", version)
        stage.say(f"nobody's beat v{version}", BEAT, version, _beat(g, "a", 5))
        stage.say(f"nobody leaves v{version}", BEAT, version, _beat(g, "a", -1))
        stage.say(f"nobody pauses v{version}", BEAT, version, _beat(g, "a", -2, instance_id="i"))
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
        stage.say(
            what, BEAT, 1, _join(f"{g}-{number}", "a", "consumer-none", **{"group_id": f"{g}-{number}", **fields})
        )
    stage.say("no id needed in v0", BEAT, 0, _join(f"{g}-v0", "", "consumer-none"))
    stage.say("an id that is needed later", BEAT, 0, _beat(g, "", 3))
    look(stage, g, "still nothing")
    stage.say("commit to nothing with an epoch", ApiKey.OFFSET_COMMIT, 9, commit(g, 5, "a", "consumer-none"))
    stage.say("commit to nothing in an old version", ApiKey.OFFSET_COMMIT, 8, commit(g, 5, "a", "consumer-none"))
    stage.say("positions of nothing as somebody", ApiKey.OFFSET_FETCH, 9, positions(g, "a", 5))
    stage.say("delete nothing", ApiKey.DELETE_GROUPS, 2, delete(g))
    several = cd.ConsumerGroupDescribeRequest([g, "", "x", f"{g}-v0"])
    stage.say("describe several", DESCRIBE, 1, several)


def consumer_handover(stage: Stage) -> None:
    """Two members share partitions; one falls behind, one goes."""
    own = stage.topic("consumer-in", 4)
    g = "consumer-handover"
    ready(stage, g)
    stage.say("a joins", BEAT, 1, _join(g, "a", "consumer-in", rack_id="r"))
    look(stage, g, "one member")
    stage.say("a goes on", BEAT, 1, _beat(g, "a", 2, {own: [0, 1, 2, 3]}))
    stage.say("a says nothing new", BEAT, 1, _beat(g, "a", 2))
    stage.say(
        "a says it all again",
        BEAT,
        1,
        _join(g, "a", "consumer-in", member_epoch=2, topic_partitions=_owned({own: [0, 1, 2, 3]})),
    )
    stage.say("b joins", BEAT, 1, _join(g, "b", "consumer-in"))
    look(stage, g, "b waits")
    stage.say("b beats", BEAT, 1, _beat(g, "b", 3, {}))
    stage.say("a is to give up", BEAT, 1, _beat(g, "a", 2, {own: [0, 1, 2, 3]}))
    look(stage, g, "a gives up")
    look(stage, g, "a gives up, v0", 0)
    stage.say("a is not done", BEAT, 1, _beat(g, "a", 2, {own: [0, 1, 2, 3]}))
    stage.say("a says nothing of it", BEAT, 1, _beat(g, "a", 2))
    for number in (0, 2, 3):
        stage.say(f"commit of {number} meanwhile", ApiKey.OFFSET_COMMIT, 9, commit(g, 2, "a", "consumer-in", number))
    stage.say("b beats too early", BEAT, 1, _beat(g, "b", 3, {}))
    stage.say("commit of what b has not", ApiKey.OFFSET_COMMIT, 9, commit(g, 3, "b", "consumer-in", 3))
    stage.say("a has given up", BEAT, 1, _beat(g, "a", 2, {own: [0, 1]}))
    stage.say("b has it", BEAT, 1, _beat(g, "b", 3, {}))
    look(stage, g, "two members")
    stage.say("the epoch before", BEAT, 1, _beat(g, "a", 2, {own: [0]}))
    stage.say("the epoch before, other partitions", BEAT, 1, _beat(g, "a", 2, {own: [2]}))
    stage.say("the epoch before, nothing told", BEAT, 1, _beat(g, "a", 2))
    stage.say("an epoch too high", BEAT, 1, _beat(g, "a", 9))
    stage.say("nobody", BEAT, 1, _beat(g, "x", 3))
    stage.say("nobody leaves", BEAT, 1, _beat(g, "x", -1))
    stage.say("an instance that is not", BEAT, 1, _beat(g, "a", 3, instance_id="i"))
    for name, epoch, who in (("own", 3, "a"), ("old", 2, "a"), ("older", 1, "a"), ("next", 4, "a"), ("none", 3, "x")):
        stage.say(f"commit, {name} epoch", ApiKey.OFFSET_COMMIT, 9, commit(g, epoch, who, "consumer-in"))
    stage.say("commit in an old version", ApiKey.OFFSET_COMMIT, 8, commit(g, 3, "a", "consumer-in"))
    stage.say("commit from outside", ApiKey.OFFSET_COMMIT, 9, commit(g, -1, "", "consumer-in"))
    for name, member, epoch in (("a", "a", 3), ("stale", "a", 2), ("nobody", "x", 3), ("from outside", None, -1)):
        stage.say(f"positions, {name}", ApiKey.OFFSET_FETCH, 9, positions(g, member, epoch))
    for states, types in (([], ["consumer"]), (["stable"], ["CONSUMER"]), (["Assigning"], []), ([], ["nonsense"])):
        stage.say(f"list {states} {types}", ApiKey.LIST_GROUPS, 5, ls.ListGroupsRequest(states, types))
    _other_kinds(stage, g, own)
    _ends(stage, g, own)


def _ends(stage: Stage, g: str, own: bytes) -> None:
    """The two members of the handover want another assignor, and go."""
    wanted = od.OffsetDeleteRequestTopic("consumer-in", [od.OffsetDeleteRequestPartition(0)])
    stage.say("forget a position that is read", ApiKey.OFFSET_DELETE, 0, od.OffsetDeleteRequest(g, [wanted]))
    stage.say("delete while alive", ApiKey.DELETE_GROUPS, 2, delete(g))
    stage.say("a wants the range assignor", BEAT, 1, _beat(g, "a", 3, {own: [0, 1]}, server_assignor="range"))
    look(stage, g, "one for each assignor")
    stage.say("b joins anew", BEAT, 1, _join(g, "b", "consumer-in", server_assignor="range"))
    look(stage, g, "both want range")
    stage.say("b leaves", BEAT, 1, _beat(g, "b", -1))
    stage.say("a gets all of it", BEAT, 1, _beat(g, "a", 3, {own: [0, 1]}))
    stage.say("b beats once more", BEAT, 1, _beat(g, "b", 4))
    stage.say("a wants nothing", BEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), subscribed_topic_names=[]))
    look(stage, g, "nothing wanted")
    stage.say("a leaves", BEAT, 1, _beat(g, "a", -1))
    look(stage, g, "empty")
    stage.say("forget a position", ApiKey.OFFSET_DELETE, 0, od.OffsetDeleteRequest(g, [wanted]))
    stage.say("positions then", ApiKey.OFFSET_FETCH, 9, positions(g))
    stage.say("c begins anew", BEAT, 1, _join(g, "c", "consumer-in"))
    stage.say("c leaves", BEAT, 1, _beat(g, "c", -1))
    stage.say("delete", ApiKey.DELETE_GROUPS, 2, delete(g))
    look(stage, g, "dead")


def _epoch(stage: Stage, group: str, member: str) -> int:
    row = stage["a"].call(DESCRIBE, 1, cd.ConsumerGroupDescribeRequest([group])).groups[0]
    epoch: int = next(each.member_epoch for each in row.members if each.member_id == member)
    return epoch


def _other_kinds(stage: Stage, group: str, topic_id: bytes) -> None:
    """A consumer group is asked for as a group of each other kind."""
    stage.say("as a classic group", ApiKey.DESCRIBE_GROUPS, 6, dg.DescribeGroupsRequest([group]))
    stage.say("as a share group", ApiKey.SHARE_GROUP_DESCRIBE, 1, shd.ShareGroupDescribeRequest([group]))
    stage.say("as a streams group", ApiKey.STREAMS_GROUP_DESCRIBE, 0, std.StreamsGroupDescribeRequest([group]))
    joins = shb.ShareGroupHeartbeatRequest(group, "s", 0, None, ["consumer-in"])
    stage.say("a member of a share group", ApiKey.SHARE_GROUP_HEARTBEAT, 1, joins)
    thread = sth.StreamsGroupHeartbeatRequest(group, "t", 0, rebalance_timeout_ms=1000, process_id="p")
    thread.topology = sth.Topology(0, [sth.Subtopology("0", ["consumer-in"])])
    thread.active_tasks, thread.standby_tasks, thread.warmup_tasks = [], [], []
    stage.say("a thread of a streams group", ApiKey.STREAMS_GROUP_HEARTBEAT, 0, thread)


def consumer_static(stage: Stage) -> None:
    """A static member goes, comes back as somebody else, and is in another's way."""
    own = stage.topic("consumer-static", 2)
    g = "consumer-static"
    ready(stage, g)
    stage.say("a joins", BEAT, 1, _join(g, "a", g, instance_id="i"))
    stage.say("another while a is there", BEAT, 1, _join(g, "b", g, instance_id="i"))
    stage.say("a as another instance", BEAT, 1, _beat(g, "a", 2, instance_id="k"))
    stage.say("a goes on", BEAT, 1, _beat(g, "a", 2, {own: [0, 1]}, instance_id="i"))
    stage.say("a without its instance", BEAT, 1, _beat(g, "a", 2, {own: [0, 1]}))
    stage.say("a pauses", BEAT, 1, _beat(g, "a", -2, instance_id="i"))
    look(stage, g, "a pauses")
    stage.say("a pauses again", BEAT, 1, _beat(g, "a", -2, instance_id="i"))
    stage.say("commit while away", ApiKey.OFFSET_COMMIT, 9, commit(g, 2, "a", g, 0, "i"))
    stage.say("b comes back as a", BEAT, 1, _join(g, "b", g, instance_id="i"))
    look(stage, g, "b is here")
    stage.say("a beats", BEAT, 1, _beat(g, "a", 2, instance_id="i"))
    stage.say("a leaves", BEAT, 1, _beat(g, "a", -1, instance_id="i"))
    stage.say("b goes on", BEAT, 1, _beat(g, "b", 2, {own: [0, 1]}, instance_id="i"))
    stage.say("commit of the old one", ApiKey.OFFSET_COMMIT, 9, commit(g, 2, "a", g, 0, "i"))
    stage.say("commit of the new one", ApiKey.OFFSET_COMMIT, 9, commit(g, 2, "b", g, 0, "i"))
    stage.say("c joins", BEAT, 1, _join(g, "c", g, instance_id="k"))
    stage.say("b gives up", BEAT, 1, _beat(g, "b", 2, {own: [0, 1]}, instance_id="i"))
    stage.say("b pauses while it gives up", BEAT, 1, _beat(g, "b", -2, instance_id="i"))
    stage.say("c goes on", BEAT, 1, _beat(g, "c", 3, {}, instance_id="k"))
    look(stage, g, "c beside one who is away")
    stage.say("d comes back as b, and wants another", BEAT, 1, _join(g, "d", "consumer-in", instance_id="i"))
    look(stage, g, "d wants another")
    gone = [lg.MemberIdentity("", "i"), lg.MemberIdentity("", "x"), lg.MemberIdentity("c", "k"), lg.MemberIdentity("n")]
    stage.say("removed by an administrator", ApiKey.LEAVE_GROUP, 5, lg.LeaveGroupRequest(g, members=gone))
    look(stage, g, "nobody is left")


def consumer_patterns(stage: Stage) -> None:
    """Members that name topics by pattern; topics that come, grow and go."""
    stage.topic("consumer-re-1", 1)
    g = "consumer-patterns"
    ready(stage, g)
    stage.say("a joins", BEAT, 1, _join(g, "a", subscribed_topic_names=None, subscribed_topic_regex="consumer-re-.*"))
    peer = stage["a"]

    def has(count: int) -> bool:
        peer.call(BEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), {}))
        row = peer.call(DESCRIBE, 1, cd.ConsumerGroupDescribeRequest([g])).groups[0]
        return sum(len(x.partitions) for x in row.members[0].assignment.topic_partitions) == count

    until(lambda: has(1))
    look(stage, g, "one topic")
    stage.say(
        "the same pattern", BEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), subscribed_topic_regex="consumer-re-.*")
    )
    grows = cp.CreatePartitionsRequest([cp.CreatePartitionsTopic("consumer-re-1", 3, None)], 10_000)
    stage.say("it grows", ApiKey.CREATE_PARTITIONS, 3, grows)
    stage.settle()
    until(lambda: has(3))
    look(stage, g, "three partitions")
    stage.say("a name beside it", BEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), subscribed_topic_names=["consumer-in"]))
    until(lambda: has(7))
    look(stage, g, "a name, too")
    stage.say("only the name", BEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), subscribed_topic_regex=""))
    for bad in ("[", "(", "a(?=b)"):
        told = peer.call(BEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), subscribed_topic_regex=bad))
        stage.tell(f"a bad pattern {bad}", told.error_code)  # who finds it bad has its own words for it
    look(stage, g, "only the name")
    gone = dt.DeleteTopicsRequest([dt.DeleteTopicState("consumer-re-1")], timeout_ms=10_000)
    stage.say(
        "the name of what goes",
        BEAT,
        1,
        _beat(g, "a", _epoch(stage, g, "a"), subscribed_topic_names=["consumer-re-1"]),
    )
    stage.say("the topic goes", ApiKey.DELETE_TOPICS, 6, gone)
    stage.settle()
    until(lambda: has(0))
    look(stage, g, "its topic is gone")
    stage.say("a leaves", BEAT, 1, _beat(g, "a", -1))
    look(stage, g, "empty")


def _classic(group: str, member: str, instance: str | None = None, *names: str, topics: tuple[str, ...] = ()) -> Any:
    raw = subscription(*(topics or ("consumer-both",)))
    protocols = [j.JoinGroupRequestProtocol(name, raw) for name in names or ("range",)]
    return j.JoinGroupRequest(group, 50_000, 60_000, member, instance, "consumer", protocols)


def _sync(group: str, generation: int, member: str, name: str | None = "range", kind: str | None = "consumer") -> Any:
    return sg.SyncGroupRequest(group, generation, member, None, kind, name, [])


def consumer_and_classic(stage: Stage) -> None:
    """A classic group is taken over by the new protocol, its member stays for a while, and it is given back."""
    own = stage.topic("consumer-both", 2)
    g = "consumer-both"
    ready(stage, g)
    member = stage.say("c asks for an id", ApiKey.JOIN_GROUP, 9, _classic(g, ""), "c").member_id
    stage.say("c joins", ApiKey.JOIN_GROUP, 9, _classic(g, member), "c")
    stage.say("a while c has not synced", BEAT, 1, _join(g, "a", "consumer-in"))
    rows = [sg.SyncGroupRequestAssignment(member, b"")]
    stage.say("c syncs", ApiKey.SYNC_GROUP, 5, sg.SyncGroupRequest(g, 1, member, None, "consumer", "range", rows), "c")
    look(stage, g, "both")
    stage.say("c beats", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, 1, member), "c")
    stage.say("c beats in the new way", BEAT, 1, _beat(g, member, 1), "c")
    stage.say("c syncs a wrong protocol", ApiKey.SYNC_GROUP, 5, _sync(g, 1, member, "other"), "c")
    stage.say("c syncs a wrong kind", ApiKey.SYNC_GROUP, 5, _sync(g, 1, member, kind="connect"), "c")
    stage.say("c syncs a wrong generation", ApiKey.SYNC_GROUP, 5, _sync(g, 7, member), "c")
    stage.say("c joins with what nobody has", ApiKey.JOIN_GROUP, 9, _classic(g, member, None, "other"), "c")
    again = stage.say("c joins again", ApiKey.JOIN_GROUP, 9, _classic(g, member), "c")
    stage.say("c syncs again", ApiKey.SYNC_GROUP, 5, _sync(g, again.generation_id, member), "c")
    look(stage, g, "c has joined again")
    epoch = again.generation_id
    stage.say("c beats once more", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, epoch, member), "c")
    stage.say("c beats an old generation", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, epoch - 1, member), "c")
    stage.say("c commits", ApiKey.OFFSET_COMMIT, 8, commit(g, epoch, member, g), "c")
    stage.say("c commits a later generation", ApiKey.OFFSET_COMMIT, 8, commit(g, epoch + 1, member, g), "c")
    stage.say("a beats in the old way", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, epoch, "a"))
    stage.say("a syncs", ApiKey.SYNC_GROUP, 5, _sync(g, epoch, "a"))
    stage.say("a wants it, too", BEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), {}, subscribed_topic_names=[g]))
    stage.say("c hears of it", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, epoch, member), "c")
    epoch = stage.say("c joins for less", ApiKey.JOIN_GROUP, 9, _classic(g, member), "c").generation_id
    stage.say("c syncs less", ApiKey.SYNC_GROUP, 5, _sync(g, epoch, member), "c")
    look(stage, g, "c gives up")
    stage.say("a waits", BEAT, 1, _beat(g, "a", _epoch(stage, g, "a"), {}))
    stage.say("an unknown one joins", ApiKey.JOIN_GROUP, 9, _classic(g, "nobody"), "d")
    stage.say("an unknown one leaves", ApiKey.LEAVE_GROUP, 5, lg.LeaveGroupRequest(g, members=[lg.MemberIdentity("x")]))
    stage.say("describe as classic", ApiKey.DESCRIBE_GROUPS, 6, dg.DescribeGroupsRequest([g]))
    stage.say("a leaves", BEAT, 1, _beat(g, "a", -1))
    stage.say("describe as classic then", ApiKey.DESCRIBE_GROUPS, 6, dg.DescribeGroupsRequest([g]))
    look(stage, g, "it is a classic group")
    stage.say("c beats after that", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, epoch, member), "c")
    stage.say("positions stay", ApiKey.OFFSET_FETCH, 9, positions(g))
    stage.say("c leaves", ApiKey.LEAVE_GROUP, 5, lg.LeaveGroupRequest(g, members=[lg.MemberIdentity(member)]), "c")
    stage.say("a in an empty classic group", BEAT, 1, _join(g, "a", g))
    stage.say("positions of the new group", ApiKey.OFFSET_FETCH, 9, positions(g))
    stage.say("a goes on", BEAT, 1, _beat(g, "a", 2, {own: [0, 1]}))
    stage.say("a leaves that", BEAT, 1, _beat(g, "a", -1))
    member = stage.say("c in an empty new group", ApiKey.JOIN_GROUP, 9, _classic(g, ""), "e").member_id
    stage.say("c begins anew", ApiKey.JOIN_GROUP, 9, _classic(g, member), "e")
    stage.say("describe as classic at last", ApiKey.DESCRIBE_GROUPS, 6, dg.DescribeGroupsRequest([g]))
    stage.say("c is gone", ApiKey.LEAVE_GROUP, 5, lg.LeaveGroupRequest(g, members=[lg.MemberIdentity(member)]), "e")


def consumer_beside_strangers(stage: Stage) -> None:
    """Classic groups that the new protocol does not take over."""
    stage.topic("consumer-odd", 1)
    for name, kind, raw in (
        ("connect", "connect", b"x"),
        ("garbage", "consumer", b"\x00"),
        ("future", "consumer", b""),
    ):
        g = f"consumer-odd-{name}"
        ready(stage, g)
        request = _classic(g, "")
        request.protocol_type, request.protocols = kind, [j.JoinGroupRequestProtocol("range", raw)]
        request.member_id = stage.say(f"{name}: an id", ApiKey.JOIN_GROUP, 9, request, name).member_id
        stage.say(f"{name}: joins", ApiKey.JOIN_GROUP, 9, request, name)
        rows = [sg.SyncGroupRequestAssignment(request.member_id, b"")]
        synced = sg.SyncGroupRequest(g, 1, request.member_id, None, kind, "range", rows)
        stage.say(f"{name}: syncs", ApiKey.SYNC_GROUP, 5, synced, name)
        stage.say(f"{name}: a new member", BEAT, 1, _join(g, "a", "consumer-odd"))
        stage.say(f"{name}: describe", ApiKey.DESCRIBE_GROUPS, 6, dg.DescribeGroupsRequest([g]))
        look(stage, g, f"{name} as a new group")
