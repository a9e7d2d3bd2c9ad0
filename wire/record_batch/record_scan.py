"""Fast scans of the records of a batch for log compaction: ranges, keys, offsets and timestamps, without `Record`s.

A record is: size, attributes, timestamp delta, offset delta, key size, key, value size, value, headers; all sizes and
deltas are zig-zag varints (``DefaultRecord.java``, apache/kafka 4.3.1).

Compaction runs two loops over every record of a log. Both parse the beginning of each record and differ in the use of
its key, so both are generated from one source, in which varints of one or two bytes are read inline.

The bytes are untrusted: a producer's batch is appended unparsed. A size that is not positive or exceeds the batch
raises an error, so that a loop neither runs for ever nor reads a key beyond its record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

from ottla.wire.codec.primitives import read_varlong, write_varlong
from ottla.wire.errors import WireError

MAX_INLINE_KEY_BYTES = 31
DIGEST_BYTES = 32
RECORDS_AT_ONCE = 100_000
"""Maximum number of record ranges in memory: a small compressed batch may have twenty million records."""
RecordRange = tuple[int, int]
"""Start and end position (exclusive) of a record in the decompressed records of its batch."""


def compact_key(key: bytes) -> bytes:
    """Return a record key as the offset map stores it: unchanged up to 31 bytes, else its 32-byte BLAKE2b digest."""
    return key if len(key) <= MAX_INLINE_KEY_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()


def _misfit_error(at: int, size: int) -> WireError:
    return WireError(f"a record at byte {at} does not fit the {size} bytes of its batch")


_KEY_LOOP = """
def loop(data, at, count, base_offset, {parameters}):
    {setup}
    try:
        for _ in range(count):
            start = at
            size = data[at]
            if size < 128:
                stop = at + 1 + (size >> 1)
                at += 2
            elif data[at + 1] < 128:
                stop = at + 2 + ((size & 127 | data[at + 1] << 7) >> 1)
                at += 3
            else:
                size, at = read_varlong(data, at)
                stop = at + size
                at += 1
            while data[at] > 127:  # the timestamp delta
                at += 1
            delta = data[at + 1]
            if delta < 128:
                delta >>= 1
                at += 2
            elif data[at + 2] < 128:
                delta = (delta & 127 | data[at + 2] << 7) >> 1
                at += 3
            else:
                delta, at = read_varlong(data, at + 1)
            offset = base_offset + delta
            size = data[at]
            if size < 64 and size & 1 == 0:
                at += 1
                end = at + (size >> 1)
                if end >= stop:
                    raise misfit_error(start, len(data))
                key = data[at:end]
            else:
                size, at = read_varlong(data, at)
                end = at + max(size, 0)
                if end >= stop:
                    raise misfit_error(start, len(data))
                key = compact_key(data[at:end]) if size >= 0 else None
            {use}
            at = stop
    except IndexError:
        raise misfit_error(len(data), len(data)) from None
    return {result}
"""
_RECORD_LAST_OFFSET = """
            if offset >= first_offset and key is not None:
                offsets[key] = offset
"""
# A value size of -1 (null) is the byte 0x01.
_RETAIN_RECORD = """
            if offset > latest or key is not None and offset >= last_offset_of(key, -1):
                has_value = data[end] != 1
                if has_value or keep_deletes or offset > latest:
                    kept.append((start, stop))
                    tombstones |= not has_value
