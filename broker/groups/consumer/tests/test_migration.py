"""Conversion of groups between the classic and the consumer protocol with active members."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.classic.classic_group import ClassicGroupState
from ottla.broker.groups.consumer import consumer_protocol
from ottla.broker.groups.consumer.consumer_group import ConsumerMemberState
from ottla.broker.tests.consumer_group_fixture import (
    ConsumerGroupShard,
    ConsumerMemberClient,
    assignment_by_letter,
    decode_partitions,
    image_of,
    reconcile_members,
)
from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_heartbeat, join_group, leave_group, sync_group
from ottla.wire.messages import heartbeat as old
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

T = topic_id_of("t")
IMAGE = image_of({"t": 6})


def subscription_of(owned: list[int] | None = None, topics: tuple[str, ...] = ("t",), version: int = 3) -> bytes:
    rows = [ConsumerProtocolSubscriptionTopicPartition("t", owned)] if owned else []
    body = ConsumerProtocolSubscription(list(topics), None, rows)
    return version.to_bytes(2, "big") + compiler.encode(body, version)


class ClassicMemberClient:
    """Client of the classic protocol that rejoins when it is asked to and sends its owned partitions."""

    def __init__(
        self, shard: ConsumerGroupShard, instance: str | None = None, topics: tuple[str, ...] = ("t",)
    ) -> None:
        self.shard, self.instance, self.topics = shard, instance, topics
        self.name, self.generation = "", -1
        self.owned: list[int] = []

    def join(self, **fields: Any) -> join_group.JoinGroupResponse | None:
        protocols = [
            join_group.JoinGroupRequestProtocol("cooperative-sticky", subscription_of(self.owned, self.topics))
        ]
        request = join_group.JoinGroupRequest("g", 10_000, 30_000, self.name, self.instance, "consumer", protocols)
        for name, value in fields.items():
            setattr(request, name, value)
        answer: join_group.JoinGroupResponse | None = self.shard.call(request, 9)
        if answer is not None and answer.member_id:
            self.name = answer.member_id
        if answer is not None and not answer.error_code:
            self.generation = answer.generation_id
        return answer

    def enter(self) -> join_group.JoinGroupResponse:
        answer = self.join()
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = self.join()
        assert answer is not None
        return answer

    def sync(self, shares: dict[str, list[int]] | None = None) -> sync_group.SyncGroupResponse:
        rows = [
            sync_group.SyncGroupRequestAssignment(name, consumer_protocol.encode_assignment({T: numbers}, IMAGE, 3))
            for name, numbers in (shares or {}).items()
        ]
        request = sync_group.SyncGroupRequest("g", self.generation, self.name, self.instance, "consumer", None, rows)
        answer: sync_group.SyncGroupResponse = self.shard.call(request, 5)
        if not answer.error_code:
            given = decode_partitions(answer.assignment)
            self.owned = sorted(number for row in given for number in row.partitions)
        return answer

    def beat(self) -> int:
        """Send a heartbeat and follow its result."""
        answer = self.shard.call(old.HeartbeatRequest("g", self.generation, self.name, self.instance), 4)
        code: int = answer.error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            joined = self.join()
            if joined is not None and not joined.error_code:
                self.sync()
        return code


def classic_group(count: int = 2) -> tuple[ConsumerGroupShard, list[ClassicMemberClient]]:
    """Return a stable classic group with members that share the six partitions of "t"."""
    shard = ConsumerGroupShard()
    members = [ClassicMemberClient(shard) for _ in range(count)]
    for member in members:
        member.join()
        member.join()  # with the assigned member id
    for member in members:
        member.join()
    leader = shard.machine.classic_groups.groups["g"]
    for member in members:
        member.generation = leader.generation
    each = 6 // count
    shares = {member.name: list(range(n * each, (n + 1) * each)) for n, member in enumerate(members)}
    for member in members:
        member.sync(shares if member.name == leader.leader else None)
    assert leader.state is ClassicGroupState.STABLE
    for member in members:
        member.owned = shares[member.name]
    return shard, members


@pytest.mark.behaviour("C-190")
def test_consumer_heartbeat_converts_classic_group_to_consumer_group() -> None:
    shard, (a, b) = classic_group()
    generation, written = a.generation, len(shard.log)
    new = ConsumerMemberClient(shard, "new")
    answer = new.beat()
    assert (answer.error_code, answer.member_epoch) == (0, generation + 1)
    kinds = [record.rstrip("-0123456789abcdefil") for record in shard.records(written)]
    assert shard.records(written)[0] == "-GroupMetadataKey"
    assert [record[0] for record in shard.records(written)[1:9]] == ["5", "5", "3", "7", "7", "6", "8", "8"], kinds
    group = shard.consumer
    assert "g" not in shard.machine.classic_groups.groups
    assert {m.id for m in group.members.values() if m.classic_metadata is not None} == {a.name, b.name}
    assert group.members[a.name].assigned == {T: dict.fromkeys(a.owned, generation)}
    assert group.members[a.name].classic_metadata is not None
    for _ in range(8):
        for member in (a, b, new):
            member.beat()
        shard.wait(1_000)
    assert sorted([*a.owned, *b.owned, *new.owned["t"]]) == [0, 1, 2, 3, 4, 5]
    assert {len(a.owned), len(b.owned), len(new.owned["t"])} == {2}
    assert group.state == "Stable"
    assert shard.restart().consumer.members == shard.consumer.members


@pytest.mark.behaviour("C-190")
@pytest.mark.parametrize(
    ("settings", "code"),
    [({"allows_upgrade": False}, ErrorCode.GROUP_ID_NOT_FOUND), ({"max_size": 1}, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_upgrade_disabled_or_over_max_size_keeps_classic_group(settings: dict[str, Any], code: int) -> None:
    shard, (a, _) = classic_group()
    shard.machine.consumer_groups.settings = shard.machine.consumer_groups.settings._replace(**settings)
    assert shard.heartbeat("new", 0).error_code == code
    assert a.beat() == 0


@pytest.mark.behaviour("C-190")
@pytest.mark.parametrize("wrong", ["type", "words", "user data"])
def test_upgrade_with_undecodable_metadata_keeps_classic_group(wrong: str) -> None:
    shard, (a, _) = classic_group()
    group = shard.machine.classic_groups.groups["g"]
    if wrong == "type":
        group.protocol_type = "connect"
    elif wrong == "words":
        group.members[a.name].protocols = [("cooperative-sticky", b"\x00")]
    else:
        given = ConsumerProtocolAssignment([], b"sticky")
        group.members[a.name].assignment = b"\x00\x03" + compiler.encode(given, 3)
    written = len(shard.log)
    assert shard.heartbeat("new", 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert len(shard.log) == written


@pytest.mark.behaviour("C-190")
def test_upgrade_answers_pending_join_rebalance_in_progress() -> None:
    shard, (a, b) = classic_group()
    protocols = [join_group.JoinGroupRequestProtocol("cooperative-sticky", subscription_of())]
    shard.send("waits", join_group.JoinGroupRequest("g", 10_000, 30_000, a.name, None, "consumer", protocols), 9)
    assert "waits" not in shard.answers
    assert shard.heartbeat("new", 0).error_code == 0
    assert shard.answers["waits"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert b.name in shard.consumer.members


@pytest.mark.behaviour("C-191")
def test_classic_member_joins_consumer_group() -> None:
    shard = ConsumerGroupShard()
    new = ConsumerMemberClient(shard, "new")
    reconcile_members(new)
    a = ClassicMemberClient(shard)
    refused = a.join()
    assert refused is not None
    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (bool(refused.member_id), refused.generation_id) == (True, -1)
    joined = a.join()
    assert joined is not None
    assert (joined.error_code, joined.generation_id, joined.protocol_type) == (0, 3, "consumer")
    assert (joined.protocol_name, joined.leader, joined.members) == ("cooperative-sticky", "", [])
    assert (a.sync().error_code, a.owned) == (0, [])
    for _ in range(8):
        new.beat()
        a.beat()
        shard.wait(1_000)
    assert (new.owned, a.owned) == ({"t": [0, 1, 2]}, [3, 4, 5])
    assert shard.consumer.state == "Stable"


@pytest.mark.behaviour("C-191")
@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({}, {"allows_upgrade": False, "allows_downgrade": False}),
        ({"protocol_type": "connect"}, {}),
        ({"protocols": []}, {}),
    ],
)
def test_classic_member_join_is_refused_when_incompatible(fields: dict[str, Any], settings: dict[str, Any]) -> None:
    shard = ConsumerGroupShard(**settings)
    shard.heartbeat("new", 0)
    answer = ClassicMemberClient(shard).join(**fields)
    assert answer is not None
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_member_join_before_v4_without_id_is_accepted() -> None:
    shard = ConsumerGroupShard()
    shard.heartbeat("new", 0)
    protocols = [join_group.JoinGroupRequestProtocol("cooperative-sticky", subscription_of())]
    request = join_group.JoinGroupRequest("g", 10_000, 30_000, "", None, "consumer", protocols)
    assert shard.call(request, 3, new_member_id="fresh").error_code == ErrorCode.NONE
    assert set(shard.consumer.members) == {"new", "fresh"}


@pytest.mark.parametrize("refused", ["allows_upgrade", "allows_downgrade"])
def test_classic_member_join_with_policy_of_one_direction_is_accepted(refused: str) -> None:
    shard = ConsumerGroupShard(**{refused: False})
    shard.heartbeat("new", 0)
    assert ClassicMemberClient(shard).enter().error_code == ErrorCode.NONE


@pytest.mark.behaviour("C-172")
def test_classic_member_id_in_consumer_group_is_base64_uuid() -> None:
    """An id has 22 letters here; in classic groups the client id and a UUID of 36."""
    shard = ConsumerGroupShard()
    shard.heartbeat("new", 0)
    protocols = [join_group.JoinGroupRequestProtocol("cooperative-sticky", subscription_of())]
    request = join_group.JoinGroupRequest("g", 10_000, 30_000, "", None, "consumer", protocols)
    answer = shard.call(request, 9, new_member_id="00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert (answer.error_code, answer.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "AAECAwQFBgcICQoLDA0ODw")


def test_classic_members_must_share_a_protocol() -> None:
    shard = ConsumerGroupShard()
    shard.heartbeat("new", 0)
    ClassicMemberClient(shard).enter()
    other = ClassicMemberClient(shard).join(protocols=[join_group.JoinGroupRequestProtocol("range", subscription_of())])
    assert other is not None
    assert other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def mixed() -> tuple[ConsumerGroupShard, ConsumerMemberClient, ClassicMemberClient]:
    """Return a consumer group with one member of each protocol."""
    shard = ConsumerGroupShard()
    new, a = ConsumerMemberClient(shard, "new"), ClassicMemberClient(shard)
    reconcile_members(new)
    a.enter()
    a.sync()
    for _ in range(6):
        new.beat()
        a.beat()
        shard.wait(1_000)
    assert (new.owned, a.owned) == ({"t": [0, 1, 2]}, [3, 4, 5])
    return shard, new, a


@pytest.mark.behaviour("C-192")
def test_classic_requests_check_member_and_generation() -> None:
    shard, new, a = mixed()

    def beat(name: str, generation: int) -> int:
        code: int = shard.call(old.HeartbeatRequest("g", generation, name), 4).error_code
        return code

    assert beat(a.name, a.generation) == 0
    assert beat(a.name, a.generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert beat("nobody", a.generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat("new", new.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    for name, code in (("range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL), ("cooperative-sticky", 0)):
        sync = sync_group.SyncGroupRequest("g", a.generation, a.name, None, "consumer", name)
        assert shard.call(sync, 5).error_code == code


@pytest.mark.behaviour("C-192")
def test_classic_member_rebalance_timeout_removes_it() -> None:
    shard, new, a = mixed()
    shard.heartbeat("third", 0)
    new.beat()
    call = old.HeartbeatRequest("g", a.generation, a.name)
    for _ in range(4):
        assert shard.call(call, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        shard.wait(7_000)
    assert (
        shard.call(sync_group.SyncGroupRequest("g", a.generation, a.name), 5).error_code
        == ErrorCode.REBALANCE_IN_PROGRESS
    )
    shard.wait(2_000)
    assert a.name not in shard.consumer.members


def test_classic_member_sync_timeout_uses_its_own_session_timeout() -> None:
    shard = ConsumerGroupShard()
    new, a = ConsumerMemberClient(shard, "new"), ClassicMemberClient(shard)
    reconcile_members(new)
    a.enter()
    shard.wait(9_999)
    assert a.name in shard.consumer.members
    shard.wait(1)
    assert a.name not in shard.consumer.members, "its session is 10 seconds"


def test_static_classic_member_is_replaced_by_consumer_member() -> None:
    """The old instance need not have left before."""
    shard, new, a = mixed()
    static = ClassicMemberClient(shard, "i")
    static.join()
    answer = shard.heartbeat("x", 0, instance_id="i")
    assert (answer.error_code, answer.member_id) == (0, "x")
    assert set(shard.consumer.members) == {"new", a.name, "x"}
    assert shard.consumer.members["x"].classic_metadata is None
    assert static.beat() == ErrorCode.FENCED_INSTANCE_ID
    assert new.beat().error_code == 0


@pytest.mark.behaviour("C-177")
def test_leave_group_of_several_members_bumps_epoch_once() -> None:
    shard, new, a = mixed()
    b = ClassicMemberClient(shard, "i")
    b.join()
    epoch = shard.consumer.epoch
    ids = [(a.name, None), ("", "i"), ("nobody", None), ("", "z")]
    identity = [leave_group.MemberIdentity(member, instance) for member, instance in ids]
    answer = shard.call(leave_group.LeaveGroupRequest("g", members=identity), 5)
    assert [row.error_code for row in answer.members] == [0, 0] + [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert (set(shard.consumer.members), shard.consumer.epoch) == ({"new"}, epoch + 1)
    reconcile_members(new)
    assert new.owned == {"t": [0, 1, 2, 3, 4, 5]}


def test_classic_member_continues_with_consumer_protocol() -> None:
    shard, _, a = mixed()
    rows = [consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions(T, a.owned)]
    answer = shard.heartbeat(a.name, a.generation, topic_partitions=rows)
    assert (answer.error_code, assignment_by_letter(answer.assignment)) == (0, None)
    member = shard.consumer.members[a.name]
    assert (member.classic_metadata, member.state) == (None, ConsumerMemberState.STABLE)
