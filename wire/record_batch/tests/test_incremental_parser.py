"""Incremental record parser: the result does not depend on the pieces, and malformed records are rejected.

Source: ``DefaultRecord.readFrom`` and ``readPartiallyFrom`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable

import pytest

from ottla.wire.codec.primitives import write_varlong
from ottla.wire.record_batch.incremental_parser import (
    MIN_RECORD_BYTES,
    IncrementalRecordParser,
    MalformedRecord,
    RecordSummary,
)
from ottla.wire.record_batch.records import NewRecord, encode_record


def parse_in_pieces(data: bytes, count: int, piece: int) -> list[RecordSummary]:
    walk = IncrementalRecordParser(count)
    out: list[RecordSummary] = []
    for at in range(0, len(data), piece):
        out += walk.feed(data[at : at + piece])
    walk.finish()
    return out


def blob(data: bytes | None) -> bytes:
    return write_varlong(-1) if data is None else write_varlong(len(data)) + data


def record(
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Iterable[tuple[bytes, bytes | None]] = (),
    time_delta: int = 0,
) -> bytes:
    some = list(headers)
    body = b"\0" + write_varlong(time_delta) + write_varlong(0) + blob(key) + blob(value) + write_varlong(len(some))
    body += b"".join(blob(k) + blob(v) for k, v in some)
    return write_varlong(len(body)) + body


def sized(body: bytes) -> bytes:
    """Return a record with this body, after its size."""
    return write_varlong(len(body)) + body


HEADERS = [(b"h%d" % i, None if i % 3 == 0 else b"x" * (i % 5)) for i in range(70)]
SOME = [
    (record(), RecordSummary(0, 1, 1)),
    (record(None, None), RecordSummary(0, -1, -1)),
    (record(b"", b""), RecordSummary(0, 0, 0)),
    (record(b"k" * 300, b"v" * 5000, time_delta=-7), RecordSummary(-7, 300, 5000)),
    (record(b"k", None, HEADERS, time_delta=2**40), RecordSummary(2**40, 1, -1)),
    (record(b"k" * 64, b"", [(b"h" * 64, b"v" * 64), (b"h" * 63, b"v" * 63)]), RecordSummary(0, 64, 0)),
    (record(None, b"v" * 64, [(b"", b""), (b"long", b"h" * 1000), (b"", None)]), RecordSummary(0, -1, 64)),
]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64, 100, 1000, 4096, 10**6])
def test_incremental_parser_result_does_not_depend_on_piece_size(piece: int) -> None:
    rng = random.Random(piece)
    some = [rng.choice(SOME) for _ in range(20)] + SOME
    data = b"".join(raw for raw, _ in some)
    assert parse_in_pieces(data, len(some), piece) == [seen for _, seen in some]


def test_incremental_parser_reads_encoded_records() -> None:
    items = [NewRecord(None if i % 4 == 0 else b"k" * i, b"v" * (300 - i), 1000 + i) for i in range(300)]
    data = b"".join(encode_record(item, i, i) for i, item in enumerate(items))
    want = [RecordSummary(i, -1 if x.key is None else len(x.key), len(x.value or b"")) for i, x in enumerate(items)]
    assert parse_in_pieces(data, 300, 777) == want


def test_incremental_parser_returns_record_with_its_last_piece() -> None:
    walk, data = IncrementalRecordParser(2), record() + record(b"key", b"w")
    assert walk.feed(data[:3]) == []
    assert walk.feed(b"") == []
    assert walk.feed(data[3:-1]) == [RecordSummary(0, 1, 1)]
    assert walk.feed(data[-1:]) == [RecordSummary(0, 3, 1)]
    walk.finish()


def test_incremental_parser_empty_batch_accepts_no_bytes() -> None:
    assert parse_in_pieces(b"", 0, 1) == []
    with pytest.raises(MalformedRecord, match="bytes follow the last record"):
        parse_in_pieces(b"\0", 0, 1)


START = b"\0\0\0"  # attributes, time delta, offset delta
BAD = {
    "a size below the smallest": (sized(START + write_varlong(-1) + write_varlong(-1)), "a record of 5 bytes"),
    "a negative size": (write_varlong(-5) + bytes(20), "a record of -5 bytes"),
    "a key longer than the record": (sized(START + write_varlong(4) + b"kvv"), "4 bytes in a record with 3 left"),
    "a key of -2 bytes": (sized(START + write_varlong(-2) + write_varlong(-1) + write_varlong(0)), "-2 bytes"),
    "a value longer than the record": (
        sized(START + write_varlong(-1) + write_varlong(3) + b"vv"),
        "3 bytes in a record with 2 left",
    ),
    "a value of -2 bytes": (sized(START + write_varlong(-1) + write_varlong(-2) + write_varlong(0)), "-2 bytes"),
    "a negative count of headers": (
        sized(START + write_varlong(-1) + write_varlong(-1) + write_varlong(-1)),
        "-1 headers",
    ),
    "more headers than bytes": (
        sized(START + write_varlong(-1) + write_varlong(-1) + write_varlong(2) + b"\0\0\0"),
        "2 headers in 3 bytes",
    ),
    "a header without a key": (
        sized(START + write_varlong(-1) + write_varlong(-1) + write_varlong(1) + write_varlong(-1) + write_varlong(0)),
        "-1 bytes",
    ),
    "a header's key longer than the record": (
        sized(START + write_varlong(-1) + write_varlong(-1) + write_varlong(1) + write_varlong(2) + b"k"),
        "2 bytes in a record",
    ),
    "a header's value of -2 bytes": (
        sized(START + write_varlong(-1) + write_varlong(-1) + write_varlong(1) + write_varlong(0) + write_varlong(-2)),
        "-2 bytes",
    ),
    "a header's value longer than the record": (
        sized(START + write_varlong(-1) + write_varlong(-1) + write_varlong(1) + write_varlong(0) + write_varlong(1)),
        "1 bytes in a record with 0 left",
    ),
    "headers that reach into the next record": (
        sized(
            START
            + write_varlong(-1)
            + write_varlong(-1)
            + write_varlong(2)
            + write_varlong(1)
            + b"k"
            + write_varlong(1)
            + b"v"
        ),
        "behind (its|their)|ends inside|in a record with",
    ),
    "a header whose value stands behind the record": (
        sized(START + write_varlong(-1) + write_varlong(-1) + write_varlong(1) + write_varlong(1) + b"k")
        + write_varlong(-1),
        "1 headers end behind their record|ends inside",
    ),
    "bytes behind the headers": (
        sized(START + write_varlong(-1) + write_varlong(-1) + write_varlong(0) + b"?"),
        "1 bytes more than it fills",
    ),
    "an offset of six bytes": (
        sized(b"\0\0" + b"\x80" * 5 + b"\0" + write_varlong(-1) + write_varlong(-1) + write_varlong(0)),
        "more than five bytes",
    ),
    "a size of six bytes": (
        b"\x8c\x80\x80\x80\x80\0" + START + write_varlong(-1) + write_varlong(-1) + write_varlong(0),
        "more than five bytes",
    ),
    "a header's size of six bytes": (
        sized(
            START + write_varlong(-1) + write_varlong(-1) + write_varlong(1) + b"\x80" * 5 + b"\0" + write_varlong(0)
        ),
        "more than five bytes",
    ),
    "a time of eleven bytes": (sized(b"\0" + b"\x80" * 11 + bytes(8)), "more than ten bytes"),
    "a number that the record's end cuts": (
        sized(START + write_varlong(-1) + b"\x80\x80"),
        r"ends inside|more than|in a record",
    ),
}


@pytest.mark.parametrize("piece", [1, 2, 5, 10**6])
@pytest.mark.parametrize("name", BAD)
def test_incremental_parser_malformed_record_raises(name: str, piece: int) -> None:
    raw, why = BAD[name]
    with pytest.raises(MalformedRecord, match=why):
        parse_in_pieces(record() + raw + record() * 3, 5, piece)


def test_incremental_parser_minimal_values_are_accepted() -> None:
    smallest = sized(START + write_varlong(-1) + write_varlong(-1) + write_varlong(0))
    assert len(smallest) == MIN_RECORD_BYTES
    long = sized(
        b"\0" + b"\x80" * 9 + b"\0" + b"\x80" * 4 + b"\0" + write_varlong(-1) + write_varlong(-1) + write_varlong(0)
    )
    assert parse_in_pieces(long, 1, 100) == [RecordSummary(0, -1, -1)]
    filled = sized(
        START
        + write_varlong(2)
        + b"kk"
        + write_varlong(3)
        + b"vvv"
        + write_varlong(2)
        + write_varlong(0)
        + write_varlong(-1)
        + write_varlong(1)
        + b"h"
        + write_varlong(0)
    )
    for piece in (1, 3, 100):
        assert parse_in_pieces(smallest + filled, 2, piece) == [RecordSummary(0, -1, -1), RecordSummary(0, 2, 3)]


@pytest.mark.parametrize("piece", [1, 4, 10**6])
def test_incremental_parser_wrong_record_count_raises(piece: int) -> None:
    with pytest.raises(MalformedRecord, match="1 records are missing"):
        parse_in_pieces(record() * 3, 4, piece)
    with pytest.raises(MalformedRecord, match="bytes follow the last record"):
        parse_in_pieces(record() * 3, 2, piece)
    with pytest.raises(MalformedRecord, match="missing"):
        parse_in_pieces(record()[:-1], 1, piece)


def test_incremental_parser_record_of_3_gib_takes_memory_of_a_piece() -> None:
    size = 3 << 30
    head = START + write_varlong(-1) + write_varlong(size)
    walk, piece = IncrementalRecordParser(1), bytes(1 << 16)
    tracemalloc.start()
    try:
        walk.feed(write_varlong(len(head) + size + 1) + head)
        for _ in range(200):
            assert walk.feed(piece) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 19
    with pytest.raises(MalformedRecord, match="0 records are missing"):
        walk.finish()
