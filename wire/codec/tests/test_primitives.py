"""Numbers, varints and UUIDs: their bytes, limits and errors."""

from __future__ import annotations

import random

import pytest

from ottla.wire.codec.primitives import (
    read_bytes,
    read_fixed,
    read_uvarint,
    read_varint,
    read_varlong,
    uuid_from_string,
    uuid_to_string,
    write_fixed,
    write_uvarint,
    write_varlong,
)
from ottla.wire.errors import WireError

UVARINTS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (1023, "ff07"),
    (1024, "8008"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**31 - 1, "ffffffff07"),
    (2**31, "8080808008"),
    (2**32 - 1, "ffffffff0f"),
]
VARLONGS = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "raw"), UVARINTS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_uvarint_equals_encoding_of_byte_utils(value: int, raw: str, kind: type) -> None:
    assert write_uvarint(value).hex() == raw
    assert read_uvarint(kind(b"\xff" + bytes.fromhex(raw) + b"\x01"), 1) == (value, 1 + len(raw) // 2)


@pytest.mark.parametrize(("value", "raw"), VARLONGS)
def test_varlong_equals_encoding_of_byte_utils(value: int, raw: str) -> None:
    assert write_varlong(value).hex() == raw
    assert read_varlong(b"\xff" + bytes.fromhex(raw) + b"\x01", 1) == (value, 1 + len(raw) // 2)


@pytest.mark.parametrize(("value", "raw"), [row for row in VARLONGS if len(row[1]) <= 10])
def test_varint_equals_encoding_of_byte_utils(value: int, raw: str) -> None:
    assert read_varint(b"\xff" + bytes.fromhex(raw) + b"\x01", 1) == (value, 1 + len(raw) // 2)


def test_read_varint_longer_than_five_bytes_raises_wire_error() -> None:
    assert read_varint(b"\xff\xff\xff\xff\x7f", 0) == (-(2**31), 5)
    assert read_varint(b"\x80\x80\x80\x80\x01", 0) == (2**27, 5)
    with pytest.raises(WireError, match="more than five bytes"):
        read_varint(b"\x80" * 5 + b"\0", 0)
    for cut in ("", "80", "80808080"):
        with pytest.raises(IndexError):
            read_varint(bytes.fromhex(cut), 0)


def test_varints_random_values_survive_round_trip() -> None:
    rng = random.Random(5)
    for _ in range(2000):
        small, long = rng.getrandbits(rng.randrange(1, 33)), rng.getrandbits(rng.randrange(1, 64))
        assert read_uvarint(write_uvarint(small), 0)[0] == small
        for value in (long, -long, -long - 1):
            raw = write_varlong(value)
            assert read_varlong(raw, 0) == (value, len(raw))


@pytest.mark.parametrize("value", [-1, 2**32])
def test_write_uvarint_beyond_32_bits_raises_wire_error(value: int) -> None:
    with pytest.raises(WireError, match="is no uvarint"):
        write_uvarint(value)


def test_read_varint_drops_bits_beyond_its_width_as_java() -> None:
    assert read_uvarint(b"\xff\xff\xff\xff\x7f", 0) == (2**32 - 1, 5)
    assert read_varlong(b"\xff" * 9 + b"\x7f", 0) == (-(2**63), 10)


@pytest.mark.parametrize("raw", ["", "80", "8080", "80808080"])
def test_read_varint_truncated_raises_error(raw: str) -> None:
    with pytest.raises(WireError):
        read_uvarint(bytes.fromhex(raw), 0)
    with pytest.raises(IndexError):
        read_varlong(bytes.fromhex(raw), 0)


def test_read_varint_too_long_raises_wire_error() -> None:
    assert read_uvarint(b"\x80\x80\x80\x80\x01", 0) == (2**28, 5)
    with pytest.raises(WireError, match="more than five bytes"):
        read_uvarint(b"\x80" * 5 + b"\x01", 0)
    assert read_varlong(b"\x80" * 9 + b"\x01", 0)[1] == 10
    with pytest.raises(WireError, match="more than ten bytes"):
        read_varlong(b"\x80" * 10 + b"\x01", 0)


FIXED = [
    ("bool", True, "01"),
    ("bool", False, "00"),
    ("int8", -128, "80"),
    ("int8", 127, "7f"),
    ("int16", -2, "fffe"),
    ("uint16", 65535, "ffff"),
    ("int32", -(2**31), "80000000"),
    ("uint32", 2**32 - 1, "ffffffff"),
    ("int64", 2**63 - 1, "7fffffffffffffff"),
    ("int64", -1, "ffffffffffffffff"),
    ("float64", 1.5, "3ff8000000000000"),
]


@pytest.mark.parametrize(("kind", "value", "raw"), FIXED)
def test_fixed_numbers_are_big_endian(kind: str, value: float, raw: str) -> None:
    assert write_fixed(kind, value).hex() == raw
    assert read_fixed(kind, b"\x55" + bytes.fromhex(raw) + b"\x55", 1) == (value, 1 + len(raw) // 2)


def test_read_bool_nonzero_byte_is_true() -> None:
    assert read_fixed("bool", b"\x02", 0) == (True, 1)


@pytest.mark.parametrize(
    ("kind", "value"), [("int8", 128), ("int8", -129), ("uint16", -1), ("int32", 2**31), ("uint32", -1)]
)
def test_write_fixed_out_of_range_raises_wire_error(kind: str, value: int) -> None:
    with pytest.raises(WireError, match=f"{value} is no {kind}"):
        write_fixed(kind, value)


@pytest.mark.parametrize(("size", "refused"), [(0, False), (3, False), (4, True), (-1, True)])
def test_read_bytes_beyond_the_end_raises_wire_error(size: int, *, refused: bool) -> None:
    if refused:
        with pytest.raises(WireError, match=f"{size} bytes wanted at 2, 3 there"):
            read_bytes(b"abcde", 2, size)
    else:
        taken, pos = read_bytes(b"abcde", 2, size)
        assert (bytes(taken), pos) == (b"abcde"[2 : 2 + size], 2 + size)


def test_uuid_string_is_22_characters_of_base64url() -> None:
    assert uuid_to_string(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_string(b"\xff" * 16) == "_____________________w"
    raw = random.Random(1).randbytes(16)
    assert uuid_from_string(uuid_to_string(raw)) == raw
    assert uuid_from_string(uuid_to_string(raw) + "==") == raw, "Uuid.fromString accepts padding"
    for text in (
        "AAAA",
        "A" * 24,
        "",
        "A" * 21 + "+",
        "A" * 21 + "/",
        "A" * 22 + "=",
        "!" + "A" * 22,
        "A" * 21 + "\u00e9",
    ):
        with pytest.raises(ValueError, match="is no uuid"):
            uuid_from_string(text)
