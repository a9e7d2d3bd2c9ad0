"""Explanations of message classes and their fields, read from the docstrings in the source on demand.

A class is explained by its docstring, a field by a string directly below it (an attribute docstring, PEP 257), the
history of a message's versions by the string below ``SPEC``. The string below the ``SPEC`` of a request may continue
with two sections: ``Flow:`` (sender, receiver, when, and the receiver's action) and ``Errors:`` (lines of ``CODE: when
it occurs``, for error codes that no field explains). The compiler drops all strings but the docstring of the class, so
that they take no memory in a node. Only tools and the web console import this module: it parses source text.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

from ottla.wire.codec.interpreter import check_version
from ottla.wire.codec.schema import FieldSpec, Message, fields_of

_MAX_COMMENTS = 512
"""Wrapped texts that are kept: wrapping takes most of the time of a message with its explanations."""


class Explanation(NamedTuple):
    """Explanation of a message class and its fields; texts are empty if the source has none or is not installed."""

    summary: str
    versions: str
    fields: dict[str, str]
    flow: str
    errors: dict[str, str]
    """Error code -> condition under which it occurs, for codes that no field explains."""


@cache
def _module_tree(module: str) -> ast.Module | None:
    """Return the syntax tree of an imported module, or None if only its bytecode is installed."""
    try:
        return ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return None


def _string(node: ast.stmt | None) -> str:
    """Return the text of a docstring statement with normalised whitespace; empty for any other statement."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


def _class_explanation(node: ast.ClassDef) -> Explanation:
    texts = {}
    for statement, below in pairwise([*node.body, None]):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
        for target in targets:
            if isinstance(target, ast.Name):
                texts[target.id] = _string(below)
    history, _, errors = texts.pop("SPEC", "").partition("Errors: ")
    versions, _, flow = history.partition("Flow: ")
    return Explanation(_string(node.body[0]), versions.strip(), texts, flow.strip(), _error_texts(errors))


_ERROR_START = re.compile(r"(?:^|(?<=\. ))([A-Z][A-Z_]{3,}(?:, [A-Z][A-Z_]{3,})*): ")


def _error_texts(section: str) -> dict[str, str]:
    """Return the texts of an ``Errors:`` section by error code; codes separated by commas share one text."""
    parts = _ERROR_START.split(section)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {code: text.strip() for codes, text in pairs for code in codes.split(", ")}


@cache
def explain(cls: type) -> Explanation:
    """Return the explanation of a message class, or of any other class with fields or enumeration members.

    All texts are empty if the source is not installed.
    """
    tree = _module_tree(cls.__module__)
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return _class_explanation(node)
    return Explanation("", "", {}, "", {})


def resolve_path(cls: type[Message], path: str) -> tuple[type[Message], str]:
    """Return the message class and the field name at the end of a path of `interpreter.Trace`.

    Parts of the path that are no field are ignored; without any field the name is empty.

    Args:
        cls: The message class in which the path begins.
        path: Such as ``topics[0].partitions.count``; the count of an array belongs to the array's field, and the
            tagged section of a struct is its field ``tags``.
    """
    owner, field = cls, ""
    struct: type[Message] | None = cls
    for part in path.split("."):
        name, is_element, _ = part.partition("[")
        spec = next((x for x in fields_of(struct) if x.name == name), None) if struct is not None else None
        if spec is not None:
            assert struct is not None
            owner, field = struct, spec.name
            struct = spec.struct if is_element or not spec.is_array else None
        elif name == "tags" and struct is not None:
            owner, field = struct, "tags"
    return owner, field


def _type(spec: FieldSpec, version: int) -> str:
    kind = spec.kind.replace("struct", spec.struct.__name__) if spec.struct else spec.kind
    notes = ["nullable"] if version in spec.nullable else []
    notes += [f"tag {spec.tag}"] if version in spec.tagged else []
    return f"{kind} ({', '.join(notes)})" if notes else kind


@lru_cache(_MAX_COMMENTS)
def format_comment(text: str, indent: int = 0, width: int = 100) -> tuple[str, ...]:
    """Return ``text`` as Python comments, wrapped at ``width`` and indented by ``indent``; () for an empty text."""
    start = " " * indent + "# "
    return tuple(textwrap.wrap(text, width, initial_indent=start, subsequent_indent=start, break_on_hyphens=False))


def format_layout(cls: type[Message], version: int, indent: int = 0) -> Iterator[str]:
    """Yield lines with the fields of a message version, their types and explanations; nested structs are indented."""
    explanation = explain(cls)
    for spec in fields_of(cls):
        if version in spec.versions:
            yield from format_comment(explanation.fields.get(spec.name, ""), indent)
            yield f"{' ' * indent}{spec.name}: {_type(spec, version)}"
            if spec.struct is not None:
                yield from format_layout(spec.struct, version, indent + 4)


def format_message_layout(cls: type[Message], version: int) -> Iterator[str]:
    """Yield lines with name, version, summary and version history of a message, then its `format_layout`.

    Raises:
        WireError: The message has no such version.
    """
    check_version(cls, version)
    explanation = explain(cls)
    for text in (explanation.summary, explanation.versions):
        yield from format_comment(text)
    yield f"{cls.__name__} v{version}"
    yield from format_layout(cls, version, 4)


def annotate_source(cls: type[Message], version: int, source: str) -> Iterator[str]:
    """Yield the lines of ``source``, a generated codec of ``cls``, with comments that explain each struct."""
    structs = {struct.__name__: struct for struct in _structs(cls)}
    for line in source.splitlines():
        struct = structs.get(line.partition("_")[2].rpartition("_v")[0]) if line.startswith("def ") else None
        if struct is not None:
            explanation = explain(struct)
            yield from format_comment(f"{struct.__name__}: {explanation.summary}")
            for spec in fields_of(struct):
                if version in spec.versions:
                    yield from format_comment(f"{spec.name}: {explanation.fields.get(spec.name, '')}".rstrip(": "))
        yield line


def _structs(cls: type[Message]) -> Iterator[type[Message]]:
    yield cls
    for spec in fields_of(cls):
        if spec.struct is not None:
            yield from _structs(spec.struct)
