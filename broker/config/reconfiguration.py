"""Validation of a change of dynamic broker settings before it is stored, as by a running Kafka broker.

Source: ``DynamicBrokerConfig.validate`` and the ``validateReconfiguration`` of its parts in
``DynamicBrokerConfig.scala``, ``DynamicBrokerConfig.java``, ``DynamicThreadPool.java``, ``LogCleaner.java``,
``SocketServer.scala`` (apache/kafka 4.3.1); KIP-226.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.broker.config import listener_config
from ottla.broker.config.dynamic_config import merge_overrides
from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.controller.config.broker_config_keys import BROKER_KEYS, KEYSTORE_KEY_PATTERN, PER_BROKER_KEYS
from ottla.controller.config.broker_config_validation import (
    CORDONED_LOG_DIRS,
    BrokerConfigValues,
    InvalidBrokerConfig,
    check_combinations,
)
from ottla.controller.config.config_keys import TOPIC_KEYS, broker_key, check_value
from ottla.controller.config.config_values import base_name
from ottla.controller.config.internal_broker_config_keys import INTERNAL_BROKER_KEYS, QUOTA_KEYS
from ottla.controller.config.pluggable_classes import STARTUP_CLASSES_BY_KEY
from ottla.controller.metadata.image import MetadataImage
from ottla.jobs.job import Job
from ottla.jobs.sequences import YIELD_EVERY
from ottla.wire.errors import ErrorCode, ProtocolError

ConfigValues = Mapping[str, str]
_THREADS = ("num.io.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads")
_FOLLOWER_POOL = "remote.log.manager.follower.thread.pool.size"
_POOL = "remote.log.manager.thread.pool.size"
_REMOTE_THREADS = (
    "remote.log.reader.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    _FOLLOWER_POOL,
)
_NETWORK_THREADS = "num.network.threads"
_CLEANER_THREADS = "log.cleaner.threads"
_LIMITS = ("max.connections", "max.connection.creation.rate")
_REPORTERS = "metric.reporters"
_LOG_KEYS = frozenset(key.broker_key for key in TOPIC_KEYS.values() if key.broker_key) | {CORDONED_LOG_DIRS}
_CLEANER_KEYS = frozenset(
    (
        "log.cleaner.threads",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "message.max.bytes",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.backoff.ms",
    )
)
_UNSET, _ALL = -2, -1
"""Value of ``log.local.retention.*`` for the value of ``log.retention.*``; value of a retention without limit."""


class BrokerConfigChange(NamedTuple):
    """Effective settings of a broker before and after a change."""

    old: ConfigValues
    new: ConfigValues
    listeners: Mapping[str, str]
    """Security protocols by listener name."""

    @property
    def changed_names(self) -> frozenset[str]:
        """Names of the settings that differ."""
        return frozenset(k for k in {**self.old, **self.new} if self.old.get(k) != self.new.get(k))


def validate_reconfiguration(config: NodeConfig, image: MetadataImage, name: str, stored: ConfigValues) -> Job[None]:
    """Check the dynamic settings to be stored for this broker, or as cluster default if ``name`` is empty, as a job.

    ``stored`` has all dynamic settings of that level after the change.

    Raises:
        ProtocolError: INVALID_REQUEST with Kafka's message.
    """
    try:
        yield from _check_names(name, stored)
        change = _build_change(config, image, name, stored)
        directories = [*config.data_dirs, *listener_config.split_list(config.values, "log.dirs")]
        check_combinations(change.new, directories)
        _check_listeners(change)
        for wrong in _component_problems(change):
            why = f"Invalid value org.apache.kafka.common.config.ConfigException: {wrong}"
            raise InvalidBrokerConfig(f"{why} for configuration Invalid dynamic configuration")
    except InvalidBrokerConfig as error:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _build_change(config: NodeConfig, image: MetadataImage, name: str, stored: ConfigValues) -> BrokerConfigChange:
    own, everyone = config.dynamic_values(image)
    old = merge_overrides(merge_overrides(config.static_values, everyone), own)
    if name:
        new = merge_overrides(merge_overrides(config.static_values, everyone), stored)
    else:
        new = merge_overrides(merge_overrides(config.static_values, stored), own)
    return BrokerConfigChange(old, new, {x.name: config.security_protocol(x.name) for x in config.client_listeners})


def _format_names(names: list[str]) -> str:
    return f"[{', '.join(names)}]"


def _check_names(name: str, stored: ConfigValues) -> Job[None]:
    """Check that settings may be changed at this level, and their values, as a job.

    Source: ``DynamicBrokerConfig.validateConfigs``.

    Raises:
        InvalidBrokerConfig: a setting or value is not allowed.
    """
    known = {**BROKER_KEYS, **INTERNAL_BROKER_KEYS}
    fixed = [k for k in stored if k in known and not known[k].is_dynamic]
    if fixed:
        raise InvalidBrokerConfig(f"Cannot update these configs dynamically: {_format_names(fixed)}")
    bare = [k for k in stored if k in BROKER_KEYS and KEYSTORE_KEY_PATTERN.match(k)]
    if bare:
        why = "These security configs can be dynamically updated only per-listener using the listener prefix"
        raise InvalidBrokerConfig(f"{why}: {_format_names(bare)}")
    by_base = {base_name(k): k for k in stored}
    for number, base in enumerate((*QUOTA_KEYS, *BROKER_KEYS, *(k for k in by_base if k not in BROKER_KEYS)), 1):
        if number % YIELD_EVERY == 0:
            yield None
        key = broker_key(by_base[base]) if base in by_base else None
        wrong = None if key is None else check_value(key, stored[by_base[base]])
        if wrong is not None:
            raise InvalidBrokerConfig(wrong)
    shared = (*_LIMITS, _NETWORK_THREADS)
    own = [k for k in stored if k in PER_BROKER_KEYS or (base_name(k) != k and base_name(k) not in shared)]
    if own and not name:
        why = "Cannot update these configs at default cluster level, broker id must be specified"
        raise InvalidBrokerConfig(f"{why}: {_format_names(own)}")


def _check_listeners(change: BrokerConfigChange) -> None:
    """Check that listeners and their security protocols are unchanged (``DynamicListenerConfig``).

    Raises:
        InvalidBrokerConfig: they are changed.
    """
    if listener_config.LISTENERS in change.changed_names:
        listeners = change.new.get(listener_config.LISTENERS, "")
        for text in listeners.split(","):
            if "://" not in text:
                raise InvalidBrokerConfig(f"Unable to parse a listener name from {text}")
        raise InvalidBrokerConfig("listeners cannot be changed while the broker runs")
    if listener_config.PROTOCOL_MAP not in change.changed_names:
        return
    try:
        protocols = listener_config.parse_protocol_map(change.new)
    except ConfigException as error:
        raise InvalidBrokerConfig(str(error)) from None
    for name, protocol in change.listeners.items():
        if name not in protocols:
            raise InvalidBrokerConfig(f"No security protocol defined for listener {name}")
        if protocols[name] != protocol:
            why = f"Security protocol cannot be updated for existing listener ListenerName({name})"
            wrapped = f"Invalid value org.apache.kafka.common.config.ConfigException: {why}"
            raise InvalidBrokerConfig(f"{wrapped} for configuration Invalid dynamic configuration")


def _component_problems(change: BrokerConfigChange) -> Iterator[str]:
    """Yield error messages for changes that a component cannot apply at run time."""
    changed = change.changed_names
    old, new = BrokerConfigValues(change.old), BrokerConfigValues(change.new)
    yield from _listener_problems(change)
    if _REPORTERS in changed and not set(new.elements(_REPORTERS)) <= set(STARTUP_CLASSES_BY_KEY[_REPORTERS]):
        names = ", ".join(k for k in change.new if k in changed)
        yield (
            f"Validation of dynamic config update of Set({names}) failed with class "
            "class kafka.server.DynamicMetricsReporters"
        )
    if changed & _CLEANER_KEYS:
        yield from _cleaner_thread_problems(old.number(_CLEANER_THREADS), new.number(_CLEANER_THREADS))
    if changed.intersection(_THREADS):
        for name in _THREADS:
            yield from _thread_count_problems(name, old.number(name), new.number(name))
    if changed & _LOG_KEYS:
        yield from _local_retention_problems(new)
    if any(name.startswith("remote.") for name in changed):
        for name in _REMOTE_THREADS:
            before = _POOL if name == _FOLLOWER_POOL and name not in change.old else name
            yield from _thread_count_problems(name, old.number(before), new.number(name))


def _listener_problems(change: BrokerConfigChange) -> Iterator[str]:
    """Yield error messages of listeners' limits and threads (``DataPlaneAcceptor``, ``ListenerConnectionQuota``)."""
    changed = {base_name(name) for name in change.changed_names}
    for listener in change.listeners:
        prefix = f"listener.name.{listener.lower()}."
        old, new = (_listener_settings(values, prefix) for values in (change.old, change.new))
        for name in _LIMITS:
            if name in changed and new.number(name) <= 0:
                yield f"Invalid {name} {new.number(name)}"
        if _NETWORK_THREADS in changed:
            yield from _thread_count_problems(
                _NETWORK_THREADS, old.number(_NETWORK_THREADS), new.number(_NETWORK_THREADS)
            )


