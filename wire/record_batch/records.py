"""Records of a batch: encoding, decoding, checks and look-up by timestamp.

Used wherever single records are needed, such as by clients, for internal topics and ListOffsets; compaction scans with
`record_scan`. Fetch uses headers only, Produce too, unless a topic's settings need more: then `ottla.log.log_validator`
validates the records, not this module. Source: ``DefaultRecord.java``, ``MemoryRecordsBuilder.java`` (apache/kafka
4.3.1).

Record headers: KIP-82.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from ottla.wire.codec.primitives import Buffer, read_varlong, write_varlong
from ottla.wire.errors import WireError
from ottla.wire.limits import MAX_DECOMPRESSED_BYTES
from ottla.wire.record_batch import legacy_records
from ottla.wire.record_batch.batch_header import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    pack_batch,
)
from ottla.wire.record_batch.compression import (
    CompressionType,
    StreamDecompressor,
    compress,
    compression_type_of,
    decompress,
)
from ottla.wire.record_batch.record import Headers, NewRecord, Record

__all__ = [
    "Headers",
    "NewRecord",
    "Record",
    "decompress_records",
    "build_batch",
    "find_first_by_timestamp_job",
    "find_max_timestamp_job",
    "find_first_by_timestamp",
    "iterate_records",
    "check_records",
]
RECORDS_AT_ONCE = 2000
"""Records that a search reads between two yields: a millisecond or two."""
PIECE_BYTES = 64 * 1024
"""Size in bytes of the decompressed pieces in which a search reads a batch."""
TimestampSearchJob = Generator[bool, None, tuple[int, int] | None]
"""Search by timestamp that yields True while its memory use is high; returns (offset, timestamp in ms) or None."""
_ANY_TIMESTAMP = -(1 << 63)
"""Lower bound of timestamps for batches with log append time, whose record timestamps are ignored."""


def _blob(buf: Buffer, pos: int, end: int) -> tuple[bytes | None, int]:
    size, pos = read_varlong(buf, pos)
    if size == -1:
        return None, pos
    if size < 0 or size > end - pos:
        raise WireError(f"{size} bytes in a record with {end - pos} left")
    return bytes(buf[pos : pos + size]), pos + size


def _headers(buf: Buffer, pos: int, end: int, most: int | None = None) -> tuple[Headers, int]:
    count, pos = read_varlong(buf, pos)
    if count == 0:
        return (), pos
    if count < 0 or count * 2 > end - pos:
        raise WireError(f"{count} headers in {end - pos} bytes")
    if most is not None and count > most:
        raise WireError(f"a record has {count} headers; at most {most} are read")
    out = []
    for _ in range(count):
        key, pos = _blob(buf, pos, end)
        if key is None:
            raise WireError("a header without a key")
        value, pos = _blob(buf, pos, end)
        out.append((key.decode("utf-8", "replace"), value))
    return tuple(out), pos


def decompress_records(buf: Buffer, header: BatchHeader, pos: int = 0, limit: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """Return the records of the batch at ``pos``: a view of uncompressed ones, else at most ``limit`` bytes.

    Raises:
        WireError: unknown codec or invalid data; DecompressedSizeExceeded: the limit is exceeded.
    """
    raw = memoryview(buf)[pos + HEADER_BYTES : pos + header.size_bytes]
    return decompress(compression_type_of(header.attributes), raw, limit)


def find_first_by_timestamp(
    buf: Buffer, header: BatchHeader, timestamp_ms: int, from_offset: int, limit: int = MAX_DECOMPRESSED_BYTES
) -> tuple[int, int] | None:
    """Return (offset, timestamp) or None as `find_first_by_timestamp_job`, without yielding to other tasks."""
    steps = find_first_by_timestamp_job(buf, header, timestamp_ms, from_offset, limit)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: tuple[int, int] | None = done.value
            return found


def find_first_by_timestamp_job(
    buf: Buffer, header: BatchHeader, timestamp_ms: int, from_offset: int, limit: int = MAX_DECOMPRESSED_BYTES
) -> TimestampSearchJob:
    """Job that returns (offset, timestamp in ms) of a batch's first record at or after both bounds, or None.

    ``buf`` begins with the batch; ``limit``: decompressed bytes. Reads each record only up to its offset, and yields
    often: a batch may have a million records. It yields True if the search holds so much memory that only a limited
    number may run at once (`StreamDecompressor`), else False.

    Raises:
        WireError: the records are malformed or do not match the header.
    """
    stamped = header.has_log_append_time
    if header.magic < 2:
        for number, record in enumerate(iterate_records(buf, header, 0, limit)):
            if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
                return record.offset, record.timestamp_ms
            if number % RECORDS_AT_ONCE == RECORDS_AT_ONCE - 1:
                yield False
        return None
    if stamped and header.max_timestamp < timestamp_ms:
        return None
    base_time, least = header.base_timestamp, from_offset - header.base_offset
    wanted = _ANY_TIMESTAMP if stamped else timestamp_ms - base_time
    part = _RecordWindow(buf, header, limit)
    while part.remaining > 0:
        count = min(part.remaining, RECORDS_AT_ONCE)
        found, at, cut = _first_of(part.data, part.position, count, wanted, least)
        if found is not None:
            return header.base_offset + found[0], header.max_timestamp if stamped else base_time + found[1]
        part.advance(at, count - cut)
        yield part.is_memory_heavy
        if cut:
            part.load_next_piece()
    return None


def find_max_timestamp_job(buf: Buffer, header: BatchHeader, limit: int = MAX_DECOMPRESSED_BYTES) -> TimestampSearchJob:
    """Job that returns (offset, timestamp in ms) of a batch's first record with the largest timestamp.

    Returns None for a batch without records. The maximum in the header is not used. Reads and yields as
    `find_first_by_timestamp_job`.

    Raises:
        WireError: the records are malformed or do not match the header.
    """
    best: tuple[int, int] | None = None
    if header.magic < 2:
        record = max(iterate_records(buf, header, 0, limit), key=lambda x: x.timestamp_ms, default=None)
        return None if record is None else (record.offset, record.timestamp_ms)
    part = _RecordWindow(buf, header, limit)
    while part.remaining > 0:
        count = min(part.remaining, RECORDS_AT_ONCE)
        best, at, cut = _max_timestamp_of(part.data, part.position, count, best)
        part.advance(at, count - cut)
        if part.remaining > 0:
            yield part.is_memory_heavy
        if cut:
            part.load_next_piece()
    if best is None:
        return None
    return header.base_offset + best[0], header.base_timestamp + best[1]


class _RecordWindow:
    """Window over the decompressed records of a batch, of which only one piece is in memory at a time."""

    def __init__(self, buf: Buffer, header: BatchHeader, limit: int) -> None:
        raw = memoryview(buf)[HEADER_BYTES : header.size_bytes]
        self._pieces = StreamDecompressor(compression_type_of(header.attributes), raw, PIECE_BYTES, limit)
        self.remaining = header.records_count
        """Number of records that the search has not read yet."""
        self.data = b""
        """Last decompressed piece, preceded by the incomplete record at the end of the previous one."""
        self.position = 0
        """Position of the next record in ``data``; may be beyond its end."""
        if self.remaining > 0:
            self.load_next_piece()

    @property
    def is_memory_heavy(self) -> bool:
        """True if the decompressor holds much memory (`StreamDecompressor.is_memory_heavy`)."""
        return self._pieces.is_memory_heavy

    def advance(self, position: int, passed: int) -> None:
        """Record that ``passed`` records were read, and that the next one begins at ``position``."""
        self.position = position
        self.remaining -= passed

    def load_next_piece(self) -> None:
        """Decompress the next piece and append it to the incomplete record in ``data``.

        Raises:
            WireError: there is no further piece, or the data is invalid; DecompressedSizeExceeded: the limit is
            exceeded.
        """
        piece = next(self._pieces, None)
        if piece is None:
            raise WireError("a record is cut off")
        rest = self.data[self.position :]
        self.position = max(self.position - len(self.data), 0)
        self.data = rest + piece if rest else piece


def _first_of(data: bytes, at: int, count: int, wanted: int, least: int) -> tuple[tuple[int, int] | None, int, int]:
    """Return the first of ``count`` records with timestamp delta >= ``wanted`` and offset delta >= ``least``, or None.

    Returns (offset delta, timestamp delta) of the record, the position after the last record read, and the number of
    records that are left because ``data`` ends inside the next one.
    """
    start = at
    try:
        while count > 0:
            start = at
            size = data[at]
            if size < 128:
                size, at = size >> 1, at + 1
            elif data[at + 1] < 128:
                size, at = (size & 127 | data[at + 1] << 7) >> 1, at + 2
            else:
                size, at = read_varlong(data, at)
            stop = at + size
            if stop <= start:
                raise WireError(f"a record of {size} bytes")
            delta = data[at + 1]
            if delta < 128:
                delta, at = (delta >> 1) ^ -(delta & 1), at + 2
            else:
                delta, at = read_varlong(data, at + 1)
            if delta >= wanted:
                offset = read_varlong(data, at)[0]
                if offset >= least:
                    return (offset, delta), stop, 0
            at = stop
            count -= 1
    except IndexError:
        return None, start, count
    return None, at, 0


def _max_timestamp_of(
    data: bytes, at: int, count: int, best: tuple[int, int] | None
) -> tuple[tuple[int, int] | None, int, int]:
    """Return (offset delta, timestamp delta) of the latest of ``count`` records and ``best``.

    Returns also the position after the last record read, and the number of records left, as `_first_of`.
    """
    start = at
    try:
        while count > 0:
            start = at
            size, at = read_varlong(data, at)
            if size <= 0:
                raise WireError(f"a record of {size} bytes")
            delta, after = read_varlong(data, at + 1)
            if best is None or delta > best[1]:
                best = read_varlong(data, after)[0], delta
            at += size
            count -= 1
    except IndexError:
        return best, start, count
    return best, at, 0


def iterate_records(
    buf: Buffer,
    header: BatchHeader,
    pos: int = 0,
    limit: int = MAX_DECOMPRESSED_BYTES,
    *,
    skips_headers: bool = False,
    max_headers: int | None = None,
) -> Iterator[Record]:
    """Yield the records of the batch at ``pos``, checking sizes, count and that no bytes are left over.

    ``limit``: maximum decompressed size of the batch in bytes. ``skips_headers``: the headers of the records are passed
    over unread, and left out. A record of a megabyte may have half a million. ``max_headers``: a record with more is an
    error; None: no limit.

    Raises:
        WireError: the records are malformed, do not match the header, or exceed a limit.
    """
    if header.magic < 2:
        yield from legacy_records.iterate_messages(memoryview(buf)[pos : pos + header.size_bytes], limit)
        return
    data = decompress_records(buf, header, pos, limit)
    end, at = len(data), 0
    append_time = header.max_timestamp if header.has_log_append_time else None
    try:
        for _ in range(header.records_count):
            size, at = read_varlong(data, at)
            stop = at + size
            if size < 0 or stop > end:
                raise WireError(f"a record of {size} bytes, {end - at} left")
            at += 1  # attributes: unused
            time_delta, at = read_varlong(data, at)
            offset_delta, at = read_varlong(data, at)
            key, at = _blob(data, at, stop)
            value, at = _blob(data, at, stop)
            headers, at = ((), stop) if skips_headers else _headers(data, at, stop, max_headers)
            if at != stop:
                raise WireError(f"a record says {size} bytes and has {size - stop + at}")
            timestamp = header.base_timestamp + time_delta if append_time is None else append_time
            yield Record(header.base_offset + offset_delta, timestamp, key, value, headers)
    except IndexError:
        raise WireError("a record is cut off") from None
    if at != end:
        raise WireError(f"{end - at} bytes after the last of {header.records_count} records")


def check_records(buf: Buffer, header: BatchHeader, pos: int = 0, limit: int = MAX_DECOMPRESSED_BYTES) -> None:
    """Check that every record of a batch is well-formed and that offset deltas are 0, 1, 2, ...

    Raises:
        WireError: a record is malformed or has another offset delta.
    """
    for index, record in enumerate(iterate_records(buf, header, pos, limit)):
        if record.offset != header.base_offset + index:
            raise WireError(f"record {index} has offset delta {record.offset - header.base_offset}")


def encode_record(record: NewRecord, offset_delta: int, time_delta: int) -> bytes:
    """Return the bytes of a record of an uncompressed batch, including its size field; deltas in offsets and ms."""
    out = bytearray(1)
    out += write_varlong(time_delta)
    out += write_varlong(offset_delta)
    for blob in (record.key, record.value):
        out += b"\x01" if blob is None else write_varlong(len(blob)) + blob
    out += write_varlong(len(record.headers))
    for key, value in record.headers:
        raw = key.encode()
        out += write_varlong(len(raw)) + raw
        out += b"\x01" if value is None else write_varlong(len(value)) + value
    return write_varlong(len(out)) + bytes(out)


def build_batch(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    codec: CompressionType = CompressionType.NONE,
    level: int | None = None,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """Return an encoded batch of ``records`` with consecutive offsets from ``base_offset``.

    Base timestamp is that of the first record, max timestamp the largest. ``level``: compression level of the codec,
    None for its default. ``attributes``: further bits, such as `CONTROL_BIT`; the codec is added to them.
    """
    items = list(records)
    base_timestamp = items[0].timestamp_ms if items else NO_TIMESTAMP
    max_timestamp = max((r.timestamp_ms for r in items), default=NO_TIMESTAMP)
    raw = b"".join(encode_record(r, i, r.timestamp_ms - base_timestamp) for i, r in enumerate(items))
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        2,
        0,
        attributes | codec,
        max(len(items) - 1, 0),
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(items),
    )
    return pack_batch(header, compress(codec, raw, level))
