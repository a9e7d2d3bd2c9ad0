"""Output of the command line: names that clients chose do not reach a terminal as control characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO


class EscapingOutput:
    """A text stream that writes printable characters, tabs and line ends as they are, and escapes all others."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, escaped; a carriage return stays if it is the first character, as of a progress bar."""
        first, rest = (text[:1], text[1:]) if text.startswith("\r") else ("", text)
        self._stream.write(first + "".join(x if x.isprintable() or x in "\n\t" else ascii(x)[1:-1] for x in rest))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
