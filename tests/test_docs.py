"""The documentation is true: pages made from code are up to date, and every block that can be run is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from compat_tests.clients.client_matrix import CLIENTS, ToolchainMissing, client_command
from compat_tests.support.jars import CACHE, classpath, jars
from compat_tests.support.processes import OttlaProcess
from devtools.docs import broker_failure, durability, group_protocols, hexdumps, quorum, transactions
from devtools.docs.reference import PAGES, WHERE

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^```([^\s`]*) ?([^\n]*)\n(.*?)^```$", re.M | re.S)
NOT_RUN = ("", "text", "mermaid", "console", "output")


class Block(NamedTuple):
    """A fenced block: its language, what stands behind it, the code, and lines its output must hold."""

    language: str
    about: str
    code: str
    output: list[str]


def blocks(page: Path) -> list[Block]:
    found = [Block(m[1], m[2], m[3], []) for m in _FENCE.finditer(page.read_text())]
    for before, block in pairwise(found):
        if block.language == "output":
            before.output.extend(block.code.splitlines())
    return [b for b in found if b.language not in NOT_RUN]


PAGES_TO_RUN = [p for p in sorted(DOCS.rglob("*.md")) if blocks(p)]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    if name == "cli.md" and sys.version_info[:2] != (3, 11):
        pytest.skip("each Python lays out the help of commands in its own way: the page has 3.11's")
    assert (WHERE / name).read_text() == PAGES[name](), "run python -m devtools.docs.reference"


def test_the_bytes_on_the_page_are_those_on_the_disk() -> None:
    text = hexdumps.PAGE.read_text()
    assert len(hexdumps.BLOCK.findall(text)) == 11
    assert hexdumps.render_page(text) == text, "run python -m devtools.docs.hexdumps"


def test_the_story_of_the_quorum_is_the_one_the_machine_tells() -> None:
    text = quorum.PAGE.read_text()
    assert {m[0] for m in quorum.BLOCK.findall(text)} == set(quorum.MAKERS)
    assert quorum.render_page(text) == text, "run python -m devtools.docs.quorum"


def test_the_story_of_a_record_is_the_one_the_machine_tells() -> None:
    text = durability.PAGE.read_text()
    assert {m[1] for m in durability.BLOCK.findall(text)} == set(durability.MAKERS)
    assert durability.render_page(text) == text, "run python -m devtools.docs.durability"


def test_the_story_of_a_node_that_dies_is_the_one_the_simulator_tells() -> None:
    text = broker_failure.PAGE.read_text()
    assert {m[1] for m in broker_failure.BLOCK.findall(text)} == set(broker_failure.MAKERS)
    assert broker_failure.render_page(text) == text, "run python -m devtools.docs.broker_failure"


def test_the_stories_of_groups_are_those_their_machines_tell() -> None:
    text = group_protocols.PAGE.read_text()
    assert {m[0] for m in group_protocols.BLOCK.findall(text)} == set(group_protocols.MAKERS)
    assert group_protocols.render_page(text) == text, "run python -m devtools.docs.group_protocols"


def test_the_story_of_a_transaction_is_the_one_the_machine_tells() -> None:
    text = transactions.PAGE.read_text()
    assert {m[1] for m in transactions.BLOCK.findall(text)} == set(transactions.MAKERS)
    assert transactions.render_page(text) == text, "run python -m devtools.docs.transactions"


_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page: those written as HTML, and those of its headings as GitHub makes them."""
    text = _FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


def test_links_lead_to_pages_and_anchors_that_exist() -> None:
    broken = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]:
        text = re.sub(r"`[^`\n]+`", "", _FENCE.sub("", page.read_text()))
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
            text = re.sub(r"`[^`\n]+`", "", _FENCE.sub("", page.read_text()))
            waiting += ((page.parent / target).resolve() for target, _ in _LINK.findall(text) if "://" not in target)
    assert not {page for page in DOCS.rglob("*.md") if page not in reached}


def _client(name: str) -> Path:
    """The folder in the cache where a client's program lies, fetched and built."""
    client = next(c for c in CLIENTS if c.name == name)
    try:
        command = client_command(client)
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    return next(
        p
        for p in Path(next(x for x in command if str(CACHE) in x).split("=")[-1]).parents
        if p.parent == CACHE / "clients"
    )


def _python(code: str, folder: Path) -> list[str]:
    (folder / "block.py").write_text(code)
    return [sys.executable, "block.py"]


def _spark(code: str, folder: Path) -> list[str]:
    listed = ",".join(map(str, jars("spark")))
    return _python(code.replace('.master("local[2]")', f'.master("local[2]").config("spark.jars", "{listed}")'), folder)


def _java(code: str, folder: Path) -> list[str]:
    jars("kafka")
    (folder / "Main.java").write_text(code)
    return ["java", "-cp", classpath(), "Main.java"]


def _node(code: str, folder: Path) -> list[str]:
    where = _client("kafkajs") / "block.mjs"
    where.write_text(code)
    return ["node", str(where)]


def _go(code: str, folder: Path) -> list[str]:
    where = _client("franz-go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(where / name, folder / name)
    (folder / "main.go").write_text(code)
    return ["go", "run", "."]


def _rust(code: str, folder: Path) -> list[str]:
    where = _client("rdkafka (Rust)")
    (where / "src" / "bin").mkdir(exist_ok=True)
    (where / "src" / "bin" / "block.rs").write_text(code)
    return ["cargo", "run", "--quiet", "--manifest-path", str(where / "Cargo.toml"), "--bin", "block"]


def _kcat(code: str, folder: Path) -> list[str]:
    return ["bash", "-ec", code.replace("kcat -", f"{_client('kcat')}/kcat -")]


RUN: dict[str, Callable[[str, Path], list[str]]] = {
    "sh": lambda code, folder: ["bash", "-ec", code],
    "python": _python,
    "spark": _spark,
    "java": _java,
    "js": _node,
    "go": _go,
    "rust": _rust,
    "kcat": _kcat,
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaProcess]:
    with OttlaProcess(tmp_path / "data") as process:
        yield process


def run_block(block: Block, node: OttlaProcess, folder: Path) -> None:
    code = block.code.replace("127.0.0.1:9092", node.bootstrap)
    if block.about.startswith("file="):
        (folder / block.about.removeprefix("file=")).write_text(code)
        return
    command = RUN[block.language](code, folder)
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OTTLA_BOOTSTRAP": node.bootstrap,
            "OTTLA_DATA": str(node.data_dir),
            "PYSPARK_PYTHON": sys.executable,
        },
    )
    assert done.returncode == 0, f"{block.code}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    said = re.sub(r" +", " ", done.stdout)
    for line in block.output:
        assert re.sub(r" +", " ", line) in said, f"{line!r} is not in what came of\n{block.code}\n{done.stdout[-3000:]}"


@pytest.mark.xdist_group("docs")
@pytest.mark.parametrize("page", PAGES_TO_RUN, ids=lambda p: str(p.relative_to(DOCS)))
def test_every_block_of_a_page_does_what_it_says(page: Path, node: OttlaProcess, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    skipped = []
    for block in blocks(page):
        assert block.language in RUN, f"{page}: nobody runs {block.language}"
        try:
            run_block(block, node, folder)
        except pytest.skip.Exception as reason:
            skipped.append(str(reason))
    if len(skipped) == len(blocks(page)):
        pytest.skip("; ".join(skipped))
