"""Records in a batch: their bytes, and rejection of records that contradict the header.

Source: ``DefaultRecord.writeTo`` and ``readFrom``, ``MemoryRecordsBuilder.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Generator
from typing import Any

import pytest

from ottla.wire.codec.primitives import write_varlong
from ottla.wire.errors import WireError
from ottla.wire.record_batch import records
from ottla.wire.record_batch.batch_header import (
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_batch,
    parse_header,
    set_max_timestamp,
)
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.legacy_records import parse_any_header
from ottla.wire.record_batch.tests import test_incremental_parser, test_legacy_records


def test_encode_record_writes_size_attributes_deltas_key_value_and_headers() -> None:
    new = records.NewRecord(b"key", None, 0, (("h", b"x"), ("\u00e9", None)))
    raw = records.encode_record(new, 3, -2)
    assert raw.hex(" ") == "22 00 03 06 06 6b 65 79 01 04 02 68 02 78 04 c3 a9 01"
    assert records.encode_record(records.NewRecord(None, b""), 0, 0).hex(" ") == "0c 00 00 00 01 00 00"


def test_build_batch_sets_all_header_fields() -> None:
    items = [records.NewRecord(b"a", b"1", 50), records.NewRecord(b"b", b"2", 70), records.NewRecord(b"c", b"3", 60)]
    raw = records.build_batch(
        items,
        base_offset=100,
        codec=CompressionType.GZIP,
        attributes=TRANSACTIONAL_BIT,
        leader_epoch=4,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
    )
    header = parse_header(raw)
    assert header._replace(crc=0) == BatchHeader(100, len(raw) - 12, 4, 2, 0, 0x11, 2, 50, 70, 5, 6, 7, 3)
    assert [(x.offset, x.timestamp_ms, x.key) for x in records.iterate_records(raw, header)] == [
        (100, 50, b"a"),
        (101, 70, b"b"),
        (102, 60, b"c"),
    ]
    usual = parse_header(records.build_batch(items))
    assert usual._replace(crc=0, batch_length=0) == BatchHeader(0, 0, -1, 2, 0, 0, 2, 50, 70, -1, -1, -1, 3)
    none = parse_header(records.build_batch([]))
    assert none._replace(crc=0) == BatchHeader(0, 49, -1, 2, 0, 0, 0, -1, -1, -1, -1, -1, 0)


def test_build_batch_passes_level_to_the_codec() -> None:
    items = [records.NewRecord(None, b"abcabcabd" * 5000)]
    assert len(records.build_batch(items, codec=CompressionType.GZIP, level=9)) < len(
        records.build_batch(items, codec=CompressionType.GZIP, level=1)
    )


def batch_of(body: bytes, count: int) -> tuple[bytes, BatchHeader]:
    header = BatchHeader(0, 0, -1, 2, 0, 0, max(count - 1, 0), 0, 0, -1, -1, -1, count)
    raw = pack_batch(header, body)
    return raw, parse_header(raw)


@pytest.mark.parametrize("name", [name for name in test_incremental_parser.BAD if "six bytes" not in name])
def test_iterate_records_malformed_record_raises_wire_error(name: str) -> None:
    bad, _ = test_incremental_parser.BAD[name]
    for before, after in ((0, 0), (1, 0), (1, 3)):
        raw, header = batch_of(
            test_incremental_parser.record() * before + bad + test_incremental_parser.record() * after, 5
        )
        with pytest.raises(WireError):
            list(records.iterate_records(raw, header))


def test_iterate_records_wrong_record_count_raises_wire_error() -> None:
    body = test_incremental_parser.record() * 3
    raw, header = batch_of(body, 3)
    assert len(list(records.iterate_records(raw, header))) == 3
    for count in (2, 4, 0, -1):
        raw, header = batch_of(body, count)
        with pytest.raises(WireError):
            list(records.iterate_records(raw, header))


def test_iterate_records_at_position_reads_only_that_batch() -> None:
    one, two = (
        records.build_batch([records.NewRecord(b"a", b"1")]),
        records.build_batch([records.NewRecord(b"b", b"2")]),
    )
    both = b"???" + one + two
    for pos, key in ((3, b"a"), (3 + len(one), b"b")):
        header = parse_header(both, pos)
        assert [x.key for x in records.iterate_records(both, header, pos)] == [key]
        records.check_records(both, header, pos)
        assert bytes(records.decompress_records(both, header, pos)) == both[pos + 61 : pos + header.size_bytes]


def test_iterate_records_returns_header_names_and_values() -> None:
    new = records.NewRecord(None, None, 0, (("a", b"1"), ("", None), ("\u65e5", b"")))
    raw = records.build_batch([new, records.NewRecord(b"k", b"v")])
    assert [x.headers for x in records.iterate_records(raw, parse_header(raw))] == [new.headers, ()]
    body = test_incremental_parser.sized(b"\0\0\0\1\1\2\2\xff\1")
    raw, header = batch_of(body, 1)
    assert next(iter(records.iterate_records(raw, header))).headers == (("\ufffd", None),)


def test_check_records_offset_delta_gap_raises_wire_error() -> None:
    for deltas, why in (((0, 2), "record 1 has offset delta 2"), ((1, 2), "record 0 has offset delta 1")):
        raw, header = batch_of(b"".join(records.encode_record(records.NewRecord(b"k", b"v"), d, 0) for d in deltas), 2)
        assert len(list(records.iterate_records(raw, header))) == 2, "gaps are valid after compaction"
        with pytest.raises(WireError, match=why):
            records.check_records(raw, header)


def test_iterate_records_old_format_reads_message_at_its_position() -> None:
    one, two = test_legacy_records.message(5, b"k", b"v"), test_legacy_records.message(6, None, b"w")

    header = parse_any_header(one + two, len(one))
    assert [(x.offset, x.value) for x in records.iterate_records(one + two, header, len(one))] == [(6, b"w")]
    assert [(x.offset, x.value) for x in records.iterate_records(one + two, parse_any_header(one))] == [(5, b"v")]
    assert records.find_first_by_timestamp(one, parse_any_header(one), 1000, 5) == (5, 1000)
    assert records.find_first_by_timestamp(one, parse_any_header(one), 1001, 0) is None


def test_read_records_above_decompression_limit_raises_wire_error() -> None:
    raw = records.build_batch([records.NewRecord(None, bytes(5000))], codec=CompressionType.ZSTD)
    header = parse_header(raw)
    assert len(list(records.iterate_records(raw, header, limit=6000))) == 1
    for read in (records.iterate_records, records.check_records):
        with pytest.raises(WireError, match="more than 5000 bytes"):
            list(read(raw, header, limit=5000) or ())
    with pytest.raises(WireError, match="more than 5000 bytes"):
        records.find_first_by_timestamp(raw, header, 0, 0, 5000)


# ---------------------------------------------------------------- timestamps


def times(*some: int, attributes: int = 0, max_timestamp: int | None = None) -> tuple[bytes, BatchHeader]:
    raw = bytearray(records.build_batch([records.NewRecord(b"k" * 70, b"v" * 9000, t) for t in some], base_offset=50))
    header = parse_header(raw)
    wanted = header._replace(attributes=attributes, max_timestamp=max_timestamp or header.max_timestamp)
    return bytes(raw), set_max_timestamp(raw, 0, wanted)


@pytest.mark.parametrize(
    ("timestamp", "from_offset", "found"),
    [
        (0, 0, (50, 1000)),
        (1000, 0, (50, 1000)),
        (1001, 0, (51, 900_000)),
        (1001, 51, (51, 900_000)),
        (1001, 52, (53, 1002)),
        (900_000, 0, (51, 900_000)),
        (900_001, 0, None),
        (0, 54, None),
        (-5000, 52, (52, 1)),
    ],
)
def test_find_first_by_timestamp_returns_first_record_at_or_after_offset(
    timestamp: int, from_offset: int, found: tuple[int, int] | None
) -> None:
    raw, header = times(1000, 900_000, 1, 1002)
    for form in (raw, bytearray(raw), memoryview(raw)):
        assert records.find_first_by_timestamp(form, header, timestamp, from_offset) == found


def test_find_first_by_timestamp_log_append_time_uses_max_timestamp() -> None:
    raw, header = times(1000, 2000, attributes=TIMESTAMP_TYPE_BIT, max_timestamp=7000)
    assert records.find_first_by_timestamp(raw, header, 7000, 51) == (51, 7000)
    assert records.find_first_by_timestamp(raw, header, 6999, 0) == (50, 7000)
    assert records.find_first_by_timestamp(raw, header, 7001, 50) is None
    assert records.find_first_by_timestamp(raw, header, 0, 52) is None


@pytest.mark.parametrize("attributes", [0, TIMESTAMP_TYPE_BIT])
def test_find_first_by_timestamp_does_not_decode_headers(attributes: int) -> None:
    """A compressed batch of one megabyte may hold one record with sixty million headers."""
    count = 200_000
    body = test_incremental_parser.sized(b"\0\0\0\1\1" + write_varlong(count) + b"\0\1" * count)
    raw, header = batch_of(body, 1)
    header = header._replace(attributes=attributes)
    records.find_first_by_timestamp(raw, header, 0, 0)
    tracemalloc.start()
    try:
        assert records.find_first_by_timestamp(raw, header, 0, 0) == (0, 0)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [10, 54, 60, 8100, 8180, 8190, 8200, 8250, 70_000])
def test_find_first_by_timestamp_passes_sizes_of_one_to_three_bytes(size: int) -> None:
    raw = records.build_batch(
        [
            records.NewRecord(None, bytes(size), 1),
            records.NewRecord(None, bytes(size), 2),
            records.NewRecord(b"k", b"v", 3),
        ]
    )
    header = parse_header(raw)
    assert [records.find_first_by_timestamp(raw, header, t, 0) for t in (1, 2, 3, 4)] == [(0, 1), (1, 2), (2, 3), None]


def run_and_count_pauses(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """Return the result of a job and the number of its pauses."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize(
    ("some", "found"),
    [((5,), (0, 5)), ((1, 2, 3), (2, 3)), ((9, -5, 9), (0, 9)), ((-7, -3, -3), (1, -3)), ((), None)],
)
def test_find_max_timestamp_job_ignores_timestamp_of_the_header(
    codec: CompressionType, some: tuple[int, ...], found: tuple[int, int] | None
) -> None:
    raw = records.build_batch([records.NewRecord(b"k", b"v", t) for t in some], codec=codec, base_offset=100)
    header = parse_header(raw)._replace(max_timestamp=10**12)
    want = None if found is None else (100 + found[0], found[1])
    assert run_and_count_pauses(records.find_max_timestamp_job(raw, header))[0] == want
    assert run_and_count_pauses(records.find_max_timestamp_job(memoryview(raw), header))[0] == want


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("piece_bytes", [1, 2, 7, 100])
def test_timestamp_search_records_across_pieces_are_found(
    monkeypatch: pytest.MonkeyPatch, codec: CompressionType, piece_bytes: int
) -> None:
    monkeypatch.setattr(records, "PIECE_BYTES", piece_bytes)
    dice = random.Random(piece_bytes)
    some = [10_000 + dice.choice([1, 90, 9000, 2**40]) * dice.randrange(-9, 9) for _ in range(40)]
    raw = records.build_batch(
        [records.NewRecord(b"k", bytes(dice.choice([0, 5, 80, 9000])), t) for t in some], codec=codec
    )
    header = parse_header(raw)
    assert run_and_count_pauses(records.find_max_timestamp_job(raw, header))[0] == (some.index(max(some)), max(some))
    for wanted in (min(some), 9_000, 10_000, 10_100, max(some), max(some) + 1):
        first = dice.randrange(10)
        want = next(((n, t) for n, t in enumerate(some) if t >= wanted and n >= first), None)
        assert records.find_first_by_timestamp(raw, header, wanted, first) == want


def test_timestamp_jobs_pause_every_2000_records() -> None:
    raw = records.build_batch([records.NewRecord(None, None, t) for t in range(6001)])
    header = parse_header(raw)
    assert run_and_count_pauses(records.find_max_timestamp_job(raw, header)) == ((6000, 6000), 3)
    assert run_and_count_pauses(records.find_first_by_timestamp_job(raw, header, 6000, 0)) == ((6000, 6000), 3)
    old = test_legacy_records.message(5, b"k", b"v", time=7)

    assert run_and_count_pauses(records.find_max_timestamp_job(old, parse_any_header(old)))[0] == (5, 7)


@pytest.mark.parametrize("body", [b"\x80\x80\x01" + bytes(10), b"\x7f" + bytes(30), b""])
def test_timestamp_search_wrong_record_size_raises_wire_error(body: bytes) -> None:
    raw, header = batch_of(body, 5)
    with pytest.raises(WireError):
        records.find_first_by_timestamp(raw, header, 10, 0)
    with pytest.raises(WireError):
        run_and_count_pauses(records.find_max_timestamp_job(raw, header))
