"""Java properties files; ``compat_tests/vs_kafka/test_java_properties.py`` compares random files with Java itself."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies

from ottla.log.java_properties import MalformedProperties, dumps, dumps_settings, load_settings, loads, parse


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a=1\nb:2\nc 3\nd\n", {"a": "1", "b": "2", "c": "3", "d": ""}),
        (b" a = 1 \r\n\tb\t:\t2\t\rc\f3", {"a": "1 ", "b": "2\t", "c": "3"}),
        (b"a==1\nb:=2\nc = : 3\n=4\n", {"a": "=1", "b": "=2", "c": ": 3", "": "4"}),
        (b"# a=1\\\nb=2\n  ! c=3\nd=#4\n\n \t\n", {"b": "2", "d": "#4"}),
        (b"log.retention.ms\\=1=2\n\\ a\\:b=3\n", {"log.retention.ms=1": "2", " a:b": "3"}),
        (b'jaas=M required username=\\"a\\" p=\\"b\\";\n', {"jaas": 'M required username="a" p="b";'}),
        (b"a=one,\\\n   two,\\\r\n\tthree\nb=4", {"a": "one,two,three", "b": "4"}),
        (b"a=1\\\\\nb=2\\\\\\\n3", {"a": "1\\", "b": "2\\3"}),
        (b"a=1\\\n\nb=2\\\n# c", {"a": "1", "b": "2# c"}),
        (b"\\\n# comment\n\\\n\na=1\\", {"a": "1"}),
        (b"a=\\t\\n\\r\\f\\b\\0\\\\\\u0033\\u00e9", {"a": "\t\n\r\fb0\\3\u00e9"}),
        (b"a=\\ud83d\\ude00\\ud83d\\ufffd", {"a": "\U0001f600?\ufffd"}),
        (b"a=\xc3\xa9\xe9\nb=\x85\x0b\xa0\n", {"a": "\xc3\xa9\xe9", "b": "\x85\x0b\xa0"}),
        (b"a=1\na=2\n", {"a": "2"}),
        (b"", {}),
        (b"\\", {"": ""}),
        (b"\\\n", {"": ""}),
        (b"\\\n ", {}),
        (b"\\\r\n", {}),
    ],
)
def test_loads_equals_java(raw: bytes, expected: dict[str, str]) -> None:
    assert loads(raw) == expected


@pytest.mark.parametrize("raw", [b"a=\\u12\n", b"a=\\u12g4", b"\\u=1", b"b=1\na=\\u", b"a=\\uu0041", b"a=\\u 041"])
def test_loads_malformed_unicode_escape_raises_malformed_properties(raw: bytes) -> None:
    with pytest.raises(MalformedProperties, match="Malformed"):
        loads(raw)


def test_parse_returns_first_line_of_each_property() -> None:
    assert list(parse(b"# c\na=1,\\\n  2\n\r\nb=\\\n\nc\n")) == [(2, "a", "1,2"), (5, "b", ""), (7, "c", "")]


def test_load_settings_trims_values() -> None:
    assert load_settings(b"a = 1 \t\nb=\\u0001x\\n\n") == {"a": "1", "b": "x"}


def test_dumps_escapes_as_java() -> None:
    values = {"cluster.id": "my:cluster=1", " a b": "  c d", "#!": "\\\t\n\r\f\x00~\x7f\u00e9\U0001f600", "": ""}
    assert dumps(values) == (
        "cluster.id=my\\:cluster\\=1\n\\ a\\ b=\\  c d\n"
        "\\#\\!=\\\\\\t\\n\\r\\f\\u0000~\\u007F\\u00E9\\uD83D\\uDE00\n=\n"
    )


def test_dumps_settings_leaves_addresses_readable() -> None:
    assert dumps_settings({"bootstrap.servers": "a:9092", "x": "C:\\d=\u00e9"}) == (
        "bootstrap.servers=a:9092\nx=C:\\\\d=\\u00E9\n"
    )


_TEXTS = strategies.text(strategies.characters(exclude_categories=["Cs"]))


@given(strategies.dictionaries(_TEXTS, _TEXTS))
def test_loads_of_dumped_properties_returns_the_same(values: dict[str, str]) -> None:
    assert loads(dumps(values).encode()) == values
    assert loads(dumps_settings(values).encode()) == values
