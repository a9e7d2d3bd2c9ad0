"""Record batches with drawn compressed data: typical of clients, unusual but valid, or damaged.

The frames are assembled by hand, so that each field of each header is drawn. Every batch has a correct checksum and
record count: a refusal is caused by the compressed data.
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from typing import NamedTuple

import lz4.block
import lz4.frame
import snappy
import zstandard

from ottla.log.tests.log_fixtures import NOW
from ottla.wire.record_batch import batch_header
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.compression_headers import LZ4_MAGIC, XERIAL_MAGIC, ZSTD_MAGIC, compute_lz4_header_checksum
from ottla.wire.record_batch.records import NewRecord, build_batch

TRAILING_BYTES = "bytes behind it"
TRUNCATED = "cut off"
CORRUPTED = "a byte changed"
_XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)


class RandomBatch(NamedTuple):
    """Drawn batch, and a description of how its data was made."""

    description: str
    batch: bytes


class RandomBatchGenerator:
    """Generator of batches by a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._notes: list[str] = []

    def generate(self) -> RandomBatch:
        """Draw one batch."""
        rng, self._notes = self.rng, []
        codec = rng.choice(
            [
                CompressionType.GZIP,
                CompressionType.SNAPPY,
                CompressionType.LZ4,
                CompressionType.LZ4,
                CompressionType.ZSTD,
                CompressionType.ZSTD,
            ]
        )
        records = self._records()
        plain = build_batch(records)
        header = batch_header.parse_header(plain)
        data = plain[batch_header.HEADER_BYTES :]
        packed = {
            CompressionType.GZIP: self._gzip,
            CompressionType.SNAPPY: self._snappy,
            CompressionType.LZ4: self._lz4,
            CompressionType.ZSTD: self._zstd,
        }[codec](data)
        packed = self._damaged(packed)
        raw = batch_header.pack_batch(header._replace(attributes=int(codec)), packed)
        return RandomBatch(f"{codec.name.lower()} {len(data)} bytes: {', '.join(self._notes) or 'plain'}", raw)

    def _note(self, label: str) -> str:
        self._notes.append(label)
        return label

    def _draw(self, probability: float, label: str) -> bool:
        if self.rng.random() < probability:
            self._note(label)
            return True
        return False

    def _records(self) -> list[NewRecord]:
        rng = self.rng
        size = rng.choice([0, 5, 40, 300, 300, 3000, 9000, 20_000])
        count = rng.choice([1, 2, 3, 10, 40] if size < 9000 else [1, 2, 7, 20])
        out = []
        for _ in range(count):
            random_part = rng.randbytes(rng.randrange(size + 1))
            value = random_part + b"again and again " * (max(size - len(random_part), 0) // 16)
            out.append(NewRecord(rng.choice([None, b"key"]), value, NOW))
        return out

    def _damaged(self, data: bytes) -> bytes:
        rng = self.rng
        if self._draw(0.04, TRUNCATED):
            data = data[: -rng.randint(1, min(len(data), rng.choice([3, 12, 2000])))]
        elif self._draw(0.04, f"{TRUNCATED} to a few bytes"):
            data = data[: rng.randrange(30)]
        if data and self._draw(0.06, f"{CORRUPTED} at the beginning"):
            at = rng.randrange(min(len(data), 24))
            data = data[:at] + bytes((rng.randrange(256),)) + data[at + 1 :]
        if data and self._draw(0.03, f"{CORRUPTED} anywhere"):
            at = rng.randrange(len(data))
            data = data[:at] + bytes((rng.randrange(256),)) + data[at + 1 :]
        if self._draw(0.08, TRAILING_BYTES):
            data += rng.choice(
                [rng.randbytes(rng.randrange(1, 40)), bytes(rng.randrange(1, 40)), data[: rng.randrange(40)]]
            )
        return data

    def _parts(self, data: bytes) -> list[bytes]:
        """Return the data in one part, or several that are compressed on their own."""
        rng = self.rng
        if not self._draw(0.3, "several parts"):
            return [data]
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randint(1, 3)))
        if rng.random() < 0.3:
            cuts.append(rng.choice([0, len(data)]))
            cuts.sort()
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    # ---------------------------------------------------------------- gzip

    def _gzip(self, data: bytes) -> bytes:
        return b"".join(self._member(part) for part in self._parts(data))

    def _member(self, data: bytes) -> bytes:
        rng = self.rng
        if rng.random() < 0.2:
            return gzip.compress(data)
        flags = 0
        for bit in (1, 2, 4, 8, 16):
            flags |= bit if rng.random() < 0.15 else 0
        if self._draw(0.1, "reserved gzip flag"):
            flags |= rng.choice([32, 64, 128])
        method = 7 if self._draw(0.04, "gzip method 7") else 8
        head = bytes((0x1F, 0x8B, method, flags)) + rng.randbytes(6)
        if flags & 4:
            extra = rng.randbytes(rng.randrange(10))
            head += struct.pack("<H", len(extra)) + extra
        for bit in (8, 16):
            if flags & bit:
                head += b"n" * rng.choice([0, 1, 20, 400]) + b"\0"
        if flags & 2:
            wrong = self._draw(0.2, "wrong gzip header checksum")
            head += struct.pack("<H", (zlib.crc32(head) & 0xFFFF) ^ wrong)
        packer = zlib.compressobj(rng.choice([0, 1, 6, 9]), zlib.DEFLATED, -15)
        body = packer.compress(data) + packer.flush()
        crc = zlib.crc32(data) ^ self._draw(0.08, "wrong gzip checksum")
        size = len(data) ^ self._draw(0.08, "wrong gzip size")
        return head + body + struct.pack("<II", crc, size)

    # ---------------------------------------------------------------- snappy

    def _snappy(self, data: bytes) -> bytes:
        if self.rng.random() < 0.2:
            self._note("raw")
            return bytes(snappy.compress(data))
        out = b"".join(self._stream(part) for part in self._parts(data))
        return b"\x82SNAPPZ\x00" + out[8:] if self._draw(0.03, "other xerial magic") else out

    def _stream(self, data: bytes) -> bytes:
        rng = self.rng
        head = _XERIAL_HEADER
        if self._draw(0.1, "other xerial version"):
            head = XERIAL_MAGIC + struct.pack(">ii", rng.choice([-1, 0, 2, 9]), rng.choice([-1, 0, 1, 2]))
        if self._draw(0.05, "xerial header twice"):
            head += _XERIAL_HEADER
        out = [head]
        step = rng.choice([1 << 20, 32 * 1024, 500])
        for at in range(0, len(data), step):
            if self._draw(0.02, "empty snappy block"):
                out.append(b"\0\0\0\1\0")
            block = snappy.compress(data[at : at + step])
            size = len(block)
            if self._draw(0.005, "wrong snappy block size"):
                size = rng.choice([-1, 0, size - 1, size + 1, 1 << 30])
            out += [struct.pack(">i", size), block]
        if self._draw(0.04, "empty snappy block at the end"):
            out.append(b"\0\0\0\1\0")
        return b"".join(out)

    # ---------------------------------------------------------------- lz4

    def _lz4(self, data: bytes) -> bytes:
        frames = [self._frame(part) for part in self._parts(data)]
        if self._draw(0.04, "lz4 skippable frame"):
            frames.insert(self.rng.randrange(len(frames) + 1), b"\x50\x2a\x4d\x18\x03\0\0\0abc")
        return b"".join(frames)

    def _frame(self, data: bytes) -> bytes:
        rng = self.rng
        if rng.random() < 0.25:
            linked = self._draw(0.3, "written by liblz4 with linked blocks")
            return bytes(
                lz4.frame.compress(
                    data,
                    block_linked=linked,
                    block_size=rng.choice([4, 5, 6, 7]),
                    block_checksum=rng.random() < 0.4,
                    content_checksum=rng.random() < 0.4,
                    store_size=rng.random() < 0.5,
                )
            )
        block_checksum, content_checksum = rng.random() < 0.3, rng.random() < 0.3
        flags = 0x60 | 0x10 * block_checksum | 4 * content_checksum
        if self._draw(0.04, "other lz4 version or dependent blocks"):
            flags ^= rng.choice([0x20, 0x40, 0x80, 0xC0])
        if self._draw(0.04, "lz4 dictionary or reserved flag"):
            flags |= rng.choice([1, 2, 3])
        number = rng.choice([4, 5, 6, 7])
        descriptor = bytes((flags, number << 4))
        if self._draw(0.05, "other lz4 block descriptor"):
            descriptor = bytes((flags, rng.choice([0x30, 0, 0xC0, 0x41, 0x48])))
        if self._draw(0.3, "content size"):
            wrong = self._draw(0.2, "wrong content size")
            descriptor = bytes((flags | 8, descriptor[1])) + struct.pack("<Q", len(data) + wrong)
        checksum = compute_lz4_header_checksum(descriptor)
        if self._draw(0.05, "wrong lz4 header checksum"):
            checksum ^= rng.choice([1, 0x80])
        if self._draw(0.05, "lz4 header checksum with the magic number"):
            whole = LZ4_MAGIC + descriptor
            checksum = compute_lz4_header_checksum(whole) if len(whole) < 16 else 0
        out = [LZ4_MAGIC, descriptor, bytes((checksum,))]
        step = min(rng.choice([1 << 22, 64 * 1024, 3000]), 1 << 2 * number + 8)
        for at in range(0, len(data), step):
            out.append(self._block(data[at : at + step], number, checksum=block_checksum))
        if "several parts" not in self._notes and self._draw(0.03, "empty lz4 block at the end"):
            out.append(b"\x01\0\0\0\x00" + (b"\xcf\x06\x8c\xcf"[:4] if block_checksum else b""))
        out.append(b"\0\0\0\x80" if self._draw(0.05, "an empty plain lz4 block as end mark") else b"\0\0\0\0")
        if content_checksum:
            right = lz4.frame.compress(data, content_checksum=True)[-4:]
            out.append(bytes(4) if self._draw(0.2, "wrong lz4 content checksum") else right)
        if self._draw(0.02, "no end mark"):
            out = out[:-1]
        return b"".join(out)

    def _block(self, data: bytes, number: int, *, checksum: bool) -> bytes:
        """Return one block with size and checksum, as liblz4 writes it."""
        whole = lz4.frame.compress(
            data, block_linked=False, block_size=number, block_checksum=checksum, store_size=False
        )
        block = bytearray(whole[7:-4])
        if checksum and self._draw(0.02, "wrong lz4 block checksum"):
            block[-1] ^= 1
        return bytes(block)

    # ---------------------------------------------------------------- zstd

    def _zstd(self, data: bytes) -> bytes:
        frames = []
        for part in self._parts(data):
            if self._draw(0.05, "skippable zstd frame"):
                body = self.rng.randbytes(self.rng.choice([0, 3, 3000]))
                frames.append(
                    bytes((0x50 | self.rng.randrange(16),)) + b"\x2a\x4d\x18" + struct.pack("<I", len(body)) + body
                )
            frames.append(self._zstd_frame(part))
        return b"".join(frames)

    def _zstd_frame(self, data: bytes) -> bytes:
        rng = self.rng
        if rng.random() < 0.4:
            window_log = rng.choice([10, 14, 20, 27])
            if self._draw(0.2, "zstd window above 2^27 by libzstd"):
                window_log = rng.choice([28, 30])
            parameters = zstandard.ZstdCompressionParameters(
                window_log=window_log,
                chain_log=10,
                hash_log=10,
                write_content_size=rng.random() < 0.5,
                write_checksum=rng.random() < 0.5,
            )
            compressor = zstandard.ZstdCompressor(compression_params=parameters)
            if rng.random() < 0.5:
                return compressor.compress(data)
            packer = compressor.compressobj()
            return packer.compress(data) + packer.flush()
        return self._zstd_by_hand(data)

    def _zstd_by_hand(self, data: bytes) -> bytes:
        rng = self.rng
        single = rng.random() < 0.3
        width = rng.choice([1, 2, 3] if single else [0, 1, 2, 3])
        if single and len(data) < 256:
            width = 0
        if width == 1 and not 256 <= len(data) < 65_792:
            width = 2
        flags = width << 6 | 0x20 * single
        if self._draw(0.05, "zstd reserved bit"):
            flags |= 8
        if self._draw(0.05, "zstd unused bit"):
            flags |= 0x10
        dictionary = b""
        if self._draw(0.1, "zstd dictionary id"):
            kind = rng.choice([1, 2, 3])
            flags |= kind
            dictionary = rng.choice([bytes((0, 1, 2, 4)[kind]), rng.randbytes((0, 1, 2, 4)[kind])])
        exponent, mantissa = rng.choice([10, 13, 17]), rng.choice([0, 0, 1, 7])
        if self._draw(0.25, "large zstd window"):
            exponent, mantissa = rng.choice([16, 17, 17, 18, 20, 21, 22, 31]), rng.choice([0, 1])
        head = ZSTD_MAGIC + bytes((flags,))
        head += b"" if single else bytes((exponent << 3 | mantissa,))
        size = len(data) + self._draw(0.05, "wrong zstd content size")
        size -= 256 if width == 1 else 0
        field = {0: 1 if single else 0, 1: 2, 2: 4, 3: 8}[width]
        head += dictionary + (size & (1 << 8 * field) - 1).to_bytes(field, "little")
        out = [head]
        # As large as a block may be: the window, or the content of a single-segment frame
        most = min(128 * 1024, len(data) or 1 if single else 1 << min(10 + exponent, 17))
        step = rng.choice([most, 500])
        parts = [data[at : at + step] for at in range(0, len(data), step)] or [b""]
        for number, part in enumerate(parts):
            kind = 3 if self._draw(0.004, "reserved zstd block type") else 0
            last = number == len(parts) - 1
            if part and part == part[:1] * len(part):
                out.append((len(part) << 3 | 1 << 1 | last).to_bytes(3, "little") + part[:1])
            else:
                out.append((len(part) << 3 | kind << 1 | last).to_bytes(3, "little") + part)
        if self._draw(0.02, "zstd without a last block"):
            out[-1] = bytes((out[-1][0] & 0xFE,)) + out[-1][1:]
        return b"".join(out)
