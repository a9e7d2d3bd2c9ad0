"""Reports of the client matrix name each cell, each failure and each reason."""

from __future__ import annotations

from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import pytest

from compat_tests import __main__ as command
from compat_tests.clients.client_matrix import MATRIX_CELLS, NO, NOT_OFFERED, YES
from compat_tests.reports import html_report, junit_report

ROWS: dict[str, dict[str, str] | str] = {
    "aiokafka": {**dict.fromkeys(MATRIX_CELLS, YES), "admin": NO, "zstd": NOT_OFFERED},
    "kcat": "no <kcat> here",
}


def test_junit_report_has_a_case_for_each_cell() -> None:
    suites = ElementTree.fromstring(junit_report(ROWS, "h:1", 1.5)).findall("testsuite")
    counts = [tuple(int(suite.get(key, "")) for key in ("tests", "failures", "skipped")) for suite in suites]
    assert counts == [(len(MATRIX_CELLS), 1, 1), (len(MATRIX_CELLS), 0, len(MATRIX_CELLS))]
    (failed,) = [case for case in suites[0] if case.find("failure") is not None]
    assert (failed.get("name"), failed.get("classname")) == ("admin", "compat.aiokafka")
    skipped = suites[1][0].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "left out: no <kcat> here"


def test_html_report_marks_failures_and_escapes_text() -> None:
    page = html_report(ROWS, "h:1<script>", 1.5)
    assert page.count('class="no"') == 1
    assert "<script>" not in page
    assert "no &lt;kcat&gt; here" in page


def test_compat_command_with_failed_cell_writes_reports_and_returns_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name for name in ("a.xml", "a.html", "a.md")]
    options = [f"{flag}={file}" for flag, file in zip(("--junit", "--html", "--markdown"), files, strict=True)]
    with mock.patch.object(command, "measure_clients", return_value=ROWS):
        assert command.main(["--bootstrap", "h:1", *options]) == 1
    assert all(file.stat().st_size for file in files)
    assert "| kcat | 1.7.1 | left out: no <kcat> here |" in files[2].read_text()
    assert "| aiokafka |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["--bootstrap", "h:1", "--client", "nope"])
    assert "no client nope" in capsys.readouterr().err
