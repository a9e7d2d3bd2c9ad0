"""Names that clients chose do not reach the terminal of an operator as control characters."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from ottla.cli import common, main
from ottla.cli.commands import group

NAME = "a\nFORGED \x1b[31m\u202e\r"
ESCAPED = r"a\nFORGED \x1b[31m\u202e\r"


def test_main_escapes_what_a_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_main_leaves_records_as_they_are(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(main, "import_module", lambda _: SimpleNamespace(run=lambda _: sys.stdout.write("a\x1b\n")))
    main.main(["consume"])
    assert capsys.readouterr().out == "a\x1b\n"


def test_tables_and_heads_keep_a_name_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    common.print_output([{"group": NAME, "n": 1}], "text")
    row = {"group": NAME, "type": "classic", "state": "Stable", "epoch": None, "assignor": NAME}
    group._print({**row, "members": [], "coordinator": 1}, first=True)
    head, table, line = capsys.readouterr().out.splitlines()
    assert table.split() == [*ESCAPED.split(), "1"]
    assert line.startswith(ESCAPED)
    assert head.split() == ["group", "n"]


def test_errors_of_a_cluster_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(_: object) -> None:
        raise common.CommandFailed(NAME)

    assert common.run_with_client("127.0.0.1:1", work) == 1
    assert capsys.readouterr().err == f"ottla: {ESCAPED}\n"
