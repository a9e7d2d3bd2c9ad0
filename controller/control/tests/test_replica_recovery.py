"""Internal topics grow with the cluster, and lost replicas are made again."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.config.config_keys import REPLICA_RECOVERY
from ottla.controller.control import replica_recovery
from ottla.controller.control.controller_result import ControllerDefaults
from ottla.controller.control.tests.test_alter_partition import ask
from ottla.controller.control.tests.test_broker_heartbeat_tracker import do
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
    """A node alone with positions of groups; as configured."""
    out = machine()
    out.defaults = ControllerDefaults(static_config={k.replace("_", "."): v for k, v in static.items()})
    create(out, OFFSETS, -1, -1, assignments=[CreatableReplicaAssignment(n, [1]) for n in range(count)])
    return out


def sets(controller: ControllerStateMachine, topic: str) -> list[tuple[int, ...]]:
    return [p.replicas for p in controller.image.topics[topic].partitions.values()]


def test_internal_topics_get_a_replica_more_with_each_broker_up_to_three() -> None:
    controller = offsets()
    create(controller, "mine", -1, -1, assignments=[CreatableReplicaAssignment(0, [1])])
    assert do(controller, EXPAND_INTERNAL_TOPICS) == (False, [])
    register(controller, 2)
    assert do(controller, EXPAND_INTERNAL_TOPICS)[0]
    assert sets(controller, OFFSETS) == [(1, 2)] * 4
    assert [p.adding for p in controller.image.topics[OFFSETS].partitions.values()] == [(2,)] * 4
    assert do(controller, EXPAND_INTERNAL_TOPICS) == (False, []), "once asked is enough"
    register(controller, 3)
    register(controller, 4)
    assert do(controller, EXPAND_INTERNAL_TOPICS) == (False, []), "what moves is left alone"
    topic = controller.image.topics[OFFSETS]
    for number in topic.partitions:
        offset = controller.image.offset + 1
        finish(controller, topic.id, number)
        assert controller.image.offset == offset
    assert do(controller, EXPAND_INTERNAL_TOPICS)[0]
    assert sets(controller, OFFSETS) == [(1, 2, 3), (1, 4, 2), (1, 2, 3), (1, 4, 2)], "evenly, and each has its turn"
    assert sets(controller, "mine") == [(1,)], "what users made stays as they made it"


def finish(controller: ControllerStateMachine, topic_id: bytes, number: int) -> None:
    """A partition's leader says that 2 is in sync too."""
    topic = next(t for t in controller.image.topics.values() if t.id == topic_id)
    p = topic.partitions[number]
    row = AlterPartitionRequestPartitionData(
        number, p.leader_epoch, [], [BrokerState(i, -1) for i in (1, 2)], 0, p.partition_epoch
    )
    epoch = controller.image.brokers[1].broker_epoch
    request = AlterPartitionRequest(1, epoch, [AlterPartitionRequestTopicData(topic_id, [row])])
    assert submit(controller, request, 3).topics[0].partitions[0].error_code == 0


def test_racks_come_first_and_only_live_brokers_count() -> None:
    controller = offsets(1)
    register(controller, 2, unfence=False)
    assert do(controller, EXPAND_INTERNAL_TOPICS) == (False, [])
    register(controller, 3)
    assert do(controller, EXPAND_INTERNAL_TOPICS)[0]
    assert sets(controller, OFFSETS) == [(1, 3)]


def test_a_replica_on_a_broker_that_was_let_go_holds_no_topic_back() -> None:
    controller = machine(4)
    rows = {OFFSETS: [[1, 2], [2, 1], [2, 3]], "__transaction_state": [[1], [2], [3]]}
    for name, lists in rows.items():
        create(controller, name, -1, -1, assignments=[CreatableReplicaAssignment(n, i) for n, i in enumerate(lists)])
    submit(controller, UnregisterBrokerRequest(2))
    assert do(controller, EXPAND_INTERNAL_TOPICS)[0]
    now = [p for name in rows for p in controller.image.topics[name].partitions.values()]
    assert [len({*p.replicas} - {*p.removing}) for p in now] == [3, 3, 3, 3, 1, 3]
    assert [p.removing for p in now] == [(2,)] * 3 + [()] * 3
    assert now[4].replicas == (2,), "what only a broker had that is gone stays as it is"
    assert do(controller, EXPAND_INTERNAL_TOPICS) == (False, [])


def test_what_was_set_by_hand_stays() -> None:
    controller = offsets(offsets_topic_replication_factor="1")
    register(controller, 2)
    assert do(controller, EXPAND_INTERNAL_TOPICS) == (False, [])


