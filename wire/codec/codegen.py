"""Writes the text of one codec function per struct: what `compiler` runs. This is what both directions share.

An emitter is used once, for one message version. It keeps the lines of every function it has written and the
constants (struct objects, message classes) those lines name.

Every codec comes in two kinds. The plain one is a flat function. The *sliced* one, for messages with many elements, is
a generator that stops every `ELEMENTS_PER_YIELD` elements, so that a long message does not hold up the event loop.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from ottla.wire.codec.primitives import (
    FIXED_SIZE_FORMATS,
    SMALL_UVARINTS,
    read_uvarint_continuation,
    write_string_length,
    write_uvarint,
)
from ottla.wire.codec.response_array import ResponseArray
from ottla.wire.codec.schema import FieldSpec, Message, fields_of
from ottla.wire.errors import WireError

STRUCT_CODES = {**FIXED_SIZE_FORMATS, "uuid": "16s"}
ELEMENTS_PER_YIELD = 64
"""A power of two: so many elements of an array are read or written between two stops."""
NUMBERS_PER_YIELD = 4096


def length_error(what: str, value: object) -> WireError:
    """Return the error of a length or count that cannot be."""
    return WireError(f"{what}: {value}")


class CodecGenerator:
    """Lines and constants common to both directions."""

    direction = ""
    yields_in_numbers = False
    """True if the sliced kind stops inside an array of numbers."""

    def __init__(self, version: int, *, flexible: bool, sliced: bool = False) -> None:
        self.version = version
        self.flexible = flexible
        self.sliced = sliced
        self.functions: list[str] = []
        self.statements: list[str] = []
        self.namespace: dict[str, Any] = {
            "WireError": WireError,
            "bad": length_error,
            "uvarint": write_uvarint,
            "text_length": write_string_length,
            "small": SMALL_UVARINTS,
            "long_uvarint": read_uvarint_continuation,
            "unpack_from": struct.unpack_from,
            "pack": struct.pack,
            "ResponseArray": ResponseArray,
        }
        self.function_names: dict[type[Message], str] = {}

    def emit(self, text: str, depth: int = 1) -> None:
        """Add one line of code."""
        self.statements.append("    " * depth + text)

    def global_name(self, stem: str, value: Any) -> str:
        """Return a global name for a value."""
        for name, known in self.namespace.items():
            if name.startswith(stem) and known is value:
                return name
        name = stem if stem not in self.namespace else f"{stem}_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def struct_format_name(self, codes: str) -> str:
        """Return a global name for a compiled struct format."""
        name = "S_" + codes.replace("?", "t")
        self.namespace.setdefault(name, struct.Struct(">" + codes))
        return name

    def generate_struct(self, cls: type[Message]) -> str:
        """Write the function of a struct (once) and give its name."""
        known = self.function_names.get(cls)
        if known is not None:
            return known
        name = self.function_names[cls] = f"{self.direction}{'_slices' * self.sliced}_{cls.__name__}_v{self.version}"
        saved, self.statements = self.statements, []
        self.emit(f"def {name}({self.parameters()}):", 0)
        self.generate_body(cls)
        self.functions.append("\n".join(self.statements))
        self.statements = saved
        return name

    def parameters(self) -> str:
        """Return the parameters of every function."""
        raise AssertionError

    def generate_body(self, cls: type[Message]) -> None:
        """Generate the lines of one function."""
        raise AssertionError(cls)

    def source(self) -> str:
        """Return all functions, the innermost structs first."""
        return "\n\n".join(self.functions) + "\n"

    def compile_struct(self, cls: type[Message]) -> Callable[..., Any]:
        """Compile and give the function of the outermost struct."""
        name = self.generate_struct(cls)
        exec(compile(self.source(), f"<{name}>", "exec"), self.namespace)  # noqa: S102 - our own text, from our own schema
        function: Callable[..., Any] = self.namespace[name]
        return function

    def positional_runs(self, cls: type[Message]) -> Iterator[list[FieldSpec]]:
        """Yield the fields on the wire in order, fixed-size neighbours together."""
        here = [s for s in fields_of(cls) if self.version in s.versions and not self.is_tagged(s)]
        for fixed, run in groupby(here, key=lambda s: s.kind in STRUCT_CODES):
            if fixed:
                yield list(run)
            else:
                yield from ([s] for s in run)

    def is_generator(self, cls: type[Message]) -> bool:
        """Return whether a struct's function is a generator: it is sliced, and there is an array in it."""
        return self.sliced and any(
            (spec.is_array and (self.yields_in_numbers or spec.element not in FIXED_SIZE_FORMATS))
            or (spec.struct is not None and self.is_generator(spec.struct))
            for spec in fields_of(cls)
            if self.version in spec.versions
        )

    def call_expression(self, cls: type[Message], arguments: str) -> str:
        """Return an expression that runs a struct's function."""
        call = f"{self.generate_struct(cls)}({arguments})"
        return f"(yield from {call})" if self.is_generator(cls) else call

    def is_tagged(self, spec: FieldSpec) -> bool:
        """Return True if the field is in the tagged section in this version."""
        return self.flexible and self.version in spec.tagged

    def tagged_fields(self, cls: type[Message]) -> list[FieldSpec]:
        """Return the tagged fields of this version, by tag."""
        here = [s for s in fields_of(cls) if self.version in s.versions and self.is_tagged(s)]
        return sorted(here, key=lambda s: s.tag)

    def is_nullable(self, spec: FieldSpec) -> bool:
        """Return whether the field may be null in this version."""
        return self.version in spec.nullable

    def is_compact(self, spec: FieldSpec) -> bool:
        """Return whether lengths take the varint form."""
        return self.flexible and not spec.never_compact


def compile_element_limit_test(cls: type[Message]) -> Callable[[Any, int], bool]:
    """Return a function ``(message, most)``: whether its arrays hold more elements than ``most``, numbers left out.

    It stops to count as soon as that is known.
    """
    lines = ["def has_many(m, most):", "    total = 0"]
    _generate_element_count(cls, "m", 1, lines)
    lines.append("    return total > most")
    names: dict[str, Any] = {"ResponseArray": ResponseArray}
    exec(compile("\n".join(lines), f"<elements of {cls.__name__}>", "exec"), names)  # noqa: S102 - our own text
    function: Callable[[Any, int], bool] = names["has_many"]
    return function


def _generate_element_count(cls: type[Message], owner: str, depth: int, lines: list[str]) -> None:
    indent = "    " * depth
    for spec in fields_of(cls):
        value = f"{owner}.{spec.name}"
        if not spec.is_array and spec.struct is not None:
            inner: list[str] = []
            _generate_element_count(spec.struct, value, depth + 1, inner)
            if inner:
                lines += [f"{indent}if {value} is not None:", *inner]
        elif spec.is_array and spec.element not in FIXED_SIZE_FORMATS:
            array = f"a{depth}"
            lines.append(f"{indent}{array} = {value}")
            lines.append(f"{indent}if {array}:")
            lines.append(f"{indent}    total += len({array})")
            lines.append(f"{indent}    if total > most: return True")
            inner = []
            if spec.struct is not None:
                _generate_element_count(spec.struct, f"x{depth}", depth + 2, inner)
            if inner:
                lines.append(f"{indent}    if {array}.__class__ is ResponseArray: {array} = {array}.pending")
                lines.append(f"{indent}    for x{depth} in {array}:")
                lines += inner
