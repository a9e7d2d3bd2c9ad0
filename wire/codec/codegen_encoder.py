"""Generator of encode functions, which reject values of fields that the version lacks, unless they are ignorable."""

from __future__ import annotations

from ottla.wire.codec.codegen import ELEMENTS_PER_YIELD, STRUCT_CODES, CodecGenerator
from ottla.wire.codec.primitives import FIXED_SIZE_FORMATS, SMALL_UVARINTS
from ottla.wire.codec.schema import FieldSpec, Message, fields_of


class EncoderGenerator(CodecGenerator):
    """Generator of ``encode(message, write)``; ``write`` is called with bytes, or with the value of a records field."""

    direction = "encode"

    def parameters(self) -> str:
        """Return the parameters of the generated functions as source text, separated by commas, without parentheses."""
        return "m, write"

    def generate_body(self, cls: type[Message]) -> None:
        """Emit code that writes a struct.

        That code raises WireError if a field that the version lacks has another value than its default, unless the
        field is ignorable.
        """
        for spec in fields_of(cls):
            if self.version not in spec.versions and not spec.ignorable:
                text = f"{cls.__name__}.{spec.name} does not exist in version {self.version}"
                self.emit(f"if {self.differs_expression(spec, f'm.{spec.name}')}: raise WireError({text!r})")
        for run in self.positional_runs(cls):
            if run[0].kind in STRUCT_CODES:
                codes = "".join(STRUCT_CODES[s.kind] for s in run)
                for spec in run:
                    if spec.kind == "uuid":
                        self.emit(f"if len(m.{spec.name}) != 16: raise bad('uuid', m.{spec.name})")
                self.emit(f"write({self.struct_format_name(codes)}.pack({', '.join(f'm.{s.name}' for s in run)}))")
            else:
                self.generate_value(run[0], f"m.{run[0].name}", 1)
        if self.flexible:
            self.generate_tagged_fields(cls)
        elif len(self.statements) == 1:
            self.emit("pass")

    def differs_expression(self, spec: FieldSpec, value: str) -> str:
        """Return the source of a condition: expression ``value`` differs from a field's default.

        Its value is not always a bool. It has no parentheses around it, and may evaluate ``value`` twice.
        """
        if spec.default is list:
            return f"{value} is None or {value}"
        if spec.default is None:
            return f"{value} is not None"
        if spec.kind == "struct":
            name = self.global_name("default_" + spec.name, spec.default_value())
            return f"{value} != {name}"
        return f"{value} != {spec.default!r}"

    def length_expression(self, value: str, kind: str, *, compact: bool) -> str:
        """Return the source of an expression for the length prefix of a string, byte string or array.

        ``value``: expression of the length. ``compact``: as unsigned varint of length + 1.
        """
        if compact:
            write = "text_length" if kind == "string" else "uvarint"
            return f"small[n] if (n := {value} + 1) < {len(SMALL_UVARINTS)} else {write}(n)"
        return f"{self.struct_format_name('h' if kind == 'string' else 'i')}.pack({value})"

    def generate_blob(self, kind: str, value: str, *, nullable: bool, compact: bool, depth: int) -> None:
        """Emit code that writes the expression ``value``, a string or byte string of type ``kind``, or null."""
        self.emit(f"x = {value}", depth)
        self.emit("if x is None:", depth)
        if nullable:
            null = b"\x00" if compact else b"\xff\xff" if kind == "string" else b"\xff\xff\xff\xff"
            self.emit(f"write({null!r})", depth + 1)
        else:
            self.emit(f"raise WireError('null for a {kind} that may not be null')", depth + 1)
        self.emit("else:", depth)
        if kind == "string":
            self.emit("x = x.encode()", depth + 1)
        self.emit(f"write({self.length_expression('len(x)', kind, compact=compact)}); write(x)", depth + 1)

    def generate_value(self, spec: FieldSpec, value: str, depth: int, *, tagged: bool = False) -> None:
        """Emit code that writes the expression ``value`` as a field; ``tagged``: in the tagged section of its struct.

        Positional fields of fixed size are written several at once by `generate_body`.
        """
        if spec.is_array:
            self.generate_array(spec, value, depth)
        elif spec.kind == "struct":
            assert spec.struct is not None
            write = self.call_expression(spec.struct, f"{value}, write")
            if self.is_nullable(spec):
                null = b"\x00" if tagged else b"\xff"
                self.emit(f"if {value} is None: write({null!r})", depth)
                self.emit(f"else: write(b'\\x01'); {write}", depth)
            else:
                self.emit(write, depth)
        elif spec.kind in STRUCT_CODES:
            if spec.kind == "uuid":
                self.emit(f"if len({value}) != 16: raise bad('uuid', {value})", depth)
            self.emit(f"write({self.struct_format_name(STRUCT_CODES[spec.kind])}.pack({value}))", depth)
        else:
            self.generate_blob(
                spec.kind, value, nullable=self.is_nullable(spec), compact=self.is_compact(spec), depth=depth
            )

    def generate_array(self, spec: FieldSpec, value: str, depth: int) -> None:
        """Emit code that writes the expression ``value``, an array: its length or null, then the elements.

        The sliced variant yields every `ELEMENTS_PER_YIELD` elements.
        """
        kind, compact = spec.element, self.is_compact(spec)
        self.emit(f"a = {value}", depth)
        self.emit("if a is None:", depth)
        if self.is_nullable(spec):
            null = b"\x00" if compact else b"\xff\xff\xff\xff"
            self.emit(f"write({null!r})", depth + 1)
        else:
            self.emit(f"raise WireError('null for {spec.name}')", depth + 1)
        self.emit("else:", depth)
        self.emit(f"write({self.length_expression('len(a)', 'array', compact=compact)})", depth + 1)
        if kind in FIXED_SIZE_FORMATS:
            self.emit(f"write(pack(f'>{{len(a)}}{STRUCT_CODES[kind]}', *a))", depth + 1)
            return
        if kind == "struct":
            rows = "drain" if self.sliced else "write_encoded"
            self.emit(f"if a.__class__ is ResponseArray: a = a.{rows}(write)", depth + 1)
        self.emit("for i, item in enumerate(a):" if self.sliced else "for item in a:", depth + 1)
        if kind == "struct":
            assert spec.struct is not None
            self.emit(self.call_expression(spec.struct, "item, write"), depth + 2)
        elif kind == "uuid":
            self.emit("if len(item) != 16: raise bad('uuid', item)", depth + 2)
            self.emit("write(item)", depth + 2)
        else:
            self.generate_blob(kind, "item", nullable=False, compact=compact, depth=depth + 2)
        if self.sliced:
            self.emit(f"if not i & {ELEMENTS_PER_YIELD - 1}: yield", depth + 2)

    def generate_tagged_fields(self, cls: type[Message]) -> None:
        """Emit code that writes the tagged fields that differ from their defaults, each with tag and size."""
        tagged = self.tagged_fields(cls)
        if not tagged:
            self.emit("write(b'\\x00')")
            return
        self.emit("tags = []; outer = write")
        for spec in tagged:
            self.emit(f"if {self.differs_expression(spec, f'm.{spec.name}')}:")
            self.emit("part = []; write = part.append", 2)
            self.generate_value(spec, f"m.{spec.name}", 2, tagged=True)
            self.emit("part = b''.join(part)", 2)
            self.emit(f"tags += [uvarint({spec.tag}), uvarint(len(part)), part]", 2)
        self.emit("outer(uvarint(len(tags) // 3))")
        self.emit("for part in tags: outer(part)")
