"""Decoder of Protobuf messages by descriptor sets, as ``protoc --include_imports --descriptor_set_out`` writes them.

Source: ``google/protobuf/descriptor.proto``; message indexes of Confluent's wire format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from ottla.console.schemas.value_decoder import (
    MAX_DECODED_BYTES,
    MAX_DECODED_VALUES,
    InvalidSchema,
    UndecodableValue,
    check_size,
)
from ottla.jobs.job import Job
from ottla.wire.codec.primitives import read_varlong
from ottla.wire.errors import WireError

WELL_KNOWN = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        "any",
        "api",
        "descriptor",
        "duration",
        "empty",
        "field_mask",
        "source_context",
        "struct",
        "timestamp",
        "type",
        "wrappers",
    )
}
"""Modules of the library with the files that belong to it, by the names of the files."""
MAX_FILE_PARTS = 5_000
"""Message types, fields and values of enums in a file: the library builds a file without yielding."""
MAX_MESSAGE_MEMORY = 24 * 1024 * 1024
"""Bytes of memory for a decoded message.

The library allocates each nested message with memory for all fields of its type, also for a message of two bytes.
"""
_FIELD_MEMORY, _MESSAGE_MEMORY = 16, 192
"""Most bytes of memory for a field, and for a nested message without its fields."""
_NESTED_MESSAGE_BYTES = 2
"""Encoded bytes of an empty nested message: tag and size."""
_OPTIONAL, _REPEATED, _GROUP, _MESSAGE = 1, 3, 10, 11
"""Labels and types of fields, as numbers of ``FieldDescriptorProto``."""
_KEY_TYPES = frozenset({3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 18})
"""Types of the keys of maps: integers, bool and string."""
MAX_INDEXES = 16
"""Depth of a nested message type."""


def read_message_indexes(raw: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Return the message indexes at a position, and the position after them.

    They name a message type of a file: its index in the file, then that of the type nested in it, and so on. An empty
    list stands for the first type, and is returned as ``(0,)``.

    Raises:
        UndecodableValue: they are malformed.
    """
    view = memoryview(raw)
    try:
        count, position = read_varlong(view, position)
        if not 0 <= count <= MAX_INDEXES:
            raise UndecodableValue(f"malformed message indexes: {count} of them")
        out = []
        for _ in range(count):
            index, position = read_varlong(view, position)
            out.append(index)
    except (IndexError, WireError):
        raise UndecodableValue("malformed message indexes") from None
    return tuple(out) or (0,), position


def split_descriptor_set(raw: bytes) -> list[tuple[str, bytes]]:
    """Return name and encoded descriptor of each file of an encoded ``FileDescriptorSet``, in its order.

    Raises:
        InvalidSchema: the bytes are no such message. ModuleNotFoundError: protobuf is not installed.
    """
    # lazy: 0.4 ms, 4 kB: few nodes have schemas
    from google.protobuf import descriptor_pb2, message

    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(raw)
    except message.DecodeError:
        raise InvalidSchema("not a descriptor set") from None
    return [(file.name, file.SerializeToString()) for file in found.file]


