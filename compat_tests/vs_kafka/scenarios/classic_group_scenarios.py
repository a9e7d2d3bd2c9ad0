"""Scenarios of classic groups: members that join, leave, expire and rejoin; offsets without members."""

from __future__ import annotations

import time

from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.messages import delete_groups as dgr
from ottla.wire.messages import (
    delete_topics,
    describe_groups,
    join_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity


def subscription(*topics: str) -> bytes:
    """Return the subscription of a consumer."""
    return b"\x00\x01" + compiler.encode(ConsumerProtocolSubscription(list(topics)), 1)


def _join(
    group: str,
    member: str = "",
    instance: str | None = None,
    kind: str = "consumer",
    names: tuple[str, ...] = ("range",),
    topics: tuple[str, ...] = ("stories",),
) -> join_group.JoinGroupRequest:
    protocols = [join_group.JoinGroupRequestProtocol(name, subscription(*topics)) for name in names]
    return join_group.JoinGroupRequest(group, 30_000, 60_000, member, instance, kind, protocols)


def _sync(group: str, generation: int, member: str, shares: dict[str, bytes], instance: str | None = None) -> Message:
    rows = [sync_group.SyncGroupRequestAssignment(m, a) for m, a in shares.items()]
    return sync_group.SyncGroupRequest(group, generation, member, instance, "consumer", "range", rows)


def commit(group: str, generation: int = -1, member: str = "", topic: str = "stories", offset: int = 3) -> Message:
    """Return a request that commits an offset of one partition."""
    part = offset_commit.OffsetCommitRequestPartition(0, offset, -1, "m")
    return offset_commit.OffsetCommitRequest(
        group, generation, member, topics=[offset_commit.OffsetCommitRequestTopic(topic, partitions=[part])]
    )


def _positions(group: str) -> Message:
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group, topics=None)])


def _enter(stage: ScenarioSession, group: str, client: str) -> str:
    """Join to get a member id."""
    refused = stage.call(f"{client} asks for an id", ApiKey.JOIN_GROUP, 9, _join(group), client)
    member: str = refused.member_id
    return member


def _look(stage: ScenarioSession, group: str, when: str) -> None:
    stage.call(f"describe {when}", ApiKey.DESCRIBE_GROUPS, 6, describe_groups.DescribeGroupsRequest([group]), "looker")


