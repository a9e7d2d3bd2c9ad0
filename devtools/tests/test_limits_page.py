"""Page of limits: each bound of the limits modules, with its unit and the consequence beyond it."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from devtools.docs.limits_page import LIMITS_MODULES, documented_limits, form_of, limits_page
from devtools.docs.limits_table import SECTIONS


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\b[A-Z][A-Z0-9_]{3,}\b", text))


@pytest.mark.parametrize("module", LIMITS_MODULES)
def test_each_limit_has_a_docstring_and_is_on_the_page(module: str) -> None:
    names = {name for name in vars(import_module(f"ottla.{module}")) if name.isupper()}
    limits = documented_limits(module)
    assert limits.keys() == names
    rows = {row for text in SECTIONS.values() for row in text.strip().split("\n\n")}
    shown = {name for name in names if f"{module}.{name}" in rows}
    assert {name for name, (_, beyond) in limits.items() if beyond} == shown
    named = names_in(" ".join(SECTIONS.values()))
    named |= {
        name for m in LIMITS_MODULES for texts in documented_limits(m).values() for name in names_in(" ".join(texts))
    }
    assert names <= shown | named, "a part of another bound is named there"


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("MAX_X_BYTES", "bytes"),
        ("MAX_X_CHARS", "chars"),
        ("X_TIMEOUT_MS", "time"),
        ("X_TIMEOUT_S", "seconds"),
        ("MIN_X_INTERVAL_MS", "each"),
        ("MIN_X_INTERVAL_S", "each_s"),
        ("MAX_X_PER_MINUTE", "lines"),
        ("X_MAX_RATIO", "times"),
        ("MAX_PARTITIONS", "count"),
    ],
)
def test_unit_of_a_limit_is_the_end_of_its_name(name: str, form: str) -> None:
    assert form_of(name) == form


def test_row_of_a_limit_has_value_reason_and_module() -> None:
    (row,) = (line for line in limits_page().split("\n") if "`MAX_HTTP_CONNECTIONS`" in line)
    assert row.split(" | ")[1:] == [
        "32",
        "the one without a request for longest is closed; while all have a request under way, the oldest",
        "`MAX_HTTP_CONNECTIONS`, `broker/config/limits.py` |",
    ]
    (row,) = (line for line in limits_page().split("\n") if "`AUTHENTICATION_TIMEOUT_MS`" in line)
    assert "| 30 seconds | the connection is closed, at most 10 seconds later." in row, "names in braces are numbers"
