"""Writes the text of one codec function per struct: what `compiler` runs. This is what both directions share.

An emitter is used once, for one message version. It keeps the lines of every function it has written and the
constants (struct objects, message classes) those lines name.

Every codec comes in two kinds. The plain one is a flat function. The *sliced* one, for messages with many elements, is
a generator that stops every `SLICE_ELEMENTS` elements, so that a long message does not hold up the event loop.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from ottla.wire.errors import WireError
from ottla.wire.primitives import FIXED, SMALL_UVARINTS, long_uvarint, write_text_length, write_uvarint
from ottla.wire.schema import FieldSpec, Message, fields_of

CODES = {**FIXED, "uuid": "16s"}
SLICE_ELEMENTS = 64
"""A power of two: so many elements of an array are read or written between two stops."""
SLICE_NUMBERS = 4096


def bad(what: str, value: object) -> WireError:
    """The error of a length or count that cannot be."""
    return WireError(f"{what}: {value}")


def rest(rows: Any, write: Callable[[Any], None]) -> Any:
    """Write those rows of an array that lie ready, as a `Written` has them; gives it for the others."""
    for chunk in getattr(rows, "chunks", ()):
        write(chunk)
    return rows


class Emitter:
    """Lines and constants common to both directions."""

    direction = ""
    numbers_stop = False
    """Whether the sliced kind stops inside an array of numbers."""

    def __init__(self, version: int, *, flexible: bool, sliced: bool = False) -> None:
        self.version = version
        self.flexible = flexible
        self.sliced = sliced
        self.functions: list[str] = []
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "WireError": WireError,
            "bad": bad,
            "uvarint": write_uvarint,
            "text_length": write_text_length,
            "small": SMALL_UVARINTS,
            "long_uvarint": long_uvarint,
            "unpack_from": struct.unpack_from,
            "pack": struct.pack,
            "rest": rest,
        }
        self.done: dict[type[Message], str] = {}

    def line(self, text: str, depth: int = 1) -> None:
        """Add one line of code."""
        self.lines.append("    " * depth + text)

    def constant(self, stem: str, value: Any) -> str:
        """A global name for a value."""
        for name, known in self.names.items():
            if name.startswith(stem) and known is value:
                return name
        name = stem if stem not in self.names else f"{stem}_{len(self.names)}"
        self.names[name] = value
        return name

    def fused(self, codes: str) -> str:
        """A global name for a compiled struct format."""
        name = "S_" + codes.replace("?", "t")
        self.names.setdefault(name, struct.Struct(">" + codes))
        return name

    def struct(self, cls: type[Message]) -> str:
        """Write the function of a struct (once) and give its name."""
        known = self.done.get(cls)
        if known is not None:
            return known
        name = self.done[cls] = f"{self.direction}{'_slices' * self.sliced}_{cls.__name__}_v{self.version}"
        saved, self.lines = self.lines, []
        self.line(f"def {name}({self.parameters()}):", 0)
        self.body(cls)
        self.functions.append("\n".join(self.lines))
        self.lines = saved
        return name

    def parameters(self) -> str:
        """The parameters of every function."""
        raise AssertionError

    def body(self, cls: type[Message]) -> None:
        """The lines of one function."""
        raise AssertionError(cls)

    def text(self) -> str:
        """All functions, the innermost structs first."""
        return "\n\n".join(self.functions) + "\n"

    def build(self, cls: type[Message]) -> Callable[..., Any]:
        """Compile and give the function of the outermost struct."""
        name = self.struct(cls)
        exec(compile(self.text(), f"<{name}>", "exec"), self.names)  # noqa: S102 - our own text, from our own schema
        function: Callable[..., Any] = self.names[name]
        return function

    def positional(self, cls: type[Message]) -> Iterator[list[FieldSpec]]:
        """The fields on the wire in order, fixed-size neighbours together."""
        here = [s for s in fields_of(cls) if self.version in s.versions and not self.is_tagged(s)]
        for fixed, run in groupby(here, key=lambda s: s.kind in CODES):
            if fixed:
                yield list(run)
            else:
                yield from ([s] for s in run)

    def stops(self, cls: type[Message]) -> bool:
        """Whether a struct's function is a generator: it is sliced, and there is an array in it."""
        return self.sliced and any(
            (spec.is_array and (self.numbers_stop or spec.element not in FIXED))
            or (spec.struct is not None and self.stops(spec.struct))
            for spec in fields_of(cls)
            if self.version in spec.versions
        )

    def call(self, cls: type[Message], arguments: str) -> str:
        """An expression that runs a struct's function."""
        return f"{'(yield from ' * self.stops(cls)}{self.struct(cls)}({arguments}){')' * self.stops(cls)}"

    def is_tagged(self, spec: FieldSpec) -> bool:
        """Whether the field stands in the tagged section in this version."""
        return self.flexible and self.version in spec.tagged

    def tagged(self, cls: type[Message]) -> list[FieldSpec]:
        """The tagged fields of this version, by tag."""
        here = [s for s in fields_of(cls) if self.version in s.versions and self.is_tagged(s)]
        return sorted(here, key=lambda s: s.tag)

    def nullable(self, spec: FieldSpec) -> bool:
        """Whether the field may be null in this version."""
        return self.version in spec.nullable

    def compact(self, spec: FieldSpec) -> bool:
        """Whether lengths take the varint form."""
        return self.flexible and not spec.never_compact


def many_elements_test(cls: type[Message]) -> Callable[[Any, int], bool]:
    """Return a function ``(message, most)``: whether its arrays hold more elements than ``most``, numbers left out.

    It stops to count as soon as that is known.
    """
    lines = ["def has_many(m, most):", "    total = 0"]
    _count_elements(cls, "m", 1, lines)
    lines.append("    return total > most")
    names: dict[str, Any] = {}
    exec(compile("\n".join(lines), f"<elements of {cls.__name__}>", "exec"), names)  # noqa: S102 - our own text
    function: Callable[[Any, int], bool] = names["has_many"]
    return function


def _count_elements(cls: type[Message], owner: str, depth: int, lines: list[str]) -> None:
    indent = "    " * depth
    for spec in fields_of(cls):
        value = f"{owner}.{spec.name}"
        if not spec.is_array and spec.struct is not None:
            inner: list[str] = []
            _count_elements(spec.struct, value, depth + 1, inner)
            if inner:
                lines += [f"{indent}if {value} is not None:", *inner]
        elif spec.is_array and spec.element not in FIXED:
            lines.append(f"{indent}if {value}:")
            lines.append(f"{indent}    total += len({value})")
            lines.append(f"{indent}    if total > most: return True")
            inner = []
            if spec.struct is not None:
                _count_elements(spec.struct, f"x{depth}", depth + 2, inner)
            if inner:
                lines.append(f"{indent}    for x{depth} in {value}:")
                lines += inner
