"""Replica recovery: internal topics grow with the cluster, and lost replicas are replaced."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.config.config_keys import REPLICA_RECOVERY
from ottla.controller.control import replica_recovery
from ottla.controller.control.controller_result import ControllerDefaults
from ottla.controller.control.tests.test_alter_partition import alter_partition
from ottla.controller.control.tests.test_broker_heartbeat_tracker import run_task
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.periodic_tasks import EXPAND_INTERNAL_TOPICS, PERIODIC_TASKS, REPLACE_LOST_REPLICAS
from ottla.controller.tests.test_controller_state_machine import create, machine, register, send_heartbeat, submit
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from ottla.wire.messages.create_topics import CreatableReplicaAssignment
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest

OFFSETS = "__consumer_offsets"


def offsets(count: int = 4, **static: str) -> ControllerStateMachine:
    """Return a single-node controller with the offsets topic and the given static configs."""
    out = machine()
    out.defaults = ControllerDefaults(static_config={k.replace("_", "."): v for k, v in static.items()})
    create(out, OFFSETS, -1, -1, assignments=[CreatableReplicaAssignment(n, [1]) for n in range(count)])
    return out


def sets(controller: ControllerStateMachine, topic: str) -> list[tuple[int, ...]]:
    return [p.replicas for p in controller.image.topics[topic].partitions.values()]


def test_expand_internal_topics_adds_replica_per_broker_up_to_three() -> None:
    controller = offsets()
    create(controller, "mine", -1, -1, assignments=[CreatableReplicaAssignment(0, [1])])
    assert run_task(controller, EXPAND_INTERNAL_TOPICS) == (False, [])
    register(controller, 2)
    assert run_task(controller, EXPAND_INTERNAL_TOPICS)[0]
    assert sets(controller, OFFSETS) == [(1, 2)] * 4
    assert [p.adding for p in controller.image.topics[OFFSETS].partitions.values()] == [(2,)] * 4
    assert run_task(controller, EXPAND_INTERNAL_TOPICS) == (False, []), "no second request"
    register(controller, 3)
    register(controller, 4)
    assert run_task(controller, EXPAND_INTERNAL_TOPICS) == (False, []), "reassigned partitions are skipped"
    topic = controller.image.topics[OFFSETS]
    for number in topic.partitions:
        offset = controller.image.offset + 1
        finish(controller, topic.id, number)
        assert controller.image.offset == offset
    assert run_task(controller, EXPAND_INTERNAL_TOPICS)[0]
    assert sets(controller, OFFSETS) == [(1, 2, 3), (1, 4, 2), (1, 2, 3), (1, 4, 2)], "replicas are spread evenly"
    assert sets(controller, "mine") == [(1,)], "topics of users are unchanged"


def finish(controller: ControllerStateMachine, topic_id: bytes, number: int) -> None:
    """Report by the leader of a partition that broker 2 is in sync."""
    topic = next(t for t in controller.image.topics.values() if t.id == topic_id)
    p = topic.partitions[number]
    row = AlterPartitionRequestPartitionData(
        number, p.leader_epoch, [], [BrokerState(i, -1) for i in (1, 2)], 0, p.partition_epoch
    )
    epoch = controller.image.brokers[1].broker_epoch
    request = AlterPartitionRequest(1, epoch, [AlterPartitionRequestTopicData(topic_id, [row])])
    assert submit(controller, request, 3).topics[0].partitions[0].error_code == 0


def test_expand_internal_topics_prefers_racks_and_active_brokers() -> None:
    controller = offsets(1)
    register(controller, 2, unfence=False)
    assert run_task(controller, EXPAND_INTERNAL_TOPICS) == (False, [])
    register(controller, 3)
    assert run_task(controller, EXPAND_INTERNAL_TOPICS)[0]
    assert sets(controller, OFFSETS) == [(1, 3)]


def test_expand_internal_topics_replaces_replica_on_unregistered_broker() -> None:
    controller = machine(4)
    rows = {OFFSETS: [[1, 2], [2, 1], [2, 3]], "__transaction_state": [[1], [2], [3]]}
    for name, lists in rows.items():
        create(controller, name, -1, -1, assignments=[CreatableReplicaAssignment(n, i) for n, i in enumerate(lists)])
    submit(controller, UnregisterBrokerRequest(2))
    assert run_task(controller, EXPAND_INTERNAL_TOPICS)[0]
    now = [p for name in rows for p in controller.image.topics[name].partitions.values()]
    assert [len({*p.replicas} - {*p.removing}) for p in now] == [3, 3, 3, 3, 1, 3]
    assert [p.removing for p in now] == [(2,)] * 3 + [()] * 3
    assert now[4].replicas == (2,), "partition without another replica is unchanged"
    assert run_task(controller, EXPAND_INTERNAL_TOPICS) == (False, [])


def test_expand_internal_topics_keeps_configured_replication_factor() -> None:
    controller = offsets(offsets_topic_replication_factor="1")
    register(controller, 2)
    assert run_task(controller, EXPAND_INTERNAL_TOPICS) == (False, [])


def three(**static: str) -> ControllerStateMachine:
    """Return a controller with brokers 1 to 4 and topic ``t`` with two partitions on 1, 2, 3."""
    out = machine(4)
    out.defaults = ControllerDefaults(static_config={REPLICA_RECOVERY: "1000", **static})
    create(out, "t", -1, -1, assignments=[CreatableReplicaAssignment(n, [1, 2, 3]) for n in range(2)])
    return out


def test_replace_lost_replicas_after_timeout_moves_them_to_other_brokers() -> None:
    controller = three()
    send_heartbeat(controller, 1, want_fence=True)
    assert run_task(controller, REPLACE_LOST_REPLICAS, 5_000) == (False, []), "the timeout starts here"
    assert run_task(controller, REPLACE_LOST_REPLICAS, 5_999) == (False, [])
    assert run_task(controller, REPLACE_LOST_REPLICAS, 6_000) == (False, ["PartitionChangeRecord"] * 2)
    p = controller.image.topics["t"].partitions[0]
    assert (p.replicas, p.adding, p.removing) == ((4, 2, 3, 1), (4,), (1,))
    assert run_task(controller, REPLACE_LOST_REPLICAS, 7_000) == (False, []), "reassignment is in progress"
    assert alter_partition(controller, sender=2, isr=(2, 3, 4)).error_code == 0
    assert controller.image.topics["t"].partitions[0].replicas == (4, 2, 3)


def test_replace_lost_replicas_returning_broker_restarts_timeout() -> None:
    controller = three()
    send_heartbeat(controller, 1, want_fence=True)
    run_task(controller, REPLACE_LOST_REPLICAS, 5_000)
    send_heartbeat(controller, 1)
    run_task(controller, REPLACE_LOST_REPLICAS, 5_500)
    send_heartbeat(controller, 1, want_fence=True)
    assert run_task(controller, REPLACE_LOST_REPLICAS, 6_400) == (False, [])
    assert run_task(controller, REPLACE_LOST_REPLICAS, 7_399) == (False, [])
    assert run_task(controller, REPLACE_LOST_REPLICAS, 7_400)[1]


def test_replace_lost_replicas_new_active_controller_restarts_timeout() -> None:
    controller = three()
    send_heartbeat(controller, 1, want_fence=True)
    run_task(controller, REPLACE_LOST_REPLICAS, 5_000)
    controller.activate(5_900)
    assert run_task(controller, REPLACE_LOST_REPLICAS, 6_000) == (False, [])
    assert run_task(controller, REPLACE_LOST_REPLICAS, 7_000)[1]


def test_replace_lost_replicas_unregistered_broker_is_replaced_at_once() -> None:
    controller = three()
    submit(controller, UnregisterBrokerRequest(3))
    assert run_task(controller, REPLACE_LOST_REPLICAS, 5_000)[1] == ["PartitionChangeRecord"] * 2
    assert sets(controller, "t") == [(1, 2, 4, 3)] * 2


def test_replace_lost_replicas_without_spare_broker_or_leader_moves_no_replica() -> None:
    controller = three()
    for broker in (4, 1):
        send_heartbeat(controller, broker, want_fence=True)
    run_task(controller, REPLACE_LOST_REPLICAS, 0)
    assert run_task(controller, REPLACE_LOST_REPLICAS, 5_000) == (False, []), "4 is fenced too"
    send_heartbeat(controller, 4)
    for broker in (2, 3):
        send_heartbeat(controller, broker, want_fence=True)
    assert controller.image.topics["t"].partitions[0].leader == -1
    assert run_task(controller, REPLACE_LOST_REPLICAS, 9_000) == (False, [])


def test_replace_lost_replicas_starts_limited_number_of_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_recovery, "MAX_MOVES_PER_RUN", 1)
    controller = three()
    submit(controller, UnregisterBrokerRequest(3))
    rows: list[Any] = [run_task(controller, REPLACE_LOST_REPLICAS) for _ in range(3)]
    assert rows == [(True, ["PartitionChangeRecord"]), (True, ["PartitionChangeRecord"]), (False, [])]


@pytest.mark.parametrize(("after", "every"), [("0", 0), ("500", 100), ("60000", 6_000), ("86400000", 10_000)])
def test_replace_lost_replicas_is_disabled_by_default(after: str, every: int) -> None:
    controller = three(**{REPLICA_RECOVERY: after})
    submit(controller, UnregisterBrokerRequest(3))
    assert REPLACE_LOST_REPLICAS.period_ms({REPLICA_RECOVERY: after}) == every
    assert bool(run_task(controller, REPLACE_LOST_REPLICAS)[1]) == (after != "0")
    assert REPLACE_LOST_REPLICAS.period_ms({}) == 0
    assert PERIODIC_TASKS[4:6] == (EXPAND_INTERNAL_TOPICS, REPLACE_LOST_REPLICAS)
