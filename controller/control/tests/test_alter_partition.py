"""AlterPartition at the controller (R-291, R-292): changes of the ISR requested by the leader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.image import PartitionRegistration
from ottla.controller.tests.test_controller_state_machine import (
    alter,
    create,
    machine,
    register,
    send_heartbeat,
    submit,
)
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
)
from ottla.wire.messages.create_topics import CreatableReplicaAssignment


def three(isr: tuple[int, ...] = (1, 2, 3)) -> ControllerStateMachine:
    """Return a controller with brokers 1 to 4 and topic ``t`` on 1, 2, 3, led by 1, with the given ISR."""
    out = machine(4)
    create(out, "t", -1, -1, assignments=[CreatableReplicaAssignment(0, [1, 2, 3])])
    if isr != (1, 2, 3):
        assert alter_partition(out, isr=isr).error_code == 0
    return out


def part(controller: ControllerStateMachine) -> PartitionRegistration:
    return controller.image.topics["t"].partitions[0]


def alter_partition(controller: ControllerStateMachine, *, sender: int = 1, version: int = 3, **wanted: Any) -> Any:
    """Return the row of the response to a valid request of the leader, except for the given values."""
    p, topic = part(controller), controller.image.topics["t"]
    epochs = wanted.pop("epochs", {})
    isr = wanted.pop("isr", p.isr)
    row = AlterPartitionRequestPartitionData(
        wanted.pop("partition", 0),
        wanted.pop("leader_epoch", p.leader_epoch),
        list(isr) if version < 3 else [],
        [BrokerState(i, epochs.get(i, -1)) for i in isr] if version >= 3 else [],
        wanted.pop("recovery", p.recovering),
        wanted.pop("partition_epoch", p.partition_epoch),
    )
    known = controller.image.brokers[sender]
    topics = [AlterPartitionRequestTopicData(wanted.pop("topic_id", topic.id), [row])]
    request = AlterPartitionRequest(sender, wanted.pop("broker_epoch", known.broker_epoch), topics)
    assert not wanted
    answer = submit(controller, request, version)
    return answer if answer.error_code else answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3])
def test_alter_partition_shrink_and_expansion_return_new_isr(version: int) -> None:
    controller = three()
    before = part(controller)
    row = alter_partition(controller, version=version, isr=(1, 3))
    assert part(controller) == replace(before, isr=(1, 3), partition_epoch=before.partition_epoch + 1)
    result = (row.error_code, row.leader_id, row.leader_epoch, row.isr, row.leader_recovery_state, row.partition_epoch)
    assert result == (0, 1, before.leader_epoch, [1, 3], 0, before.partition_epoch + 1)
    assert alter_partition(controller, version=version, isr=(1, 3, 2)).isr == [1, 3, 2]


def test_alter_partition_unchanged_isr_writes_no_record() -> None:
    """R-292."""
    controller = three()
    before = controller.image.offset
    row = alter_partition(controller)
    assert (row.error_code, row.isr, row.partition_epoch) == (0, [1, 2, 3], part(controller).partition_epoch)
    assert controller.image.offset == before


WRONG: list[tuple[str, dict[str, Any], ErrorCode]] = [
    ("no id", {"topic_id": ZERO_UUID}, ErrorCode.UNKNOWN_TOPIC_ID),
    ("no such topic", {"topic_id": bytes(15) + b"\xee"}, ErrorCode.UNKNOWN_TOPIC_ID),
    ("no such partition", {"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("a leader epoch to come", {"leader_epoch": 9, "isr": ()}, ErrorCode.NOT_CONTROLLER),
    ("a partition epoch to come", {"partition_epoch": 99, "leader_epoch": -1}, ErrorCode.NOT_CONTROLLER),
    ("an older leader epoch", {"leader_epoch": -1, "sender": 2}, ErrorCode.FENCED_LEADER_EPOCH),
    ("not the leader", {"sender": 2, "partition_epoch": -1}, ErrorCode.INVALID_REQUEST),
    ("an older partition epoch", {"partition_epoch": -1, "isr": ()}, ErrorCode.INVALID_UPDATE_VERSION),
    ("empty ISR", {"isr": ()}, ErrorCode.INVALID_REQUEST),
    ("one twice", {"isr": (1, 2, 2)}, ErrorCode.INVALID_REQUEST),
    ("no replica", {"isr": (1, 4)}, ErrorCode.INVALID_REQUEST),
    ("without the leader", {"isr": (2, 3)}, ErrorCode.INVALID_REQUEST),
    ("recovering again", {"isr": (1,), "recovery": 1}, ErrorCode.INVALID_REQUEST),
    ("unknown recovery state", {"recovery": 2}, ErrorCode.INVALID_REQUEST),
    ("a member's other epoch", {"epochs": {2: 1_000_000}}, ErrorCode.INELIGIBLE_REPLICA),
]


@pytest.mark.behaviour("P-49")
@pytest.mark.parametrize(("name", "wanted", "code"), WRONG, ids=[w[0] for w in WRONG])
def test_alter_partition_invalid_row_returns_error_and_changes_no_partition(
    name: str, wanted: dict[str, Any], code: ErrorCode
) -> None:
    controller = three()
    before = part(controller)
    assert alter_partition(controller, **wanted).error_code == code
    assert part(controller) == before


@pytest.mark.parametrize("wanted", [{"broker_epoch": 1_000_000}, {"broker_epoch": -1}])
def test_alter_partition_stale_broker_epoch_fails_the_request(wanted: dict[str, Any]) -> None:
    answer = alter_partition(three(), isr=(1,), **wanted)
    assert (answer.error_code, answer.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])


def test_alter_partition_without_topics_of_unknown_broker_returns_empty_response() -> None:
    assert submit(three(), AlterPartitionRequest(9, 9), 3) == AlterPartitionResponse()


def test_alter_partition_new_member_must_be_active_with_current_epoch() -> None:
    """KIP-841, KIP-903."""
    controller = three(isr=(1, 2))
    epoch = controller.image.brokers[3].broker_epoch
    send_heartbeat(controller, 3, want_fence=True)
    assert alter_partition(controller, isr=(1, 2, 3)).error_code == ErrorCode.INELIGIBLE_REPLICA
    send_heartbeat(controller, 3)
    create(controller, "u", -1, -1, assignments=[CreatableReplicaAssignment(0, [3])])
    send_heartbeat(controller, 3, want_shut_down=True)
    assert controller.image.brokers[3].in_controlled_shutdown
    assert alter_partition(controller, isr=(1, 2, 3)).error_code == ErrorCode.INELIGIBLE_REPLICA
    now = register(controller, 3)
    assert alter_partition(controller, isr=(1, 2, 3), epochs={3: epoch}).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert alter_partition(controller, isr=(1, 2, 3), epochs={3: now}).error_code == 0


def recovering() -> ControllerStateMachine:
    """Return a controller after an unclean election of broker 2, which was not in the ISR."""
    controller = three(isr=(1,))
    alter(controller, "unclean.leader.election.enable", 0, "true")
    for broker in (3, 1):
        send_heartbeat(controller, broker, want_fence=True)
    assert (part(controller).leader, part(controller).recovering) == (2, 1)
    for broker in (1, 3):
        send_heartbeat(controller, broker)
    return controller


def test_alter_partition_recovering_leader_adds_replicas_after_recovery() -> None:
    """KIP-704, R-336."""
    controller = recovering()
    assert alter_partition(controller, sender=2, isr=(2, 3), recovery=1).error_code == ErrorCode.INVALID_REQUEST
    assert alter_partition(controller, sender=2, isr=(2,), recovery=1).leader_recovery_state == 1
    row = alter_partition(controller, sender=2, isr=(2, 3), recovery=0)
    assert (row.error_code, row.isr, row.leader_recovery_state, part(controller).recovering) == (0, [2, 3], 0, 0)
    assert alter_partition(controller, sender=2, isr=(2,), recovery=1).error_code == ErrorCode.INVALID_REQUEST


def test_alter_partition_rows_are_independent() -> None:
    controller = three()
    topic, p = controller.image.topics["t"], part(controller)
    good = AlterPartitionRequestPartitionData(0, p.leader_epoch, [1], [], 0, p.partition_epoch)
    bad = AlterPartitionRequestPartitionData(7, p.leader_epoch, [1], [], 0, p.partition_epoch)
    request = AlterPartitionRequest(
        1,
        controller.image.brokers[1].broker_epoch,
        [
            AlterPartitionRequestTopicData(bytes(15) + b"\xee", [bad]),
            AlterPartitionRequestTopicData(topic.id, [bad, good]),
        ],
    )
    answer = submit(controller, request, 2)
    codes = [[row.error_code for row in rows.partitions] for rows in answer.topics]
    assert codes == [[ErrorCode.UNKNOWN_TOPIC_ID], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]]
    assert part(controller).isr == (1,)
