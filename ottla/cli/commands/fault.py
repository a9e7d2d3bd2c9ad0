"""``ottla fault``: faults of nodes with ``ottla.faults=true``; their clocks; pauses and partitions of their network."""

from __future__ import annotations

import argparse
import glob
import os
import sys
from contextlib import suppress
from typing import Any

from ottla.cli.arguments import command_parser, integer, seconds
from ottla.cli.common import OUTPUTS, print_output
from ottla.cli.errors import CommandFailed
from ottla.env.log_escaping import escape
from ottla.tools.fault_client import (
    FILE_NAME,
    FaultConnection,
    FaultHandle,
    FaultRejected,
    Faults,
    FaultsDisabled,
    NodeClock,
)
from ottla.tools.network_partition import blocked_addresses

TEXT = """Inject faults into a node of this machine, to test clients. Start the node with --set ottla.faults=true, and
name it by its data directory. A partition is between nodes whose data directories have the same parent.

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
  ottla fault partition 1 2,3                      node 1 from 2 and 3; clients reach all of them
  ottla fault heal
"""
CLUSTER_VERBS = ("partition", "heal")
"""Verbs for all running nodes of a cluster; the others are for one node."""
KINDS = ("error", "delay", "disconnect", "drop", "throttle", "half_response", "disk_full")
TOKEN_VARIABLE = "OTTLA_FAULTS_TOKEN"  # noqa: S105 - the name of a variable
_VERBS = {
    "add": "add a fault",
    "list": "list the active faults, with the number of their calls",
    "remove": "remove faults",
    "clock": "show the clock of the node, or advance it",
    "pause": "hold all traffic between the node and clients or other nodes",
    "resume": "end a pause",
    "partition": "block the network between groups of nodes; this ends an earlier partition",
    "heal": "end a partition",
}


def _parser() -> argparse.ArgumentParser:
    out = command_parser("fault", TEXT)
    verbs = out.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in _VERBS.items():
        verb = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(needs_utf8=True)
        if name in CLUSTER_VERBS:
            text = "parent of the data directories of the nodes (default: ./ottla-data)"
            verb.add_argument("--data-dir", default="./ottla-data", metavar="DIR", help=text)
            if name == "partition":
                text = "node ids of a group, separated by commas; two groups or more"
                verb.add_argument("group", nargs="+", type=_node_ids, metavar="IDS", help=text)
            continue
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


def _node_ids(text: str) -> list[int]:
    parse = integer(0)
    return [parse(word) for word in text.split(",")]


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


def _running_nodes(parent: str) -> dict[int, tuple[FaultConnection, list[str]]]:
    """Return fault listener and addresses of each running node with a data directory in ``parent``, by node id.

    Raises:
        CommandFailed: there is none with ``ottla.faults=true``.
    """
    found = {}
    for path in sorted(glob.glob(f"{glob.escape(parent.rstrip('/'))}/*/{FILE_NAME}")):
        connection = FaultConnection(os.path.dirname(path))
        with suppress(FaultsDisabled, FaultRejected):  # the file is left over from a node that was killed
            state = connection.call("GET", "/faults")
            found[state["node"]] = connection, state["listeners"]
    if not found:
        raise CommandFailed(f"no running node with ottla.faults=true in a directory of {parent}")
    return found


def _set_partition(options: argparse.Namespace) -> None:
    """Block the network between the groups of the command line, on all running nodes; without groups, heal it.

    Raises:
        CommandFailed: less than two groups, a node that is in two groups or does not run, or no running node.
    """
    groups = [] if options.verb == "heal" else options.group
    if len(groups) == 1:
        raise CommandFailed("two groups of node ids or more expected")
    nodes = _running_nodes(options.data_dir)
    try:
        blocked = blocked_addresses({node_id: addresses for node_id, (_, addresses) in nodes.items()}, groups)
    except ValueError as error:
        raise CommandFailed(str(error)) from None
    for node_id, (connection, _) in nodes.items():
        connection.call("POST", "/network", {"blocked": blocked[node_id]})


def _run(connection: FaultConnection, options: argparse.Namespace) -> None:
    """Send the requests of the verb to the node's fault listener, and print the returned rows.

    Those that change the network print nothing.

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
    try:
        if options.verb in CLUSTER_VERBS:
            _set_partition(options)
        else:
            token = os.environ.get(TOKEN_VARIABLE, "")
            _run(FaultConnection(options.data_dir, address=options.address or "", token=token), options)
    except (FaultsDisabled, FaultRejected, CommandFailed) as error:
        print(f"ottla fault: {escape(str(error))}", file=sys.stderr)
        return 1
    return 0
