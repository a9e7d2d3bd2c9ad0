"""Controller state machine: decisions, image, snapshots and single-node quorum."""

from __future__ import annotations

import contextlib
import itertools
import random
from typing import Any

import pytest

from ottla.controller.control import broker_registration
from ottla.controller.control.controller_result import ControllerDefaults, ControllerResult
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.directory_id import UNASSIGNED
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage, image_records
from ottla.controller.metadata.record_serde import decode_record, encode_record
from ottla.controller.metadata.snapshot_files import (
    SnapshotContents,
    SnapshotId,
    encode_snapshot,
    read_snapshot,
    write_snapshot,
)
from ottla.env.memory_disk import MemoryDisk
from ottla.jobs.job import run_to_end
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest, Feature
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

DIRECTORY_ID = bytes(15) + b"\x07"


def machine(broker_count: int = 1) -> ControllerStateMachine:
    """Return a controller with unfenced brokers 1, 2, ..."""
    ids = (bytes([0, *n.to_bytes(15, "big")]) for n in itertools.count(1))
    out = ControllerStateMachine(ControllerDefaults(num_partitions=2), lambda: next(ids))
    for level in ("eligible.leader.replicas.version", "metadata.version"):
        out.replay(0, FeatureLevelRecord(level, 1 if level.startswith("e") else 30))
    publish(out, 1)
    for broker in range(1, broker_count + 1):
        register(out, broker)
    return out


def directory(broker: int) -> bytes:
    return bytes(14) + b"\x07" + bytes([broker])


def register(machine: ControllerStateMachine, broker: int, *more: bytes, unfence: bool = True) -> int:
    """Register a new incarnation of a broker after a clean shutdown; return its broker epoch."""
    known = machine.image.brokers.get(broker)
    features = [Feature(name, low, high) for name, (low, high) in broker_registration.SUPPORTED_FEATURES.items()]
    request = BrokerRegistrationRequest(
        broker, "", machine.new_uuid(), [], features, None, log_dirs=[directory(broker), *more]
    )
    request.previous_broker_epoch = -1 if known is None else known.broker_epoch
    answer = submit(machine, request)
    assert answer.error_code == 0
    if unfence:
        send_heartbeat(machine, broker)
    return int(answer.broker_epoch)


def send_heartbeat(machine: ControllerStateMachine, broker: int, **wants: Any) -> Any:
    known = machine.image.brokers[broker]
    wants.setdefault("current_metadata_offset", machine.image.offset)
    return submit(machine, BrokerHeartbeatRequest(broker, known.broker_epoch, **wants))


def submit(machine: ControllerStateMachine, request: Any, version: int = 7) -> Any:
    """Decide, replay and publish, as the driver does."""
    offset = machine.image.offset + 1
    decided = machine.decide(request, version, offset)
    decision = decided if isinstance(decided, ControllerResult) else run_to_end(decided)
    for number, record in enumerate(decision.records):
        machine.replay(offset + number, decode_record(encode_record(record)))
    publish(machine, offset + len(decision.records) - 1)
    return decision.response


def publish(machine: ControllerStateMachine, offset: int, epoch: int = 1) -> MetadataImage:
    run_to_end(machine.complete_append(offset, epoch))
    return run_to_end(machine.publish())[0]


def create(machine: ControllerStateMachine, name: str, partitions: int = 1, factor: int = 1, **more: Any) -> Any:
    topic = CreatableTopic(name, partitions, factor, **more)
    return submit(machine, CreateTopicsRequest([topic], 1000)).topics[0]


def test_create_topics_creates_partitions_and_configs() -> None:
    controller = machine()
    row = create(controller, "t", 3, configs=[CreatableTopicConfig("retention.ms", "5")])
    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 3, 1)
    topic = controller.image.topics["t"]
    assert sorted(topic.partitions) == [0, 1, 2]
    assert topic.partitions[0].leader == 1
    assert topic.partitions[0].directories == (directory(1),)
    assert controller.image.config(RESOURCE_TOPIC, "t") == {"retention.ms": "5"}
    assert controller.image.topic_by_id(topic.id) is topic


def test_create_topics_minus_one_uses_defaults() -> None:
    controller = machine()
    assert create(controller, "t", -1, -1).num_partitions == 2