def two_members(stage: ScenarioSession) -> None:
    """Join and leave: a group of one, of two, of one, of no member."""
    stage.topic("stories", 2)
    g = "two-members"
    one = _enter(stage, g, "one")
    stage.call("beat before joining", ApiKey.HEARTBEAT, 4, HeartbeatRequest(g, 0, one), "one")
    stage.call("one joins", ApiKey.JOIN_GROUP, 9, _join(g, one), "one")
    _look(stage, g, "completing")
    stage.call("commit while completing", ApiKey.OFFSET_COMMIT, 9, commit(g, 1, one), "one")
    stage.call("beat while completing", ApiKey.HEARTBEAT, 4, HeartbeatRequest(g, 1, one), "one")
    stage.call("sync of another generation", ApiKey.SYNC_GROUP, 5, _sync(g, 7, one, {}), "one")
    wrong = sync_group.SyncGroupRequest(g, 1, one, None, "consumer", "roundrobin", [])
    stage.call("sync of another protocol", ApiKey.SYNC_GROUP, 5, wrong, "one")
    stage.call("one syncs", ApiKey.SYNC_GROUP, 5, _sync(g, 1, one, {one: b"all"}), "one")
    _look(stage, g, "stable")
    stage.call("rejoin, leader, unchanged", ApiKey.JOIN_GROUP, 9, _join(g, one), "one")
    stage.call("one syncs again", ApiKey.SYNC_GROUP, 5, _sync(g, 2, one, {one: b"all"}), "one")
    two = _enter(stage, g, "two")
    stage["two"].send(ApiKey.JOIN_GROUP, 9, _join(g, two))
    for _ in range(3000):
        beat = stage["one"].call(ApiKey.HEARTBEAT, 4, HeartbeatRequest(g, 2, one))
        if beat.error_code:
            break
        time.sleep(0.02)
    stage.record("one learns of the rebalance", beat)
    _look(stage, g, "preparing")
    stage.call("commit while preparing", ApiKey.OFFSET_COMMIT, 9, commit(g, 2, one), "one")
    stage.call("sync while preparing", ApiKey.SYNC_GROUP, 5, _sync(g, 2, one, {}), "one")
    stage.call("one rejoins", ApiKey.JOIN_GROUP, 9, _join(g, one), "one")
    stage.record("two is in", stage["two"].receive(ApiKey.JOIN_GROUP, 9))
    stage["two"].send(ApiKey.SYNC_GROUP, 5, _sync(g, 3, two, {}))
    time.sleep(0.1)
    stage.call("one hands out", ApiKey.SYNC_GROUP, 5, _sync(g, 3, one, {one: b"first", two: b"second"}), "one")
    stage.record("two's share", stage["two"].receive(ApiKey.SYNC_GROUP, 5))
    stage.call("commit, old generation", ApiKey.OFFSET_COMMIT, 9, commit(g, 2, one), "one")
    stage.call("commit, nobody's", ApiKey.OFFSET_COMMIT, 9, commit(g, 3, "nobody"), "one")
    stage.call("commit, no generation", ApiKey.OFFSET_COMMIT, 9, commit(g), "one")
    stage.call("commit", ApiKey.OFFSET_COMMIT, 9, commit(g, 3, one), "one")
    stage.call("delete while alive", ApiKey.DELETE_GROUPS, 2, dgr.DeleteGroupsRequest([g]), "one")
    wanted = offset_delete.OffsetDeleteRequestTopic("stories", [offset_delete.OffsetDeleteRequestPartition(0)])
    stage.call(
        "forget a position that is read", ApiKey.OFFSET_DELETE, 0, offset_delete.OffsetDeleteRequest(g, [wanted]), "one"
    )
    stage.call("two leaves", ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(g, members=[MemberIdentity(two)]), "two")
    stage.call("one beats", ApiKey.HEARTBEAT, 4, HeartbeatRequest(g, 3, one), "one")
    stage.call("two beats", ApiKey.HEARTBEAT, 4, HeartbeatRequest(g, 3, two), "two")
    stage.call("one is alone", ApiKey.JOIN_GROUP, 9, _join(g, one), "one")
    stage.call("one syncs alone", ApiKey.SYNC_GROUP, 5, _sync(g, 4, one, {one: b"all"}), "one")
    stage.call("one leaves", ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(g, members=[MemberIdentity(one)]), "one")
    _look(stage, g, "empty")
    stage.call("positions", ApiKey.OFFSET_FETCH, 9, _positions(g))
    stage.call("forget a position", ApiKey.OFFSET_DELETE, 0, offset_delete.OffsetDeleteRequest(g, [wanted]), "one")
    stage.call("positions then", ApiKey.OFFSET_FETCH, 9, _positions(g))
    stage.call("delete", ApiKey.DELETE_GROUPS, 2, dgr.DeleteGroupsRequest([g]), "one")
    _look(stage, g, "dead")


def old_versions(stage: ScenarioSession) -> None:
    """Join without a member id, in every version that allows it."""
    for version in (0, 1, 2, 3):
        g = f"old-{version}"
        joined = stage.call(f"join v{version}", ApiKey.JOIN_GROUP, version, _join(g), g)
        rows = [sync_group.SyncGroupRequestAssignment(joined.member_id, b"all")]
        request = sync_group.SyncGroupRequest(g, joined.generation_id, joined.member_id, assignments=rows)
        stage.call(f"sync v{min(version, 2)}", ApiKey.SYNC_GROUP, min(version, 2), request, g)
        stage.call("list", ApiKey.DESCRIBE_GROUPS, min(version, 4), describe_groups.DescribeGroupsRequest([g]), g)
        leave = LeaveGroupRequest(g, joined.member_id)
        stage.call(f"leave v{min(version, 2)}", ApiKey.LEAVE_GROUP, min(version, 2), leave, g)


def protocols(stage: ScenarioSession) -> None:
    """Join with incompatible protocols."""
    g = "protocols"
    for kind, names in (("", ("range",)), ("consumer", ()), ("consumer", ("range", "sticky"))):
        member = _enter(stage, g, "fit")
        stage.call(f"join {kind!r} {names}", ApiKey.JOIN_GROUP, 9, _join(g, member, kind=kind, names=names), "fit")
    for kind, names in (("connect", ("range",)), ("consumer", ("other",)), ("", ("range",)), ("consumer", ())):
        stage.call(f"new {kind!r} {names}", ApiKey.JOIN_GROUP, 9, _join(g, kind=kind, names=names), "other")
    for session in (5_999, 1_800_001, -1):
        request = join_group.JoinGroupRequest(g, session, 60_000, "", None, "consumer", _join(g).protocols)
        stage.call(f"session {session}", ApiKey.JOIN_GROUP, 9, request, "other")


