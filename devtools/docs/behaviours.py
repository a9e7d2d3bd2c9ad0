"""Generator of the links from the behaviours in ``docs/reference/behaviours`` to their tests and modules.

``python -m devtools.docs.behaviours`` writes them below the entries of the pages: paragraphs that begin with
``*Tests:*`` or ``*Code:*``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from devtools.docs.message_layout import wrap

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs" / "reference" / "behaviours"
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
ENTRY = re.compile(r'^<a id="([prcs]-\d+)">.*?(?=^<a id=|^#|^\*\*|\Z)', re.M | re.S)
"""Entry of a behaviour: up to the next one, a heading, or a paragraph with a bold title and no number."""
GENERATED = re.compile(r"^\*(?:Tests|Code):\*.*?\n\n", re.M | re.S)
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
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for marker in node.decorator_list:
                if isinstance(marker, ast.Call) and ast.unparse(marker.func) == "pytest.mark.behaviour":
                    for argument in marker.args:
                        yield Reference(ast.literal_eval(argument), path, node.lineno, node.name)


def find_links() -> dict[str, dict[str, list[str]]]:
    """Return Markdown links to tests and modules that name behaviours, by kind (Tests, Code) and identifier.

    A test is marked with the identifier; a test module that names it elsewhere is linked as a whole. A module names it
    in a comment or a docstring.
    """
    links: dict[str, dict[str, list[str]]] = {"Tests": {}, "Code": {}}
    for path in python_files():
        if path.name == "test_behaviours.py":  # its numbers are examples
            continue
        name = path.relative_to(ROOT).as_posix()
        for reference in find_references(path):
            link = f"[{reference.test or path.name}](../../../{name})"
            kind = "Tests" if path.name.startswith("test_") else "Code"
            found = links[kind].setdefault(reference.identifier, [])
            if link not in found:
                found.append(link)
    return links


def render_page(text: str, links: dict[str, dict[str, list[str]]]) -> str:
    """Return a page with the generated paragraphs of all entries replaced; ``text`` is the present page.

    They follow the paragraph with the sources of the entry, or else its last paragraph. An entry that neither a test
    nor a module names has none.
    """

    def render_entry(match: re.Match[str]) -> str:
        identifier = match[1].upper()
        paragraphs = GENERATED.sub("", match[0].rstrip("\n") + "\n\n").rstrip("\n").split("\n\n")
        sourced = [number for number, paragraph in enumerate(paragraphs) if "Source:" in paragraph]
        made = [
            "\n".join(wrap(f"*{kind}:* {', '.join(found[identifier])}."))
            for kind, found in links.items()
            if identifier in found
        ]
        position = sourced[-1] + 1 if sourced else len(paragraphs)
        end = match[0][len(match[0].rstrip("\n")) :]
        return "\n\n".join([*paragraphs[:position], *made, *paragraphs[position:]]) + end

    return ENTRY.sub(render_entry, text)


def main() -> None:
    """Write the links into all pages."""
    links = find_links()
    for page in PAGES:
        (FOLDER / page).write_text(render_page((FOLDER / page).read_text(), links))


if __name__ == "__main__":
    main()
