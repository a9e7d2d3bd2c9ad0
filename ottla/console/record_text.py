"""Text forms of keys, values and headers of records."""

from __future__ import annotations

import json
from typing import Any

from ottla.jobs.job import Job

SHORT_CHARS = 500
"""Maximum number of characters of a value in a list of records."""
LONG_CHARS = 65_536
"""Text of a value on a page of its own."""
_JSON_BYTES = 65_536
_JSON_CHARS, _JSON_PIECES = 4 * 65_536, 12_000
"""Indented JSON: its text, and the names, values and brackets in it."""
_HEX_BYTES_PER_LINE = 16
_PIECES_PER_YIELD = 100
_DECODED_BLOB_BYTES = 1000


def shorten(text: str, limit: int) -> str:
    """Return a text cut to ``limit`` characters, with the length of the whole text appended if it was cut."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def format_bytes(raw: bytes | None, limit: int = SHORT_CHARS) -> str:
    """Return bytes as text of up to ``limit`` characters, or as hex digits if they are not UTF-8; ``null`` for None.

    A text that was cut ends with the number of all bytes. Characters that are not printable are replaced.
    """
    if raw is None:
        return "null"
    part = raw[: limit * 4]
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        if len(part) < len(raw) and error.start > len(part) - 4:
            text = part[: error.start].decode()
        else:
            return format_raw(raw, limit)
    shown = "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text[:limit])
    return shown if len(text) <= limit and len(part) == len(raw) else f"{shown}… ({len(raw):,} bytes)"


def format_json(raw: bytes | None) -> str | None:
    """Return JSON indented; None for other bytes, for a scalar, or if it exceeds the limits of this module."""
    if raw is None or len(raw) > _JSON_BYTES:
        return None
    out, size = [], 0
    try:
        value = json.loads(raw)
        if not isinstance(value, dict | list):
            return None
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
            out.append(piece)
            size += len(piece)
            if size > _JSON_CHARS or len(out) > _JSON_PIECES:
                return None
    except (ValueError, RecursionError):
        return None
    return "".join(out)


def format_hex(raw: bytes | None, limit: int = 4096) -> str:
    """Return a hex dump of at most ``limit`` bytes: position, digits and characters in each line; empty for None."""
    lines = []
    for at in range(0, min(len(raw or b""), limit), _HEX_BYTES_PER_LINE):
        row = (raw or b"")[at : at + _HEX_BYTES_PER_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:06x}  {row.hex(' '):<47}  {text}")
    return "\n".join(lines)


def format_raw(raw: bytes, limit: int = SHORT_CHARS) -> str:
    """Return bytes as hexadecimal digits of up to ``limit`` characters, and the number of all bytes."""
    return f"{raw[: limit // 2].hex()}{'…' if len(raw) > limit // 2 else ''} ({len(raw):,} bytes)"


def format_decoded(value: Any, limit: int, indent: int | None = None) -> Job[str]:
    """Return a value decoded by a schema as JSON of about ``limit`` characters, as a job.

    Bytes become hexadecimal digits. A value that is nested too deeply becomes a sentence that states it.
    """
    out: list[str] = []
    size = 0
    try:
        for piece in json.JSONEncoder(indent=indent, ensure_ascii=False, default=_format_scalar).iterencode(value):
            out.append(piece)
            size += len(piece)
            if size > limit:
                return shorten("".join(out), limit)
            if len(out) % _PIECES_PER_YIELD == 0:
                yield None
    except RecursionError:
        return "The value is nested too deeply to be shown."
    return "".join(out)


def _format_scalar(value: object) -> str:
    return f"0x{format_raw(value, 2 * _DECODED_BLOB_BYTES)}" if isinstance(value, bytes) else str(value)
