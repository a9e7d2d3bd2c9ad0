"""The two loops compaction spends its time in: once and again over every record of a batch, no further than its key.

They are written out, numbers of one or two bytes without a call, because a pass over a log runs them for each record.
A record is: size, attributes, timestamp delta, offset delta, key size, key, value size, value, headers; all sizes and
deltas are zig-zag numbers (``DefaultRecord.java``, apache/kafka 4.3.1).

What lies on disk may be any bytes at all: a producer's batch is appended unparsed. A size that leads nowhere forward or
out of the batch ends the loop as damage, so that it neither runs for ever nor takes the next record's bytes for a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from ottla.wire.codec.primitives import read_varlong
from ottla.wire.errors import WireError

MAX_INLINE_KEY_BYTES = 31
DIGEST_BYTES = 32
RECORDS_AT_ONCE = 100_000
"""Of so many records of a batch it is noted where they lie: a small one may hold twenty million."""
_NEVER = 1 << 62
RecordRange = tuple[int, int]
"""Where a record begins and ends in its batch's uncompressed bytes."""


def compact_key(key: bytes) -> bytes:
    """A key as it is remembered: itself, or where it is longer than 31 bytes its digest of 32."""
    return key if len(key) <= MAX_INLINE_KEY_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()


def _misfit_error(at: int, size: int) -> WireError:
    return WireError(f"a record at byte {at} does not fit the {size} bytes of its batch")


def record_ranges(data: bytes, count: int) -> list[RecordRange]:
    """Where each record lies.

    Raises:
        WireError: a record does not fit.
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
    """Offset delta and key of each record, one after another; nothing is made of what lies behind the key.

    Raises:
        WireError: a record does not fit.
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


def record_last_offsets(
    data: bytes, count: int, base_offset: int, first_offset: int, offsets: dict[bytes, int]
) -> None:
    """Note the last offset of each key, from ``first_offset`` on.

    Raises:
        WireError: a record does not fit.
    """
    at = 0
    try:
        for _ in range(count):
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
            length = data[at]
            if length < 64:  # and even: a length below 32
                end = at + 1 + (length >> 1)
                if end >= stop:
                    raise _misfit_error(at, len(data))
                if length & 1 == 0 and base_offset + delta >= first_offset:
                    offsets[data[at + 1 : end]] = base_offset + delta
            else:
                length, at = read_varlong(data, at)
                end = at + max(length, 0)
                if end >= stop:
                    raise _misfit_error(at, len(data))
                if length >= 0 and base_offset + delta >= first_offset:
                    offsets[compact_key(data[at:end])] = base_offset + delta
            at = stop
    except IndexError:
        raise _misfit_error(len(data), len(data)) from None
    if at != len(data):
        raise _misfit_error(at, len(data))


def retained_records(
    data: bytes, count: int, base_offset: int, offsets: dict[bytes, int], latest: int, *, keep_deletes: bool
) -> Iterator[tuple[list[RecordRange], bool]]:
    """The records that stay, and whether one of them is a tombstone: of some after others, of all where they are few.

    A record stays that lies behind ``latest``, or whose key was not seen again, unless it has no key, or no value and
    its time is over.

    Raises:
        WireError: a record does not fit.
    """
    at = 0
    while True:
        some = min(count, RECORDS_AT_ONCE)
        count -= some
        kept, tombstones, at = _retained_records(
            data, at, some, base_offset, offsets, latest, keep_deletes=keep_deletes
        )
        if count <= 0 and at != len(data):
            raise _misfit_error(at, len(data))
        yield kept, tombstones
        if count <= 0:
            return


def _retained_records(
    data: bytes, at: int, count: int, base_offset: int, offsets: dict[bytes, int], latest: int, *, keep_deletes: bool
) -> tuple[list[RecordRange], bool, int]:
    """Of ``count`` records from ``at`` on; and where the next one begins."""
    kept: list[RecordRange] = []
    tombstones = False
    last_of = offsets.get
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
            length = data[at]
            if length < 64 and length & 1 == 0:
                at += 1
                end = at + (length >> 1)
                last = last_of(data[at:end], -1)
            else:
                length, at = read_varlong(data, at)
                end = at + max(length, 0)
                last = last_of(compact_key(data[at:end]), -1) if length >= 0 else _NEVER
            if end >= stop:
                raise _misfit_error(start, len(data))
            offset = base_offset + delta
            if offset >= last or offset > latest:
                has_value = data[end] != 1  # the value's length is -1 for none, which is one byte: 0x01
                if offset > latest or has_value or keep_deletes:
                    kept.append((start, stop))
                    tombstones |= not has_value
            at = stop
    except IndexError:
        raise _misfit_error(len(data), len(data)) from None
    return kept, tombstones, at
