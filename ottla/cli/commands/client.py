"""``ottla client``: list the client connections of nodes, from their HTTP listeners."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from ottla.cli.arguments import bootstrap_servers, command_parser
from ottla.cli.common import OUTPUTS, print_output
from ottla.cli.errors import CommandFailed, os_error_text
from ottla.client.http_client import HttpFetchError, http_get
from ottla.env.log_escaping import escape
from ottla.runtime.blocking_env import BlockingEnv, run_blocking

TEXT = """List the clients that are connected to nodes, other nodes included: client id, software, address,
principal, and the newest version of each API that the connection has used. Each node needs an HTTP listener
(ottla.metrics.listener), and the command runs on the machine of the node. A node with an authorizer does not send the
list; its console shows it to users with DESCRIBE on the cluster.

examples:
  ottla client --http 127.0.0.1:9404
  ottla client --http 127.0.0.1:9404 --filter billing      only rows that contain this text
  ottla client --http 127.0.0.1:9404 -o json
"""
VARIABLE = "KAFKA_OTTLA_METRICS_LISTENER"
MAX_LIST_BYTES = 64 << 20
FORBIDDEN = "status 403"
"""Text of the error for a list that the node does not send."""
_COLUMNS = (
    *("node", "client_id", "software", "address", "listener", "principal", "last_request", "idle_ms"),
    *("pending_bytes", "throttled_ms", "received_bytes", "sent_bytes", "api_versions"),
)


def parse_connections(raw: bytes) -> list[dict[str, Any]]:
    """Return the rows of the JSON list of connections that a node's HTTP listener sends.

    Each row has the columns in `_COLUMNS`.

    Raises:
        CommandFailed: the document is no such list.
    """
    try:
        document = json.loads(raw)
        rows = [{"node": document["node_id"], **row} for row in document["connections"]]
        rows = [{name: row[name] for name in _COLUMNS} for row in rows]
    except (ValueError, LookupError, TypeError, RecursionError):
        rows = [{}]
    if not all(_is_valid(row) for row in rows):
        raise CommandFailed("unexpected HTTP response: no list of connections")
    return rows


def _is_valid(row: dict[str, Any]) -> bool:
    """Return whether the columns by which rows are sorted, and the list of versions, have the right types."""
    versions = row.get("api_versions")
    return (
        all(isinstance(row.get(name), kind) for name, kind in (("node", int), ("client_id", str), ("address", str)))
        and isinstance(versions, list)
        and all(isinstance(text, str) for text in versions)
    )


async def _fetch(address: str) -> list[dict[str, Any]]:
    try:
        raw = await http_get(BlockingEnv(), f"http://{address}/connections", max_bytes=MAX_LIST_BYTES)
    except HttpFetchError as error:
        cause = error.__context__
        text = os_error_text(cause) if isinstance(cause, OSError) else str(error)
        if text == FORBIDDEN:
            text = "the list is sent to the machine of the node only, and not by a node with an authorizer"
        raise CommandFailed(f"{address}: {text}") from None
    return parse_connections(raw)


async def _list(options: argparse.Namespace) -> None:
    rows = [row for address in options.http for row in await _fetch(address)]
    if options.filter:
        wanted = options.filter.lower()
        rows = [row for row in rows if any(wanted in str(value).lower() for value in row.values())]
    rows.sort(key=lambda row: (row["client_id"], row["address"], row["node"]))
    if options.output == "text":
        rows = [{**row, "api_versions": ", ".join(row["api_versions"])} for row in rows]
    print_output(rows, options.output, "no connections")


def _parser() -> argparse.ArgumentParser:
    out = command_parser("client", TEXT)
    text = f"HTTP listener of a node; may be repeated (default: ${VARIABLE})"
    out.add_argument("--http", action="append", type=bootstrap_servers, metavar="HOST:PORT", help=text)
    out.add_argument("--filter", metavar="TEXT", help="only connections with this text in a column")
    text = "format of the output (default: text)"
    out.add_argument("-o", "--output", choices=OUTPUTS, default="text", help=text)
    return out


def run(arguments: list[str]) -> int:
    """Run ``ottla client``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0), or invalid arguments or no HTTP listener (status 2).
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    options.http = options.http or [x for x in [os.environ.get(VARIABLE)] if x]
    if not options.http:
        parser.error("--http HOST:PORT is required")
    try:
        run_blocking(_list(options))
    except KeyboardInterrupt:
        return 130
    except CommandFailed as error:
        print(f"ottla: {escape(str(error))}", file=sys.stderr)
        return 1
    return 0
