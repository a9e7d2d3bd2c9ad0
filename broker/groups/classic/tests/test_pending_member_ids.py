"""Ids that were promised to members who never come: what is kept of them has an end, and who comes is not disturbed."""

from __future__ import annotations

from ottla.broker.groups.classic import pending_member_ids
from ottla.broker.groups.classic.tests.test_groups import GroupShardFixture
from ottla.broker.groups.state_machine import DeleteGroup
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import join_group

LONGEST = "x" * 32_000


def ask(stage: GroupShardFixture, ticket: str, group: str = "g", client: str = LONGEST, member: str = "") -> str:
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
    request = join_group.JoinGroupRequest(group, 1_800_000, 1_800_000, member, None, "consumer", protocols)
    answer = stage.send(ticket, request, client=client)
    assert answer is None or answer.error_code in (
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
    return "" if answer is None else str(answer.member_id)


def kept_chars(stage: GroupShardFixture) -> int:
    return sum(
        len(member) for group in stage.machine.classic_groups.groups.values() for member in group.pending_join_members
    )


def stage_with_long_sessions() -> GroupShardFixture:
    return GroupShardFixture(max_session_timeout_ms=1_800_000)


def test_promised_ids_nobody_uses_are_not_kept_without_end() -> None:
    stage = stage_with_long_sessions()
    for number in range(200):
        ask(stage, f"{number}")
        stage.wait(1)
    assert kept_chars(stage) <= pending_member_ids.MAX_GROUP_PENDING_MEMBER_ID_CHARS
    for number in range(400):
        ask(stage, f"group {number}", f"g{number % 20}")
        stage.wait(1)
    assert (
        pending_member_ids.MAX_PENDING_MEMBER_ID_CHARS // 2
        < kept_chars(stage)
        <= pending_member_ids.MAX_PENDING_MEMBER_ID_CHARS
    )
    assert len(stage._armed) < 2 * pending_member_ids.MAX_PENDING_MEMBER_ID_CHARS // len(LONGEST), (
        "nor are their timers"
    )


def test_who_comes_back_with_its_id_is_let_in_whatever_others_ask_for() -> None:
    stage = stage_with_long_sessions()
    first = ask(stage, "first", "other", "c")
    for number in range(200):
        ask(stage, f"{number}")
        stage.wait(1)
    ask(stage, "back", "other", "c", first)
    stage.wait(1)
    assert stage.answers["back"].error_code == ErrorCode.NONE, "one group does not use up what the others may have"


def test_a_thousand_consumers_that_come_at_once_all_get_in() -> None:
    stage = stage_with_long_sessions()
    ids = [ask(stage, f"{number}", client="consumer-of-a-service-1") for number in range(1000)]
    stage.wait(1)
    for number, member_id in enumerate(ids):
        ask(stage, f"back {number}", client="consumer-of-a-service-1", member=member_id)
    stage.wait(1)
    assert len(stage.machine.classic_groups.groups["g"].members) == 1000
    assert stage.machine.classic_groups._pending_member_ids._chars == 0


def test_one_that_is_a_member_already_is_not_let_go_for_its_promise() -> None:
    stage = stage_with_long_sessions()
    member = ask(stage, "first")
    ask(stage, "back", member=member)
    for number in range(100):
        ask(stage, f"{number}")
        stage.wait(1)
    assert member in stage.machine.classic_groups.groups["g"].members


def test_a_promise_is_forgotten_in_time_though_a_group_of_that_name_was_made_anew() -> None:
    stage = stage_with_long_sessions()
    ask(stage, "old", client="c")
    stage.apply(stage.machine.handle(stage.now, DeleteGroup("delete", "g")))
    stage.wait(1_000_000)
    ask(stage, "new", client="c")
    stage.wait(900_000)
    assert len(stage.machine.classic_groups._pending_member_ids._all) == 1
    stage.wait(1_000_000)
    assert stage.machine.classic_groups._pending_member_ids._all == {}


def test_a_promise_whose_group_is_deleted_is_forgotten_when_its_time_is_over() -> None:
    stage = stage_with_long_sessions()
    for number in range(20):
        ask(stage, f"{number}", f"g{number}")
        stage.apply(stage.machine.handle(stage.now, DeleteGroup(f"delete {number}", f"g{number}")))
    assert stage.machine.classic_groups.groups == {}
    stage.wait(1_800_000)
    assert stage.machine.classic_groups._pending_member_ids._chars == 0, "else they would crowd out those of others"
