"""Documentation: generated pages are up to date, links resolve, and every page is reachable."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from devtools.docs import broker_failure, diagrams, durability, group_protocols, hexdumps, quorum, transactions
from devtools.docs.reference import PAGES, WHERE
from tests.doc_pages import DOCS, FENCE, ROOT
from tests.doc_pages import PAGES as PAGE_FILES


@pytest.mark.parametrize("name", PAGES)
def test_generated_reference_page_matches_the_code(name: str) -> None:
    if name == "cli.md" and sys.version_info[:2] != (3, 11):
        pytest.skip("the layout of help screens depends on the Python version: the page shows 3.11")
    assert (WHERE / name).read_text() == PAGES[name](), "run python -m devtools.docs.reference"


def test_hexdumps_of_on_disk_format_match_written_files() -> None:
    text = hexdumps.PAGE.read_text()
    assert len(hexdumps.BLOCK.findall(text)) == 11
    assert hexdumps.render_page(text) == text, "run python -m devtools.docs.hexdumps"


def test_traces_of_controller_quorum_match_the_state_machine() -> None:
    text = quorum.PAGE.read_text()
    assert {m[0] for m in quorum.BLOCK.findall(text)} == set(quorum.MAKERS)
    assert quorum.render_page(text) == text, "run python -m devtools.docs.quorum"


def test_traces_of_replication_match_the_state_machine() -> None:
    text = durability.PAGE.read_text()
    assert {m[1] for m in durability.BLOCK.findall(text)} == set(durability.MAKERS)
    assert durability.render_page(text) == text, "run python -m devtools.docs.durability"


def test_traces_of_broker_failure_match_the_simulator() -> None:
    text = broker_failure.PAGE.read_text()
    assert {m[1] for m in broker_failure.BLOCK.findall(text)} == set(broker_failure.MAKERS)
    assert broker_failure.render_page(text) == text, "run python -m devtools.docs.broker_failure"


def test_traces_of_group_protocols_match_the_state_machines() -> None:
    text = group_protocols.PAGE.read_text()
    assert {m[0] for m in group_protocols.BLOCK.findall(text)} == set(group_protocols.MAKERS)
    assert group_protocols.render_page(text) == text, "run python -m devtools.docs.group_protocols"


def test_traces_of_exactly_once_match_the_state_machine() -> None:
    text = transactions.PAGE.read_text()
    assert {m[1] for m in transactions.BLOCK.findall(text)} == set(transactions.MAKERS)
    assert transactions.render_page(text) == text, "run python -m devtools.docs.transactions"


_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page: those written as HTML, and those of its headings as GitHub makes them."""
    text = FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


def test_links_resolve_to_files_and_anchors() -> None:
    broken = []
    for page in [*PAGE_FILES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        text = re.sub(r"`[^`\n]+`", "", FENCE.sub("", page.read_text()))
        for target, anchor in _LINK.findall(text):
            if "://" in target:
                continue
            to = page.parent / target if target else page
            if not to.exists() or (anchor and to.suffix == ".md" and anchor not in _anchors(to)):
                broken.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert not broken, "\n".join(broken)


def test_every_page_is_reachable_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            text = re.sub(r"`[^`\n]+`", "", FENCE.sub("", page.read_text()))
            waiting += ((page.parent / target).resolve() for target, _ in _LINK.findall(text) if "://" not in target)
    assert not set(PAGE_FILES) - reached


def test_pictures_match_their_sources() -> None:
    made = diagrams.pictures()
    assert {path: path.read_text() if path.exists() else "" for path in made} == made, (
        "run python -m devtools.docs.diagrams"
    )
    assert set((DOCS / "diagrams").glob("*.svg")) == set(made)


def test_changelog_has_keep_a_changelog_sections_and_one_line_for_each_change() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^### (.*)$", text, re.M)
    assert sections == [
        name for name in ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security") if name in sections
    ]
    assert re.findall(r"^## (.*)$", text, re.M)[0] == "Unreleased"
    body = text.partition("## Unreleased")[2]
    assert not [line for line in body.splitlines() if line and not re.match(r"- .*\.$|#+ |[A-Z][^.]*:$", line)]
