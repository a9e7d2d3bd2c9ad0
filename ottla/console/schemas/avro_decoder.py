"""Decoder of Avro values by fastavro.

fastavro decodes a value in one step and by recursion in C. So its schema is measured first: the number of values that a
byte may describe, and recursion, limit the size of the values that are decoded.

Source: Avro 1.12 specification, binary encoding.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.console.schemas.value_decoder import (
    MAX_DECODED_BYTES,
    MAX_DECODED_VALUES,
    InvalidSchema,
    UndecodableValue,
    check_size,
)
from ottla.jobs.job import Job

MAX_RECURSIVE_BYTES = 1024
"""Bytes of a value of a recursive schema: each may begin a level, and C has a stack of fixed size."""
MAX_SCHEMA_NODES = 5_000
_WRAPPER, _FIELD = "OttlaConsoleValue", "value"
"""Record around each value, with one field: fastavro keeps referenced types only for records. It adds no bytes."""
_SIZES = {"null": 0, "float": 4, "double": 8}


class _Extent(NamedTuple):
    """Minimum size of an encoded value in bytes, and the number of values in an encoding of that size."""

    least_bytes: int
    values: int


class _Measure:
    """Measure of a schema: the most values that a byte may describe, and whether the schema is recursive."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._extents: dict[str, _Extent] = {}
        self._open: set[str] = set()
        self.values_per_byte = 1.0
        self.is_recursive = False
        self._nodes = 0

    def measure(self, schema: Any, direct: frozenset[str] = frozenset()) -> _Extent:
        """Return the extent of a schema that fastavro has parsed.

        ``direct``: names of the records around it without a union, array or map in between.

        Raises:
            InvalidSchema: values of the schema have no end, or arrays have elements without bytes.
        """
        self._nodes += 1
        if self._nodes > MAX_SCHEMA_NODES:
            raise InvalidSchema(f"more than {MAX_SCHEMA_NODES:,} parts")
        if isinstance(schema, list):
            for branch in schema:
                found = self.measure(branch)
                self._repeat(_Extent(found.least_bytes + 1, found.values))
            return _Extent(1, 1)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.measure(kind, direct)
        if kind in ("array", "map"):
            item = self.measure(schema["items" if kind == "array" else "values"])
            if kind == "array" and not item.least_bytes:
                raise InvalidSchema("an array whose elements have no bytes")
            self._repeat(item)
            return _Extent(1, 1)
        if kind in ("record", "error"):
            return self._record(schema, direct)
        if kind == "fixed":
            if schema["size"] < 0:
                raise InvalidSchema("a fixed type of a negative size")
            return _Extent(schema["size"], 1)
        if kind in self._named:
            return self._named_type(kind, direct)
        return _Extent(_SIZES.get(kind, 1), 1)

    def _named_type(self, name: str, direct: frozenset[str]) -> _Extent:
        if name in direct:
            raise InvalidSchema("a value of the schema contains itself without an end")
        if name in self._open:
            self.is_recursive = True
            return _Extent(1, 1)  # the union, array or map through which it contains itself has a byte
        return self._extents[name] if name in self._extents else self.measure(self._named[name], direct)

    def _record(self, schema: Any, direct: frozenset[str]) -> _Extent:
        name, was_recursive = schema["name"], self.is_recursive
        self.is_recursive = False
        self._open.add(name)
        extents = [self.measure(field["type"], direct | {name}) for field in schema["fields"]]
        self._open.discard(name)
        found = _Extent(sum(each.least_bytes for each in extents), 1 + sum(each.values for each in extents))
        if self.is_recursive:
            self._repeat(found)
        else:
            self._extents[name] = found
        self.is_recursive |= was_recursive
        return found

    def _repeat(self, extent: _Extent) -> None:
        self.values_per_byte = max(self.values_per_byte, extent.values / max(extent.least_bytes, 1))


def _without_logical_types(schema: Any) -> Any:
    """Return a schema without logical types: their conversion to Python objects may fail or take long."""
    if isinstance(schema, dict):
        return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return [_without_logical_types(each) for each in schema] if isinstance(schema, list) else schema


class AvroDecoder:
    """Decoder of the values of an Avro schema."""

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        """Parse a schema; ``references`` are those of the named types that it uses, by name, in order.

        Raises:
            InvalidSchema: the schema is malformed. ModuleNotFoundError: fastavro is not installed.
        """
        # lazy: 12.0 ms, 737 kB: few nodes have schemas
        import fastavro

        named: dict[str, Any] = {}
        try:
            for reference in (references or {}).values():
                fastavro.parse_schema(_without_logical_types(json.loads(reference)), named)
            field = {"name": _FIELD, "type": _without_logical_types(json.loads(text))}
            wrapper = {"type": "record", "name": _WRAPPER, "fields": [field]}
            parsed: Any = fastavro.parse_schema(wrapper, named)
            measure = _Measure(named)
            extent = measure.measure(parsed)
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
            raise InvalidSchema(f"not an Avro schema: {_first_line(error)}") from None
        except fastavro.schema.SchemaParseException as error:
            raise InvalidSchema(f"not an Avro schema: {_first_line(error)}") from None
        if extent.values > MAX_DECODED_VALUES:
            raise InvalidSchema(f"values of more than {MAX_DECODED_VALUES:,} parts")
        self._schema: Any = parsed
        self._read: Any = fastavro.schemaless_reader
        most = int(MAX_DECODED_VALUES / measure.values_per_byte)
        self._most_bytes = min(most, MAX_RECURSIVE_BYTES if measure.is_recursive else MAX_DECODED_BYTES)
        self.name = f"Avro {_type_name(parsed['fields'][0]['type'])}"

    def decode(self, raw: bytes, position: int) -> Job[Any]:
        """Return the value in ``raw[position:]``, as a job.

        Raises:
            UndecodableValue: the bytes are not exactly one value of the schema, or ``raw`` is larger than the limit.
        """
        yield None
        check_size(raw, self._most_bytes)
        stream = io.BytesIO(raw)
        stream.seek(position)
        try:
            value: Any = self._read(stream, self._schema, None)
        except Exception as error:  # noqa: BLE001,RUF100 - fastavro raises what its steps raise
            raise UndecodableValue(f"not a value of {self.name}: {_first_line(error)}") from None
        if stream.tell() != len(raw):
            raise UndecodableValue(f"not a value of {self.name}: {len(raw) - stream.tell()} bytes are left over")
        return value[_FIELD]


def _type_name(schema: Any) -> str:
    """Return the name of a type, such as ``shop.Order`` or ``array``."""
    if isinstance(schema, list):
        return "union"
    if not isinstance(schema, dict):
        return str(schema)
    return str(schema["name"]) if "name" in schema else _type_name(schema["type"])


def _first_line(error: Exception) -> str:
    text = str(error).partition("\n")[0][:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
