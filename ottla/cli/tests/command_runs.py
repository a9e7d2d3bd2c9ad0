"""Commands run in the test process, with their own standard input and output."""

from __future__ import annotations

import io
import sys
from typing import NamedTuple
from unittest import mock

from ottla.cli.main import main


class CommandRun(NamedTuple):
    """Result of a command."""

    status: int
    out: bytes
    err: str


def run_command(*arguments: str, stdin: bytes = b"", stdout: io.RawIOBase | None = None) -> CommandRun:
    """Run a command; ``stdout``: destination of its output instead of memory."""
    memory = io.BytesIO()
    out = io.TextIOWrapper(memory if stdout is None else io.BufferedWriter(stdout), "utf-8", write_through=True)
    errors, given = io.StringIO(), io.TextIOWrapper(io.BytesIO(stdin), "utf-8", errors="surrogateescape")
    with (
        mock.patch.object(sys, "stdin", given),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", errors),
    ):
        try:
            status = main(list(arguments))
        except SystemExit as end:
            status = int(end.code or 0)
    return CommandRun(status, memory.getvalue(), errors.getvalue())
