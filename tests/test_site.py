"""Documentation site: builds offline without a warning, and its internal links resolve."""

from __future__ import annotations

import html.parser
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doc_pages import DOCS, ROOT

pytest.importorskip("sphinx", reason="the extra docs is not installed")
pytest.importorskip("furo", reason="the extra docs is not installed")


class _PageParser(html.parser.HTMLParser):
    """Parser that collects the anchors of a page and the targets of its links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors.update(value for name in ("id", "name") if (value := values.get(name)))
        target = values.get("href") or values.get("src")
        if tag in ("a", "img", "link", "script") and target:
            self.targets.append(target)


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as ``make docs`` does."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(source), str(target)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_site_builds_without_warning_and_links_resolve(tmp_path: Path) -> None:
    done = build(DOCS, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = {path: _PageParser(path.read_text()) for path in tmp_path.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            name, _, anchor = target.partition("#")
            if "://" in name or name.startswith(("mailto:", "data:")):
                continue
            to = (path.parent / name.partition("?")[0]).resolve() if name else path
            if not to.exists() or (anchor and to in pages and anchor not in pages[to].anchors):
                broken.append(f"{path.relative_to(tmp_path)}: {target}")
    assert not broken, "\n".join(broken)
    assert "https://semver.org  reference/compatibility" in (tmp_path / "external-links.txt").read_text()


def test_site_with_dead_anchor_fails_to_build(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    (source / "conf.py").write_text((DOCS / "conf.py").read_text())
    (source / "README.md").write_text("# Index\n\n## Part\n\n- [Page](page.md#no-such-heading)\n")
    (source / "page.md").write_text("# Page\n")
    done = build(source, tmp_path / "site")
    assert done.returncode == 1
    assert "no-such-heading" in done.stderr