@pytest.mark.behaviour("P-11")
@pytest.mark.parametrize(
    ("name", "partitions", "factor", "code"),
    [
        ("", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a\x00", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("there", 1, 1, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("a.b", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("t", 0, 1, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("t", 1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("t", 20_000, 1, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_create_topics_invalid_returns_error_code(name: str, partitions: int, factor: int, code: ErrorCode) -> None:
    controller = machine()
    create(controller, "there")
    create(controller, "a_b")
    before = controller.image.topics
    assert create(controller, name, partitions, factor).error_code == code
    assert controller.image.topics == before


def test_create_topics_validate_only_creates_no_topic() -> None:
    controller = machine()
    request = CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000, validate_only=True)
    assert submit(controller, request).topics[0].error_code == 0
    assert not controller.image.topics


def test_delete_topics_removes_configs_and_recreated_topic_has_new_id() -> None:
    controller = machine()
    create(controller, "t", configs=[CreatableTopicConfig("retention.ms", "5")])
    old = controller.image.topics["t"].id
    row = submit(controller, DeleteTopicsRequest(topics=[DeleteTopicState(None, old)]), 6).responses[0]
    assert (row.error_code, row.name) == (0, "t")
    assert controller.image.config(RESOURCE_TOPIC, "t") == {}
    create(controller, "t")
    assert controller.image.topics["t"].id != old
    row = submit(controller, DeleteTopicsRequest(topics=[DeleteTopicState(None, old)]), 6).responses[0]
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_create_partitions_rejects_decrease() -> None:
    controller = machine()
    create(controller, "t", 2)

    def widen(count: int) -> int:
        request = CreatePartitionsRequest([CreatePartitionsTopic("t", count, None)], 1000)
        code: int = submit(controller, request).results[0].error_code
        return code

    assert widen(2) == widen(1) == ErrorCode.INVALID_PARTITIONS
    assert widen(5) == 0
    assert len(controller.image.topics["t"].partitions) == 5


def alter(controller: ControllerStateMachine, name: str, op: int, value: str | None) -> int:
    change = AlterConfigsResource(RESOURCE_TOPIC, "t", [AlterableConfig(name, op, value)])
    code: int = submit(controller, IncrementalAlterConfigsRequest([change])).responses[0].error_code
    return code


def test_incremental_alter_configs_set_append_subtract_and_delete() -> None:
    controller = machine()
    create(controller, "t")

    def now() -> dict[str, str]:
        return dict(controller.image.config(RESOURCE_TOPIC, "t"))

    assert alter(controller, "cleanup.policy", 2, "compact") == 0
    assert now() == {"cleanup.policy": "delete,compact"}
    assert alter(controller, "cleanup.policy", 3, "delete") == 0
    assert now() == {"cleanup.policy": "compact"}
    assert alter(controller, "cleanup.policy", 1, None) == 0
    assert now() == {}
    assert alter(controller, "retention.ms", 2, "5") == ErrorCode.INVALID_CONFIG
    assert alter(controller, "no.such", 0, "5") == ErrorCode.INVALID_CONFIG
    assert alter(controller, "retention.ms", 0, "many") == ErrorCode.INVALID_CONFIG
    assert alter(controller, "segment.bytes", 0, "5") == ErrorCode.INVALID_CONFIG
    assert now() == {}


def test_controlled_shutdown_and_registration_change_leader_epoch() -> None:
    controller = machine()
    create(controller, "t")
    answer = send_heartbeat(controller, 1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False), "it still leads a partition"
    answer = send_heartbeat(controller, 1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    stopped = controller.image.topics["t"].partitions[0]
    assert (stopped.leader, stopped.isr, stopped.elr, stopped.last_known_elr) == (-1, (), (1,), (1,))
    assert controller.image.unfenced_brokers() == []
    offset = controller.image.offset + 1
    assert register(controller, 1) == offset
    again = controller.image.topics["t"].partitions[0]
    assert (again.leader, again.isr, again.elr, again.last_known_elr) == (1, (1,), (), ())
    assert again.leader_epoch == stopped.leader_epoch + 1
    assert again.recovering == 0
    assert controller.image.brokers[1].broker_epoch == offset


def test_controlled_shutdown_elects_another_replica() -> None:
    controller = machine(3)
    create(controller, "t", 1, 3)
    leader = controller.image.topics["t"].partitions[0].leader
    send_heartbeat(controller, leader, want_shut_down=True)
    after = controller.image.topics["t"].partitions[0]
    assert after.leader not in (leader, -1)
    assert leader not in after.isr
    assert len(after.isr) == 2


@pytest.mark.behaviour("P-82", "R-303")
def test_allocate_producer_ids_returns_blocks_of_1000() -> None:
    controller = machine()
    epoch = controller.image.brokers[1].broker_epoch
    starts = [submit(controller, AllocateProducerIdsRequest(1, epoch)).producer_id_start for _ in range(3)]
    assert starts == [0, 1000, 2000]
    for broker, wrong in ((1, epoch + 1), (1, epoch - 1), (2, epoch)):
        answer = submit(controller, AllocateProducerIdsRequest(broker, wrong))
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert controller.image.next_producer_id is not None
    assert controller.image.next_producer_id.next_producer_id == 3000


@pytest.mark.behaviour("P-57")
def test_aborted_metadata_transaction_changes_no_image() -> None:
    controller = machine()
    before = controller.image
    topic = TopicRecord("t", bytes(15) + b"\x05")
    for record in (BeginTransactionRecord("x"), topic, AbortTransactionRecord("y")):
        controller.replay(0, record)
    assert publish(controller, 5).topics == before.topics
    for record in (BeginTransactionRecord("x"), topic, EndTransactionRecord()):
        controller.replay(0, record)
    assert "t" in publish(controller, 8).topics


def test_image_is_immutable() -> None:
    controller = machine()
    create(controller, "t")
    old = controller.image
    seen = repr(old)
    create(controller, "u")
    submit(controller, CreatePartitionsRequest([CreatePartitionsTopic("t", 4, None)], 1000))
    alter(controller, "retention.ms", 0, "5")
    assert repr(old) == seen


def populated() -> ControllerStateMachine:
    controller = machine(2)
    for number in range(5):
        create(controller, f"t{number}", number + 1, 1, configs=[CreatableTopicConfig("retention.ms", str(number))])
    submit(controller, DeleteTopicsRequest(topics=[DeleteTopicState("t2")]), 6)
    for record in (
        FeatureLevelRecord("metadata.version", 30),
        ConfigRecord(RESOURCE_BROKER, "", "min.insync.replicas", "1"),
        AccessControlEntryRecord(bytes(16), 2, "x", 3, "User:a", "*", 3, 3),
        UserScramCredentialRecord("u", 1, b"s", b"k", b"v", 4096),
        ProducerIdsRecord(1, 5, 3000),
    ):
        controller.replay(0, record)
    publish(controller, 500, 3)
    return controller


def test_image_records_restore_the_image() -> None:
    image = populated().image
    copy = ControllerStateMachine(ControllerDefaults(), lambda: b"")
    for record in image_records(image):
        copy.replay(0, decode_record(encode_record(record)))
    assert publish(copy, image.offset, image.epoch) == image


def test_snapshot_file_survives_round_trip_and_detects_damage() -> None:
    disk = MemoryDisk(random.Random(1), lambda: 0)
    session = disk.session()
    session.makedirs("/d")
    records = list(image_records(populated().image))
    raw = run_to_end(encode_snapshot(SnapshotContents(records, timestamp_ms=5), 3, 7))
    path = f"/d/{SnapshotId(501, 3).file_name}"
    write_snapshot(session, path, raw)
    back = run_to_end(read_snapshot(session, path))
    assert (back.records, back.timestamp_ms) == (records, 5)
    assert disk.files[path].mode == 0o400
    for at in range(0, len(raw), 37):
        if 0 <= at % 1000 < 16:  # base offset and leader epoch are outside the checksum
            continue
        disk.files[path].data[at] ^= 0x10
        with contextlib.suppress(CorruptFile):
            assert run_to_end(read_snapshot(session, path)).records == records
        disk.files[path].data[at] ^= 0x10
    del disk.files[path].data[-40:]
    with pytest.raises(CorruptFile):
        run_to_end(read_snapshot(session, path))


def test_image_records_of_empty_image_are_empty() -> None:
    assert not list(image_records(MetadataImage()))


def assign_directories(controller: ControllerStateMachine, rows: list[tuple[bytes, bytes, int]]) -> Any:
    """Assign rows of (directory, topic id, partition) of broker 1."""
    directories = [
        AssignReplicasToDirsRequestDirectoryData(
            where,
            [AssignReplicasToDirsRequestTopicData(topic, [AssignReplicasToDirsRequestPartitionData(number)])],
        )
        for where, topic, number in rows
    ]
    epoch = controller.image.brokers[1].broker_epoch
    return submit(controller, AssignReplicasToDirsRequest(1, epoch, directories))


def test_offline_log_dir_removes_leadership_before_or_after_assignment() -> None:
    other = bytes(14) + b"\x77\x77"
    for assigned_first in (True, False):
        controller = machine()
        register(controller, 1, other)
        submit(controller, CreateTopicsRequest([CreatableTopic("t", 2, 1)]))
        topic = controller.image.topics["t"]
        assert {p.directories for p in topic.partitions.values()} == {(UNASSIGNED,)}
        rows = [(directory(1), topic.id, 0), (other, topic.id, 1)]
        if assigned_first:
            assign_directories(controller, rows)
        send_heartbeat(controller, 1, offline_log_dirs=[other])
        if not assigned_first:
            assign_directories(controller, rows)
        first, second = (controller.image.topics["t"].partitions[n] for n in (0, 1))
        assert (first.leader, first.isr, first.directories) == (1, (1,), (directory(1),))
        assert (second.leader, second.isr, second.elr, second.directories) == (-1, (), (1,), (other,))
        assert list(controller.image.brokers[1].log_dirs) == [directory(1)]


def test_assign_replicas_to_dirs_returns_error_per_row() -> None:
    controller = machine(2)
    create(controller, "mine", assignments=[CreatableReplicaAssignment(0, [1])], partitions=-1, factor=-1)
    create(controller, "theirs", assignments=[CreatableReplicaAssignment(0, [2])], partitions=-1, factor=-1)
    mine, theirs = (controller.image.topics[n].id for n in ("mine", "theirs"))
    where = directory(1)
    answer = assign_directories(
        controller, [(where, mine, 0), (where, mine, 1), (where, theirs, 0), (where, bytes(16), 0)]
    )
    codes = [d.topics[0].partitions[0].error_code for d in answer.directories]
    assert codes == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    stale = AssignReplicasToDirsRequest(1, 0, [])
    assert submit(controller, stale).error_code == ErrorCode.STALE_BROKER_EPOCH
