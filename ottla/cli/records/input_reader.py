"""Reader of lines, as bytes, from standard input or a file."""

from __future__ import annotations

import os
import select
from typing import Any

from ottla.cli.errors import CommandFailed

_CHUNK_BYTES = 1 << 16


class InputReader:
    """Reader that returns the lines of a stream as they arrive.

    Args:
        stream: standard input, None if that is closed, or a file. A stream without a file descriptor is read completely
            at first.
    """

    def __init__(self, stream: Any) -> None:
        self._parts: list[bytes] = []
        self._at_end = stream is None
        self._descriptor = -1
        try:
            self._descriptor = -1 if stream is None else stream.fileno()
        except (OSError, ValueError, AttributeError):
            self._parts, self._at_end = [stream.read()], True

    def has_input(self) -> bool:
        """Return True if the input has bytes to read or has ended; the bytes may be less than a line."""
        return self._at_end or bool(select.select([self._descriptor], [], [], 0)[0])

    def read_values(self) -> list[bytes] | None:
        """Block until at least one complete line has arrived; return the complete lines without their line ends.

        Returns:
            The lines; at the end of the input the remaining ones, of which the last may lack a line end; then None.

        Raises:
            CommandFailed: the input cannot be read.
        """
        while not self._at_end:
            try:
                select.select([self._descriptor], [], [])
                chunk = os.read(self._descriptor, _CHUNK_BYTES)
            except OSError as error:
                raise CommandFailed(f"standard input: {error.strerror}") from None
            if not chunk:
                self._at_end = True
                break
            *lines, last = chunk.split(b"\n")
            if lines:
                lines[0] = b"".join([*self._parts, lines[0]])
                self._parts = [last] if last else []
                return lines
            self._parts.append(last)
        rest, self._parts = b"".join(self._parts), []
        return rest.removesuffix(b"\n").split(b"\n") if rest else None
