"""Format strings of records, such as ``'%k %v %h'``, as in kcat, with ``%v`` for the value too."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from base64 import b64encode
from collections.abc import Callable

from ottla.wire.record_batch.records import Record

Conversion = Callable[[str, int, Record], bytes]
"""Function that returns the bytes to print for a topic, partition number and record."""
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PART = re.compile(r"%(.)|\\(.)|([^%\\]+)|(.)", re.DOTALL)


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _headers(topic: str, partition: int, record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)


CONVERSIONS: dict[str, tuple[Conversion, str]] = {
    "t": (lambda topic, _, __: topic.encode(), "topic"),
    "p": (lambda _, number, __: b"%d" % number, "partition"),
    "o": (lambda _, __, record: b"%d" % record.offset, "offset"),
    "k": (lambda _, __, record: record.key or b"", "key"),
    "v": (lambda _, __, record: record.value or b"", "value (also %s)"),
    "s": (lambda _, __, record: record.value or b"", "value"),
    "h": (_headers, "headers, name=value, separated by commas"),
    "T": (lambda _, __, record: b"%d" % record.timestamp_ms, "timestamp in milliseconds since 1970"),
    "K": (lambda _, __, record: _size(record.key), "size of the key in bytes, -1 for none"),
    "S": (lambda _, __, record: _size(record.value), "size of the value in bytes, -1 for a null value"),
    "b": (lambda _, __, record: b64encode(record.value or b""), "value as base64"),
    "%": (lambda _, __, ___: b"%", "a percent sign"),
}


def parse_record_format(text: str) -> list[bytes | Conversion]:
    """Argument type: parse a format string such as ``'%k %v'`` into literal bytes and conversions.

    Raises:
        ArgumentTypeError: unknown conversion or escape, or an incomplete one at the end.
    """
    out: list[bytes | Conversion] = []
    for conversion, escape, plain, rest in _PART.findall(text):
        if conversion:
            if conversion not in CONVERSIONS:
                raise ArgumentTypeError(f"unknown conversion: %{conversion} (known: %{' %'.join(CONVERSIONS)})")
            out.append(CONVERSIONS[conversion][0])
        elif escape:
            if escape not in _ESCAPES:
                raise ArgumentTypeError(f"unknown escape: \\{escape} (known: \\n \\t \\r \\0 \\\\)")
            out.append(_ESCAPES[escape])
        elif rest:
            raise ArgumentTypeError(f"{rest} at the end of the format: write {rest}{rest}")
        else:
            out.append(plain.encode("utf-8", "surrogateescape"))
    return out


def format_record(parts: list[bytes | Conversion], topic: str, partition: int, record: Record) -> bytes:
    """Return the bytes to print for a record of a partition; ``parts`` is the result of `parse_record_format`."""
    return b"".join(part if isinstance(part, bytes) else part(topic, partition, record) for part in parts)
