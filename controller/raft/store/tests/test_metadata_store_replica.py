"""Metadata log as a replica: reads, truncation and replacement by a snapshot."""

from __future__ import annotations

import pytest

from ottla.controller.metadata.snapshot_files import SnapshotContents, SnapshotId, encode_snapshot
from ottla.controller.raft.state_machine import events
from ottla.controller.raft.state_machine.events import LogAppend
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.controller.raft.store.tests.test_metadata_store import LeaderMetadataStore, formatted
from ottla.jobs.job import run_to_end
from ottla.wire.messages.control_records import VotersRecord, VotersRecordVoter
from ottla.wire.record_batch.batch_header import iterate_batches


def two_voters() -> VotersRecord:
    return VotersRecord(0, [VotersRecordVoter(i, bytes([i] * 16)) for i in (1, 2)])


@pytest.mark.behaviour("R-224")
def test_truncate_restores_voters_before_the_offset() -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    store, end = led.store, led.store.log.log_end_offset
    before = store.quorum_records.voters
    store.append(LogAppend(end, 1, 1, controls=(two_voters(),)), 0)
    assert store.quorum_records.voters == two_voters()
    store.truncate(end, 0)
    assert store.quorum_records.voters == before
    assert store.log.log_end_offset == end


@pytest.mark.behaviour("R-219")
def test_read_returns_whole_batches_and_at_least_one() -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    led.add(20)
    sizes = [header.size_bytes for header, _ in led.store.log.segments.batches(3)]
    for most in (-1, 0, 1, sizes[0], sizes[0] + 1, sizes[0] + sizes[1] + 10, 10**6):
        raw = led.store.read(3, most)
        got = [header.base_offset for _, header in iterate_batches(raw)]
        count = max(1, sum(1 for n in range(1, 21) if sum(sizes[:n]) <= most))
        assert got == list(range(3, 3 + count))
        assert len(raw) == sum(sizes[:count]), "no partial batch"
    assert led.store.read(23, 1000) == b""


@pytest.mark.behaviour("R-235")
def test_truncate_to_snapshot_replaces_log_snapshots_and_voters() -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    led.add(5)
    led.snapshot()
    store, name = led.store, SnapshotId(100, 7)
    raw = run_to_end(encode_snapshot(SnapshotContents([], 1, two_voters(), 5), 7, 0))
    store.write_snapshot(name, raw)
    store.truncate_to_snapshot(name, SnapshotContents([], 1, two_voters(), 5), 0)
    assert (store.log.log_start_offset, store.log.log_end_offset, store.log.high_watermark) == (100, 100, 100)
    assert store.quorum_records.voters == two_voters()
    assert led.files(".checkpoint") == [name.file_name]
    assert store.snapshot_created_event() == events.SnapshotCreated(100, ((100, 7),))
    assert store.snapshot_generation == 1
    again = MetadataStore(disk.session(), "/data", identity, 0)
    assert again.snapshot_id == name
    assert again.quorum_records.voters == two_voters()
    assert again.log.log_end_offset == 100


def test_own_snapshot_completed_after_loaded_one_is_discarded() -> None:
    disk, identity = formatted()
    led = LeaderMetadataStore(disk.session(), identity)
    led.add(5)
    store, name = led.store, SnapshotId(100, 7)
    own, around = store.prepare_snapshot(store.log.log_end_offset, 0)
    leaders = run_to_end(encode_snapshot(SnapshotContents([], 1, two_voters(), 5), 7, 0))
    store.write_snapshot(name, leaders)
    store.truncate_to_snapshot(name, SnapshotContents([], 1, two_voters(), 5), 0)
    store.write_snapshot(own, run_to_end(encode_snapshot(around, own.epoch, 0, records=[])))
    store.complete_snapshot(own, 0)
    assert led.files(".checkpoint") == [name.file_name]
    assert store.snapshot_created_event() == events.SnapshotCreated(100, ((100, 7),))
    assert MetadataStore(disk.session(), "/data", identity, 0).snapshot_id == name, "the loaded snapshot remains"
