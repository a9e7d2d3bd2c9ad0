"""``ottla fault``: inject faults into a node with ``ottla.faults=true``, advance its clock, pause its network."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from ottla.cli.arguments import command_parser, integer, seconds
from ottla.cli.common import OUTPUTS, print_output
from ottla.cli.errors import CommandFailed
from ottla.env.log_escaping import escape
from ottla.tools.fault_client import FaultConnection, FaultHandle, FaultRejected, Faults, FaultsDisabled, NodeClock

TEXT = """Inject faults into a node of this machine, to test clients. Start the node with --set ottla.faults=true, and
name it by its data directory.

examples:
  ottla fault add error Produce NOT_LEADER_OR_FOLLOWER --times 2
  ottla fault add delay Fetch --seconds 5 --topic orders
  ottla fault add disconnect Produce --handled --on-call 3
  ottla fault add throttle Produce --seconds 0.5 --client-id billing
  ottla fault add half_response Metadata --probability 0.1 --seed 7
  ottla fault list
  ottla fault remove 2
  ottla fault remove --all
  ottla fault clock --advance-days 7
  ottla fault pause
"""
KINDS = ("error", "delay", "disconnect", "drop", "throttle", "half_response", "disk_full")
TOKEN_VARIABLE = "OTTLA_FAULTS_TOKEN"  # noqa: S105 - the name of a variable
_VERBS = {
    "add": "add a fault",
    "list": "list the active faults, with the number of their calls",
    "remove": "remove faults",
    "clock": "show the clock of the node, or advance it",
    "pause": "hold all traffic between the node and clients or other nodes",
    "resume": "end a pause",
}


def _parser() -> argparse.ArgumentParser:
    out = command_parser("fault", TEXT)
    verbs = out.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in _VERBS.items():
        verb = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(needs_utf8=True)
        text = "data directory of the node (default: ./ottla-data)"
        verb.add_argument("--data-dir", default="./ottla-data", metavar="DIR", help=text)
        text = f"listener for faults, in place of the data directory; ${TOKEN_VARIABLE} has the token"
        verb.add_argument("--address", metavar="HOST:PORT", help=text)
        if name not in ("pause", "resume"):
            verb.add_argument("-o", "--output", choices=OUTPUTS, default="text", help="format (default: text)")
        if name == "add":
            _add_fault_options(verb)
        elif name == "remove":
            verb.add_argument("id", nargs="*", type=integer(1), help="ids of faults")
            verb.add_argument("--all", action="store_true", help="all faults")
        elif name == "clock":
            for unit in ("days", "hours", "minutes", "seconds"):
                verb.add_argument(f"--advance-{unit}", type=seconds, default=0.0, metavar="N", help="advance the clock")
    return out


def _add_fault_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("fault", choices=KINDS, metavar="FAULT", help=f"one of {', '.join(KINDS)}")
    verb.add_argument("api", nargs="?", help="API, such as Produce; not for disk_full")
    verb.add_argument("code", nargs="?", help="error code, such as NOT_LEADER_OR_FOLLOWER; for error")
    verb.add_argument("--topic", metavar="NAME", help="only requests that name this topic")
    verb.add_argument("--client-id", metavar="ID", help="only requests of this client")
    verb.add_argument("--directory", metavar="DIR", help="for disk_full: only files below this directory")
    verb.add_argument("--seconds", type=seconds, metavar="S", help="time of a delay or throttle")
    verb.add_argument("--handled", action="store_true", help="for disconnect and drop: handle the request first")
    verb.add_argument("--times", type=integer(1), metavar="N", help="apply it to N calls")
    verb.add_argument("--on-call", type=integer(1), metavar="N", help="apply it to the call of this number alone")
    verb.add_argument("--probability", type=float, metavar="P", help="apply it to calls at random")
    verb.add_argument("--seed", type=integer(0), metavar="N", help="with --probability: which calls (default: 0)")


def _add(faults: Faults, options: argparse.Namespace) -> list[dict[str, Any]]:
    fields = {
        name: getattr(options, name)
        for name in ("api", "code", "topic", "client_id", "directory", "times", "on_call", "probability", "seed")
    }
    if options.fault in ("delay", "throttle") and options.seconds is None:
        raise CommandFailed(f"{options.fault} needs --seconds")
    fields["ms"] = None if options.seconds is None else round(options.seconds * 1000)
    fields["handled"] = True if options.handled else None
    fields["directory"] = None if options.directory is None else os.path.abspath(options.directory)
    return [faults.add(options.fault, **fields).described]


def _remove(faults: Faults, options: argparse.Namespace) -> list[dict[str, Any]]:
    if options.all == bool(options.id):
        raise CommandFailed("ids of faults, or --all, expected")
    handles = (
        faults.list() if options.all else [FaultHandle(faults.connection, {"id": number}) for number in options.id]
    )
    for handle in handles:
        handle.remove()
    return [handle.described for handle in handles]


def _clock(connection: FaultConnection, options: argparse.Namespace) -> list[dict[str, Any]]:
    units = {unit: getattr(options, f"advance_{unit}") for unit in ("days", "hours", "minutes", "seconds")}
    clock = NodeClock(connection)
    if any(units.values()):
        clock.advance(**units)
    return [{"now_ms": clock.now_ms, "offset_ms": clock.offset_ms}]


def _run(connection: FaultConnection, options: argparse.Namespace) -> None:
    """Send the requests of the verb to the node's fault listener, and print the returned rows.

    Pause and resume print nothing.

    Raises:
        CommandFailed: the options are incomplete.
        FaultsDisabled: the node does not run, or runs without ``ottla.faults=true``.
        FaultRejected: the node refused the request.
    """
    if options.verb in ("pause", "resume"):
        connection.call("POST", "/network", {"paused": options.verb == "pause"})
        return
    faults = Faults(connection)
    match options.verb:
        case "add":
            rows = _add(faults, options)
        case "remove":
            rows = _remove(faults, options)
        case "clock":
            rows = _clock(connection, options)
        case _:
            rows = [handle.described for handle in faults.list()]
    columns = dict.fromkeys(name for row in rows for name in row)
    print_output([{name: row.get(name) for name in columns} for row in rows], options.output, "no faults")


def run(arguments: list[str]) -> int:
    """Run ``ottla fault``; return exit status 0, or 1 after a failure that is printed.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = _parser().parse_args(arguments)
    token = os.environ.get(TOKEN_VARIABLE, "")
    connection = FaultConnection(options.data_dir, address=options.address or "", token=token)
    try:
        _run(connection, options)
    except (FaultsDisabled, FaultRejected, CommandFailed) as error:
        print(f"ottla fault: {escape(str(error))}", file=sys.stderr)
        return 1
    return 0
