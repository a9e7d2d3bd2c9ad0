"""The house rules, held by tools: layering, types, style, sizes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
# Longer than the budget, with its reason.
LONG_FILES: dict[str, str] = {}
# Only these may ask the machine for clock, chance or threads; everything else goes through `Env`.
WORLD = {"ottla/world/this_machine.py", "ottla/world/real_env.py", "ottla/cli/blocking.py", "ottla/pytest_plugin.py"}
ROOMS = ("wire", "log", "controller", "broker", "ottla", "sim")
FORBIDDEN_IN_ROOMS = re.compile(r"^\s*(?:import|from) (time|random|uuid|secrets|datetime)\b", re.M)
ALLOWED_WORLD_IMPORTS = {
    "log/checkpoints.py": {"datetime"},  # formats a given instant; asks for none
}


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).is_file()]


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_go_down_only() -> None:
    run(str(BIN / "lint-imports"))


def test_types_are_strict() -> None:
    run(str(BIN / "mypy"))


def test_style() -> None:
    run(str(BIN / "ruff"), "check", ".")


def test_layout_is_formatted() -> None:
    run(str(BIN / "ruff"), "format", "--check", ".")


def test_files_and_functions_keep_to_their_budget() -> None:
    over = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        text = path.read_text()
        if text.count("\n") > MAX_FILE_LINES and name not in LONG_FILES:
            over.append(f"{name}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    over.append(f"{name}:{node.lineno} {node.name}: {lines} lines")
    assert not over, "\n".join(over)


@pytest.mark.parametrize("room", ROOMS)
def test_only_env_asks_the_world_for_time_and_chance(room: str) -> None:
    found = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        if not name.startswith(room + "/") or "/tests/" in name or name in WORLD or room == "sim":
            continue
        for match in FORBIDDEN_IN_ROOMS.finditer(path.read_text()):
            if match[1] not in ALLOWED_WORLD_IMPORTS.get(name, set()):
                found.append(f"{name}: {match[0].strip()}")
    assert not found, "\n".join(found)


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(p.relative_to(ROOT)) for p in sources() if p.read_text() and not ast.get_docstring(ast.parse(p.read_text()))
    ]
    assert not silent, "\n".join(silent)
