"""Function-level imports: their measured cost, and the comments that state it.

``python -m devtools.lazy_imports`` measures each and compares it with its comment; ``--write`` corrects the comments.
Imports are at the top of the module; one that stays in a function saves a node time and memory at its start. A comment
on its line, or on the line above, states how much: ``# lazy: 3.1 ms, 120 kB``, then, optionally, a colon and the
reason. Imports that directly follow one another share the comment of the first. A name that is computed for
``import_module`` selects from a table of handlers, messages or commands: its cost is that of the whole table.
Memory that libraries in C allocate by themselves is not counted.

The cost is what the import adds to a node that stands alone and has just started, the importing module included. In
commands and tools, which are processes of their own, it is what the import adds to the importing module.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
CORE = ("wire", "log", "controller", "broker")
"""Packages that lie at the root; `ottla/` has links to them."""
COMMENT = re.compile(r"# lazy: (?P<ms>\d+(?:\.\d)?) ms, (?P<kb>\d+) kB(?=$|: \S)")
_CANDIDATE = re.compile(r"[ \t:;](?:from|import) |import_module\(|__import__\(")
_OLD_COMMENT = re.compile(r"# lazy: [^:\n]*")
START = """
import json, sys
from ottla.cli.main import main
main(["serve", "--data-dir", sys.argv[1], "--listen", "127.0.0.1:0"])
print(json.dumps(list(sys.modules)))
"""
PROCESSES = ("ottla.cli", "ottla.tools", "ottla.embedded", "ottla.cluster", "ottla.pytest_plugin")
"""Packages outside of the node."""
SLACK_KB, SLACK_MS = 12, 1.5
"""Differences between a comment and the measurement that are accepted, besides a share of the cost."""


class LazyImport(NamedTuple):
    """A function-level import statement, or several that directly follow one another."""

    path: Path
    lineno: int
    targets: tuple[str, ...]
    """Modules, and for a table of modules one name that ends in ``.*``."""
    comment: tuple[float, int] | None
    """Milliseconds and kilobytes as the comment states them; None without a comment."""

    @property
    def place(self) -> str:
        """Path relative to the root, and line, such as ``broker/node.py:12``."""
        return f"{self.path.relative_to(ROOT)}:{self.lineno}"

    @property
    def importer(self) -> str:
        """Name of the module that imports."""
        return module_name(self.path)


class Cost(NamedTuple):
    """Measured cost of an import: processor time in ms, and memory that it adds, in units of 1,024 bytes.

    `UNKNOWN`, with -1 for both, if the library is not installed.
    """

    ms: float
    kb: int

    def __str__(self) -> str:
        return f"{self.ms:.1f} ms, {self.kb} kB"


UNKNOWN = Cost(-1, -1)
"""Cost of an optional library that is not installed."""


def product_files() -> list[Path]:
    """Return the modules of the product without its tests, by path."""
    found = [path for core in (*CORE, "ottla") for path in (ROOT / core).rglob("*.py")]
    links = tuple(f"ottla/{core}/" for core in CORE)
    names = {path.relative_to(ROOT).as_posix(): path for path in found if "tests" not in path.parts}
    return [names[name] for name in sorted(names) if not name.startswith(links)]


def module_name(path: Path) -> str:
    """Return the import name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "ottla" else ("ottla", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    """Return True if a module or package of Ottla has this name."""
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def find_lazy_imports(path: Path, text: str) -> list[LazyImport]:
    """Return the function-level imports in a module's source, in order."""
    if not _CANDIDATE.search(text):
        return []
    lines = text.split("\n")
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    trees = [node for node in ast.walk(ast.parse(text)) if isinstance(node, functions)]
    found = {line: targets for tree in trees for line, targets in _in_function(tree, lines)}
    out = []
    for line, targets in sorted(found.items()):
        above = lines[line - 2].strip() if line > 1 else ""
        stated = COMMENT.search(lines[line - 1]) or COMMENT.match(above)
        comment = (float(stated["ms"]), int(stated["kb"])) if stated else None
        out.append(LazyImport(path, line, tuple(targets), comment))
    return out


def _in_function(tree: ast.AST, lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the targets of each group of imports, and of each call of ``import_module``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            targets = _computed_target(node.args[0])
            if targets:
                yield node.lineno, targets
        for body in ("body", "orelse", "finalbody"):
            statements = getattr(node, body, [])
            yield from _groups(statements if isinstance(statements, list) else [], lines)


def _groups(statements: list[ast.stmt], lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the targets of imports with only empty lines between them."""
    first, end, group = 0, 0, list[str]()
    for statement in statements:
        targets = _targets(statement)
        if not targets:
            continue
        if not end or any(map(str.strip, lines[end : statement.lineno - 1])):
            if group:
                yield first, group
            first, group = statement.lineno, []
        group = group + targets
        assert statement.end_lineno is not None
        end = statement.end_lineno
    if group:
        yield first, group


def _targets(statement: ast.stmt) -> list[str]:
    """Return the names of the modules that a statement imports; empty if it is no import."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if not isinstance(statement, ast.ImportFrom):
        return []
    names = [f"{statement.module}.{alias.name}" for alias in statement.names]
    return [name for name in names if is_module(name)] or [str(statement.module)]


def _computed_target(argument: ast.expr) -> list[str]:
    """Return the module that a call of ``import_module`` imports, or ``PACKAGE.*`` for a name that is computed.

    Empty if it is not a module of Ottla.
    """
    if isinstance(argument, ast.Constant):
        name = str(argument.value)
        return [name] if name.split(".", maxsplit=1)[0] == "ottla" else []
    if not isinstance(argument, ast.JoinedStr):
        return []
    package = getattr(argument.values[0], "value", None)
    assert isinstance(package, str), f"a table of modules begins with its package: {ast.unparse(argument)}"
    return [f"{package}*"] if package.startswith("ottla.") else []


def expand(target: str) -> list[str]:
    """Return the modules of a target: itself, or all modules below the package of ``PACKAGE.*``."""
    if not target.endswith(".*"):
        return [target]
    package = target[:-2]
    paths = sorted(ROOT.joinpath(*package.split(".")).rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths if "tests" not in path.parts]
    return [name for name in names if not name.endswith("__init__")]


def start_modules() -> list[str]:
    """Start a single node in a process, stop it, and return the names of the modules that it imported, in order."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", START, f"{directory}/data"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as node:
            assert node.stdout is not None
            assert "Kafka Server started" in node.stdout.readline()
            node.send_signal(signal.SIGTERM)
            names: list[str] = json.loads(node.communicate(timeout=60)[0].split("\n")[-2])
    return [name for name in names if name != "__main__"]


def measure(found: list[LazyImport]) -> list[Cost]:
    """Measure each import in other processes; return the costs in the same order, `UNKNOWN` without the library."""
    alone = start_modules()
    costs: dict[int, Cost] = {}
    for base in ([], alone):
        chosen = [i for i, each in enumerate(found) if _is_process(each.importer, alone) != bool(base)]
        cases = [(found[i].importer, [name for x in found[i].targets for name in expand(x)]) for i in chosen]
        plan = json.dumps({"base": base, "cases": cases})
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        command = [sys.executable, "-m", "devtools.import_cost"]
        done = subprocess.run(
            command, cwd=ROOT, input=plan, stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
        for i, (ms, size_bytes) in zip(chosen, json.loads(done.stdout), strict=True):
            costs[i] = UNKNOWN if math.isnan(ms) else Cost(round(ms, 1), round(size_bytes / 1024))
    return [costs[i] for i in range(len(found))]


def _is_process(importer: str, alone: list[str]) -> bool:
    """Return True if a module is loaded by commands and tools, and not by a node."""
    return importer == "ottla" or (
        importer not in alone and f"{importer}.".startswith(tuple(f"{x}." for x in PROCESSES))
    )


def is_accurate(comment: tuple[float, int], cost: Cost) -> bool:
    """Return True if a comment states a cost, within the noise of a measurement and the speed of a machine.

    Also True for `UNKNOWN`. ``comment``: ms and kB.
    """
    if cost is UNKNOWN:
        return True
    ms, kb = comment
    has_size = abs(kb - cost.kb) <= SLACK_KB + 0.15 * max(kb, cost.kb)
    return has_size and max(ms, cost.ms) <= 3 * min(ms, cost.ms) + SLACK_MS


def write_comment(each: LazyImport, cost: Cost) -> None:
    """Write a cost into the comment of an import, in its file; add the comment on the line above if there is none.

    The reason in the comment stays. An added line moves later imports of the file.
    """
    lines = each.path.read_text().split("\n")
    at = each.lineno - 1
    for i in (at, at - 1):
        if "# lazy: " in lines[i] and (i == at or lines[i].strip().startswith("#")):
            lines[i] = _OLD_COMMENT.sub(f"# lazy: {cost}", lines[i])
            break
    else:
        indent = re.match(r"\s*", lines[at])
        assert indent is not None
        lines.insert(at, f"{indent[0]}# lazy: {cost}")
    each.path.write_text("\n".join(lines))


def main() -> int:
    """Measure and print the imports with their costs and comments; correct the comments with ``--write``.

    Returns:
        Exit status: 1 if a comment is missing or wrong without ``--write``, else 0.
    """
    parser = argparse.ArgumentParser("devtools.lazy_imports", description=__doc__)
    parser.add_argument("--write", action="store_true", help="correct the comments")
    parser.add_argument("paths", nargs="*", default=[""], help="beginnings of paths, such as broker/groups")
    options = parser.parse_args()
    found = [
        each
        for path in product_files()
        if path.relative_to(ROOT).as_posix().startswith(tuple(options.paths))
        for each in find_lazy_imports(path, path.read_text())
    ]
    wrong = 0
    for each, cost in reversed(list(zip(found, measure(found), strict=True))):  # an added line moves later ones
        is_wrong = each.comment is None or not is_accurate(each.comment, cost)
        wrong += is_wrong
        stated = "no comment" if each.comment is None else str(Cost(*each.comment))
        print(f"{'!' if is_wrong else ' '} {each.place}: {cost} ({stated}): {' '.join(each.targets)}")
        if is_wrong and options.write and cost is not UNKNOWN:
            write_comment(each, cost)
    print(f"{len(found)} function-level imports, {wrong} without the measured cost in a comment")
    return int(wrong > 0 and not options.write)


if __name__ == "__main__":
    sys.exit(main())
