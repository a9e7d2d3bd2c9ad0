"""Common functions of commands: connection options, output of rows, running with a client, lookups in the cluster."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from ottla.cli.arguments import bootstrap_servers
from ottla.cli.connection_settings import (
    BOOTSTRAP_SETTING,
    BOOTSTRAP_VARIABLE,
    CONFIG_VARIABLE,
    CONTEXT_VARIABLE,
    DEFAULT_BOOTSTRAP,
    connection_security,
    find_settings,
    resolve_bootstrap,
)
from ottla.cli.errors import CommandFailed, error_text, raise_for_error, raise_for_topic
from ottla.client.channel import CLIENT_ID, Channel
from ottla.client.cluster_client import ClusterClient
from ottla.client.connection_security import NO_SECURITY
from ottla.env.log_escaping import escape
from ottla.runtime import blocking_env
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataResponseTopic

COORDINATOR_WAITS_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 0)
OUTPUTS = ("text", "json", "yaml", "csv")
RESOURCE_TOPIC = 2
"""Type code of a topic in DescribeConfigs and IncrementalAlterConfigs."""


def add_connection(
    parser: argparse.ArgumentParser,
    output: str = "format of the output (default: text)",
    outputs: Sequence[str] = OUTPUTS,
) -> None:
    """Add ``--bootstrap-server``, ``--command-config``, ``--context`` and ``--output`` to the parser of a command.

    ``output`` is the help text of ``--output``, ``outputs`` its choices.
    """
    parser.set_defaults(needs_utf8=True)
    parser.add_argument(
        "-b",
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT",
        type=bootstrap_servers,
        help=f"brokers of any Kafka cluster, separated by commas (default: {BOOTSTRAP_SETTING} of --command-config, "
        f"else ${BOOTSTRAP_VARIABLE}, else {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help=f"client settings in the format of Kafka's tools: {BOOTSTRAP_SETTING}, sasl.*, ssl.* "
        f"(default: ${CONFIG_VARIABLE})",
    )
    text = f"client settings that `ottla context` has stored (default: ${CONTEXT_VARIABLE}, else the current context)"
    parser.add_argument("--context", metavar="NAME", help=text)
    parser.add_argument("-o", "--output", choices=outputs, default="text", help=output)


def format_value(value: Any) -> str:
    """Return a cell of a text table: ``-`` for None, ``true``, ``false``, or text with control characters escaped."""
    if value is None:
        return "-"
    return escape(str(value).lower() if isinstance(value, bool) else str(value))


def print_output(rows: Sequence[dict[str, Any]], output: str, nothing: str = "") -> None:
    """Print rows to standard output as a text table, JSON, YAML or CSV.

    Args:
        rows: dictionaries with the same keys, which are the column heads.
        output: one of `OUTPUTS`.
        nothing: printed on standard error instead of an empty text table, such as ``no topics``.
    """
    if output == "json":
        print(json.dumps(list(rows), indent=2))
        return
    if output in ("yaml", "csv"):
        # lazy: 1.0 ms, 77 kB: only with -o yaml or csv
        from ottla.cli.output_formats import csv_text, yaml_text

        shown = yaml_text(rows) if output == "yaml" else csv_text(rows)
        print(shown, end="\n" if shown else "")
        return
    if not rows:
        if nothing:
            sys.stdout.flush()
            print(nothing, file=sys.stderr)
        return
    heads = list(rows[0])
    table = [heads, *([format_value(row[h]) for h in heads] for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(heads))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def run_with_client(options: argparse.Namespace, work: Callable[[ClusterClient], Awaitable[None]]) -> int:
    """Call ``work`` with a client of the cluster that the connection options name, and close the client at the end.

    The client connects at its first request.

    Returns:
        The exit status: 0, 1 after an error that is printed as one line on standard error, or 130 after an interrupt.
    """
    bootstrap, access = "", NO_SECURITY

    async def main() -> None:
        client_id = getattr(options, "client_id", CLIENT_ID)
        client = ClusterClient(blocking_env.BlockingEnv(), bootstrap, client_id, timeout_s=30, access=access)
        try:
            await work(client)
        finally:
            client.close()

    try:
        settings = find_settings(options)
        bootstrap = resolve_bootstrap(options, settings)
        access = connection_security(settings)
        blocking_env.run_blocking(main())
    except KeyboardInterrupt:
        return 130
    except (CommandFailed, ProtocolError, WireError, OSError, ValueError) as error:
        sys.stdout.flush()
        text = error_text(error, bootstrap, secured=access is not NO_SECURITY)
        print(f"ottla: {escape(text)}", file=sys.stderr)
        return 1
    return 0


def read_secret(path: str) -> str:
    """Return the first line of a file without its line end; ``-`` stands for standard input.

    Raises:
        CommandFailed: the file cannot be read, or is not UTF-8.
    """
    try:
        if path == "-":
            return sys.stdin.readline().rstrip("\n")
        with open(path, encoding="utf-8") as file:
            return file.readline().rstrip("\n")
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from None
    except UnicodeError:
        raise CommandFailed(f"{path}: not UTF-8") from None


# ---------------------------------------------------------------------- lookups that fail with a message


async def require_topic(client: ClusterClient, name: str) -> MetadataResponseTopic:
    """Return the metadata of a topic.

    Raises:
        CommandFailed: the topic does not exist, or the client is not authorized to describe it.
    """
    topic = (await client.metadata([name])).topics[0]
    raise_for_topic(topic.error_code, None, name)
    return topic


def require_partition(topic: str, numbers: Iterable[int], partition: int) -> None:
    """Check that ``partition`` is in ``numbers``, the partition numbers of a topic.

    Raises:
        CommandFailed: it is not.
    """
    there = sorted(numbers)
    if partition not in there:
        has = f"0 to {there[-1]}" if there else "no partitions"
        raise CommandFailed(f"partition {partition} of topic {topic} does not exist (it has {has})")


def unknown_group(group_id: str) -> CommandFailed:
    """Return the exception for a group that does not exist, to be raised by the caller."""
    return CommandFailed(f"group {group_id} does not exist")


async def find_coordinator(client: ClusterClient, key: str, key_type: int = 0) -> tuple[int, Channel]:
    """Return node id and connection of a coordinator.

    The request is repeated for about 3 s while the response is COORDINATOR_NOT_AVAILABLE.

    Args:
        client: client of the cluster.
        key: group id, transactional id, or ``GROUP:TOPIC_ID:PARTITION`` of a share partition.
        key_type: 0 group, 1 transactional id, 2 share partition.

    Raises:
        CommandFailed: no coordinator is available, or the request is refused, such as without authorization.
        OSError: the bootstrap servers or the coordinator cannot be reached.
    """
    channel = await client.bootstrap_channel()
    version = channel.version_for(ApiKey.FIND_COORDINATOR)
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    if version < 4:
        request = FindCoordinatorRequest(key, key_type)
    env = blocking_env.BlockingEnv()
    for wait_s in COORDINATOR_WAITS_S:  # the first request after a start creates the internal topic
        answer = await channel.call(request, version)
        row: Any = answer.coordinators[0] if version >= 4 else answer
        if row.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
            break
        await env.sleep(wait_s)
    raise_for_error(row.error_code, row.error_message, f"coordinator of {key}")
    await client.metadata([])
    return row.node_id, await client.broker(row.node_id)


async def connect_to_coordinator(client: ClusterClient, key: str, key_type: int = 0) -> Channel:
    """Return a connection to the coordinator of a group (``key_type`` 0) or a transactional id (1).

    Raises:
        CommandFailed: no coordinator is available, or the client is not authorized.
    """
    return (await find_coordinator(client, key, key_type))[1]


def parse_key_values(items: Iterable[str]) -> dict[str, str]:
    """Return keys and values of ``KEY=VALUE`` options; of a key that occurs twice, the last value.

    Raises:
        CommandFailed: an option has no ``=`` or an empty key.
    """
    out = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise CommandFailed(f"KEY=VALUE expected: {item}")
        out[key] = value
    return out
