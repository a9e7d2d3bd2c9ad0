"""Entry point of the command line ``ottla``. A command's module is imported only when that command runs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from typing import TextIO, cast

from ottla import __version__
from ottla.cli.arguments import suggestion
from ottla.cli.terminal import EscapingOutput, OutputFailed, StandardOutput

COMMANDS = {
    "serve": "run one node, broker and controller in one",
    "container": "run one node with the environment of Apache Kafka's container image",
    "cluster": "start several nodes on this machine; show, move and remove nodes of a cluster",
    "format": "format data directories before the nodes of a cluster start",
    "random-uuid": "print a new id for a cluster or a directory",
    "topic": "list, describe, create, configure, delete topics",
    "config": "show and change settings of brokers, topics, groups and client metrics",
    "acl": "list, add and remove access rules (ACLs)",
    "quota": "list, set and remove client quotas",
    "user": "list, set and remove users with a password (SCRAM)",
    "token": "create, list, renew and expire delegation tokens",
    "group": "list, describe, reset, delete groups of all four kinds",
    "lag": "print the lag of groups, once or repeatedly",
    "client": "list the client connections of nodes",
    "top": "print the rates of topics and requests repeatedly",
    "txn": "list and describe transactions, find and abort hanging ones",
    "produce": "send lines from standard input",
    "consume": "print records",
    "context": "store client settings of several clusters, and choose one",
    "completion": "print the script that completes words in bash, zsh or fish",
    "dump": "print any file of a data directory as text or JSON",
    "health": "report whether a node is ready, for health checks of containers",
    "doctor": "report what is wrong in a broker's configuration",
    "trace": "show the requests and responses between a client and a cluster",
    "fault": "inject faults into a node, and advance its clock, to test clients",
    "log": "check a data directory and report what recovery would do",
    "tier": "list, verify, extract segments in a remote store; rebuild their metadata",
    "decode": "print a frame or file field by field, beside its bytes",
    "kafka-topics": "the tool kafka-topics.sh, with its options, output and exit status",
    "kafka-consumer-groups": "the tool kafka-consumer-groups.sh",
    "kafka-configs": "the tool kafka-configs.sh",
    "kafka-console-producer": "the tool kafka-console-producer.sh",
    "kafka-console-consumer": "the tool kafka-console-consumer.sh",
    "kafka-get-offsets": "the tool kafka-get-offsets.sh",
    "kafka-delete-records": "the tool kafka-delete-records.sh",
    "kafka-groups": "the tool kafka-groups.sh",
    "kafka-broker-api-versions": "the tool kafka-broker-api-versions.sh",
    "kafka-cluster": "the tool kafka-cluster.sh",
    "kafka-log-dirs": "the tool kafka-log-dirs.sh",
    "kafka-leader-election": "the tool kafka-leader-election.sh",
    "kafka-acls": "the tool kafka-acls.sh",
    "kafka-transactions": "the tool kafka-transactions.sh",
    "kafka-metadata-quorum": "the tool kafka-metadata-quorum.sh",
    "kafka-reassign-partitions": "the tool kafka-reassign-partitions.sh",
    "kafka-features": "the tool kafka-features.sh",
    "kafka-share-groups": "the tool kafka-share-groups.sh",
    "kafka-streams-groups": "the tool kafka-streams-groups.sh",
    "kafka-dump-log": "the tool kafka-dump-log.sh",
    "kafka-storage": "the tool kafka-storage.sh",
    "kafka-producer-perf-test": "the tool kafka-producer-perf-test.sh",
    "kafka-consumer-perf-test": "the tool kafka-consumer-perf-test.sh",
}


def usage() -> str:
    """Return the usage text that lists all commands."""
    lines = [f"  {name:<12} {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: ottla COMMAND [OPTIONS]",
            "",
            "Apache Kafka's wire protocol, storage format and cluster rules, in Python.",
            "",
            "commands:",
            *lines,
            "",
            "`ottla help COMMAND` shows the options of each.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run the command that the first argument names; return its exit status.

    It is 0 after success, 1 after a failure, 2 for wrong usage, 130 after an interrupt; some commands give it another
    meaning. ``argv`` has the arguments without the program's name; None stands for ``sys.argv``.

    Raises:
        SystemExit: the command's arguments are invalid, or ``--help`` was printed.
    """
    arguments = sys.argv[1:] if argv is None else argv
    stream = sys.stdout
    out, errors = StandardOutput(stream), EscapingOutput(sys.stderr or io.StringIO())
    try:
        with redirect_stdout(cast("TextIO", out)), redirect_stderr(cast("TextIO", errors)):
            try:
                return _run(arguments)
            finally:
                out.flush()
    except OutputFailed as error:
        if stream is sys.__stdout__ and stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # a flush at exit would fail again
        if error.reason is not None:
            print(f"ottla: {error}", file=sys.stderr)
        return 1


def _run(arguments: list[str]) -> int:
    """Run the command that the first argument names, or print the usage or version; return the exit status.

    It is 2 without arguments and for an unknown command, 0 after the help or version, else that of the command.
    """
    if arguments[:1] == ["help"] and arguments[1:]:
        arguments = [*arguments[1:], "--help"]
    name = arguments[0] if arguments else ""
    if name in ("", "-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if name in ("--version", "version"):
        print(f"ottla {__version__} (compatible with Apache Kafka 4.3.1)")
        return 0
    if name not in COMMANDS:
        print(f"ottla: no command {name}{suggestion(name, COMMANDS)} (ottla --help)", file=sys.stderr)
        return 2
    return import_command(name)(arguments[1:])


def import_command(name: str) -> Callable[[list[str]], int]:
    """Import the module of a command and return its function ``run``, which takes the arguments after the name."""
    package = "kafka_tools" if name.startswith("kafka-") else "commands"
    # lazy: 88.8 ms, 5761 kB: all of them; each process runs one
    run: Callable[[list[str]], int] = import_module(f"ottla.cli.{package}.{name.replace('-', '_')}").run
    return run


if __name__ == "__main__":
    sys.exit(main())
