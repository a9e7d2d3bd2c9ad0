"""Bounds on pending member ids of dynamic members that never join; members that do join are not affected."""

from __future__ import annotations

from ottla.broker.groups.classic import pending_member_ids
from ottla.broker.groups.classic.tests.test_groups import GroupShardFixture
from ottla.broker.groups.state_machine import DeleteGroup
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import join_group

LONGEST = "x" * 32_000


def ask(shard: GroupShardFixture, pending: str, group: str = "g", client: str = LONGEST, member: str = "") -> str:
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
    request = join_group.JoinGroupRequest(group, 1_800_000, 1_800_000, member, None, "consumer", protocols)
    answer = shard.send(pending, request, client=client)
    assert answer is None or answer.error_code in (
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
    return "" if answer is None else str(answer.member_id)


def kept_chars(shard: GroupShardFixture) -> int:
    return sum(
        len(member) for group in shard.machine.classic_groups.groups.values() for member in group.pending_join_members
    )


def stage_with_long_sessions() -> GroupShardFixture:
    return GroupShardFixture(max_session_timeout_ms=1_800_000)


def test_unused_pending_member_ids_are_bounded() -> None:
    shard = stage_with_long_sessions()
    for number in range(200):
        ask(shard, f"{number}")
        shard.wait(1)
    assert kept_chars(shard) <= pending_member_ids.MAX_GROUP_PENDING_MEMBER_ID_CHARS
    for number in range(400):
        ask(shard, f"group {number}", f"g{number % 20}")
        shard.wait(1)
    assert (
        pending_member_ids.MAX_PENDING_MEMBER_ID_CHARS // 2
        < kept_chars(shard)
        <= pending_member_ids.MAX_PENDING_MEMBER_ID_CHARS
    )
    assert len(shard._armed) < 2 * pending_member_ids.MAX_PENDING_MEMBER_ID_CHARS // len(LONGEST), (
        "nor are their timers"
    )


def test_pending_member_id_of_one_group_survives_requests_in_other_groups() -> None:
    shard = stage_with_long_sessions()
    first = ask(shard, "first", "other", "c")
    for number in range(200):
        ask(shard, f"{number}")
        shard.wait(1)
    ask(shard, "back", "other", "c", first)
    shard.wait(1)
    assert shard.answers["back"].error_code == ErrorCode.NONE, "one group does not use up what the others may have"


def test_thousand_consumers_joining_at_once_all_become_members() -> None:
    shard = stage_with_long_sessions()
    ids = [ask(shard, f"{number}", client="consumer-of-a-service-1") for number in range(1000)]
    shard.wait(1)
    for number, member_id in enumerate(ids):
        ask(shard, f"back {number}", client="consumer-of-a-service-1", member=member_id)
    shard.wait(1)
    assert len(shard.machine.classic_groups.groups["g"].members) == 1000
    assert shard.machine.classic_groups._pending_member_ids._chars == 0


def test_member_is_not_removed_with_its_pending_member_id() -> None:
    shard = stage_with_long_sessions()
    member = ask(shard, "first")
    ask(shard, "back", member=member)
    for number in range(100):
        ask(shard, f"{number}")
        shard.wait(1)
    assert member in shard.machine.classic_groups.groups["g"].members


def test_pending_member_id_expires_after_group_is_deleted_and_recreated() -> None:
    shard = stage_with_long_sessions()
    ask(shard, "old", client="c")
    shard.apply(shard.machine.handle(shard.now, DeleteGroup("delete", "g")))
    shard.wait(1_000_000)
    ask(shard, "new", client="c")
    shard.wait(900_000)
    assert len(shard.machine.classic_groups._pending_member_ids._all) == 1
    shard.wait(1_000_000)
    assert shard.machine.classic_groups._pending_member_ids._all == {}


def test_pending_member_id_of_deleted_group_expires() -> None:
    shard = stage_with_long_sessions()
    for number in range(20):
        ask(shard, f"{number}", f"g{number}")
        shard.apply(shard.machine.handle(shard.now, DeleteGroup(f"delete {number}", f"g{number}")))
    assert shard.machine.classic_groups.groups == {}
    shard.wait(1_800_000)
    assert shard.machine.classic_groups._pending_member_ids._chars == 0, "else they would crowd out those of others"
