"""Parser and writer of Java properties files, compatible with ``java.util.Properties``.

Files are ISO-8859-1, as every file is that Kafka reads by ``Properties.load(InputStream)``: ``server.properties``,
``meta.properties`` and the configuration files of clients and tools.

Source: ``java.util.Properties`` (``LineReader``, ``load0``, ``loadConvert``, ``saveConvert``, JDK 17);
``Utils.loadProps``, ``PropertiesUtils``, ``ConfigDef.parseType`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_WHITESPACE = " \t\f"
_LINE_END = re.compile("\r\n|\r|\n")
_KEY_AND_VALUE = re.compile(r"((?:[^\\=: \t\f]|\\.)*)(?:[ \t\f]*[=:]|[ \t\f])?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED_BY_JAVA = r"[^ -~]|[\\=:#!]"  # compiled on first use: most processes write no file
_NEEDED = r"[^ -~]|\\"
_ESCAPED_LETTERS = {character: "\\" + letter for letter, character in _LETTERS.items()}
_AT_OR_BELOW_SPACE = "".join(map(chr, range(33)))
"""Characters that ``String.trim`` removes."""


class MalformedProperties(ValueError):
    """Properties file with a Unicode escape that lacks its four hexadecimal digits; Java rejects the whole file."""


class Property(NamedTuple):
    """Property of a file: the number of its first line (from 1), key and value."""

    number: int
    key: str
    value: str


def parse(raw: bytes) -> Iterator[Property]:
    """Yield the properties in the contents of a properties file, in file order; a key may occur more than once.

    Raises:
        MalformedProperties: a Unicode escape without four hexadecimal digits.
    """
    lines = _LINE_END.split(raw.decode("latin-1"))
    if not lines[-1]:
        lines.pop()
    first, logical, is_continued = 0, "", False
    for number, natural in enumerate(lines, 1):
        text = natural.lstrip(_WHITESPACE)
        if not logical:
            is_continued = False
            if not text or text[0] in "#!":
                continue
            first = number
        is_continued = (len(text) - len(text.rstrip("\\"))) % 2 == 1
        if is_continued:
            logical += text[:-1]
        else:
            yield _property(first, logical + text)
            logical = ""
    if logical or (is_continued and not raw.endswith(b"\r\n")):  # Java yields a property for a last line of "\\"
        yield _property(first, logical)


def _property(number: int, line: str) -> Property:
    found = _KEY_AND_VALUE.fullmatch(line)
    assert found is not None, "the pattern matches every text that does not end in an odd number of backslashes"
    return Property(number, _unescape(found[1], number), _unescape(found[2], number))


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def character(found: re.Match[str]) -> str:
        escaped = found[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise MalformedProperties(f"Malformed \\uxxxx encoding: line {number}")
        return _LETTERS.get(escaped, escaped)

    out = _ESCAPE.sub(character, text)
    if any("\ud800" <= x <= "\udfff" for x in out):  # surrogate pairs; Java encodes an unpaired one as "?"
        joined = out.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
        out = joined.encode(errors="replace").decode()
    return out


def loads(raw: bytes) -> dict[str, str]:
    """Return the properties in the contents of a properties file; for a repeated key its last value.

    Raises:
        MalformedProperties: a Unicode escape without four hexadecimal digits.
    """
    return {key: value for _, key, value in parse(raw)}


def trim(value: str) -> str:
    """Return ``value`` without leading and trailing characters up to U+0020, as ``String.trim`` does."""
    return value.strip(_AT_OR_BELOW_SPACE)


def load_settings(raw: bytes) -> dict[str, str]:
    """Return the properties in the contents of a configuration file, with trimmed values as in ``ConfigDef``.

    Raises:
        MalformedProperties: a Unicode escape without four hexadecimal digits.
    """
    return {key: trim(value) for _, key, value in parse(raw)}


def dumps(values: Mapping[str, str]) -> str:
    """Return the text that ``Properties.store(OutputStream)`` writes for ``values``, without comments."""
    return "".join(f"{_escape_key(key)}={_escape_value(value, _ESCAPED_BY_JAVA)}\n" for key, value in values.items())


def dumps_settings(values: Mapping[str, str]) -> str:
    """Return the text of a configuration file: as `dumps`, but values escape only backslashes and non-ASCII characters.

    ``Properties.store`` also escapes the colon of an address. Java reads the address without the escape as the same
    value, and so does a client that knows no escapes.
    """
    return "".join(f"{_escape_key(key)}={_escape_value(value, _NEEDED)}\n" for key, value in values.items())


def _escape_key(key: str) -> str:
    return re.sub(_ESCAPED_BY_JAVA, _escape, key).replace(" ", "\\ ")


def _escape_value(value: str, escaped: str) -> str:
    return ("\\" if value[:1] == " " else "") + re.sub(escaped, _escape, value)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _ESCAPED_LETTERS:
        return _ESCAPED_LETTERS[character]
    if " " <= character <= "~":
        return "\\" + character
    raw = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[i] << 8 | raw[i + 1]:04X}" for i in range(0, len(raw), 2))
