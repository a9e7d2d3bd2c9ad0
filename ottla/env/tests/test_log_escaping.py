"""Log escaping: no value of a client breaks a log line, for all log calls and handlers."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.node import Node
from ottla.env.log_escaping import LOGGER_NAMES, LONGEST_CHARS, escape, install
from ottla.runtime.real_env import RealEnv

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PACKAGES = ("wire", "log", "controller", "broker", "ottla")
METHODS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "exception": 40, "critical": 50, "log": 20}
FORGED = "2026-11-25 03:04:05,678 CRITICAL ottla.auth super user admin logged in"
HOSTILE = (
    f"pay\n{FORGED}",
    f"a\r\n{FORGED}",
    "\x1b[31mred\x1b]0;title\x07\x9b2J\x08\x7f",
    f"\u202eabc\u2066\u200b\ufeff\u2028{FORGED}\u2029\x85\x0b\x0c\x1c{FORGED}",
    "\x00\ud800\udcff",
    "%s %d %n {0} %(asctime)s",
    "x" * 30_000,
)
CONVERSION = re.compile(r"%%|%[-+ #0]*[0-9]*(?:\.[0-9]+)?([a-zA-Z])")


class CapturedLog(logging.Handler):
    """Log handler that keeps the formatted records."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture
def captured_log() -> Iterator[CapturedLog]:
    install()
    handler, parent = CapturedLog(), logging.getLogger("ottla")
    before = parent.level
    parent.addHandler(handler)
    parent.setLevel(1)
    yield handler
    parent.removeHandler(handler)
    parent.setLevel(before)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if "tests" not in path.parts:
                yield str(path), ast.parse(path.read_text())


def calls() -> Iterator[tuple[str, str, list[ast.expr]]]:
    """Return place, method and arguments of every log call, found in the syntax tree."""
    for path, tree in modules():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            text = ast.unparse(node.func)
            place = f"{path}:{node.lineno}"
            if re.search(r"(^|\.)_?logger\.\w+$", text) and text.rsplit(".", 1)[1] in METHODS:
                method = text.rsplit(".", 1)[1]
                yield place, method, node.args[1:] if method == "log" else node.args
            elif text.endswith("complaints.say"):
                yield place, "log", node.args[2:]
            elif text.endswith("._complain"):
                yield place, "log", node.args[1:]


CALLS = list(calls())


def test_logger_names_contain_all_loggers() -> None:
    found = set()
    for _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
                found.add(node.args[0].value if isinstance(node.args[0], ast.Constant) else None)
    assert found - {None} == set(LOGGER_NAMES)


def test_calls_finds_all_logging_methods() -> None:
    assert len(CALLS) > 80
    assert {method for _, method, _ in CALLS} >= {"info", "warning", "error", "exception", "critical", "log"}


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_log_calls_with_hostile_values_write_one_printable_line(captured_log: CapturedLog, value: str) -> None:
    logger = logging.getLogger(LOGGER_NAMES[0])
    for place, method, arguments in CALLS:
        template = arguments[0] if arguments else None
        if isinstance(template, ast.Constant) and isinstance(template.value, str):
            kinds = [x for x in CONVERSION.findall(template.value) if x]
            values = [7 if kind in "dfxc" else ValueError(value) if i % 2 else value for i, kind in enumerate(kinds)]
            logger.log(METHODS[method], template.value, *values)
        else:  # the text is not a literal
            logger.log(METHODS[method], value)
        text = captured_log.texts[-1]
        assert text.isprintable(), place
        assert len(text) < 8 * LONGEST_CHARS, place
    assert len(captured_log.texts) == len(CALLS)


def test_traceback_lines_do_not_begin_as_log_lines(captured_log: CapturedLog) -> None:
    for value in HOSTILE:
        try:
            raise ValueError(value)
        except ValueError as error:
            error.add_note(value)
            logging.getLogger(LOGGER_NAMES[0]).exception("failed: %s", error)
    for text in captured_log.texts:
        first, *rest = text.split("\n")
        assert "failed: " in first
        assert rest
        assert all(line.startswith("  ") and line.isprintable() for line in rest)


@pytest.mark.parametrize("name", LOGGER_NAMES)
def test_loggers_of_a_node_escape_values(name: str) -> None:
    logging.getLogger(name).filters.clear()
    Node(RealEnv(), NodeConfig({}))
    record = logging.LogRecord(name, 20, __file__, 1, "%s of %r: %d", ("a\nb", "c\x1b", 5), None)
    assert logging.getLogger(name).filter(record)
    assert record.getMessage() == r"a\nb of 'c\x1b': 5"


def test_log_values_by_name_are_escaped(captured_log: CapturedLog) -> None:
    logging.getLogger(LOGGER_NAMES[0]).warning("%(topic)s at %(offset)d", {"topic": "a\nb", "offset": 5})
    assert captured_log.texts[-1].endswith(r"a\nb at 5")


def test_escape_keeps_printable_text() -> None:
    assert escape("grün-\u65e5\u672c \\ %s") == "grün-\u65e5\u672c \\ %s"
    assert escape("abcdef", 3) == "abc..."
