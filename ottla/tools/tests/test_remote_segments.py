"""Segments of a remote store, listed, verified and extracted as the files they were copied from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ottla.broker.storage.tiered.remote_storage import CorruptRemoteSegmentError, RemoteLogSegmentState
from ottla.broker.storage.tiered.segment_format import object_name
from ottla.log.recovery.log_loader import open_log
from ottla.log.tests.log_fixtures import NOW, SMALL, record_values
from ottla.runtime.real_disk import RealDisk
from ottla.tools.file_verification import find_problems
from ottla.tools.remote_segments import (
    ObjectProblem,
    StoredSegment,
    choose_segments,
    extract_segment,
    list_segments,
    verify_segment,
)
from ottla.tools.tests.tier_fixtures import copy_segments, filled_store, write_log


def stored(found: object) -> StoredSegment:
    assert isinstance(found, StoredSegment), found
    return found


def test_listed_metadata_equal_those_of_the_copies(tmp_path: Path) -> None:
    store, _, copied = filled_store(tmp_path)
    assert len(copied) > 5
    expected = [replace(each, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED) for each in copied]
    listed = [stored(each).metadata for each in list_segments(store)]
    assert sorted(listed, key=lambda metadata: metadata.start_offset) == expected


def test_list_with_topic_and_partition_leaves_out_others(tmp_path: Path) -> None:
    store, _, copied = filled_store(tmp_path)
    copy_segments(store, write_log(tmp_path / "data", "t", 1), 100)
    copy_segments(store, write_log(tmp_path / "data", "tt", 0), 200)
    assert len(list(list_segments(store, "t", 0))) == len(copied)
    assert len(list(list_segments(store, "t"))) == 2 * len(copied)
    assert len(list(list_segments(store))) == 3 * len(copied)
    assert list(list_segments(store, "absent")) == []


def test_extracted_segments_equal_the_files_and_open_as_a_log(tmp_path: Path) -> None:
    store, log, copied = filled_store(tmp_path)
    extraction = choose_segments(map(stored, list_segments(store)))
    assert extraction.omitted == []
    paths = [extract_segment(store, RealDisk(), each, str(tmp_path / "out")) for each in extraction.chosen]
    assert [int(Path(path).stem) for path in paths] == [each.start_offset for each in copied]
    originals = {path.name: path.read_bytes() for path in Path(log.directory).iterdir() if path.is_file()}
    extracted = {path.name: path.read_bytes() for path in (tmp_path / "out" / "t-0").iterdir()}
    assert {".log", ".index", ".timeindex", ".txnindex", ".snapshot"} <= {Path(name).suffix for name in extracted}
    assert {name: originals[name] for name in extracted} == extracted
    for path in paths:
        assert list(find_problems(RealDisk(), path)) == []
    opened = open_log(RealDisk(), str(tmp_path / "out" / "t-0"), "t", 0, SMALL, NOW, clean=False)
    assert record_values(opened) == [pair for pair in record_values(log) if pair[0] <= copied[-1].end_offset]
    assert opened.epochs.entries == [entry for entry in log.epochs.entries if entry[1] <= copied[-1].end_offset]
    assert opened.topic_id == log.topic_id
    opened.close()


def test_extract_over_existing_files_changes_nothing(tmp_path: Path) -> None:
    store, _, _ = filled_store(tmp_path)
    segment = stored(next(list_segments(store)))
    path = Path(extract_segment(store, RealDisk(), segment, str(tmp_path / "out")))
    path.write_bytes(b"other")
    with pytest.raises(FileExistsError):
        extract_segment(store, RealDisk(), segment, str(tmp_path / "out"))
    assert path.read_bytes() == b"other"


@pytest.mark.parametrize("part", ["records", "offset"])
def test_extract_of_a_damaged_segment_leaves_no_file(tmp_path: Path, part: str) -> None:
    store, _, copied = filled_store(tmp_path)
    path = tmp_path / "tier" / object_name(copied[2])
    raw = bytearray(path.read_bytes())
    raw[3 + (copied[2].segment_size_bytes if part == "offset" else 0)] ^= 1
    path.write_bytes(raw)
    segment = next(
        each for each in map(stored, list_segments(store)) if each.metadata.start_offset == copied[2].start_offset
    )
    problem = verify_segment(store, segment)
    assert problem is not None
    assert problem.reason.startswith(f"{part} {'is' if part == 'offset' else 'are'} damaged: wrong checksum")
    with pytest.raises(CorruptRemoteSegmentError):
        extract_segment(store, RealDisk(), segment, str(tmp_path / "out"))
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


def test_damaged_foreign_and_misplaced_objects_are_named(tmp_path: Path) -> None:
    store, _, copied = filled_store(tmp_path)
    tier = tmp_path / "tier"
    damaged = tier / object_name(copied[0])
    damaged.write_bytes(damaged.read_bytes()[:-1])
    (damaged.parent / "README").write_bytes(b"hello")
    (damaged.parent / f"{5:020d}-x.segment").write_bytes((tier / object_name(copied[1])).read_bytes())
    (damaged.parent / "y.segment").write_bytes(b"")
    found = list(list_segments(store))
    reasons = {Path(each.name).name: each.reason for each in found if isinstance(each, ObjectProblem)}
    assert len(found) - len(reasons) == len(copied) - 1
    assert "truncated" in reasons[damaged.name]
    assert reasons["README"] == "no segment object"
    assert reasons[f"{5:020d}-x.segment"] == f"object of another segment: {object_name(copied[1])}"
    assert reasons["y.segment"].startswith("no segment object: 0 bytes")


def test_later_copy_of_a_start_offset_is_chosen(tmp_path: Path) -> None:
    store, log, copied = filled_store(tmp_path)
    copy_segments(store, log, 100)
    segments = list(map(stored, list_segments(store)))
    assert len(segments) == 2 * len(copied)
    later = [
        each._replace(metadata=replace(each.metadata, event_timestamp_ms=NOW + 1000))
        if each.metadata.segment_id.id[0] >= 100
        else each
        for each in segments
    ]
    extraction = choose_segments(later)
    assert {each.metadata.segment_id.id[0] >= 100 for each in extraction.chosen} == {True}
    assert [each.metadata.start_offset for each in extraction.chosen] == [each.start_offset for each in copied]
    assert len(extraction.omitted) == len(copied)


def test_only_the_last_topic_of_a_name_is_extracted(tmp_path: Path) -> None:
    store, _, _ = filled_store(tmp_path)
    segments = [stored(each) for each in list_segments(store)]
    identity = segments[0].metadata.segment_id._replace(topic_id=b"\1" * 16)
    times = [segment.metadata.event_timestamp_ms for segment in segments]
    for shift, expected in (
        (max(times) + 1, [b"\1" * 16]),
        (min(times) - 1, [segments[0].metadata.segment_id.topic_id]),
    ):
        metadata = replace(segments[0].metadata, segment_id=identity, start_offset=10_000, event_timestamp_ms=shift)
        other = segments[0]._replace(metadata=metadata)
        extraction = choose_segments([*segments, other])
        assert sorted({each.metadata.segment_id.topic_id for each in extraction.chosen}) == expected
        assert len(extraction.chosen) + len(extraction.omitted) == len(segments) + 1
        assert {"earlier topic" in each.reason for each in extraction.omitted} == {True}
