"""CVEs of Kafka and of its clients: each has a test that names it, as listed on the page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.test_code_rules import ROOT, sources

PAGE = ROOT / "docs" / "reference" / "cves.md"
ENTRY = re.compile(r"^- \*\*(?P<ids>[^*]*):\*\* [^`]+(?P<tests>(?:^  - `.*`\n)+)", re.M)
TEST = re.compile(r"`([a-z_/]+/test_[a-z_]+\.py)::(test_[a-z0-9_]+)`")
_NUMBERS = {
    2017: (12610,),
    2018: (1288, 17196),
    2019: (12399,),
    2021: (38153,),
    2022: (34917,),
    2023: (25194, 34455),
    2024: (27309, 31141, 56128),
    2025: (27817, 27818, 27819),
    2026: (10142, 10143, 33557, 33558, 35554, 41115, 83525, 110985, 111073, 111108, 111115),
}
KNOWN = [f"CVE-{year}-{number}" for year, numbers in _NUMBERS.items() for number in numbers]
"""CVEs up to November 2026: of the broker, of its clients where Ottla has such a part, and of kafka-python."""


@cache
def described_tests(path: Path) -> dict[str, str]:
    """Return the docstrings of the tests in a file, by name."""
    functions = [x for x in ast.walk(ast.parse(path.read_text())) if isinstance(x, ast.FunctionDef)]
    return {x.name: f"{x.name.replace('_', '-').upper()} {ast.get_docstring(x) or ''}" for x in functions}


def entries() -> Iterator[tuple[list[str], list[tuple[str, str]]]]:
    """Return the CVEs of the page with their tests."""
    for entry in ENTRY.finditer(PAGE.read_text()):
        if ids := re.findall(r"CVE-\d{4}-\d+", entry["ids"]):
            yield ids, TEST.findall(entry["tests"])


@pytest.mark.parametrize("cve", KNOWN)
def test_cve_page_has_a_test_for_each_cve(cve: str) -> None:
    named = [test for ids, tests in entries() if cve in ids for test in tests]
    assert named, f"{PAGE.name} names no test"
    for file, name in named:
        text = described_tests(ROOT / file).get(name)
        assert text is not None, f"{file} has no {name}"
    assert any(cve in described_tests(ROOT / file)[name] for file, name in named), "none of them names it"


def test_cve_page_names_existing_tests_only() -> None:
    found = TEST.findall(PAGE.read_text())
    assert len(found) >= 20
    assert [x for x in found if x[1] not in described_tests(ROOT / x[0])] == []
    assert PAGE.read_text().count("::test_") == len(found), "a test's name that cannot be read"


# ---------------------------------------------------------------- loading by a name from outside

LOADING_CALLS = {
    "import_module",
    "__import__",
    "exec",
    "eval",
    "compile",
    "loads",
    "run_module",
    "run_path",
    "spec_from_file_location",
}
OF_MODULES = {"re", "re2", "java_properties", "json", "json.decoder", "msgspec.json"}
"""Modules with functions ``compile`` and ``loads`` that make patterns and values, and no code."""
NOT_PRODUCT = re.compile(r"(^|/)(tests|sim|bench|compat_tests|spark_it|devtools)/")
ALLOWED_LOADS = {
    "broker/dispatch/dispatcher.py": "a handler: ROUTES names it",
    "ottla/__init__.py": "a public class: _MODULES names its module",
    "ottla/cli/main.py": "a command: COMMANDS names it",
    "ottla/console/schemas/protobuf_decoder.py": "a file of the protobuf library: WELL_KNOWN names its module",
    "ottla/runtime/module_cache.py": "modules of this package, from the bytecode beside their sources",
    "ottla/runtime/child_process.py": "what this node gave its own child to do, and what that answered",
    "wire/api_keys.py": "a message: ApiKey names it",
    "wire/codec/codegen.py": "the code of encoders and decoders, written from our own schema",
    "wire/messages/catalogue.py": "a message: the files of the package",
    "wire/record_batch/record_scan.py": "the record loops of compaction, written from a template of that module",
}


def loads(tree: ast.AST) -> list[int]:
    """Return the lines that load code by a name that is not a literal."""
    out = []
    imported = {x.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for x in node.names}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name, owner = node.func, ""
        if isinstance(name, ast.Attribute):
            owner, called = ast.unparse(name.value), name.attr
        elif isinstance(name, ast.Name):
            owner, called = imported.get(name.id) or "", name.id
        else:
            continue
        is_written = bool(node.args) and isinstance(node.args[0], ast.Constant)
        if called in LOADING_CALLS and owner not in OF_MODULES and not is_written:
            out.append(node.lineno)
        out += [node.lineno for x in node.keywords if x.arg == "shell"]
    return out


def test_product_loads_no_code_by_name_from_input() -> None:
    """Loading of classes (CVE-2023-25194, CVE-2025-27818, CVE-2025-27819: classes named by settings were loaded)."""
    for line in (
        "import_module(name)",
        "eval(text)",
        "pickle.loads(raw)",
        "run(x, shell=True)",
        "importlib.import_module(f'a.{x}')",
    ):
        assert loads(ast.parse(line)) == [1], line
    for line in ("import_module('a.b')", "re.compile(text)", "json.loads(raw)", "from json import loads; loads(raw)"):
        assert loads(ast.parse(line)) == [], line
    product = [x for x in map(str, (p.relative_to(ROOT) for p in sources())) if not NOT_PRODUCT.search(x)]
    assert {x for x in product if loads(ast.parse((ROOT / x).read_text()))} == set(ALLOWED_LOADS)
