"""Numbers of behaviours in code and tests resolve to an entry of docs/reference/behaviours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devtools.docs.behaviours import (
    FOLDER,
    PAGES,
    find_identifiers,
    find_links,
    find_references,
    python_files,
    read_behaviours,
    render_page,
)

_FORMER = re.compile(r"\bR\d{3}\b|\b(?:items?|traps?|facts?) \d+\b|def test_(?:facts?|items?|traps?|r|s)_?\d+_")


def test_behaviour_identifiers_in_code_resolve() -> None:
    behaviours = read_behaviours()
    assert len(behaviours) > 440
    missing = [
        f"{reference.path}:{reference.lineno}: {reference.identifier}"
        for path in python_files()
        for reference in find_references(path)
        if reference.identifier not in behaviours
    ]
    assert not missing, "\n".join(missing)


def test_python_files_contain_no_former_numbers() -> None:
    found = [
        f"{path}: {m[0]}"
        for path in python_files()
        if path.name != "test_behaviours.py"
        for m in _FORMER.finditer(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_find_identifiers_of_range_returns_all() -> None:
    assert sorted(set(find_identifiers("S-331 to S-333, P-99 and S-350 to 351"))) == [
        "P-99", "S-331", "S-332", "S-333", "S-350", "S-351",
    ]  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_links_of_behaviours_to_tests_match_the_code(page: str) -> None:
    text = (FOLDER / page).read_text()
    assert text == render_page(text, find_links()), "run python -m devtools.docs.behaviours"


_ENTRIES = """<a id="p-1"></a>**P-1. One.** Text. *Source:* `A`.

<a id="p-2"></a>**P-2. Two.**

| a | b |

Source: `B`.

More.

**No number.** Text.
"""


def test_render_page_puts_links_below_the_sources_and_replaces_them() -> None:
    first = render_page(
        _ENTRIES, {"Tests": {"P-1": ["[t](x)"], "P-2": ["[u](y)", "[v](z)"]}, "Code": {"P-2": ["[m](m)"]}}
    )
    assert "*Source:* `A`.\n\n*Tests:* [t](x).\n\n<a id=" in first
    assert "Source: `B`.\n\n*Tests:* [u](y), [v](z).\n\n*Code:* [m](m).\n\nMore.\n\n**No number.**" in first
    assert render_page(first, {"Tests": {}, "Code": {}}) == _ENTRIES


def test_find_references_returns_markers_of_functions_and_coroutines(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    marker = '@pytest.mark.behaviour("R-201", "R-202")\n'
    path.write_text(f"# C-101\n{marker}def test_a(): ...\n\n\n{marker}async def test_b(): ...\n")
    found = [(each.identifier, each.test) for each in find_references(path)]
    assert found == [
        ("C-101", None),
        *((number, test) for test in ("test_a", "test_b") for number in ("R-201", "R-202")),
    ]
