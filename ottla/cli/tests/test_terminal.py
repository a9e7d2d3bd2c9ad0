"""Terminal output: names chosen by clients contain no control characters."""

from __future__ import annotations

import sys
from argparse import Namespace
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.cli import common, main
from ottla.cli.commands import group
from ottla.cli.errors import CommandFailed
from ottla.cli.terminal import write_bytes

NAME = "a\nFORGED \x1b[31m\u202e\r"
ESCAPED = r"a\nFORGED \x1b[31m\u202e\r"


def test_main_escapes_output_of_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: list[str]) -> int:
        sys.stdout.write("one\ttwo \x1b[31m\u202e\u2028 gr\u00fcn \u65e5\rthree\n\n")
        sys.stderr.write("\rprogress \x1b")
        sys.stdout.writelines(["x\x07"])
        assert not sys.stdout.isatty()
        return 7

    monkeypatch.setattr(main, "import_module", lambda _: SimpleNamespace(run=run))
    assert main.main(["topic"]) == 7
    found = capsys.readouterr()
    assert found.out == "one\ttwo \\x1b[31m\\u202e\\u2028 gr\u00fcn \u65e5\\rthree\n\nx\\x07"
    assert found.err == "\rprogress \\x1b"


def test_write_bytes_keeps_records_unescaped(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    def run(_: list[str]) -> int:
        print("first")
        write_bytes(b"a\x1b\xff\n")
        return 0

    monkeypatch.setattr(main, "import_module", lambda _: SimpleNamespace(run=run))
    assert main.main(["consume"]) == 0
    assert capsysbinary.readouterr().out == b"first\na\x1b\xff\n"


def test_tables_and_headings_keep_a_name_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    common.print_output([{"group": NAME, "n": 1}], "text")
    row = {"group": NAME, "type": "classic", "state": "Stable", "epoch": None, "assignor": NAME}
    group._print({**row, "members": [], "coordinator": 1}, first=True)
    head, table, line = capsys.readouterr().out.splitlines()
    assert table.split() == [*ESCAPED.split(), "1"]
    assert line.startswith(ESCAPED)
    assert head.split() == ["group", "n"]


def test_cluster_error_is_printed_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(_: object) -> None:
        raise CommandFailed(NAME)

    options = SimpleNamespace(bootstrap="127.0.0.1:1", command_config=None, context=None)
    assert common.run_with_client(cast("Namespace", options), work) == 1
    assert capsys.readouterr().err == f"ottla: {ESCAPED}\n"
