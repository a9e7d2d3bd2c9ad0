"""Share groups rule by rule (C-208 to C-212): membership, epochs, which partitions go to whom and when."""

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
    """A shard with the share group "g", whose partitions get their state when the test says so."""

    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        super().__init__(topics)
        self.machine.settings = self.settings._replace(share=ShareGroupSettings()._replace(**settings))
        self.kinds: list[str] = []
        self.asked: list[dict[bytes, frozenset[int]]] = []

    def beat(self, member: str, epoch: int, names: list[str] | None = None, group: str = "g", **more: Any) -> Any:
        """A heartbeat: its answer, or the code it was refused with."""
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(
            group, member, epoch, subscribed_topic_names=names, **more
        )
        rule = partial(heartbeat, call=GroupRequest(None, request, 1, "c", "10.0.0.1"))
        answer = self.ask(rule)
        if isinstance(answer, ProtocolError):
            return answer.code
        assert isinstance(answer, ShareHeartbeatResult)
        if answer.partitions_to_initialize:
            self.asked.append(dict(answer.partitions_to_initialize))
        return answer.response

    def ask(self, rule: Any) -> Any:
        self._count += 1
        ticket = f"share-{self._count}"
        before = len(self.log)
        self.apply(self.machine.handle(self.now, ShareGroupCommand(ticket, rule)))
        self.kinds = [str(int.from_bytes(key[:2], "big")) for key, _ in self.log[before:]]
        return self.answers.get(ticket)

    def ready(self, *, done: bool = True) -> None:
        """What was asked for last has got its state, or could not get it."""
        places = self.asked.pop()
        self.ask(lambda groups, ticket, _: groups.on_initialized(ticket, "g", places, done=done))

    def joined(self, member: str = "m1") -> int:
        """A member whose partitions are ready and assigned; gives its epoch."""
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


def test_the_first_heartbeat_makes_the_group_and_assigns_nothing_yet() -> None:
    stage = ShareGroupShard()
    answer = stage.beat("m1", 0, ["t"])
    assert (answer.member_epoch, assignment_by_letter(answer.assignment), answer.heartbeat_interval_ms) == (
        2,
        {},
        5_000,
    )
    assert stage.kinds == ["10", "11", "13", "12", "14", "15"]
    assert stage.asked == [{T: frozenset(range(6))}]
    assert stage.group.state == "Stable"


def test_partitions_are_assigned_once_they_have_their_state() -> None:
    stage = ShareGroupShard()
    stage.beat("m1", 0, ["t"])
    stage.ready()
    assert stage.kinds == ["15"]
    assert (stage.group.initializing, stage.group.initialized[T].partitions) == ({}, frozenset(range(6)))
    stage.now += 5_000
    answer = stage.beat("m1", 2)
    assert (answer.member_epoch, assignment_by_letter(answer.assignment)) == (3, {"t": [0, 1, 2, 3, 4, 5]})
    assert stage.kinds == ["11", "13", "12", "14"]
    stage.now += 5_000
    answer = stage.beat("m1", 3)
    assert (stage.kinds, answer.assignment) == ([], None), "nothing has changed"


def test_a_target_waits_for_its_time() -> None:
    stage = ShareGroupShard()
    stage.beat("m1", 0, ["t"])
    stage.ready()
    stage.now += 999
    assert stage.beat("m1", 2).member_epoch == 2
    assert stage.group.epoch == 3
    stage.now += 1
    assert stage.beat("m1", 2).member_epoch == 3


