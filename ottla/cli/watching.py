"""Option ``--watch`` of commands: their table is printed repeatedly, on a terminal in place."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable

from ottla.cli.arguments import integer, seconds
from ottla.cli.errors import failure_text
from ottla.cli.terminal import write_bytes
from ottla.env.log_escaping import escape
from ottla.runtime.blocking_env import BlockingEnv
from ottla.wire.errors import ProtocolError

CLEAR_SCREEN = b"\x1b[H\x1b[2J"


def add_watch_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--watch``, ``--interval`` and ``--times`` to the parser of a command."""
    text = "print repeatedly until interrupted; retry while the cluster does not respond"
    parser.add_argument("--watch", action="store_true", help=text)
    text = "with --watch: seconds between two tables (default: 2)"
    parser.add_argument("--interval", type=seconds, default=2.0, metavar="S", help=text)
    parser.add_argument("--times", type=integer(1), metavar="N", help="with --watch: stop after printing N times")


def check_watch_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exit with status 2 and the usage of ``parser`` if ``--times`` is given without ``--watch``."""
    if options.times is not None and not options.watch:
        parser.error("--times needs --watch")


def clear_screen(output: str) -> None:
    """Clear the terminal before the next table, if text is written to a terminal."""
    if output == "text" and sys.stdout.isatty():
        write_bytes(CLEAR_SCREEN)


async def print_repeatedly(
    options: argparse.Namespace,
    command: str,
    print_table: Callable[[], Awaitable[None]],
    retried: tuple[type[Exception], ...] = (OSError, ProtocolError),
) -> None:
    """Call ``print_table`` once, or with ``--watch`` until interrupted or ``--times`` is reached.

    With ``--watch``, an exception of the types ``retried`` after the first call is printed on standard error, with the
    words of ``command`` before it, and counts as a call.

    Raises:
        Exception: by ``print_table``: of the types ``retried`` at its first call or without ``--watch``, others at any.
    """
    env, count = BlockingEnv(), 0
    while True:
        try:
            await print_table()
        except retried as error:
            if not options.watch or not count:
                raise
            print(f"{command}: {escape(failure_text(error))}", file=sys.stderr)
        count += 1
        if not options.watch or count == options.times:
            return
        await env.sleep(options.interval)
