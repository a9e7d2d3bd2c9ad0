"""Decoder of index and producer snapshot files into their single fields, for the command ``ottla decode``."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.wire.codec.primitives import Buffer
from ottla.wire.field_dump import FieldSpan

_LAYOUTS: dict[str, tuple[int, tuple[tuple[str, int], ...]]] = {
    ".index": (0, (("relative_offset", 4), ("position", 4))),
    ".timeindex": (0, (("timestamp", 8), ("relative_offset", 4))),
    ".txnindex": (
        0,
        (("version", 2), ("producer_id", 8), ("first_offset", 8), ("last_offset", 8), ("last_stable_offset", 8)),
    ),
    ".snapshot": (
        10,
        (
            ("producer_id", 8),
            ("producer_epoch", 2),
            ("last_sequence", 4),
            ("last_offset", 8),
            ("offset_delta", 4),
            ("timestamp", 8),
            ("coordinator_epoch", 4),
            ("txn_first_offset", 8),
        ),
    ),
}


def file_spans(raw: Buffer, suffix: str) -> Iterator[FieldSpan] | None:
    """Return the fields (name, value and byte range) of an index or producer snapshot file, lazily.

    ``suffix``: of the file's name, as ``.index``; None is returned for a suffix without a known layout. Bytes after the
    last whole entry are one field "left over". Checksums are not verified.
    """
    layout = _LAYOUTS.get(suffix)
    return None if layout is None else _spans(raw, *layout)


def _spans(raw: Buffer, start: int, fields: tuple[tuple[str, int], ...]) -> Iterator[FieldSpan]:
    def number(at: int, size: int) -> int:
        return int.from_bytes(bytes(raw[at : at + size]), "big", signed=True)

    if start:
        for name, at, size in (("version", 0, 2), ("crc", 2, 4), ("count", 6, 4)):
            yield FieldSpan(at, at + size, name, number(at, size))
    row = sum(size for _, size in fields)
    at = start
    for index in range((len(raw) - start) // row):
        for name, size in fields:
            yield FieldSpan(at, at + size, f"entry[{index}].{name}", number(at, size))
            at += size
    if at < len(raw):
        yield FieldSpan(at, len(raw), "left over", "")
