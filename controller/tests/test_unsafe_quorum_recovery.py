"""Recovery of a quorum from the directory of one controller."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.controller import unsafe_quorum_recovery
from ottla.controller.bootstrap_features import bootstrap_feature_levels
from ottla.controller.metadata.record_serde import MetadataBatchWriter
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.state_machine import events
from ottla.controller.raft.state_machine.events import HardState, LogAppend, ReplicaKey
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.controller.raft.store.quorum_state_file import QuorumStateFile
from ottla.controller.storage_formatter import FormatPlan, InitialVoter, format_directories
from ottla.env.disk import read_file
from ottla.env.memory_disk import MemoryDisk
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.directory.meta_properties import MetaProperties
from ottla.wire.codec.primitives import uuid_to_string
from ottla.wire.messages.metadata_records import PartitionRecord, RegisterBrokerRecord, TopicRecord

ME = 2
TOPIC = bytes([7]) * 16


def directory_of(node: int) -> bytes:
    return bytes(15) + bytes([node])


def formatted_node(*voters: int, node: int = ME) -> tuple[MemoryDisk, MetaProperties]:
    """Return the formatted disk of a node; without voters they are static."""
    disk = MemoryDisk(random.Random(1), lambda: 0)
    rows = tuple(InitialVoter(i, directory_of(i), (ListenerEndpoint("C", f"n{i}", 9093),)) for i in voters)
    levels = bootstrap_feature_levels(None, {}, dynamic_quorum=bool(voters))
    directory = LogDirectory(disk.session(), "/data")
    directory.lock()
    plan = FormatPlan(node, uuid_to_string(bytes([9]) * 16), levels, rows)
    format_directories([directory], directory, plan, 0, lambda: directory_of(node))
    identity = directory.read_meta_properties()
    assert identity is not None
    directory.unlock()
    return disk, identity


def open_store(disk: MemoryDisk, identity: MetaProperties) -> MetadataStore:
    return MetadataStore(disk.session(), "/data", identity, 0)


def contents(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: read_file(disk.session(), path) for path in sorted(disk.files)}


def partition(number: int, isr: list[int], replicas: list[int]) -> PartitionRecord:
    return PartitionRecord(number, TOPIC, replicas, isr, leader=isr[0], leader_epoch=0, partition_epoch=0)


def append_as_follower(store: MetadataStore, epoch: int, *records: Any) -> None:
    """Append records of a leader to the log of this replica."""
    writer = MetadataBatchWriter(1_000)
    for record in records:
        writer.add_message(record)
    store.append(LogAppend(store.log.log_end_offset, len(records), epoch, batch=writer.build()), 1_000)
    store.prepare_state_write(HardState(epoch, 1), store.voter_history(QuorumConfig(bootstrap_servers=(("x", 1),))))()
    job = store.prepare_flush()
    job()
    store.complete_flush(job)


def test_recover_quorum_remaining_node_becomes_single_voter_and_keeps_records() -> None:
    disk, identity = formatted_node(1, 2, 3)
    store = open_store(disk, identity)
    append_as_follower(store, 4, TopicRecord("t", TOPIC), partition(0, [2, 1], [1, 2]))
    end = store.log.log_end_offset
    assert unsafe_quorum_recovery.recover_quorum(store, {}, 2_000) == 5
    disk.lose_power()  # recovery does not depend on a clean stop
    again = open_store(disk, identity)
    voters = again.voter_history(QuorumConfig())
    assert list(voters.current) == [ReplicaKey(ME, directory_of(ME))]
    assert QuorumStateFile.read(disk.session(), "/data/__cluster_metadata-0/quorum-state").hard_state == HardState(5)
    assert (again.log.log_end_offset, again.log_summary().last_epoch) == (end + 1, 5)
    raft = RaftStateMachine(again.local_replica, voters, again.persisted_hard_state, again.log_summary(), lambda: 0.5)
    ready = raft.step(0, events.RaftStarted())
    assert raft.is_leader
    assert ready.hard_state == HardState(6, ME), "epoch above that of the other voters"


def test_recover_quorum_fences_lost_brokers_and_elects_remaining_replicas() -> None:
    disk, identity = formatted_node(1, 2, 3)
    store = open_store(disk, identity)
    rows = [partition(0, [1, 2, 3], [1, 2, 3]), partition(1, [4, 2], [4, 2]), partition(2, [3], [3, 2])]
    brokers = [RegisterBrokerRecord(i, broker_epoch=i, fenced=i == 3) for i in (1, 2, 3, 4)]
    append_as_follower(store, 4, *brokers, TopicRecord("t", TOPIC), *rows)
    unsafe_quorum_recovery.recover_quorum(store, {}, 2_000)
    image = unsafe_quorum_recovery._machine(open_store(disk, identity)).latest_image
    assert [image.brokers[i].fenced for i in (1, 2, 3, 4)] == [True, False, True, False], "4 is not a voter"
    partitions = image.topics["t"].partitions
    assert (partitions[0].leader, partitions[0].isr) == (2, (2, 3)), "3 was fenced before"
    assert (partitions[1].leader, partitions[1].isr) == (4, (4, 2))
    assert (partitions[2].leader, partitions[2].isr) == (3, (3,)), "no other replica has the records"


def test_preview_recovery_reports_lost_records_without_changes() -> None:
    disk, identity = formatted_node(1, 2, 3)
    store = open_store(disk, identity)
    rows = [partition(0, [2, 1], [1, 2]), partition(1, [1], [1, 2]), partition(2, [1, 3], [1, 3])]
    append_as_follower(store, 4, TopicRecord("t", TOPIC), *rows)
    before = contents(disk)
    preview = unsafe_quorum_recovery.preview_recovery(open_store(disk, identity))
    assert preview == unsafe_quorum_recovery.QuorumRecoveryPreview(
        ME, (1, 3), store.log.log_end_offset, 4, 1_000, 1, ("t:1",), ("t:2",)
    )
    assert contents(disk) == before


@pytest.mark.parametrize(
    ("voters", "node", "why"),
    [
        ((), ME, "kraft.version 0"),
        ((2,), ME, "the only voter"),
        ((1, 3, 4), ME, r"node 2 is not one of the voters \[1, 3, 4\]"),
    ],
)
def test_recover_quorum_node_without_vote_raises_quorum_recovery_error(
    voters: tuple[int, ...], node: int, why: str
) -> None:
    disk, identity = formatted_node(*voters, node=node)
    store = open_store(disk, identity)
    end = store.log.log_end_offset
    for attempt in (
        lambda: unsafe_quorum_recovery.preview_recovery(store),
        lambda: unsafe_quorum_recovery.recover_quorum(store, {}, 0),
    ):
        with pytest.raises(unsafe_quorum_recovery.QuorumRecoveryError, match=why):
            attempt()
    assert store.log.log_end_offset == end


def test_recover_quorum_interrupted_after_epoch_can_be_repeated() -> None:
    disk, identity = formatted_node(1, 2, 3)
    store = open_store(disk, identity)
    append_as_follower(store, 4, TopicRecord("t", TOPIC))
    store.prepare_state_write(HardState(5), store.voter_history(QuorumConfig(bootstrap_servers=(("x", 1),))))()
    assert unsafe_quorum_recovery.recover_quorum(open_store(disk, identity), {}, 0) == 6
    assert [v.id for v in open_store(disk, identity).voter_history(QuorumConfig()).current] == [ME]
