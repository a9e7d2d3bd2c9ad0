"""Generated record scan loops: equal to full record decoding, for all sizes of numbers."""

from __future__ import annotations

import random

import pytest

from ottla.log.cleaner.compaction import run_compaction
from ottla.log.cleaner.log_to_clean import find_log_to_clean, plan_compaction
from ottla.log.cleaner.offset_map import ENTRY_BYTES, OffsetMap
from ottla.log.log_validator import AppendOrigin
from ottla.log.tests.log_fixtures import COMPACTED, NOW, make_batch, memory_disk, new_log
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import pack_batch, parse_header, set_offset_and_epoch
from ottla.wire.record_batch.record_scan import (
    compact_key,
    iterate_keys,
    record_last_offsets,
    record_ranges,
    retained_records,
)
from ottla.wire.record_batch.records import NewRecord, Record, build_batch, decompress_records, iterate_records

BASE = 5_000_000_000


def batch(rng: random.Random, count: int) -> tuple[bytes, list[Record]]:
    sizes = (0, 1, 5, 31, 32, 33, 63, 64, 70, 9000)
    keys = [rng.randbytes(rng.choice(sizes)) for _ in range(max(count // 3, 1))]
    items = [
        NewRecord(
            None if rng.random() < 0.1 else rng.choice(keys),
            None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 3, 60, 200, 20_000))),
            rng.choice((0, 1, 70, 10**6, 2**41)),
        )
        for _ in range(count)
    ]
    raw = bytearray(build_batch(items))
    set_offset_and_epoch(raw, 0, BASE, 0)
    header = parse_header(raw)
    return bytes(decompress_records(raw, header)), list(iterate_records(raw, header))


@pytest.mark.parametrize("count", [1, 3, 70, 300, 9000])
def test_record_scan_equals_full_decoding(count: int) -> None:
    for seed in range(1 if count > 1000 else 20):
        rng = random.Random(seed * 1000 + count)
        data, records = batch(rng, count)
        first = BASE + rng.randrange(count)
        found: dict[bytes, int] = {}
        record_last_offsets(data, count, BASE, first, found)
        assert found == {compact_key(x.key): x.offset for x in records if x.key is not None and x.offset >= first}
        lie = record_ranges(data, count)
        assert [lie[0][0], lie[-1][1]] == [0, len(data)]
        latest = BASE + rng.randrange(count)
        for keep_deletes in (True, False):
            ((kept, tombstones),) = retained_records(data, count, BASE, found, latest, keep_deletes=keep_deletes)
            want = [
                x
                for x in records
                if x.offset > latest
                or (
                    x.key is not None
                    and x.offset >= found.get(compact_key(x.key), -1)
                    and (x.value is not None or keep_deletes)
                )
            ]
            assert kept == [lie[x.offset - BASE] for x in want]
            assert tombstones is any(x.value is None for x in want)