def test_members_share_and_all_get_as_much() -> None:
    stage = ShareGroupShard({"t": 2})
    stage.joined()
    stage.beat("m2", 0, ["t"])
    stage.now += 5_000
    first, second = stage.beat("m1", 3), stage.beat("m2", stage.group.members["m2"].epoch, ["t"])
    assert sorted([*assignment_by_letter(first.assignment)["t"], *assignment_by_letter(second.assignment)["t"]]) == [
        0,
        1,
    ]  # type: ignore[index]
    for name in ("m3", "m4"):
        stage.beat(name, 0, ["t"])
        stage.now += 5_000
    held = [
        n
        for m in ("m1", "m2", "m3", "m4")
        for n in assignment_by_letter(stage.beat(m, stage.group.members[m].epoch, ["t"]).assignment)["t"]
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
def test_a_member_speaks_of_its_epoch(rule: str, epoch: int, expected: Any) -> None:
    stage = ShareGroupShard()
    stage.joined()
    answer = stage.beat("m1", epoch, ["t"] if epoch == 0 else None)
    assert getattr(answer, "member_epoch", answer) == expected, rule
    if epoch == 0:
        assert assignment_by_letter(answer.assignment) == {"t": [0, 1, 2, 3, 4, 5]}


def test_who_is_nobody_is_told_so() -> None:
    stage = ShareGroupShard()
    assert stage.beat("m1", 1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.beat("m1", -1) is ErrorCode.GROUP_ID_NOT_FOUND
    stage.joined()
    assert stage.beat("m2", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.beat("m2", -1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_has_so_many_members_and_those_may_go_on() -> None:
    stage = ShareGroupShard(max_size=1)
    stage.joined()
    assert stage.beat("m2", 0, ["t"]) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert stage.beat("m1", 3).member_epoch == 3


def test_a_member_leaves_and_the_group_stays() -> None:
    stage = ShareGroupShard()
    stage.joined()
    answer = stage.beat("m1", -1)
    assert (answer.member_id, answer.member_epoch, stage.kinds) == ("m1", -1, ["14", "13", "10", "11"])
    assert (stage.group.state, stage.group.epoch, stage.group.metadata_hash) == ("Empty", 4, 0)
    assert set(stage.group.initialized) == {T}, "what was shared stays so"
    stage.now += 5_000
    assert stage.beat("m1", 0, ["t"]).member_epoch == 5


def test_a_session_that_is_over_removes_the_member() -> None:
    stage = ShareGroupShard()
    stage.joined()
    stage.now += SESSION_MS
    stage.apply(stage.machine.handle(stage.now, TimerExpired(("share-session", "g", "m1"))))
    assert stage.group.members == {}


def test_other_topics_are_another_epoch_and_lose_what_is_not_wanted_any_more() -> None:
    stage = ShareGroupShard({"t": 2, "u": 1})
    stage.joined()
    stage.now += 5_000
    answer = stage.beat("m1", 3, ["u"])
    assert (answer.member_epoch, assignment_by_letter(answer.assignment)) == (4, {})
    assert list(stage.asked[-1]) == [topic_id_of("u")]
    stage.ready()
    stage.now += 5_000
    assert assignment_by_letter(stage.beat("m1", 4).assignment) == {"u": [0]}


def test_partitions_that_come_are_shared_too() -> None:
    stage = ShareGroupShard({"t": 1})
    stage.joined()
    stage.image({"t": 3})
    stage.now += 5_000
    stage.beat("m1", 3)
    assert stage.asked == [{T: frozenset({1, 2})}]
    stage.ready()
    stage.now += 5_000
    assert assignment_by_letter(stage.beat("m1", 4).assignment) == {"t": [0, 1, 2]}


def test_what_cannot_get_its_state_is_asked_for_again() -> None:
    stage = ShareGroupShard()
    stage.beat("m1", 0, ["t"])
    stage.ready(done=False)
    assert stage.group.initializing == {}
    stage.beat("m1", 2)
    assert stage.asked == [{T: frozenset(range(6))}]


def test_what_nobody_hears_of_is_asked_for_again_after_a_while() -> None:
    stage = ShareGroupShard()
    stage.beat("m1", 0, ["t"])
    stage.now += 29_999
    stage.beat("m1", 2)
    assert len(stage.asked) == 1
    stage.now += 1
    stage.beat("m1", 2)
    assert len(stage.asked) == 2


def test_topics_that_go_are_forgotten() -> None:
    stage = ShareGroupShard()
    stage.joined()
    event = TopicMetadataChanged(image_of({}, 9), frozenset({"t"}), False, {"t": T})
    stage.apply(stage.machine.handle(stage.now, event))
    assert stage.group.initialized == {}
    stage.now += 5_000
    answer = stage.beat("m1", 3)
    assert (answer.member_epoch, assignment_by_letter(answer.assignment)) == (4, {})


def test_an_id_belongs_to_one_kind_of_group() -> None:
    stage = ShareGroupShard()
    stage.heartbeat("c1", 0, rebalance_timeout_ms=1, topic_partitions=[], subscribed_topic_names=["t"])
    assert stage.beat("m1", 0, ["t"]) is ErrorCode.GROUP_ID_NOT_FOUND
    other = ShareGroupShard()
    other.joined()
    answer = other.call(share_group_heartbeat.ShareGroupHeartbeatRequest("g", "x", 0))
    assert isinstance(answer, ProtocolError)


def test_an_id_is_a_classic_groups_from_its_first_record_on() -> None:
    stage = ShareGroupShard()
    stage.commits = False
    stage.join("c1", version=3)
    assert stage.beat("m1", 0, ["t"]) is ErrorCode.GROUP_ID_NOT_FOUND
    altered = stage.ask(partial(alter_offsets, group_id="g", topics={"t": frozenset({0})}))
    assert str(altered).endswith("Group g is not a share group.")
    stage.settle()
    assert (stage.answers["c1"].error_code, stage.machine.find_share_group("g")) == (0, None)


def test_a_classic_group_whose_first_record_was_given_up_can_be_deleted() -> None:
    stage = ShareGroupShard()
    stage.commits = False
    stage.join("c1", version=3)
    stage.settle(ErrorCode.REQUEST_TIMED_OUT)
    assert stage.beat("m1", 0, ["t"]) is ErrorCode.GROUP_ID_NOT_FOUND, "the log says that it is another's"
    stage.apply(stage.machine.handle(stage.now, DeleteGroup("d1", "g")))
    assert stage.answers["d1"] is ErrorCode.NONE
    assert stage.beat("m1", 0, ["t"]).member_epoch == 2


def test_who_waits_for_a_classic_group_that_is_a_share_group_by_then_is_refused() -> None:
    stage = ShareGroupShard()
    stage.commits = False
    stage.join("c1", version=3)
    stage.apply(stage.machine.handle(stage.now, DeleteGroup("d1", "g")))
    stage.beat("m1", 0, ["t"])
    stage.settle()
    assert stage.answers["c1"].code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ("g" in stage.machine.classic_groups.groups, list(stage.group.members)) == (False, ["m1"])


def test_a_session_that_is_too_short_is_refused_whatever_kind_its_group_is_of() -> None:
    stage = ShareGroupShard()
    stage.joined()
    for session_timeout_ms, code in (
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        request = join_group.JoinGroupRequest("g", session_timeout_ms)
        answer = stage.machine.handle(stage.now, GroupRequest("c", request, 3, "client", "host")).replies[0][1]
        assert code in (getattr(answer, "error_code", None), getattr(answer, "code", None))


def test_only_a_group_without_members_is_deleted_with_all_it_had() -> None:
    stage = ShareGroupShard()
    stage.joined()
    stage.apply(stage.machine.handle(stage.now, DeleteGroup("d1", "g")))
    assert stage.answers["d1"] is ErrorCode.NON_EMPTY_GROUP
    stage.beat("m1", -1)
    stage.apply(stage.machine.handle(stage.now, DeleteGroup("d2", "g")))
    assert stage.answers["d2"] is ErrorCode.NONE
    assert stage.machine.find_share_group("g") is None


def test_everything_is_there_again_after_a_restart() -> None:
    stage = ShareGroupShard()
    stage.joined()
    stage.beat("m2", 0, ["t"])
    before = stage.group
    again = stage.restart()
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


def test_a_target_of_very_many_partitions_is_computed_in_slices() -> None:
    stage = ShareGroupShard({"t": 4_000})
    epoch = stage.joined()
    stage.now += 5_000
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
    fx = stage.machine.handle(stage.now, ShareGroupCommand("new", rule))
    assert fx.continuation is not None
    stage.apply(fx)
    assert stage.answers["new"].response.member_epoch == epoch + 1
    assert {len(target[T]) for target in stage.group.target.values()} == {2_000}
