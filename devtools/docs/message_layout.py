"""Layout of messages on the reference pages: fields as nested lists, and example bytes with the field beside them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ottla.wire.codec.explain import explain
from ottla.wire.codec.schema import FieldSpec, Message, Versions, fields_of
from ottla.wire.field_dump import FieldSpan, format_spans

WIDTH = 118
MAX_LINE_CHARS = 180
HEX_BYTES = 16


def wrap(text: str, indent: int = 0, first: str = "") -> list[str]:
    """Return a text as lines of at most `WIDTH` characters, indented by ``indent`` spaces.

    The first line starts with ``first``, such as ``- ``, instead of the indentation. Longer words are not broken.
    """
    space = " " * indent
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first or space,
        subsequent_indent=space,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _within(versions: Versions, served: Versions) -> str:
    """Return the served versions in ``versions`` as text: ``""`` for all of them, ``none`` if there are none."""
    low, high = max(versions.low, served.low), min(versions.high, served.high)
    if low > high:
        return "none"
    if (low, high) == (served.low, served.high):
        return ""
    if low == high:
        return f"version {low}"
    return f"version {low} and later" if high == served.high else f"versions {low} to {high}"


def _type_name(spec: FieldSpec) -> str:
    name = spec.element if spec.is_array else spec.kind
    if spec.struct is not None:
        name = spec.struct.__name__
    return f"array of {name}" if spec.is_array else name


def _properties(spec: FieldSpec, served: Versions) -> str:
    """Return type, versions, nullability and tag of a field as text, without what holds for all served versions."""
    out = [f"*{_type_name(spec)}*"]
    versions = _within(spec.versions, served)
    if versions:
        out.append(versions)
    nullable = _within(spec.nullable, served)
    if nullable != "none":
        out.append(f"nullable in {nullable}" if nullable and nullable != versions else "nullable")
    if _within(spec.tagged, served) != "none":
        tagged = _within(spec.tagged, served)
        out.append(f"tag {spec.tag}{f' in {tagged}' if tagged and tagged != versions else ''}")
    return ", ".join(out)


def field_list(cls: type[Message], served: Versions, indent: int = 0) -> Iterator[str]:
    """Yield the lines of a nested Markdown list of the fields that exist in one of the versions ``served``."""
    explanation = explain(cls)
    start = " " * indent + "- "
    for spec in fields_of(cls):
        if _within(spec.versions, served) == "none":
            continue
        text = explanation.fields.get(spec.name, "")
        yield from wrap(f"`{spec.name}` ({_properties(spec, served)}): {text}", indent + 2, start)
        if spec.struct is not None:
            summary = explain(spec.struct).summary
            yield from wrap(f"`{spec.struct.__name__}`: {summary}", indent + 4, f"{' ' * (indent + 2)}- ")
            yield from field_list(spec.struct, served, indent + 4)


def annotated_bytes(spans: list[FieldSpan], raw: bytes) -> list[str]:
    """Return the lines of a Markdown code block with the bytes of each field in hexadecimal, its name and its value."""
    return ["```text", *map(_shorten, format_spans(spans, raw, HEX_BYTES)), "```"]


def _shorten(line: str) -> str:
    """Return a line of at most `MAX_LINE_CHARS`; a longer one is cut and ends with an ellipsis."""
    return line.rstrip() if len(line) <= MAX_LINE_CHARS else f"{line[: MAX_LINE_CHARS - 1].rstrip()}…"
