"""Config values as Java parses and formats them; the expected values are from a JVM."""

from __future__ import annotations

from math import inf, isnan

import pytest

from ottla.controller.config.java_values import (
    double_text,
    parse_boolean,
    parse_double,
    parse_integer,
    parse_list,
    split,
    trim,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5f", 0.5),
        ("0.5D", 0.5),
        (" .5\x00", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("0x1p-1", 0.5),
        ("-0X.8P1d", -1.0),
        ("Infinity", inf),
        ("-Infinity", -inf),
        ("1e400", inf),
        ("0x1p99999", inf),
        ("0x1p999999999999999999999", inf),
        ("0x1p-999999999999999999999", 0.0),
    ],
)
def test_parse_double_javas_forms_returns_value(text: str, value: float) -> None:
    assert parse_double(text) == value


def test_parse_double_nan_returns_nan() -> None:
    assert isnan(parse_double("NaN"))
    assert isnan(parse_double("-NaN"))


@pytest.mark.parametrize("text", ["", "nan", "inf", "1_0", "0x1", "1e", ".", "--1", "1fd", "\uff15", "0.5 f", "e5"])
def test_parse_double_other_forms_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_double(text)


@pytest.mark.parametrize(
    ("text", "bits", "value"),
    [
        ("+5", 32, 5),
        ("-0", 32, 0),
        ("007", 32, 7),
        ("\uff15", 32, 5),
        ("\u0663\u0664", 64, 34),
        ("-2147483648", 32, -(2**31)),
        ("9223372036854775807", 64, 2**63 - 1),
        ("0" * 5_000 + "9", 16, 9),
    ],
)
def test_parse_integer_javas_forms_returns_value(text: str, bits: int, value: int) -> None:
    assert parse_integer(text, bits) == value


@pytest.mark.parametrize(
    "text", ["", "+", "-", "1_0", "2147483648", "-2147483649", "0x10", "5.0", "\u00b2", "\U0001d7d7", " 5", "9" * 5_000]
)
def test_parse_integer_other_forms_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_integer(text, 32)


def test_parse_boolean_ignores_case_as_java_does() -> None:
    assert [parse_boolean(x) for x in ("true", "TRUE", "fal\u017fe")] == [True, True, False]
    for text in ("", "yes", "1", "truetrue", "tru"):
        with pytest.raises(ValueError):
            parse_boolean(text)


def test_parse_list_keeps_empty_elements_and_drops_ascii_blanks_around_commas() -> None:
    assert parse_list("") == []
    assert parse_list("a ,\t b,,c\u2003,") == ["a", "b", "", "c\u2003", ""]


def test_split_keeps_blanks_and_drops_empty_strings_at_the_end() -> None:
    assert split("") == [""]
    assert split(" a,,b ,,") == [" a", "", "b "]
    assert split(",") == []


def test_trim_removes_control_characters_and_keeps_other_blanks() -> None:
    assert trim("\x00 \x1f5\u00a0 ") == "5\u00a0"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (0.001, "0.001"),
        (1e-4, "1.0E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (123456789.125, "1.23456789125E8"),
        (inf, "Infinity"),
        (-inf, "-Infinity"),
        (inf - inf, "NaN"),
    ],
)
def test_double_text_equals_double_to_string(value: float, text: str) -> None:
    assert double_text(value) == text
