"""Reference codec: encodes and decodes a message field by field, as the schema language defines it.

The compiled codecs are tested against it, and it shows how a message is encoded. With ``trace`` the decoder reports
every value with its position, which ``ottla decode`` prints. `spec_of`, `check_version` and `min_encoded_size` serve
the compiled codecs too.

Source: the schema language of apache/kafka 4.3.1 (``generator/.../MessageDataGenerator.java``, KIP-482).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire.codec.primitives import (
    FIXED_SIZE_FORMATS,
    Buffer,
    read_bytes,
    read_fixed,
    read_uvarint,
    write_fixed,
    write_uvarint,
)
from ottla.wire.codec.schema import FieldSpec, Message, MessageSpec, fields_of
from ottla.wire.errors import WireError
from ottla.wire.limits import MAX_STRING_BYTES, MAX_UNKNOWN_TAGS

Trace = Callable[[str, int, int, Any], None]
"""Callback with (path, start position, end position, value) of every decoded primitive value."""


def _no_trace(path: str, start: int, stop: int, value: Any) -> None:
    """Do nothing: the default `Trace`."""


class MessageDecoder:
    """Decoder of one message version, which interprets the schema.

    The methods raise WireError if the bytes at ``pos`` are no valid value.
    """

    def __init__(self, version: int, *, flexible: bool, trace: Trace = _no_trace) -> None:
        self.version = version
        self.flexible = flexible
        self.trace = trace

    def read_length(self, buf: Buffer, pos: int, *, short: bool, compact: bool) -> tuple[int, int]:
        """Return a length and the position after it; a negative length means null.

        The prefix is an unsigned varint of length + 1 (``compact``), an int16 (``short``) or an int32.
        """
        if compact:
            value, pos = read_uvarint(buf, pos)
            return value - 1, pos
        number, pos = read_fixed("int16" if short else "int32", buf, pos)
        return int(number), pos

    def read_scalar(self, kind: str, buf: Buffer, pos: int, *, nullable: bool, compact: bool) -> tuple[Any, int]:
        """Return a number, boolean, uuid, string or byte string of type ``kind``, and the position after it.

        Null is None. ``compact``: the length is an unsigned varint.

        Raises:
            WireError: the buffer is too short, a length is too large, or null is not allowed (``nullable``).
        """
        if kind in FIXED_SIZE_FORMATS:
            return read_fixed(kind, buf, pos)
        if kind == "uuid":
            raw, pos = read_bytes(buf, pos, 16)
            return bytes(raw), pos
        size, pos = self.read_length(buf, pos, short=kind == "string", compact=compact)
        if size < 0:
            if not nullable:
                raise WireError(f"a {kind} of length {size}")
            return None, pos
        if kind == "string" and size > MAX_STRING_BYTES:
            raise WireError(f"a string of {size} bytes")
        raw, pos = read_bytes(buf, pos, size)
        if kind == "string":
            return str(raw, "utf-8", "replace"), pos
        return (raw if kind == "records" else bytes(raw)), pos

    def read_value(self, spec: FieldSpec, buf: Buffer, pos: int, path: str, *, tagged: bool = False) -> tuple[Any, int]:
        """Return the value of a field that this version has, None for null, and the position after it.

        ``path`` is the name of the field in the trace; ``tagged``: it lies in the tagged section of its struct.

        Raises:
            WireError: the bytes are no valid value.
        """
        nullable = self.version in spec.nullable
        compact = self.flexible and not spec.never_compact
        start = pos
        if spec.is_array:
            count, pos = self.read_length(buf, pos, short=False, compact=compact)
            if count < 0:
                if not nullable:
                    raise WireError(f"{path}: an array of {count} elements")
                self.trace(path, start, pos, None)
                return None, pos
            if count * self.min_element_size(spec) > len(buf) - pos:
                raise WireError(f"{path}: {count} elements cannot lie in {len(buf) - pos} bytes")
            self.trace(f"{path}.count", start, pos, count)
            items = []
            for index in range(count):
                item, pos = self.read_element(spec, spec.element, buf, pos, f"{path}[{index}]", compact=compact)
                items.append(item)
            return items, pos
        if spec.kind == "struct" and nullable:
            present, pos = read_uvarint(buf, pos) if tagged else read_fixed("int8", buf, pos)
            if present == 0 if tagged else present < 0:  # as Kafka; encoded as -1 or 1, in a tag as 0 or 1
                self.trace(path, start, pos, None)
                return None, pos
            self.trace(f"{path}.present", start, pos, present)
        if spec.kind == "struct":
            assert spec.struct is not None
            return self.read_struct(spec.struct, buf, pos, path)
        value, pos = self.read_scalar(spec.kind, buf, pos, nullable=nullable, compact=compact)
        self.trace(path, start, pos, value)
        return value, pos

    def read_element(
        self, spec: FieldSpec, kind: str, buf: Buffer, pos: int, path: str, *, compact: bool
    ) -> tuple[Any, int]:
        """Return one element of type ``kind`` of an array field, and the position after it; ``path``: its name."""
        if kind == "struct":
            assert spec.struct is not None
            return self.read_struct(spec.struct, buf, pos, path)
        start = pos
        value, pos = self.read_scalar(kind, buf, pos, nullable=False, compact=compact)
        self.trace(path, start, pos, value)
        return value, pos

    def min_element_size(self, spec: FieldSpec) -> int:
        """Return the minimum encoded size in bytes of an element of an array field, to check its count beforehand."""
        return min_encoded_size(spec.element, spec.struct, self.version, flexible=self.flexible)

    def read_struct(self, cls: type[Message], buf: Buffer, pos: int, path: str = "") -> tuple[Any, int]:
        """Return a struct with its tagged fields, and the position after it.

        Fields that this version lacks, and tagged fields that are absent, have their default values. ``path``: name of
        the struct in the trace, empty for the message.

        Raises:
            WireError: the bytes are no valid struct.
        """
        values: dict[str, Any] = {}
        tagged: dict[int, FieldSpec] = {}
        for spec in fields_of(cls):
            if self.version not in spec.versions:
                values[spec.name] = spec.default_value()
            elif self.flexible and self.version in spec.tagged:
                tagged[spec.tag] = spec
                values[spec.name] = spec.default_value()
            else:
                here = f"{path}.{spec.name}" if path else spec.name
                values[spec.name], pos = self.read_value(spec, buf, pos, here)
        if self.flexible:
            pos = self.read_tagged_fields(tagged, values, buf, pos, path)
        return cls(**values), pos

    def read_tagged_fields(
        self, fields_by_tag: dict[int, FieldSpec], values: dict[str, Any], buf: Buffer, pos: int, path: str
    ) -> int:
        """Read the tagged fields of a struct into ``values`` by name; return the position after them.

        Tags that are not in ``fields_by_tag`` are skipped. ``path``: path of the struct; empty for a message.

        Raises:
            WireError: more tagged fields than `MAX_UNKNOWN_TAGS` and one for each of ``fields_by_tag``, or a size does
                not fit its field.
        """
        start = pos
        count, pos = read_uvarint(buf, pos)
        self.trace(f"{path}.tags" if path else "tags", start, pos, count)
        if count > MAX_UNKNOWN_TAGS + len(fields_by_tag):
            raise WireError(f"{path}: {count} tagged fields")
        for _ in range(count):
            tag, pos = read_uvarint(buf, pos)
            size, pos = read_uvarint(buf, pos)
            _, stop = read_bytes(buf, pos, size)
            spec = fields_by_tag.get(tag)
            if spec is not None:
                here = f"{path}.{spec.name}" if path else spec.name
                values[spec.name], pos = self.read_value(spec, buf, pos, here, tagged=True)
                if pos != stop:
                    raise WireError(f"{here}: tag {tag} says {size} bytes")
            pos = stop
        return pos


def min_encoded_size(kind: str, struct: type[Message] | None, version: int, *, flexible: bool) -> int:
    """Return the minimum encoded size in bytes, at least 1, of a value of type ``kind`` in a version.

    ``struct``: its class if ``kind`` is ``"struct"``.
    """
    sizes = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8}
    if kind in sizes:
        return sizes[kind]
    if kind == "uuid":
        return 16
    if kind != "struct":
        return 1 if flexible else 2 if kind == "string" else 4
    assert struct is not None
    total = 1 if flexible else 0
    for spec in fields_of(struct):
        if version in spec.versions and not (flexible and version in spec.tagged):
            if spec.is_array:
                total += 1 if flexible else 4
            elif spec.kind == "struct" and version in spec.nullable:
                total += 1
            else:
                compact = flexible and not spec.never_compact
                total += min_encoded_size(spec.kind, spec.struct, version, flexible=compact)
    return max(total, 1)


class MessageEncoder:
    """Encoder of one message version, which interprets the schema.

    The methods raise WireError for a value that the type or the version does not allow.
    """

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def write_length(self, size: int, *, short: bool, compact: bool) -> bytes:
        """Return a length prefix of ``size`` (-1: null): unsigned varint (``compact``), int16 (``short``) or int32."""
        if compact:
            return write_uvarint(size + 1)
        return write_fixed("int16" if short else "int32", size)

    def write_scalar(self, kind: str, value: Any, *, nullable: bool, compact: bool) -> bytes:
        """Return the bytes of a number, boolean, uuid, string or byte string of type ``kind``.

        Raises:
            WireError: the value does not fit the type, or is None though not ``nullable``.
        """
        if kind in FIXED_SIZE_FORMATS:
            return write_fixed(kind, value)
        if kind == "uuid":
            if len(value) != 16:
                raise WireError(f"a uuid of {len(value)} bytes")
            return bytes(value)
        if value is None:
            if not nullable:
                raise WireError(f"null for a {kind} that may not be null")
            return self.write_length(-1, short=kind == "string", compact=compact)
        raw = value.encode() if kind == "string" else bytes(value)
        if kind == "string" and len(raw) > MAX_STRING_BYTES:
            raise WireError(f"a string of {len(raw)} bytes")
        return self.write_length(len(raw), short=kind == "string", compact=compact) + raw

    def write_value(self, spec: FieldSpec, value: Any, *, tagged: bool = False) -> bytes:
        """Return the bytes of a field that this version has; ``tagged``: it lies in the tagged section."""
        nullable = self.version in spec.nullable
        compact = self.flexible and not spec.never_compact
        if spec.is_array:
            if value is None:
                if not nullable:
                    raise WireError(f"null for {spec.name}")
                return self.write_length(-1, short=False, compact=compact)
            out = self.write_length(len(value), short=False, compact=compact)
            for item in value:
                if spec.element == "struct":
                    out += self.write_struct(item)
                else:
                    out += self.write_scalar(spec.element, item, nullable=False, compact=compact)
            return out
        if spec.kind == "struct":
            if not nullable:
                return self.write_struct(value)
            if value is None:
                return b"\x00" if tagged else b"\xff"
            return b"\x01" + self.write_struct(value)
        return self.write_scalar(spec.kind, value, nullable=nullable, compact=compact)

    def write_struct(self, message: Message) -> bytes:
        """Return the bytes of a struct; tagged fields with their default values are left out.

        Raises:
            WireError: a field that this version lacks has a value other than its default, and is not ignorable.
        """
        if message is None:
            raise WireError("null for a struct that may not be null")
        out = b""
        tagged: list[tuple[int, bytes]] = []
        for spec in fields_of(type(message)):
            value = getattr(message, spec.name)
            if self.version not in spec.versions:
                if not spec.ignorable and value != spec.default_value():
                    raise WireError(f"{type(message).__name__}.{spec.name} does not exist in version {self.version}")
            elif self.flexible and self.version in spec.tagged:
                if value != spec.default_value():
                    tagged.append((spec.tag, self.write_value(spec, value, tagged=True)))
            else:
                out += self.write_value(spec, value)
        if self.flexible:
            out += write_uvarint(len(tagged))
            for tag, raw in sorted(tagged):
                out += write_uvarint(tag) + write_uvarint(len(raw)) + raw
        return out


def spec_of(cls: type[Message]) -> MessageSpec:
    """Return the `MessageSpec` of a top-level message class: type, API key, versions."""
    spec: MessageSpec = cls.SPEC  # type: ignore[attr-defined]
    return spec


def check_version(cls: type[Message], version: int) -> MessageSpec:
    """Check that a message has a version; return its `MessageSpec`.

    Raises:
        WireError: the message has no such version.
    """
    spec = spec_of(cls)
    if version not in spec.versions:
        raise WireError(f"{cls.__name__} has no version {version}, only {spec.versions}")
    return spec


def decode(cls: type[Message], version: int, buf: Buffer, pos: int = 0, trace: Trace = _no_trace) -> tuple[Any, int]:
    """Decode a message at ``pos``; return it and the position after it; ``trace`` is called with each decoded value.

    Raises:
        WireError: the bytes are not a valid message of this class and version, or there is no such version.
    """
    spec = check_version(cls, version)
    return MessageDecoder(version, flexible=version in spec.flexible, trace=trace).read_struct(cls, buf, pos)


def encode(message: Message, version: int) -> bytes:
    """Encode a message as bytes.

    Raises:
        WireError: a field has a value that this version does not support, or there is no such version.
    """
    spec = check_version(type(message), version)
    try:
        return MessageEncoder(version, flexible=version in spec.flexible).write_struct(message)
    except (TypeError, AttributeError, UnicodeEncodeError) as error:
        raise WireError(f"{type(message).__name__}: {error}") from None
