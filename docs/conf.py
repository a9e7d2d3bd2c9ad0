"""Configuration of the documentation site: Sphinx with the theme furo, pages in Markdown by MyST.

The pages are written for two readers: the repository's web view and this site. What the site needs beyond the pages
follows from them at build time: the table of contents from the links of `README.md`, and targets from HTML anchors.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import markdown_it.main
from pygments.lexers.special import TextLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
ROOT = DOCS.parent

project = "Ottla"
author = "the Ottla contributors"
project_copyright = "the Ottla contributors. Apache Kafka is a trademark of the Apache Software Foundation"
version = release = "0.1.0"

extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 6
myst_enable_extensions = ["attrs_inline"]
nitpicky = True

html_theme = "furo"
html_title = "Ottla"
html_static_path: list[str] = []
html_copy_source = False
html_show_sourcelink = False
highlight_language = "text"

# Languages of code blocks that Pygments does not know: expected output, and commands of kcat.
_PLAIN_LEXERS = ("output", "kcat")
_FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
_MERMAID = re.compile(r"^```mermaid (\S+)\n.*?^```$", re.M | re.S)
_EXTERNAL = re.compile(r"\]\((https?://[^)\s]+)\)")
_INDEX_LINK = re.compile(r"\]\(([^)#\s:]+\.md)\)")


def _outside_fences(text: str, change: Any) -> str:
    """Apply a function to the parts of a page that are not code blocks."""
    parts, start = [], 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[start : fence.start()]), fence[0]]
        start = fence.end()
    return "".join([*parts, change(text[start:])])


def _without_source_links(folder: Path, text: str) -> str:
    """Replace links to files outside `docs/` by their text and path."""

    def plain(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(DOCS):
            return link[0]
        path = str(target.relative_to(ROOT)) if target.is_relative_to(ROOT) else link[2]
        return link[1] if path in link[1] else f"{link[1]} (`{path}`)"

    return _LINK.sub(plain, text)


def _table_of_contents(text: str) -> str:
    """Return the sections of the index as tables of contents, in the order of its links."""
    blocks = []
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        title = section.partition("\n")[0]
        pages = dict.fromkeys(link for link in _INDEX_LINK.findall(section) if not link.startswith(".."))
        if pages:
            blocks.append("\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```"]))
    return "\n\n".join(blocks)


def _pages_below(name: str, text: str) -> list[str]:
    """Return the pages that the index of a folder links to; ``X.md`` is the index of ``X``."""
    page = DOCS / f"{name}.md"
    folder = page.parent if page.stem == "README" else page.with_suffix("")
    links = dict.fromkeys(_INDEX_LINK.findall(text))
    return [link for link in links if (page.parent / link).resolve().parent == folder and (page.parent / link) != page]


def read_page(_app: Sphinx, name: str, source: list[str]) -> None:
    """Adapt a page to the site: diagrams, anchors, links to source files, and the table of contents of the index."""
    folder = (DOCS / name).parent
    source[0] = _MERMAID.sub(lambda m: f"![State diagram](../diagrams/{Path(name).stem}-{m[1]}.svg)", source[0])

    def adapt(text: str) -> str:
        text = re.sub(r'<a id="([^"]+)"></a>', r"[]{#\1}", text)
        return _without_source_links(folder, text)

    source[0] = _outside_fences(source[0], adapt)
    if name == root_doc:
        source[0] += "\n" + _table_of_contents(source[0]) + "\n"
    elif pages := _pages_below(name, source[0]):
        source[0] += "\n" + "\n".join(["```{toctree}", ":hidden:", "", *pages, "```"]) + "\n"


def list_external_links(app: Sphinx, failure: Exception | None) -> None:
    """Write the addresses outside of the site, with the pages that link to them, to ``external-links.txt``."""
    if failure is not None or app.builder.format != "html":
        return
    found: dict[str, set[str]] = {}
    for name in app.project.docnames:
        text = _FENCE.sub("", Path(app.env.doc2path(name)).read_text())
        for address in _EXTERNAL.findall(text):
            found.setdefault(address, set()).add(name)
    lines = [f"{address}  {', '.join(sorted(pages))}" for address, pages in sorted(found.items())]
    (Path(app.outdir) / "external-links.txt").write_text("".join(f"{line}\n" for line in lines))


def setup(app: Sphinx) -> None:
    """Register what the pages need."""
    # Fields of messages are nested lists deeper than the 20 levels of tokens that the parser accepts by default.
    markdown_it.main._PRESETS["commonmark"]["options"]["maxNesting"] = 100
    for name in _PLAIN_LEXERS:
        app.add_lexer(name, TextLexer)
    app.connect("source-read", read_page)
    app.connect("build-finished", list_external_links)
