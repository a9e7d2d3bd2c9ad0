"""Numbers of behaviours in code and tests resolve to an entry of docs/reference/behaviours."""

from __future__ import annotations

import re

from devtools.docs.behaviours import PAGE, find_identifiers, find_references, python_files, read_behaviours, render_page

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


def test_behaviour_tests_page_matches_the_code() -> None:
    assert PAGE.read_text() == render_page(), "run python -m devtools.docs.behaviours"
