"""``ottla format``: format empty data directories for a cluster (``kafka-storage.sh format``)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from ottla.broker.config import listener_config
from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.config.startup_checks import check_startup_values
from ottla.cli.arguments import command_parser
from ottla.cli.errors import failure_text
from ottla.cli.node_setup.settings import add_settings, configure, read_settings
from ottla.controller.bootstrap_features import InvalidFeatureLevel, bootstrap_feature_levels
from ottla.controller.storage_formatter import (
    FormatPlan,
    InitialVoter,
    StorageFormatError,
    format_directories,
    parse_voters,
)
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.directory.log_directory import LogDirectory, LogDirectoryInUse
from ottla.runtime.system_env import SystemEnv
from ottla.wire.codec.schema import Message

TEXT = """Format empty data directories for a cluster. A node that is a cluster of one node does this at its start.

Format each node of a cluster with the same cluster id, and every controller with the same initial controllers, or with
none: it then learns them from the other controllers. Options and files are those of Kafka's kafka-storage format.

examples:
  ottla random-uuid
  ottla format -t 5L6g3nShT-eMCtK--X86sw -c server.properties --standalone
  ottla format -t ID -c one.properties --initial-controllers 1@one:9093:DIR1,2@two:9093:DIR2,3@three:9093:DIR3
  ottla format -t ID -c four.properties --no-initial-controllers
  ottla format -t ID -c one.properties -s --add-scram 'SCRAM-SHA-512=[name=admin,password=...]'
"""


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of ``ottla format``; ``ottla container`` reads settings with it, too."""
    out = command_parser("format", TEXT)
    out.add_argument("-t", "--cluster-id", required=True, metavar="ID", help="id of the cluster")
    add_settings(out)
    exclusive = out.add_mutually_exclusive_group()
    exclusive.add_argument("-s", "--standalone", action="store_true", help="make this node the only controller for now")
    exclusive.add_argument(
        "-I", "--initial-controllers", metavar="LIST", help="ID@HOST:PORT:DIRECTORY_ID of each, separated by commas"
    )
    exclusive.add_argument(
        "-N", "--no-initial-controllers", action="store_true", help="learn the controllers from the other controllers"
    )
    out.add_argument(
        "-f", "--feature", action="append", default=[], metavar="NAME=LEVEL", help="initial level of a feature"
    )
    out.add_argument(
        "-S",
        "--add-scram",
        action="append",
        default=[],
        metavar="MECHANISM=[name=NAME,password=PASSWORD]",
        help="SCRAM user to create; further keys in the brackets: salt, iterations, saltedpassword",
    )
    out.add_argument("-r", "--release-version", metavar="R", help="use the feature levels of this Kafka release")
    out.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="skip directories that are already formatted"
    )
    return out


def _features(items: list[str]) -> dict[str, int]:
    out = {}
    for item in items:
        name, separator, level = item.partition("=")
        if not separator or not level.strip().isdecimal():
            raise InvalidFeatureLevel(f"--feature {item}: write NAME=LEVEL")
        out[name.strip()] = int(level)
    return out


def _voters(options: argparse.Namespace, config: NodeConfig, new_id: bytes) -> tuple[InitialVoter, ...]:
    """Return the initial voters of ``--standalone`` or ``--initial-controllers``; empty without these options.

    Args:
        options: parsed arguments of ``ottla format``.
        config: configuration of the node.
        new_id: directory id of this node's metadata directory, used with ``--standalone``.

    Raises:
        StorageFormatError: the options contradict each other or ``process.roles``, by the rules of Kafka's tool.
    """
    static = bool(config.values.get(listener_config.QUORUM_VOTERS, "").strip())
    listed = options.standalone or options.initial_controllers is not None
    is_controller = listener_config.CONTROLLER_ROLE in config.roles
    if static and listed:
        raise StorageFormatError(
            f"{listener_config.QUORUM_VOTERS} sets static voters: remove it, or the option that lists the voters"
        )
    if options.standalone and not is_controller:
        raise StorageFormatError("--standalone is for a controller; this node is a broker only (process.roles)")
    if is_controller and not static and not listed and not options.no_initial_controllers:
        raise StorageFormatError("voters expected: --standalone, --initial-controllers or --no-initial-controllers")
    if options.standalone:
        endpoints = config.quorum_config(*(x.port for x in config.controller_listeners)).endpoints
        return (InitialVoter(config.node_id, new_id, endpoints[:1]),)
    if options.initial_controllers is not None:
        return parse_voters(options.initial_controllers, listener_config.controller_listener_names(config.values)[0])
    return ()


