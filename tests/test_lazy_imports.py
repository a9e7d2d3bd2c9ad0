"""Imports: at the top of the module, or in product code with the measured cost beside them.

`devtools.lazy_imports` measures the costs. Tests and tools import the packages at the top: they cost a node no time.
"""

from __future__ import annotations

import ast

import pytest

from devtools.lazy_imports import ROOT, find_lazy_imports, product_files
from devtools.prose import files

OWN = ("ottla", "sim", "compat_tests", "bench", "devtools", "spark_it", "tests")
IMPORT_CYCLES = {"compat_tests/cluster/test_mixed_cluster.py": "its campaign imports from it"}
"""Modules outside the product that import a module of ours in a function, with the reason."""
PATH = ROOT / "broker" / "node.py"
LAZY = "# lazy: 1.5 ms, 60 kB"


def places_without_comment(text: str) -> list[int]:
    return [each.lineno for each in find_lazy_imports(PATH, text) if each.comment is None]


def test_function_level_imports_have_their_measured_cost_in_a_comment() -> None:
    found = []
    for path in product_files():
        found += [each.place for each in find_lazy_imports(path, path.read_text()) if each.comment is None]
    assert not found, f"import at the top of the module, or run python -m devtools.lazy_imports --write: {found}"


def imports_in_functions(text: str) -> list[int]:
    """Return the lines of imports of our packages in functions, without those that state their cost."""
    lines = text.split("\n")
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = set()
    for node in [each for function in functions for each in ast.walk(function)]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            name = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
            if name.split(".")[0] in OWN and "# lazy: " not in lines[node.lineno - 2]:
                found.add(node.lineno)
    return sorted(found)


def test_modules_outside_the_product_import_our_packages_at_the_top() -> None:
    product = {path.resolve() for path in product_files()}
    found = {}
    for name in files(".py"):
        if (ROOT / name).resolve() not in product and name not in IMPORT_CYCLES:
            found[name] = imports_in_functions((ROOT / name).read_text())
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_imports_in_functions_returns_lines_of_our_packages() -> None:
    text = "import ottla\ndef f():\n    import json\n    from sim import engine\n    async def g(): import ottla.wire\n"
    assert imports_in_functions(text) == [4, 5]
    assert imports_in_functions("def f():\n    # lazy: 1 ms, 2 kB\n    import ottla.wire\n") == []


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
