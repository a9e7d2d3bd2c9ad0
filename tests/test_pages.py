"""Execution of the documentation: every page runs from top to bottom, exactly as printed."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests.clients.client_matrix import CLIENTS, ToolchainMissing, client_command
from compat_tests.support.jars import CACHE, classpath, jars
from compat_tests.support.processes import OttlaProcess
from devtools.docs.reference import help_screens
from tests.doc_pages import (
    DISPLAYED,
    FENCE,
    PAGES,
    Block,
    blocks_of,
    executed_blocks,
    name_of,
    namespace_reason,
    run_page,
)

NOT_RUN = [block for page in PAGES for block in blocks_of(page) if block.reason]
MAX_NOT_RUN = 25
_SPACES = re.compile(r" +")
# Languages of programs that run below with libraries fetched by their package managers.
_PROGRAMS = ("java", "js", "go", "rust", "kcat")
_TOOLS = r"ottla|ottla-compat|python3?|pip|make|docker|kubectl|git|npm|curl|kafka-[a-z-]+\.sh"
_COMMANDS = re.compile(rf"^(?:\$ )?(?:\S*bin/)?(?:{_TOOLS}) ", re.M)


def _block_id(block: Block) -> str:
    return f"{name_of(block.page)}:{block.start}"


@pytest.mark.parametrize("page", [page for page in PAGES if executed_blocks(page)], ids=name_of)
def test_page_executed_from_top_to_bottom_prints_its_output(page: Path, tmp_path: Path) -> None:
    reason = namespace_reason()
    if reason:
        pytest.skip(reason)
    folder = tmp_path / "folder"
    folder.mkdir()
    blocks = executed_blocks(page)
    status, printed, errors = run_page(blocks, folder)
    last = blocks[max(printed, default=0)]
    assert status == 0, f"status {status} in {_block_id(last)}\n{last.code}\n{printed}\n{errors[-3000:]}"
    for number, block in enumerate(blocks):
        shown = _SPACES.sub(" ", printed[number])
        for line in block.output:
            assert _SPACES.sub(" ", line) in shown, f"{_block_id(block)}: {line!r} is not in\n{printed[number][-3000:]}"


def test_blocks_not_executed_are_few_and_have_a_reason() -> None:
    assert len(NOT_RUN) <= MAX_NOT_RUN, "\n".join(f"{_block_id(block)}: {block.reason}" for block in NOT_RUN)
    assert all(len(block.reason or "") > 10 for block in NOT_RUN)


def test_every_block_has_a_language_and_a_use() -> None:
    unknown = [
        _block_id(block)
        for page in PAGES
        for block in blocks_of(page)
        if not (block.is_executed or block.reason or block.language in DISPLAYED)
    ]
    assert not unknown


def test_text_blocks_contain_no_commands() -> None:
    generated = {"docs/reference/cli.md"}
    commands = [
        _block_id(block)
        for page in PAGES
        if name_of(page) not in generated
        for block in blocks_of(page)
        if block.language == "text" and _COMMANDS.search(block.code)
    ]
    assert not commands


def test_pages_have_no_other_kind_of_code_block() -> None:
    for page in PAGES:
        rest = FENCE.sub("", page.read_text())
        assert "```" not in re.sub(r"`{4,} .*? `{4,}", "", rest), name_of(page)


def _ottla_commands(code: str) -> list[str]:
    """Return the command lines of ``ottla`` in a block, continuation lines joined."""
    lines = code.replace("\\\n", " ").splitlines()
    return [line.split("#")[0].strip() for line in lines if line.lstrip().startswith("ottla ")]


@pytest.mark.parametrize("block", [b for b in NOT_RUN if b.language not in _PROGRAMS], ids=_block_id)
def test_block_not_executed_is_valid(block: Block, tmp_path: Path) -> None:
    match block.language:
        case "sh":
            subprocess.run(["bash", "-n"], input=block.code, text=True, check=True)
            screens = {prog: "\n".join(lines) for prog, lines in help_screens()}
            for line in _ottla_commands(block.code):
                words = line.split()
                command = max((p for p in screens if f"{line} ".startswith(f"{p} ")), key=len)
                options = [word.partition("=")[0] for word in words if word.startswith("-") and len(word) > 1]
                assert not [option for option in options if option not in screens[command]], line
        case "python":
            compile(block.code, _block_id(block), "exec")
        case "properties":
            (tmp_path / "file.properties").write_text(block.code)
            for line in block.code.splitlines():
                assert re.fullmatch(r"#.*|[a-z0-9.-]+=.*|", line), line
        case "ini":
            configparser.ConfigParser().read_string(block.code)
        case language:
            raise AssertionError(f"no check for {language}")


def _client_folder(name: str) -> Path:
    """Return the folder in the cache with a client's program, fetched and built."""
    client = next(c for c in CLIENTS if c.name == name)
    try:
        command = client_command(client)
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    program = Path(next(word for word in command if str(CACHE) in word).split("=")[-1])
    return next(folder for folder in program.parents if folder.parent == CACHE / "clients")


def _java(code: str, folder: Path) -> list[str]:
    jars("kafka")
    (folder / "Main.java").write_text(code)
    return ["java", "-cp", classpath(), "Main.java"]


def _node(code: str, _folder: Path) -> list[str]:
    program = _client_folder("kafkajs") / "block.mjs"
    program.write_text(code)
    return ["node", str(program)]


def _go(code: str, folder: Path) -> list[str]:
    client = _client_folder("franz-go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(client / name, folder / name)
    (folder / "main.go").write_text(code)
    return ["go", "run", "."]


def _rust(code: str, _folder: Path) -> list[str]:
    client = _client_folder("rdkafka (Rust)")
    (client / "src" / "bin").mkdir(exist_ok=True)
    (client / "src" / "bin" / "block.rs").write_text(code)
    return ["cargo", "run", "--quiet", "--manifest-path", str(client / "Cargo.toml"), "--bin", "block"]


def _kcat(code: str, _folder: Path) -> list[str]:
    return ["bash", "-ec", code.replace("kcat -", f"{_client_folder('kcat')}/kcat -")]


_RUNNERS: dict[str, Callable[[str, Path], list[str]]] = {
    "java": _java,
    "js": _node,
    "go": _go,
    "rust": _rust,
    "kcat": _kcat,
}


@pytest.mark.xdist_group("docs")
@pytest.mark.parametrize("block", [b for b in NOT_RUN if b.language in _PROGRAMS], ids=_block_id)
def test_program_with_fetched_library_prints_output_of_page(block: Block, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with OttlaProcess(tmp_path / "data") as node:
        command = _RUNNERS[block.language](block.code.replace("127.0.0.1:9092", node.bootstrap), folder)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert all(line in done.stdout for line in block.output)
