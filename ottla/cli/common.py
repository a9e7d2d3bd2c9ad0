"""What several commands share: the connection option, output as text or JSON, and one-line errors."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.client.connection_security import NO_SECURITY, ConnectionSecurity
from ottla.env.log_escaping import escape
from ottla.runtime import blocking_env
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest

T = TypeVar("T")
LEADER_MOVE_TIMEOUT_MS = 30_000
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP"
CONFIG_VARIABLE = "OTTLA_COMMAND_CONFIG"


class CommandFailed(Exception):
    """The command could not do what it was asked to; the message is one line for the user."""


def command_parser(name: str, text: str) -> argparse.ArgumentParser:
    """A parser whose description keeps its lines."""
    return argparse.ArgumentParser(
        f"ottla {name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_connection(parser: argparse.ArgumentParser) -> None:
    """``--bootstrap``, ``--command-config`` and ``-o json``."""
    parser.add_argument(
        "-b",
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT",
        default=os.environ.get(BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP),
        help=f"a broker of the cluster, any Kafka (default ${BOOTSTRAP_VARIABLE}, else {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        default=os.environ.get(CONFIG_VARIABLE),
        help=f"settings of a client as Kafka's tools take them: sasl.*, ssl.* (default ${CONFIG_VARIABLE})",
    )
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="how to print")


def print_output(rows: Sequence[dict[str, Any]], output: str) -> None:
    """Print rows as a table or as JSON."""
    if output == "json":
        print(json.dumps(list(rows), indent=2))
        return
    if not rows:
        return
    heads = list(rows[0])
    table = [heads, *([escape(str(row[h])) for h in heads] for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(heads))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def raise_for_error(code: int, message: str | None, what: str) -> None:
    """Raise Failed for an error code in an answer."""
    if code:
        raise CommandFailed(f"{what}: {message or ErrorCode(code).text}")


def load_connection_security(path: str | None) -> ConnectionSecurity:
    """What a file of client settings says of how a cluster is reached.

    Raises:
        Failed: it cannot be read, or says what cannot be.
    """
    if path is None:
        return NO_SECURITY
    # lazy: 4.2 ms, 139 kB: most clusters require no security settings
    from ottla.client.security_config import InvalidSecurityConfig, parse_connection_security
    from ottla.log.java_properties import MalformedProperties, load_settings

    try:
        with open(path, "rb") as file:
            return parse_connection_security(load_settings(file.read()))
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from None
    except (InvalidSecurityConfig, MalformedProperties) as error:
        raise CommandFailed(f"{path}: {error}") from None


def run_with_client(bootstrap: str, work: Callable[[ClusterClient], Awaitable[None]], config: str | None = None) -> int:
    """Run something over a connection; gives the exit status. ``config``: a file that says how it is reached."""

    async def main() -> None:
        way = load_connection_security(config or os.environ.get(CONFIG_VARIABLE))
        client = ClusterClient(blocking_env.BlockingEnv(), bootstrap, timeout_s=30, access=way)
        try:
            await work(client)
        finally:
            client.close()

    try:
        blocking_env.run_blocking(main())
    except KeyboardInterrupt:
        return 130
    except (CommandFailed, ProtocolError, WireError) as error:
        print(f"ottla: {escape(str(error))}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1  # whoever read our output has gone
    except (OSError, ValueError) as error:
        print(f"ottla: {bootstrap}: {error}", file=sys.stderr)
        return 1
    return 0


async def find_coordinator(client: ClusterClient, key: str, key_type: int = 0) -> tuple[int, Channel]:
    """The broker that coordinates a group, a transactional id (type 1) or a share partition (2): its id, a connection.

    Raises:
        Failed: nobody does.
    """
    channel = await client.bootstrap_channel()
    version = channel.version_for(ApiKey.FIND_COORDINATOR)
    asked = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    if version < 4:
        asked = FindCoordinatorRequest(key, key_type)
    answer = await channel.call(asked, version)
    row: Any = answer.coordinators[0] if version >= 4 else answer
    raise_for_error(row.error_code, row.error_message, key)
    await client.metadata([])
    return row.node_id, await client.broker(row.node_id)


async def connect_to_coordinator(client: ClusterClient, key: str, key_type: int = 0) -> Channel:
    """A connection to the broker that coordinates a group, or a transactional id (type 1).

    Raises:
        Failed: nobody does.
    """
    return (await find_coordinator(client, key, key_type))[1]


async def retry_while_leader_moves(client: ClusterClient, work: Callable[[], Awaitable[T]]) -> T:
    """Do what a partition's leader is needed for; while leaders move, again and again. What is sent may then be twice.

    Raises:
        ProtocolError, OSError: it failed for another reason, or for too long.
    """
    env = blocking_env.BlockingEnv()
    deadline_ms = env.monotonic_ms() + LEADER_MOVE_TIMEOUT_MS
    while True:
        try:
            return await work()
        except (ProtocolError, OSError) as error:
            if isinstance(error, ProtocolError) and not error.code.retriable:
                raise
            if env.monotonic_ms() > deadline_ms:
                raise
        client.invalidate_leaders()
        await env.sleep(0.2)


def parse_key_values(items: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` options.

    Raises:
        Failed: one without ``=``.
    """
    out = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator:
            raise CommandFailed(f"{item}: write KEY=VALUE")
        out[key] = value
    return out
