"""Verbs ``info`` and ``format`` of ``kafka-storage``: show and format the log directories of a node.

Source: ``StorageTool``, ``Formatter`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping

from ottla.broker.config.listener_config import CONTROLLER_ROLE, QUORUM_VOTERS, ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.cli.commands.format import format_storage
from ottla.cli.errors import failure_text
from ottla.cli.kafka_tools.feature_levels import FEATURES, KNOWN_RELEASES, parse_level, parse_release
from ottla.cli.kafka_tools.tool_options import ToolFailed
from ottla.cli.node_setup.settings import configure, read_settings
from ottla.controller.bootstrap_features import LEVELS_SINCE, InvalidFeatureLevel, bootstrap_feature_levels
from ottla.controller.metadata.record_serde import KRAFT_VERSION, METADATA_VERSION, NEWEST_METADATA_VERSION
from ottla.controller.storage_formatter import StorageFormatError, bootstrap_records
from ottla.log.checkpoints import checkpoint_files
from ottla.log.checkpoints.checkpoint_files import META_PROPERTIES_FILE, CorruptFile
from ottla.log.directory.log_directory import LogDirectoryInUse
from ottla.runtime.system_env import SystemEnv
from ottla.wire.messages.metadata_records import FeatureLevelRecord

VOTERS_TWICE = (
    "You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone. If "
    "you want to use dynamic quorum, please remove controller.quorum.voters and specify "
    "controller.quorum.bootstrap.servers instead."
)
NO_VOTERS = (
    "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
    "--standalone, --initial-controllers, or --no-initial-controllers."
)
_FLAGS = "--standalone, --initial-controllers, or --no-initial-controllers"
STATIC_LEVEL = (
    f"Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags {_FLAGS} is used. For "
    "dynamic controllers support, try removing the --feature flag for kraft.version."
)
DYNAMIC_LEVEL = (
    "Cannot set kraft.version to {} unless controller.quorum.voters is empty and one of the flags "
    f"{_FLAGS} is used. For dynamic controllers support, try using one of {_FLAGS} and removing "
    "controller.quorum.voters."
)
SHOWN = ("cluster.id", "directory.id", "node.id", "version")
"""Properties of ``meta.properties`` that ``info`` shows."""
LEGACY = (
    "The kafka configuration file appears to be for a legacy cluster. Formatting is only supported for clusters in "
    "KRaft mode."
)


def _directories(config: NodeConfig) -> list[str]:
    return sorted({*config.data_dirs, *([config.metadata_dir] if config.metadata_dir else [])})


def _config(options: argparse.Namespace) -> tuple[NodeConfig, dict[str, str]]:
    """Return the node configuration of the properties file, and the settings it was made from.

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
    """Check the options against the configuration as Kafka's tool does; return the levels of ``--feature``.

    ``values``: settings of the properties file.

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


def _check_levels(levels: Mapping[str, int], *, is_dynamic: bool) -> None:
    """Check the levels of ``--feature`` as ``Formatter`` does.

    ``is_dynamic``: True if the voters are not in ``controller.quorum.voters``, which needs kraft.version 1.

    Raises:
        ToolFailed: a level is unknown, not stable, or contradicts ``is_dynamic``.
    """
    for name, level in levels.items():
        if name == METADATA_VERSION:
            if level not in KNOWN_RELEASES:
                raise ToolFailed(
                    f"No MetadataVersion with feature level {level}. Valid feature levels are from "
                    f"{min(KNOWN_RELEASES)} to {max(KNOWN_RELEASES)}."
                )
            if level > NEWEST_METADATA_VERSION:
                raise ToolFailed(f"{METADATA_VERSION} {KNOWN_RELEASES[level]} is not yet stable.")
        elif level not in (0, *LEVELS_SINCE.get(name, (1,))):
            raise ToolFailed(f"No feature:{name} with feature level {level}")
    kraft = levels.get(KRAFT_VERSION)
    if kraft == 0 and is_dynamic:
        raise ToolFailed(STATIC_LEVEL)
    if kraft and not is_dynamic:
        raise ToolFailed(DYNAMIC_LEVEL.format(kraft))


def _bootstrap_text(levels: dict[str, int]) -> str:
    """Return the line that describes the bootstrap metadata with these feature levels, without SCRAM credentials."""
    rows = [
        f"FeatureLevelRecord(name='{record.name}', featureLevel={record.feature_level})"
        for record in bootstrap_records(levels)
        if isinstance(record, FeatureLevelRecord)
    ]
    shown = ", ".join(f"ApiMessageAndVersion({row} at version 0)" for row in rows)
    content = f"records=[{shown}], metadataVersionLevel={levels[METADATA_VERSION]}, source=format command"
    return f"Bootstrap metadata: BootstrapMetadata({content})"


def _formatted(paths: Iterable[str], cluster_id: str, node_id: int) -> list[str]:
    """Return the log directories that have ``meta.properties``, checked as ``MetaPropertiesEnsemble.verify`` does.

    A damaged ``meta.properties`` is an error; Kafka's tool leaves its directory out and formats the others.

    Raises:
        ToolFailed: a directory belongs to another cluster or node, or ``meta.properties`` cannot be read.
    """
    out = []
    for path in paths:
        file = f"{path}/{META_PROPERTIES_FILE}"
        if not os.path.exists(file):
            continue
        try:
            values = _meta_properties(file)
        except (CorruptFile, OSError) as error:
            raise ToolFailed(f"Error loading {file}: {failure_text(error)}") from None
        if values.get("cluster.id", "") != cluster_id:
            raise ToolFailed(
                f"Invalid cluster.id in: {file}. Expected {cluster_id}, but read {values.get('cluster.id', '')}"
            )
        if values["node.id"] != str(node_id):
            raise ToolFailed(
                f"Stored node id {values['node.id']} doesn't match previous node id {node_id} in {file}. If you moved "
                "your data, make sure your configured node id matches. If you intend to create a new node, you should "
                "remove all data in your data directories."
            )
        out.append(path)
    return out


def format_directories(options: argparse.Namespace) -> int:
    """Format the log directories of the properties file, print a line for each, and return exit status 0.

    Raises:
        ToolFailed: an option or setting is invalid, a directory is already formatted and ``--ignore-formatted`` is not
            set, belongs to another cluster or node, or is in use; or a directory cannot be read or written, when others
            may be formatted.
    """
    config, values = _config(options)
    chosen = _check(options, config, values)
    is_dynamic = not config.values.get(QUORUM_VOTERS, "").strip()
    _check_levels(chosen, is_dynamic=is_dynamic)
    try:
        levels = bootstrap_feature_levels(options.release_version, chosen, dynamic_quorum=is_dynamic)
        done = _formatted(_directories(config), options.cluster_id, config.node_id)
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
    """Return the properties in `SHOWN` of a ``meta.properties`` file.

    Raises:
        CorruptFile: ``node.id`` is missing, or the file is malformed.
    """
    values = checkpoint_files.read_properties(SystemEnv().disk, path)
    kept: dict[str, str] = {name: values[name] for name in SHOWN if name in values}
    if "node.id" not in kept:
        raise CorruptFile("Failed to find node.id")
    return kept


def print_info(options: argparse.Namespace) -> int:
    """Print the log directories of the properties file, their metadata and problems; return 1 for problems, else 0.

    Raises:
        ToolFailed: the properties file cannot be read, or the configuration is invalid.
    """
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
        except (CorruptFile, OSError) as error:
            problems.append(f"Error loading {file}: {failure_text(error)}")
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
    """Print indented rows below a title; its ``{}`` is replaced with ``ends[0]`` for one row, else ``ends[1]``.

    Without rows print nothing.
    """
    if rows:
        print("\n".join([title.format(ends[len(rows) > 1]), *(f"  {row}" for row in rows)]) + "\n")
