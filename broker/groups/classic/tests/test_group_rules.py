"""Classic groups. G is ``GroupMetadataManager.java``, C ``ClassicGroup.java``, O ``OffsetMetadataManager.java``."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.classic.classic_group import ClassicGroupState
from ottla.broker.groups.classic.tests.test_groups import GroupShardFixture, stable
from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.offset_commit import CommitOffsets
from ottla.broker.groups.state_machine import DeleteGroup, DeleteOffsets
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import heartbeat, leave_group, sync_group
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

PARKED = None
STATES = {
    "empty": ClassicGroupState.EMPTY,
    "preparing": ClassicGroupState.PREPARING_REBALANCE,
    "completing": ClassicGroupState.COMPLETING_REBALANCE,
    "stable": ClassicGroupState.STABLE,
}


def in_state(name: str, **settings: int) -> tuple[GroupShardFixture, list[str]]:
    """Return a group of a leader and a follower in a state and their ids; no group exists in state "nobody"."""
    if name == "nobody":
        return GroupShardFixture(**settings), ["c-leader", "c-follower"]
    shard, members = stable(2)
    if name == "empty":
        leave(shard, [leave_group.MemberIdentity(m) for m in members])
    elif name == "preparing":
        shard.join("leader comes", members[0])
    elif name == "completing":
        shard.join("leader comes", members[0])
        shard.join("follower comes", members[1])
    assert shard.group.state is STATES[name]
    shard.machine.classic_groups.settings = shard.machine.classic_groups.settings._replace(**settings)
    return shard, members


def generation_of(shard: GroupShardFixture) -> int:
    group = shard.machine.classic_groups.groups.get("g")
    return 0 if group is None else group.generation


def leave(shard: GroupShardFixture, members: list[leave_group.MemberIdentity], version: int = 5) -> Any:
    shard.answers.pop("leave", None)
    request = leave_group.LeaveGroupRequest(
        "g", members[0].member_id if version < 3 else "", members if version >= 3 else []
    )
    return shard.send("leave", request, version)


HEARTBEAT = [
    ("nobody", 1, 0, "UNKNOWN_MEMBER_ID", "G classicGroupHeartbeat"),
    ("empty", 1, 0, "UNKNOWN_MEMBER_ID", "C validateMember"),
    ("preparing", 1, 0, "REBALANCE_IN_PROGRESS", "G classicGroupHeartbeatToClassicGroup, P-88"),
    ("completing", 1, 0, "NONE", "G classicGroupHeartbeatToClassicGroup: as in a stable group"),
    ("stable", 1, 0, "NONE", "G classicGroupHeartbeatToClassicGroup"),
    ("stable", 1, -1, "ILLEGAL_GENERATION", "G validateClassicGroupHeartbeat"),
    ("stable", 1, 1, "ILLEGAL_GENERATION", "G validateClassicGroupHeartbeat"),
    ("stable", None, 0, "UNKNOWN_MEMBER_ID", "C validateMember"),
    ("stable", None, 1, "UNKNOWN_MEMBER_ID", "G validateClassicGroupHeartbeat: the member is looked at first"),
]


@pytest.mark.parametrize(("state", "index", "ahead", "code", "source"), HEARTBEAT)
def test_heartbeat_by_group_state_returns_code(
    state: str, index: int | None, ahead: int, code: str, source: str
) -> None:
    shard, members = in_state(state)
    member = "stranger" if index is None else members[index]
    assert shard.beat(member, generation_of(shard) + ahead) == ErrorCode[code], source


@pytest.mark.parametrize("state", ["preparing", "completing", "stable"])
def test_heartbeat_of_a_member_renews_its_session(state: str) -> None:
    shard, members = in_state(state)
    shard.wait(9_000)
    shard.beat(members[1], shard.group.generation)
    shard.wait(9_000)
    assert members[1] in shard.group.members


SYNC = [
    ("nobody", 1, 0, {}, "UNKNOWN_MEMBER_ID", "G classicGroupSync"),
    ("empty", 1, 0, {}, "UNKNOWN_MEMBER_ID", "G classicGroupSync"),
    ("preparing", 1, 0, {}, "REBALANCE_IN_PROGRESS", "G classicGroupSyncToClassicGroup"),
    ("completing", 1, 0, {}, PARKED, "G: a follower waits for the leader"),
    ("completing", 0, 0, {}, "NONE", "G: the leader brings the assignment"),
    ("stable", 1, 0, {}, "NONE", "G: the assignment there is"),
    ("stable", 1, -1, {}, "ILLEGAL_GENERATION", "G validateSyncGroup"),
    ("stable", None, -1, {}, "UNKNOWN_MEMBER_ID", "G validateSyncGroup: the member is looked at first"),
    ("stable", 1, -1, {"protocol_type": "other"}, "ILLEGAL_GENERATION", "G validateSyncGroup: the type last"),
    ("stable", 1, 0, {"protocol_type": "other"}, "INCONSISTENT_GROUP_PROTOCOL", "G isProtocolInconsistent"),
    ("stable", 1, 0, {"protocol_name": "other"}, "INCONSISTENT_GROUP_PROTOCOL", "G isProtocolInconsistent"),
    ("stable", 1, 0, {"protocol_type": None, "protocol_name": None}, "NONE", "G isProtocolInconsistent: before v5"),
    ("completing", 1, 0, {"protocol_name": "other"}, "INCONSISTENT_GROUP_PROTOCOL", "G isProtocolInconsistent"),
]


@pytest.mark.parametrize(("state", "index", "ahead", "fields", "code", "source"), SYNC)
def test_sync_group_by_state(
    state: str, index: int | None, ahead: int, fields: dict[str, Any], code: str | None, source: str
) -> None:
    shard, members = in_state(state)
    member = "stranger" if index is None else members[index]
    request = sync_group.SyncGroupRequest("g", generation_of(shard) + ahead, member, None, "consumer", "range")
    for name, value in fields.items():
        setattr(request, name, value)
    answer = shard.send("sync", request, 5)
    assert (PARKED if answer is None else ErrorCode(answer.error_code).name) == code, source


def test_sync_group_without_selected_protocol_is_not_inconsistent() -> None:
    shard = GroupShardFixture(initial_rebalance_delay_ms=3000)
    member = shard.enter("a")
    request = sync_group.SyncGroupRequest("g", 0, member, None, "consumer", "whatever")
    assert shard.send("sync", request, 5).error_code == ErrorCode.REBALANCE_IN_PROGRESS, (
        "G isProtocolInconsistent: null is not"
    )


def test_sync_and_join_group_empty_group_id_returns_invalid_group_id() -> None:
    request = sync_group.SyncGroupRequest("", 0, "m")
    assert GroupShardFixture().send("sync", request, 5).error_code == ErrorCode.INVALID_GROUP_ID
    assert GroupShardFixture().send("join", JoinGroupRequest("", 10_000), 9).error_code == ErrorCode.INVALID_GROUP_ID


JOIN = [
    ("nobody", "", {"session_timeout_ms": 5_999}, "INVALID_SESSION_TIMEOUT", "GroupCoordinatorService.joinGroup"),
    ("nobody", "", {"session_timeout_ms": 6_000}, "MEMBER_ID_REQUIRED", "GroupCoordinatorService.joinGroup"),
    ("nobody", "", {"session_timeout_ms": 1_800_000}, "MEMBER_ID_REQUIRED", "GroupCoordinatorService.joinGroup"),
    ("nobody", "", {"session_timeout_ms": 1_800_001}, "INVALID_SESSION_TIMEOUT", "GroupCoordinatorService.joinGroup"),
    ("nobody", "known", {}, "UNKNOWN_MEMBER_ID", "G classicGroupJoinToClassicGroup: only the unknown make groups"),
    ("nobody", "", {"protocols": []}, "INCONSISTENT_GROUP_PROTOCOL", "C supportsProtocols of an empty group"),
    ("nobody", "", {"protocol_type": ""}, "INCONSISTENT_GROUP_PROTOCOL", "C supportsProtocols of an empty group"),
    ("empty", "known", {}, "UNKNOWN_MEMBER_ID", "C validateMember"),
    ("empty", "", {"protocol_type": "connect"}, "MEMBER_ID_REQUIRED", "C supportsProtocols: an empty group takes any"),
    ("stable", "", {"protocol_type": "connect"}, "INCONSISTENT_GROUP_PROTOCOL", "C supportsProtocols: its own type"),
    ("stable", "stranger", {}, "UNKNOWN_MEMBER_ID", "C validateMember"),
    ("stable", "", {}, "MEMBER_ID_REQUIRED", "P-85"),
    ("preparing", "", {}, "MEMBER_ID_REQUIRED", "P-85"),
]


@pytest.mark.parametrize(("state", "member", "fields", "code", "source"), JOIN)
def test_join_group_invalid_returns_code(
    state: str, member: str, fields: dict[str, Any], code: str, source: str
) -> None:
    shard, _ = in_state(state)
    request = JoinGroupRequest("g", 10_000, 30_000, member, None, "consumer", [JoinGroupRequestProtocol("range", b"x")])
    for name, value in fields.items():
        setattr(request, name, value)
    answer = shard.send("join", request, 9)
    assert answer.error_code == ErrorCode[code], source
    assert answer.member_id == ("c-id-join" if code == "MEMBER_ID_REQUIRED" else member)
    assert (answer.generation_id, answer.protocol_name) == (-1, None)


def test_join_group_refused_before_v7_returns_empty_protocol() -> None:
    assert GroupShardFixture().join("a", "x", version=6).protocol_name == ""


def test_join_group_refused_creates_empty_group() -> None:
    shard = GroupShardFixture()
    assert shard.join("a", names=()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.group.state is ClassicGroupState.EMPTY, "G classicGroupJoinToClassicGroup: isNewGroup"


# (state, group.max.size, joining member, whether it is admitted)
SIZE_LIMITS = [
    ("empty", 1, "", True, "G acceptJoiningMember: EMPTY"),
    ("stable", 2, "", False, "G acceptJoiningMember: STABLE counts members"),
    ("stable", 3, "", True, "G acceptJoiningMember: STABLE counts members"),
    ("stable", 1, "follower", True, "G acceptJoiningMember: who is in may come back"),
    ("completing", 2, "", False, "G acceptJoiningMember: COMPLETING_REBALANCE counts members"),
    ("completing", 1, "follower", True, "G acceptJoiningMember: who is in may come back"),
    ("preparing", 2, "", True, "G acceptJoiningMember: PREPARING_REBALANCE counts those who wait"),
    ("preparing", 1, "", False, "G acceptJoiningMember: PREPARING_REBALANCE counts those who wait"),
    ("preparing", 1, "follower", False, "G acceptJoiningMember: the last to come are kept out"),
    ("preparing", 1, "leader", True, "G acceptJoiningMember: it waits already"),
]


@pytest.mark.parametrize(("state", "largest", "role", "fits", "source"), SIZE_LIMITS)
def test_join_group_over_max_size_is_refused(state: str, largest: int, role: str, fits: bool, source: str) -> None:
    shard, (leader, follower) = in_state(state, max_size=largest)
    member = {"": "", "leader": leader, "follower": follower}[role]
    shard.join("comes", member, version=3)
    answer = shard.answers.get("comes")
    refused = answer is not None and answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused is not fits, source
    if refused:
        assert answer.member_id == ""
        assert member not in shard.group.members, "G classicGroupJoinToClassicGroup: group.remove(memberId)"


def test_pending_member_id_does_not_count_towards_group_max_size() -> None:
    shard, _ = in_state("stable", max_size=3)
    first, second = shard.join("a?").member_id, shard.join("b?").member_id
    shard.join("a", first)
    for old in list(shard.group.members):
        if old != first:
            shard.join(f"again {old}", old)
    assert shard.group.awaiting_join_count == 3
    assert shard.join("b", second).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert second not in shard.group.pending_join_members


LEAVE = [
    ("nobody", [("m", None)], ["UNKNOWN_MEMBER_ID"], None, "GroupCoordinatorService.leaveGroup"),
    ("stable", [("stranger", None)], ["UNKNOWN_MEMBER_ID"], "stable", "nothing changes"),
    ("stable", [("follower", None)], ["NONE"], "preparing", "G maybePrepareRebalanceOrCompleteJoin"),
    ("stable", [("leader", None), ("follower", None)], ["NONE", "NONE"], "empty", "G: all at once, one generation"),
    ("stable", [("promised", None)], ["NONE"], "preparing", "G: a promised one disturbs a stable group too"),
    ("preparing", [("follower", None)], ["NONE"], "completing", "G maybeCompleteJoinPhase: all others wait"),
    ("preparing", [("leader", None)], ["NONE"], "preparing", "G maybeCompleteJoinPhase: one is missing"),
    ("completing", [("follower", None)], ["NONE"], "preparing", "G maybePrepareRebalanceOrCompleteJoin"),
    ("stable", [("", "nobody")], ["UNKNOWN_MEMBER_ID"], "stable", "C hasStaticMember"),
    ("stable", [("", None)], ["UNKNOWN_MEMBER_ID"], "stable", "C hasMember"),
    ("stable", [("leader", "nobody")], ["UNKNOWN_MEMBER_ID"], "stable", "C validateMember"),
]


@pytest.mark.parametrize(("state", "leaving", "codes", "after", "source"), LEAVE)
def test_leave_group_by_state(
    state: str, leaving: list[tuple[str, str | None]], codes: list[str], after: str | None, source: str
) -> None:
    shard, members = in_state(state)
    ids = {"leader": members[0], "follower": members[1]}
    if any(name == "promised" for name, _ in leaving):
        ids["promised"] = shard.join("promise").member_id
    before = generation_of(shard)
    answer = leave(shard, [leave_group.MemberIdentity(ids.get(name, name), instance) for name, instance in leaving])
    assert [ErrorCode(row.error_code).name for row in answer.members] == codes, source
    assert answer.error_code == 0
    if after is not None:
        assert shard.group.state is STATES[after], source
        assert shard.group.generation - before == (after in ("completing", "empty")), source


def test_leave_group_before_v3_returns_error_at_top_level() -> None:
    shard, members = in_state("stable")
    assert leave(shard, [leave_group.MemberIdentity("stranger")], 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    answer = leave(shard, [leave_group.MemberIdentity(members[1])], 2)
    assert (answer.error_code, answer.members) == (0, [])


def test_leave_group_of_waiting_member_answers_its_pending_request() -> None:
    shard, members = in_state("preparing")
    leave(shard, [leave_group.MemberIdentity(members[0])])
    refused = shard.answers["leader comes"]
    assert (refused.error_code, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    shard, members = in_state("completing")
    assert shard.sync("waits", members[1], shard.group.generation) is None
    leave(shard, [leave_group.MemberIdentity(members[1])])
    assert shard.answers["waits"].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_join_before_v7_removed_member_gets_empty_protocol() -> None:
    shard = GroupShardFixture(initial_rebalance_delay_ms=3000)
    shard.join("a", version=3)
    leave(shard, [leave_group.MemberIdentity(next(iter(shard.group.members)))])
    assert shard.answers["a"].protocol_name == ""


COMMIT = [
    ("nobody", "", -1, 9, "NONE", "O validateOffsetCommit: a simple consumer"),
    ("nobody", "m", 0, 9, "GROUP_ID_NOT_FOUND", "O validateOffsetCommit: from v9"),
    ("nobody", "m", 0, 8, "ILLEGAL_GENERATION", "O validateOffsetCommit: before v9"),
    ("empty", "", -1, 9, "NONE", "C validateOffsetCommit"),
    ("empty", "follower", -1, 9, "NONE", "C validateOffsetCommit: an empty group asks for no member"),
    ("empty", "follower", 0, 9, "UNKNOWN_MEMBER_ID", "C validateMember"),
    ("stable", "", -1, 9, "UNKNOWN_MEMBER_ID", "C validateOffsetCommit, P-90"),
    ("stable", "follower", 2, 9, "NONE", "C validateOffsetCommit"),
    ("stable", "follower", 1, 9, "ILLEGAL_GENERATION", "C validateOffsetCommit"),
    ("stable", "follower", -1, 9, "ILLEGAL_GENERATION", "C validateOffsetCommit: a member without generation"),
    ("stable", "stranger", 2, 9, "UNKNOWN_MEMBER_ID", "C validateMember"),
    ("preparing", "follower", 2, 9, "NONE", "C validateOffsetCommit: before it goes round"),
    ("completing", "follower", 3, 9, "REBALANCE_IN_PROGRESS", "C validateOffsetCommit"),
]


@pytest.mark.parametrize(("state", "role", "generation", "version", "code", "source"), COMMIT)
def test_offset_commit_by_state(state: str, role: str, generation: int, version: int, code: str, source: str) -> None:
    shard, members = in_state(state)
    member = members[1] if role == "follower" else role
    new = [OffsetToCommit("t", bytes(16), 0, 5, -1, "")]
    event = CommitOffsets("commit", "g", member, None, generation, -1, new, version)
    shard.apply(shard.machine.handle(shard.now, event))
    assert shard.answers["commit"] == ErrorCode[code], source
    assert (shard.machine.offsets.get("g", "t", 0) is not None) == (code == "NONE")


def test_offset_commit_with_unknown_instance_id_returns_unknown_member_id() -> None:
    shard, _ = in_state("stable")
    event = CommitOffsets("commit", "g", "", "nobody", -1, -1, [], 9)
    shard.apply(shard.machine.handle(shard.now, event))
    assert shard.answers["commit"] == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("state", "lives"), [("stable", True), ("preparing", True)])
def test_offset_commit_renews_member_session(state: str, lives: bool) -> None:
    shard, members = in_state(state)
    shard.wait(9_000)
    shard.apply(shard.machine.handle(shard.now, CommitOffsets("c", "g", members[1], None, 2, -1, [], 9)))
    shard.beat(members[0], 2)
    shard.wait(9_000)
    assert (members[1] in shard.group.members) is lives


@pytest.mark.parametrize(
    ("state", "code"),
    [("nobody", "GROUP_ID_NOT_FOUND"), ("empty", "NONE")]
    + [(state, "NON_EMPTY_GROUP") for state in ("preparing", "completing", "stable")],
)
def test_delete_group_in_each_group_state_returns_error_code(state: str, code: str) -> None:
    shard, _ = in_state(state)
    if state == "empty":
        for partition in range(3):
            new = [OffsetToCommit("t", bytes(16), partition, 5, -1, "")]
            shard.apply(shard.machine.handle(shard.now, CommitOffsets(f"c{partition}", "g", "", None, -1, -1, new, 9)))
    shard.apply(shard.machine.handle(shard.now, DeleteGroup("delete", "g")))
    assert shard.answers["delete"] == ErrorCode[code], "C validateDeleteGroup"
    if state == "empty":
        assert shard.machine.classic_groups.groups == shard.machine.classic_groups.persisted_groups == {}
        assert shard.machine.offsets.groups() == []
        assert [value for _, value in shard.log[-4:]] == [None] * 4


def subscription(*topics: str) -> bytes:
    return b"\x00\x01" + compiler.encode(ConsumerProtocolSubscription(list(topics)), 1)


def test_delete_offsets_of_subscribed_topics_keeps_them() -> None:
    shard, (leader, follower) = in_state("stable")
    for member, topic in ((leader, "a"), (follower, "b")):
        shard.group.set_protocols(shard.group.members[member], [("range", subscription(topic))])
    new = [OffsetToCommit(topic, bytes(16), 0, 5, -1, "") for topic in ("a", "b", "c")]
    shard.apply(shard.machine.handle(shard.now, CommitOffsets("c", "g", leader, None, 2, -1, new, 9)))
    wanted = [("a", 0), ("c", 0), ("c", 7), ("d", 0)]
    shard.apply(shard.machine.handle(shard.now, DeleteOffsets("delete", "g", wanted)))
    assert shard.answers["delete"] == {"a"}, "C isSubscribedToTopic"
    assert set(shard.machine.offsets.group_offsets("g")) == {"a", "b"}


@pytest.mark.parametrize(
    ("raw", "kept"), [(b"\x00", {"a"}), (b"\x00\x01\xff", {"a"}), (subscription("b"), set()), (b"", {"a"})]
)
def test_delete_offsets_undecodable_subscription_keeps_offsets(raw: bytes, kept: set[str]) -> None:
    shard, members = in_state("stable")
    for member in members:
        shard.group.set_protocols(shard.group.members[member], [("range", raw)])
    shard.apply(shard.machine.handle(shard.now, DeleteOffsets("delete", "g", [("a", 0)])))
    assert shard.answers["delete"] == kept, "C computeSubscribedTopics"


def test_delete_offsets_of_unknown_empty_or_non_consumer_group() -> None:
    shard, _ = in_state("nobody")
    shard.apply(shard.machine.handle(shard.now, DeleteOffsets("nobody", "g", [("a", 0)])))
    assert shard.answers["nobody"].code is ErrorCode.GROUP_ID_NOT_FOUND
    shard, _ = in_state("stable")
    shard.group.protocol_type = "connect"
    shard.apply(shard.machine.handle(shard.now, DeleteOffsets("connect", "g", [("a", 0)])))
    assert isinstance(shard.answers["connect"], ProtocolError)
    assert shard.answers["connect"].code is ErrorCode.NON_EMPTY_GROUP, "C validateOffsetDelete"
    shard, _ = in_state("empty")
    shard.group.protocol_type = "connect"
    shard.apply(shard.machine.handle(shard.now, DeleteOffsets("empty", "g", [("a", 0)])))
    assert shard.answers["empty"] == set()


def test_heartbeat_with_instance_id_of_other_member_returns_fenced_instance_id() -> None:
    shard = GroupShardFixture()
    first = shard.join("a", instance="i", version=9)
    shard.sync("s", first.member_id, 1, {})
    for instance, code in (("i", ErrorCode.FENCED_INSTANCE_ID), ("unheard of", ErrorCode.UNKNOWN_MEMBER_ID)):
        beat = heartbeat.HeartbeatRequest("g", 1, "other", instance)
        assert shard.send(f"beat {instance}", beat, 4).error_code == code, "C validateMember"


def test_static_members_without_rebalance_timeout_are_checked_once_a_second() -> None:
    shard = GroupShardFixture()
    first = shard.join("a", instance="i", version=9, rebalance_ms=0)
    shard.sync("s", first.member_id, 1, {})
    promised = shard.join("b?").member_id
    leave(shard, [leave_group.MemberIdentity(promised)])
    assert shard.group.state is ClassicGroupState.PREPARING_REBALANCE
    fired = shard.fired
    shard.wait(5_000)
    assert shard.group.state is ClassicGroupState.PREPARING_REBALANCE, "its session goes on"
    assert shard.fired - fired <= 6, "once a second: Kafka looks each millisecond"
