"""``ottla kafka-storage``: the tool ``kafka-storage.sh``; ``format`` formats directories as ``ottla format`` does.

Source: ``StorageTool``, ``Formatter`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import os
import sys

from ottla.broker.config.listener_config import CONTROLLER_ROLE, QUORUM_VOTERS, ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.cli.commands.format import format_storage
from ottla.cli.errors import failure_text
from ottla.cli.kafka_tools.feature_levels import (
    FEATURES,
    dependencies_text,
    parse_level,
    parse_release,
    version_mapping,
)
from ottla.cli.kafka_tools.tool_options import STDERR, ToolFailed, VerbOptions, java_short
from ottla.cli.node_setup.settings import configure, read_settings
from ottla.controller.bootstrap_features import InvalidFeatureLevel, bootstrap_feature_levels
from ottla.controller.metadata.record_serde import METADATA_VERSION
from ottla.controller.storage_formatter import StorageFormatError, bootstrap_records
from ottla.log.checkpoints import checkpoint_files
from ottla.log.checkpoints.checkpoint_files import META_PROPERTIES_FILE, CorruptFile
from ottla.log.directory.log_directory import LogDirectoryInUse
from ottla.runtime.system_env import SystemEnv
from ottla.wire.codec.primitives import uuid_to_string
from ottla.wire.messages.metadata_records import FeatureLevelRecord

TEXT = "The Kafka storage tool."
VOTERS_TWICE = (
    "You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone. If "
    "you want to use dynamic quorum, please remove controller.quorum.voters and specify "
    "controller.quorum.bootstrap.servers instead."
)
NO_VOTERS = (
    "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
    "--standalone, --initial-controllers, or --no-initial-controllers."
)
LEGACY = (
    "The kafka configuration file appears to be for a legacy cluster. Formatting is only supported for clusters in "
    "KRaft mode."
)


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


def _directories(config: NodeConfig) -> list[str]:
    return sorted({*config.data_dirs, *([config.metadata_dir] if config.metadata_dir else [])})


def _config(options: argparse.Namespace) -> tuple[NodeConfig, dict[str, str]]:
    """Return the configuration of the file, and its settings.

    Raises:
        ToolFailed: the file cannot be read, or the configuration is invalid.
    """
    try:
        values = read_settings(options)
        return configure(values), values
    except ConfigException as error:
        raise ToolFailed(str(error)) from None


# ---------------------------------------------------------------------- format


def _check(options: argparse.Namespace, config: NodeConfig, values: dict[str, str]) -> dict[str, int]:
    """Check the options as Kafka's tool does and return the chosen feature levels.

    Raises:
        ToolFailed: the options are invalid.
    """
    if not values.get("process.roles", "").strip():
        raise ToolFailed(LEGACY)
    if options.release_version is not None:
        parse_release(options.release_version, with_unstable=False)
    levels = dict(parse_level(text) for text in options.feature)
    is_static = bool(config.values.get(QUORUM_VOTERS, "").strip())
    is_listed = options.initial_controllers is not None
    if is_static and (is_listed or options.standalone):
        raise ToolFailed(VOTERS_TWICE)
    is_controller = CONTROLLER_ROLE in config.roles
    if options.standalone and not is_controller:
        raise ToolFailed("You can only use --standalone on a controller.")
    if is_controller and not (is_static or is_listed or options.standalone or options.no_initial_controllers):
        raise ToolFailed(NO_VOTERS)
    if METADATA_VERSION in levels and options.release_version is not None:
        text = f"Use --release-version instead of --feature {METADATA_VERSION}=X to avoid ambiguity."
        raise ToolFailed(text)
    for name in levels:
        if name not in (METADATA_VERSION, *FEATURES):
            raise ToolFailed(f"Unsupported feature: {name}. Supported features are: {', '.join(sorted(FEATURES))}")
    return levels


def _bootstrap_text(levels: dict[str, int]) -> str:
    """Return the line about the records of the new cluster, without those of SCRAM credentials."""
    rows = [
        f"FeatureLevelRecord(name='{record.name}', featureLevel={record.feature_level})"
        for record in bootstrap_records(levels)
        if isinstance(record, FeatureLevelRecord)
    ]
    shown = ", ".join(f"ApiMessageAndVersion({row} at version 0)" for row in rows)
    content = f"records=[{shown}], metadataVersionLevel={levels[METADATA_VERSION]}, source=format command"
    return f"Bootstrap metadata: BootstrapMetadata({content})"


def _format(options: argparse.Namespace) -> int:
    config, values = _config(options)
    chosen = _check(options, config, values)
    paths = _directories(config)
    done = [path for path in paths if os.path.exists(f"{path}/{META_PROPERTIES_FILE}")]
    is_dynamic = not config.values.get(QUORUM_VOTERS, "").strip()
    try:
        levels = bootstrap_feature_levels(options.release_version, chosen, dynamic_quorum=is_dynamic)
        if done and not options.ignore_formatted:
            raise ToolFailed(
                f"Log directory {done[0]} is already formatted. Use --ignore-formatted to ignore this directory and "
                "format the others."
            )
        messages = format_storage(options)
    except (ConfigException, InvalidFeatureLevel, StorageFormatError, LogDirectoryInUse, CorruptFile, OSError) as error:
        raise ToolFailed(failure_text(error)) from None
    if not messages:
        print("All of the log directories are already formatted.")
        return 0
    print("\n".join([_bootstrap_text(levels), *messages]))
    return 0


# ---------------------------------------------------------------------- info


def _meta_properties(path: str) -> dict[str, str]:
    """Return the properties of a ``meta.properties`` file that Kafka's tool shows.

    Raises:
        CorruptFile: a required property is missing.
    """
    values = checkpoint_files.read_properties(SystemEnv().disk, path)
    kept = {name: values[name] for name in ("cluster.id", "directory.id", "node.id", "version") if name in values}
    if "node.id" not in kept:
        raise CorruptFile("Failed to find node.id")
    return kept


def _info(options: argparse.Namespace) -> int:
    config, _ = _config(options)
    found: list[str] = []
    problems: list[str] = []
    first: dict[str, str] | None = None
    for path in _directories(config):
        if not os.path.isdir(path):
            problems.append(f"{path} is not a directory" if os.path.exists(path) else f"{path} does not exist")
            continue
        found.append(path)
        file = f"{path}/{META_PROPERTIES_FILE}"
        if not os.path.exists(file):
            problems.append(f"{path} is not formatted.")
            continue
        try:
            values = _meta_properties(file)
        except CorruptFile as error:
            problems.append(f"Error loading {file}: {error}")
            continue
        if first is None:
            first = values
        elif first.get("cluster.id") != values.get("cluster.id"):
            problems.append("Mismatched cluster IDs between storage directories.")
        elif first["node.id"] != values["node.id"]:
            problems.append("Mismatched node IDs between storage directories.")
    _print_rows("Found log director{}:", ("y", "ies"), found)
    if first is not None:
        print(f"Found metadata: {{{', '.join(f'{key}={value}' for key, value in sorted(first.items()))}}}\n")
    _print_rows("Found problem{}:", ("", "s"), problems)
    return int(bool(problems))


def _print_rows(title: str, ends: tuple[str, str], rows: list[str]) -> None:
    """Print a title with its singular or plural end, and indented rows; nothing without rows."""
    if rows:
        print("\n".join([title.format(ends[len(rows) > 1]), *(f"  {row}" for row in rows)]) + "\n")


# ---------------------------------------------------------------------- features


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


def _random_uuid(_: argparse.Namespace) -> int:
    print(uuid_to_string(SystemEnv().uuid()))
    return 0


def run(arguments: list[str]) -> int:
    """Run ``kafka-storage`` with these arguments and return the exit status."""
    options = _parser().parse_args(arguments)
    work = {
        "info": _info,
        "format": _format,
        "version-mapping": _mapping,
        "feature-dependencies": _dependencies,
        "random-uuid": _random_uuid,
    }[options.command]
    try:
        return work(options)
    except ToolFailed as error:
        sys.stdout.flush()
        return STDERR.print(error)
