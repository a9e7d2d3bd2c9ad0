"""CreateTopics and CreatePartitions at the controller (``ReplicationControlManager``)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.tests.test_controller_state_machine import create, machine, register, send_heartbeat, submit
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

REPLICAS = ErrorCode.INVALID_REPLICA_ASSIGNMENT


def create_with_assignments(
    controller: ControllerStateMachine, *rows: tuple[int, list[int]], count: int = -1, factor: int = -1
) -> Any:
    assignments = [CreatableReplicaAssignment(number, ids) for number, ids in rows]
    return create(controller, "t", count, factor, assignments=assignments)


@pytest.mark.behaviour("R-300")
@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([(0, [1])], 0),
        ([(1, [2]), (0, [1])], 0),
        ([(0, [2, 1]), (1, [1, 3])], 0),
        ([(0, [])], REPLICAS),
        ([(0, [1, 1])], REPLICAS),
        ([(0, [1, 9])], REPLICAS),
        ([(0, [1, 2]), (1, [1])], REPLICAS),  # different numbers of replicas
        ([(0, [1]), (1, [1, 2])], REPLICAS),
        ([(0, [1]), (0, [2])], REPLICAS),
        ([(1, [1])], REPLICAS),
        ([(0, [1]), (2, [1])], REPLICAS),
        ([(-1, [1]), (0, [1])], REPLICAS),
    ],
)
def test_create_topics_with_assignments_returns_error_or_creates_partitions(
    rows: list[tuple[int, list[int]]], code: int
) -> None:
    controller = machine(3)
    assert create_with_assignments(controller, *rows).error_code == code
    if not code:
        made = controller.image.topics["t"].partitions
        assert {n: list(p.replicas) for n, p in made.items()} == dict(rows)
        assert list(made) == sorted(made)
        assert all(p.leader == p.replicas[0] and p.isr == p.replicas for p in made.values())
    else:
        assert "t" not in controller.image.topics


@pytest.mark.parametrize(("count", "factor"), [(1, -1), (-1, 1), (1, 1)])
def test_create_topics_with_assignments_and_count_returns_invalid_request(count: int, factor: int) -> None:
    assert (
        create_with_assignments(machine(), (0, [1]), count=count, factor=factor).error_code == ErrorCode.INVALID_REQUEST
    )


@pytest.mark.behaviour("R-300")
def test_create_topics_excludes_fenced_and_stopping_brokers_from_isr() -> None:
    controller = machine(3)
    create(controller, "held", assignments=[CreatableReplicaAssignment(0, [2])], partitions=-1, factor=-1)
    send_heartbeat(controller, 2, want_shut_down=True)
    assert controller.image.brokers[2].in_controlled_shutdown
    register(controller, 3, unfence=False)
    assert create_with_assignments(controller, (0, [2, 3, 1])).error_code == 0
    partition = controller.image.topics["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3, 1), (1,), 1)
    wide = CreatePartitionsAssignment([2, 3, 1])
    answer = submit(controller, CreatePartitionsRequest([CreatePartitionsTopic("t", 2, [wide])], 1000))
    assert answer.results[0].error_code == 0
    for ids in ([2], [3], [2, 3]):
        row = create(controller, "u", assignments=[CreatableReplicaAssignment(0, ids)], partitions=-1, factor=-1)
        assert row.error_code == REPLICAS
    for _ in range(20):
        create(controller, "v")
        assert controller.image.topics["v"].partitions[0].replicas == (1,), (
            "no new replica on fenced or stopping brokers"
        )


def test_create_topics_invalid_topic_fails_alone() -> None:
    controller = machine()
    topics = [CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 5), CreatableTopic("c", 1, 1)]
    topics += [CreatableTopic("d", 1, 1), CreatableTopic("d", 2, 1)]
    answer = submit(controller, CreateTopicsRequest(topics, 1000))
    codes = {row.name: row.error_code for row in answer.topics}
    wrong = ErrorCode.INVALID_REPLICATION_FACTOR
    assert codes == {"a": 0, "b": wrong, "c": 0, "d": ErrorCode.INVALID_REQUEST}
    assert set(controller.image.topics) == {"a", "c"}


@pytest.mark.parametrize(
    ("counts", "refused"),
    [
        ([9_998], False),
        ([10_000], True),  # one too many with the topic record
        ([10_001], True),
        ([5_000, 5_001], True),
        ([4_999, 4_999], False),
        ([5_000, 5_000], True),
        ([10_001, 0], True),
    ],
)
def test_create_topics_above_10000_records_returns_policy_violation(counts: list[int], refused: bool) -> None:
    controller = machine()
    topics = [CreatableTopic(f"t{n}", count, 1) for n, count in enumerate(counts)]
    answer = submit(controller, CreateTopicsRequest(topics, 1000))
    assert {row.error_code for row in answer.topics} == {ErrorCode.POLICY_VIOLATION if refused else 0}
    assert len(answer.topics) == len(counts)
    assert len(controller.image.topics) == (0 if refused else len(counts))


def test_create_topics_limit_counts_defaults_and_assignments() -> None:
    controller = machine()  # two partitions by default
    topics = [CreatableTopic("a", 9_999, 1), CreatableTopic("b", -1, -1)]
    assert submit(controller, CreateTopicsRequest(topics, 1000)).topics[1].error_code == ErrorCode.POLICY_VIOLATION
    many = [CreatableReplicaAssignment(n, [1]) for n in range(10_001)]
    assert create(controller, "t", -1, -1, assignments=many).error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(("count", "code"), [(10_001, 0), (10_002, 44), (200_001, 44), (2**31 - 1, 44)])
def test_create_partitions_above_10000_fails_the_request(count: int, code: int) -> None:
    controller = machine()
    create(controller, "t")
    create(controller, "u")
    topics = [CreatePartitionsTopic("u", 1, None), CreatePartitionsTopic("t", count, None)]
    answer = submit(controller, CreatePartitionsRequest(topics, 1000))
    codes = [row.error_code for row in answer.results]
    assert codes == ([code, code] if code else [ErrorCode.INVALID_PARTITIONS, 0]), "the whole request is rejected"
    assert len(controller.image.topics["t"].partitions) == (1 if code else count)


def test_configs_above_8_mib_return_record_list_too_large() -> None:
    """``KafkaRaftClient.MAX_BATCH_SIZE_BYTES``: no part of the request is applied."""
    name, value = "leader.replication.throttled.replicas", "1:" + "1" * 32_765
    for count, code in ((255, 0), (257, ErrorCode.RECORD_LIST_TOO_LARGE)):
        controller = machine()
        topics = [CreatableTopic(f"t{n}", 1, 1, configs=[CreatableTopicConfig(name, value)]) for n in range(count)]
        answer = submit(controller, CreateTopicsRequest(topics, 1000))
        rows = compiler.decode(CreateTopicsResponse, 7, compiler.encode(answer, 7))[0].topics
        assert {row.error_code for row in rows} == {code}
        assert len(controller.image.topics) == (0 if code else count)
        controller = machine()
        settings = [AlterConfigsResource(4, "1", [AlterableConfig(f"p{n}", 0, value) for n in range(count)])]
        rows = submit(controller, IncrementalAlterConfigsRequest(settings)).responses
        assert [row.error_code for row in rows] == [code]
        assert len(controller.image.config(4, "1")) == (0 if code else count)


def test_batch_size_of_settings_counts_bytes_of_characters() -> None:
    value = "\u00e9" * 16_383
    for count, code in ((255, 0), (257, ErrorCode.RECORD_LIST_TOO_LARGE)):
        settings = [AlterConfigsResource(4, "1", [AlterableConfig(f"p{n}", 0, value) for n in range(count)])]
        rows = submit(machine(), IncrementalAlterConfigsRequest(settings)).responses
        assert [row.error_code for row in rows] == [code]


def test_create_partitions_without_increase_returns_kafkas_message() -> None:
    controller = machine()
    create(controller, "t", 3)
    for count, message in (
        (3, "Topic already has 3 partition(s)."),
        (2, "The topic t currently has 3 partition(s); 2 would not be an increase."),
    ):
        answer = submit(controller, CreatePartitionsRequest([CreatePartitionsTopic("t", count, None)], 1000))
        assert (answer.results[0].error_code, answer.results[0].error_message) == (
            ErrorCode.INVALID_PARTITIONS,
            message,
        )


def test_create_partitions_limit_applies_to_all_topics_of_request() -> None:
    for second, code in ((5_000, 0), (5_001, ErrorCode.POLICY_VIOLATION)):
        controller = machine()
        topics = []
        for name, extra in (("t", 5_000), ("u", second)):
            create(controller, name)
            topics.append(CreatePartitionsTopic(name, 1 + extra, None))
        answer = submit(controller, CreatePartitionsRequest(topics, 1000))
        assert [row.error_code for row in answer.results] == [code, code]


def test_create_partitions_with_assignments_keeps_their_order() -> None:
    controller = machine(3)
    create(controller, "t", 2)
    rows = [CreatePartitionsAssignment([broker]) for broker in (3, 1, 2)]
    answer = submit(controller, CreatePartitionsRequest([CreatePartitionsTopic("t", 5, rows)], 1000))
    assert answer.results[0].error_code == 0
    made = controller.image.topics["t"].partitions
    assert [made[number].replicas for number in (2, 3, 4)] == [(3,), (1,), (2,)]


def test_create_partitions_requires_replication_factor_of_the_topic() -> None:
    controller = machine(3)
    create(controller, "t", 1, 2)

    def widen(*lists: list[int]) -> int:
        rows = [CreatePartitionsAssignment(ids) for ids in lists]
        known = len(controller.image.topics["t"].partitions)
        topic = CreatePartitionsTopic("t", known + max(len(lists), 1), rows or None)
        return int(submit(controller, CreatePartitionsRequest([topic], 1000)).results[0].error_code)

    assert widen([1]) == widen([1, 2, 3]) == widen([1, 1]) == widen([1, 8]) == widen([]) == REPLICAS
    assert widen([2, 3]) == 0
    assert widen() == 0
    assert [len(p.replicas) for p in controller.image.topics["t"].partitions.values()] == [2, 2, 2]
    bad = CreatePartitionsTopic("t", 9, [CreatePartitionsAssignment([1, 2])])
    assert submit(controller, CreatePartitionsRequest([bad], 1000)).results[0].error_code == REPLICAS


def test_create_topics_colliding_name_returns_invalid_topic() -> None:
    controller = machine()
    create(controller, "a.b_c")
    for name in ("a_b.c", "a_b_c", "a.b.c"):
        assert create(controller, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    both = [CreatableTopic(name, 1, 1) for name in ("x_y", "x.y")]
    assert [r.error_code for r in submit(controller, CreateTopicsRequest(both, 1000)).topics] == [0, 0]
    row = create(controller, "x_y")
    assert row.error_message == "Topic 'x_y' already exists."
    submit(controller, DeleteTopicsRequest([DeleteTopicState("x_y")]), 6)
    row = create(controller, "x_y")
    assert row.error_message == "Topic 'x_y' collides with existing topic: x.y"
    both = [CreatableTopic(name, 1, 1) for name in ("z.y_x", "z_y.x")]
    submit(controller, CreateTopicsRequest(both, 1000))
    row = create(controller, "z_y_x")
    assert row.error_message == "Topic 'z_y_x' collides with existing topic: z.y_x", "message names the first collision"
    assert create(controller, "a.b_c").error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert create(controller, "a-b-c").error_code == 0


def test_create_topics_metadata_topic_name_returns_invalid_request() -> None:
    controller = machine()
    for name in (METADATA_TOPIC, METADATA_TOPIC):
        row = create(controller, name)
        assert row.error_code == ErrorCode.INVALID_REQUEST
        assert row.error_message == "Creation of internal topic __cluster_metadata is prohibited."
    twice = submit(controller, CreateTopicsRequest([CreatableTopic(METADATA_TOPIC, 1, 1)] * 2, 1000)).topics
    assert [row.error_message for row in twice] == ["Duplicate topic name."]
    assert METADATA_TOPIC not in controller.image.topics
    for name in ("__cluster.metadata", "__cluster_metadata-0", "__cluster_metadata2"):
        assert create(controller, name).error_code == 0, "other names are accepted"
        submit(controller, DeleteTopicsRequest([DeleteTopicState(name)]), 6)
