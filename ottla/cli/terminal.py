"""Output of the command line: text with control characters escaped; records on standard output as unchanged bytes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO


class OutputFailed(Exception):
    """Standard output cannot be written.

    No OSError, since commands report an OSError as a failure of their files or brokers.

    Attributes:
        reason: message of the system; None if the reader of the pipe has closed it.
    """

    def __init__(self, reason: str | None) -> None:
        super().__init__(f"standard output: {reason or 'closed by its reader'}")
        self.reason = reason


def output_failure(error: OSError) -> OutputFailed:
    """Return the OutputFailed for an OSError of standard output."""
    return OutputFailed(None if isinstance(error, BrokenPipeError) else error.strerror or "cannot be written")


class EscapingOutput:
    """Text stream that escapes all characters but printable ones, tabs and line ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text with escapes; a carriage return at its start is kept, for progress bars.

        Returns:
            The length of the text before escaping.
        """
        first, rest = (text[:1], text[1:]) if text.startswith("\r") else ("", text)
        self._stream.write(first + "".join(x if x.isprintable() or x in "\n\t" else ascii(x)[1:-1] for x in rest))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts with escapes; no line ends are added."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class StandardOutput(EscapingOutput):
    """Standard output of a command, with control characters escaped.

    Raises:
        OutputFailed: by each method that writes, if the stream is closed, its reader is gone, or its disk is full.
    """

    def __init__(self, stream: TextIO | None) -> None:
        if stream is not None:
            super().__init__(stream)
        self._is_closed = stream is None

    def write(self, text: str) -> int:
        """Write a text with control characters escaped, so that it cannot control the terminal; return its length."""
        if self._is_closed:
            raise OutputFailed("is closed")
        try:
            return super().write(text)
        except OSError as error:
            raise output_failure(error) from None

    def write_bytes(self, data: bytes) -> None:
        """Write bytes unchanged, after the text written before, and flush.

        Raises:
            OutputFailed: standard output is closed or cannot be written.
        """
        if self._is_closed:
            raise OutputFailed("is closed")
        try:
            self._stream.flush()
            self._stream.buffer.write(data)
            self._stream.buffer.flush()
        except OSError as error:
            raise output_failure(error) from None

    def flush(self) -> None:
        """Flush buffered text to the file descriptor; do nothing without a stream.

        Raises:
            OutputFailed: standard output cannot be written.
        """
        try:
            if not self._is_closed:
                self._stream.flush()
        except OSError as error:
            raise output_failure(error) from None


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output unchanged.

    Raises:
        OutputFailed: standard output cannot be written.
    """
    out = sys.stdout
    (out if isinstance(out, StandardOutput) else StandardOutput(out)).write_bytes(data)
