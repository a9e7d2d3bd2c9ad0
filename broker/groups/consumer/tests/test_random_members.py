"""Random histories of consumer group members, with invariants checked after each step."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.broker.tests.consumer_group_fixture import ConsumerGroupShard, ConsumerMemberClient
from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_heartbeat

TOPICS = {"a1": 3, "a2": 1, "b1": 4}
KNOWN = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


class SlowConsumerMember(ConsumerMemberClient):
    """Member that revokes slowly: it reports the partitions as owned once more before it gives them up."""

    def __init__(self, shard: ConsumerGroupShard, name: str, **joining: object) -> None:
        super().__init__(shard, name, **joining)
        self.lingering: dict[str, list[int]] = {}

    @property
    def has(self) -> set[tuple[str, int]]:
        parts = (*self.owned.items(), *self.lingering.items())
        return {(topic, number) for topic, numbers in parts for number in numbers}

    def topic_partitions(self) -> list[consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions]:
        row, both = consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions, sorted(self.has)
        topics = {topic for topic, _ in both}
        return [row(topic_id_of(topic), [n for t, n in both if t == topic]) for topic in sorted(topics)]

    def beat_with_revoked(self, **fields: Any) -> consumer_group_heartbeat.ConsumerGroupHeartbeatResponse:
        """Send a heartbeat that still reports revoked partitions as owned once."""
        before = dict(self.owned) if self.epoch else {}
        answer = self.beat(**fields)
        kept = {topic: [n for n in numbers if n not in self.owned.get(topic, ())] for topic, numbers in before.items()}
        self.lingering = {topic: numbers for topic, numbers in kept.items() if numbers} if self.epoch else {}
        return answer


class RandomConsumerGroupHistory:
    """Consumer group with random members, advanced step by step."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.shard = ConsumerGroupShard(dict(TOPICS), assignment_interval_ms=self.rng.choice([0, 1_000]))
        self.followers: list[SlowConsumerMember] = []
        self.made = 0

    def wishes(self) -> dict[str, object]:
        if self.rng.random() < 0.3:
            return {"subscribed_topic_regex": self.rng.choice(["a.*", "b.", ".*"]), "subscribed_topic_names": []}
        return {"subscribed_topic_names": sorted(self.rng.sample(sorted(TOPICS), self.rng.randint(1, 3)))}

    def enter(self) -> None:
        self.made += 1
        more = self.wishes()
        if self.rng.random() < 0.4:
            more["instance_id"] = f"i{self.rng.randint(0, 2)}"
        if self.rng.random() < 0.3:
            more["server_assignor"] = self.rng.choice(["range", "uniform"])
        self.followers.append(SlowConsumerMember(self.shard, f"m{self.made}", **more))

    def step(self) -> None:
        rng, shard = self.rng, self.shard
        choice = rng.random()
        member = rng.choice(self.followers) if self.followers else None
        if member is None or (choice < 0.08 and len(self.followers) < 7):
            self.enter()
        elif choice < 0.12:  # the member leaves and may rejoin
            away = rng.choice([-1, -2]) if "instance_id" in member.joining else -1
            shard.heartbeat(member.name, away, instance_id=member.joining.get("instance_id"))
            self.followers.remove(member)
        elif choice < 0.15:  # the member dies
            self.followers.remove(member)
        elif choice < 0.18:  # the member loses its state
            member.epoch = 0
        elif choice < 0.22:  # a response is lost
            before = member.epoch, dict(member.owned), dict(member.lingering)
            self.beat(member)
            member.epoch, member.owned, member.lingering = before
        elif choice < 0.26 and member.epoch:
            wishes = self.wishes()
            member.joining.update(wishes)
            self.beat(member, **wishes)
        elif choice < 0.28:
            counts = {name: count + rng.randint(0, 1) for name, count in shard.topics.items()}
            shard.image(counts)
        elif choice < 0.30:
            self.shard = shard.restart()
            for follower in self.followers:
                follower.shard = self.shard
        elif choice < 0.4:
            shard.wait(rng.choice([0, 500, 5_000, 12_000]))
        else:
            self.beat(member)

    def beat(self, member: SlowConsumerMember, **fields: object) -> None:
        answer = member.beat_with_revoked(instance_id=member.joining.get("instance_id"), **fields)
        assert not answer.error_code or answer.error_code in KNOWN, answer
        if answer.error_code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.followers.remove(member)
        self.holds()

    def holds(self) -> None:
        """Check that no partition has two owners or two targets, and that memory equals the log."""
        group = self.shard.machine.find_consumer_group("g")
        if group is None:
            return
        held = [
            (topic, number)
            for member in group.members.values()
            for part in (member.assigned, member.revoking)
            for topic, numbers in part.items()
            for number in numbers
        ]
        assert len(held) == len(set(held)), "two members hold a partition"
        inside = [f for f in self.followers if f.epoch and f.name in group.members]
        inside = [f for f in inside if f.epoch == group.members[f.name].epoch]
        had = [one for follower in inside for one in follower.has]
        assert len(had) == len(set(had)), "a partition was given before it was given up"
        assert set(held) == {(t, n) for t, numbers in group.owner_epochs.items() for n in numbers}
        aims = [(t, n) for target in group.target.values() for t, numbers in target.items() for n in numbers]
        assert len(aims) == len(set(aims)), "two members are to have a partition"
        assert group.target_epoch <= group.epoch
        for member in group.members.values():
            assert member.epoch <= group.target_epoch

    def stop_faults(self) -> None:
        """Stop the faults: members send heartbeats or expire, and all subscribed topics are assigned."""
        for _ in range(40):
            for follower in list(self.followers):
                self.beat(follower)
            self.shard.wait(3_000)
        group = self.shard.machine.find_consumer_group("g")
        if not self.followers:
            return
        assert group is not None
        assert group.state == "Stable", [(m.id, m.state, m.epoch) for m in group.members.values()]
        assert {f.name for f in self.followers} == set(group.members)
        wanted = {name for member in group.members.values() for name in group.subscribed_topics(member)}
        read = [(topic, number) for f in self.followers for topic, numbers in f.owned.items() for number in numbers]
        assert sorted(read) == sorted((name, n) for name in wanted for n in range(self.shard.topics[name]))


@pytest.mark.parametrize("seed", range(40))
def test_random_members_never_share_a_partition_and_group_becomes_stable(seed: int) -> None:
    history = RandomConsumerGroupHistory(seed)
    for _ in range(120):
        history.step()
    history.stop_faults()
