"""Scenarios of groups between the two protocols: classic groups that are upgraded and downgraded, and others."""

from __future__ import annotations

from typing import Any

from compat_tests.vs_kafka.scenarios.classic_group_scenarios import subscription
from compat_tests.vs_kafka.scenarios.consumer_group_scenarios import (
    HEARTBEAT,
    describe_group,
    heartbeat,
    join,
    member_epoch,
    offset_commit_request,
    offset_fetch_request,
    prepare_group,
)
from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import describe_groups, join_group, sync_group
from ottla.wire.messages import heartbeat as beat
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity


def _classic(group: str, member: str, instance: str | None = None, *names: str, topics: tuple[str, ...] = ()) -> Any:
    raw = subscription(*(topics or ("consumer-both",)))
    protocols = [join_group.JoinGroupRequestProtocol(name, raw) for name in names or ("range",)]
    return join_group.JoinGroupRequest(group, 50_000, 60_000, member, instance, "consumer", protocols)


def _sync(group: str, generation: int, member: str, name: str | None = "range", kind: str | None = "consumer") -> Any:
    return sync_group.SyncGroupRequest(group, generation, member, None, kind, name, [])


def consumer_and_classic(stage: ScenarioSession) -> None:
    """Upgrade a classic group to the new protocol with its member in it for a while, and downgrade it again."""
    own = stage.topic("consumer-both", 2)
    g = "consumer-both"
    prepare_group(stage, g)
    member = stage.call("c asks for an id", ApiKey.JOIN_GROUP, 9, _classic(g, ""), "c").member_id
    stage.call("c joins", ApiKey.JOIN_GROUP, 9, _classic(g, member), "c")
    stage.call("a while c has not synced", HEARTBEAT, 1, join(g, "a", "consumer-in"))
    rows = [sync_group.SyncGroupRequestAssignment(member, b"")]
    stage.call(
        "c syncs", ApiKey.SYNC_GROUP, 5, sync_group.SyncGroupRequest(g, 1, member, None, "consumer", "range", rows), "c"
    )
    describe_group(stage, g, "both")
    stage.call("c beats", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, 1, member), "c")
    stage.call("c beats in the new way", HEARTBEAT, 1, heartbeat(g, member, 1), "c")
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
    stage.call(
        "a wants it, too", HEARTBEAT, 1, heartbeat(g, "a", member_epoch(stage, g, "a"), {}, subscribed_topic_names=[g])
    )
    stage.call("c hears of it", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, epoch, member), "c")
    epoch = stage.call("c joins for less", ApiKey.JOIN_GROUP, 9, _classic(g, member), "c").generation_id
    stage.call("c syncs less", ApiKey.SYNC_GROUP, 5, _sync(g, epoch, member), "c")
    describe_group(stage, g, "c gives up")
    stage.call("a waits", HEARTBEAT, 1, heartbeat(g, "a", member_epoch(stage, g, "a"), {}))
    stage.call("an unknown one joins", ApiKey.JOIN_GROUP, 9, _classic(g, "nobody"), "d")
    stage.call("an unknown one leaves", ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(g, members=[MemberIdentity("x")]))
    stage.call("describe as classic", ApiKey.DESCRIBE_GROUPS, 6, describe_groups.DescribeGroupsRequest([g]))
    stage.call("a leaves", HEARTBEAT, 1, heartbeat(g, "a", -1))
    stage.call("describe as classic then", ApiKey.DESCRIBE_GROUPS, 6, describe_groups.DescribeGroupsRequest([g]))
    describe_group(stage, g, "it is a classic group")
    stage.call("c beats after that", ApiKey.HEARTBEAT, 4, beat.HeartbeatRequest(g, epoch, member), "c")
    stage.call("positions stay", ApiKey.OFFSET_FETCH, 9, offset_fetch_request(g))
    stage.call("c leaves", ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(g, members=[MemberIdentity(member)]), "c")
    stage.call("a in an empty classic group", HEARTBEAT, 1, join(g, "a", g))
    stage.call("positions of the new group", ApiKey.OFFSET_FETCH, 9, offset_fetch_request(g))
    stage.call("a goes on", HEARTBEAT, 1, heartbeat(g, "a", 2, {own: [0, 1]}))
    stage.call("a leaves that", HEARTBEAT, 1, heartbeat(g, "a", -1))
    member = stage.call("c in an empty new group", ApiKey.JOIN_GROUP, 9, _classic(g, ""), "e").member_id
    stage.call("c begins anew", ApiKey.JOIN_GROUP, 9, _classic(g, member), "e")
    stage.call("describe as classic at last", ApiKey.DESCRIBE_GROUPS, 6, describe_groups.DescribeGroupsRequest([g]))
    stage.call("c is gone", ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(g, members=[MemberIdentity(member)]), "e")


def consumer_beside_foreign_groups(stage: ScenarioSession) -> None:
    """Join classic groups that cannot be upgraded."""
    stage.topic("consumer-odd", 1)
    for name, kind, raw in (
        ("connect", "connect", b"x"),
        ("garbage", "consumer", b"\x00"),
        ("future", "consumer", b""),
    ):
        g = f"consumer-odd-{name}"
        prepare_group(stage, g)
        request = _classic(g, "")
        request.protocol_type, request.protocols = kind, [join_group.JoinGroupRequestProtocol("range", raw)]
        request.member_id = stage.call(f"{name}: an id", ApiKey.JOIN_GROUP, 9, request, name).member_id
        stage.call(f"{name}: joins", ApiKey.JOIN_GROUP, 9, request, name)
        rows = [sync_group.SyncGroupRequestAssignment(request.member_id, b"")]
        synced = sync_group.SyncGroupRequest(g, 1, request.member_id, None, kind, "range", rows)
        stage.call(f"{name}: syncs", ApiKey.SYNC_GROUP, 5, synced, name)
        stage.call(f"{name}: a new member", HEARTBEAT, 1, join(g, "a", "consumer-odd"))
        stage.call(f"{name}: describe", ApiKey.DESCRIBE_GROUPS, 6, describe_groups.DescribeGroupsRequest([g]))
        describe_group(stage, g, f"{name} as a new group")
