"""Writes the functions that write: what a version cannot carry is refused unless it may be left out."""

from __future__ import annotations

from ottla.wire.emit import CODES, SLICE_ELEMENTS, Emitter
from ottla.wire.primitives import FIXED, SMALL_UVARINTS
from ottla.wire.schema import FieldSpec, Message, fields_of


class EncodeEmitter(Emitter):
    """Writes ``encode(message, write)``, where ``write`` takes byte strings and whatever else has a length."""

    direction = "encode"

    def parameters(self) -> str:
        """The parameters of every function."""
        return "m, write"

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
            write = "text_length" if kind == "string" else "uvarint"
            return f"small[n] if (n := {value} + 1) < {len(SMALL_UVARINTS)} else {write}(n)"
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
            write = self.call(spec.struct, f"{value}, write")
            if self.nullable(spec):
                null = b"\x00" if tagged else b"\xff"
                self.line(f"if {value} is None: write({null!r})", depth)
                self.line(f"else: write(b'\\x01'); {write}", depth)
            else:
                self.line(write, depth)
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
        if kind == "struct":
            self.line("if a.__class__ is not list: rest(a, write)", depth + 1)
        self.line("for i, item in enumerate(a):" if self.sliced else "for item in a:", depth + 1)
        if kind == "struct":
            assert spec.struct is not None
            self.line(self.call(spec.struct, "item, write"), depth + 2)
        elif kind == "uuid":
            self.line("if len(item) != 16: raise bad('uuid', item)", depth + 2)
            self.line("write(item)", depth + 2)
        else:
            self.blob(kind, "item", nullable=False, compact=compact, depth=depth + 2)
        if self.sliced:
            self.line(f"if not i & {SLICE_ELEMENTS - 1}: yield", depth + 2)

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