class _Extent:
    """Number of parts of the files of a schema, and number of fields of their nested message types."""

    def __init__(self) -> None:
        self._fields: dict[str, int] = {}
        self._nested: set[str] = set()
        self._entries: set[str] = set()
        self._maps: Counter[str] = Counter()
        """Number of maps with entries of a type, less the fields of this type, by its name with that around it."""

    def add(self, file: Any) -> Job[None]:
        """Add the descriptor of a file, as a job.

        Raises:
            InvalidSchema: the file has more than `MAX_FILE_PARTS` parts, or a malformed map.
        """
        parts, pending = 0, [file]
        while pending:
            proto = pending.pop()
            is_file = proto is file
            types = proto.message_type if is_file else proto.nested_type
            fields = [*proto.extension, *(() if is_file else proto.field)]
            parts += len(fields) + len(types) + sum(len(enum.value) for enum in proto.enum_type)
            if parts > MAX_FILE_PARTS:
                raise InvalidSchema(f"{file.name}: more than {MAX_FILE_PARTS:,} message types, fields and enum values")
            for each in types:
                if each.options.map_entry:
                    _check_map_entry(each, () if is_file else proto.field)
                    self._entries.add(f"{proto.name}.{each.name}")
                    self._maps[f"{proto.name}.{each.name}"] += 1
            if not is_file:
                self._fields[proto.name] = max(len(proto.field), self._fields.get(proto.name, 0))
            self._nested.update(_simple_name(field.type_name) for field in fields if field.type_name)
            self._maps.subtract(".".join(field.type_name.split(".")[-2:]) for field in fields if field.type_name)
            pending += types
            yield None

    def most_bytes(self) -> int:
        """Return the largest size of a message, after all files were added, for which `MAX_MESSAGE_MEMORY` suffices.

        Raises:
            InvalidSchema: a field that is no map has the entry type of one.
        """
        for name in self._entries:
            if self._maps[name] < 0:
                raise InvalidSchema(f"entry type {name[:100]} of a map in another field")
        widest = max((self._fields.get(name, 0) for name in self._nested), default=0)
        memory = _MESSAGE_MEMORY + widest * _FIELD_MEMORY
        return min(MAX_DECODED_BYTES, _NESTED_MESSAGE_BYTES * MAX_MESSAGE_MEMORY // memory)


def _check_map_entry(entry: Any, fields: Iterable[Any]) -> None:
    """Check the entry type of a map as protoc writes it: the library trusts it, and another one ends the process.

    ``fields``: those of the message around it, one of which is the map.

    Raises:
        InvalidSchema: the type is malformed, or the message does not have the map.
    """
    key_value = [(field.number, field.name, field.label) for field in entry.field]
    maps = [field for field in fields if _simple_name(field.type_name) == entry.name]
    is_valid = (
        key_value == [(1, "key", _OPTIONAL), (2, "value", _OPTIONAL)]
        and entry.field[0].type in _KEY_TYPES
        and entry.field[1].type != _GROUP
        and not (entry.nested_type or entry.enum_type or entry.extension or entry.extension_range or entry.oneof_decl)
        and [(field.label, field.type) for field in maps] == [(_REPEATED, _MESSAGE)]
    )
    if not is_valid:
        raise InvalidSchema(f"malformed entry type {entry.name[:100]} of a map")


def _simple_name(name: str) -> str:
    """Return the last part of a type name: fields may name a type without its package."""
    return name.rpartition(".")[2]


def build_protobuf_schema(files: Iterable[tuple[str, bytes]]) -> Job[ProtobufSchema]:
    """Build and return the schema of encoded ``FileDescriptorProto`` messages, as a job; the last is the main file.

    ``files``: name by which other files import a file (if empty, its descriptor has the name), and encoded message.

    Raises:
        InvalidSchema: a file is malformed, too large or missing. ModuleNotFoundError: protobuf is not installed.
    """
    # lazy: 0.4 ms, 4 kB: few nodes have schemas
    from google.protobuf import descriptor_pb2, descriptor_pool, message

    pool: Any = descriptor_pool.DescriptorPool()
    protos: dict[str, Any] = {}
    main: Any = None
    extent = _Extent()
    try:
        for name, raw in files:
            main = descriptor_pb2.FileDescriptorProto.FromString(raw)
            main.name = name or main.name
            protos[main.name] = main
            yield from extent.add(main)
        if main is None:
            raise InvalidSchema("no file in the descriptor set")
        for proto in (*_well_known_files(protos), *protos.values()):
            pool.Add(proto)
            yield None
        pool.FindFileByName(main.name)
    except message.DecodeError:
        raise InvalidSchema("not a descriptor set") from None
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidSchema(f"not a complete descriptor set: {str(error).partition(chr(10))[0][:200]}") from None
    return ProtobufSchema(pool, main, extent.most_bytes())


class ProtobufSchema:
    """Main file of message types with the files that it imports; creates the decoders of the types."""

    def __init__(self, pool: Any, file: Any, most_bytes: int) -> None:
        """Create a schema; ``pool`` has the built message types, ``file`` is the descriptor of the main file.

        ``most_bytes``: largest key or value that is decoded.
        """
        self._pool = pool
        self._file = file
        self._most_bytes = most_bytes
        self._decoders: dict[str, ProtobufDecoder] = {}

    def decoder_by_indexes(self, indexes: tuple[int, ...]) -> ProtobufDecoder:
        """Return the decoder of the message type of the main file that message indexes name.

        Raises:
            UndecodableValue: there is no such type.
        """
        names, types = [], self._file.message_type
        for index in indexes:
            if not 0 <= index < len(types):
                raise UndecodableValue(f"the schema has no message type {'.'.join(map(str, indexes))}")
            names.append(types[index].name)
            types = types[index].nested_type
        package = [self._file.package] if self._file.package else []
        return self.decoder_by_name(".".join([*package, *names]))

    def decoder_by_name(self, name: str) -> ProtobufDecoder:
        """Return the decoder of a message type, which is created at the first call; an empty name: the first type.

        Raises:
            UndecodableValue: there is no such type.
        """
        if not name:
            return self.decoder_by_indexes((0,))
        if name not in self._decoders:
            try:
                descriptor = self._pool.FindMessageTypeByName(name)
            except (KeyError, ValueError):
                raise UndecodableValue(f"the schema has no message type {name}") from None
            if descriptor.GetOptions().map_entry:
                raise UndecodableValue(f"{name} is the entry type of a map")
            self._decoders[name] = ProtobufDecoder(name, descriptor, self._most_bytes)
        return self._decoders[name]


def _well_known_files(files: dict[str, Any]) -> Iterable[Any]:
    """Return the descriptors of the library's files that are imported, by others or by ``files``, and not in these.

    Imported files precede those that import them. ``files``: descriptors by the names of the files.
    """
    found: dict[str, Any] = {}
    for file in files.values():
        _add_well_known_files(file.dependency, files, found)
    return found.values()


def _add_well_known_files(names: Iterable[str], files: dict[str, Any], found: dict[str, Any]) -> None:
    """Add the library's files with the given names, after those that they import, to ``found``, unless in ``files``."""
    # lazy: 0.4 ms, 4 kB: few nodes have schemas
    from google.protobuf import descriptor_pb2

    for name in names:
        if name in WELL_KNOWN and name not in files and name not in found:
            # lazy: 1.0 ms, 50 kB: few schemas import them
            descriptor = import_module(WELL_KNOWN[name]).DESCRIPTOR
            proto = descriptor_pb2.FileDescriptorProto()
            descriptor.CopyToProto(proto)
            _add_well_known_files(proto.dependency, files, found)
            found[name] = proto


class ProtobufDecoder:
    """Decoder of the messages of one type."""

    def __init__(self, name: str, descriptor: Any, most_bytes: int) -> None:
        # lazy: 0.4 ms, 4 kB: few nodes have schemas
        from google.protobuf import message, reflection

        self.name = f"Protobuf {name}"
        self._most_bytes = most_bytes
        self._decode_error = message.DecodeError
        # `message_factory.GetMessageClass` creates the classes of all message types within, by recursion
        contents = {"DESCRIPTOR": descriptor, "__module__": None}
        self._class: Any = reflection.GeneratedProtocolMessageType(descriptor.name, (message.Message,), contents)

    def decode(self, raw: bytes, position: int) -> Job[Any]:
        """Return the message in ``raw[position:]`` as a dict, as a job; fields without a value are left out.

        Raises:
            UndecodableValue: the bytes are not a message of the type, ``raw`` is larger than the limit, or the
                message has more than `MAX_DECODED_VALUES` values.
        """
        check_size(raw, self._most_bytes)
        try:
            message = self._class.FromString(raw[position:])
        except self._decode_error as error:
            raise UndecodableValue(f"not a message of {self.name}: {error}") from None
        yield None
        return (yield from _to_plain(message, iter(range(MAX_DECODED_VALUES))))


def _to_plain(message: Any, left: Iterator[int]) -> Job[dict[str, Any]]:
    """Return a message as a dict by field names, as a job; keys of maps become strings.

    ``left``: iterator with an item for each value that may still be decoded.

    Raises:
        UndecodableValue: the message has more values.
    """
    out: dict[str, Any] = {}
    for field, value in message.ListFields():
        name = f"[{field.full_name}]" if field.is_extension else field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name["value"]
            items = {}
            for key in value:
                items[str(key)] = yield from _scalar(entry, value[key], left)
            out[name] = items
        elif field.is_repeated:
            rows = []
            for each in value:
                rows.append((yield from _scalar(field, each, left)))
            out[name] = rows
        else:
            out[name] = yield from _scalar(field, value, left)
    return out


def _scalar(field: Any, value: Any, left: Iterator[int]) -> Job[Any]:
    number = next(left, None)
    if number is None:
        raise UndecodableValue(f"more than {MAX_DECODED_VALUES:,} values")
    if number % 100 == 0:
        yield None
    if field.message_type is not None:
        return (yield from _to_plain(value, left))
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value
