"""Generator of the Python source of codec functions, one for each struct; common part of encoder and decoder.

A generator object is used once, for one message version. It collects the lines of all functions and the constants
(struct formats, message classes) to which they refer. `compiler` compiles and runs them.

Every codec has two variants. The plain one is a function. The *sliced* one, for messages with many elements, is a
Python generator that yields every `ELEMENTS_PER_YIELD` elements, so that a long message does not block the event loop.
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
"""Elements of an array that are read or written between two yields; a power of two."""
NUMBERS_PER_YIELD = 4096


def length_error(field_name: str, value: object) -> WireError:
    """Return the WireError of an invalid length or count ``value`` of the field ``field_name``."""
    return WireError(f"{field_name}: {value}")


class CodecGenerator:
    """Base of the encoder and decoder generators: emits Python source, a function for each struct of a message."""

    direction = ""
    yields_in_numbers = False
    """True if the sliced variant yields within arrays of numbers."""

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
        """Append one line of Python code to the function under construction; ``depth``: level of indentation."""
        self.statements.append("    " * depth + text)

    def global_name(self, stem: str, value: Any) -> str:
        """Return a name, beginning with ``stem``, of ``value`` in the generated code; register it if it is new."""
        for name, known in self.namespace.items():
            if name.startswith(stem) and known is value:
                return name
        name = stem if stem not in self.namespace else f"{stem}_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def struct_format_name(self, codes: str) -> str:
        """Return the name under which the generated code refers to the big-endian `struct.Struct` of ``codes``."""
        name = "S_" + codes.replace("?", "t")
        self.namespace.setdefault(name, struct.Struct(">" + codes))
        return name

    def generate_struct(self, cls: type[Message]) -> str:
        """Generate the function of a struct, unless it is generated already; return its name."""
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
        """Return the parameters of the generated functions as source text, separated by commas, without parentheses."""
        raise AssertionError

    def generate_body(self, cls: type[Message]) -> None:
        """Emit the body of the function of a struct; implemented by encoder and decoder."""
        raise AssertionError(cls)

    def source(self) -> str:
        """Return the source of all generated functions, innermost structs first."""
        return "\n\n".join(self.functions) + "\n"

    def compile_struct(self, cls: type[Message]) -> Callable[..., Any]:
        """Generate, compile and load the functions of ``cls`` and the structs in it; return the function of ``cls``."""
        name = self.generate_struct(cls)
        exec(compile(self.source(), f"<{name}>", "exec"), self.namespace)  # noqa: S102 - our own text, from our own schema
        function: Callable[..., Any] = self.namespace[name]
        return function

    def positional_runs(self, cls: type[Message]) -> Iterator[list[FieldSpec]]:
        """Yield the untagged fields of this version in order, adjacent fixed-size fields as one group."""
        here = [s for s in fields_of(cls) if self.version in s.versions and not self.is_tagged(s)]
        for fixed, run in groupby(here, key=lambda s: s.kind in STRUCT_CODES):
            if fixed:
                yield list(run)
            else:
                yield from ([s] for s in run)

    def is_generator(self, cls: type[Message]) -> bool:
        """Return whether a struct's function is a Python generator.

        It is one in the sliced variant, if the struct or one inside has an array; for encoders, not only of numbers.
        """
        return self.sliced and any(
            (spec.is_array and (self.yields_in_numbers or spec.element not in FIXED_SIZE_FORMATS))
            or (spec.struct is not None and self.is_generator(spec.struct))
            for spec in fields_of(cls)
            if self.version in spec.versions
        )

    def call_expression(self, cls: type[Message], arguments: str) -> str:
        """Return the source of a call of a struct's function with ``arguments``; generate the function first."""
        call = f"{self.generate_struct(cls)}({arguments})"
        return f"(yield from {call})" if self.is_generator(cls) else call

    def is_tagged(self, spec: FieldSpec) -> bool:
        """Return True if the field is a tagged field in this version."""
        return self.flexible and self.version in spec.tagged

    def tagged_fields(self, cls: type[Message]) -> list[FieldSpec]:
        """Return the tagged fields of a struct in this version, by ascending tag."""
        here = [s for s in fields_of(cls) if self.version in s.versions and self.is_tagged(s)]
        return sorted(here, key=lambda s: s.tag)

    def is_nullable(self, spec: FieldSpec) -> bool:
        """Return whether the field may be null in this version."""
        return self.version in spec.nullable

    def is_compact(self, spec: FieldSpec) -> bool:
        """Return whether the field's length is encoded as an unsigned varint (compact type)."""
        return self.flexible and not spec.never_compact


def compile_element_limit_test(cls: type[Message]) -> Callable[[Any, int], bool]:
    """Return a function ``(message, most)`` that tests if the message's arrays have more than ``most`` elements in all.

    Arrays of numbers do not count. The function returns as soon as the limit is exceeded.
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
