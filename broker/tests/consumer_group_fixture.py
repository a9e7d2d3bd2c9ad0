"""Shard with consumer groups in virtual time, and members that follow the protocol."""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.events import ShardLoaded
from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.classic.tests.test_groups import GroupShardFixture
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.records import decode
from ottla.broker.groups.settings import BoundedSetting, ConsumerGroupSettings
from ottla.broker.groups.state_machine import GroupStateMachine, TopicMetadataChanged
from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.controller.metadata.image import RESOURCE_GROUP, MetadataImage, PartitionRegistration, TopicImage
from ottla.wire.codec import compiler
from ottla.wire.messages import consumer_group_heartbeat, consumer_group_records
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)

LED = PartitionRegistration((1,), (1,), 1, 1, 1)
RECORD_TYPE_NAMES = {
    consumer_group_records.ConsumerGroupMetadataKey: "3",
    consumer_group_records.ConsumerGroupPartitionMetadataKey: "4",
    consumer_group_records.ConsumerGroupMemberMetadataKey: "5",
    consumer_group_records.ConsumerGroupTargetAssignmentMetadataKey: "6",
    consumer_group_records.ConsumerGroupTargetAssignmentMemberKey: "7",
    consumer_group_records.ConsumerGroupCurrentMemberAssignmentKey: "8",
    consumer_group_records.ConsumerGroupRegularExpressionKey: "16",
}


def image_of(topics: dict[str, int], offset: int = 1, **settings: str) -> MetadataImage:
    """Return an image of topics with these partition counts, and configs of the group "g", with _ for a dot."""
    made = {
        name: TopicImage(name, topic_id_of(name), dict.fromkeys(range(count), LED)) for name, count in topics.items()
    }
    own = {name.replace("_", "."): value for name, value in settings.items()}
    configs = {(RESOURCE_GROUP, "g"): own}
    return MetadataImage(
        offset, topics=made, topic_names={topic.id: name for name, topic in made.items()}, configs=configs
    )


def assignment_by_letter(assignment: consumer_group_heartbeat.Assignment | None) -> dict[str, list[int]] | None:
    """Return an assignment by the first letters of the topic ids."""
    if assignment is None:
        return None
    return {row.topic_id.decode().rstrip("-"): sorted(row.partitions) for row in assignment.topic_partitions}


def decode_partitions(assignment: bytes) -> list[ConsumerProtocolAssignmentTopicPartition]:
    """Return the partitions of an assignment of the classic protocol."""
    return compiler.decode(ConsumerProtocolAssignment, 3, assignment, 2)[0].assigned_partitions


