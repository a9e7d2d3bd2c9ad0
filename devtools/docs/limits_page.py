"""Generator of `docs/reference/limits.md`: the limits of a client's or request's cost to a node."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

from devtools.docs.limits_table import INTRO, SECTIONS
from ottla.broker.config.key_docs import BROKER_DOCS
from ottla.broker.quotas.connection_quotas import NO_LIMIT
from ottla.controller.config.broker_config_keys import BROKER_KEYS

NOTE = "<!-- written by python -m devtools.docs.reference -->"
PACKAGES = ("broker", "controller", "log", "wire")

_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_IN_BRACES = re.compile(r"\{([\w.]+)(?: (\w+))?\}")
_BEYOND = "Beyond: "
LIMITS_MODULES = ("broker.config.limits", "controller.limits", "log.limits", "wire.limits")
_SUFFIXES = (
    ("_RATIO", "times"),
    ("_PER_MINUTE", "lines"),
    ("_INTERVAL_MS", "each"),
    ("_INTERVAL_S", "each_s"),
    ("_BYTES", "bytes"),
    ("_CHARS", "chars"),
    ("_MS", "time"),
    ("_S", "seconds"),
)


def _bytes(value: float) -> str:
    for size, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= size and value % size == 0:
            return f"{value // size:,} {name}"
    return f"{value:,} bytes"


def _time(ms: float) -> str:
    for size, name in _UNITS:
        if ms >= size and ms % size == 0:
            return f"{ms / size:g} {name}{'' if ms == size else 's'}"
    return f"{ms:g} ms"


def _each(ms: float) -> str:
    return f"one each {_time(ms).removeprefix('1 ')}"


FORMS: dict[str, Callable[[Any], str]] = {
    "bytes": _bytes,
    "chars": lambda value: f"{value:,} characters",
    "count": lambda value: "no bound" if value == NO_LIMIT else f"{value:,}",
    "each": _each,
    "each_s": lambda value: _each(value * 1000),
    "endless": lambda ms: _time(ms) if ms else "for ever",
    "lines": lambda value: f"{value:,} a minute",
    "packed": lambda value: f"{', '.join(f'{most:,}' for most in value[1:])} times their size",
    "seconds": lambda value: _time(value * 1000),
    "time": _time,
    "times": lambda value: f"{value} times its size",
    "turns": lambda _: "one at a time",
}


def form_of(name: str) -> str:
    """Return the key in `FORMS` for a constant, by the unit at the end of its name; ``count`` without a unit."""
    return next((form for suffix, form in _SUFFIXES if name.endswith(suffix)), "count")


@cache
def documented_limits(module: str) -> dict[str, tuple[str, str]]:
    """Return two texts for each documented constant of a limits module: what it bounds, and what happens beyond.

    ``module``: name without ``ottla.``. The second text is empty for a constant that only supports another one.
    """
    out: dict[str, tuple[str, str]] = {}
    body = ast.parse(inspect.getsource(import_module(f"ottla.{module}"))).body
    for node, after in pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = [" ".join(part.split()) for part in str(after.value.value).split("\n\n")]
            beyond = text[-1].removeprefix(_BEYOND) if text[-1].startswith(_BEYOND) else ""
            out[ast.unparse(node.targets[0])] = text[0].removesuffix("."), beyond.removesuffix(".")
    return out


def _value(source: str) -> Any:
    """Return the default of the broker setting ``source``, or the value of the constant ``MODULE.NAME``."""
    if source in BROKER_KEYS:
        assert source in BROKER_DOCS, f"{source} has no effect"
        return int(BROKER_KEYS[source].default or 0)
    module, name = source.rsplit(".", 1)
    return getattr(import_module(module if module.startswith("ottla.") else f"ottla.{module}"), name)


def _where(source: str) -> str:
    if source in BROKER_KEYS:
        return f"`{source}`"
    module, name = source.rsplit(".", 1)
    place = module if module.startswith("ottla.") or module.split(".")[0] in PACKAGES else f"ottla.{module}"
    return f"`{name}`, `{place.replace('.', '/')}.py`"


def _row(text: str) -> str:
    where, *cells = (part.strip() for part in " ".join(text.split()).split("|"))
    names, _, form = where.rpartition(" ")
    sources = names.split(", ") if names else [form]
    module, _, name = sources[0].rpartition(".")
    if not cells:
        value, then = documented_limits(module)[name]
        assert then, f"{sources[0]}: what happens beyond it?"
        cells = [value, then]
    form = form if names else form_of(name)

    def shown(found: re.Match[str]) -> str:
        source = found[1] if "." in found[1] else f"{module}.{found[1]}"
        return FORMS[found[2] or form_of(source)](_value(source))

    most = ", ".join(dict.fromkeys(FORMS[form](_value(source)) for source in sources))
    row = f"| {cells[0]} | {most} | {cells[1]} | {', '.join(map(_where, sources))} |"
    return _IN_BRACES.sub(shown, row)


def _section(title: str, text: str) -> Iterator[str]:
    yield from (f"## {title}", "")
    parts = text.strip().split("\n\n")
    if " " in parts[0] and "|" not in parts[0]:
        yield from (parts.pop(0), "")
    yield from ("| what | at most | then | set by / where |", "|---|---|---|---|", *map(_row, parts), "")


def limits_page() -> str:
    """Return the Markdown text of ``docs/reference/limits.md``."""
    lines = ["# Limits", NOTE, "", INTRO]
    for title, text in SECTIONS.items():
        lines += _section(title, text)
    return "\n".join(lines).rstrip() + "\n"
