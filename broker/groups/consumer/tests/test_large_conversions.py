"""Conversion of large groups between protocols: in slices, all or nothing until decided, with every member answered."""

from __future__ import annotations

from itertools import chain, takewhile
from typing import Any

import pytest

from ottla.broker.groups.classic.classic_group import ClassicGroupState, GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer.downgrade import MEMBERS_PER_STEP
from ottla.broker.groups.consumer.tests.test_hostile_members import stored
from ottla.broker.tests.consumer_group_fixture import ConsumerGroupShard
from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import consumer_group_heartbeat, join_group, leave_group

T = topic_id_of("t")
MANY = 300
MOST_AT_ONCE = 200
JOINS: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "topic_partitions": [], "subscribed_topic_names": ["t"]}


def beat(epoch: int = 0, **fields: Any) -> GroupRequest:
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "new", epoch, **(fields or JOINS if epoch == 0 else fields)
    )
    return GroupRequest(f"beat-{epoch}", request, 1, "c", "h", "id")


def classic(count: int = MANY, partitions: int = MANY) -> tuple[ConsumerGroupShard, list[str]]:
    """Store a stable classic group of ``count`` members subscribed to "t"."""
    shard = ConsumerGroupShard({"t": partitions})
    return shard, stored(shard, *([number] for number in range(count)))


def parts(fx: GroupEffects) -> list[GroupEffects]:
    return list(filter(None, chain([fx], fx.continuation or ())))


def apply(shard: ConsumerGroupShard, fx: GroupEffects) -> int:
    """Apply the effects; return the largest number of records in a slice."""
    most = 0
    for part in filter(None, chain([fx], fx.continuation or ())):
        most = max(most, len(part.records))
        part.continuation = None
        shard.apply(part)
    return most


def converted(count: int = MANY) -> tuple[ConsumerGroupShard, list[str]]:
    shard, names = classic(count)
    apply(shard, shard.machine.handle(shard.now, beat()))
    return shard, names


def test_upgrade_of_large_classic_group_runs_in_slices_with_all_members() -> None:
    shard, names = classic()
    most = apply(shard, shard.machine.handle(shard.now, beat()))
    assert most <= MOST_AT_ONCE
    group = shard.consumer
    assert set(group.members) == {*names, "new"}
    assert {group.members[name].epoch for name in names} == {5}
    assert {n for name in names for n in group.members[name].assigned[T]} == set(range(MANY))
    assert "g" not in shard.machine.classic_groups.groups
    again = shard.restart().consumer
    assert (again.members, again.target, again.epoch) == (group.members, group.target, group.epoch)


def test_upgrade_of_small_classic_group_runs_at_once() -> None:
    shard, _ = classic(20, 20)
    fx = shard.machine.handle(shard.now, beat())
    assert (fx.continuation, len(fx.records) > 60) == (None, True)


def test_upgrade_answers_pending_joins_of_large_classic_group_once() -> None:
    shard, names = classic()
    group = shard.machine.classic_groups.groups["g"]
    group.transition_to(ClassicGroupState.PREPARING_REBALANCE, shard.now)
    protocols = [join_group.JoinGroupRequestProtocol("cooperative-sticky", group.members[names[0]].protocols[0][1])]
    request = join_group.JoinGroupRequest("g", 10_000, 30_000, names[0], None, "consumer", protocols)
    shard.apply(shard.machine.handle(shard.now, GroupRequest("waits", request, 9, "c", "h", "id")))
    assert "waits" not in shard.answers
    reported = [r for part in parts(shard.machine.handle(shard.now, beat())) for r in part.replies]
    assert [(r.pending_request, r.message.error_code) for r in reported if r.pending_request == "waits"] == [
        ("waits", ErrorCode.REBALANCE_IN_PROGRESS)
    ]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"subscribed_topic_names": None, "subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"server_assignor": "uniform"}, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_upgrade_refused_writes_no_record(fields: dict[str, Any], code: ErrorCode) -> None:
    """Second case: the leader's assignment is inconsistent."""
    shard, _ = classic(MANY, MANY if code is ErrorCode.INVALID_REGULAR_EXPRESSION else 6)
    fx = shard.machine.handle(shard.now, beat(**{**JOINS, **fields}))
    assert fx.continuation is not None
    written = map(len, (part.records for part in filter(None, fx.continuation)))
    with pytest.raises(ProtocolError) as caught:  # the shard answers the requests in the effects' own replies
        assert not any(written)
    assert (caught.value.code, fx.records) == (code, [])
    assert [reply.pending_request for reply in fx.replies] == ["beat-0"]
    assert "g" in shard.machine.classic_groups.groups


