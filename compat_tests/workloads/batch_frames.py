"""Compressed record batches in unusual forms: frames that some readers accept and others refuse.

Kafka decompresses each batch that a client produces and refuses what its own readers refuse.
Source: ``Lz4BlockInputStream``, ``ZstdCompression``, ``GZIPInputStream`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame

from ottla.wire.record_batch import batch_header, records
from ottla.wire.record_batch.records import NewRecord

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
BLOCK_BYTES = 32 * 1024
ZSTD_BLOCK_BYTES = 128 * 1024
FramePacker = Callable[[bytes], bytes]


def _lz4(**options: object) -> FramePacker:
    settings = {"block_linked": False, "store_size": False, "block_size": 4, **options}
    return lambda data: bytes(lz4.frame.compress(data, **settings))


def _changed(pack: FramePacker, position: int) -> FramePacker:
    """Return a packer that inverts one byte of the frame, counted from the end when negative."""

    def changed(data: bytes) -> bytes:
        out = bytearray(pack(data))
        out[position] ^= 0xFF
        return bytes(out)

    return changed


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF


def _xxh32_short(data: bytes) -> int:
    """Return XXH32 with seed 0, of fewer than 16 bytes."""
    primes = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    value = primes[4] + len(data)
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = _rotated((value + word * primes[2]) & 0xFFFFFFFF, 17) * primes[3] & 0xFFFFFFFF
    for byte in data[whole:]:
        value = _rotated((value + byte * primes[4]) & 0xFFFFFFFF, 11) * primes[0] & 0xFFFFFFFF
    for shift, prime in ((15, primes[1]), (13, primes[2])):
        value = (value ^ value >> shift) * prime & 0xFFFFFFFF
    return value ^ value >> 16


def _lz4_old_checksum(data: bytes) -> bytes:
    """Return the header checksum of old Kafka clients, which covers the magic number, too (KAFKA-3160)."""
    out = bytearray(_lz4()(data))
    out[6] = _xxh32_short(bytes(out[:6])) >> 8 & 0xFF
    return bytes(out)


def _zstd(window_log: int) -> FramePacker:
    """Return a frame of raw blocks that announces a window of ``2**window_log`` bytes."""

    def pack(data: bytes) -> bytes:
        out = bytearray(struct.pack("<IBB", 0xFD2FB528, 0, (window_log - 10) << 3))
        for at in range(0, len(data), ZSTD_BLOCK_BYTES):
            block = data[at : at + ZSTD_BLOCK_BYTES]
            is_last = at + ZSTD_BLOCK_BYTES >= len(data)
            out += struct.pack("<I", len(block) << 3 | is_last)[:3] + block
        return bytes(out)

    return pack


def _framed_snappy(data: bytes) -> bytes:
    out = bytearray(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    for at in range(0, len(data), BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + BLOCK_BYTES]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def _halves(pack: FramePacker) -> FramePacker:
    """Return two frames, one after the other."""
    return lambda data: pack(data[: len(data) // 2]) + pack(data[len(data) // 2 :])


def _cut(pack: FramePacker) -> FramePacker:
    return lambda data: pack(data)[:-5]


def _followed(pack: FramePacker) -> FramePacker:
    return lambda data: pack(data) + b"trailing"


def _gzip_with_name(data: bytes) -> bytes:
    plain = gzip.compress(data)
    return plain[:3] + b"\x08" + plain[4:10] + b"name\0" + plain[10:]


def _zlib(data: bytes) -> bytes:
    return zlib.compress(data)


def _zstd_plain(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def _snappy_raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


FRAMES: dict[str, tuple[int, FramePacker]] = {
    "lz4 independent": (LZ4, _lz4(block_checksum=True)),
    "lz4 linked": (LZ4, _lz4(block_linked=True)),
    "lz4 linked with checksums": (LZ4, _lz4(block_linked=True, block_checksum=True, content_checksum=True)),
    "lz4 with content size": (LZ4, _lz4(store_size=True)),
    "lz4 content checksum": (LZ4, _lz4(content_checksum=True)),
    "lz4 wrong content checksum": (LZ4, _changed(_lz4(content_checksum=True), -1)),
    "lz4 wrong header checksum": (LZ4, _changed(_lz4(), 6)),
    "lz4 old header checksum": (LZ4, _lz4_old_checksum),
    "lz4 two frames": (LZ4, _halves(_lz4())),
    "lz4 cut": (LZ4, _cut(_lz4())),
    "lz4 followed by bytes": (LZ4, _followed(_lz4())),
    "zstd window 2^27": (ZSTD, _zstd(27)),
    "zstd window 2^28": (ZSTD, _zstd(28)),
    "zstd two frames": (ZSTD, _halves(_zstd_plain)),
    "zstd cut": (ZSTD, _cut(_zstd_plain)),
    "zstd followed by bytes": (ZSTD, _followed(_zstd_plain)),
    "gzip wrong checksum": (GZIP, _changed(gzip.compress, -6)),
    "gzip wrong size": (GZIP, _changed(gzip.compress, -2)),
    "gzip two members": (GZIP, _halves(gzip.compress)),
    "gzip with name": (GZIP, _gzip_with_name),
    "gzip cut": (GZIP, _cut(gzip.compress)),
    "gzip followed by bytes": (GZIP, _followed(gzip.compress)),
    "gzip zlib stream": (GZIP, _zlib),
    "snappy raw": (SNAPPY, _snappy_raw),
    "snappy framed": (SNAPPY, _framed_snappy),
    "snappy two streams": (SNAPPY, _halves(_framed_snappy)),
    "snappy cut": (SNAPPY, _cut(_framed_snappy)),
    "snappy followed by bytes": (SNAPPY, _followed(_framed_snappy)),
}

UNCHECKED_FAULTS = {
    "lz4 two frames",
    "lz4 cut",
    "zstd cut",
    "zstd followed by bytes",
    "gzip wrong checksum",
    "gzip wrong size",
    "gzip cut",
    "snappy cut",
    "snappy followed by bytes",
}
"""Frames that Kafka refuses because of bytes behind the first ones.

Ottla detects those where it decompresses records: in topics that are recompressed, but not in others
(docs/reference/limitations.md).
"""


def unusual_batch(kind: str, seed: int, size_bytes: int, timestamp: int) -> bytes:
    """Return a batch of about ``size_bytes`` before compression, in one of `FRAMES`."""
    rng = random.Random(seed)
    codec, pack = FRAMES[kind]
    count = max(2, size_bytes // 3000)
    rows = []
    for i in range(count):
        value = bytes(rng.choices(b"abcdefghijklm", k=size_bytes // count))
        rows.append(NewRecord(b"k%d" % i, value, timestamp + i))
    return _packed(rows, codec, pack)


def plain_batch(rows: list[NewRecord], codec: int) -> bytes:
    """Return a batch in the form that Kafka's own producer gives it."""
    packs: dict[int, FramePacker] = {GZIP: gzip.compress, SNAPPY: _framed_snappy, LZ4: _lz4(), ZSTD: _zstd_plain}
    return _packed(rows, codec, packs.get(codec, bytes))


def _packed(rows: list[NewRecord], codec: int, pack: FramePacker) -> bytes:
    first, last = rows[0].timestamp_ms, max(row.timestamp_ms for row in rows)
    raw = b"".join(records.encode_record(row, i, row.timestamp_ms - first) for i, row in enumerate(rows))
    header = batch_header.BatchHeader(0, 0, -1, 2, 0, codec, len(rows) - 1, first, last, -1, -1, -1, len(rows))
    return batch_header.pack_batch(header, pack(raw))
