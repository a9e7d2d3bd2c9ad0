"""``ottla container``: run a node with the environment variables and paths of Apache Kafka's container image."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ottla.broker.config.listener_config import BROKER_ROLE, PROCESS_ROLES, QUORUM_VOTERS, ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.cli.arguments import command_parser
from ottla.cli.commands import format as format_command
from ottla.cli.commands import serve
from ottla.cli.errors import failure_text
from ottla.cli.node_setup.container import (
    CLUSTER_ID,
    DEFAULT_CLUSTER_ID,
    MOUNTED_CONFIG,
    container_environment,
    unknown_variables,
)
from ottla.cli.node_setup.settings import configure, read_settings
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.directory.log_directory import LogDirectory
from ottla.runtime.system_env import SystemEnv

TEXT = f"""Run one Kafka node as Apache Kafka's container image does: the entry point of Ottla's image.

Settings come from {MOUNTED_CONFIG}, if it is mounted, and from KAFKA_* variables, which
take precedence. New log directories are formatted with CLUSTER_ID. TLS files and password files named by
KAFKA_SSL_*_FILENAME and KAFKA_SSL_*_CREDENTIALS are in /etc/kafka/secrets. Data is in /var/lib/kafka/data unless
KAFKA_LOG_DIRS names other directories. Without any setting, the node is a cluster of one node on port 9092.

examples:
  KAFKA_NUM_PARTITIONS=3 KAFKA_LOG_DIRS=./data ottla container
  ottla container KAFKA_NODE_ID=2 CLUSTER_ID=4L6g3nShT-eMCtK--X86sw
"""


def run(arguments: list[str]) -> int:
    """Format the node's log directories if they are new, run the node until it stops, and return the exit status.

    Returns:
        0 after a clean stop; 1 if formatting failed or the node's log directories failed; 2 if the settings are invalid
        or the node cannot start.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    parser = command_parser("container", TEXT)
    parser.add_argument("variables", nargs="*", metavar="NAME=VALUE", help="variables that override the environment")
    parser.add_argument("--config", metavar="FILE", help=f"server.properties file (default {MOUNTED_CONFIG}, if any)")
    options = parser.parse_args(arguments)
    for item in options.variables:
        name, separator, value = item.partition("=")
        if not (name and separator):
            parser.error(f"{item}: write NAME=VALUE")
        os.environ[name] = value
    if options.config is None and Path(MOUNTED_CONFIG).is_file():
        options.config = MOUNTED_CONFIG
    try:
        served = _prepare(options.config)
    except (ConfigException, CorruptFile, OSError) as error:
        print(f"ottla container: {failure_text(error)}", file=sys.stderr)
        return 2
    return served if isinstance(served, int) else serve.run(served)


def _prepare(config_file: str | None) -> list[str] | int:
    """Complete the environment variables of this process, and format the log directories if all of them are new.

    Those of a controller without static voters are left to ``ottla serve``, which formats them at its start.

    Returns:
        The arguments of ``ottla serve``, or the exit status of ``ottla format`` if that failed.

    Raises:
        ConfigException: a variable or setting is invalid, or a file that one of them names cannot be read.
        CorruptFile: ``meta.properties`` is malformed.
        OSError: ``meta.properties`` cannot be read.
    """
    for text in unknown_variables(os.environ):
        print(f"ottla container: warning: {text}", file=sys.stderr)
    os.environ.update(
        container_environment(os.environ, lambda path: Path(path).read_text("utf-8"), mounted=config_file is not None)
    )
    source = [] if config_file is None else ["--config", config_file]
    config = configure(read_settings(format_command.parser().parse_args(["-t", "", *source])))
    if _is_formatted(config):
        return source
    cluster_id = os.environ.get(CLUSTER_ID) or DEFAULT_CLUSTER_ID
    roles = [x.strip() for x in config.values.get(PROCESS_ROLES, "").split(",") if x.strip()]
    if not config.values.get(QUORUM_VOTERS, "").strip() and roles != [BROKER_ROLE]:
        return [*source, "--cluster-id", cluster_id]  # a node without other voters is formatted at its start
    print(f"formatting with cluster id {cluster_id}", flush=True)
    return format_command.run(["-t", cluster_id, *source]) or source


def _is_formatted(config: NodeConfig) -> bool:
    """Return True if one of the node's log directories has a ``meta.properties`` file."""
    disk = SystemEnv().disk
    paths = dict.fromkeys([*config.data_dirs, *([config.metadata_dir] if config.metadata_dir else [])])
    return any(LogDirectory(disk, path).read_meta_properties() is not None for path in paths)
