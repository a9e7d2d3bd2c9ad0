"""Standard output of the command line: escaped text, and records as the bytes they are."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO


class OutputFailed(Exception):
    """Standard output cannot be written. No OSError: a command would take it for a failure of its files or brokers.

    Attributes:
        reason: the system's message; None if the reader has closed the pipe.
    """

    def __init__(self, reason: str | None) -> None:
        super().__init__(f"standard output: {reason or 'closed by its reader'}")
        self.reason = reason


def output_failure(error: OSError) -> OutputFailed:
    """Return the failure for an error of standard output."""
    return OutputFailed(None if isinstance(error, BrokenPipeError) else error.strerror or "cannot be written")


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


class StandardOutput(EscapingOutput):
    """Standard output of a command.

    Raises:
        OutputFailed: by each method, if the stream is closed, its reader is gone, or its disk is full.
    """

    def __init__(self, stream: TextIO | None) -> None:
        if stream is not None:
            super().__init__(stream)
        self._is_closed = stream is None

    def write(self, text: str) -> int:
        """Write a text, escaped."""
        if self._is_closed:
            raise OutputFailed("is closed")
        try:
            return super().write(text)
        except OSError as error:
            raise output_failure(error) from None

    def write_bytes(self, data: bytes) -> None:
        """Write bytes as they are, and flush."""
        if self._is_closed:
            raise OutputFailed("is closed")
        try:
            self._stream.flush()
            self._stream.buffer.write(data)
            self._stream.buffer.flush()
        except OSError as error:
            raise output_failure(error) from None

    def flush(self) -> None:
        """Hand what is buffered to the system."""
        try:
            if not self._is_closed:
                self._stream.flush()
        except OSError as error:
            raise output_failure(error) from None


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output as they are.

    Raises:
        OutputFailed: it cannot be written.
    """
    out = sys.stdout
    (out if isinstance(out, StandardOutput) else StandardOutput(out)).write_bytes(data)
