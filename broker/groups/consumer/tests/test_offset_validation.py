"""Offset commits to consumer groups, and the deletion and expiration of these groups."""

from __future__ import annotations

import pytest

from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.offset_commit import CommitOffsets
from ottla.broker.groups.state_machine import DeleteGroup, DeleteOffsets
from ottla.broker.tests.consumer_group_fixture import ConsumerGroupShard, two_reconciled_members
from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.wire.errors import ErrorCode

T = topic_id_of("t")


def commit(shard: ConsumerGroupShard, member: str, epoch: int, partition: int = 0, version: int = 9) -> int:
    new = [OffsetToCommit("t", T, partition, 5, -1, "")]
    pending = f"commit-{len(shard.answers)}"
    event = CommitOffsets(pending, "g", member, None, epoch, -1, new, version)
    shard.apply(shard.machine.handle(shard.now, event))
    code: int = shard.answers[pending]
    return code


@pytest.mark.behaviour("C-183")
@pytest.mark.parametrize(
    ("member", "epoch", "partition", "version", "code"),
    [
        ("a", 3, 0, 9, 0),
        ("a", 3, 5, 9, 0),
        ("a", 3, 0, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("a", 4, 0, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, 0, 9, 0),
        ("a", 2, 5, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 1, 0, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 2, 5, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("nobody", 3, 0, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 0, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_offset_commit_requires_member_epoch_or_assignment_epoch(
    member: str, epoch: int, partition: int, version: int, code: int
) -> None:
    """Member a owns 0 to 2 since epoch 2, b owns 3 to 5 since 3."""
    shard, _, _ = two_reconciled_members()
    assert commit(shard, member, epoch, partition, version) == code


@pytest.mark.behaviour("C-183")
def test_offset_commit_to_group_without_members_needs_no_member() -> None:
    shard, _, _ = two_reconciled_members()
    shard.heartbeat("a", -1)
    shard.heartbeat("b", -1)
    assert commit(shard, "", -1) == 0
    assert "g" not in shard.machine.classic_groups.groups


@pytest.mark.behaviour("C-186")
def test_delete_group_with_members_is_refused_and_without_removes_all_records() -> None:
    shard, _, _ = two_reconciled_members()
    commit(shard, "a", 3)
    shard.apply(shard.machine.handle(shard.now, DeleteGroup("no", "g")))
    assert shard.answers["no"] == ErrorCode.NON_EMPTY_GROUP
    shard.heartbeat("a", -1)
    shard.heartbeat("b", -1)
    written = len(shard.log)
    shard.apply(shard.machine.handle(shard.now, DeleteGroup("yes", "g")))
    assert shard.answers["yes"] == ErrorCode.NONE
    assert shard.records(written) == ["-OffsetCommitKey", "-6", "-4", "-3"]
    assert shard.machine.find_consumer_group("g") is None


def test_delete_offsets_of_subscribed_topics_is_refused() -> None:
    shard, _, _ = two_reconciled_members()
    shard.apply(shard.machine.handle(shard.now, DeleteOffsets("x", "g", [("t", 0), ("u", 0)])))
    assert shard.answers["x"] == {"t"}


@pytest.mark.behaviour("C-185")
def test_offsets_and_empty_group_expire_after_retention() -> None:
    shard, _, _ = two_reconciled_members()
    commit(shard, "a", 3)
    again = shard.restart()
    week = again.settings.offsets_retention_ms
    for name in "ab":
        again.heartbeat(name, -1)
    again.wait(week - 600_000)
    assert again.consumer.state == "Empty"
    again.wait(1_200_000)
    assert again.machine.find_consumer_group("g") is None
    assert not again.machine.offsets.groups()


@pytest.mark.behaviour("C-184", "C-189")
def test_group_of_simple_consumer_becomes_consumer_group() -> None:
    shard = ConsumerGroupShard()
    assert commit(shard, "", -1) == 0
    assert "g" in shard.machine.classic_groups.groups
    written = len(shard.log)
    assert shard.heartbeat("a", 0).member_epoch == 2
    assert shard.records(written)[:2] == ["-GroupMetadataKey", "5a"]
    assert "g" not in shard.machine.classic_groups.groups
    assert "g" not in shard.restart().machine.classic_groups.groups