def three(**static: str) -> ControllerStateMachine:
    """Brokers 1 to 4; topic ``t`` of two partitions on 1, 2, 3."""
    out = machine(4)
    out.defaults = ControllerDefaults(static_config={REPLICA_RECOVERY: "1000", **static})
    create(out, "t", -1, -1, assignments=[CreatableReplicaAssignment(n, [1, 2, 3]) for n in range(2)])
    return out


def test_what_a_broker_had_that_is_away_for_too_long_is_made_on_others() -> None:
    controller = three()
    send_heartbeat(controller, 1, want_fence=True)
    assert do(controller, REPLACE_LOST_REPLICAS, 5_000) == (False, []), "it begins to count here"
    assert do(controller, REPLACE_LOST_REPLICAS, 5_999) == (False, [])
    assert do(controller, REPLACE_LOST_REPLICAS, 6_000) == (False, ["PartitionChangeRecord"] * 2)
    p = controller.image.topics["t"].partitions[0]
    assert (p.replicas, p.adding, p.removing) == ((4, 2, 3, 1), (4,), (1,))
    assert do(controller, REPLACE_LOST_REPLICAS, 7_000) == (False, []), "it moves already"
    assert ask(controller, sender=2, isr=(2, 3, 4)).error_code == 0
    assert controller.image.topics["t"].partitions[0].replicas == (4, 2, 3)


def test_a_broker_that_comes_back_counts_anew() -> None:
    controller = three()
    send_heartbeat(controller, 1, want_fence=True)
    do(controller, REPLACE_LOST_REPLICAS, 5_000)
    send_heartbeat(controller, 1)
    do(controller, REPLACE_LOST_REPLICAS, 5_500)
    send_heartbeat(controller, 1, want_fence=True)
    assert do(controller, REPLACE_LOST_REPLICAS, 6_400) == (False, [])
    assert do(controller, REPLACE_LOST_REPLICAS, 7_399) == (False, [])
    assert do(controller, REPLACE_LOST_REPLICAS, 7_400)[1]


def test_a_new_active_controller_counts_anew() -> None:
    controller = three()
    send_heartbeat(controller, 1, want_fence=True)
    do(controller, REPLACE_LOST_REPLICAS, 5_000)
    controller.activate(5_900)
    assert do(controller, REPLACE_LOST_REPLICAS, 6_000) == (False, [])
    assert do(controller, REPLACE_LOST_REPLICAS, 7_000)[1]


def test_who_was_let_go_for_good_is_replaced_at_once() -> None:
    controller = three()
    submit(controller, UnregisterBrokerRequest(3))
    assert do(controller, REPLACE_LOST_REPLICAS, 5_000)[1] == ["PartitionChangeRecord"] * 2
    assert sets(controller, "t") == [(1, 2, 4, 3)] * 2


def test_where_no_broker_is_left_or_nobody_leads_nothing_moves() -> None:
    controller = three()
    for broker in (4, 1):
        send_heartbeat(controller, broker, want_fence=True)
    do(controller, REPLACE_LOST_REPLICAS, 0)
    assert do(controller, REPLACE_LOST_REPLICAS, 5_000) == (False, []), "4 is away too"
    send_heartbeat(controller, 4)
    for broker in (2, 3):
        send_heartbeat(controller, broker, want_fence=True)
    assert controller.image.topics["t"].partitions[0].leader == -1
    assert do(controller, REPLACE_LOST_REPLICAS, 9_000) == (False, [])


def test_so_many_moves_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_recovery, "MAX_MOVES_PER_RUN", 1)
    controller = three()
    submit(controller, UnregisterBrokerRequest(3))
    rows: list[Any] = [do(controller, REPLACE_LOST_REPLICAS) for _ in range(3)]
    assert rows == [(True, ["PartitionChangeRecord"]), (True, ["PartitionChangeRecord"]), (False, [])]


@pytest.mark.parametrize(("after", "every"), [("0", 0), ("500", 100), ("60000", 6_000), ("86400000", 10_000)])
def test_off_unless_set(after: str, every: int) -> None:
    controller = three(**{REPLICA_RECOVERY: after})
    submit(controller, UnregisterBrokerRequest(3))
    assert REPLACE_LOST_REPLICAS.period_ms({REPLICA_RECOVERY: after}) == every
    assert bool(do(controller, REPLACE_LOST_REPLICAS)[1]) == (after != "0")
    assert REPLACE_LOST_REPLICAS.period_ms({}) == 0
    assert PERIODIC_TASKS[4:6] == (EXPAND_INTERNAL_TOPICS, REPLACE_LOST_REPLICAS)
