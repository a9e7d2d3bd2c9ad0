"""Log of a node: configuration of its level and format, and the summary lines at the start."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Mapping

from ottla import __version__
from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.cli.arguments import suggestion
from ottla.cli.node_setup.log_options import FORMAT_VARIABLE, FORMATS, LEVEL_VARIABLE, LEVELS
from ottla.controller.config.config_keys import broker_key
from ottla.env.hosts import format_address

HIDDEN = "[hidden]"
"""Text that replaces the value of a password, as in Kafka."""
logger = logging.getLogger("ottla.server")


def _choice(given: str | None, variable: str, known: tuple[str, ...], default: str) -> str:
    """Return ``given``, the value of an option, else that of environment variable ``variable``, else ``default``.

    Raises:
        ConfigException: the value is not in ``known``.
    """
    value = given or os.environ.get(variable, "").strip().lower() or default
    if value not in known:
        raise ConfigException(
            f"{variable}: unknown: {value}{suggestion(value, known)} (choose from {', '.join(known)})"
        )
    return value


def configure_logging(options: argparse.Namespace) -> None:
    """Configure ``logging`` to write to standard error with the level and format of the options.

    Raises:
        ConfigException: an environment variable has an unknown value.
    """
    level = _choice(options.log_level, LEVEL_VARIABLE, LEVELS, "info")
    is_json = _choice(options.log_format, FORMAT_VARIABLE, FORMATS, "text") == "json"
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    if is_json:
        # lazy: 0.4 ms, 6 kB: only with --log-format json
        from ottla.cli.node_setup.json_log import JsonFormatter

        text = JsonFormatter()
    handler.setFormatter(text)
    logging.basicConfig(level=level.upper(), handlers=[handler])


def changed_settings(values: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that differ from their defaults; values of passwords and of unknown settings are hidden."""
    out = {}
    for name, value in sorted(values.items()):
        known = broker_key(name)
        if known is None or known.default != value:
            out[name] = HIDDEN if known is None or known.type == "PASSWORD" else value
    return out


def ready_address(config: NodeConfig, ports: Mapping[str, int]) -> str:
    """Return the ``HOST:PORT`` of the ready line: the first client listener that is not the inter-broker listener.

    If there is no other, it is the first client listener; of a controller-only node that of its controller listener.

    Args:
        config: configuration of the node.
        ports: bound port of each client and broker listener by name; that of a controller-only node under ``""``.
    """
    listeners = config.client_listeners
    if not listeners:
        return format_address(config.host or "0.0.0.0", ports.get("", config.port))  # noqa: S104 - only printed
    chosen = next((x for x in listeners if x.name != config.inter_broker_listener), listeners[0])
    return format_address(chosen.host or "0.0.0.0", ports.get(chosen.name, chosen.port))  # noqa: S104 - only printed


def start_summary(config: NodeConfig, cluster_id: str, ports: Mapping[str, int]) -> Iterator[str]:
    """Yield the log lines of the start: version, cluster id, listeners, settings that differ from the defaults.

    Controller listeners are not among them. ``ports`` has the bound port of each listener by name.
    """
    roles = ",".join(sorted(config.roles))
    yield f"Ottla {__version__} (Apache Kafka 4.3.1): node {config.node_id}, roles {roles}, cluster {cluster_id}"
    for listener in config.client_listeners:
        bound = format_address(listener.host or "0.0.0.0", ports.get(listener.name, listener.port))  # noqa: S104
        address = config.advertised_address(listener.name)
        advertised = "the address each client connects to" if address is None else format_address(*address)
        use = ", between brokers" if listener.name == config.inter_broker_listener else ""
        protocol = config.security_protocol(listener.name)
        yield f"Listener {listener.name}: {bound}, {protocol}{use}, advertised: {advertised}"
    changed = changed_settings(config.values)
    shown = ", ".join(f"{name}={value}" for name, value in changed.items())
    yield f"Settings that differ from the defaults: {shown or 'none'}"
