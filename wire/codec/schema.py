"""Schema of message classes: types and versions of their fields, read once from the annotations of each class.

A message is a :class:`Message` subclass whose annotations contain a :class:`WireType`::

    class Heartbeat(Message):
        SPEC: ClassVar[MessageSpec] = request(12, "0-4", "4+", "broker")
        group_id: String = ""
        group_instance_id: Annotated[str | None, wire_field("string", "3+", nullable="3+")] = None

One class has the fields of all its versions. ``wire_field(kind, since)`` uses Kafka's spelling of types (``int32``,
``[]string``, ``struct``, ``[]struct``) and of version ranges (``"2+"``, ``"0-4"``). `interpreter` and `compiler`
implement the codecs.

Source of the language: the README beside Kafka's message schemas (apache/kafka 4.3.1, ``generator`` module); flexible
versions, compact lengths and tagged fields are KIP-482.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from ottla.wire.errors import WireError

__all__ = [
    "FieldSpec",
    "Message",
    "MessageSpec",
    "Versions",
    "WireType",
    "WireError",
    "data",
    "fields_of",
    "request",
    "response",
    "wire_field",
]

ZERO_UUID = bytes(16)
MAX_VERSION = 32767


class Versions(NamedTuple):
    """Inclusive range of message versions; empty if ``low > high``."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Return the version range in Kafka's form: ``"2+"``, ``"0-4"``, ``"3"`` or ``"none"`` (empty range)."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), MAX_VERSION)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __str__(self) -> str:
        if self.low > self.high:
            return "none"
        if self.high == MAX_VERSION:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


NO_VERSIONS = Versions(1, 0)


class WireType(NamedTuple):
    """Annotation of a message field: type, and the version ranges in which it exists, is nullable or is tagged.

    ``tag``: number of a tagged field, else -1. ``ignorable``: a version without the field drops its value when it is
    encoded; otherwise a value other than the default is an error.
    """

    kind: str
    since: str = "0+"
    nullable: str = "none"
    tagged: str = "none"
    tag: int = -1
    ignorable: bool = False
    never_compact: bool = False


def wire_field(
    kind: str,
    since: str = "0+",
    *,
    nullable: str = "none",
    tagged: str = "none",
    tag: int = -1,
    ignorable: bool = False,
    never_compact: bool = False,
) -> WireType:
    """Return the annotation of a message field of type ``kind`` that exists in the versions ``since``.

    ``never_compact``: no compact length even in flexible versions. The others are those of `WireType`.
    """
    return WireType(kind, since, nullable, tagged, tag, ignorable, never_compact)


Bool = Annotated[bool, WireType("bool")]
Int8 = Annotated[int, WireType("int8")]
Int16 = Annotated[int, WireType("int16")]
Uint16 = Annotated[int, WireType("uint16")]
Int32 = Annotated[int, WireType("int32")]
Uint32 = Annotated[int, WireType("uint32")]
Int64 = Annotated[int, WireType("int64")]
Float64 = Annotated[float, WireType("float64")]
Uuid = Annotated[bytes, WireType("uuid")]
String = Annotated[str, WireType("string")]
Bytes = Annotated[bytes, WireType("bytes")]
# Value of a `records` field: bytes when decoded, any value with a length (such as a file range) when encoded.
Opaque = Any


class MessageSpec(NamedTuple):
    """Properties of a message class: type, API key, versions, flexible versions and listeners.

    ``type`` is ``"request"``, ``"response"`` or the kind of a stored record. ``key`` is the API key of a request or
    response, the type number of a stored record, or -1. ``latest_unstable``: the highest version is not advertised.
    """

    type: str
    key: int
    versions: Versions
    flexible: Versions
    listeners: tuple[str, ...] = ()
    latest_unstable: bool = False


def request(key: int, versions: str, flexible: str, listeners: str, *, latest_unstable: bool = False) -> MessageSpec:
    """Return the spec of a request; ``listeners``: ``"broker"``, ``"controller"`` or both, separated by a blank."""
    parsed = Versions.parse(versions), Versions.parse(flexible)
    return MessageSpec("request", key, *parsed, tuple(listeners.split()), latest_unstable)


def response(key: int, versions: str, flexible: str) -> MessageSpec:
    """Return the spec of a response; its versions are those of the request."""
    return MessageSpec("response", key, Versions.parse(versions), Versions.parse(flexible))


def data(kind: str, versions: str, flexible: str, key: int = -1) -> MessageSpec:
    """Return the spec of a stored record, or of a message embedded in another message's bytes field.

    Args:
        kind: Kind of record, such as ``"metadata"`` or ``"coordinator-key"``.
        versions: Range of versions.
        flexible: Range of flexible versions.
        key: Type number of the record among those of its kind, -1 if it has none.
    """
    return MessageSpec(kind, key, Versions.parse(versions), Versions.parse(flexible))


class Message(msgspec.Struct, gc=False):
    """Base class of messages and of the structs in them. Constructor arguments may be positional, in schema order.

    Messages have no reference cycles, so the garbage collector does not track them.
    """


class FieldSpec(NamedTuple):
    """Field of a message as codecs use it: its name, the attributes of its `WireType` and its default value."""

    name: str
    kind: str
    struct: type[Message] | None
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    ignorable: bool
    never_compact: bool
    default: Any

    @property
    def is_array(self) -> bool:
        """True if the type of the field is an array, such as ``[]int32``."""
        return self.kind.startswith("[]")

    @property
    def element(self) -> str:
        """Type of the elements of an array field."""
        return self.kind[2:]

    def default_value(self) -> Any:
        """Return the value of versions without the field and of an absent tagged field; lists and structs are new."""
        if self.default is list:
            return []
        if self.kind == "struct" and self.default is self.struct:
            assert self.struct is not None
            return self.struct()
        return self.default


_FIELDS: dict[type[Message], tuple[FieldSpec, ...]] = {}


def _struct_class(hint: Any) -> type[Message] | None:
    """Return the Message subclass in ``Foo``, ``Foo | None``, ``list[Foo]`` or ``list[Foo] | None``, else None."""
    if isinstance(hint, type) and issubclass(hint, Message):
        return hint
    for part in get_args(hint):
        found = _struct_class(part)
        if found is not None:
            return found
    return None


def fields_of(cls: type[Message]) -> tuple[FieldSpec, ...]:
    """Return the fields of a message class in schema order; read from the annotations on first use."""
    known = _FIELDS.get(cls)
    if known is not None:
        return known
    hints = get_type_hints(cls, vars(sys.modules[cls.__module__]), include_extras=True)
    out = []
    for info in msgspec.structs.fields(cls):
        hint = hints[info.name]
        assert get_origin(hint) is Annotated, f"{cls.__name__}.{info.name} carries no wire mark"
        mark: WireType = next(x for x in hint.__metadata__ if isinstance(x, WireType))
        factory = info.default_factory
        default = info.default if factory is msgspec.NODEFAULT else factory
        out.append(
            FieldSpec(
                info.name,
                mark.kind,
                _struct_class(hint.__origin__),
                Versions.parse(mark.since),
                Versions.parse(mark.nullable),
                Versions.parse(mark.tagged),
                mark.tag,
                mark.ignorable,
                mark.never_compact,
                default,
            )
        )
    _FIELDS[cls] = tuple(out)
    return _FIELDS[cls]