def static_members(stage: ScenarioSession) -> None:
    """Rejoin as a static member with a new id; the old one is fenced."""
    g = "static"
    first = stage.call("join", ApiKey.JOIN_GROUP, 9, _join(g, instance="i1"), "one")
    shares = {first.member_id: b"all"}
    stage.call("sync", ApiKey.SYNC_GROUP, 5, _sync(g, 1, first.member_id, shares, "i1"), "one")
    back = stage.call("back under a new id", ApiKey.JOIN_GROUP, 9, _join(g, instance="i1"), "again")
    stage.call("and syncs", ApiKey.SYNC_GROUP, 5, _sync(g, 1, back.member_id, {}, "i1"), "again")
    stage.call("the old self beats", ApiKey.HEARTBEAT, 4, HeartbeatRequest(g, 1, first.member_id, "i1"), "one")
    stage.call("and without instance", ApiKey.HEARTBEAT, 4, HeartbeatRequest(g, 1, first.member_id), "one")
    stage.call("another instance", ApiKey.HEARTBEAT, 4, HeartbeatRequest(g, 1, back.member_id, "i9"), "one")
    fenced = commit(g, 1, first.member_id)
    fenced.group_instance_id = "i1"  # type: ignore[attr-defined]
    stage.call("the old self commits", ApiKey.OFFSET_COMMIT, 9, fenced, "one")
    _look(stage, g, "with a static member")
    old = stage.call("back in v4 of sync and v8 of join", ApiKey.JOIN_GROUP, 8, _join(g, instance="i1"), "third")
    stage.call("old sync", ApiKey.SYNC_GROUP, 5, _sync(g, 1, old.member_id, {}, "i1"), "third")
    gone = [MemberIdentity("", "i1"), MemberIdentity("", "i7"), MemberIdentity("nobody")]
    stage.call("leave by instance", ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(g, members=gone), "third")
    _look(stage, g, "without it")


def simple_consumers(stage: ScenarioSession) -> None:
    """Commit offsets without members."""
    g = "simple"
    stage.call("nothing there", ApiKey.OFFSET_FETCH, 9, _positions(g))
    stage.call("commit", ApiKey.OFFSET_COMMIT, 9, commit(g))
    _look(stage, g, "simple")
    stage.call("commit with a generation", ApiKey.OFFSET_COMMIT, 9, commit(g, 5))
    stage.call("commit as somebody", ApiKey.OFFSET_COMMIT, 9, commit(g, -1, "somebody"))
    stage.call("offset -5", ApiKey.OFFSET_COMMIT, 9, commit(g, offset=-5))
    stage.call("positions", ApiKey.OFFSET_FETCH, 9, _positions(g))
    stage.call("delete", ApiKey.DELETE_GROUPS, 2, dgr.DeleteGroupsRequest([g]))
    stage.call("positions then", ApiKey.OFFSET_FETCH, 9, _positions(g))


def deleted_topic(stage: ScenarioSession) -> None:
    """Delete and create a topic with committed offsets."""
    g = "of-a-deleted-topic"
    stage.topic("short-lived")
    stage.call("commit", ApiKey.OFFSET_COMMIT, 9, commit(g, topic="short-lived"))
    gone = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState("short-lived")], timeout_ms=10_000)
    stage.call("delete the topic", ApiKey.DELETE_TOPICS, 6, gone)
    stage.wait_until_current()
    stage.call("positions", ApiKey.OFFSET_FETCH, 9, _positions(g))
    _look(stage, g, "of a deleted topic")
    stage.topic("short-lived")
    stage.call("positions of the new topic", ApiKey.OFFSET_FETCH, 9, _positions(g))
    stage.call("commit again", ApiKey.OFFSET_COMMIT, 9, commit(g, topic="short-lived", offset=1))
    stage.call("positions then", ApiKey.OFFSET_FETCH, 9, _positions(g))
