"""Decoder of Protobuf messages by descriptor sets, as ``protoc --include_imports --descriptor_set_out`` writes them.

Source: ``google/protobuf/descriptor.proto``; message indexes of Confluent's wire format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from ottla.console.schemas.value_decoder import (
    MAX_DECODED_VALUES,
    InvalidSchema,
    UndecodableValue,
    check_size,
)
from ottla.jobs.job import Job
from ottla.wire.codec.primitives import read_varlong
from ottla.wire.errors import WireError

WELL_KNOWN = (
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
"""Files ``google/protobuf/NAME.proto`` that belong to the library."""
MAX_INDEXES = 16
"""Depth of a nested message type."""


def read_message_indexes(raw: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Return the message indexes at a position, which name a message type of a file, and the position after them.

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
    """Return the files of an encoded ``FileDescriptorSet``, as `ProtobufSchema` takes them.

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


class ProtobufSchema:
    """File of message types with the files that it imports."""

    def __init__(self, files: Iterable[tuple[str, bytes]]) -> None:
        """Build the message types of encoded ``FileDescriptorProto`` messages; the last one is the main file.

        ``files``: name by which others import the file, empty for the one in it, and the encoded message.

        Raises:
            InvalidSchema: a file is malformed or missing. ModuleNotFoundError: protobuf is not installed.
        """
        # lazy: 0.4 ms, 4 kB: few nodes have schemas
        from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

        self._message_class = message_factory.GetMessageClass
        self._decode_error = message.DecodeError
        self._pool = descriptor_pool.DescriptorPool()
        protos: dict[str, Any] = {}
        try:
            for name, raw in files:
                proto = descriptor_pb2.FileDescriptorProto.FromString(raw)
                proto.name = name or proto.name
                protos[proto.name] = proto
                self._file = proto
            for proto in (*_well_known_files(protos), *protos.values()):
                self._pool.Add(proto)
            if not protos:
                raise InvalidSchema("no file in the descriptor set")
            self._pool.FindFileByName(self._file.name)
        except message.DecodeError:
            raise InvalidSchema("not a descriptor set") from None
        except (TypeError, KeyError, ValueError) as error:
            raise InvalidSchema(f"not a complete descriptor set: {str(error).partition(chr(10))[0][:200]}") from None

    def decoder_by_indexes(self, indexes: tuple[int, ...]) -> ProtobufDecoder:
        """Return the decoder of a message type of the main file.

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
        """Return the decoder of a message type; of the first one of the main file for an empty name.

        Raises:
            UndecodableValue: there is no such type.
        """
        if not name:
            return self.decoder_by_indexes((0,))
        try:
            found = self._pool.FindMessageTypeByName(name)
        except KeyError:
            raise UndecodableValue(f"the schema has no message type {name}") from None
        return ProtobufDecoder(name, self._message_class(found), self._decode_error)


def _well_known_files(files: dict[str, Any]) -> Iterator[Any]:
    """Yield the files of the library that are imported and not among ``files``, the imported ones first."""
    # lazy: 0.4 ms, 4 kB: few nodes have schemas
    from google.protobuf import descriptor_pb2

    pending = [name for proto in files.values() for name in proto.dependency]
    found: dict[str, Any] = {}
    while pending:
        name = pending.pop()
        stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
        if name in files or name in found or stem not in WELL_KNOWN:
            continue
        # lazy: 1.0 ms, 50 kB: few schemas import them
        descriptor = import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR
        proto = descriptor_pb2.FileDescriptorProto()
        descriptor.CopyToProto(proto)
        found[name] = proto
        pending += proto.dependency
    return iter([found[name] for name in reversed(found)])


class ProtobufDecoder:
    """Decoder of the messages of one type."""

    def __init__(self, name: str, message_class: Any, decode_error: type[Exception]) -> None:
        self.name = f"Protobuf {name}"
        self._class = message_class
        self._decode_error = decode_error

    def decode(self, raw: bytes, position: int) -> Job[Any]:
        """Return the message in ``raw[position:]`` as a dict, as a job; fields without a value are left out.

        Raises:
            UndecodableValue: the bytes are not a message of the type, ``raw`` is larger than `MAX_DECODED_BYTES`, or
                the message has more than `MAX_DECODED_VALUES` values.
        """
        check_size(raw)
        try:
            message = self._class.FromString(raw[position:])
        except self._decode_error as error:
            raise UndecodableValue(f"not a message of {self.name}: {error}") from None
        yield None
        return (yield from _to_plain(message, iter(range(MAX_DECODED_VALUES))))


def _to_plain(message: Any, left: Iterator[int]) -> Job[dict[str, Any]]:
    """Return a message as a dict by field names; ``left`` has an item for each value that may still be decoded."""
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
