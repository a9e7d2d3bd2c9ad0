"""Settings of the export by OTLP at the start of a node."""

from __future__ import annotations

import pytest

from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.otlp_settings import parse_otlp_headers
from ottla.broker.config.startup_checks import check_startup_values


@pytest.mark.parametrize("ratio", ["NaN", "+NaN", "-NaN", " NaN "])
@pytest.mark.parametrize("endpoint", [{}, {"ottla.otlp.endpoint": "http://127.0.0.1:4318"}])
def test_trace_ratio_that_is_no_number_is_rejected(ratio: str, endpoint: dict[str, str]) -> None:
    with pytest.raises(ConfigException, match=r"Invalid value NaN for configuration ottla\.otlp\.trace\.ratio"):
        check_startup_values({**endpoint, "ottla.otlp.trace.ratio": ratio})


def test_valid_settings_of_the_export_are_accepted() -> None:
    values = {
        "ottla.otlp.endpoint": "http://127.0.0.1:4318",
        "ottla.otlp.trace.ratio": "0.25f",
        "ottla.otlp.headers": "authorization=Bearer a=b, x-scope = 1",
    }
    assert check_startup_values(values) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (" ", {}),
        ("authorization=Bearer a=b, x-scope = 1", {"authorization": "Bearer a=b", "x-scope": "1"}),
        ("a=,b=1,", {"a": "", "b": "1"}),
    ],
)
def test_parse_otlp_headers_returns_the_pairs(text: str, expected: dict[str, str]) -> None:
    assert parse_otlp_headers(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("authorization", "entry 1 has no '='"),
        ("a=secret,secret2", "entry 2 has no '='"),
        ("a=1,,b=2", "entry 2 has no '='"),
        ("=secret", "the name in entry 1 is not a name of an HTTP header"),
        ("a b=secret", "the name in entry 1 is not a name of an HTTP header"),
        ("a=secret\r\nx: 1", "the value of a has a control character"),
        ("Content-Length=5", "Content-Length is set by the exporter or occurs twice"),
        ("a=secret,A=2", "A is set by the exporter or occurs twice"),
    ],
)
def test_malformed_headers_are_rejected_without_their_values(text: str, problem: str) -> None:
    with pytest.raises(ConfigException) as raised:
        check_startup_values({"ottla.otlp.headers": text})
    assert problem in str(raised.value)
    assert "secret" not in str(raised.value)
