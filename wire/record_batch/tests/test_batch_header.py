"""Batch header: position of each field, fields outside the checksum, malformed headers.

Source: ``DefaultRecordBatch.java`` (apache/kafka 4.3.1), whose layout the bytes below follow.
"""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_OFFSET,
    MAX_TIMESTAMP_OFFSET,
    crc_matches,
    increment_sequence,
    iterate_batches,
    pack_batch,
    parse_header,
    read_offset_and_size,
    set_max_timestamp,
    set_offset_and_epoch,
)
from ottla.wire.record_batch.records import NewRecord, build_batch

FIELDS = {
    "base_offset": ("0102030405060708", 0x0102030405060708),
    "batch_length": ("00000032", 50),
    "partition_leader_epoch": ("0a0b0c0d", 0x0A0B0C0D),
    "magic": ("02", 2),
    "crc": ("f1f2f3f4", 0xF1F2F3F4),
    "attributes": ("fff7", -9),
    "last_offset_delta": ("00000010", 16),
    "base_timestamp": ("1111111111111111", 0x1111111111111111),
    "max_timestamp": ("2222222222222222", 0x2222222222222222),
    "producer_id": ("3333333333333333", 0x3333333333333333),
    "producer_epoch": ("4444", 0x4444),
    "base_sequence": ("7ffffff8", 0x7FFFFFF8),
    "records_count": ("00000011", 17),
}
HEADER = bytes.fromhex("".join(raw for raw, _ in FIELDS.values()))
HERE = {name: sum(len(raw) // 2 for raw, _ in list(FIELDS.values())[:n]) for n, name in enumerate(FIELDS)}


def test_parse_header_reads_each_field_at_its_position() -> None:
    header = parse_header(b"?" * 3 + HEADER + b"!", 3)
    assert header._asdict() == {name: value for name, (_, value) in FIELDS.items()}
    assert len(HEADER) == HEADER_BYTES == 61
    assert HERE["partition_leader_epoch"] == LOG_OVERHEAD_BYTES
    assert HERE["magic"] == MAGIC_OFFSET
    assert HERE["crc"] == CRC_OFFSET
    assert HERE["attributes"] == ATTRIBUTES_OFFSET
    assert HERE["max_timestamp"] == MAX_TIMESTAMP_OFFSET


def test_header_derived_offsets_size_and_last_sequence() -> None:
    header = parse_header(HEADER)
    base = header.base_offset
    assert (header.size_bytes, header.last_offset, header.next_offset) == (62, base + 16, base + 17)
    assert header.last_sequence == 8, "sequence wraps from 2^31-1 to 0"
    assert header._replace(base_sequence=5).last_sequence == 21
    assert header._replace(base_sequence=-1).last_sequence == -1
    assert increment_sequence(2**31 - 1, 0) == 2**31 - 1


@pytest.mark.parametrize(
    ("bit", "attribute"),
    [(0x10, "is_transactional"), (0x20, "is_control"), (0x08, "has_log_append_time")],
)
def test_header_attribute_bits_are_independent(bit: int, attribute: str) -> None:
    header = parse_header(HEADER)
    names = ("is_transactional", "is_control", "has_log_append_time")
    assert [getattr(header._replace(attributes=bit), name) for name in names] == [name == attribute for name in names]
    assert [getattr(header._replace(attributes=0x7FFF & ~bit), name) for name in names] == [
        n != attribute for n in names
    ]
    assert DELETE_HORIZON_BIT == 0x40


def patched(name: str, value: int, form: str) -> bytes:
    raw = bytearray(HEADER)
    struct.pack_into(form, raw, HERE[name], value)
    return bytes(raw)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (HEADER[:-1], "60 bytes are no batch header"),
        (patched("magic", 1, ">b"), "batch of magic 1, not 2"),
        (patched("magic", 3, ">b"), "batch of magic 3, not 2"),
        (patched("magic", -1, ">b"), "batch of magic -1, not 2"),
        (patched("batch_length", 48, ">i"), "batch length 48 is less than its header"),
        (patched("batch_length", -12, ">i"), "batch length -12 is less than its header"),
    ],
)
def test_parse_header_malformed_raises_wire_error(raw: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        parse_header(raw)
    with pytest.raises(WireError, match=why):
        parse_header(b"??" + raw, 2)


def test_parse_header_without_records_has_61_bytes() -> None:
    assert parse_header(patched("batch_length", 49, ">i")).size_bytes == 61


BATCH = build_batch([NewRecord(b"k", b"v", 5), NewRecord(None, b"w", 3)], base_offset=9, producer_id=7, leader_epoch=2)


def test_crc_matches_covers_bytes_from_attributes_on() -> None:
    header = parse_header(BATCH)
    assert header.crc == crc32c(BATCH[21:])
    for at in range(len(BATCH)):
        raw = bytearray(b"?" + BATCH + b"?")
        raw[at + 1] ^= 0x10
        assert crc_matches(raw, header, 1) == (at < ATTRIBUTES_OFFSET), at
    assert not crc_matches(BATCH, header._replace(crc=header.crc ^ 1))


def test_set_offset_and_epoch_changes_two_fields_only() -> None:
    raw = bytearray(b"?" + BATCH)
    set_offset_and_epoch(raw, 1, 2**40, 77)
    assert parse_header(raw, 1) == parse_header(BATCH)._replace(base_offset=2**40, partition_leader_epoch=77)
    assert raw[1 + 61 :] == BATCH[61:]
    assert raw[:1] == b"?"


def test_set_max_timestamp_updates_the_checksum() -> None:
    raw = bytearray(b"?" + BATCH + b"?")
    wanted = parse_header(BATCH)._replace(attributes=0x08, max_timestamp=12345)
    changed = set_max_timestamp(raw, 1, wanted)
    assert parse_header(raw, 1) == changed == wanted._replace(crc=changed.crc)
    assert changed.crc == crc32c(raw[1 + 21 : -1])
    assert (raw[:1], raw[62:]) == (b"?", BATCH[61:] + b"?")


def test_pack_batch_computes_length_and_checksum() -> None:
    header = parse_header(BATCH)
    assert pack_batch(header._replace(batch_length=-5, crc=0), BATCH[61:]) == BATCH
    assert parse_header(pack_batch(header, b"")).batch_length == 49


def test_read_offset_and_size_reads_first_twelve_bytes() -> None:
    assert read_offset_and_size(b"?" + HEADER[:12], 1) == (0x0102030405060708, 62)


def test_iterate_batches_yields_complete_batches_and_rejects_invalid_length() -> None:
    raw = b"??" + BATCH + BATCH
    size = len(BATCH)
    for tail in (b"", bytes(11), BATCH[:12], BATCH[:61], BATCH[:-1]):
        assert [at for at, _ in iterate_batches(raw + tail, 2)] == [2, 2 + size]
    assert [at for at, _ in iterate_batches(raw + BATCH, 2 + size)] == [2 + size, 2 + 2 * size]
    assert list(iterate_batches(b"")) == []
    for length in (-12, -100, 0, 48):
        bad = bytearray(BATCH)
        struct.pack_into(">i", bad, 8, length)
        with pytest.raises(WireError, match=f"batch of {length + 12} bytes at {len(raw)}"):
            list(iterate_batches(raw + bad, 2))
    header_only = patched("batch_length", 49, ">i")
    assert len(list(iterate_batches(header_only))) == 1
