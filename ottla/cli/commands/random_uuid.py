"""``ottla random-uuid``: print a random id for a cluster or a log directory."""

from __future__ import annotations

from ottla.cli.arguments import command_parser
from ottla.runtime.system_env import SystemEnv
from ottla.wire.codec.primitives import uuid_to_string

TEXT = "Print a random UUID in Kafka's format, for a cluster or a directory."


def run(arguments: list[str]) -> int:
    """Print a random UUID in Kafka's base64 form and return exit status 0; SystemExit for any argument."""
    command_parser("random-uuid", TEXT).parse_args(arguments)
    print(uuid_to_string(SystemEnv().uuid()))
    return 0