"""


def _generate_key_loop(parameters: str, setup: str, use: str, result: str) -> Callable[..., Any]:
    source = _KEY_LOOP.format(parameters=parameters, setup=setup, use=use.strip(), result=result)
    names: dict[str, Any] = {"read_varlong": read_varlong, "compact_key": compact_key, "misfit_error": _misfit_error}
    exec(compile(source, f"<{__name__}>", "exec"), names)  # noqa: S102 - the source is above
    loop: Callable[..., Any] = names["loop"]
    return loop


_record_last_offsets: Callable[[bytes, int, int, int, int, dict[bytes, int]], int] = _generate_key_loop(
    "first_offset, offsets", "", _RECORD_LAST_OFFSET, "at"
)
_retained_records: Callable[
    [bytes, int, int, int, Callable[[bytes, int], int], int, bool], tuple[list[RecordRange], bool, int]
] = _generate_key_loop(
    "last_offset_of, latest, keep_deletes", "kept, tombstones = [], False", _RETAIN_RECORD, "kept, tombstones, at"
)


def record_last_offsets(
    data: bytes, count: int, base_offset: int, first_offset: int, offsets: dict[bytes, int]
) -> None:
    """Set ``offsets`` of each key in the ``count`` records ``data`` to the offset of its last record.

    Keys are stored as `compact_key` returns them. Records below ``first_offset``, and those without a key, are skipped.

    Raises:
        WireError: a record is malformed or exceeds the batch.
    """
    at = _record_last_offsets(data, 0, count, base_offset, first_offset, offsets)
    if at != len(data):
        raise _misfit_error(at, len(data))


def retained_records(
    data: bytes, count: int, base_offset: int, offsets: dict[bytes, int], latest: int, *, keep_deletes: bool
) -> Iterator[tuple[list[RecordRange], bool]]:
    """Yield (ranges of records that compaction retains, whether one is a tombstone) for each `RECORDS_AT_ONCE` records.

    Retained are records above offset ``latest``, and records with a key that has no later offset in ``offsets`` (see
    `record_last_offsets`), except tombstones if ``keep_deletes`` is False. ``base_offset``: that of the batch.

    Raises:
        WireError: a record is malformed or exceeds the batch.
    """
    at = 0
    while True:
        some = min(count, RECORDS_AT_ONCE)
        count -= some
        kept, tombstones, at = _retained_records(data, at, some, base_offset, offsets.get, latest, keep_deletes)
        if count <= 0 and at != len(data):
            raise _misfit_error(at, len(data))
        yield kept, tombstones
        if count <= 0:
            return


def record_ranges(data: bytes, count: int) -> list[RecordRange]:
    """Return start and end position of each of the ``count`` records in ``data``; bytes after them are not checked.

    Raises:
        WireError, IndexError: a size is not positive, exceeds ``data``, or is cut off.
    """
    out, at = [], 0
    for _ in range(count):
        if at >= len(data):
            raise _misfit_error(at, len(data))
        size, body = read_varlong(data, at)
        if size <= 0 or body + size > len(data):
            raise _misfit_error(at, len(data))
        out.append((at, body + size))
        at = body + size
    return out


def iterate_keys(data: bytes, count: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield (offset delta, key) of each of the ``count`` records in ``data``; the key in full, None for null.

    Raises:
        WireError: a record is malformed or exceeds the batch.
    """
    at = 0
    try:
        for _ in range(count):
            size, head = read_varlong(data, at)
            stop = head + size
            _, here = read_varlong(data, head + 1)
            delta, here = read_varlong(data, here)
            length, here = read_varlong(data, here)
            if size <= 0 or here + max(length, 0) >= stop:
                raise _misfit_error(at, len(data))
            yield delta, data[here : here + length] if length >= 0 else None
            at = stop
    except IndexError:
        raise _misfit_error(at, len(data)) from None
    if at != len(data):
        raise _misfit_error(at, len(data))


def read_timestamp_delta(data: bytes, place: RecordRange) -> tuple[int, int, int]:
    """Return the timestamp delta (ms) of the record at ``place``, the position of its attributes, and the delta's end.

    The attributes are the byte before the delta.

    Raises:
        WireError, IndexError: the delta is malformed or cut off.
    """
    _, head = read_varlong(data, place[0])
    delta, after = read_varlong(data, head + 1)
    return delta, head, after


def shift_timestamp_delta(data: bytes, place: RecordRange, shift: int) -> bytes:
    """Return the bytes of the record at ``place`` with ``shift`` (ms) added to its timestamp delta."""
    delta, head, after = read_timestamp_delta(data, place)
    inner = data[head : head + 1] + write_varlong(delta + shift) + data[after : place[1]]
    return write_varlong(len(inner)) + inner
