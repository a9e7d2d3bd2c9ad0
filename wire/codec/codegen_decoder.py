"""Generator of decode functions, which compare counts and lengths with the remaining bytes before allocating."""

from __future__ import annotations

import struct

from ottla.wire.codec.codegen import ELEMENTS_PER_YIELD, NUMBERS_PER_YIELD, STRUCT_CODES, CodecGenerator
from ottla.wire.codec.decode_budget import (
    NUMBER_BYTES,
    POINTER_BYTES,
    SHORT_STRING_BYTES,
    VIEW_BYTES,
    estimate_instance_bytes,
)
from ottla.wire.codec.interpreter import min_encoded_size
from ottla.wire.codec.lazy_array import (
    read_array_job,
    read_compact_string,
    read_string,
    read_unbudgeted_compact_string,
    read_unbudgeted_string,
)
from ottla.wire.codec.primitives import FIXED_SIZE_FORMATS
from ottla.wire.codec.schema import FieldSpec, Message, fields_of
from ottla.wire.limits import MAX_STRING_BYTES, MAX_UNKNOWN_TAGS


class DecoderGenerator(CodecGenerator):
    """Generator of ``decode(buf, pos, end) -> (message, pos)``; the sliced variant also charges a `DecodeBudget`."""

    direction = "decode"

    yields_in_numbers = True

    def __init__(self, version: int, *, flexible: bool, sliced: bool = False) -> None:
        super().__init__(version, flexible=flexible, sliced=sliced)
        self._unbudgeted: DecoderGenerator | None = None
        self.namespace |= {
            "read_array": read_array_job,
            "read_compact": read_compact_string,
            "read_string": read_string,
            "plain_compact": read_unbudgeted_compact_string,
            "plain_string": read_unbudgeted_string,
        }

    def parameters(self) -> str:
        """Return the parameters of the generated functions as source text, separated by commas, without parentheses."""
        return "buf, pos, end, budget" if self.sliced else "buf, pos, end"

    def generate_body(self, cls: type[Message]) -> None:
        """Emit code that reads the fields of a struct, positional ones first, and returns it and the position after."""
        local = {spec.name: f"f_{spec.name}" for spec in fields_of(cls)}
        positional = {s.name for run in self.positional_runs(cls) for s in run}
        for spec in fields_of(cls):
            if spec.name not in positional:
                self.emit(f"f_{spec.name} = {self.default_expression(spec)}")
        for run in self.positional_runs(cls):
            if run[0].kind in STRUCT_CODES:
                codes = "".join(STRUCT_CODES[s.kind] for s in run)
                name = self.struct_format_name(codes)
                self.emit(f"{', '.join(local[s.name] for s in run)}, = {name}.unpack_from(buf, pos)")
                self.emit(f"pos += {struct.calcsize('>' + codes)}")
            else:
                self.generate_value(run[0], local[run[0].name], 1)
        if self.flexible:
            self.generate_tagged_fields(cls)
        self.emit(f"return {self.global_name(cls.__name__, cls)}({', '.join(local.values())}), pos")

    def default_expression(self, spec: FieldSpec) -> str:
        """Return the default value of a field as source text of an expression."""
        if spec.default is list:
            return "[]"
        if spec.kind == "struct" and spec.default is spec.struct:
            return f"{self.global_name(spec.struct.__name__, spec.struct)}()"
        return repr(spec.default)

    def generate_length(self, var: str, kind: str, *, compact: bool, depth: int) -> None:
        """Emit code that reads a length prefix into the variable ``var``; any negative length means null, as in Kafka.

        The prefix is an unsigned varint if ``compact``, else an int16 for ``kind`` "string" and an int32 for others.
        """
        if compact:
            self.emit(f"{var} = buf[pos]; pos += 1", depth)
            self.emit(f"if {var} > 127: {var}, pos = long_uvarint(buf, pos, {var})", depth)
            self.emit(f"{var} -= 1", depth)
        else:
            code, size = ("h", 2) if kind == "string" else ("i", 4)
            self.emit(f"{var}, = {self.struct_format_name(code)}.unpack_from(buf, pos); pos += {size}", depth)

    def generate_blob(self, kind: str, into: str, *, nullable: bool, compact: bool, depth: int) -> None:
        """Emit code that reads a string or byte string of type ``kind`` into the variable ``into``.

        The sliced variant charges its size to the budget.
        """
        self.generate_length("n", kind, compact=compact, depth=depth)
        if nullable:
            self.emit(f"if n < 0: {into} = None", depth)
            self.emit("else:", depth)
            depth += 1
        self.emit("stop = pos + n", depth)
        most = f" or n > {MAX_STRING_BYTES}" if kind == "string" and compact else ""
        self.emit(f"if n < 0 or stop > end{most}: raise bad('length of a {kind}', n)", depth)
        convert = {"string": "str(buf[pos:stop], 'utf-8', 'replace')", "bytes": "bytes(buf[pos:stop])"}
        self.emit(f"{into} = {convert.get(kind, 'buf[pos:stop]')}; pos = stop", depth)
        if self.sliced:
            size = VIEW_BYTES if kind == "records" else f"{into}.__sizeof__()"
            self.emit(f"if n: (budget.charge_elements if n < {SHORT_STRING_BYTES} else budget.charge)({size})", depth)

    def generate_value(self, spec: FieldSpec, into: str, depth: int, *, tagged: bool = False) -> None:
        """Emit code that reads a field into the variable ``into``; ``tagged``: from the tagged section of a struct."""
        if spec.is_array:
            self.generate_array(spec, into, depth)
        elif spec.kind == "struct":
            assert spec.struct is not None
            read = self.call_expression(spec.struct, self.parameters())
            if self.is_nullable(spec):
                if tagged:
                    self.emit("n = buf[pos]; pos += 1", depth)
                    self.emit("if n > 127: n, pos = long_uvarint(buf, pos, n)", depth)
                else:
                    self.emit(f"n, = {self.struct_format_name('b')}.unpack_from(buf, pos); pos += 1", depth)
                self.emit(f"if n {'== 0' if tagged else '< 0'}: {into} = None", depth)
                self.emit(f"else: {into}, pos = {read}", depth)
            else:
                self.emit(f"{into}, pos = {read}", depth)
        elif spec.kind in STRUCT_CODES:
            self.emit(f"{into}, = {self.struct_format_name(STRUCT_CODES[spec.kind])}.unpack_from(buf, pos)", depth)
            self.emit(f"pos += {struct.calcsize('>' + STRUCT_CODES[spec.kind])}", depth)
            if self.sliced and tagged:
                self.emit(f"budget.charge({NUMBER_BYTES})", depth)
        else:
            self.generate_blob(
                spec.kind, into, nullable=self.is_nullable(spec), compact=self.is_compact(spec), depth=depth
            )

    def generate_array(self, spec: FieldSpec, into: str, depth: int) -> None:
        """Emit code that reads an array into the variable ``into``; its count is compared with the bytes left first.

        The sliced variant charges the budget and yields.
        """
        kind = spec.element
        self.generate_length("n", "array", compact=self.is_compact(spec), depth=depth)
        if self.is_nullable(spec):
            self.emit(f"if n < 0: {into} = None", depth)
            self.emit("else:", depth)
            depth += 1
        smallest = min_encoded_size(kind, spec.struct, self.version, flexible=self.flexible)
        self.emit(f"if n < 0 or n * {smallest} > end - pos: raise bad('count of {spec.name}', n)", depth)
        is_read_again = self.sliced and kind in ("struct", "string")
        if self.sliced and not is_read_again:
            self.emit(f"budget.charge_elements(n * {self.element_cost_bytes(spec)})", depth)
        if kind in FIXED_SIZE_FORMATS:
            self.generate_numbers(STRUCT_CODES[kind], smallest, into, depth)
            return
        if is_read_again:
            form = "compact" if self.is_compact(spec) else "string"
            read, plain = f"read_{form}", f"plain_{form}"
            if spec.struct is not None:
                read, plain = self.generate_struct(spec.struct), self.generate_unbudgeted_struct(spec.struct)
            arguments = f"{read}, {plain}, n, {self.element_cost_bytes(spec)}, buf, pos, end, budget"
            self.emit(f"{into}, pos = yield from read_array({arguments})", depth)
            return
        self.emit(f"{into} = []", depth)
        self.emit("for i in range(n):", depth)
        if kind == "struct":
            assert spec.struct is not None
            self.emit(f"item, pos = {self.call_expression(spec.struct, self.parameters())}", depth + 1)
        elif kind == "uuid":
            self.emit("item = bytes(buf[pos:pos + 16]); pos += 16", depth + 1)
        else:
            self.generate_blob(kind, "item", nullable=False, compact=self.is_compact(spec), depth=depth + 1)
        self.emit(f"{into}.append(item)", depth + 1)
        if self.sliced:
            self.emit(f"if not i & {ELEMENTS_PER_YIELD - 1}: yield", depth + 1)

    def generate_unbudgeted_struct(self, cls: type[Message]) -> str:
        """Generate the plain decode function of a struct, unless it is generated already; return its name."""
        if self._unbudgeted is None:
            self._unbudgeted = DecoderGenerator(self.version, flexible=self.flexible)
            self._unbudgeted.functions, self._unbudgeted.namespace = self.functions, self.namespace
        return self._unbudgeted.generate_struct(cls)

    def generate_numbers(self, code: str, size: int, into: str, depth: int) -> None:
        """Emit code that reads an array of numbers into ``into``: at once, or sliced in groups of `NUMBERS_PER_YIELD`.

        Its count is in the variable ``n``. ``code``, ``size``: format character of `struct`, and bytes of a number.
        """
        if not self.sliced:
            self.emit(f"{into} = list(unpack_from(f'>{{n}}{code}', buf, pos)); pos += n * {size}", depth)
            return
        self.emit(f"{into} = []", depth)
        self.emit(f"for i in range(0, n, {NUMBERS_PER_YIELD}):", depth)
        self.emit(f"some = min(n - i, {NUMBERS_PER_YIELD})", depth + 1)
        self.emit(f"{into} += unpack_from(f'>{{some}}{code}', buf, pos); pos += some * {size}", depth + 1)
        self.emit("yield", depth + 1)

    def element_cost_bytes(self, spec: FieldSpec) -> int:
        """Return the bytes charged to the budget for each element of an array, without the contents of strings."""
        if spec.struct is not None:
            return POINTER_BYTES + estimate_instance_bytes(spec.struct, self.version)
        return POINTER_BYTES + (0 if spec.element in ("bool", "int8") else NUMBER_BYTES)

    def generate_tagged_fields(self, cls: type[Message]) -> None:
        """Emit code that reads the tagged fields of a struct and skips at most `MAX_UNKNOWN_TAGS` unknown ones."""
        self.emit("count = buf[pos]; pos += 1")
        self.emit("if count:")
        self.emit("if count > 127: count, pos = long_uvarint(buf, pos, count)", 2)
        most = MAX_UNKNOWN_TAGS + len(self.tagged_fields(cls))
        self.emit(f"if count > {most}: raise bad('count of tags', count)", 2)
        self.emit("for _t in range(count):", 2)
        for var in ("tag", "size"):
            self.emit(f"{var} = buf[pos]; pos += 1", 3)
            self.emit(f"if {var} > 127: {var}, pos = long_uvarint(buf, pos, {var})", 3)
        self.emit("tag_end = pos + size", 3)
        self.emit("if tag_end > end: raise bad('size of a tag', size)", 3)
        word = "if"
        for spec in self.tagged_fields(cls):
            self.emit(f"{word} tag == {spec.tag}:", 3)
            self.generate_value(spec, f"f_{spec.name}", 4, tagged=True)
            word = "elif"
        if word == "elif":
            self.emit("else: pos = tag_end", 3)
            self.emit("if pos != tag_end: raise bad('size of tag', tag)", 3)
        else:
            self.emit("pos = tag_end", 3)