def _credentials(options: argparse.Namespace, fresh: Callable[[], bytes]) -> tuple[Message, ...]:
    """Return the metadata records of the SCRAM users of ``--add-scram``.

    ``fresh`` returns 16 random bytes, used for salts.

    Raises:
        StorageFormatError: an option is malformed.
    """
    if not options.add_scram:
        return ()
    # lazy: 5.6 ms, 217 kB: only with --add-scram
    from ottla.controller.control.scram_credentials import InvalidScramOption, parse_scram_option

    try:
        return tuple(parse_scram_option(text, fresh()) for text in options.add_scram)
    except InvalidScramOption as error:
        raise StorageFormatError(str(error)) from None


def format_storage(options: argparse.Namespace) -> list[str]:
    """Format the unformatted log directories of a node; return a message for each that was formatted.

    Each directory is locked meanwhile. Warnings about settings are printed on standard error.

    Raises:
        ConfigException: a setting is invalid, or the properties file cannot be read.
        InvalidFeatureLevel: ``--feature`` is malformed, the release, feature or level is unknown, or levels exclude
            each other.
        StorageFormatError: another option is invalid, a directory is formatted for another node or cluster, or is
            formatted already and ``--ignore-formatted`` is not set; none is changed.
        LogDirectoryInUse: another process has locked a directory; none is formatted.
        CorruptFile: ``meta.properties`` of a directory is malformed; none is formatted.
        OSError: a directory cannot be read or written; those before it may be formatted.
    """
    values = read_settings(options)
    for text in check_startup_values(values):
        print(f"ottla format: warning: {text}", file=sys.stderr)
    config = configure(values, options.data_dir)
    machine = SystemEnv()
    voters = _voters(options, config, machine.uuid())
    dynamic = not config.values.get(listener_config.QUORUM_VOTERS, "").strip()
    levels = bootstrap_feature_levels(options.release_version, _features(options.feature), dynamic_quorum=dynamic)
    plan = FormatPlan(config.node_id, options.cluster_id, levels, voters, _credentials(options, machine.uuid))
    paths = dict.fromkeys([*config.data_dirs, *([config.metadata_dir] if config.metadata_dir else [])])
    directories = {path: LogDirectory(machine.disk, path) for path in paths}
    metadata = directories[config.metadata_dir or config.data_dirs[0]]
    held: list[LogDirectory] = []
    try:
        for directory in directories.values():
            directory.lock()
            held.append(directory)
        return format_directories(
            list(directories.values()),
            metadata,
            plan,
            machine.now_ms(),
            machine.uuid,
            ignore_formatted=options.ignore_formatted,
        )
    finally:
        for directory in held:
            directory.unlock()


def run(arguments: list[str]) -> int:
    """Run ``ottla format``; return exit status 0, 1 after a failure, or 2 for an invalid configuration.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    try:
        messages = format_storage(parser().parse_args(arguments))
    except (ConfigException, InvalidFeatureLevel, StorageFormatError, LogDirectoryInUse, CorruptFile, OSError) as error:
        print(f"ottla format: {failure_text(error)}", file=sys.stderr)
        return 2 if isinstance(error, ConfigException) else 1
    print("\n".join(messages) if messages else "All of the log directories are already formatted.")
    return 0
