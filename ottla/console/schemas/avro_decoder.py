"""Decoder of Avro values by fastavro.

fastavro decodes a value in one step and by recursion in C. So its schema is measured first: how many values, and how
many levels of nested values, a byte may describe. That limits the size of the values that are decoded.

Source: Avro 1.12 specification, binary encoding.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

from ottla.console.schemas.value_decoder import (
    MAX_DECODED_BYTES,
    MAX_DECODED_VALUES,
    InvalidSchema,
    UndecodableValue,
    check_size,
)
from ottla.jobs.job import Job

MAX_LEVELS = 2048
"""Most values within each other, of a recursive schema: fastavro takes about 750 bytes of the C stack for each."""
MAX_SCHEMA_NODES = 5_000
MAX_SCHEMA_OBJECTS = 10_000
"""Objects and lists in the JSON of a schema and its references: fastavro parses each text without yielding."""
_KEYS = frozenset({"type", "name", "namespace", "fields", "items", "values", "symbols", "size"})
"""Attributes of a schema that say how its values are encoded.

The conversion of logical types may fail or take long, fastavro rejects defaults that Avro permits, and its own
attributes make it believe that it has parsed a schema.
"""
_WRAPPER, _FIELD = "OttlaConsoleValue", "value"
"""Record around each value, with one field: fastavro keeps referenced types only for records. It adds no bytes."""
_SIZES = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
"""Minimum sizes of primitive types in bytes."""


class _Extent(NamedTuple):
    """Minimum size of an encoded value in bytes, and the number of values in an encoding of that size."""

    least_bytes: int
    values: int


class _Measure:
    """Measure of a schema: the most values, and levels of values, that a number of bytes may describe."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._extents: dict[str, _Extent] = {}
        self._open: set[str] = set()
        self._direct: dict[str, set[str]] = {}
        self._values_per_byte = 1
        self._is_recursive = False
        self._nodes = 0

    def most_bytes(self) -> int:
        """Return the largest size in bytes of an encoded value that cannot exceed `MAX_DECODED_VALUES` or `MAX_LEVELS`.

        `measure` must have been called with the whole schema.

        Values of a schema that is not recursive have fewer levels than the schema has nodes. In others, unions, arrays
        and maps have a byte of their own; of records within each other without one of these in between there are at
        most as many as on the longest path over `_direct`.
        """
        most = min(MAX_DECODED_VALUES // self._values_per_byte, MAX_DECODED_BYTES)
        if not self._is_recursive:
            return most
        path: dict[str, int] = {}
        for name in TopologicalSorter(self._direct).static_order():
            path[name] = 1 + max((path[each] for each in self._direct.get(name, ())), default=0)
        return min(most, MAX_LEVELS // (1 + max(path.values(), default=1)))

    def measure(self, schema: Any, direct: tuple[str, ...] = ()) -> _Extent:
        """Return the extent of a schema that fastavro has parsed, and add it to what `most_bytes` is computed from.

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
                self._repeat(found.least_bytes + 1, found.values + 1)  # with the union itself
            return _Extent(1, 1)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in ("array", "map"):
            found = self.measure(schema["items" if kind == "array" else "values"])
            if kind == "array" and not found.least_bytes:
                raise InvalidSchema("an array whose elements have no bytes")
            key_bytes, key_values = (0, 0) if kind == "array" else (1, 2)  # an entry with its key
            self._repeat(found.least_bytes + key_bytes, found.values + key_values)
            return _Extent(1, 1)
        if kind in ("record", "error"):
            return self._record(schema, direct)
        if kind == "fixed":
            if schema["size"] < 0:
                raise InvalidSchema("a fixed type of a negative size")
            return _Extent(schema["size"], 1)
        if kind == "enum":
            return _Extent(1, 1)
        return _Extent(_SIZES[kind], 1) if kind in _SIZES else self._named_type(kind, direct)

    def _named_type(self, name: str, direct: tuple[str, ...]) -> _Extent:
        if name in direct:
            raise InvalidSchema("a value of the schema contains itself without an end")
        if name in self._open:
            self._is_recursive = True
            self._add_direct(name, direct)
            return _Extent(1, 1)  # the union, array or map through which it contains itself has a byte
        if name not in self._extents:
            return self.measure(self._named[name], direct)
        self._add_direct(name, direct)
        return self._extents[name]

    def _record(self, schema: Any, direct: tuple[str, ...]) -> _Extent:
        name, was_recursive = schema["name"], self._is_recursive
        if self._named[name]["fields"] is not schema["fields"]:
            raise InvalidSchema(f"two types with the name {name}")
        self._add_direct(name, direct)
        self._is_recursive = False
        self._open.add(name)
        extents = [self.measure(field["type"], (*direct, name)) for field in schema["fields"]]
        self._open.discard(name)
        found = _Extent(sum(each.least_bytes for each in extents), 1 + sum(each.values for each in extents))
        if found.values > MAX_DECODED_VALUES:
            raise InvalidSchema(f"values of more than {MAX_DECODED_VALUES:,} parts")
        if self._is_recursive:
            self._repeat(found.least_bytes, found.values)
        else:
            self._extents[name] = found
        self._is_recursive |= was_recursive
        return found

    def _add_direct(self, name: str, direct: tuple[str, ...]) -> None:
        if direct and direct[-1] != _WRAPPER:
            self._direct.setdefault(direct[-1], set()).add(name)

    def _repeat(self, least_bytes: int, values: int) -> None:
        self._values_per_byte = max(self._values_per_byte, -(-values // max(least_bytes, 1)))


def _simplify(schema: Any, left: Iterator[int]) -> Any:
    """Return a schema with only the `_KEYS`; ``left`` has an item for each object or list that it may still have.

    Raises:
        InvalidSchema: it has more.
    """
    if not isinstance(schema, dict | list):
        return schema
    if next(left, None) is None:
        raise InvalidSchema(f"more than {MAX_SCHEMA_OBJECTS:,} objects and lists")
    if isinstance(schema, dict):
        return {key: _simplify(value, left) for key, value in schema.items() if key in _KEYS}
    return [_simplify(each, left) for each in schema]


def build_avro_decoder(text: str, references: Mapping[str, str] | None = None) -> Job[AvroDecoder]:
    """Parse a schema in JSON and return its decoder, as a job.

    ``references``: schemas of the named types that it uses, by name; one that uses another comes after it.

    Raises:
        InvalidSchema: the schema is malformed or too large. ModuleNotFoundError: fastavro is not installed.
    """
    # lazy: 12.0 ms, 737 kB: few nodes have schemas
    import fastavro

    named: dict[str, Any] = {}
    left = iter(range(MAX_SCHEMA_OBJECTS))
    parsed: Any = None
    try:
        texts = [*(references or {}).values(), text]
        for number, each in enumerate(texts, 1):
            document = json.loads(each)
            yield None
            schema = _simplify(document, left)
            yield None
            if number == len(texts):
                schema = {"type": "record", "name": _WRAPPER, "fields": [{"name": _FIELD, "type": schema}]}
            parsed = fastavro.parse_schema(schema, named)
            yield None
        measure = _Measure(named)
        measure.measure(parsed)
        return AvroDecoder(parsed, measure.most_bytes())
    except fastavro.schema.SchemaParseException as error:
        raise InvalidSchema(f"not an Avro schema: {_first_line(error)}") from None
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise InvalidSchema(f"not an Avro schema: {_first_line(error)}") from None


class AvroDecoder:
    """Decoder of the values of an Avro schema."""

    def __init__(self, schema: Any, most_bytes: int) -> None:
        """Create a decoder; ``schema`` is a record around the value, as fastavro has parsed it.

        ``most_bytes``: largest key or value that is decoded.
        """
        # lazy: 12.0 ms, 737 kB: few nodes have schemas
        import fastavro

        self._schema = schema
        self._read: Any = fastavro.schemaless_reader
        self._most_bytes = most_bytes
        self.name = f"Avro {_type_name(schema['fields'][0]['type'])}"

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
