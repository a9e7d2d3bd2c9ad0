"""Cluster invariants: each with nodes that break it, and with nodes that do not."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.controller.metadata.subscriptions import MetadataSubscriptions
from ottla.controller.raft.state_machine.log_summary import LogSummary
from ottla.env.memory_disk import MemoryDisk
from ottla.wire.messages import metadata_records
from sim.checkers.cluster_invariants import MAX_REPORTS, ClusterInvariants
from sim.checkers.replica_comparison import ReplicaCopy, find_replica_differences, read_replica
from sim.engine.simulation import Simulation

ID = bytes(15) + b"\x05"
AT = ("t", 0)


@dataclass
class FakeHostedPartitions:
    """Hosted partitions of a node."""

    hosted: dict[tuple[str, int], Any] = field(default_factory=dict)
    offline_partitions: set[tuple[str, int]] = field(default_factory=set)

    def __iter__(self) -> Any:
        return iter(self.hosted.values())

    def get(self, topic: str, partition: int) -> Any:
        return self.hosted.get((topic, partition))


class FakeNodeComponents:
    """Components of a node, as far as the invariants use them."""

    def __init__(
        self, *, epoch: int = 1, leader: int = 1, image: MetadataImage | None = None, broker_epoch: int = 7
    ) -> None:
        self.raft = SimpleNamespace(log_summary=LogSummary(), high_watermark=-1)
        fields = {"epoch": epoch, "leader_id": leader, "image": image or image_of()}
        self.subscriptions = MetadataSubscriptions(MetadataImage)
        self.controller = SimpleNamespace(
            **fields, subscribe=self.subscriptions.subscribe, _raft=SimpleNamespace(machine=self.raft)
        )
        self.replica_manager = FakeHostedPartitions()
        self.lifecycle = SimpleNamespace(broker_epoch=broker_epoch)

    def host_partition(
        self,
        *,
        end: int,
        high: int,
        leads: bool = False,
        epoch: int = 3,
        topic_id: bytes = ID,
        partition_epoch: int = 1,
    ) -> FakeNodeComponents:
        log = SimpleNamespace(log_end_offset=end, high_watermark=high)
        state = SimpleNamespace(partition_epoch=partition_epoch)
        replica = SimpleNamespace(
            topic="t", partition=0, topic_id=topic_id, is_leader=leads, leader_epoch=epoch, log=log, state=state
        )
        self.replica_manager.hosted[AT] = replica
        return self

    def set_voter(self, *epochs: tuple[int, int], end: int, committed: int, start: int = 0) -> FakeNodeComponents:
        """Set a voter; ``epochs``: (epoch, its first offset)."""
        vars(self.raft).update(log_summary=LogSummary(end, epochs, start), high_watermark=committed)
        return self

    def set_high_watermark(self, high: int) -> None:
        vars(self.replica_manager.hosted[AT].log).update(high_watermark=high)

    def publish_image(self, image: MetadataImage) -> None:
        self.subscriptions.publish(image, MetadataDelta())


def image_of(
    offset: int = 10, *, isr: tuple[int, ...] = (1, 2), leader: int = 1, epoch: int = 3, broker_epoch: int = 7
) -> MetadataImage:
    registration = PartitionRegistration((1, 2), isr, leader, epoch, 1)
    topic = TopicImage("t", ID, {0: registration})
    brokers = {i: metadata_records.RegisterBrokerRecord(i, broker_epoch=broker_epoch) for i in (1, 2)}
    names = MetadataImage().topic_names.update({ID: "t"})
    return MetadataImage(
        offset, 1, topics=MetadataImage().topics.update({"t": topic}), topic_names=names, brokers=brokers
    )


def find_broken(*looks: dict[int, FakeNodeComponents]) -> set[str]:
    """Return the names of violations after each of these checks."""
    env, now = Simulation(1), dict[int, Any]()
    invariants = ClusterInvariants(env, lambda: now)
    for nodes in looks:
        now.clear()
        now.update(nodes)
        invariants.check_once()
    return {name for name, _ in env.ledger.violations}


def leading(**more: Any) -> FakeNodeComponents:
    return FakeNodeComponents(**more).host_partition(end=9, high=8, leads=True)


def following(end: int = 8, **more: Any) -> FakeNodeComponents:
    return FakeNodeComponents(**more).host_partition(end=end, high=0)


REMOVED = FakeNodeComponents(image=image_of(11, isr=(1,)))
REMOVED_BEFORE = FakeNodeComponents(image=image_of(10, isr=(1,)))
ONE = FakeNodeComponents().set_voter((1, 0), end=21, committed=20)
ROWS = [
    (
        "CommittedNeverLost",  # offset 19 was committed in epoch 1
        [{1: ONE}, {2: FakeNodeComponents().set_voter((1, 0), (2, 19), end=22, committed=22)}],
        [{1: ONE}, {2: FakeNodeComponents().set_voter((1, 0), (2, 20), end=22, committed=22)}],
    ),
    (
        "CommittedNeverLost",
        [{1: ONE, 2: FakeNodeComponents().set_voter((2, 0), end=20, committed=20)}],
        [
            # there it may be truncated
            {1: ONE, 2: FakeNodeComponents().set_voter((1, 0), (2, 19), end=20, committed=19)},
            {
                1: ONE,
                2: FakeNodeComponents().set_voter((2, 20), end=22, start=20, committed=22),
            },  # a snapshot covers it
        ],
    ),
    (
        "SingleLeaderPerEpoch",
        [{1: FakeNodeComponents(leader=1), 2: FakeNodeComponents(leader=2)}],
        [{1: FakeNodeComponents(), 2: FakeNodeComponents()}],
    ),
    (
        "SingleLeaderPerEpoch",
        [{1: FakeNodeComponents(leader=1)}, {2: FakeNodeComponents(leader=2)}],
        [{1: FakeNodeComponents()}, {2: FakeNodeComponents(epoch=2, leader=2)}],
    ),
    (
        "SingleLeaderPerEpoch",
        [{1: FakeNodeComponents(), 2: FakeNodeComponents(leader=3)}],
        [{1: FakeNodeComponents(), 2: FakeNodeComponents(leader=-1)}],
    ),
    (
        "PartitionLeaderPerEpoch",
        [{1: leading()}, {2: leading()}],
        [{1: leading()}, {2: FakeNodeComponents().host_partition(end=9, high=8, leads=True, epoch=4)}],
    ),
    ("PartitionLeaderPerEpoch", [{1: leading(), 2: leading()}], [{1: leading(), 2: following()}]),
    (
        "LeaderInIsr",
        [{1: FakeNodeComponents(image=image_of(isr=(2,)))}],
        [{1: FakeNodeComponents(image=image_of(isr=(2,), leader=-1))}],
    ),
    ("StrongIsr", [{1: leading(), 2: following(7)}], [{1: leading(), 2: following(8)}]),
    ("StrongIsr", [{1: leading(), 2: FakeNodeComponents()}], [{1: leading()}]),
    (
        "StrongIsr",
        [{1: leading(), 2: following(7)}],
        [
            {
                1: FakeNodeComponents().host_partition(end=8, high=8, leads=True, topic_id=b"of an older one-"),
                2: FakeNodeComponents(),
            }
        ],
    ),
    (
        "StrongIsr",
        [{1: leading(), 2: following(7)}],
        [{1: leading(image=image_of(isr=(1,))), 2: following(7, image=image_of(9))}],
    ),
    ("StrongIsr", [{1: leading(), 2: following(7)}], [{1: leading(), 2: following(7, broker_epoch=6)}]),
    (
        "StrongIsr",
        [{1: leading(), 2: following(7)}],
        [{1: leading(image=image_of(epoch=4)), 2: following(7, image=image_of(epoch=4))}],
    ),
    (
        "StrongIsr",  # node 3 has published the removal of node 2, and stops before the others know it
        [{3: REMOVED_BEFORE}, {1: leading(image=image_of(11)), 2: following(7)}],
        [{3: REMOVED}, {1: leading(), 2: following(7)}],
    ),
]


@pytest.mark.parametrize(("name", "shows", "legal"), ROWS, ids=lambda x: x if isinstance(x, str) else "")
def test_cluster_invariant_is_reported_exactly_when_broken(
    name: str, shows: list[dict[int, FakeNodeComponents]], legal: list[dict[int, FakeNodeComponents]]
) -> None:
    assert find_broken(*shows) == {name}
    assert find_broken(*legal) == set()


def test_removal_published_between_checks_by_node_that_stops_counts() -> None:
    env, controller = Simulation(1), FakeNodeComponents()
    living = {1: leading(), 2: following(8), 3: controller}
    invariants = ClusterInvariants(env, lambda: living)  # type: ignore[arg-type,return-value]
    invariants.check_once()
    controller.publish_image(image_of(11, isr=(1,)))
    del living[3]
    living[1].set_high_watermark(9)
    invariants.check_once()
    assert env.ledger.violations == []


def test_removal_that_no_node_has_published_does_not_count() -> None:
    leader = leading()
    leader.replica_manager.hosted[AT].state = SimpleNamespace(partition_epoch=2, committed_isr=(1,))
    assert find_broken({1: leader, 2: following(7)}) == {"StrongIsr"}


def test_high_watermark_going_back_in_same_epoch_is_reported() -> None:
    node = leading()
    assert find_broken({1: node}, {1: node}) == set()
    env = Simulation(1)
    invariants = ClusterInvariants(env, lambda: {1: node})  # type: ignore[dict-item]
    invariants.check_once()
    vars(node.replica_manager.hosted[AT].log).update(high_watermark=7)
    node.replica_manager.hosted[AT].leader_epoch = 4
    invariants.check_once()
    assert env.ledger.violations == []
    vars(node.replica_manager.hosted[AT].log).update(high_watermark=6)
    invariants.check_once()
    assert [name for name, _ in env.ledger.violations] == ["MonotonicHighWatermark"]
    assert find_broken({1: leading(image=image_of(10))}, {1: leading(image=image_of(9))}) == set()  # after a restart
    node.controller.image = image_of(9)
    invariants.check_once()
    assert len(env.ledger.violations) == 2


def few(isr: tuple[int, ...], least: str) -> MetadataImage:
    return replace(image_of(isr=isr), configs=MetadataImage().configs.update({(4, ""): {"min.insync.replicas": least}}))


def test_commit_below_min_insync_replicas_is_reported() -> None:
    for isr, least, knows, expected in (
        ((1,), "2", 1, ["EnoughInSync"]),
        ((1, 2), "2", 1, []),
        ((1,), "1", 1, []),
        ((1,), "2", 0, []),
        ((1, 2), "3", 1, []),  # there are no more than two
    ):
        env, node = Simulation(1), FakeNodeComponents(image=few(isr, least))
        node.host_partition(end=9, high=8, leads=True, partition_epoch=knows)
        invariants = ClusterInvariants(env, lambda node=node: {1: node})  # type: ignore[misc]
        invariants.check_once()
        assert env.ledger.violations == []
        node.set_high_watermark(9)
        invariants.check_once()
        assert [name for name, _ in env.ledger.violations] == expected


def test_different_images_of_one_offset_are_reported() -> None:
    one, other = FakeNodeComponents(), FakeNodeComponents()
    env = Simulation(1)
    invariants = ClusterInvariants(env, lambda: {1: one, 2: other})  # type: ignore[dict-item]
    invariants.check_once()
    one.publish_image(image_of(20))
    other.publish_image(image_of(20))
    other.publish_image(image_of(21, leader=2))
    assert env.ledger.violations == []
    one.publish_image(image_of(21))
    assert [name for name, _ in env.ledger.violations] == ["CommittedNeverLost"]
    assert "topics" in env.ledger.violations[0][1]


def test_report_of_one_violation_is_limited() -> None:
    env, node = Simulation(1), FakeNodeComponents(image=image_of(isr=(2,)))
    invariants = ClusterInvariants(env, lambda: {1: node})  # type: ignore[dict-item]
    for _ in range(2 * MAX_REPORTS):
        invariants.check_once()
    assert len(env.ledger.violations) == MAX_REPORTS


def test_find_replica_differences_with_other_or_missing_batch_returns_one() -> None:
    def differ(one: dict[int, bytes], other: dict[int, bytes], starts: tuple[int, int] = (0, 0), **more: int) -> int:
        return len(
            find_replica_differences({"n1": ReplicaCopy(starts[0], one), "n2": ReplicaCopy(starts[1], other)}, **more)
        )

    full = {0: b"a", 2: b"b", 5: b"c"}
    assert differ(full, dict(full)) == 0
    assert differ(full, {**full, 2: b"x"}) == 1
    assert differ(full, {0: b"a", 2: b"b"}) == 1
    assert differ(full, {0: b"a", 2: b"b"}, below=5) == 0
    assert differ(full, {2: b"b", 5: b"c"}, (0, 2)) == 0  # its log begins later
    assert differ(full, {**full, 0: b"x"}, start=2) == 0, "deleted, and still on the disks"
    assert differ(full, {**full, 2: b"x"}, start=2) == 1
    assert differ(full, {}) == 3
    assert differ(full, {}, (0, 7)) == 0, "a snapshot has it all"
    assert differ(full, {}, (0, 5)) == 1
    assert differ({}, {}) == 0


def test_read_replica_with_empty_segment_starts_at_its_base_offset() -> None:
    disk = MemoryDisk(random.Random(1), lambda: 0.0)
    session = disk.session()
    assert read_replica(disk, "t", 0) == (0, {})
    session.makedirs("/d/t-0")
    session.open("/d/t-0/00000000000000000522.log", create=True)
    assert read_replica(disk, "t", 0) == (522, {})
