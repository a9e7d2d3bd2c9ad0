"""Descriptions of Kerberos errors. Tickets of a real KDC are tested in `compat_tests`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.runtime.real_kerberos import _describe_error


def error(*statuses: str, of_major: str = "no credentials") -> SimpleNamespace:
    return SimpleNamespace(
        min_code=1, maj_code=2, get_all_statuses=lambda code, is_major: [of_major] if is_major else list(statuses)
    )


@pytest.mark.parametrize(
    ("statuses", "line"),
    [
        (["No key for kafka/h@HERE.ORG"], "No key for kafka/h@HERE.ORG"),
        (["one\nthing", "and another"], "one thing; and another"),
        (["Success"], "no credentials"),
        ([], "no credentials"),
        (["No key for \x1b[2Jevil@HERE.ORG"], "No key for \\x1b[2Jevil@HERE.ORG"),
        (["x" * 100_000], "x" * 255 + "..."),
    ],
)
def test_describe_error_returns_one_short_escaped_line(statuses: list[str], line: str) -> None:
    assert _describe_error(error(*statuses)) == line
