"""``ottla kafka-storage``: the tool ``kafka-storage.sh``, which formats log directories and shows what they contain.

The directories are formatted by the code of ``ottla format``.

Source: ``StorageTool``, ``Formatter`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import sys

from ottla.cli.kafka_tools.feature_levels import (
    dependencies_text,
    version_mapping,
)
from ottla.cli.kafka_tools.tool_options import STDERR, ToolFailed, VerbOptions, java_short
from ottla.runtime.system_env import SystemEnv
from ottla.wire.codec.primitives import uuid_to_string

TEXT = "The Kafka storage tool."


def _parser() -> VerbOptions:
    out = VerbOptions("ottla kafka-storage", description=TEXT)
    out.set_defaults(data_dir=None, set=[], node_id=None)
    verbs = out.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info = verbs.add_parser("info", help="Get information about the Kafka log directories on this node.")
    formatting = verbs.add_parser("format", help="Format the Kafka log directories on this node.")
    for verb in (info, formatting):
        verb.add_argument("--config", "-c", required=True, help="The Kafka configuration file to use.")
    formatting.add_argument("--cluster-id", "-t", required=True, help="The cluster ID to use.")
    text = "A SCRAM credential: SCRAM-SHA-256=[name=alice,password=alice-secret]."
    formatting.add_argument("--add-scram", "-S", action="append", default=[], help=text)
    text = "Skip over already formatted directories rather than failing."
    formatting.add_argument("--ignore-formatted", "-g", action="store_true", help=text)
    formatting.add_argument("--release-version", "-r", help="The release version of the initial feature settings.")
    formatting.add_argument(
        "--feature", "-f", action="append", default=[], help="The setting of a feature: NAME=LEVEL."
    )
    quorum = formatting.add_mutually_exclusive_group()
    quorum.add_argument("--standalone", "-s", action="store_true", help="This controller is the only one so far.")
    text = "The controllers are learned from the others."
    quorum.add_argument("--no-initial-controllers", "-N", action="store_true", help=text)
    text = "ID@HOST:PORT:DIRECTORY_ID of each controller, with commas between."
    quorum.add_argument("--initial-controllers", "-I", help=text)
    mapping = verbs.add_parser("version-mapping", help="Print the features of a release.")
    mapping.add_argument("--release-version", "-r", help="The release; the newest stable one by default.")
    needs = verbs.add_parser("feature-dependencies", help="Print what the level of a feature depends on.")
    needs.add_argument("--feature", "-f", action="append", required=True, help="FEATURE=LEVEL; may be repeated.")
    verbs.add_parser("random-uuid", help="Print a random UUID.")
    return out


def _dependencies(options: argparse.Namespace) -> int:
    for text in options.feature:
        name, separator, level = (part.strip() for part in text.partition("="))
        if not separator:
            raise ToolFailed(
                f"Invalid feature format: {text}. Expected format: 'feature=version' (e.g. 'group.version=1')"
            )
        try:
            number = java_short(level)
        except ValueError:
            raise ToolFailed(f"Invalid version format: {level} for feature {name}") from None
        print(dependencies_text(name, number, f"Feature level {number} is not supported for feature {name}"))
    return 0


def _mapping(options: argparse.Namespace) -> int:
    print(version_mapping(options.release_version))
    return 0


def _directories(options: argparse.Namespace) -> int:
    # lazy: 26.3 ms, 1430 kB: only for info and format
    from ottla.cli.kafka_tools.storage_directories import format_directories, print_info

    return (print_info if options.command == "info" else format_directories)(options)


def _random_uuid(_: argparse.Namespace) -> int:
    print(uuid_to_string(SystemEnv().uuid()))
    return 0


def run(arguments: list[str]) -> int:
    """Run ``kafka-storage`` on files of this machine; return exit status 0, or 1 after a failure that is printed.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 1).
    """
    options = _parser().parse_args(arguments)
    work = {
        "info": _directories,
        "format": _directories,
        "version-mapping": _mapping,
        "feature-dependencies": _dependencies,
        "random-uuid": _random_uuid,
    }[options.command]
    try:
        return work(options)
    except ToolFailed as error:
        sys.stdout.flush()
        return STDERR.print(error)
