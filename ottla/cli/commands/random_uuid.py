"""``ottla random-uuid``: an id for a cluster or a directory."""

from __future__ import annotations

from ottla.cli.arguments import command_parser
from ottla.runtime.system_env import SystemEnv
from ottla.wire.codec.primitives import uuid_to_string

TEXT = "Print a fresh id, as clusters and directories have them."


def run(arguments: list[str]) -> int:
    """Print one."""
    command_parser("random-uuid", TEXT).parse_args(arguments)
    print(uuid_to_string(SystemEnv().uuid()))
    return 0
