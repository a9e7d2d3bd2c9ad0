"""``ottla``: the command line. Subcommands are loaded when they are used, so each starts quickly."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from typing import Any

from ottla import __version__
from ottla.cli.terminal import EscapingOutput

COMMANDS = {
    "serve": "run one node, broker and controller in one",
    "cluster": "several nodes on this machine; how a cluster does",
    "format": "make data directories a cluster's before its nodes start",
    "random-uuid": "print a fresh id for a cluster or directory",
    "topic": "list, describe, create, configure, delete topics",
    "acl": "list, add and remove rules of who may do what",
    "quota": "list, set and remove what clients may have in a second",
    "user": "list, add and remove users who log in with a password (SCRAM)",
    "token": "create, list, renew and end delegation tokens",
    "group": "list, describe, reset, delete groups of all four kinds",
    "txn": "list and describe transactions, find and end those that hang",
    "produce": "send lines from standard input",
    "consume": "print records",
    "dump": "print any file of a data directory in words",
    "doctor": "name what is wrong in a broker's configuration",
    "trace": "show what a client and a cluster say to each other",
    "log": "say what recovery would make of a data directory",
    "decode": "print a frame or file field by field, beside its bytes",
}
_RAW = ("consume",)
"""Commands whose output is not escaped: records are printed as they are."""


def usage() -> str:
    """The overview."""
    lines = [f"  {name:<11} {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: ottla COMMAND [OPTIONS]",
            "",
            "Apache Kafka's wire protocol, storage format and cluster rules, in Python.",
            "",
            "commands:",
            *lines,
            "",
            "ottla COMMAND --help tells more about each.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run a command; gives the exit status: 0 done, 1 failed while running, 2 wrong use."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"ottla {__version__} (speaks Apache Kafka 4.3.1)")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        print(f"ottla: no command {name!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    # lazy: 41.6 ms, 2319 kB: all of them; each process runs one
    run: Callable[[list[str]], int] = import_module(f"ottla.cli.commands.{name.replace('-', '_')}").run
    if name in _RAW:
        return run(arguments[1:])
    out: Any = EscapingOutput(sys.stdout)
    errors: Any = EscapingOutput(sys.stderr)
    with redirect_stdout(out), redirect_stderr(errors):
        return run(arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
