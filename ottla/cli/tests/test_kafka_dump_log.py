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


def _write_indexes(base: int, offsets: list[tuple[int, int]], times: list[tuple[int, int]], path: str) -> None:
    """Write a segment of four records with timestamp 1000, and its indexes with these entries."""
    batch = build_batch([NewRecord(None, b"v", 1000)])
    Path(f"{path}.log").write_bytes(b"".join(struct.pack(">q", base + n) + batch[8:] for n in range(4)))
    entries = [struct.pack(">ii", relative, place * len(batch)) for relative, place in offsets]
    Path(f"{path}.index").write_bytes(b"".join(entries))
    Path(f"{path}.timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in times))


def test_dump_of_indexes_out_of_order_prints_their_entries(tmp_path: Path) -> None:
    path = str(tmp_path / "00000000000000000020")
    times = [(1000, 2), (900, 1), (0, 0), (1000, 3)]
    _write_indexes(20, [(2, 2), (1, 1), (-3, 3), (0, 0), (3, 3)], times, path)
    done = run_command("kafka-dump-log", "--files", f"{path}.index")
    assert (done.status, [row.split()[1] for row in done.out.decode().splitlines()[1:]]) == (0, ["22", "21", "17"])
    assert done.err.splitlines() == [f"Mismatches in :{path}.index", "  Index offset: 17, log offset: 23"]
    _write_indexes(20, [(2, 2), (1, 1), (3, 3)], times, path)
    done = run_command("kafka-dump-log", "--files", f"{path}.timeindex")
    shown = ["timestamp: 1000 offset: 22", "timestamp: 900 offset: 21"]
    assert (done.status, done.out.decode().splitlines()[1:]) == (0, shown)
    assert "  Index timestamp: 900, Previously indexed timestamp: 1000" in done.err.splitlines()


@pytest.mark.parametrize(
    ("name", "offsets", "times", "why"),
    [
        ("index", [(2, 2), (1, 1)], [], None),
        ("index", [(1, 1), (-3, 2)], [], "the last offset is 17 which is less than the base offset 20"),
        ("timeindex", [], [(1000, 2), (900, 1), (1000, 3)], None),
        ("timeindex", [], [(1000, 1), (999, 2)], "timestamp is 999 which is less than the first timestamp 1000"),
        ("timeindex", [], [(1000, 1), (1000, -3)], "offset is 17 which is less than the first offset 20"),
    ],
)
def test_index_sanity_check_compares_the_last_entry_only(
    tmp_path: Path, name: str, offsets: list[tuple[int, int]], times: list[tuple[int, int]], why: str | None
) -> None:
    path = str(tmp_path / "00000000000000000020")
    _write_indexes(20, offsets, times, path)
    done = run_command("kafka-dump-log", "--files", f"{path}.{name}", "--index-sanity-check")
    assert done.status == (1 if why else 0)
    assert (why or "") in done.err
    assert ("passed sanity check." in done.out.decode()) is (why is None)


def test_dump_of_an_index_with_a_negative_position_fails(tmp_path: Path) -> None:
    path = str(tmp_path / "00000000000000000020")
    _write_indexes(20, [(1, 1), (2, -1)], [], path)
    done = run_command("kafka-dump-log", "--files", f"{path}.index")
    assert done.status == 1
    assert "Invalid position: -" in done.err
