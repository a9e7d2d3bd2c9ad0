"""Mutants of a source file: small wrong changes.

A mutant is a comparison reversed or moved by one, a constant altered, a statement dropped, a result swapped, a
condition negated, arithmetic reversed. Unchanged are: texts for people, annotations (but for the wire types they
carry), assertions (they state impossible cases), logging, and names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
REVERSED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
# Calls with texts for people or type checkers, and keywords that never change a result.
SILENT_CALLS = {"getLogger", "cast", "TypeVar", "NewType", "NamedTuple", "warn"}
SILENT_KEYWORDS = {"slots", "frozen", "strict", "repr", "gc", "match_args", "kw_only", "daemon"}
SILENT_FUNCTIONS = {"__repr__", "__str__", "__hash__"}
KINDS = ("comparison", "constant", "dropped", "result", "condition", "arithmetic")


class Mutant(NamedTuple):
    """Mutant of the file `path`: its bytes [start, end), in line `lineno` (from 1), become `text`."""

    path: str
    kind: str
    lineno: int
    start: int
    end: int
    text: str

    def apply_to(self, source: bytes) -> bytes:
        """Return the content of the file, given as ``source``, with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def source_diff(self, source: bytes) -> tuple[str, str]:
        """Return the changed lines before and after, each as one line with single spaces."""
        first, last = source.rfind(b"\n", 0, self.start) + 1, source.find(b"\n", self.end)
        before = source[first : last if last >= 0 else len(source)].decode()
        after = (source[first : self.start] + self.text.encode() + source[self.end : last]).decode()
        old, new = (" ".join(x.split()) for x in (before, after))
        return old, new


def find_mutants(path: str, source: bytes) -> list[Mutant]:
    """Return every mutant of the file, in the order of its lines."""
    finder = _MutantFinder(path, source)
    finder.visit(ast.parse(source))
    return sorted(set(finder.mutants), key=lambda c: (c.start, c.end, c.text))


def statement_spans(source: bytes) -> dict[int, range]:
    """Return, by line (from 1), the lines of its innermost statement; of a compound one those of its head.

    Lines outside of these have no entry: comments between statements, decorators, ``else:`` and the like.

    Raises:
        SyntaxError: the source is invalid.
    """
    spans: dict[int, range] = {}
    for node in ast.walk(ast.parse(source)):  # outer statements come first
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None) or getattr(node, "cases", None)
            end = _first_lineno(body[0]) - 1 if body else node.end_lineno or node.lineno
            span = range(node.lineno, max(end, node.lineno) + 1)
            spans.update(dict.fromkeys(span, span))
    return spans


def _first_lineno(node: ast.AST) -> int:
    where = node.pattern if isinstance(node, ast.match_case) else node
    decorators = getattr(where, "decorator_list", [])
    line: int = min([where.lineno, *(d.lineno for d in decorators)])  # type: ignore[attr-defined]
    return line


def _is_text(value: str) -> bool:
    return " " in value or not value


class _MutantFinder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.mutants = path, list[Mutant]()
        self._starts = [0]
        for line in source.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []

    def _add(self, kind: str, node: ast.AST, text: str) -> None:
        at: ast.expr = node  # type: ignore[assignment]
        assert at.end_lineno is not None
        assert at.end_col_offset is not None
        start, end = self._starts[at.lineno - 1] + at.col_offset, self._starts[at.end_lineno - 1] + at.end_col_offset
        self.mutants.append(Mutant(self.path, kind, at.lineno, start, end, text))

    def _drop(self, node: ast.stmt) -> None:
        if self._functions:
            self._add("dropped", node, "pass")

    # Statements

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call):
            if not _is_silent(call):
                self._drop(node)
                self.visit(call)
        elif not isinstance(call, ast.Constant):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(t, ast.Name) and t.id.startswith("__") for t in node.targets):
            return
        if any(isinstance(t, ast.Attribute | ast.Subscript) for t in node.targets):
            self._drop(node)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._drop(node)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        # A message's fields carry their wire type in the annotation: Annotated[int, wire_field("int32", "12+")].
        for inner in ast.walk(node.annotation):
            if isinstance(inner, ast.Call):
                self.visit(inner)
        if isinstance(node.target, ast.Attribute) and node.value is not None:
            self._drop(node)
        if node.value is not None:
            self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._drop(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._drop(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._drop(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._drop(node)

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is None:
            self._drop(node)
            return
        if isinstance(value, ast.Constant) and value.value is None:
            return
        wanted = self._functions[-1].returns if self._functions else None
        if isinstance(wanted, ast.Name) and wanted.id == "bool":
            self._add("result", value, f"(not ({ast.unparse(value)}))")
        else:
            self._add("result", value, "None")
        self.visit(value)

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in SILENT_FUNCTIONS:
            return
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        self._functions.append(node)
        for statement in node.body:
            self.visit(statement)
        self._functions.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    # Expressions

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
            self._add("condition", test, f"(not ({ast.unparse(test)}))")

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, op in enumerate(node.ops):
            for other in COMPARED[type(op)]:
                ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
                self._add("comparison", node, f"({ast.unparse(ast.Compare(node.left, ops, node.comparators))})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add("condition", node, f"({ast.unparse(ast.BoolOp(other, node.values))})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add("condition", node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = REVERSED.get(type(node.op))
        if other is not None and not any(_is_no_number(side) for side in (node.left, node.right)):
            self._add("arithmetic", node, f"({ast.unparse(ast.BinOp(node.left, other(), node.right))})")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_silent(node):
            return
        self.visit(node.func)
        for argument in node.args:
            self.visit(argument)
        for keyword in node.keywords:
            if keyword.arg not in SILENT_KEYWORDS:
                self.visit(keyword.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        for text in _other_constants(node.value):
            self._add("constant", node, text)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return  # a text, and Python 3.11 knows no columns inside it

    def visit_MatchValue(self, node: ast.MatchValue) -> None:
        if isinstance(node.value, ast.Constant):
            self.visit(node.value)


def _is_silent(call: ast.Call) -> bool:
    func = call.func
    if isinstance(func, ast.Attribute):
        root = func.value
        return func.attr in SILENT_CALLS or (
            isinstance(root, ast.Name) and root.id in ("logger", "logging", "warnings")
        )
    return isinstance(func, ast.Name) and func.id in SILENT_CALLS


def _is_no_number(side: ast.expr) -> bool:
    """Return True for an operand that is a string, a collection, or a type as in `int | None`: no arithmetic."""
    if isinstance(side, ast.Constant):
        return not isinstance(side.value, int | float)
    if isinstance(side, ast.Name):
        return side.id in ("str", "int", "bytes", "list", "dict") or bool(re.match(r"_?[A-Z][a-z]", side.id))
    return isinstance(side, ast.JoinedStr | ast.List | ast.Dict | ast.Tuple)


def _other_constants(value: object) -> Iterator[str]:
    match value:
        case bool():
            yield repr(not value)
        case int() | float():
            yield repr(value + 1)
            if value not in (0, 1):
                yield "0"
        case str() if not _is_text(value):
            number = re.match(r"\d+", value)
            yield repr(str(int(number[0]) + 1) + value[number.end() :] if number else "")
        case bytes() if value:
            yield 'b""'
