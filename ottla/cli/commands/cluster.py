"""``ottla cluster``: start several nodes on this machine; show, drain, remove and recover nodes; move partitions."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from ottla.broker.config.listener_config import ConfigException
from ottla.cli.arguments import command_parser, integer
from ottla.cli.cluster_admin import reassignment, recovery, removal
from ottla.cli.common import add_connection, parse_key_values, print_output, run_with_client
from ottla.cli.errors import CommandFailed, failure_text, raise_for_error
from ottla.cli.node_setup import log_options
from ottla.cli.watching import add_watch_options, check_watch_options, clear_screen, print_repeatedly
from ottla.client.cluster_client import ClusterClient
from ottla.tools.cluster_status import fetch_cluster_status
from ottla.wire.errors import ProtocolError

TEXT = """Start several nodes on this machine, one process each. Show the state of a cluster, and move replicas in it.

examples:
  ottla cluster start --nodes 3 --data-dir /var/lib/ottla --port 9092
  ottla cluster start --secure                     TLS and a login; prints where client settings are
  ottla cluster status
  ottla cluster status --watch                     every two seconds
  ottla cluster drain 3 --dry-run
  ottla cluster remove 3
  ottla cluster recover --config node-1.properties
  ottla cluster rebalance
  ottla cluster reassign events:0=1,2,3
  ottla cluster elect
"""


def _parser() -> argparse.ArgumentParser:
    out = command_parser("cluster", TEXT)
    verbs = out.add_subparsers(dest="verb", required=True, metavar="VERB")
    text = "start nodes, each broker and controller, and run until interrupted"
    start = verbs.add_parser("start", help=text, description=text)
    start.add_argument("--nodes", type=integer(1), default=3, metavar="N", help="number of nodes (default 3)")
    start.add_argument(
        "--data-dir", default="./ottla-data", metavar="D", help="parent of the data directories of the nodes"
    )
    start.add_argument(
        "--port",
        type=integer(0, 65535),
        default=9092,
        metavar="P",
        help="port of the first node; each further node uses the next one",
    )
    start.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen at (default 127.0.0.1)")
    start.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="setting of every node")
    text = "encrypt and require a login; creates an authority, certificates, a user and client settings for all nodes"
    start.add_argument("--secure", action="store_true", help=text)
    log_options.add_log_options(start)
    text = "show nodes, their partitions and leaders, and the lag of their metadata log"
    status = verbs.add_parser("status", help=text, description=text)
    add_connection(status)
    add_watch_options(status)
    reassignment.add_verbs(verbs)
    removal.add_verb(verbs)
    recovery.add_verb(verbs)
    return out


class _StopSignal(BaseException):
    """Raised by the handler of SIGTERM and SIGINT to stop ``ottla cluster start``."""


def _stop(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise _StopSignal


def _start(options: argparse.Namespace) -> int:
    # lazy: 97.8 ms, 7059 kB
    from ottla.cluster import Cluster, ClusterFailed
    from ottla.controller.storage_formatter import StorageFormatError
    from ottla.log.checkpoints.checkpoint_files import CorruptFile

    for variable, value in (
        (log_options.LEVEL_VARIABLE, options.log_level),
        (log_options.FORMAT_VARIABLE, options.log_format),
    ):
        if value is not None:
            os.environ[variable] = value  # inherited by the nodes' processes
    try:
        cluster = Cluster(
            options.nodes,
            data_dir=options.data_dir,
            port=options.port,
            host=options.host,
            settings=parse_key_values(options.set),
            tls=options.secure,
            sasl="SCRAM-SHA-512" if options.secure else None,
        )
    except ValueError as error:
        raise CommandFailed(str(error)) from None
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        with cluster:
            for node in cluster.nodes:
                print(f"node {node.id}: {node.bootstrap_servers}, data in {node.data_dir}, process {node.pid}")
            # Tools that start brokers wait for "Kafka Server started".
            print(f"Kafka Server started: {cluster.bootstrap_servers}, data in {options.data_dir}", flush=True)
            if options.secure:
                print("client settings:", *cluster.write_client_files(), sep="\n", flush=True)
            return _watch(cluster.nodes)
    except _StopSignal:
        return 0
    except (ClusterFailed, StorageFormatError, CorruptFile, OSError) as error:
        print(f"ottla cluster: {failure_text(error)}", file=sys.stderr)
        return 1


def _watch(nodes: list[Any]) -> int:
    """Block until all node processes have ended by themselves, report each, and return exit status 1."""
    running = {node.id: node for node in nodes}
    never = threading.Event()
    while running:
        never.wait(0.2)
        for node in list(running.values()):
            if node.status is not None:
                del running[node.id]
                left = f"{len(running)} still running" if running else "no node is left"
                print(f"ottla cluster: node {node.id} ended with status {node.status}; {left}", file=sys.stderr)
    return 1


async def _status(client: ClusterClient, options: argparse.Namespace) -> None:
    async def print_status() -> None:
        rows, code, why = await fetch_cluster_status(client)
        raise_for_error(code, why, "the quorum")
        if options.watch:
            clear_screen(options.output)
        print_output(rows, options.output)
        sys.stdout.flush()

    # An election, in which the quorum has no leader, ends no watch.
    await print_repeatedly(options, "ottla cluster status", print_status, (OSError, ProtocolError, CommandFailed))


def run(arguments: list[str]) -> int:
    """Run ``ottla cluster`` with the arguments after its name and return the exit status.

    The verb ``start`` blocks until SIGTERM or SIGINT, and stops the nodes then.

    Returns:
        0; 1 after a failure, for ``recover`` without ``--yes``, or once all started nodes have ended by themselves; 2
        for invalid settings, ports or directories; 130 if a verb other than ``start`` is interrupted.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.verb == "status":
        check_watch_options(parser, options)
    if options.verb == "recover":
        return recovery.run(options)
    if options.verb != "start":
        run_verb = {"status": _status, "remove": removal.remove_nodes, **reassignment.VERBS}[options.verb]

        async def work(client: ClusterClient) -> None:
            await run_verb(client, options)

        return run_with_client(options, work)
    try:
        return _start(options)
    except (ConfigException, CommandFailed) as error:
        print(f"ottla cluster: {error}", file=sys.stderr)
        return 2
