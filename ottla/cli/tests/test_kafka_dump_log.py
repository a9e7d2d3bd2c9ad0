"""``ottla kafka-dump-log``: limits, indexes, and segments that are cut off."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ottla.cli.tests.command_runs import run_command
from ottla.wire.record_batch.batch_header import BatchHeader, pack_batch
from ottla.wire.record_batch.records import NewRecord, build_batch


def test_dump_reads_at_most_max_bytes_of_a_segment(tmp_path: Path) -> None:
    path = str(tmp_path / "00000000000000000000.log")
    batch = build_batch([NewRecord(None, b"v", 1000)])
    Path(path).write_bytes(3 * batch)
    for max_bytes, count in ((2 * len(batch), 2), (2 * len(batch) - 1, 1), (4 * len(batch), 3)):
        done = run_command("kafka-dump-log", "--files", path, "--max-bytes", str(max_bytes))
        assert done.out.count(b"baseOffset: ") == count
    done = run_command("kafka-dump-log", "--files", path, "--max-bytes", "-5")
    assert (done.status, done.err.splitlines()[:1]) == (1, [f"Invalid size: -5 in read from {path}"])


def test_dump_of_a_time_index_reads_a_batch_without_records(tmp_path: Path) -> None:
    path = str(tmp_path / "00000000000000000000")
    header = BatchHeader(0, 0, 0, 2, 0, 0, 4, -1, 1000, 7, 0, 0, 0)  # compaction keeps it for its producer
    Path(f"{path}.log").write_bytes(pack_batch(header, b""))
    Path(f"{path}.index").write_bytes(b"")
    Path(f"{path}.timeindex").write_bytes(struct.pack(">qi", 1000, 4))
    done = run_command("kafka-dump-log", "--files", f"{path}.timeindex")
    assert done.status == 0
    assert done.out.decode().splitlines()[1:] == ["timestamp: 1000 offset: 4"]
    assert "  Index timestamp: 1000, log timestamp: -1" in done.err.splitlines()


@pytest.mark.parametrize("left", [11, 12, 16, 17, 60])
def test_dump_of_a_time_index_reports_offsets_behind_a_segment_that_is_cut_off(tmp_path: Path, left: int) -> None:
    path = str(tmp_path / "00000000000000000000")
    batch = build_batch([NewRecord(None, b"v", 1000)])
    Path(f"{path}.log").write_bytes(batch + struct.pack(">q", 1) + batch[8:left])
    Path(f"{path}.index").write_bytes(b"")
    Path(f"{path}.timeindex").write_bytes(struct.pack(">qi", 1000, 1))
    done = run_command("kafka-dump-log", "--files", f"{path}.timeindex")
    assert done.status == 0
    assert "Indexed offset: 1, found log offset: -1" in done.err.splitlines()


def test_dump_of_an_index_reads_only_the_batches_that_it_points_to(tmp_path: Path) -> None:
    path = str(tmp_path / "00000000000000000000")
    batch = build_batch([NewRecord(None, b"v", 1000)])
    damaged = batch[:8] + bytes(4) + batch[12:]
    Path(f"{path}.log").write_bytes(batch + damaged + struct.pack(">q", 2) + batch[8:] + batch[:60])
    entries = [(1, len(batch)), (2, 2 * len(batch)), (3, 2 * len(batch)), (4, 3 * len(batch))]
    Path(f"{path}.index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    done = run_command("kafka-dump-log", "--files", f"{path}.index")
    assert done.status == 0
    assert done.out.decode().splitlines()[1:] == [f"offset: {entry[0]} position: {entry[1]}" for entry in entries]
    assert done.err.splitlines() == [
        f"Mismatches in :{path}.index",
        "  Index offset: 4, log offset: -1",
        "  Index offset: 3, log offset: 2",
        "  Index offset: 1, log offset: -1",
    ]
