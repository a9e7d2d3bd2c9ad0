"""Settings of a node from the command line: properties file, environment variables, ``--set`` and other options."""

from __future__ import annotations

import argparse
import os
import socket

from ottla.broker.config.listener_config import ANY_HOST, JOIN_PROPERTIES_FILE, ConfigException, parse_listener
from ottla.broker.config.node_config import NodeConfig, settings_from_environment
from ottla.broker.config.startup_checks import check_cordoned_log_dirs
from ottla.cli.arguments import integer
from ottla.controller.config.config_keys import canonical_values
from ottla.log.java_properties import MalformedProperties, load_settings
from ottla.runtime.system_env import SystemEnv


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add ``--data-dir``, ``--config``, ``--set`` and ``--node-id`` to a command's parser."""
    parser.add_argument("--data-dir", metavar="D[,E]...", help="data directories (default ./ottla-data)")
    parser.add_argument("--config", "-c", metavar="FILE", help="server.properties file")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="setting; overrides the file")
    parser.add_argument("--node-id", type=integer(0), metavar="N", help="id of this node (default 1)")


def read_settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the properties file, overridden by the environment, then by ``--set``, ``--node-id``.

    Raises:
        ConfigException: the file cannot be read or is malformed, or a ``--set`` option is not ``KEY=VALUE``.
    """
    values: dict[str, str] = {}
    if options.config is not None:
        try:
            with open(options.config, "rb") as file:
                values = load_settings(file.read())
        except OSError as error:
            raise ConfigException(f"{options.config}: {error.strerror}") from None
        except MalformedProperties as error:
            raise ConfigException(f"{options.config}: {error}") from None
    values.update(settings_from_environment(os.environ))
    for item in options.set:
        key, separator, value = item.partition("=")
        if not separator:
            raise ConfigException(f"--set {item}: write KEY=VALUE")
        values[key.strip()] = value.strip()
    if options.node_id is not None:
        values.pop("broker.id", None)
        values["node.id"] = str(options.node_id)
    return values


def configure(values: dict[str, str], data_dir: str | None = None, listen: str | None = None) -> NodeConfig:
    """Return the validated configuration of a node; ``data_dir`` and ``listen`` override the settings ``values``.

    Raises:
        ConfigException: invalid settings.
    """
    if values:
        # lazy: 2.1 ms, 117 kB
        from ottla.tools.doctor import unsupported_settings

        for text in unsupported_settings(values):
            raise ConfigException(text)
    values = canonical_values(values)
    config = NodeConfig(values, host_name=advertised_machine_name(values))
    config.data_dir = data_dir or values.get("log.dirs") or values.get("log.dir") or config.data_dir
    check_cordoned_log_dirs(config)
    config.node_id = int(values.get("node.id", values.get("broker.id", "1")))
    if listen is not None:
        _, config.host, config.port = parse_listener(listen)
    else:
        config.host, config.port = config.first_listener
    return config


def configure_with_saved_join(values: dict[str, str], data_dir: str | None, listen: str | None) -> NodeConfig:
    """Return a node's configuration, with the settings that ``ottla serve --join`` stored in the metadata directory.

    ``data_dir`` and ``listen`` override the settings.

    Raises:
        ConfigException: invalid settings.
        CorruptFile: the stored settings are malformed; OSError: they cannot be read.
    """
    config = configure(values, data_dir, listen)
    metadata = config.metadata_dir or config.data_dirs[0]
    if not os.path.exists(f"{metadata}/{JOIN_PROPERTIES_FILE}"):
        return config
    # lazy: 0.7 ms, 10 kB: only for a node that has joined a cluster
    from ottla.tools.join_settings import load_join_settings

    recalled = load_join_settings(SystemEnv().disk, metadata, values)
    return config if recalled is values else configure(recalled, data_dir, listen)


def advertised_machine_name(values: dict[str, str]) -> str:
    """Return the host name to advertise for a listener that is bound to all addresses.

    Returns:
        The canonical name of this machine if the settings name a controller quorum and one of their ``listeners`` is
        bound to all addresses; else, or without such a name, ``localhost``.

    Raises:
        ConfigException: a listener is malformed.
    """
    if "controller.quorum.voters" not in values and "controller.quorum.bootstrap.servers" not in values:
        return "localhost"
    listeners = [parse_listener(x) for x in values.get("listeners", "").split(",") if x.strip()]
    if not any(host in ANY_HOST for _, host, _ in listeners):
        return "localhost"
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, flags=socket.AI_CANONNAME)
    except OSError:
        return "localhost"
    return found[0][3] or "localhost"
