"""What is told of Kerberos' errors. Tickets of a real KDC are shown in `compat_tests`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.runtime.real_kerberos import _describe_error


def error(*said: str, of_major: str = "no credentials") -> SimpleNamespace:
    return SimpleNamespace(
        min_code=1, maj_code=2, get_all_statuses=lambda code, is_major: [of_major] if is_major else list(said)
    )


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (["No key for kafka/h@HERE.ORG"], "No key for kafka/h@HERE.ORG"),
        (["one\nthing", "and another"], "one thing; and another"),
        (["Success"], "no credentials"),
        ([], "no credentials"),
        (["No key for \x1b[2Jevil@HERE.ORG"], "No key for \\x1b[2Jevil@HERE.ORG"),
        (["x" * 100_000], "x" * 255 + "..."),
    ],
)
def test_an_error_is_one_short_line_whatever_name_a_stranger_put_into_his_ticket(said: list[str], line: str) -> None:
    assert _describe_error(error(*said)) == line
