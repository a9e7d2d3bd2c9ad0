"""Work of one time slice: records of one append, and targets that are computed at once."""

from __future__ import annotations

import pytest

from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.consumer.records import (
    MAX_RECORDS_PER_SLICE,
    PARTITIONS_PER_WORK_UNIT,
    TOPIC_COST_IN_PARTITIONS,
    slice_records,
    target_assignment_record,
)
from ottla.broker.tests.consumer_group_fixture import ConsumerGroupShard
from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.jobs.state_machine import RECORDS_PER_STEP
from ottla.wire.messages import consumer_group_heartbeat

T = topic_id_of("t")


@pytest.mark.parametrize(
    ("partitions", "in_slice"),
    [
        (PARTITIONS_PER_WORK_UNIT - TOPIC_COST_IN_PARTITIONS - 1, MAX_RECORDS_PER_SLICE),
        (PARTITIONS_PER_WORK_UNIT - TOPIC_COST_IN_PARTITIONS, MAX_RECORDS_PER_SLICE // 2),
        (PARTITIONS_PER_WORK_UNIT * MAX_RECORDS_PER_SLICE, 1),
    ],
)
def test_slice_records_has_fewer_records_with_more_partitions(partitions: int, in_slice: int) -> None:
    record = target_assignment_record("g", "m", {T: tuple(range(partitions))})
    sizes = [len(part) for part in slice_records([record] * (2 * in_slice + 1)) if part]
    assert sizes == [in_slice, in_slice, 1]


@pytest.mark.parametrize(("partitions", "is_at_once"), [(4 * RECORDS_PER_STEP, True), (6 * RECORDS_PER_STEP, False)])
def test_target_of_first_member_with_many_partitions_is_computed_at_once(partitions: int, is_at_once: bool) -> None:
    shard = ConsumerGroupShard({"t": partitions})
    joins = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "a", 0, None, None, 9, ["t"], None, None, [])
    fx = shard.machine.handle(shard.now, GroupRequest("a", joins, 1, "c", "h"))
    assert (fx.continuation is None) is is_at_once
