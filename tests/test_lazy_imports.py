"""Imports: at the top of the module, or with the measured cost beside them.

Product code only: imports of tests cost a node no time. `devtools.lazy_imports` measures the costs.
"""

from __future__ import annotations

import pytest

from devtools.lazy_imports import ROOT, find_lazy_imports, product_files

PATH = ROOT / "broker" / "node.py"
LAZY = "# lazy: 1.5 ms, 60 kB"


def places_without_comment(text: str) -> list[int]:
    return [each.lineno for each in find_lazy_imports(PATH, text) if each.comment is None]


def test_function_level_imports_have_their_measured_cost_in_a_comment() -> None:
    found = []
    for path in product_files():
        found += [each.place for each in find_lazy_imports(path, path.read_text()) if each.comment is None]
    assert not found, f"import at the top of the module, or run python -m devtools.lazy_imports --write: {found}"


@pytest.mark.parametrize(
    "statement",
    [
        "from ottla.wire import errors",
        "import ottla.wire.errors",
        "import json",
        "import_module('ottla.wire.errors')",
        "x = importlib.import_module(f'ottla.wire.messages.{name}').y",
        "async def inner(): import ottla.log",
        "from ottla.wire import errors  # few nodes need this",
        "from ottla.wire import errors  # lazy: few nodes need this",
        "from ottla.wire import errors  # lazy: 1.5 ms",
    ],
)
def test_import_in_a_function_without_its_cost_is_found(statement: str) -> None:
    assert places_without_comment(f"def f():\n    {statement}") == [2]
    assert places_without_comment(f"class C:\n    def f(self):\n        if x:\n            {statement}") == [4]


@pytest.mark.parametrize(
    "text",
    [
        "from ottla.wire import errors",
        "if TYPE_CHECKING:\n    from ottla.wire import errors",
        "def f():\n    import_module('gssapi')\n    import_module(name)",
        f"def f():\n    from ottla.wire import errors  {LAZY}",
        f"def f():\n    {LAZY}: few nodes need this\n    from ottla.wire import errors",
        f"def f():\n    {LAZY}\n    from ottla.wire import errors\n    import ottla.log\n    from ottla import jobs",
        f"def f():\n    {LAZY}\n    import trio\n\n    from ottla.wire import errors",
        f"def f():\n    {LAZY}\n    return import_module(f'ottla.wire.messages.{{name}}').X",
    ],
)
def test_import_at_the_top_or_with_its_cost_is_accepted(text: str) -> None:
    assert places_without_comment(text) == []


def test_import_comment_applies_to_directly_following_imports() -> None:
    text = f"def f():\n    {LAZY}\n    from ottla.wire import errors\n    x()\n    from ottla.log import retention"
    assert places_without_comment(text) == [5]
