"""Java properties files: drawn files are read, and drawn properties written, as by ``java.util.Properties``."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.log.java_properties import MalformedProperties, dumps, loads

SOURCE = Path(__file__).parent.parent / "java" / "ReadProperties.java"
FILES, STORED = 20_000, 5_000
_PIECES = [
    *(["a", "b.c", "1", "x y"] * 3),
    *(["=", ":", " ", "\t", "\f", "\n", "\r", "\r\n"] * 3),
    *(["\\", "\\\\", "\\\n", "\\\r\n", "\\\r", '\\"', "\\=", "\\:", "\\ ", "\\#", "\\t", "\\n", "\\f", "\\r"] * 2),
    *[
        "\\u0041",
        "\\u00e9",
        "\\uD83D\\uDE00",
        "\\ud83d",
        "\\ude00",
        "\\ufffd",
        "\\u20AC",
        "\\u000a",
        "\\u003d",
        "\\u005C",
    ],
    *["\\u12", "\\u12g4", "\\uu0041", "\\u", "\\u 041", "\\u-001", "\\u+041"],
    *["#", "!", "# c\n", "! c\\\n", "\n\n", "\n#", "\n !", "\x00", "\x0b", "\x1c", "\x7f", "\x85", "\xa0", "\xe9"],
    *["\xc3\xa9", "\xef\xbb\xbf", '"', "'", ";", ",", "${env:A}", "key=value\n", "jaas.config=M u=\\"],
]
_CHARACTERS = "ab =:#!\\\t\n\r\f\x01\x1f~\x7f\x80\xa0\xe9\xff\u0100\u20ac\u2028\ufeff\U0001f600\"'"


def _java(frames: list[bytes]) -> memoryview:
    stream = struct.pack(">i", len(frames)) + b"".join(struct.pack(">i", len(x)) + x for x in frames)
    command = ["java", "-Xmx256m", str(SOURCE)]
    done = subprocess.run(command, input=stream, stdout=subprocess.PIPE, check=True, timeout=120)
    return memoryview(done.stdout)


class _Reader:
    def __init__(self, raw: memoryview) -> None:
        self.raw, self.position = raw, 0

    def number(self) -> int:
        self.position += 4
        return int(struct.unpack_from(">i", self.raw, self.position - 4)[0])

    def text(self) -> str:
        length = self.number()
        self.position += length
        return bytes(self.raw[self.position - length : self.position]).decode()

    def properties(self) -> dict[str, str] | None:
        count = self.number()
        return None if count < 0 else {self.text(): self.text() for _ in range(count)}


def _loaded(raw: bytes) -> dict[str, str] | None:
    try:
        return loads(raw)
    except MalformedProperties:
        return None


class RandomProperties(NamedTuple):
    """Drawn files and properties, and the results of Java."""

    files: list[bytes]
    loaded: list[dict[str, str] | None]
    properties: list[tuple[str, str]]
    stored: list[str]


@pytest.fixture(scope="module")
def drawn() -> RandomProperties:
    draws = random.Random(25)

    def text() -> str:
        return "".join(draws.choices(_CHARACTERS, k=draws.randint(0, 8)))

    files = ["".join(draws.choices(_PIECES, k=draws.randint(0, 14))).encode("latin-1") for _ in range(FILES)]
    properties = [(text(), text()) for _ in range(STORED)]
    frames = [b"L" + raw for raw in files] + [f"S{key}\x00{value}".encode() for key, value in properties]
    answers = _Reader(_java(frames))
    return RandomProperties(
        files, [answers.properties() for _ in files], properties, [answers.text() for _ in properties]
    )


def test_loads_of_drawn_files_equals_java(drawn: RandomProperties) -> None:
    for raw, expected in zip(drawn.files, drawn.loaded, strict=True):
        assert _loaded(raw) == expected, raw
    assert FILES / 10 < drawn.loaded.count(None) < FILES / 2


def test_dumps_of_drawn_properties_equals_java(drawn: RandomProperties) -> None:
    for (key, value), expected in zip(drawn.properties, drawn.stored, strict=True):
        assert dumps({key: value}) == expected
