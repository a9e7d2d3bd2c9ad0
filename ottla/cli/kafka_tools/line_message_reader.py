"""Reader of lines for ``kafka-console-producer.sh``: converts a line to a record with key, value and headers.

Source: ``LineMessageReader`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.cli.kafka_tools.tool_options import ToolFailed, compile_regex
from ottla.tools.json_records import ParsedRecord

_EXCEPTION = "org.apache.kafka.common.KafkaException"


def is_true(text: str) -> bool:
    """Return True if the text of a boolean property is ``true`` in any case; other text is False."""
    return text.strip().lower() == "true"


class LineMessageReader:
    """Converter of input lines to records; ``properties``: those of ``--reader-property`` and ``--reader-config``.

    Raises:
        ToolFailed: by the constructor: two of the three header separators are equal, or the null marker equals a
            separator, or ``headers.separator`` is not a valid regular expression.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._parses_key = is_true(properties.get("parse.key", ""))
        self._parses_headers = is_true(properties.get("parse.headers", ""))
        self._ignores_error = is_true(properties.get("ignore.error", ""))
        texts = {
            "key.separator": properties.get("key.separator", "\t"),
            "headers.delimiter": properties.get("headers.delimiter", "\t"),
            "headers.separator": properties.get("headers.separator", ","),
            "headers.key.separator": properties.get("headers.key.separator", ":"),
            "null.marker": properties.get("null.marker"),
        }
        for one, other in (
            ("headers.delimiter", "headers.separator"),
            ("headers.delimiter", "headers.key.separator"),
            ("headers.separator", "headers.key.separator"),
            ("null.marker", "key.separator"),
            ("null.marker", "headers.separator"),
            ("null.marker", "headers.delimiter"),
            ("null.marker", "headers.key.separator"),
        ):
            if texts[one] == texts[other]:
                raise ToolFailed(f"{_EXCEPTION}: {one} and {other} may not be equal")
        raw = {name: text.encode() for name, text in texts.items() if text is not None}
        self._key_separator = raw["key.separator"]
        self._delimiter = raw["headers.delimiter"]
        self._header_key_separator = raw["headers.key.separator"]
        self._header_separator = compile_regex(raw["headers.separator"])
        self._null = raw.get("null.marker")
        self._line_number = 0

    def parse(self, line: bytes) -> ParsedRecord:
        """Return the record of the next line, which is counted for error messages.

        Raises:
            ToolFailed: a separator is missing and ``ignore.error`` is not set, or a header key equals the null marker.
        """
        self._line_number += 1
        rest = line.removesuffix(b"\r")
        headers: bytes | None = None
        key: bytes | None = None
        if self._parses_headers:
            headers, rest = self._split(rest, line, self._delimiter, "headers delimiter")
        if self._parses_key:
            key, rest = self._split(rest, line, self._key_separator, "key separator")
        parsed = () if headers is None or headers == self._null else self._headers(headers)
        return ParsedRecord(self._or_null(key), self._or_null(rest), headers=parsed)

    def _or_null(self, text: bytes | None) -> bytes | None:
        return None if text == self._null else text

    def _split(self, rest: bytes, line: bytes, separator: bytes, name: str) -> tuple[bytes | None, bytes]:
        if not separator:  # found at the begin, as by String.indexOf
            return b"", rest
        before, found, after = rest.partition(separator)
        if found:
            return before, after
        if self._ignores_error:
            return None, rest
        shown = line.decode(errors="replace")
        raise ToolFailed(f"{_EXCEPTION}: No {name} found on line number {self._line_number}: '{shown}'")

    def _headers(self, text: bytes) -> tuple[tuple[str, bytes | None], ...]:
        pairs = self._header_separator.split(text)
        while len(pairs) > 1 and not pairs[-1]:  # as Pattern.split of Java
            pairs.pop()
        out: list[tuple[str, bytes | None]] = []
        for pair in pairs:
            key, found, value = pair.partition(self._header_key_separator)
            if not found and not self._ignores_error:
                raise ToolFailed(
                    f"{_EXCEPTION}: No header key separator found in pair '{pair.decode(errors='replace')}' "
                    f"on line number {self._line_number}"
                )
            if found and key == self._null:
                marker = key.decode(errors="replace")
                raise ToolFailed(
                    f"{_EXCEPTION}: Header keys should not be equal to the null marker '{marker}' as they can't be null"
                )
            out.append((key.decode(errors="replace"), self._or_null(value) if found else None))
        return tuple(out)
