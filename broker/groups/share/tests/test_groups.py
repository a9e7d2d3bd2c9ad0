"""Rules of share groups (C-208 to C-212): membership, epochs and assignment."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ottla.broker.coordinator.events import TimerExpired
from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.settings import ShareGroupSettings
from ottla.broker.groups.share.heartbeat import ShareHeartbeatResult, heartbeat
from ottla.broker.groups.share.offset_changes import alter_offsets
from ottla.broker.groups.share.share_group import ShareGroup
from ottla.broker.groups.state_machine import DeleteGroup, ShareGroupCommand, TopicMetadataChanged
from ottla.broker.tests.consumer_group_fixture import ConsumerGroupShard, assignment_by_letter, image_of
from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import join_group, share_group_heartbeat

T = topic_id_of("t")
SESSION_MS = 45_000


class ShareGroupShard(ConsumerGroupShard):
    """Shard with the share group "g"; the test completes the initialization of share state."""

    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        super().__init__(topics)
        self.machine.settings = self.settings._replace(share=ShareGroupSettings()._replace(**settings))
        self.kinds: list[str] = []
        self.requested: list[dict[bytes, frozenset[int]]] = []

    def beat(self, member: str, epoch: int, names: list[str] | None = None, group: str = "g", **more: Any) -> Any:
        """Send a heartbeat; return its response or error code."""
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(
            group, member, epoch, subscribed_topic_names=names, **more
        )
        rule = partial(heartbeat, call=GroupRequest(None, request, 1, "c", "10.0.0.1"))
        answer = self.ask(rule)
        if isinstance(answer, ProtocolError):
            return answer.code
        assert isinstance(answer, ShareHeartbeatResult)
        if answer.partitions_to_initialize:
            self.requested.append(dict(answer.partitions_to_initialize))
        return answer.response

    def ask(self, rule: Any) -> Any:
        self._count += 1
        pending = f"share-{self._count}"
        before = len(self.log)
        self.apply(self.machine.handle(self.now, ShareGroupCommand(pending, rule)))
        self.kinds = [str(int.from_bytes(key[:2], "big")) for key, _ in self.log[before:]]
        return self.answers.get(pending)

    def ready(self, *, done: bool = True) -> None:
        """Complete or fail the initialization that was requested last."""
        places = self.requested.pop()
        self.ask(lambda groups, pending, _: groups.on_initialized(pending, "g", places, done=done))

    def joined(self, member: str = "m1") -> int:
        """Add a member with initialized and assigned partitions; return its epoch."""
        self.beat(member, 0, ["t"])
        self.ready()
        self.now += 5_000
        answer = self.beat(member, self.group.members[member].epoch)
        return int(answer.member_epoch)

    @property
    def group(self) -> ShareGroup:
        group = self.machine.find_share_group("g")
        assert group is not None
        return group


def test_first_heartbeat_creates_group_without_assignment() -> None:
    shard = ShareGroupShard()
    answer = shard.beat("m1", 0, ["t"])
    assert (answer.member_epoch, assignment_by_letter(answer.assignment), answer.heartbeat_interval_ms) == (
        2,
        {},
        5_000,
    )
    assert shard.kinds == ["10", "11", "13", "12", "14", "15"]
    assert shard.requested == [{T: frozenset(range(6))}]
    assert shard.group.state == "Stable"


def test_partitions_are_assigned_when_their_state_is_initialized() -> None:
    shard = ShareGroupShard()
    shard.beat("m1", 0, ["t"])
    shard.ready()
    assert shard.kinds == ["15"]
    assert (shard.group.initializing, shard.group.initialized[T].partitions) == ({}, frozenset(range(6)))
    shard.now += 5_000
    answer = shard.beat("m1", 2)
    assert (answer.member_epoch, assignment_by_letter(answer.assignment)) == (3, {"t": [0, 1, 2, 3, 4, 5]})
    assert shard.kinds == ["11", "13", "12", "14"]
    shard.now += 5_000
    answer = shard.beat("m1", 3)
    assert (shard.kinds, answer.assignment) == ([], None), "nothing has changed"


def test_target_assignment_waits_for_assignment_interval() -> None:
    shard = ShareGroupShard()
    shard.beat("m1", 0, ["t"])
    shard.ready()
    shard.now += 999
    assert shard.beat("m1", 2).member_epoch == 2
    assert shard.group.epoch == 3
    shard.now += 1
    assert shard.beat("m1", 2).member_epoch == 3


def test_partitions_are_distributed_evenly_among_members() -> None:
    shard = ShareGroupShard({"t": 2})
    shard.joined()
    shard.beat("m2", 0, ["t"])
    shard.now += 5_000
    first, second = shard.beat("m1", 3), shard.beat("m2", shard.group.members["m2"].epoch, ["t"])
    assert sorted([*assignment_by_letter(first.assignment)["t"], *assignment_by_letter(second.assignment)["t"]]) == [
        0,
        1,
    ]  # type: ignore[index]
    for name in ("m3", "m4"):
        shard.beat(name, 0, ["t"])
        shard.now += 5_000
    held = [
        n
        for m in ("m1", "m2", "m3", "m4")
        for n in assignment_by_letter(shard.beat(m, shard.group.members[m].epoch, ["t"]).assignment)["t"]
    ]  # type: ignore[index]
    assert sorted(held) == [0, 0, 1, 1], "more members than partitions: two read each"


@pytest.mark.parametrize(
    ("rule", "epoch", "expected"),
    [
        ("its own", 3, 3),
        ("the one before: it did not hear of the last", 2, 3),
        ("an older one", 1, ErrorCode.FENCED_MEMBER_EPOCH),
        ("one that is to come", 4, ErrorCode.FENCED_MEMBER_EPOCH),
        ("it joins again", 0, 3),
    ],
)
def test_heartbeat_epoch_must_be_current_previous_or_0(rule: str, epoch: int, expected: Any) -> None:
    shard = ShareGroupShard()
    shard.joined()
    answer = shard.beat("m1", epoch, ["t"] if epoch == 0 else None)
    assert getattr(answer, "member_epoch", answer) == expected, rule
    if epoch == 0:
        assert assignment_by_letter(answer.assignment) == {"t": [0, 1, 2, 3, 4, 5]}


def test_heartbeat_of_older_epoch_error_names_previous_epoch() -> None:
    shard = ShareGroupShard()
    shard.joined()
    request = share_group_heartbeat.ShareGroupHeartbeatRequest("g", "m1", 1)
    error = shard.ask(partial(heartbeat, call=GroupRequest(None, request, 1, "c", "h")))
    assert "it does not match the previous member epoch (2)" in error.message


def test_heartbeat_of_unknown_group_or_member_returns_error() -> None:
    shard = ShareGroupShard()
    assert shard.beat("m1", 1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert shard.beat("m1", -1) is ErrorCode.GROUP_ID_NOT_FOUND
    shard.joined()
    assert shard.beat("m2", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.beat("m2", -1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_join_over_max_size_is_refused_and_members_continue() -> None:
    shard = ShareGroupShard(max_size=1)
    shard.joined()
    assert shard.beat("m2", 0, ["t"]) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shard.beat("m1", 3).member_epoch == 3


def test_leave_of_last_member_keeps_empty_group() -> None:
    shard = ShareGroupShard()
    shard.joined()
    answer = shard.beat("m1", -1)
    assert (answer.member_id, answer.member_epoch, shard.kinds) == ("m1", -1, ["14", "13", "10", "11"])
    assert (shard.group.state, shard.group.epoch, shard.group.metadata_hash) == ("Empty", 4, 0)
    assert set(shard.group.initialized) == {T}, "what was shared stays so"
    shard.now += 5_000
    assert shard.beat("m1", 0, ["t"]).member_epoch == 5


def test_session_timeout_removes_member() -> None:
    shard = ShareGroupShard()
    shard.joined()
    shard.now += SESSION_MS
    shard.apply(shard.machine.handle(shard.now, TimerExpired(("share-session", "g", "m1"))))
    assert shard.group.members == {}


@pytest.mark.parametrize(("group", "member"), [("g", "gone"), ("gone", "m1")])
def test_session_timeout_of_unknown_member_or_group_does_nothing(group: str, member: str) -> None:
    shard = ShareGroupShard()
    shard.joined()
    fx = shard.machine.handle(shard.now, TimerExpired(("share-session", group, member)))
    assert (fx.records, fx.timers, fx.continuation) == ([], [], None)


def test_changed_subscription_bumps_epoch_and_removes_unsubscribed_topics() -> None:
    shard = ShareGroupShard({"t": 2, "u": 1})
    shard.joined()
    shard.now += 5_000
    answer = shard.beat("m1", 3, ["u"])
    assert (answer.member_epoch, assignment_by_letter(answer.assignment)) == (4, {})
    assert list(shard.requested[-1]) == [topic_id_of("u")]
    shard.ready()
    shard.now += 5_000
    assert assignment_by_letter(shard.beat("m1", 4).assignment) == {"u": [0]}


def test_new_partitions_are_initialized_and_assigned() -> None:
    shard = ShareGroupShard({"t": 1})
    shard.joined()
    shard.image({"t": 3})
    shard.now += 5_000
    shard.beat("m1", 3)
    assert shard.requested == [{T: frozenset({1, 2})}]
    shard.ready()
    shard.now += 5_000
    assert assignment_by_letter(shard.beat("m1", 4).assignment) == {"t": [0, 1, 2]}


def test_failed_initialization_is_requested_again() -> None:
    shard = ShareGroupShard()
    shard.beat("m1", 0, ["t"])
    shard.ready(done=False)
    assert shard.group.initializing == {}
    shard.beat("m1", 2)
    assert shard.requested == [{T: frozenset(range(6))}]


def test_unanswered_initialization_is_requested_again_after_30_seconds() -> None:
    shard = ShareGroupShard()
    shard.beat("m1", 0, ["t"])
    shard.now += 29_999
    shard.beat("m1", 2)
    assert len(shard.requested) == 1
    shard.now += 1
    shard.beat("m1", 2)
    assert len(shard.requested) == 2


def test_initialized_partitions_that_are_not_initializing_are_ignored() -> None:
    shard = ShareGroupShard({"t": 2})
    shard.beat("m1", 0, ["t"])
    shard.ask(lambda groups, pending, _: groups.on_initialized(pending, "g", {T: frozenset({1, 2, 3})}, done=True))
    assert shard.group.initialized[T].partitions == {1}
    assert shard.group.initializing[T].partitions == {0}


def test_deleted_topics_are_removed_from_group() -> None:
    shard = ShareGroupShard()
    shard.joined()
    event = TopicMetadataChanged(image_of({}, 9), frozenset({"t"}), False, {"t": T})
    shard.apply(shard.machine.handle(shard.now, event))
    assert shard.group.initialized == {}
    shard.now += 5_000
    answer = shard.beat("m1", 3)
    assert (answer.member_epoch, assignment_by_letter(answer.assignment)) == (4, {})


def test_group_id_of_other_group_type_is_refused() -> None:
    shard = ShareGroupShard()
    shard.heartbeat("c1", 0, rebalance_timeout_ms=1, topic_partitions=[], subscribed_topic_names=["t"])
    assert shard.beat("m1", 0, ["t"]) is ErrorCode.GROUP_ID_NOT_FOUND
    other = ShareGroupShard()
    other.joined()
    answer = other.call(share_group_heartbeat.ShareGroupHeartbeatRequest("g", "x", 0))
    assert isinstance(answer, ProtocolError)


def test_group_id_with_uncommitted_classic_record_is_refused() -> None:
    shard = ShareGroupShard()
    shard.commits = False
    shard.join("c1", version=3)
    assert shard.beat("m1", 0, ["t"]) is ErrorCode.GROUP_ID_NOT_FOUND
    altered = shard.ask(partial(alter_offsets, group_id="g", topics={"t": frozenset({0})}))
    assert str(altered).endswith("Group g is not a share group.")
    shard.complete_writes()
    assert (shard.answers["c1"].error_code, shard.machine.find_share_group("g")) == (0, None)


def test_classic_group_with_refused_record_can_be_deleted() -> None:
    shard = ShareGroupShard()
    shard.commits = False
    shard.join("c1", version=3)
    shard.complete_writes(ErrorCode.REQUEST_TIMED_OUT)
    assert shard.beat("m1", 0, ["t"]) is ErrorCode.GROUP_ID_NOT_FOUND, "the log says that it is another's"
    shard.apply(shard.machine.handle(shard.now, DeleteGroup("d1", "g")))
    assert shard.answers["d1"] is ErrorCode.NONE
    assert shard.beat("m1", 0, ["t"]).member_epoch == 2


def test_pending_classic_join_of_group_that_became_share_group_is_refused() -> None:
    shard = ShareGroupShard()
    shard.commits = False
    shard.join("c1", version=3)
    shard.apply(shard.machine.handle(shard.now, DeleteGroup("d1", "g")))
    shard.beat("m1", 0, ["t"])
    shard.complete_writes()
    assert shard.answers["c1"].code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ("g" in shard.machine.classic_groups.groups, list(shard.group.members)) == (False, ["m1"])


def test_join_group_short_session_is_refused_before_group_type_check() -> None:
    shard = ShareGroupShard()
    shard.joined()
    for session_timeout_ms, code in (
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        request = join_group.JoinGroupRequest("g", session_timeout_ms)
        answer = shard.machine.handle(shard.now, GroupRequest("c", request, 3, "client", "host")).replies[0][1]
        assert code in (getattr(answer, "error_code", None), getattr(answer, "code", None))


def test_delete_group_only_without_members_removes_group() -> None:
    shard = ShareGroupShard()
    shard.joined()
    shard.apply(shard.machine.handle(shard.now, DeleteGroup("d1", "g")))
    assert shard.answers["d1"] is ErrorCode.NON_EMPTY_GROUP
    shard.beat("m1", -1)
    shard.apply(shard.machine.handle(shard.now, DeleteGroup("d2", "g")))
    assert shard.answers["d2"] is ErrorCode.NONE
    assert shard.machine.find_share_group("g") is None


def test_shard_loaded_restores_share_groups_and_timers() -> None:
    shard = ShareGroupShard()
    shard.joined()
    shard.beat("m2", 0, ["t"])
    before = shard.group
    again = shard.restart()
    after = again.machine.find_share_group("g")
    assert after is not None
    assert (after.epoch, after.target_epoch, after.members, after.target) == (
        before.epoch,
        before.target_epoch,
        before.members,
        before.target,
    )
    assert (after.initialized, after.subscribed_topic_names) == (before.initialized, before.subscribed_topic_names)
    assert set(again._armed) >= {("share-session", "g", "m1"), ("share-session", "g", "m2")}


def test_target_assignment_of_many_partitions_is_computed_in_slices() -> None:
    shard = ShareGroupShard({"t": 4_000})
    epoch = shard.joined()
    shard.now += 5_000
    rule = partial(
        heartbeat,
        call=GroupRequest(
            None,
            share_group_heartbeat.ShareGroupHeartbeatRequest("g", "m2", 0, subscribed_topic_names=["t"]),
            1,
            "c",
            "h",
        ),
    )
    fx = shard.machine.handle(shard.now, ShareGroupCommand("new", rule))
    assert fx.continuation is not None
    shard.apply(fx)
    assert shard.answers["new"].response.member_epoch == epoch + 1
    assert {len(target[T]) for target in shard.group.target.values()} == {2_000}
