"""Metadata store: log, snapshots and quorum-state on a disk."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from ottla.controller.metadata.record_serde import MetadataBatchWriter, decode_batch
from ottla.controller.metadata.snapshot_files import (
    SnapshotContents,
    SnapshotId,
    encode_snapshot,
    last_contained_log_timestamp,
)
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.state_machine import events
from ottla.controller.raft.state_machine.events import HardState, LogAppend, ReplicaKey
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.store.metadata_log_config import MetadataLogConfig
from ottla.controller.raft.store.metadata_store import IncompatibleQuorum, MetadataStore
from ottla.controller.raft.store.quorum_state_file import QuorumStateFile
from ottla.controller.storage_formatter import format_directory
from ottla.env.disk import Disk
from ottla.env.memory_disk import MemoryDisk
from ottla.jobs.job import run_to_end
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.directory.log_directory import LogDirectory, MetaProperties
from ottla.wire.messages.metadata_records import ConfigRecord, FeatureLevelRecord, NoOpRecord

LOG = "/data/__cluster_metadata-0"


def ids() -> Iterator[bytes]:
    return (bytes([9, *n.to_bytes(15, "big")]) for n in itertools.count(1))


def formatted() -> tuple[MemoryDisk, MetaProperties]:
    disk = MemoryDisk(random.Random(1), lambda: 0)
    source = ids()
    directory = LogDirectory(disk.session(), "/data")
    directory.lock()
    identity = format_directory(
        directory, 1, None, ListenerEndpoint("CONTROLLER", "localhost", 9093), 0, lambda: next(source)
    )
    directory.unlock()
    return disk, identity


class LeaderMetadataStore:
    """Store with a leading Raft state machine, driven as the driver does."""

    def __init__(self, disk: Disk, identity: MetaProperties, now_ms: int = 0, **settings: int) -> None:
        self.store = store = MetadataStore(disk, "/data", identity, now_ms, MetadataLogConfig(**settings))
        start = store.snapshot_id.end_offset
        batches = store.committed_batches(start, store.log.log_end_offset)
        self.offsets = [o for header, raw in batches for o, _ in decode_batch(header, raw) if o >= start]
        voters = store.voter_history(QuorumConfig())
        self.raft = RaftStateMachine(
            store.local_replica,
            voters,
            store.persisted_hard_state,
            store.log_summary(),
            lambda: 0.5,
            first_records=store.first_records(QuorumConfig()),
        )
        self.now_ms = now_ms
        self.step(events.RaftStarted())
        self.sync()

    def step(self, event: events.RaftEvent) -> None:
        ready = self.raft.step(self.now_ms, event)
        if ready.hard_state is not None:
            self.store.prepare_state_write(ready.hard_state, self.raft.voters)()
        for append in ready.appends:
            self.store.append(append, self.now_ms)
        if ready.committed is not None:
            self.store.on_high_watermark(ready.committed)

    def sync(self) -> None:
        job = self.store.prepare_flush()
        job()
        self.step(events.LogFlushed(self.store.complete_flush(job)))

    def add(self, count: int) -> None:
        for number in range(count):
            writer = MetadataBatchWriter(self.now_ms)
            writer.add_message(ConfigRecord(2, "t", f"k{number}", "v" * 100))
            self.step(events.Propose(writer.build(), 1))
        self.sync()

    def snapshot(self) -> SnapshotId:
        name, around = self.store.prepare_snapshot(self.store.log.log_end_offset, self.now_ms)
        records = [FeatureLevelRecord("metadata.version", 30)]
        self.store.write_snapshot(name, run_to_end(encode_snapshot(around, name.epoch, self.now_ms, records=records)))
        self.store.complete_snapshot(name, self.now_ms)
        return name

    def files(self, suffix: str) -> list[str]:
        return [n for n in self.store.disk.listdir(LOG) if n.endswith(suffix)]


def test_metadata_store_each_start_persists_new_epoch() -> None:
    disk, identity = formatted()
    for epoch in (1, 2, 3):
        led = LeaderMetadataStore(disk.session(), identity)
        assert led.raft.epoch == epoch
        state = QuorumStateFile.read(disk.session(), f"{LOG}/quorum-state")
        assert state.hard_state == HardState(epoch, 1)
    headers = [header for header, _ in led.store.log.segments.batches()]
    assert [h.partition_leader_epoch for h in headers] == [1, 2, 3]
    assert [h.records_count for h in headers] == [3, 1, 1], "voters are written only once"


def test_raft_start_persists_epoch_before_first_record() -> None:
    disk, identity = formatted()
    store = MetadataStore(disk.session(), "/data", identity, 0)
    raft = RaftStateMachine(
        store.local_replica,
        store.voter_history(QuorumConfig()),
        store.persisted_hard_state,
        store.log_summary(),
        lambda: 0.5,
    )
    ready = raft.step(0, events.RaftStarted())
    assert ready.hard_state == HardState(1, 1)
    assert [a.epoch for a in ready.appends] == [1]


def test_voter_history_of_other_quorum_raises_incompatible_quorum() -> None:
    disk, identity = formatted()
    for other in (
        MetaProperties(identity.cluster_id, 2, identity.directory_id),
        MetaProperties(identity.cluster_id, 1, bytes([7] * 16)),
    ):
        with pytest.raises(IncompatibleQuorum):
            MetadataStore(disk.session(), "/data", other, 0).voter_history(QuorumConfig())


def test_voter_history_of_other_static_quorum_raises_incompatible_quorum() -> None:
    for ids_, refused in (([1], False), ([2], True), ([1, 2], True)):
        disk, identity = formatted()
        session = disk.session()
        session.unlink(f"{LOG}/{SnapshotId(0, 0).file_name}")
        file = QuorumStateFile(HardState(4), 0, {"currentVoters": [{"voterId": i} for i in ids_]})
        file.write(session, f"{LOG}/quorum-state")
        store = MetadataStore(session, "/data", identity, 0)
        if refused:
            with pytest.raises(IncompatibleQuorum):
                store.voter_history(QuorumConfig())
        else:
            assert store.voter_history(QuorumConfig()).current == (ReplicaKey(1),)


def test_metadata_store_starts_from_newest_snapshot() -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    led.add(20)
    name = led.snapshot()
    led.add(3)
    again = LeaderMetadataStore(disk.session(), identity)
    assert again.store.snapshot_id == name
    assert again.offsets == [23, 24, 25]
    assert again.store.log.segments[0].base_offset == 0
    read = again.store.log.recovery_notes
    assert not read


@pytest.mark.parametrize("max_bytes", [-(2**31), -1, 0, 7, 2**31 - 1])
def test_read_snapshot_chunk_is_limited_by_max_bytes(max_bytes: int) -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    name = led.snapshot()
    whole = led.store.snapshot_size_bytes(name)
    assert len(led.store.read_snapshot_chunk(name, 0, max_bytes)) == min(max(max_bytes, 0), whole)


def test_damage_below_snapshot_keeps_later_records() -> None:
    """Records synced after a damaged beginning must survive every later start."""
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    led.add(20)
    led.snapshot()
    led.add(3)
    data = disk.files[f"{LOG}/{0:020d}.log"].data
    data[200] ^= 0xFF
    for extra in (0, 4, 8):
        led = LeaderMetadataStore(disk.session(), identity)
        assert len([o for o in led.offsets if o >= 23]) == 3 + extra
        led.add(4)


@pytest.mark.parametrize("keep", [0, 100, 150, 1000, 2500])
def test_truncated_log_restarts_at_end_of_snapshot(keep: int) -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    led.add(20)
    name = led.snapshot()
    for path in [p for p in disk.files if p.startswith(LOG) and p.endswith(".log") and f"{0:020d}" not in p]:
        disk.session().unlink(path)
    del disk.files[f"{LOG}/{0:020d}.log"].data[keep:]
    led = LeaderMetadataStore(disk.session(), identity)
    assert led.offsets == []
    assert led.store.log.log_start_offset == led.store.log.segments[0].base_offset == name.end_offset
    led.add(5)
    again = LeaderMetadataStore(disk.session(), identity)
    assert again.offsets == list(range(name.end_offset + 1, name.end_offset + 6))
    assert next(h.base_offset for h, _ in again.store.log.segments.batches()) == name.end_offset, (
        "no offset gap at the start of the log"
    )


def test_unreadable_snapshot_falls_back_to_older_one() -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    led.add(5)
    first = led.snapshot()
    led.add(5)
    second = led.snapshot()
    del disk.files[f"{LOG}/{second.file_name}"].data[50:]
    again = LeaderMetadataStore(disk.session(), identity)
    assert again.store.snapshot_id == first
    assert again.offsets == list(range(8, 13))


def test_complete_log_without_readable_snapshot_is_used() -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    led.add(5)
    names = [led.snapshot()]
    led.add(5)
    names.append(led.snapshot())
    led.add(1)
    for name in names:
        del disk.files[f"{LOG}/{name.file_name}"].data[50:]
    disk.session().unlink(f"{LOG}/{SnapshotId(0, 0).file_name}")
    again = LeaderMetadataStore(disk.session(), identity)
    assert again.store.snapshot_id == SnapshotId(0, 0)
    assert again.offsets == [3, *range(4, 14)]
    assert again.store.kraft_version == 1, "version is read from the log"


def test_unreadable_bootstrap_snapshot_raises_corrupt_file() -> None:
    """A new cluster has its voters only in this snapshot."""
    disk, identity = formatted()
    del disk.files[f"{LOG}/{SnapshotId(0, 0).file_name}"].data[50:]
    with pytest.raises(CorruptFile):
        MetadataStore(disk.session(), "/data", identity, 0)


@pytest.mark.behaviour("R-233")
@pytest.mark.parametrize(("epoch", "kept"), [(1, True), (2, False)])
def test_log_diverging_from_snapshot_restarts_at_its_end(epoch: int, kept: bool) -> None:
    """Records up to 13 have epoch 1, later ones epoch 2; the snapshot contains the epoch of the last record below
    it.
    """
    disk, identity = formatted()
    LeaderMetadataStore(disk.session(), identity).add(10)
    led = LeaderMetadataStore(disk.session(), identity)
    led.add(5)
    end = next(h.base_offset for h, _ in led.store.log.segments.batches() if h.partition_leader_epoch == 2)
    name = SnapshotId(end, epoch)
    raw = run_to_end(encode_snapshot(SnapshotContents([FeatureLevelRecord("metadata.version", 30)]), epoch, 0))
    led.store.write_snapshot(name, raw)
    store = MetadataStore(disk.session(), "/data", identity, 0)
    assert store.snapshot_id == name
    assert store.log.log_end_offset == (led.store.log.log_end_offset if kept else end)
    assert store.log.log_start_offset == (0 if kept else end)


def test_flush_overtaken_by_truncation_completes_up_to_its_offset() -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    led.add(3)
    durable = led.store.log.recovery_point
    writer = MetadataBatchWriter(0)
    writer.add_message(NoOpRecord())
    led.step(events.Propose(writer.build(), 1))
    job = led.store.prepare_flush()
    job()
    led.store.log.truncate_to(durable, 0)
    assert led.store.complete_flush(job) == durable


def test_snapshot_contains_timestamp_of_last_record() -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity, 500)
    led.now_ms = 700
    led.add(1)
    led.now_ms = 900
    name = led.snapshot()
    path = f"{LOG}/{name.file_name}"
    assert last_contained_log_timestamp(disk.session(), path) == 700
    store = MetadataStore(disk.session(), "/data", identity, 1_000)
    assert store.last_timestamp_ms == 700, "no record after the snapshot"
    assert list(store.committed_batches(store.snapshot_id.end_offset, store.log.log_end_offset)) == []
    assert store.prepare_snapshot(store.log.log_end_offset, 1_000)[1].timestamp_ms == 700


def test_partial_log_without_readable_snapshot_raises_corrupt_file() -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity, retention_bytes=0)
    led.add(5)
    name = led.snapshot()
    led.add(5)
    assert led.store.log.segments[0].base_offset == name.end_offset
    del disk.files[f"{LOG}/{name.file_name}"].data[50:]
    with pytest.raises(CorruptFile):
        MetadataStore(disk.session(), "/data", identity, 0)
    disk.session().unlink(f"{LOG}/{name.file_name}")
    with pytest.raises(CorruptFile):
        MetadataStore(disk.session(), "/data", identity, 0)


@pytest.mark.behaviour("P-64")
def test_metadata_log_config_uses_kafkas_names_and_defaults() -> None:
    values = {
        "metadata.log.max.record.bytes.between.snapshots": "1",
        "metadata.log.max.snapshot.interval.ms": "2",
        "metadata.max.retention.bytes": "3",
        "metadata.max.retention.ms": "4",
        "metadata.log.segment.bytes": "5",
        "metadata.log.segment.ms": "6",
    }
    assert MetadataLogConfig.from_config(values) == MetadataLogConfig(1, 2, 3, 4, 5, 6)
    assert MetadataLogConfig.from_config({}) == MetadataLogConfig(
        20_971_520, 3_600_000, 104_857_600, 604_800_000, 1 << 30, 604_800_000
    )


def test_append_at_unexpected_offset_raises_assertion_error() -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    writer = MetadataBatchWriter(0)
    writer.add_message(NoOpRecord())
    with pytest.raises(AssertionError):
        led.store.append(LogAppend(77, 1, 1, writer.build()), 0)
