"""``ottla serve``: run a node until it is stopped."""

from __future__ import annotations

import argparse

from ottla.cli.arguments import command_parser, integer
from ottla.cli.node_setup.log_options import add_log_options
from ottla.cli.node_setup.settings import add_settings

HELP = """Run one Kafka node, broker and controller in one.

An empty or missing data directory is formatted first. Clients reach the node at the address they connected to; set
advertised.listeners to return another one. Settings are Kafka's own (server.properties names and values); KAFKA_*
environment variables are read as in Kafka's container image. --set overrides them, and they override the file.

examples:
  ottla serve                                        127.0.0.1:9092, data in ./ottla-data
  ottla serve --listen 127.0.0.1:0                   use a free port; the ready line names it
  ottla serve --config server.properties --set num.partitions=3
  ottla serve --secure                               TLS and a login; prints where client settings are
  ottla serve --node-id 2 --listen 127.0.0.1:9093 --data-dir ./two --join 127.0.0.1:9092
  ottla serve --node-id 2 --listen 127.0.0.1:9093 --data-dir ./two --join 127.0.0.1:9092 --secure \\
      --join-credentials ottla-data/secure-join.json
"""

DEFAULT_CONSOLE = "127.0.0.1:8090"


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of ``ottla serve``."""
    out = command_parser("serve", HELP)
    add_settings(out)
    out.add_argument("--listen", metavar="HOST:PORT", help="address to listen at (default 127.0.0.1:9092)")
    out.add_argument("--join", metavar="HOST:PORT", help="join the cluster of the node that has this address")
    out.add_argument(
        "--join-credentials",
        metavar="FILE",
        help="with --secure --join: copy of secure-join.json of a node of the cluster",
    )
    out.add_argument(
        "--quorum-size",
        type=integer(1),
        default=3,
        metavar="N",
        help="with --join: become a voter while fewer than N nodes are (default 3)",
    )
    out.add_argument(
        "--console",
        nargs="?",
        const=DEFAULT_CONSOLE,
        metavar="HOST:PORT",
        help=f"serve the web console (default {DEFAULT_CONSOLE})",
    )
    out.add_argument("--cluster-id", metavar="ID", help="id of a new cluster, or the expected id")
    out.add_argument(
        "--secure",
        action="store_true",
        help="use TLS and require a login; creates certificates, a user, client settings",
    )
    add_log_options(out)
    return out


def run(arguments: list[str]) -> int:
    """Run a node with the arguments of ``ottla serve`` until SIGTERM or SIGINT; return the exit status.

    Returns:
        0 after a stop; 1 after all log directories have failed; 2 if the node cannot start, or later fails with such an
        error as prevents a start.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = parser().parse_args(arguments)
    # lazy: 0.0 ms, 0 kB: every node needs it; --help and wrong arguments do not, and save 120 ms
    from ottla.cli.node_setup.serve_node import serve_node

    return serve_node(options)
