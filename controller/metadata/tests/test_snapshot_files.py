"""Snapshot files: batch layout and errors of damaged files."""

from __future__ import annotations

import random

import pytest

from ottla.controller.metadata.snapshot_files import (
    RECORDS_PER_BATCH,
    SnapshotContents,
    SnapshotId,
    encode_snapshot,
    last_contained_log_timestamp,
    list_snapshots,
    read_snapshot,
    write_snapshot,
)
from ottla.env.memory_disk import MemoryDisk
from ottla.jobs.job import run_to_end
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.wire.messages.control_records import (
    Endpoint,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordVoter,
)
from ottla.wire.messages.metadata_records import ConfigRecord
from ottla.wire.record_batch.batch_header import iterate_batches
from ottla.wire.record_batch.control_record import decode_control_record
from ottla.wire.record_batch.records import iterate_records

VOTERS = VotersRecord(0, [VotersRecordVoter(n, bytes([n]) * 16) for n in (1, 2)])


def records(count: int) -> list[ConfigRecord]:
    return [ConfigRecord(2, "t", f"k{n}", "v") for n in range(count)]


def batch_layout(raw: bytes) -> list[tuple[int, int, bool, int]]:
    """Return (base offset, records, control, leader epoch) of each batch."""
    return [(h.base_offset, h.records_count, h.is_control, h.partition_leader_epoch) for _, h in iterate_batches(raw)]


@pytest.mark.parametrize(
    ("count", "data"),
    [
        (0, []),
        (1, [1]),
        (1_023, [1_023]),
        (1_024, [1_024]),
        (1_025, [1_024, 1]),
        (2_500, [1_024, 1_024, 452]),
    ],
)
@pytest.mark.parametrize("head", [1, 3])
def test_encode_snapshot_writes_1024_records_per_batch_from_offset_0(count: int, data: list[int], head: int) -> None:
    """``BatchAccumulator``, ``RecordsSnapshotWriter``: header, records, footer."""
    around = SnapshotContents([], 1, VOTERS) if head == 3 else SnapshotContents()
    raw = run_to_end(encode_snapshot(around, 7, 5, records=records(count)))
    assert RECORDS_PER_BATCH == 1_024
    expected, at = [(0, head, True, 7)], head
    for size in data:
        expected.append((at, size, False, 7))
        at += size
    assert batch_layout(raw) == [*expected, (at, 1, True, 7)]


def test_encode_snapshot_begins_with_header_records_and_ends_with_footer() -> None:
    raw = run_to_end(encode_snapshot(SnapshotContents([*records(2)], 1, VOTERS, 77), 7, 5))
    controls = [
        decode_control_record(record)
        for pos, header in iterate_batches(raw)
        if header.is_control
        for record in iterate_records(memoryview(raw)[pos : pos + header.size_bytes], header)
    ]
    head = [SnapshotHeaderRecord(0, 77), KRaftVersionRecord(0, 1), VOTERS]
    assert controls == [*head, SnapshotFooterRecord()]


def on_disk(raw: bytes) -> tuple[MemoryDisk, str]:
    disk = MemoryDisk(random.Random(1), lambda: 0)
    disk.session().makedirs("/d")
    path = f"/d/{SnapshotId(5, 7).file_name}"
    write_snapshot(disk.session(), path, raw)
    return disk, path


def test_read_snapshot_damaged_file_raises_corrupt_file_with_position() -> None:
    raw = run_to_end(encode_snapshot(SnapshotContents([*records(2)], timestamp_ms=3), 7, 5))
    second = [pos for pos, _ in iterate_batches(raw)][1]
    for at, message in ((70, "bad CRC at 0"), (second + 70, f"bad CRC at {second}")):
        disk, path = on_disk(raw)
        disk.files[path].data[at] ^= 1
        with pytest.raises(CorruptFile, match=message):
            run_to_end(read_snapshot(disk.session(), path))
    last = [pos for pos, _ in iterate_batches(raw)][-1]
    disk, path = on_disk(raw[:last])
    with pytest.raises(CorruptFile, match="no footer"):
        run_to_end(read_snapshot(disk.session(), path))


def test_last_contained_log_timestamp_reads_only_the_first_batch() -> None:
    """With a hundred voters the first batch is longer than a page."""
    far = Endpoint("CONTROLLER", "h" * 100, 9093)
    many = VotersRecord(0, [VotersRecordVoter(n, bytes([n]) * 16, [far]) for n in range(100)])
    raw = run_to_end(encode_snapshot(SnapshotContents([*records(2)], 1, many, 1234), 7, 5))
    disk, path = on_disk(raw)
    assert last_contained_log_timestamp(disk.session(), path) == 1234
    disk.files[path].data[-1] ^= 1
    assert last_contained_log_timestamp(disk.session(), path) == 1234
    for at in (5_000, 20):
        disk.files[path].data[at] ^= 1
        with pytest.raises(CorruptFile):
            last_contained_log_timestamp(disk.session(), path)
    for length in (0, 60, 61, 100):
        del disk.files[path].data[length:]
        with pytest.raises(CorruptFile):
            last_contained_log_timestamp(disk.session(), path)
        disk.files[path].data[:] = bytearray(raw)


def test_list_snapshots_ignores_other_names() -> None:
    disk, _ = on_disk(b"")
    session = disk.session()
    for name in ("x.checkpoint", f"{SnapshotId(9, 9).file_name}.part", f"{SnapshotId(3, 1).file_name}"):
        session.open(f"/d/{name}", create=True).close()
    assert list_snapshots(session, "/d") == [SnapshotId(3, 1), SnapshotId(5, 7)]
    assert SnapshotId(5, 7).file_name == "00000000000000000005-0000000007.checkpoint"


def test_list_snapshots_ignores_similar_names_and_directories() -> None:
    disk = MemoryDisk(random.Random(0), lambda: 0).session()
    disk.makedirs("/d")
    for name in ("\u0660" * 20 + "-" + "\u0660" * 10 + ".checkpoint", SnapshotId(3, 1).file_name + "\n"):
        disk.open(f"/d/{name}", create=True).close()
    disk.makedirs(f"/d/{SnapshotId(5, 1).file_name}")
    assert list_snapshots(disk, "/d") == []


def test_write_snapshot_replaces_partial_file_atomically() -> None:
    disk, path = on_disk(b"old")
    session = disk.session()
    session.open(path + ".part", create=True).pwrite(b"x" * 100, 0)
    write_snapshot(session, path, b"new", mode=0o600)
    assert (bytes(disk.files[path].data), disk.files[path].mode) == (b"new", 0o600)
    assert path + ".part" not in disk.files