class ConsumerGroupShard(GroupShardFixture):
    """Shard of the group coordinator with the group "g"."""

    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        super().__init__()
        bounded = dict(ConsumerGroupSettings().bounded_settings)
        bounded["consumer.assignment.interval.ms"] = BoundedSetting(
            settings.pop("assignment_interval_ms", 0), 0, 15_000
        )
        consumer = ConsumerGroupSettings(bounded)._replace(**settings)
        self.settings = self.machine.settings._replace(consumer=consumer)
        self.machine = GroupStateMachine(self.settings)
        self.now = 1_000_000
        self.apply(self.machine.handle(self.now, ShardLoaded()))
        self.topics = {"t": 6} if topics is None else topics
        self.image(self.topics, has_new=True)

    def image(self, topics: dict[str, int], *, has_new: bool = False, **settings: str) -> None:
        """Publish a metadata change."""
        touched = {name for name in {*topics, *self.topics} if topics.get(name) != self.topics.get(name)} or {*topics}
        self.topics = topics
        event = TopicMetadataChanged(image_of(topics, self.now, **settings), frozenset(touched), has_new, {})
        self.apply(self.machine.handle(self.now, event))

    @property
    def consumer(self) -> ConsumerGroup:
        group = self.machine.find_consumer_group("g")
        assert group is not None
        return group

    def call(self, request: Any, version: int = 1, **more: Any) -> Any:
        """Send a request and return its response."""
        self._count += 1
        call = GroupRequest(f"call-{self._count}", request, version, "c", "10.0.0.1", f"id-{self._count}")
        self.apply(self.machine.handle(self.now, call._replace(**more)))
        return self.answers.get(call.pending_request)

    def heartbeat(
        self, member: str, epoch: int, version: int = 1, **fields: Any
    ) -> consumer_group_heartbeat.ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; one that joins has all required fields, and subscribes to "t" unless stated otherwise."""
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 30_000, "topic_partitions": [], **fields}
            if "subscribed_topic_regex" not in fields:
                fields.setdefault("subscribed_topic_names", ["t"])
        answer: consumer_group_heartbeat.ConsumerGroupHeartbeatResponse = self.call(
            consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", member, epoch, **fields), version
        )
        return answer

    def records(self, since: int = 0) -> list[str]:
        """Return the types of the written records, negative for tombstones, followed by the member id."""
        out = []
        for key, value in self.log[since:]:
            record = decode(key, value)
            assert record is not None
            name = RECORD_TYPE_NAMES.get(type(record.key), type(record.key).__name__)
            out.append(("-" if value is None else "") + name + getattr(record.key, "member_id", ""))
        return out

    def restart(self) -> ConsumerGroupShard:
        """Return another shard loaded from the same log."""
        again = ConsumerGroupShard()
        again.machine = GroupStateMachine(self.settings)
        again.now, again.log, again.topics = self.now, list(self.log), {}
        for number, raw in enumerate(self.log):
            record = decode(*raw)
            assert record is not None
            again.machine.replay(number, record)
        again.apply(again.machine.handle(self.now, ShardLoaded()))
        again.image(self.topics)
        return again


class ConsumerMemberClient:
    """Member as a client implements it: it applies its assignment, revokes first, and reports it."""

    def __init__(self, shard: ConsumerGroupShard, name: str, **joining: Any) -> None:
        self.shard, self.name, self.joining = shard, name, joining
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}

    def topic_partitions(self) -> list[consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions]:
        row = consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions
        return [row(topic_id_of(topic), numbers) for topic, numbers in self.owned.items()]

    def beat(self, **fields: Any) -> consumer_group_heartbeat.ConsumerGroupHeartbeatResponse:
        """Send a heartbeat and apply the response."""
        if self.epoch == 0:
            self.owned = {}
            fields = {**self.joining, **fields}
        else:
            fields = {"topic_partitions": self.topic_partitions(), **fields}
        answer = self.shard.heartbeat(self.name, self.epoch, **fields)
        if answer.error_code:
            self.epoch = 0
            return answer
        self.epoch = answer.member_epoch
        response = assignment_by_letter(answer.assignment)
        if response is not None:
            self.owned = response
        return answer


def reconcile_members(*followers: ConsumerMemberClient, rounds: int = 12, step_ms: int = 1_000) -> None:
    """Send heartbeats of all members until they are stable, up to a limit."""
    for _ in range(rounds):
        before = [(f.epoch, dict(f.owned)) for f in followers]
        for follower in followers:
            follower.beat()
        followers[0].shard.wait(step_ms)
        if before == [(f.epoch, dict(f.owned)) for f in followers]:
            return


def two_reconciled_members() -> tuple[ConsumerGroupShard, ConsumerMemberClient, ConsumerMemberClient]:
    """Return two members that share "t": a has 0 to 2, b 3 to 5."""
    shard = ConsumerGroupShard()
    a, b = ConsumerMemberClient(shard, "a"), ConsumerMemberClient(shard, "b")
    reconcile_members(a)
    reconcile_members(a, b)
    assert (a.owned, b.owned) == ({"t": [0, 1, 2]}, {"t": [3, 4, 5]})
    assert shard.consumer.state == "Stable"
    return shard, a, b
