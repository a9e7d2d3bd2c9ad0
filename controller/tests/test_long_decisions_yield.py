"""Cooperative scheduling of the controller: long decisions, encodings and replays yield every hundred records."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import trio

from ottla.controller import snapshot_generator
from ottla.controller.config import config_keys
from ottla.controller.control import broker_heartbeat, broker_heartbeat_tracker, elect_leaders, replica_recovery
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.image import MetadataImage, image_records_yielding
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.controller.metadata.snapshot_files import SnapshotContents, SnapshotId, encode_snapshot
from ottla.controller.partitions import reassignment_plan
from ottla.controller.partitions.leader_and_isr_updates import leader_and_isr_updates, leads_any_partition
from ottla.controller.tests.test_controller_state_machine import create, machine, publish
from ottla.jobs.job import Job, run_to_end
from ottla.jobs.sequences import SORT_CHUNK, YIELD_EVERY, sort_job
from ottla.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
)
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.messages.metadata_records import (
    ClearElrRecord,
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest

Steps = Generator[None, None, Any]


def pauses(steps: Any) -> int:
    return sum(1 for _ in steps)


def controller_with_topics(partitions: int = 1_000, topics: int = 1) -> ControllerStateMachine:
    """Return a controller with topics of `partitions` partitions each, on broker 1 of two."""
    controller = machine(2)
    for number in range(topics):
        rows = [CreatableReplicaAssignment(n, [1, 2]) for n in range(partitions)]
        create(controller, f"t_{number}", -1, -1, assignments=rows)
    return controller


def create_by_count(count: int) -> Steps:
    """Yields: one per hundred assign_directories partitions, one per hundred written records, one per topic."""
    topic = CreatableTopic("t", count, 1)
    return machine().decide(CreateTopicsRequest([topic], 1000))  # type: ignore[return-value]


def create_by_assignment(count: int) -> Steps:
    topic = CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(n, [1]) for n in range(count)])
    return machine().decide(CreateTopicsRequest([topic], 1000))  # type: ignore[return-value]


def create_by_assignment_to_other_numbers(count: int) -> Steps:
    """Assign partition numbers that are no multiple of a hundred; they are refused at the end."""
    topic = CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(100 * n + 1, [1]) for n in range(count)])
    return machine().decide(CreateTopicsRequest([topic], 1000))  # type: ignore[return-value]


def widen_by_count(count: int) -> Steps:
    request = CreatePartitionsRequest([CreatePartitionsTopic("t_0", 1 + count, None)], 1000)
    return controller_with_topics(1).decide(request)  # type: ignore[return-value]


def widen_by_assignment(count: int) -> Steps:
    rows = [CreatePartitionsAssignment([1, 2])] * count
    request = CreatePartitionsRequest([CreatePartitionsTopic("t_0", 1 + count, rows)], 1000)
    return controller_with_topics(1).decide(request)  # type: ignore[return-value]


def isr_updates(count: int) -> Steps:
    """Update the ISRs of broker 1: yields depend on the visited partitions, not on the changed ones."""
    return leader_and_isr_updates(controller_with_topics(count).image, {}, lambda p: False, leaves=1)


def isr_updates_over_topics(count: int) -> Steps:
    return leader_and_isr_updates(controller_with_topics(count // 10, 10).image, {}, lambda p: True, leaves=1)


def assign_directories(count: int) -> Steps:
    controller = controller_with_topics(count)
    topic, known = controller.image.topics["t_0"], controller.image.brokers[1]
    rows = AssignReplicasToDirsRequestTopicData(
        topic.id, [AssignReplicasToDirsRequestPartitionData(n) for n in range(count)]
    )
    where = [AssignReplicasToDirsRequestDirectoryData(known.log_dirs[0], [rows])]
    return controller.decide(AssignReplicasToDirsRequest(1, known.broker_epoch, where))  # type: ignore[return-value]


def alter_partition(count: int) -> Steps:
    controller = controller_with_topics(count)
    topic, known = controller.image.topics["t_0"], controller.image.brokers[1]
    rows = [AlterPartitionRequestPartitionData(n) for n in range(count)]
    topics = [AlterPartitionRequestTopicData(topic.id, rows)]
    return controller.decide(AlterPartitionRequest(1, known.broker_epoch, topics), 3)  # type: ignore[return-value]


def elect_all(count: int) -> Steps:
    controller = controller_with_topics(count)
    return controller.decide(ElectLeadersRequest(0, None))  # type: ignore[return-value]


def balance(count: int) -> Steps:
    return elect_leaders.balance_partition_leaders(controller_with_topics(count).image, {})


def replace_replicas(count: int) -> Steps:
    return replica_recovery.replace_lost_replicas(
        controller_with_topics(count).image,
        {config_keys.REPLICA_RECOVERY: "1"},
        broker_heartbeat_tracker.FencedSince(),
        0,
    )


def drain_plan(count: int) -> Steps:
    """Yields: one per hundred counted and one per hundred drain_plan partitions."""
    return reassignment_plan.drain({1: None, 2: None}, {("t", n): (1,) for n in range(count)}, [1])


def reassign_partitions(count: int) -> Steps:
    rows = [ReassignablePartition(n, [2]) for n in range(count)]
    request = AlterPartitionReassignmentsRequest(1000, True, [ReassignableTopic("t_0", rows)])
    return controller_with_topics(count).decide(request)  # type: ignore[return-value]


def reassign_empty_topics(count: int) -> Steps:
    """Topics count even without partitions."""
    rows = [ReassignableTopic(f"x{n}", []) for n in range(count)]
    return controller_with_topics(1).decide(AlterPartitionReassignmentsRequest(1000, True, rows))  # type: ignore[return-value]


def list_reassignments(count: int) -> Steps:
    return controller_with_topics(count).decide(ListPartitionReassignmentsRequest(1000, None))  # type: ignore[return-value]


def snapshot(count: int) -> Steps:
    return encode_snapshot(SnapshotContents(), 1, 0, records=(NoOpRecord() for _ in range(count)))


def delete_topics(count: int) -> Steps:
    return machine().decide(DeleteTopicsRequest(topic_names=[f"t{n}" for n in range(count)]), 5)  # type: ignore[return-value]


def widen_many(count: int) -> Steps:
    """Yields: one per hundred counted and one per hundred answered topics, as in all requests with many topics."""
    topics = [CreatePartitionsTopic(f"t{n}", 3, None) for n in range(count)]
    return machine().decide(CreatePartitionsRequest(topics, 1000), 3)  # type: ignore[return-value]


def alter_many(count: int) -> Steps:
    resources = [AlterConfigsResource(2, f"t{n}", []) for n in range(count)]
    return machine().decide(AlterConfigsRequest(resources), 2)  # type: ignore[return-value]


ROWS: list[tuple[Callable[[int], Steps], int]] = [
    # yields per hundred elements of the request or new partitions, at least
    (create_by_count, 2),
    (create_by_assignment, 2),
    (create_by_assignment_to_other_numbers, 1),
    (widen_by_count, 2),
    (widen_by_assignment, 2),
    (assign_directories, 100),
    (alter_partition, 100),
    (elect_all, 100),
    (drain_plan, 101),
    (reassign_partitions, 100),
    (list_reassignments, 100),
    (reassign_empty_topics, 100),
    (delete_topics, 200),
    (widen_many, 100),
    (alter_many, 100),
]
SCANS: list[Callable[[int], Steps]] = [isr_updates, isr_updates_over_topics, balance, replace_replicas, snapshot]
"""Scans of an image, whose elements take so little time that a yield for each would cost more than they do."""


@pytest.mark.parametrize(("steps", "each"), ROWS, ids=[row[0].__name__ for row in ROWS])
def test_long_decision_yields_for_each_row(steps: Callable[[int], Steps], each: int) -> None:
    for hundreds in (4, 7):
        assert pauses(steps(100 * hundreds)) >= each * hundreds


@pytest.mark.parametrize("steps", SCANS, ids=[scan.__name__ for scan in SCANS])
def test_long_scan_yields_every_100_records(steps: Callable[[int], Steps]) -> None:
    assert YIELD_EVERY == 100
    for hundreds in (4, 7):
        assert abs(pauses(steps(100 * hundreds)) - hundreds) <= 1
    assert pauses(steps(50)) <= 1


def test_leads_any_partition_yields_every_1000_partitions() -> None:
    image = controller_with_topics(2_500).image
    assert pauses(leads_any_partition(image, 2)) == 2
    assert pauses(leads_any_partition(image, 1)) == 0


def test_create_topics_yields_every_1000_existing_names() -> None:
    controller = machine()
    for number in range(2_500):
        controller.replay(0, TopicRecord(f"x{number}", number.to_bytes(16, "big")))
    publish(controller, 5_000)
    request = CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000)
    assert pauses(controller.decide(request)) == 2 + 4, "count, row, partition and record of the new topic"


def test_image_and_delta_yield_every_100_topics() -> None:
    controller = controller_with_topics(1, 750)
    for topic in list(controller.image.topics.values()):
        controller.replay(0, PartitionChangeRecord(0, topic.id, leader=-1))
    before = controller.image
    assert pauses(controller.complete_append(controller.image.offset + 750, 1)) == 7
    publishing = controller.publish()
    for _ in range(7):
        next(publishing)
        assert controller.image is before, "image is published only when complete"
    with pytest.raises(StopIteration):
        next(publishing)
    assert controller.image is controller.latest_image is not before


def test_updates_of_all_partitions_of_a_broker_yield() -> None:
    controller = controller_with_topics()
    known = controller.image.brokers[1]
    lost = [known.log_dirs[0]]
    for decision in (
        controller.decide(UnregisterBrokerRequest(1)),
        controller.decide(BrokerHeartbeatRequest(1, known.broker_epoch, 10**6, True)),
        controller.decide(BrokerHeartbeatRequest(1, known.broker_epoch, 10**6, offline_log_dirs=lost)),
        broker_heartbeat.fence_broker(controller.image, 1, {}),
    ):
        assert pauses(decision) == 10


class ComparisonCounter:
    """Number that counts all comparisons."""

    comparisons: ClassVar[int] = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __lt__(self, other: ComparisonCounter) -> bool:
        ComparisonCounter.comparisons += 1
        return self.number < other.number


def test_sort_job_makes_limited_comparisons_per_step() -> None:
    numbers = random.Random(1).sample(range(10 * SORT_CHUNK), 10 * SORT_CHUNK)
    ComparisonCounter.comparisons = before = most = 0
    for _ in sort_job(map(ComparisonCounter, numbers)):
        most, before = max(most, ComparisonCounter.comparisons - before), ComparisonCounter.comparisons
    assert before > len(numbers)
    assert most <= SORT_CHUNK * SORT_CHUNK.bit_length()


@pytest.mark.parametrize("count", [0, 1, SORT_CHUNK, SORT_CHUNK + 1, 3 * SORT_CHUNK])
def test_sort_job_equals_sorted(count: int) -> None:
    things = [(number * 7919 % 100, number) for number in range(count)]
    assert run_to_end(sort_job(things)) == sorted(things)
    assert run_to_end(sort_job(things, key=lambda x: x[0])) == sorted(things, key=lambda x: x[0])


@pytest.mark.parametrize(("partitions", "topics"), [(1_000, 2), (80, 25)])
def test_clear_elr_record_of_all_topics_yields(partitions: int, topics: int) -> None:
    controller = controller_with_topics(partitions, topics)
    image = controller.image
    for topic in image.topics.values():
        for number in topic.partitions:
            change = PartitionChangeRecord(number, topic.id, leader=-2, eligible_leader_replicas=[2])
            controller.replay(image.offset, change)
    publish(controller, image.offset)
    controller.replay(image.offset, ClearElrRecord(""))
    assert pauses(controller.complete_append(image.offset, 1)) == 20
    assert not any(p.elr for t in controller.latest_image.topics.values() for p in t.partitions.values())


def test_image_records_yielding_yields_while_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    image = ImageBuilder(MetadataImage())
    for number in range(50):
        image.replay(TopicRecord(f"t{number}", number.to_bytes(16, "big")))
        image.replay(ConfigRecord(2, f"t{number}", "k", "v"))
        image.replay(UserScramCredentialRecord(f"u{number}", 1))
    monkeypatch.setattr("ottla.jobs.sequences.SORT_CHUNK", 10)
    records = list(image_records_yielding(run_to_end(image.image(1, 1))))
    assert records.count(None) == 3 * (5 + 1)
    assert pauses(encode_snapshot(SnapshotContents(), 1, 0, records=records)) == 18 + 1, "one more per hundred records"
    assert run_to_end(encode_snapshot(SnapshotContents(), 1, 0, records=records)) == run_to_end(
        encode_snapshot(SnapshotContents(), 1, 0, records=filter(None, records))
    )


def test_snapshot_generator_yields_while_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of the 50 names are sorted at once."""
    image = ImageBuilder(MetadataImage())
    for number in range(50):
        image.replay(TopicRecord(f"t{number}", number.to_bytes(16, "big")))
    rounds, written = list[int](), list[bytes]()

    async def counting(_: Any, job: Job[bytes]) -> bytes:
        rounds.append(pauses(job))
        return b"a snapshot"

    class AtOnce:
        def now_ms(self) -> int:
            return 0

        async def in_thread(self, work: Callable[[], None], lane: object) -> None:
            work()

    store: Any = SimpleNamespace(write_snapshot=lambda name, raw: written.append(raw))
    raft: Any = SimpleNamespace(run_between_steps=lambda work: None)
    monkeypatch.setattr("ottla.jobs.sequences.SORT_CHUNK", 10)
    monkeypatch.setattr(snapshot_generator, "run_in_background", counting)
    ours = snapshot_generator.SnapshotGenerator(AtOnce(), store, raft, pytest.fail)  # type: ignore[arg-type]
    trio.run(ours._write, run_to_end(image.image(1, 1)), SnapshotId(2, 1), SnapshotContents())
    assert (rounds, written) == ([5 + 1], [b"a snapshot"])


@pytest.mark.parametrize(
    "request_", [ListPartitionReassignmentsRequest(1000, None), ElectLeadersRequest(0, None)], ids=["moves", "el"]
)
def test_requests_for_all_topics_yield_while_sorting(monkeypatch: pytest.MonkeyPatch, request_: Any) -> None:
    controller = controller_with_topics(1, 50)
    few = pauses(controller.decide(request_))
    monkeypatch.setattr("ottla.jobs.sequences.SORT_CHUNK", 10)
    assert pauses(controller.decide(request_)) == few + 5 + 1
