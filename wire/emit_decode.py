"""Writes the functions that read: counts and lengths are held against the bytes left before anything is made."""

from __future__ import annotations

import struct

from ottla.wire.budget import NUMBER_BYTES, POINTER_BYTES, SHORT_BYTES, VIEW_BYTES, cost_bytes
from ottla.wire.emit import CODES, SLICE_ELEMENTS, SLICE_NUMBERS, Emitter
from ottla.wire.interpreter import smallest_size
from ottla.wire.primitives import FIXED, MAX_STRING_BYTES, MAX_UNKNOWN_TAGS
from ottla.wire.schema import FieldSpec, Message, fields_of
from ottla.wire.unread import compact_string, plain_compact_string, plain_string, read_array, string


class DecodeEmitter(Emitter):
    """Writes ``decode(buf, pos, end) -> (message, pos)``; sliced, also with a `Budget` to be paid from."""

    direction = "decode"

    numbers_stop = True

    def __init__(self, version: int, *, flexible: bool, sliced: bool = False) -> None:
        super().__init__(version, flexible=flexible, sliced=sliced)
        self._plain: DecodeEmitter | None = None
        self.names |= {
            "read_array": read_array,
            "read_compact": compact_string,
            "read_string": string,
            "plain_compact": plain_compact_string,
            "plain_string": plain_string,
        }

    def parameters(self) -> str:
        """The parameters of every function."""
        return "buf, pos, end, budget" if self.sliced else "buf, pos, end"

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
        if self.sliced:
            size = VIEW_BYTES if kind == "records" else f"{into}.__sizeof__()"
            self.line(f"if n: (budget.take if n < {SHORT_BYTES} else budget.spend)({size})", depth)

    def value(self, spec: FieldSpec, into: str, depth: int, *, tagged: bool = False) -> None:
        """Read one field of variable size."""
        if spec.is_array:
            self.array(spec, into, depth)
        elif spec.kind == "struct":
            assert spec.struct is not None
            read = self.call(spec.struct, self.parameters())
            if self.nullable(spec):
                if tagged:
                    self.line("n = buf[pos]; pos += 1", depth)
                    self.line("if n > 127: n, pos = long_uvarint(buf, pos, n)", depth)
                else:
                    self.line(f"n, = {self.fused('b')}.unpack_from(buf, pos); pos += 1", depth)
                self.line(f"if n {'== 0' if tagged else '< 0'}: {into} = None", depth)
                self.line(f"else: {into}, pos = {read}", depth)
            else:
                self.line(f"{into}, pos = {read}", depth)
        elif spec.kind in CODES:
            self.line(f"{into}, = {self.fused(CODES[spec.kind])}.unpack_from(buf, pos)", depth)
            self.line(f"pos += {struct.calcsize('>' + CODES[spec.kind])}", depth)
            if self.sliced and tagged:
                self.line(f"budget.spend({NUMBER_BYTES})", depth)
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
        is_read_again = self.sliced and kind in ("struct", "string")
        if self.sliced and not is_read_again:
            self.line(f"budget.take(n * {self.element_bytes(spec)})", depth)
        if kind in FIXED:
            self.numbers(CODES[kind], smallest, into, depth)
            return
        if is_read_again:
            form = "compact" if self.compact(spec) else "string"
            read, plain = f"read_{form}", f"plain_{form}"
            if spec.struct is not None:
                read, plain = self.struct(spec.struct), self.plain(spec.struct)
            arguments = f"{read}, {plain}, n, {self.element_bytes(spec)}, buf, pos, end, budget"
            self.line(f"{into}, pos = yield from read_array({arguments})", depth)
            return
        self.line(f"{into} = []", depth)
        self.line("for i in range(n):", depth)
        if kind == "struct":
            assert spec.struct is not None
            self.line(f"item, pos = {self.call(spec.struct, self.parameters())}", depth + 1)
        elif kind == "uuid":
            self.line("item = bytes(buf[pos:pos + 16]); pos += 16", depth + 1)
        else:
            self.blob(kind, "item", nullable=False, compact=self.compact(spec), depth=depth + 1)
        self.line(f"{into}.append(item)", depth + 1)
        if self.sliced:
            self.line(f"if not i & {SLICE_ELEMENTS - 1}: yield", depth + 1)

    def plain(self, cls: type[Message]) -> str:
        """Write the function that reads a struct in one go (once) and give its name."""
        if self._plain is None:
            self._plain = DecodeEmitter(self.version, flexible=self.flexible)
            self._plain.functions, self._plain.names = self.functions, self.names
        return self._plain.struct(cls)

    def numbers(self, code: str, size: int, into: str, depth: int) -> None:
        """Read ``n`` numbers at once, or so many at a time."""
        if not self.sliced:
            self.line(f"{into} = list(unpack_from(f'>{{n}}{code}', buf, pos)); pos += n * {size}", depth)
            return
        self.line(f"{into} = []", depth)
        self.line(f"for i in range(0, n, {SLICE_NUMBERS}):", depth)
        self.line(f"some = min(n - i, {SLICE_NUMBERS})", depth + 1)
        self.line(f"{into} += unpack_from(f'>{{some}}{code}', buf, pos); pos += some * {size}", depth + 1)
        self.line("yield", depth + 1)

    def element_bytes(self, spec: FieldSpec) -> int:
        """What one element of an array costs a budget, without the bytes of texts."""
        if spec.struct is not None:
            return POINTER_BYTES + cost_bytes(spec.struct, self.version)
        return POINTER_BYTES + (0 if spec.element in ("bool", "int8") else NUMBER_BYTES)

    def tags(self, cls: type[Message]) -> None:
        """Read the tagged section; unknown tags are skipped, and there cannot be many of them."""
        self.line("count = buf[pos]; pos += 1")
        self.line("if count:")
        self.line("if count > 127: count, pos = long_uvarint(buf, pos, count)", 2)
        most = MAX_UNKNOWN_TAGS + len(self.tagged(cls))
        self.line(f"if count > {most}: raise bad('count of tags', count)", 2)
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
