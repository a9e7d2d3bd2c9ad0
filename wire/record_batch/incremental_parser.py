"""Incremental parser of the records of a batch from pieces of its decompressed bytes, which are not stored.

A batch of a megabyte may expand to gigabytes. Validation of every record therefore works on pieces: memory is bounded
by the size of a piece, also for huge records, and the job yields between pieces.

Source: ``DefaultRecord.readFrom``, ``DefaultRecord.readPartiallyFrom`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from ottla.wire.codec.primitives import Buffer, read_varint, read_varlong
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import HEADER_BYTES

MIN_RECORD_BYTES = 7
"""Minimum size of a record: size, attributes, two deltas, null key, null value, no headers, of one byte each."""


_Read = Callable[[Buffer, int], tuple[int, int]]


class MalformedRecord(WireError):
    """Records of a batch are malformed, or do not match its record count."""


class RecordSummary(NamedTuple):
    """Timestamp delta (ms) of a record, and sizes of key and value in bytes; -1: null."""

    time_delta: int
    key_bytes: int
    value_bytes: int


def _checked_size(size: int, left: int, *, or_none: bool = True) -> int:
    """Return a size read from a record, 0 for -1 (null) with ``or_none``.

    Raises:
        MalformedRecord: the size is negative, or exceeds the ``left`` bytes of the record.
    """
    if size == -1 and or_none:
        return 0
    if size < 0 or size > left:
        raise MalformedRecord(f"{size} bytes in a record with {left} left")
    return size


def _parse_record(data: bytes, at: int, stop: int) -> RecordSummary:
    """Return the summary of the record whose bytes after its size field are ``data[at:stop]``.

    Raises:
        MalformedRecord, WireError, IndexError: a size or number exceeds the record, or bytes are left over.
    """
    time_delta, at = read_varlong(data, at + 1)
    _, at = read_varint(data, at)
    key_bytes, at = read_varint(data, at)
    at += _checked_size(key_bytes, stop - at)
    value_bytes, at = read_varint(data, at)
    at += _checked_size(value_bytes, stop - at)
    count, at = read_varint(data, at)
    if count:
        if count < 0 or count * 2 > stop - at:
            raise MalformedRecord(f"{count} headers in {stop - at} bytes")
        at, missing = _skip_headers(data, at, stop, stop, count)
        if missing:
            raise MalformedRecord(f"{missing} headers end behind their record")
    if at != stop:
        raise MalformedRecord(f"a record has {stop - at} bytes more than it fills")
    return RecordSummary(time_delta, key_bytes, value_bytes)


def _skip_headers(data: bytes, at: int, end: int, stop: int, count: int) -> tuple[int, int]:
    """Skip the headers that are complete in ``data[at:end]``; return the position after them and the number left.

    ``count``: headers to skip; ``stop``: end of the record. Varints are read inline for speed: a record may have half
    as many headers as bytes.
    """
    try:
        while count:
            here = at
            for least in (0, -1):  # minimum size of a key, and of a value
                size = data[here]
                if size < 0x80:
                    size, here = (size >> 1) ^ -(size & 1), here + 1
                else:
                    size, here = read_varint(data, here)
                if size > 0:
                    if size > stop - here:
                        raise MalformedRecord(f"{size} bytes in a record with {stop - here} left")
                    here += size
                elif size < least:
                    raise MalformedRecord(f"a header of {size} bytes")
            if here > end:
                break
            at, count = here, count - 1
    except IndexError:
        pass
    return at, count


def first_record_fits(data: bytearray | memoryview, end: int, count: int) -> bool:
    """Return False if the first of ``count`` uncompressed records, or the count itself, does not fit the batch.

    ``data`` begins with the batch header; ``end``: size of the batch in bytes. The size of the record is checked, and
    the size of its key unless that is above 63 bytes or the record has deltas other than 0.
    """
    if HEADER_BYTES + count * MIN_RECORD_BYTES > end:
        return False
    size, at = data[HEADER_BYTES], HEADER_BYTES + 1
    if size > 0x7F and (high := data[at]) < 0x80:
        size, at = size & 0x7F | high << 7, at + 1
    elif size > 0x7F:
        try:
            size, at = read_varlong(data, HEADER_BYTES)
        except (WireError, IndexError):
            return False
        size += size
    # Zig-zag: both varints are twice the size; odd numbers are negative.
    stop = at + (size >> 1)
    if size & 1 or size < 2 * MIN_RECORD_BYTES - 2 or (stop != end if count == 1 else stop >= end):
        return False
    key = data[at + 3]
    if key > 0x7F or data[at + 1] or data[at + 2]:
        return True  # a long key, or deltas other than 0, unlike those of a producer: not checked
    return key == 1 or (not key & 1 and key <= size - 2 * MIN_RECORD_BYTES + 2)


class IncrementalRecordParser:
    """Parser of a batch's ``count`` records: `feed` it the decompressed bytes piece by piece, then call `finish`."""

    def __init__(self, count: int) -> None:
        self._remaining = count
        """Number of records that are not complete yet."""
        self._data = b""
        self._at = 0
        self._partial_record: Generator[None, None, RecordSummary] | None = None
        """Parser of a record that extends over several pieces, or None."""
        self._stop = 0
        """Bytes of the partial record that are not parsed yet."""

    def feed(self, piece: bytes) -> list[RecordSummary]:
        """Parse the next piece of bytes; return the summaries of the records that end in it.

        Raises:
            MalformedRecord: a record is malformed, or bytes follow the last record.
        """
        if self._at < len(self._data):
            piece = self._data[self._at :] + piece
        self._data, self._at = piece, 0
        out: list[RecordSummary] = []
        try:
            if self._partial_record is not None:
                self._resume_partial_record(out)
            if self._partial_record is None:
                self._parse_whole_records(out)
        except WireError as error:
            raise MalformedRecord(str(error)) from None
        if self._remaining == 0 and self._partial_record is None and self._at < len(self._data):
            raise MalformedRecord("bytes follow the last record")
        return out

    def finish(self) -> None:
        """Check that all records are complete at the end of the data.

        Raises:
            MalformedRecord: records are missing.
        """
        if self._remaining or self._partial_record is not None:
            raise MalformedRecord(f"{self._remaining} records are missing")

    def _parse_whole_records(self, out: list[RecordSummary]) -> None:
        data, at, end = self._data, self._at, len(self._data)
        while self._remaining:
            try:
                size, body = read_varint(data, at)
            except IndexError:
                break  # its size field is incomplete
            if size < MIN_RECORD_BYTES - 1:
                raise MalformedRecord(f"a record of {size} bytes")
            if body + size > end:
                self._partial_record, self._stop, self._at = self._parse_partial_record(), size, body
                self._remaining -= 1
                self._resume_partial_record(out)
                return
            try:
                out.append(_parse_record(data, body, body + size))
            except IndexError:
                raise MalformedRecord("a record ends behind its batch") from None
            at = body + size
            self._remaining -= 1
        self._at = at

    def _resume_partial_record(self, out: list[RecordSummary]) -> None:
        assert self._partial_record is not None
        try:
            next(self._partial_record)
        except StopIteration as done:
            out.append(done.value)
            self._partial_record = None

    def _parse_partial_record(self) -> Generator[None, None, RecordSummary]:
        """Parse a long record and return its summary; yield whenever the next piece of the data is needed."""
        yield from self._skip(1)
        time_delta = yield from self._read_number(read_varlong)
        yield from self._read_number()
        key_bytes = yield from self._read_number()
        yield from self._skip(_checked_size(key_bytes, self._stop))
        value_bytes = yield from self._read_number()
        yield from self._skip(_checked_size(value_bytes, self._stop))
        count = yield from self._read_number()
        if count < 0 or count * 2 > self._stop:
            raise MalformedRecord(f"{count} headers in {self._stop} bytes")
        while count:
            stop = self._at + self._stop
            at, count = _skip_headers(self._data, self._at, min(len(self._data), stop), stop, count)
            self._stop -= at - self._at
            self._at = at
            if count:  # a header that extends into the next piece
                size = yield from self._read_number()
                yield from self._skip(_checked_size(size, self._stop, or_none=False))
                size = yield from self._read_number()
                yield from self._skip(_checked_size(size, self._stop))
                count -= 1
        if self._stop:
            raise MalformedRecord(f"a record has {self._stop} bytes more than it fills")
        return RecordSummary(time_delta, key_bytes, value_bytes)

    def _read_number(self, read: _Read = read_varint) -> Generator[None, None, int]:
        while True:
            try:
                value, after = read(self._data, self._at)
            except IndexError:
                yield
                continue
            self._stop -= after - self._at
            self._at = after
            if self._stop < 0:
                raise MalformedRecord("a record ends inside a number")
            return value

    def _skip(self, count: int) -> Generator[None, None, None]:
        self._stop -= count
        while count > len(self._data) - self._at:
            count -= len(self._data) - self._at
            self._at = len(self._data)
            yield
        self._at += count
