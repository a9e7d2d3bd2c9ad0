"""Dump of index and snapshot files, field by field."""

from __future__ import annotations

import struct

import pytest

from ottla.env.disk import read_file
from ottla.log.file_dump import file_spans
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.segment.indexes import AbortedTxn, OffsetIndex, TimeIndex, write_txn_index
from ottla.log.tests.log_fixtures import make_producer_batch, memory_disk
from ottla.wire.record_batch.batch_header import parse_header


def field_rows(raw: bytes, suffix: str) -> list[tuple[str, object, int]]:
    """Return (name, value, bytes) of each field; check that the fields cover the file once."""
    spans = file_spans(raw, suffix)
    assert spans is not None
    found = list(spans)
    assert [s.start for s in found] == [0, *(s.stop for s in found)][: len(found)]
    assert not raw or found[-1].stop == len(raw)
    return [(s.path, s.value, s.stop - s.start) for s in found]


def test_file_spans_of_offset_index_are_its_entries() -> None:
    index = OffsetIndex(100)
    index.append(107, 4096)
    index.append(190, 9000)
    assert field_rows(index.pack(), ".index") == [
        ("entry[0].relative_offset", 7, 4),
        ("entry[0].position", 4096, 4),
        ("entry[1].relative_offset", 90, 4),
        ("entry[1].position", 9000, 4),
    ]
    assert field_rows(b"", ".index") == []


def test_file_spans_of_time_index_include_trailing_bytes() -> None:
    index = TimeIndex(100)
    index.maybe_append(1_700_000_000_000, 107)
    assert field_rows(index.pack() + b"\x01\x02", ".timeindex") == [
        ("entry[0].timestamp", 1_700_000_000_000, 8),
        ("entry[0].relative_offset", 7, 4),
        ("left over", "", 2),
    ]


def test_file_spans_of_transaction_index_are_its_entries() -> None:
    disk = memory_disk().session()
    disk.makedirs("/d")
    write_txn_index(disk, "/d/x", [AbortedTxn(9, 100, 120, -1)])
    assert field_rows(read_file(disk, "/d/x"), ".txnindex") == [
        ("entry[0].version", 0, 2),
        ("entry[0].producer_id", 9, 8),
        ("entry[0].first_offset", 100, 8),
        ("entry[0].last_offset", 120, 8),
        ("entry[0].last_stable_offset", -1, 8),
    ]


def test_file_spans_of_producer_snapshot_are_header_and_entries() -> None:
    states = ProducerStateManager()
    states.update(parse_header(make_producer_batch(5, 3, 2)), 40)
    raw = states.pack()
    assert field_rows(raw, ".snapshot") == [
        ("version", 1, 2),
        ("crc", struct.unpack(">i", raw[2:6])[0], 4),
        ("count", 1, 4),
        ("entry[0].producer_id", 5, 8),
        ("entry[0].producer_epoch", 2, 2),
        ("entry[0].last_sequence", 3, 4),
        ("entry[0].last_offset", 40, 8),
        ("entry[0].offset_delta", 0, 4),
        ("entry[0].timestamp", parse_header(make_producer_batch(5, 3, 2)).max_timestamp, 8),
        ("entry[0].coordinator_epoch", -1, 4),
        ("entry[0].txn_first_offset", -1, 8),
    ]


@pytest.mark.parametrize("suffix", [".log", ".checkpoint", "", ".indexes"])
def test_file_spans_of_other_suffix_returns_none(suffix: str) -> None:
    assert file_spans(bytes(40), suffix) is None
