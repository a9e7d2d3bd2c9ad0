"""Batches: building, headers, iteration; five codecs in bounded memory; formats 0 and 1."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings, strategies

from ottla.wire.errors import WireError
from ottla.wire.record_batch import compression, legacy_records
from ottla.wire.record_batch.batch_header import (
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    crc_matches,
    increment_sequence,
    iterate_batches,
    pack_batch,
    parse_header,
    set_max_timestamp,
    set_offset_and_epoch,
)
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.records import (
    NewRecord,
    build_batch,
    check_records,
    find_first_by_timestamp,
    iterate_records,
)

blobs = strategies.none() | strategies.binary(max_size=40)
new_records = strategies.lists(
    strategies.builds(
        NewRecord,
        blobs,
        blobs,
        strategies.integers(-1, 2**50),
        strategies.lists(strategies.tuples(strategies.text(max_size=5), blobs), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(items=new_records, codec=strategies.sampled_from(list(CompressionType)), base=strategies.integers(0, 2**40))
def test_build_batch_random_records_survive_round_trip(
    items: list[NewRecord], codec: CompressionType, base: int
) -> None:
    raw = build_batch(items, base_offset=base, codec=codec)
    header = parse_header(raw)
    assert crc_matches(raw, header)
    assert header.size_bytes == len(raw)
    got = list(iterate_records(raw, header))
    assert [(x.key, x.value, x.timestamp_ms, x.headers) for x in got] == [
        (x.key, x.value, x.timestamp_ms, x.headers) for x in items
    ]
    assert [x.offset for x in got] == list(range(base, base + len(items)))
    check_records(raw, header)


def test_set_offset_and_epoch_keeps_the_checksum_valid() -> None:
    raw = bytearray(build_batch([NewRecord(b"k", b"v", 5)]))
    set_offset_and_epoch(raw, 0, 1234, 7)
    header = parse_header(raw)
    assert (header.base_offset, header.partition_leader_epoch) == (1234, 7)
    assert crc_matches(raw, header)


def test_set_max_timestamp_log_append_time_applies_to_all_records() -> None:
    raw = bytearray(build_batch([NewRecord(b"k", b"v", 5), NewRecord(b"k", b"v", 9)]))
    header = parse_header(raw)
    changed = set_max_timestamp(raw, 0, header._replace(attributes=TIMESTAMP_TYPE_BIT, max_timestamp=777))
    header = parse_header(raw)
    assert header == changed
    assert crc_matches(raw, header)
    assert header.base_timestamp == 5
    assert [x.timestamp_ms for x in iterate_records(raw, header)] == [777, 777]


def test_increment_sequence_wraps_to_zero() -> None:
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(2**31 - 2, 3) == 1
    assert increment_sequence(-1, 3) == -1


def test_iterate_records_empty_batch_yields_no_records() -> None:
    raw = build_batch([], base_offset=9)
    assert list(iterate_records(raw, parse_header(raw))) == []


def test_read_mutated_batches_raises_only_wire_error() -> None:
    rng = random.Random(3)
    bases = [
        build_batch([NewRecord(b"key", b"value" * 20, i, (("h", b"x"),)) for i in range(10)], codec=codec)
        for codec in CompressionType
    ]
    refused = 0
    for turn in range(25_000):
        raw = bytearray(bases[turn % len(bases)])
        for _ in range(rng.choice((1, 2, 4))):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        if turn % 3 == 0:
            del raw[rng.randrange(len(raw)) :]
        try:
            for pos, header in iterate_batches(raw):
                list(iterate_records(raw, header, pos, limit=1 << 20))
        except WireError:
            refused += 1
    assert refused > 5_000


BOMBS = [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD, CompressionType.SNAPPY]


@pytest.mark.parametrize("codec", BOMBS)
def test_decompress_bomb_raises_wire_error_in_bounded_memory(codec: CompressionType) -> None:
    """As Kafka's max.decompressed.message.bytes, since pull request 23429."""
    packed = compression.compress(codec, b"\x00" * (64 << 20))
    tracemalloc.start()
    with pytest.raises(WireError, match="more than"):
        compression.decompress(codec, packed, 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("codec", list(CompressionType))
def test_decompress_exactly_the_limit_is_accepted(codec: CompressionType) -> None:
    data = random.Random(1).randbytes(100_000)
    assert bytes(compression.decompress(codec, compression.compress(codec, data), len(data))) == data


@pytest.mark.parametrize("codec", BOMBS)
def test_iterate_records_truncated_compressed_data_raises_wire_error(codec: CompressionType) -> None:
    whole = build_batch([NewRecord(b"k", random.Random(1).randbytes(1000))], codec=codec)
    header = parse_header(whole)
    cut = pack_batch(header, whole[HEADER_BYTES : HEADER_BYTES + 500])
    with pytest.raises(WireError):
        list(iterate_records(cut, parse_header(cut)))


def test_decompress_raw_snappy_returns_content() -> None:
    import snappy

    assert compression.decompress(CompressionType.SNAPPY, snappy.compress(b"hello" * 100), 1000) == b"hello" * 100


def old_message(magic: int, offset: int, key: bytes | None, value: bytes | None, attributes: int = 0) -> bytes:
    def blob(data: bytes | None) -> bytes:
        return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", 1000 + offset)
    body += blob(key) + blob(value)
    body = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
def test_iterate_messages_old_formats_returns_records(magic: int) -> None:
    raw = old_message(magic, 5, b"k", b"v") + old_message(magic, 6, None, b"w")
    got = list(legacy_records.iterate_messages(raw))
    assert [(x.offset, x.key, x.value) for x in got] == [(5, b"k", b"v"), (6, None, b"w")]
    assert got[0].timestamp_ms == (1005 if magic == 1 else -1)


def test_iterate_messages_compressed_offsets_end_at_the_wrapper_offset() -> None:
    inner = b"".join(old_message(1, i, b"k", b"v%d" % i) for i in range(3))
    wrapper = old_message(1, 12, None, compression.compress(CompressionType.GZIP, inner), attributes=1)
    assert [x.offset for x in legacy_records.iterate_messages(wrapper)] == [10, 11, 12]


def test_iterate_messages_bad_checksum_raises_wire_error() -> None:
    raw = bytearray(old_message(1, 5, b"k", b"v"))
    raw[-1] ^= 1
    with pytest.raises(WireError, match="bad CRC"):
        list(legacy_records.iterate_messages(raw))


@pytest.mark.parametrize("codec", list(compression.CompressionType))
def test_find_first_by_timestamp_equals_search_over_all_records(codec: compression.CompressionType) -> None:
    rng = random.Random(7)
    for count in (1, 2, 70, 300):
        times = [5_000 + rng.randrange(-200, 20_000) for _ in range(count)]
        items = [NewRecord(rng.randbytes(rng.randrange(300)) or None, b"v", t) for t in times]
        raw = bytearray(build_batch(items, codec=codec))
        set_offset_and_epoch(raw, 0, 1000, 0)
        header = parse_header(raw)
        everything = list(iterate_records(raw, header))
        for wanted in (0, min(times), max(times), max(times) + 1, *(rng.randrange(30_000) for _ in range(20))):
            for start in (0, 1000 + count // 2, 1000 + count):
                want = next(
                    ((x.offset, x.timestamp_ms) for x in everything if x.timestamp_ms >= wanted and x.offset >= start),
                    None,
                )
                assert find_first_by_timestamp(raw, header, wanted, start) == want


def test_find_first_by_timestamp_truncated_records_raise_wire_error() -> None:
    raw = bytearray(build_batch([NewRecord(b"k", b"v" * 100, 1), NewRecord(b"k", b"v", 2)]))
    header = parse_header(raw)
    with pytest.raises(WireError):
        find_first_by_timestamp(raw[:-20], header, 3, 0)
