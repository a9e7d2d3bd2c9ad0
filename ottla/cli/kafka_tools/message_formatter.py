"""Formatter of records for ``kafka-console-consumer.sh``.

Source: ``DefaultMessageFormatter`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

from ottla.cli.kafka_tools.line_message_reader import is_true
from ottla.cli.kafka_tools.quota_configs import java_double
from ottla.cli.kafka_tools.tool_options import ToolFailed
from ottla.wire.record_batch.records import Record

DEFAULT, NO_OP = "org.apache.kafka.tools.consumer.DefaultMessageFormatter", "NoOpMessageFormatter"
FORMATTERS = (DEFAULT, f"org.apache.kafka.tools.consumer.{NO_OP}")
_PACKAGE = "org.apache.kafka.common.serialization"
_SEPARATORS = {
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
}
_UUID = re.compile(rb"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
Deserializer = Callable[[bytes], bytes]


def _number(name: str, code: str) -> Deserializer:
    size = struct.calcsize(f">{code}")

    def convert(raw: bytes) -> bytes:
        if len(raw) != size:
            raise ToolFailed(
                "org.apache.kafka.common.errors.SerializationException: "
                f"Size of data received by {name}Deserializer is not {size}"
            )
        value = struct.unpack(f">{code}", raw)[0]
        return (java_double(value) if code == "d" else str(value)).encode()

    return convert


def _text(raw: bytes) -> bytes:
    return raw.decode(errors="replace").encode()


def _uuid(raw: bytes) -> bytes:
    if not _UUID.fullmatch(raw):
        text = "org.apache.kafka.common.errors.SerializationException: Error parsing data into UUID"
        raise ToolFailed(text)
    return raw.lower()


def _boolean(raw: bytes) -> bytes:
    if raw not in (b"\x00", b"\x01"):
        text = "Unexpected byte received by BooleanDeserializer"
        raise ToolFailed(f"org.apache.kafka.common.errors.SerializationException: {text}")
    return b"true" if raw == b"\x01" else b"false"


DESERIALIZERS: Mapping[str, Deserializer] = {
    "StringDeserializer": _text,
    "IntegerDeserializer": _number("Integer", "i"),
    "LongDeserializer": _number("Long", "q"),
    "ShortDeserializer": _number("Short", "h"),
    "DoubleDeserializer": _number("Double", "d"),
    "UUIDDeserializer": _uuid,
    "BooleanDeserializer": _boolean,
}
"""Deserializers that are supported, by their names in the package ``org.apache.kafka.common.serialization``."""


def _deserializer(properties: Mapping[str, str], name: str) -> Deserializer | None:
    """Return the deserializer that property ``name`` selects; None if the property is absent.

    Raises:
        ToolFailed: it is not one of `DESERIALIZERS`.
    """
    class_name = properties.get(name)
    if class_name is None:
        return None
    found = DESERIALIZERS.get(class_name.removeprefix(f"{_PACKAGE}."))
    if found is None:
        known = ", ".join(DESERIALIZERS)
        raise ToolFailed(f"{name} is not supported: {class_name} (supported: {known} of {_PACKAGE})")
    return found


class MessageFormatter:
    """Formatter of consumed records; ``properties`` are those of the options and of the formatter's file.

    Raises:
        ToolFailed: a deserializer is not supported.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        def is_set(name: str, default: str = "false") -> bool:
            return is_true(properties.get(f"print.{name}", default))

        self._timestamp, self._partition, self._offset = is_set("timestamp"), is_set("partition"), is_set("offset")
        self._delivery, self._epoch, self._headers = is_set("delivery"), is_set("epoch"), is_set("headers")
        self._key, self._value = is_set("key"), is_set("value", "true")
        texts = {name: properties.get(name, default).encode() for name, default in _SEPARATORS.items()}
        self._column, self._line = texts["key.separator"], texts["line.separator"]
        self._header_separator, self._null = texts["headers.separator"], texts["null.literal"]
        self._key_deserializer = _deserializer(properties, "key.deserializer")
        self._value_deserializer = _deserializer(properties, "value.deserializer")
        self._header_deserializer = _deserializer(properties, "headers.deserializer")

    def _formatted(self, deserializer: Deserializer | None, raw: bytes | None) -> bytes:
        value = self._null if raw is None else raw
        return value if deserializer is None else deserializer(value)

    def _header_text(self, headers: tuple[tuple[str, Any], ...]) -> bytes:
        if not headers:
            return b"NO_HEADERS"
        return self._header_separator.join(
            name.encode() + b":" + self._formatted(self._header_deserializer, value) for name, value in headers
        )

    def format(self, partition: int, record: Record, *, has_append_time: bool) -> bytes:
        """Return the output for a record of ``partition``, with its line separator; empty if nothing is to be printed.

        ``has_append_time``: the record's timestamp is the log append time.

        Raises:
            ToolFailed: a deserializer rejects the key, the value or a header.
        """
        kind = "LogAppendTime" if has_append_time else "CreateTime"
        time = f"{kind}:{record.timestamp_ms}" if has_append_time or record.timestamp_ms >= 0 else "NO_TIMESTAMP"
        columns = [
            *[time.encode()] * self._timestamp,
            *[b"Partition:%d" % partition] * self._partition,
            *[b"Offset:%d" % record.offset] * self._offset,
            *[b"Delivery:NOT_PRESENT"] * self._delivery,
            *[b"Epoch:NOT_PRESENT"] * self._epoch,
            *([self._header_text(record.headers)] if self._headers else ()),
            *([self._formatted(self._key_deserializer, record.key)] if self._key else ()),
            *([self._formatted(self._value_deserializer, record.value)] if self._value else ()),
        ]
        return self._column.join(columns) + self._line if columns else b""
