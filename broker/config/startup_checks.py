"""Checks of the settings at startup: warnings for unknown names, errors for values that Kafka rejects.

`listener_config` checks roles, listeners and quorum.

Source: ``KafkaConfig.scala``, ``BrokerServer.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.config import listener_config
from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import NodeConfig, closest_match
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import OTLP_ENDPOINT, OTLP_HEADERS, OTLP_TRACE_RATIO, broker_key


def check_cordoned_log_dirs(config: NodeConfig) -> None:
    """Check that the cordoned log directories, if any are set, are among the node's log directories.

    Raises:
        ConfigException: one is not, or another rule between settings is violated.
    """
    if "cordoned.log.dirs" not in config.values:
        return
    # lazy: 1.1 ms, 54 kB
    from ottla.controller.config import broker_config_validation

    try:
        directories = [*config.data_dirs, *listener_config.split_list({"log.dirs": config.data_dir}, "log.dirs")]
        broker_config_validation.check_combinations(config.values, directories)
    except broker_config_validation.InvalidBrokerConfig as error:
        raise ConfigException(str(error)) from None


def check_startup_values(values: Mapping[str, str]) -> list[str]:
    """Check settings as Kafka does at startup; return warnings, such as for unknown names.

    Raises:
        ConfigException: a value, a combination of values or the name of a class is invalid.
    """
    if not values:
        return []
    # lazy: 1.1 ms, 54 kB: only a node with settings checks them
    from ottla.controller.config import broker_config_validation

    warnings = []
    prefixes = setting_prefixes(values)
    for name in values:
        if broker_key(name) is None and not name.startswith(prefixes):
            near = closest_match(name, BROKER_KEYS)
            warnings.append(f"unknown setting {name!r}" + (f"; did you mean {near!r}?" if near else ""))
    try:
        broker_config_validation.check_values(values)
        broker_config_validation.check_listener_values(
            values, [x.lower() for x in listener_config.security_protocols_by_listener(values)]
        )
        # Log directories given on the command line are not in `values`.
        known = (
            ()
            if "log.dirs" in values or "log.dir" in values
            else listener_config.split_list(values, broker_config_validation.CORDONED_LOG_DIRS)
        )
        broker_config_validation.check_combinations(values, known)
        broker_config_validation.check_classes(values)
    except broker_config_validation.InvalidBrokerConfig as error:
        raise ConfigException(str(error)) from None
    _check_otlp(values)
    heartbeat, session = "broker.heartbeat.interval.ms", "broker.session.timeout.ms"
    settings = broker_config_validation.BrokerConfigValues(values)
    if settings.number(heartbeat) * 2 > settings.number(session):
        warnings.append(f"{heartbeat} must be less than or equal to half of {session}")
    return warnings


def setting_prefixes(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the prefixes of settings without a fixed name: of listeners and, with tiered storage, of its plug-ins."""
    if values.get("remote.log.storage.system.enable", "").strip().lower() != "true":
        return ("listener.name.",)
    keys = ("remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix")
    return ("listener.name.", *(values.get(key, BROKER_KEYS[key].default or "") for key in keys))


def _check_otlp(values: Mapping[str, str]) -> None:
    if not any(values.get(name) for name in (OTLP_ENDPOINT, OTLP_HEADERS, OTLP_TRACE_RATIO)):
        return
    # lazy: 11.6 ms, 937 kB: only with export
    from ottla.broker.config.otlp_settings import check_otlp_settings

    check_otlp_settings(values)
