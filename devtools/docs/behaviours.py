"""Generator of the page of tests by behaviour, ``docs/reference/behaviours/tests.md``.

``python -m devtools.docs.behaviours`` writes it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs" / "reference" / "behaviours"
PAGE = FOLDER / "tests.md"
PAGES = ("protocol.md", "coordinators.md", "replication.md", "security.md")
PACKAGES = (
    "wire",
    "log",
    "controller",
    "broker",
    "ottla",
    "sim",
    "compat_tests",
    "spark_it",
    "bench",
    "devtools",
    "tests",
)
ANCHOR = re.compile(r'<a id="([prcs]-\d+)"></a>\*\*([PRCS]-\d+)\.? ?([^*]*?)\.?\*\*')
ID = re.compile(r"\b(?!P-(?:256|384|521)\b)([PRCS])-(\d{1,3})\b")  # those are elliptic curves
RANGE = re.compile(r"\b([PRCS])-(\d{1,3}) (?:to|through) (?:\1-)?(\d{1,3})\b")


class Behaviour(NamedTuple):
    """A numbered rule of Kafka in ``docs/reference/behaviours``: the page that describes it, and its title."""

    page: str
    title: str


class Reference(NamedTuple):
    """Place in the code or the tests that names a behaviour."""

    identifier: str
    path: Path
    lineno: int
    test: str | None
    """The test function that is marked with the identifier; None for a comment or a docstring."""


def read_behaviours() -> dict[str, Behaviour]:
    """Return the behaviours of all `PAGES` by their identifiers, for example R-246.

    Raises:
        ValueError: an identifier occurs twice, or its anchor has another number.
    """
    found: dict[str, Behaviour] = {}
    for page in PAGES:
        for anchor, identifier, title in ANCHOR.findall((FOLDER / page).read_text()):
            if identifier in found or anchor != identifier.lower():
                raise ValueError(f"duplicate identifier or wrong anchor: {identifier} ({page})")
            found[identifier] = Behaviour(page, title)
    return found


def find_identifiers(text: str) -> Iterator[str]:
    """Yield the identifiers of behaviours that a text names; "S-331 to S-333" names three. Some may be repeated.

    Prefixes are P, R, C and S, without the names of elliptic curves. Identifiers within ranges come first.
    """
    for kind, first, last in RANGE.findall(text):
        yield from (f"{kind}-{number}" for number in range(int(first) + 1, int(last)))
        yield f"{kind}-{last}"
    for kind, number in ID.findall(text):
        yield f"{kind}-{number}"


def python_files() -> Iterator[Path]:
    """Yield the project's modules, each once: not through the links in ``ottla/``."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield path


def find_references(path: Path) -> Iterator[Reference]:
    """Yield the identifiers in a module: those in any line but a marker's, such as comments, then those of markers."""
    text = path.read_text()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("@pytest.mark.behaviour"):
            yield from (Reference(identifier, path, number, None) for identifier in find_identifiers(line))
    if "pytest.mark.behaviour" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            for marker in node.decorator_list:
                if isinstance(marker, ast.Call) and ast.unparse(marker.func) == "pytest.mark.behaviour":
                    for argument in marker.args:
                        yield Reference(ast.literal_eval(argument), path, node.lineno, node.name)


def render_page() -> str:
    """Return the Markdown page: for each behaviour, the tests marked with it, and the modules that name it.

    A test module that names it elsewhere is in the column of tests. Behaviours that nothing names are left out.
    """
    tests: dict[str, dict[str, None]] = {}
    modules: dict[str, dict[str, None]] = {}
    for path in python_files():
        name = path.relative_to(ROOT).as_posix()
        for reference in find_references(path):
            link = f"[{reference.test or path.name}](../../../{name})"
            is_test = path.name.startswith("test_")
            (tests if is_test else modules).setdefault(reference.identifier, {})[link] = None
    lines = [
        "# Tests and modules by behaviour",
        "<!-- written by python -m devtools.docs.behaviours -->",
        "",
        "This page names, for each numbered behaviour of Kafka, the tests that hold it and the modules that implement",
        "it.",
        "A test belongs to a behaviour if it is marked with `@pytest.mark.behaviour`; a module, if one of its comments",
        "or docstrings names the number. Behaviours that neither a test nor a module names are left out.",
    ]
    behaviours = read_behaviours()
    for page in PAGES:
        lines += [
            "",
            f"## {page.removesuffix('.md').capitalize()}",
            "",
            "| behaviour | tests | modules |",
            "| --- | --- | --- |",
        ]
        for identifier, behaviour in behaviours.items():
            if behaviour.page == page and (identifier in tests or identifier in modules):
                cells = (", ".join(where.get(identifier, {})) for where in (tests, modules))
                title = f" {behaviour.title}" if behaviour.title else ""
                lines.append(f"| [{identifier}]({page}#{identifier.lower()}){title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render_page())
