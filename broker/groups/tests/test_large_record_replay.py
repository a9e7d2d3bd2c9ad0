"""Records with very many rows: replayed in steps while a shard loads, to the same state as at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import pytest

from ottla.broker.coordinator import record_batches
from ottla.broker.coordinator.events import ShardLoaded
from ottla.broker.groups import records as group_records
from ottla.broker.groups.assignors.group_spec import PARTITIONS_PER_STEP
from ottla.broker.groups.classic.rebalance import GroupSettings
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.record_arrays import PARTITIONS_PER_ROW, ROWS_PER_STEP, read_assignment, read_table
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.replay import REPLAYS
from ottla.broker.groups.state_machine import GroupStateMachine
from ottla.broker.groups.streams.streams_group import (
    SUBTOPOLOGIES_PER_STEP,
    StreamsGroup,
    StreamsGroupMember,
    TasksTupleWithEpochs,
)
from ottla.wire.messages import consumer_group_records, offset_records, share_group_records, streams_group_records
from ottla.wire.record_batch import records
from ottla.wire.record_batch.batch_header import parse_header

MANY = 10_000
MOST_PER_STEP = iteration_order.MAX_SORTED_PER_STEP
TOPICS = [number.to_bytes(16, "big") for number in range(MANY)]
NAMES = [f"t-{number:05}" for number in reversed(range(MANY))]
SERDE: Any = record_batches.Serde(group_records.encode, group_records.decode, group_records.form)


class CountedRows(list[Any]):
    """Rows that count how many of them are read."""

    reads = 0

    def __iter__(self) -> Iterator[Any]:
        for row in super().__iter__():
            CountedRows.reads += 1
            yield row


RECORDS: dict[str, GroupRecord] = {
    "consumer metadata": GroupRecord(
        consumer_group_records.ConsumerGroupMemberMetadataKey("g", "m"),
        consumer_group_records.ConsumerGroupMemberMetadataValue(subscribed_topic_names=NAMES),
    ),
    "consumer target": GroupRecord(
        consumer_group_records.ConsumerGroupTargetAssignmentMemberKey("g", "m"),
        consumer_group_records.ConsumerGroupTargetAssignmentMemberValue(
            [consumer_group_records.TopicPartition(topic, [2, 1]) for topic in TOPICS]
        ),
    ),
    "consumer assignment": GroupRecord(
        consumer_group_records.ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
        consumer_group_records.ConsumerGroupCurrentMemberAssignmentValue(
            3,
            2,
            0,
            [consumer_group_records.TopicPartitions(topic, [2, 1], [3, 3]) for topic in TOPICS],
            [consumer_group_records.TopicPartitions(topic, [4]) for topic in TOPICS],
        ),
    ),
    "regular expression": GroupRecord(
        consumer_group_records.ConsumerGroupRegularExpressionKey("g", "r"),
        consumer_group_records.ConsumerGroupRegularExpressionValue(NAMES, 3, 4),
    ),
    "share metadata": GroupRecord(
        share_group_records.ShareGroupMemberMetadataKey("g", "m"),
        share_group_records.ShareGroupMemberMetadataValue(None, "c", "h", NAMES),
    ),
    "share target": GroupRecord(
        share_group_records.ShareGroupTargetAssignmentMemberKey("g", "m"),
        share_group_records.ShareGroupTargetAssignmentMemberValue(
            [share_group_records.TopicPartition(topic, [2, 1]) for topic in TOPICS]
        ),
    ),
    "share assignment": GroupRecord(
        share_group_records.ShareGroupCurrentMemberAssignmentKey("g", "m"),
        share_group_records.ShareGroupCurrentMemberAssignmentValue(
            3, 2, 0, [share_group_records.TopicPartitions(topic, [2, 1]) for topic in TOPICS]
        ),
    ),
    "share state partitions": GroupRecord(
        share_group_records.ShareGroupStatePartitionMetadataKey("g"),
        share_group_records.ShareGroupStatePartitionMetadataValue(
            [share_group_records.TopicPartitionsInfo(topic, "t", [1]) for topic in TOPICS],
            [share_group_records.TopicPartitionsInfo(topic, "t", [2]) for topic in TOPICS],
        ),
    ),
    "streams target": GroupRecord(
        streams_group_records.StreamsGroupTargetAssignmentMemberKey("g", "m"),
        streams_group_records.StreamsGroupTargetAssignmentMemberValue(
            [streams_group_records.StreamsGroupTargetAssignmentMemberValueTaskIds(name, [1, 2]) for name in NAMES]
        ),
    ),
    "streams assignment": GroupRecord(
        streams_group_records.StreamsGroupCurrentMemberAssignmentKey("g", "m"),
        streams_group_records.StreamsGroupCurrentMemberAssignmentValue(
            3,
            2,
            1,
            [streams_group_records.StreamsGroupCurrentMemberAssignmentValueTaskIds(name, [1], [3]) for name in NAMES],
        ),
    ),
    "streams topology": GroupRecord(
        streams_group_records.StreamsGroupTopologyKey("g"),
        streams_group_records.StreamsGroupTopologyValue(
            1, [streams_group_records.Subtopology("0", NAMES, "", [], [], [], [])]
        ),
    ),
}


def state_of(machine: GroupStateMachine) -> Any:
    for groups in (machine.list_consumer_groups(), machine.list_share_groups(), machine.list_streams_groups()):
        for group in groups:
            state = {**vars(group), "topology": vars(group.topology) if getattr(group, "topology", None) else None}
            del state["topology" if state["topology"] is None else "id"]
            subscriptions: Any = state.pop("subscriptions", None)
            return state, None if subscriptions is None else subscriptions.counts
    raise AssertionError("no group was made")


@pytest.mark.parametrize("name", RECORDS)
def test_large_record_is_replayed_in_steps_to_the_state_of_a_replay_at_once(name: str) -> None:
    record = RECORDS[name]
    at_once, in_steps = GroupStateMachine(GroupSettings()), GroupStateMachine(GroupSettings())
    at_once.replay(0, record)
    assert record.value is not None
    counted = type(record.value)(
        **{
            field: CountedRows(value) if isinstance(value, list) else value
            for field, value in ((field, getattr(record.value, field)) for field in record.value.__struct_fields__)
        }
    )
    most, steps, CountedRows.reads = 0, 0, 0
    for _ in in_steps.replay_job(0, GroupRecord(record.key, counted), in_steps.replay):
        most, CountedRows.reads, steps = max(most, CountedRows.reads), 0, steps + 1
    assert max(most, CountedRows.reads) <= MOST_PER_STEP
    assert steps >= MANY // MOST_PER_STEP
    assert state_of(in_steps) == state_of(at_once)


def test_rows_with_many_partitions_are_fewer_in_a_step() -> None:
    rows = CountedRows(
        consumer_group_records.TopicPartition(topic, list(range(ROWS_PER_STEP * 8))) for topic in TOPICS[:20]
    )
    record = GroupRecord(
        consumer_group_records.ConsumerGroupTargetAssignmentMemberKey("g", "m"),
        consumer_group_records.ConsumerGroupTargetAssignmentMemberValue(rows),
    )
    machine = GroupStateMachine(GroupSettings())
    CountedRows.reads, most = 0, 0
    for _ in machine.replay_job(0, record, machine.replay):
        most, CountedRows.reads = max(most, CountedRows.reads), 0
    assert most <= 1


@pytest.mark.parametrize("read", [read_assignment, lambda rows: read_table(rows, attrgetter("topic_id"), bool)])
def test_rows_with_fewer_partitions_than_a_row_counts_are_as_many_in_a_step(read: Callable[[Any], Any]) -> None:
    def steps(partitions: int) -> int:
        rows = [
            consumer_group_records.TopicPartition(topic, list(range(partitions)))
            for topic in TOPICS[: 10 * ROWS_PER_STEP]
        ]
        return sum(1 for _ in read(rows))

    assert steps(1) == steps(PARTITIONS_PER_ROW - 1) < steps(PARTITIONS_PER_ROW)


def test_batch_of_a_loading_shard_is_replayed_in_steps() -> None:
    record = RECORDS["consumer target"]
    batch = records.build_batch([records.NewRecord(*group_records.encode(record))])
    machine = GroupStateMachine(GroupSettings())
    work = list(record_batches.replay_batch(machine, SERDE, parse_header(batch), batch, 1 << 24))
    assert work.count(record_batches.REPLAY_STEP_BYTES) >= MANY // MOST_PER_STEP
    group = machine.find_consumer_group("g")
    assert group is not None
    assert len(group.target["m"]) == MANY


def test_large_classic_group_is_restored_in_slices() -> None:
    machine = GroupStateMachine(GroupSettings())
    rows = CountedRows(offset_records.MemberMetadata(f"m-{number}") for number in range(MANY))
    value = offset_records.GroupMetadataValue("consumer", 1, "range", "m-0", 5, rows)
    machine.replay(0, GroupRecord(offset_records.GroupMetadataKey("g"), value))
    CountedRows.reads, most = 0, 0
    timers = 0
    fx = machine.handle(1, ShardLoaded())
    for part in fx.continuation or ():
        most, CountedRows.reads = max(most, CountedRows.reads), 0
        assert part is None or len(part.timers) <= MOST_PER_STEP
        timers += len(part.timers) if part is not None else 0
    assert (len(machine.classic_groups.groups["g"].members), timers) == (MANY, MANY)
    assert most <= MOST_PER_STEP


def test_every_record_type_of_modern_groups_has_a_replay() -> None:
    assert set(REPLAYS) == {key for key, _ in group_records.modern_record_types().values()}


def steps_of_replays(group: Any, *members: Any) -> list[int]:
    """Return the number of steps in which each state of a member is replayed."""
    return [sum(1 for _ in group.update_job(member)) for member in members]


@pytest.mark.parametrize("topics", [1, 10])
def test_consumer_assignment_is_replayed_in_steps_of_equally_many_partitions(topics: int) -> None:
    partitions = dict.fromkeys(range(10 * PARTITIONS_PER_STEP // topics), 5)
    member = ConsumerGroupMember("m", 5, 4, assigned=dict.fromkeys(TOPICS[:topics], partitions))
    group = ConsumerGroup("g")
    steps = steps_of_replays(group, member, ConsumerGroupMember("m", 6, 5))
    assert (steps, group.owner_epochs) == ([10, 10], {})


@pytest.mark.parametrize("role", ["active", "standby", "warmup"])
def test_streams_assignment_is_replayed_in_steps_of_equally_many_subtopologies(role: str) -> None:
    tasks: Any = {name: {0: 5} if role == "active" else frozenset({0}) for name in NAMES[: 10 * SUBTOPOLOGIES_PER_STEP]}
    member = StreamsGroupMember("m", 5, 4, process_id="p", assigned=TasksTupleWithEpochs(**{role: tasks}))
    group = StreamsGroup("g")
    steps = steps_of_replays(group, member, StreamsGroupMember("m", 6, 5, process_id="p"))
    assert steps == [10, 10]
    owners = (group.active_process_ids, group.standby_process_ids, group.warmup_process_ids)
    assert not any(process for by_name in owners for held in by_name.values() for process in held.values())