def test_downgrade_of_large_group_runs_in_slices_and_starts_rebalance() -> None:
    shard, names = converted()
    most = apply(shard, shard.machine.handle(shard.now, beat(-1)))
    assert most <= MOST_AT_ONCE
    assert shard.machine.find_consumer_group("g") is None
    group = shard.machine.classic_groups.groups["g"]
    assert (set(group.members), group.state) == (set(names), ClassicGroupState.PREPARING_REBALANCE)
    assert all(group.members[name].protocols for name in names)
    assert shard.restart().machine.classic_groups.groups["g"].state is ClassicGroupState.STABLE


def test_downgrade_of_large_group_pauses_after_equally_many_members() -> None:
    shard, _ = converted()
    fx = shard.machine.handle(shard.now, beat(-1))
    pauses = sum(1 for _ in takewhile(lambda part: part is None, fx.continuation or ()))
    assert 2 * MANY // MEMBERS_PER_STEP <= pauses <= 2 * MANY // MEMBERS_PER_STEP + 4


@pytest.mark.parametrize("count", [20, MANY])
def test_downgrade_with_undecodable_member_metadata_keeps_consumer_group(count: int) -> None:
    shard, names = converted(count)
    member = shard.consumer.members[names[-1]]
    assert member.classic_metadata is not None
    member.classic_metadata.supported_protocols[0].metadata = b""
    epoch = shard.consumer.epoch
    apply(shard, shard.machine.handle(shard.now, beat(-1)))
    assert set(shard.consumer.members) == set(names)
    assert shard.consumer.epoch == epoch + 1


@pytest.mark.parametrize("outsiders", [1, 600])
def test_leave_of_many_members_writes_next_epoch_first(outsiders: int) -> None:
    """Remaining members get a new target even when the broker dies before the rest is written."""
    shard, names = converted()
    gone = names[: MANY - 1]
    rows = [leave_group.MemberIdentity(name) for name in [*gone, *["nobody"] * outsiders]]
    epoch, written = shard.consumer.epoch, len(shard.log)
    fx = shard.machine.handle(
        shard.now, GroupRequest("left", leave_group.LeaveGroupRequest("g", members=rows), 5, "c", "h", "id")
    )
    assert apply(shard, fx) <= MOST_AT_ONCE
    assert shard.records(written)[0] == "3"
    assert (set(shard.consumer.members), shard.consumer.epoch) == ({names[-1], "new"}, epoch + 1)
    codes = [row.error_code for row in shard.answers["left"].members]
    assert codes == [*[ErrorCode.NONE] * len(gone), *[ErrorCode.UNKNOWN_MEMBER_ID] * outsiders]


@pytest.mark.parametrize("outsiders", [0, 600])
def test_leave_of_last_consumer_member_by_administrator_downgrades_group(outsiders: int) -> None:
    shard, names = converted(20)
    rows = [leave_group.MemberIdentity("new"), *[leave_group.MemberIdentity("nobody")] * outsiders]
    fx = shard.machine.handle(
        shard.now, GroupRequest("left", leave_group.LeaveGroupRequest("g", members=rows), 5, "c", "h", "id")
    )
    apply(shard, fx)
    assert set(shard.machine.classic_groups.groups["g"].members) == set(names)
    assert shard.answers["left"].members[0].error_code == ErrorCode.NONE