def _listener_settings(values: ConfigValues, prefix: str) -> BrokerConfigValues:
    own = {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
    return BrokerConfigValues({**values, **own})


def _thread_count_problems(name: str, old: int, new: int) -> Iterator[str]:
    if new == old:
        return
    problem = f"Dynamic thread count update validation failed for {name}={new}, value should"
    if new <= 0:
        yield f"{problem} be at least 1"
    elif new < old // 2:
        yield f"{problem} be at least half the current value {old}"
    elif new > old * 2:
        yield f"{problem} not be greater than double the current value {old}"


def _cleaner_thread_problems(old: int, new: int) -> Iterator[str]:
    if new < 1:
        yield "Log cleaner threads should be at least 1"
    elif new < old // 2:
        yield f"Log cleaner threads cannot be reduced to less than half the current value {old}"
    elif new > old * 2:
        yield f"Log cleaner threads cannot be increased to more than double the current value {old}"


def _local_retention_problems(new: BrokerConfigValues) -> Iterator[str]:
    """Yield error messages for local retention settings above the total retention (``DynamicLogConfig``)."""
    times = "log.retention.ms", new.milliseconds("log.retention.ms")
    sizes = "log.retention.bytes", new.number("log.retention.bytes")
    for (name, most), local in ((times, "log.local.retention.ms"), (sizes, "log.local.retention.bytes")):
        value = new.number(local)
        if most <= _ALL or value == _UNSET:
            continue
        if value == _ALL:
            why = f"Value must not be -1 as {name} value is set as {most}."
            yield f"Invalid value {value} for configuration {local}: {why}"
        elif value > most:
            why = f"Value must not be more than {name} property value: {most}"
            yield f"Invalid value {value} for configuration {local}: {why}"
