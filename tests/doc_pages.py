"""Fenced blocks of the documentation pages, and a runner that executes a page from top to bottom.

A page is executed as a reader would: each block in the order of the page, in one shell, in one folder that is empty at
the start. No text is replaced and no variable is set. The environment has the PATH on which ``ottla`` and ``python``
are found, a home directory that is empty at the start, and the language; the network is a namespace of its own with the
loopback interface, so that the node of a page listens at the default port.

The first word behind the fence is the language; the rest is the use of the block:

| info string | meaning |
|---|---|
| ``sh``, ``python`` | executed |
| ``LANGUAGE file=NAME`` | written to a file of that name |
| ``LANGUAGE not-run: REASON`` | not executed; counted, and checked in another way |
| ``output`` | lines that the block before must print |
| ``text``, ``mermaid``, ``promql`` | neither a command nor a program |
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from compat_tests.support.jars import CACHE
from spark_it.ottla_log.build_jar import build_jar
from spark_it.pipelines.submit import fetch_packages

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)]
FENCE = re.compile(r"^```([^\s`]*) ?([^\n]*)\n(.*?)^```$", re.M | re.S)
EXECUTED = ("sh", "python")
DISPLAYED = ("text", "mermaid", "output", "promql")
PAGE_TIMEOUT_S = 900
_MARK = "@@ block"
_HEREDOC = "END_OF_BLOCK"
SPARK_PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"


class Block(NamedTuple):
    """Fenced block: language, info string after it, code, and lines that its output must contain."""

    page: Path
    start: int
    language: str
    info: str
    code: str
    output: list[str]

    @property
    def file_name(self) -> str | None:
        """Return the name of the file that holds the block, or None."""
        return self.info.removeprefix("file=").partition(" ")[0] if self.info.startswith("file=") else None

    @property
    def reason(self) -> str | None:
        """Return the reason why the block is not executed, or None for a block that is."""
        return self.info.partition("not-run: ")[2] or None

    @property
    def is_executed(self) -> bool:
        """Return True if the block takes part in the run of its page."""
        return self.reason is None and (self.file_name is not None or self.language in EXECUTED)


def name_of(page: Path) -> str:
    """Return the path of a page within the repository."""
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page; expected output is attached to the block that prints it."""
    text, blocks = page.read_text(), []
    for match in FENCE.finditer(text):
        start = text.count("\n", 0, match.start()) + 1
        blocks.append(Block(page, start, match[1], match[2], match[3], []))
        if match[1] == "output":
            blocks[-2].output.extend(match[3].splitlines())
            blocks[-1] = blocks[-1]._replace(output=blocks[-2].output)
    return blocks


def executed_blocks(page: Path) -> list[Block]:
    """Return the blocks that take part in the run of a page, in order."""
    return [block for block in blocks_of(page) if block.is_executed]


def namespace_reason() -> str:
    """Return the reason why a page cannot have a network namespace of its own here; empty if it can."""
    if os.geteuid() != 0:
        return "a network namespace needs root"
    try:
        done = subprocess.run([*_namespace("true")], capture_output=True, text=True, check=False)
    except FileNotFoundError as missing:
        return f"no command {missing.filename}"
    return done.stderr.strip() if done.returncode else ""


def _namespace(command: str) -> list[str]:
    """Return a command line that runs a shell command in namespaces of its own; all its processes end with it."""
    inside = f"ip link set lo up && {command}"
    return ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", inside]


def page_script(blocks: list[Block]) -> str:
    """Return one shell script that executes blocks in order and prints a mark before each."""
    lines = ["set -e"]
    for number, block in enumerate(blocks):
        lines.append(f"echo {shlex.quote(f'{_MARK} {number}')}")
        name = block.file_name or (f"block_{number}.py" if block.language == "python" else None)
        if name is not None:
            folder = os.path.dirname(name)
            lines += [f"mkdir -p {folder}"] if folder else []
            lines += [f"cat > {name} <<'{_HEREDOC}'", block.code.rstrip("\n"), _HEREDOC]
        if block.file_name is None:
            lines.append(block.code.rstrip("\n") if name is None else f"python {name}")
    return "\n".join(lines) + "\n"


def run_page(blocks: list[Block], folder: Path) -> tuple[int, dict[int, str], str]:
    """Execute blocks in a folder that is empty.

    Returns:
        The exit status, standard output by number of the block that printed it, and standard error.
    """
    script, home = folder.parent / "page.sh", folder.parent / "home"
    script.write_text(page_script(blocks))
    home.mkdir()
    prepare = ""
    if any("log_source" in block.code for block in blocks):
        build_jar()
    if any(SPARK_PACKAGE in block.code for block in blocks):
        default = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ivy2.5.2"  # Java takes no home from the environment
        prepare = f"mkdir -p {default} && mount --bind {spark_packages()} {default} && "
    printed, errors = folder.parent / "stdout", folder.parent / "stderr"
    with printed.open("w") as out, errors.open("w") as err:
        try:
            status = subprocess.run(
                _namespace(f"{prepare}exec bash {script}"),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=PAGE_TIMEOUT_S,
                check=False,
                env={
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "HOME": str(home),
                    "LANG": "C.UTF-8",
                },
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
    by_block: dict[int, str] = {}
    for part in printed.read_text().split(f"{_MARK} ")[1:]:
        number, _, text = part.partition("\n")
        by_block[int(number)] = text
    return status, by_block, errors.read_text()


def spark_packages() -> Path:
    """Return a cache of Spark's Maven packages, as on a machine that has run such a job before; filled at first use."""
    cache = CACHE / "spark-packages"
    if not (cache / ".complete").exists():
        if error := fetch_packages(SPARK_PACKAGE, cache):
            pytest.skip(f"Spark's packages cannot be fetched: {error}")
        (cache / ".complete").touch()
    return cache
