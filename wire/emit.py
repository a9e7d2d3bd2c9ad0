"""Writes the text of one codec function per struct: what `compiler` runs.

An emitter is used once, for one message version. It keeps the lines of every function it has written and the
constants (struct objects, message classes) those lines name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from ottla.wire.errors import WireError
from ottla.wire.interpreter import smallest_size
from ottla.wire.primitives import FIXED, MAX_STRING_BYTES
from ottla.wire.primitives import write_uvarint as _slow_uvarint
from ottla.wire.schema import FieldSpec, Message, fields_of

CODES = {**FIXED, "uuid": "16s"}
_SMALL = tuple(_slow_uvarint(n) for n in range(1024))


def uvarint(n: int) -> bytes:
    """An unsigned varint, from a table while it is small."""
    return _SMALL[n] if n < 1024 else _slow_uvarint(n)


def long_uvarint(buf: memoryview, pos: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte says that there is more."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, pos
    raise WireError("a varint of more than five bytes")


def bad(what: str, value: object) -> WireError:
    """The error of a length or count that cannot be."""
    return WireError(f"{what}: {value}")


class Emitter:
    """Lines and constants common to both directions."""

    direction = ""
    signature = ""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.functions: list[str] = []
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "WireError": WireError,
            "bad": bad,
            "uvarint": uvarint,
            "long_uvarint": long_uvarint,
            "unpack_from": struct.unpack_from,
            "pack": struct.pack,
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
        name = self.done[cls] = f"{self.direction}_{cls.__name__}_v{self.version}"
        saved, self.lines = self.lines, []
        self.line(f"def {name}({self.signature}):", 0)
        self.body(cls)
        self.functions.append("\n".join(self.lines))
        self.lines = saved
        return name

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


class DecodeEmitter(Emitter):
    """Writes ``decode(buf, pos, end) -> (message, pos)``."""

    direction = "decode"
    signature = "buf, pos, end"

    def body(self, cls: type[Message]) -> None:
        """All positional fields, then the tags, then the constructor call."""
        local = {spec.name: f"f_{spec.name}" for spec in fields_of(cls)}
        positional = {s.name for run in self.positional(cls) for s in run}
        for spec in fields_of(cls):
            if spec.name not in positional:
                self.line(f"f_{spec.name} = {self.default(spec)}")
        for run in self.positional(cls):
            if run[0].kind in CODES:
                codes = "".join(CODES[s.kind] for s in run)
                name = self.fused(codes)
                self.line(f"{', '.join(local[s.name] for s in run)}, = {name}.unpack_from(buf, pos)")
                self.line(f"pos += {struct.calcsize('>' + codes)}")
            else:
                self.value(run[0], local[run[0].name], 1)
        if self.flexible:
            self.tags(cls)
        self.line(f"return {self.constant(cls.__name__, cls)}({', '.join(local.values())}), pos")

    def default(self, spec: FieldSpec) -> str:
        """An expression for the value of an absent field."""
        if spec.default is list:
            return "[]"
        if spec.kind == "struct" and spec.default is spec.struct:
            return f"{self.constant(spec.struct.__name__, spec.struct)}()"
        return repr(spec.default)

    def length(self, var: str, kind: str, *, compact: bool, depth: int) -> None:
        """Read a length prefix into ``var``; a negative one is null, as Kafka reads it, though only -1 is written."""
        if compact:
            self.line(f"{var} = buf[pos]; pos += 1", depth)
            self.line(f"if {var} > 127: {var}, pos = long_uvarint(buf, pos, {var})", depth)
            self.line(f"{var} -= 1", depth)
        else:
            code, size = ("h", 2) if kind == "string" else ("i", 4)
            self.line(f"{var}, = {self.fused(code)}.unpack_from(buf, pos); pos += {size}", depth)

    def blob(self, kind: str, into: str, *, nullable: bool, compact: bool, depth: int) -> None:
        """Read a string or byte string into ``into``."""
        self.length("n", kind, compact=compact, depth=depth)
        if nullable:
            self.line(f"if n < 0: {into} = None", depth)
            self.line("else:", depth)
            depth += 1
        self.line("stop = pos + n", depth)
        most = f" or n > {MAX_STRING_BYTES}" if kind == "string" and compact else ""
        self.line(f"if n < 0 or stop > end{most}: raise bad('length of a {kind}', n)", depth)
        convert = {"string": "str(buf[pos:stop], 'utf-8', 'replace')", "bytes": "bytes(buf[pos:stop])"}
        self.line(f"{into} = {convert.get(kind, 'buf[pos:stop]')}; pos = stop", depth)

    def value(self, spec: FieldSpec, into: str, depth: int, *, tagged: bool = False) -> None:
        """Read one field of variable size."""
        if spec.is_array:
            self.array(spec, into, depth)
        elif spec.kind == "struct":
            assert spec.struct is not None
            name = self.struct(spec.struct)
            if self.nullable(spec):
                if tagged:
                    self.line("n = buf[pos]; pos += 1", depth)
                    self.line("if n > 127: n, pos = long_uvarint(buf, pos, n)", depth)
                else:
                    self.line(f"n, = {self.fused('b')}.unpack_from(buf, pos); pos += 1", depth)
                self.line(f"if n <= 0: {into} = None", depth)
                self.line(f"else: {into}, pos = {name}(buf, pos, end)", depth)
            else:
                self.line(f"{into}, pos = {name}(buf, pos, end)", depth)
        elif spec.kind in CODES:
            self.line(f"{into}, = {self.fused(CODES[spec.kind])}.unpack_from(buf, pos)", depth)
            self.line(f"pos += {struct.calcsize('>' + CODES[spec.kind])}", depth)
        else:
            self.blob(spec.kind, into, nullable=self.nullable(spec), compact=self.compact(spec), depth=depth)

    def array(self, spec: FieldSpec, into: str, depth: int) -> None:
        """Read an array; its count is held against the bytes that are left before anything is made."""
        kind = spec.element
        self.length("n", "array", compact=self.compact(spec), depth=depth)
        if self.nullable(spec):
            self.line(f"if n < 0: {into} = None", depth)
            self.line("else:", depth)
            depth += 1
        smallest = smallest_size(kind, spec.struct, self.version, flexible=self.flexible)
        self.line(f"if n < 0 or n * {smallest} > end - pos: raise bad('count of {spec.name}', n)", depth)
        if kind in FIXED:
            self.line(f"{into} = list(unpack_from(f'>{{n}}{CODES[kind]}', buf, pos)); pos += n * {smallest}", depth)
            return
        self.line(f"{into} = []", depth)
        self.line("for _ in range(n):", depth)
        if kind == "struct":
            assert spec.struct is not None
            self.line(f"item, pos = {self.struct(spec.struct)}(buf, pos, end)", depth + 1)
        elif kind == "uuid":
            self.line("item = bytes(buf[pos:pos + 16]); pos += 16", depth + 1)
        else:
            self.blob(kind, "item", nullable=False, compact=self.compact(spec), depth=depth + 1)
        self.line(f"{into}.append(item)", depth + 1)

    def tags(self, cls: type[Message]) -> None:
        """Read the tagged section; unknown tags are skipped."""
        self.line("count = buf[pos]; pos += 1")
        self.line("if count:")
        self.line("if count > 127: count, pos = long_uvarint(buf, pos, count)", 2)
        self.line("for _t in range(count):", 2)
        for var in ("tag", "size"):
            self.line(f"{var} = buf[pos]; pos += 1", 3)
            self.line(f"if {var} > 127: {var}, pos = long_uvarint(buf, pos, {var})", 3)
        self.line("tag_end = pos + size", 3)
        self.line("if tag_end > end: raise bad('size of a tag', size)", 3)
        word = "if"
        for spec in self.tagged(cls):
            self.line(f"{word} tag == {spec.tag}:", 3)
            self.value(spec, f"f_{spec.name}", 4, tagged=True)
            word = "elif"
        if word == "elif":
            self.line("else: pos = tag_end", 3)
            self.line("if pos != tag_end: raise bad('size of tag', tag)", 3)
        else:
            self.line("pos = tag_end", 3)


class EncodeEmitter(Emitter):
    """Writes ``encode(message, write)``."""

    direction = "encode"
    signature = "m, write"

    def body(self, cls: type[Message]) -> None:
        """Checks for what this version cannot carry, positional fields, then the tags."""
        for spec in fields_of(cls):
            if self.version not in spec.versions and not spec.ignorable:
                text = f"{cls.__name__}.{spec.name} does not exist in version {self.version}"
                self.line(f"if {self.differs(spec, f'm.{spec.name}')}: raise WireError({text!r})")
        for run in self.positional(cls):
            if run[0].kind in CODES:
                codes = "".join(CODES[s.kind] for s in run)
                for spec in run:
                    if spec.kind == "uuid":
                        self.line(f"if len(m.{spec.name}) != 16: raise bad('uuid', m.{spec.name})")
                self.line(f"write({self.fused(codes)}.pack({', '.join(f'm.{s.name}' for s in run)}))")
            else:
                self.value(run[0], f"m.{run[0].name}", 1)
        if self.flexible:
            self.tags(cls)
        elif len(self.lines) == 1:
            self.line("pass")

    def differs(self, spec: FieldSpec, value: str) -> str:
        """An expression: the field is not at its default."""
        if spec.default is list:
            return f"{value} is None or {value}"
        if spec.default is None:
            return f"{value} is not None"
        if spec.kind == "struct":
            name = self.constant("default_" + spec.name, spec.fresh_default())
            return f"{value} != {name}"
        return f"{value} != {spec.default!r}"

    def length(self, value: str, kind: str, *, compact: bool) -> str:
        """An expression for a length prefix."""
        if compact:
            return f"uvarint({value} + 1)"
        return f"{self.fused('h' if kind == 'string' else 'i')}.pack({value})"

    def blob(self, kind: str, value: str, *, nullable: bool, compact: bool, depth: int) -> None:
        """Write a string or byte string."""
        self.line(f"x = {value}", depth)
        self.line("if x is None:", depth)
        if nullable:
            null = b"\x00" if compact else b"\xff\xff" if kind == "string" else b"\xff\xff\xff\xff"
            self.line(f"write({null!r})", depth + 1)
        else:
            self.line(f"raise WireError('null for a {kind} that may not be null')", depth + 1)
        self.line("else:", depth)
        if kind == "string":
            self.line("x = x.encode()", depth + 1)
        self.line(f"write({self.length('len(x)', kind, compact=compact)}); write(x)", depth + 1)

    def value(self, spec: FieldSpec, value: str, depth: int, *, tagged: bool = False) -> None:
        """Write one field of variable size."""
        if spec.is_array:
            self.array(spec, value, depth)
        elif spec.kind == "struct":
            assert spec.struct is not None
            name = self.struct(spec.struct)
            if self.nullable(spec):
                null = b"\x00" if tagged else b"\xff"
                self.line(f"if {value} is None: write({null!r})", depth)
                self.line(f"else: write(b'\\x01'); {name}({value}, write)", depth)
            else:
                self.line(f"{name}({value}, write)", depth)
        elif spec.kind in CODES:
            if spec.kind == "uuid":
                self.line(f"if len({value}) != 16: raise bad('uuid', {value})", depth)
            self.line(f"write({self.fused(CODES[spec.kind])}.pack({value}))", depth)
        else:
            self.blob(spec.kind, value, nullable=self.nullable(spec), compact=self.compact(spec), depth=depth)

    def array(self, spec: FieldSpec, value: str, depth: int) -> None:
        """Write an array."""
        kind, compact = spec.element, self.compact(spec)
        self.line(f"a = {value}", depth)
        self.line("if a is None:", depth)
        if self.nullable(spec):
            null = b"\x00" if compact else b"\xff\xff\xff\xff"
            self.line(f"write({null!r})", depth + 1)
        else:
            self.line(f"raise WireError('null for {spec.name}')", depth + 1)
        self.line("else:", depth)
        self.line(f"write({self.length('len(a)', 'array', compact=compact)})", depth + 1)
        if kind in FIXED:
            self.line(f"write(pack(f'>{{len(a)}}{CODES[kind]}', *a))", depth + 1)
            return
        self.line("for item in a:", depth + 1)
        if kind == "struct":
            assert spec.struct is not None
            self.line(f"{self.struct(spec.struct)}(item, write)", depth + 2)
        elif kind == "uuid":
            self.line("if len(item) != 16: raise bad('uuid', item)", depth + 2)
            self.line("write(item)", depth + 2)
        else:
            self.blob(kind, "item", nullable=False, compact=compact, depth=depth + 2)

    def tags(self, cls: type[Message]) -> None:
        """Write the tagged section: only fields that are not at their default, each behind its size."""
        tagged = self.tagged(cls)
        if not tagged:
            self.line("write(b'\\x00')")
            return
        self.line("tags = []; outer = write")
        for spec in tagged:
            self.line(f"if {self.differs(spec, f'm.{spec.name}')}:")
            self.line("part = []; write = part.append", 2)
            self.value(spec, f"m.{spec.name}", 2, tagged=True)
            self.line("part = b''.join(part)", 2)
            self.line(f"tags += [uvarint({spec.tag}), uvarint(len(part)), part]", 2)
        self.line("outer(uvarint(len(tags) // 3))")
        self.line("for part in tags: outer(part)")
