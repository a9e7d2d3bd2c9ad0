"""The measurement of function-level imports: costs, comparison with the comments, and their correction."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from devtools import lazy_imports
from devtools.lazy_imports import ROOT, Cost, LazyImport, expand, find_lazy_imports, is_accurate, write_comment


def test_targets_are_modules_and_tables_of_modules() -> None:
    text = "def f():\n    from ottla.wire import errors\n    from ottla.wire.errors import WireError\n"
    text += "    x()\n    import_module(f'ottla.wire.codec.{x}')"
    found = find_lazy_imports(ROOT / "broker" / "node.py", text)
    assert [(each.lineno, each.targets) for each in found] == [
        (2, ("ottla.wire.errors", "ottla.wire.errors")),
        (5, ("ottla.wire.codec.*",)),
    ]
    assert found[0].importer == "ottla.broker.node"
    assert "ottla.wire.codec.schema" in expand("ottla.wire.codec.*")
    assert not [name for name in expand("ottla.wire.*") if ".tests" in name]


@pytest.mark.parametrize(
    ("comment", "cost", "accurate"),
    [
        ((1.0, 50), Cost(1.2, 55), True),
        ((1.0, 50), Cost(4.4, 50), True),
        ((1.0, 50), Cost(4.6, 50), False),
        ((10.0, 50), Cost(2.8, 50), False),
        ((1.0, 500), Cost(1.0, 580), True),
        ((1.0, 500), Cost(1.0, 610), False),
        ((0.0, 0), Cost(0.0, 15), False),
    ],
)
def test_comment_is_accurate_within_the_noise(comment: tuple[float, int], cost: Cost, accurate: bool) -> None:
    assert is_accurate(comment, cost) is accurate


def test_import_cost_counts_modules_not_imported_yet() -> None:
    cases = [["ottla.wire.errors", ["ottla.wire.errors"]], ["ottla.wire.errors", ["ottla.wire.messages.fetch"]]]
    cases += [["ottla.wire.messages.fetch", ["ottla.wire.messages.fetch"]], ["ottla.wire.errors", ["no_such_library"]]]
    plan = json.dumps({"base": ["ottla.wire.codec.schema"], "cases": cases})
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "devtools.import_cost"]
    done = subprocess.run(command, cwd=ROOT, input=plan, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    sizes = [size_bytes for _, size_bytes in json.loads(done.stdout)]
    assert sizes[0] < 2_000
    assert sizes[1] > 20_000
    assert sizes[2] < 2_000
    assert math.isnan(sizes[3])


def test_written_comment_replaces_the_cost_and_keeps_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_imports, "ROOT", tmp_path)
    path = tmp_path / "x.py"
    path.write_text(
        "def f():\n    # why this is so\n    from ottla import a\n\n\n"
        "def g():\n    # lazy: 9.0 ms, 9 kB: few nodes need this\n    from ottla import a\n\n\n"
        "def h():\n    from ottla import a  # lazy: 9.0 ms\n"
    )
    for each in reversed(find_lazy_imports(path, path.read_text())):
        write_comment(each, Cost(1.25, 7))
    assert path.read_text() == (
        "def f():\n    # why this is so\n    # lazy: 1.2 ms, 7 kB\n    from ottla import a\n\n\n"
        "def g():\n    # lazy: 1.2 ms, 7 kB: few nodes need this\n    from ottla import a\n\n\n"
        "def h():\n    from ottla import a  # lazy: 1.2 ms, 7 kB\n"
    )
    assert [each.comment for each in find_lazy_imports(path, path.read_text())] == [(1.2, 7)] * 3


def test_place_is_path_and_line() -> None:
    assert LazyImport(ROOT / "log" / "x.py", 3, (), None).place == "log/x.py:3"
