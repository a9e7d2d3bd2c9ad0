"""Messages of formats 0 and 1: read as in Kafka, malformed ones rejected."""

from __future__ import annotations

import struct
import zlib

import lz4.frame
import pytest

from ottla.wire.errors import WireError
from ottla.wire.record_batch import legacy_records
from ottla.wire.record_batch.batch_header import LOG_OVERHEAD_BYTES
from ottla.wire.record_batch.compression import CompressionType, compress
from ottla.wire.record_batch.records import NewRecord, build_batch


def blob(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    offset: int, key: bytes | None, value: bytes | None, *, magic: int = 1, attributes: int = 0, time: int = 1000
) -> bytes:
    """Return a message as Kafka 0.9 (magic 0) or 0.10 (magic 1) wrote it."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", time) if magic else b"") + blob(key) + blob(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def message_rows(raw: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(x.offset, x.timestamp_ms, x.key, x.value) for x in legacy_records.iterate_messages(raw)]


@pytest.mark.parametrize("magic", [0, 1])
def test_iterate_messages_returns_offset_timestamp_key_and_value(magic: int) -> None:
    raw = message(5, b"k", b"v", magic=magic) + message(9, None, b"", magic=magic) + message(10, b"", None, magic=magic)
    time = 1000 if magic else -1
    assert message_rows(raw) == [(5, time, b"k", b"v"), (9, time, None, b""), (10, time, b"", None)]


def test_iterate_messages_compressed_magic_1_has_relative_offsets() -> None:
    inner = b"".join(message(i, None, b"%d" % i, time=2000 + i) for i in range(3))
    whole = message(12, None, compress(CompressionType.GZIP, inner), attributes=1, time=9)
    assert message_rows(whole) == [(10, 2000, None, b"0"), (11, 2001, None, b"1"), (12, 2002, None, b"2")]
    stamped = message(12, None, compress(CompressionType.GZIP, inner), attributes=1 | 0x08, time=9)
    assert [x[:2] for x in message_rows(stamped)] == [(10, 9), (11, 9), (12, 9)]


def test_iterate_messages_compressed_magic_0_has_absolute_offsets() -> None:
    inner = b"".join(message(i, None, b"x", magic=0) for i in (7, 8))
    whole = message(8, None, compress(CompressionType.GZIP, inner), magic=0, attributes=1)
    assert [x[0] for x in message_rows(whole)] == [7, 8]


@pytest.mark.parametrize("store_size", [False, True])
def test_iterate_messages_lz4_header_checksum_is_checked_in_magic_1_only(store_size: bool) -> None:
    """Clients of format 0 computed it over the magic number of the frame too, and Kafka ignores it there."""
    packed = bytearray(lz4.frame.compress(message(7, None, b"x", magic=0), store_size=store_size))
    packed[14 if store_size else 6] ^= 1
    assert message_rows(message(7, None, bytes(packed), magic=0, attributes=3)) == [(7, -1, None, b"x")]
    packed = bytearray(lz4.frame.compress(message(0, None, b"x"), store_size=store_size))
    assert message_rows(message(7, None, bytes(packed), attributes=3)) == [(7, 1000, None, b"x")]
    packed[14 if store_size else 6] ^= 1
    with pytest.raises(WireError, match="wrong checksum"):
        message_rows(message(7, None, bytes(packed), attributes=3))


@pytest.mark.parametrize("cut", [1, 5, 11, 12, 20, 30])
def test_iterate_messages_truncated_last_message_is_ignored(cut: int) -> None:
    one = message(0, b"k", b"v")
    assert message_rows(one + one[:-cut]) == message_rows(one)


def test_iterate_messages_malformed_raises_wire_error() -> None:
    good = message(3, b"k", b"v")
    damaged = good[:-1] + b"w"
    short = struct.pack(">qi", 0, 13) + bytes(13)
    of_magic_2 = message(0, None, b"", magic=2)
    empty = message(0, None, compress(CompressionType.GZIP, b""), attributes=1)
    nested = message(0, None, compress(CompressionType.GZIP, message(0, None, empty, attributes=1)), attributes=1)
    without = message(0, None, None, attributes=1)
    for raw, why in (
        (damaged, "bad CRC"),
        (short, "message of 13 bytes"),
        (of_magic_2, "message of magic 2"),
        (empty, "holds none"),
        (nested, "compressed message inside"),
        (without, "or without"),
    ):
        with pytest.raises(WireError, match=why):
            message_rows(raw)


def test_iterate_messages_key_longer_than_message_raises_wire_error() -> None:
    body = struct.pack(">bbqi", 1, 0, 5, 99) + bytes(8)
    raw = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    with pytest.raises(WireError, match="99 bytes in a message with 8 left"):
        message_rows(raw)


def test_iterate_any_batches_yields_old_and_new_formats() -> None:
    new = bytes(build_batch([NewRecord(b"k", b"v", 7)], base_offset=2))
    old = message(0, b"k", b"v") + message(1, None, b"w", magic=0)
    found = list(legacy_records.iterate_any_batches(old + new))
    assert [(at, h.magic, h.base_offset, h.last_offset) for at, h in found] == [
        (0, 1, 0, 0),
        (len(message(0, b"k", b"v")), 0, 1, 1),
        (len(old), 2, 2, 2),
    ]
    assert [h.max_timestamp for _, h in found] == [1000, -1, 7]
    assert all(legacy_records.any_crc_matches(old + new, h, at) for at, h in found)
    for at, h in found:
        wrong = bytearray(old + new)
        wrong[at + h.size_bytes - 2] ^= 1
        assert not legacy_records.any_crc_matches(wrong, h, at)
    assert len(list(legacy_records.iterate_any_batches((old + new)[:-1]))) == 2, "truncated last batch"
    assert len(list(legacy_records.iterate_any_batches(old + new + bytes(16)))) == 3, "too few bytes for a header"


def test_parse_any_header_old_message_keeps_codec_and_timestamp_type() -> None:
    for attributes in (0, 1, 3, 0x08, 0x0A, 0x71):
        assert (
            legacy_records.parse_any_header(message(0, None, b"v", attributes=attributes)).attributes
            == attributes & 0x0F
        )


def test_iterate_any_batches_size_below_minimum_raises_wire_error() -> None:
    smallest = message(0, None, None, magic=0)
    assert len(smallest) == legacy_records.MIN_MESSAGE_BYTES
    assert [h.magic for _, h in legacy_records.iterate_any_batches(smallest)] == [0]
    lying = bytearray(smallest)
    struct.pack_into(">i", lying, 8, legacy_records.MIN_MESSAGE_BYTES - LOG_OVERHEAD_BYTES - 1)
    with pytest.raises(WireError, match="batch of 25 bytes at 0"):
        list(legacy_records.iterate_any_batches(lying))
    with pytest.raises(WireError, match="batch of 25 bytes at 0"):
        list(legacy_records.iterate_any_batches(lying[: legacy_records.MAGIC_PREFIX_BYTES]))
    assert list(legacy_records.iterate_any_batches(lying[: legacy_records.MAGIC_PREFIX_BYTES - 1])) == []
    with pytest.raises(WireError, match="message of 13 bytes"):
        legacy_records.parse_any_header(lying)
    with pytest.raises(WireError, match="message of 14 bytes"):
        legacy_records.parse_any_header(smallest[:-1])
    for few in range(17):
        with pytest.raises(WireError, match=f"{few} bytes are no batch header"):
            legacy_records.parse_any_header(smallest + smallest[:few], len(smallest))
    with pytest.raises(WireError, match="message of 14 bytes"):
        legacy_records.parse_any_header(smallest + smallest[:-1], len(smallest))
    assert legacy_records.parse_any_header(smallest + smallest, len(smallest)).magic == 0
