"""Mutation testing: mutants are found, and killed and surviving ones are distinguished."""

from __future__ import annotations

import subprocess
import sys

import pytest

from devtools import mutate
from devtools.mutations import find_mutants, statement_spans

MUTANTS = [
    ("if a < b: f()", {"(a <= b)", "(a >= b)"}),
    ("x = a < b <= c", {"(a <= b <= c)", "(a >= b <= c)", "(a < b < c)", "(a < b > c)"}),
    ("x = a is None", {"(a is not None)"}),
    ("x = (7, 0, True, 'up', b'k', 1.5, -1)", {"8", "0", "1", "False", "''", 'b""', "2.5", "2"}),
    ("x: Annotated[int, w('int32', '12+', tag=0)] = -1", {"''", "'13+'", "1", "2"}),
    ("def f(n):\n    n.x = 1\n    g()\n    n.y += z", {"pass", "2"}),
    ("async def f():\n    for n in x:\n        await g()\n        continue\n    raise E", {"pass"}),
    ("def f(n) -> bool:\n    return g(n)", {"(not (g(n)))"}),
    ("def f(n) -> int:\n    return g(n)", {"None"}),
    ("x = a and not b", {"(a or not b)", "(b)"}),
    ("if a: f()", {"(not (a))"}),
    ("x = a if f() else b", {"(not (f()))"}),
    ("x = a + b * c", {"(a - b * c)", "(b // c)"}),
    ("def f(n=3): pass", {"4", "0"}),
]


@pytest.mark.parametrize(("source", "texts"), MUTANTS)
def test_find_mutants_returns_every_change(source: str, texts: set[str]) -> None:
    assert {c.text for c in find_mutants("x.py", source.encode())} == texts


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        "def f():\n    logger.warning('disk %d gone', 7)",
        "assert 3 < n, 'three'",
        "if TYPE_CHECKING:\n    from a import b",
        "x: int | None",
        "x = f'{1 + 2}'",
        "class C(Struct, frozen=True): pass",
        "@dataclass(slots=True)\nclass C: pass",
        "raised = 'a text of several words'",
        "def __repr__(self):\n    return 'x' + 1",
        "Answer = Message | None",
    ],
)
def test_find_mutants_of_texts_and_annotations_returns_none(source: str) -> None:
    assert not find_mutants("x.py", source.encode())


def test_source_diff_returns_line_before_and_after() -> None:
    source = b"def f():\n    return  g(1,\n  2)\nx = 1\n"
    found = next(c for c in find_mutants("x.py", source) if c.text == "None")
    assert found.source_diff(source) == ("return g(1, 2)", "return None")
    assert found.apply_to(source) == b"def f():\n    return  None\nx = 1\n"


def test_statement_spans_of_compound_statement_covers_its_head() -> None:
    spans = statement_spans(b"if (a and\n        b):\n    f(1,\n      2)\n")
    assert spans == {1: range(1, 3), 2: range(1, 3), 3: range(3, 5), 4: range(3, 5)}


@pytest.mark.parametrize("unit", mutate.UNITS)
def test_choose_mutants_returns_compilable_changes_of_all_kinds(unit: str) -> None:
    picked = mutate.choose_mutants(unit, 60, seed=3)
    for change in picked:
        compile(change.apply_to((mutate.ROOT / change.path).read_bytes()), change.path, "exec")
    assert picked == mutate.choose_mutants(unit, 60, seed=3)
    assert picked != mutate.choose_mutants(unit, 60, seed=4)
    kinds = [c.kind for c in picked[: len({c.kind for c in mutate.all_mutants(unit)})]]
    assert len(kinds) == len(set(kinds)) >= 5


def test_equivalent_mutants_exist_in_the_sources() -> None:
    for (path, old, new), why in mutate.load_equivalent_mutants().items():
        source = (mutate.ROOT / path).read_bytes()
        assert (old, new) in {c.source_diff(source) for c in find_mutants(path, source)}, f"{path}: {old}"
        assert len(why) > 10


JUDGE = """
from devtools import mutate
from devtools.mutations import Mutant
path = "wire/framing.py"
source = (mutate.ROOT / path).read_bytes()
at = source.index(b"class ")
line = source[:at].count(b"\\n") + 1
made = ["# nothing\\n", "raise ValueError\\n", "while True: pass\\n"]
changes = [Mutant(path, "dropped", line, at, at, text) for text in made]
for result in mutate.run([path], changes, jobs=2, test_files=["wire/tests/test_framing.py"]):
    print(result.mutant.text.split()[0], result.killed)
"""


def test_run_mutants_distinguishes_killed_and_surviving_ones() -> None:
    done = subprocess.run([sys.executable, "-c", JUDGE], cwd=mutate.ROOT, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == ["# False", "raise True", "while True"], done.stderr