def test_record_scan_truncated_records_raise_wire_error() -> None:
    data, _ = batch(random.Random(1), 50)
    for at in (0, 1, 7, len(data) // 2, len(data) - 1):
        refused(data[:at], 50)
    refused(data, 49)
    refused(data, 51)
    refused(data + b"\x00", 50)


def refused(data: bytes, count: int) -> None:
    with pytest.raises(WireError):
        record_last_offsets(data, count, BASE, BASE, {})
    with pytest.raises(WireError):
        list(retained_records(data, count, BASE, {}, BASE + count, keep_deletes=True))
    with pytest.raises(WireError):
        list(iterate_keys(data, count))


RECORD = bytes([16, 0, 0, 0, 2, ord("k"), 2, ord("v"), 0])
# Bytes that a producer may have sent to a topic before compaction was enabled: (name, bytes).
NONSENSE = [
    ("a size of -1", b"\x01" + RECORD[1:]),
    ("a size of 0", b"\x00" + RECORD[1:]),
    ("a size of -12 in two bytes", b"\x97\x00" + RECORD[1:]),
    ("a size of -3,000,000", b"\xff\x9b\xee\x02" + RECORD[1:]),
    ("a size of four exabytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + RECORD[1:]),
    ("a size that never ends", b"\xff" * 20),
    ("a time that never ends", b"\x50\x00" + b"\xff" * 39),
    ("a key as long as its record", RECORD[:4] + b"\x08kvvv"),
    ("a key longer than its record by far", RECORD[:4] + b"\xfe\xff\x07vv"),
    ("a key of -70 bytes that leads behind its record", b"\x0a\x00\x00\x00\x8b\x01"),
    ("text", b"no records at all, only words"),
]


@pytest.mark.parametrize(("case", "data"), NONSENSE, ids=[row[0] for row in NONSENSE])
@pytest.mark.parametrize("count", [1, 2, 2**31 - 1])
def test_record_scan_malformed_records_raise_wire_error(case: str, data: bytes, count: int) -> None:
    refused(data, count)
    with pytest.raises(WireError):
        compact(pack_batch(parse_header(build_batch([NewRecord(b"k", b"v", 1)]))._replace(
            records_count=count, last_offset_delta=count - 1), data))  # fmt: skip


def compact(raw: bytes) -> None:
    """Compact a log that contains a malformed batch."""
    log = new_log(memory_disk().session())
    log.append_as_leader(make_batch(0), 0, NOW)
    log.append_as_leader(bytearray(raw), 0, NOW, AppendOrigin.RAFT_LEADER)
    log.roll(NOW)
    log.set_high_watermark(log.log_end_offset)
    log.update_config(COMPACTED)
    found = find_log_to_clean(log, NOW)
    assert found is not None
    run_compaction(log.disk, plan_compaction(found, NOW, 1 << 20))


def test_compaction_timestamp_overflow_raises_wire_error() -> None:
    """The delete horizon shifts the timestamp of a tombstone; the sum must fit 64 bits."""
    items = [NewRecord(b"k", None, 2**62)]
    raw = build_batch(items)
    header = parse_header(raw)._replace(base_timestamp=2**62, max_timestamp=0)
    delta = (2**62 + 2**61) * 2
    number = bytes((delta >> shift & 0x7F) | 0x80 for shift in range(0, 63, 7)) + b"\x01"
    body = bytes([12 + 10]) + b"\x00" + number + b"\x00\x02k\x01\x00"
    body = bytes([(len(body) - 1) * 2]) + body[1:]
    with pytest.raises(WireError):
        compact(pack_batch(header, body))


def test_record_ranges_wrong_size_raises_wire_error() -> None:
    assert record_ranges(RECORD * 2, 2) == [(0, 9), (9, 18)]
    for data, count in ((RECORD, 2), (RECORD[:-1], 1), (b"\x00", 1), (b"\x01", 1), (b"", 1)):
        with pytest.raises(WireError):
            record_ranges(data, count)


def test_record_scan_empty_key_is_a_key_in_any_varint_encoding() -> None:
    """A varint may have more bytes than necessary: 0x80 0x00 is zero, as 0x00 is."""
    for size in (b"\x00", b"\x80\x00"):
        body = b"\x00\x00\x00" + size + b"\x02v\x00"
        data = bytes([len(body) * 2]) + body
        found: dict[bytes, int] = {}
        record_last_offsets(data, 1, BASE, BASE, found)
        assert found == {b"": BASE}
        assert list(retained_records(data, 1, BASE, found, BASE, keep_deletes=True)) == [([(0, len(data))], False)]
        assert list(retained_records(data, 1, BASE, {b"": BASE + 1}, BASE, keep_deletes=True)) == [([], False)]
        assert list(iterate_keys(data, 1)) == [(0, b"")]


def test_offset_map_accepts_new_keys_up_to_its_capacity() -> None:
    found = OffsetMap(3 * ENTRY_BYTES + ENTRY_BYTES - 1)
    assert found.capacity == 3
    assert OffsetMap(1).capacity == 1
    for number, key in enumerate([b"a", b"b"]):
        assert found.put(key, number)
    assert found.has_capacity_for(1)
    assert not found.has_capacity_for(2)
    assert found.put(b"c" * 40, 2)
    assert not found.put(b"d", 3)
    assert found.put(b"a", 4), "known key"
    assert (found.get(b"a"), found.get(b"c" * 40), found.get(b"d"), len(found)) == (4, 2, -1, 3)
