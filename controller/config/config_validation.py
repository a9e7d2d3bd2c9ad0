"""Validation of broker, topic, group and client-metrics settings in requests, beyond the validators of single values.

Source: ``DynamicBrokerConfig.validateConfigs``, ``GroupConfig.validate``, ``ClientMetricsConfigs.validateProperties``,
``ConfigurationControlManager.validateAlterConfig`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import (
    GROUP_KEYS,
    TOPIC_KEYS,
    broker_key,
    canonical_value,
    group_bounds,
    valid_canonical_value,
)
from ottla.controller.config.java_values import parse_integer, parse_list, split, trim
from ottla.controller.limits import MAX_CLIENT_METRICS_MATCH_CHARS, MAX_CONFIG_VALUE_BYTES
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.record_serde import CORDONED_DIRS_MIN_VERSION, ELR_VERSION, METADATA_VERSION
from ottla.wire.errors import ErrorCode, ProtocolError

MIN_ISR = "min.insync.replicas"
REMOTE_STORAGE_ENABLE = "remote.storage.enable"
CORDONED_LOG_DIRS = "cordoned.log.dirs"
_MATCH_KEYS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def check_cordoned(image: MetadataImage, changes: Mapping[str, str | None]) -> None:
    """Check that an alteration sets or removes ``cordoned.log.dirs`` only if metadata.version supports it (KIP-1066).

    The static configuration of a node may contain it before; then it has an effect on that node only.

    Raises:
        ProtocolError: INVALID_CONFIG.
    """
    if CORDONED_LOG_DIRS in changes and image.features.get(METADATA_VERSION, 0) < CORDONED_DIRS_MIN_VERSION:
        why = (
            f"The {CORDONED_LOG_DIRS} configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
        )
        raise ProtocolError(ErrorCode.INVALID_CONFIG, why)


def check_min_isr(image: MetadataImage, name: str, changes: Mapping[str, str | None]) -> None:
    """Check an alteration of min.insync.replicas of broker ``name`` ("": cluster default); None removes it.

    With ELR enabled, changes for a single broker and the removal of the cluster default are rejected (KIP-966).

    Raises:
        ProtocolError: INVALID_CONFIG.
    """
    if MIN_ISR not in changes or not image.features.get(ELR_VERSION):
        return
    if name:
        why = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        raise ProtocolError(ErrorCode.INVALID_CONFIG, why)
    if changes[MIN_ISR] is None:
        why = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        raise ProtocolError(ErrorCode.INVALID_CONFIG, why)


def _broker_number(broker: Mapping[str, str], name: str) -> int:
    """Return an integer setting from the broker settings ``broker``; its default if it is unset or invalid there."""
    key = broker_key(name)
    text = valid_canonical_value(key, broker[name]) if name in broker else None
    return int(text or BROKER_KEYS[name].default or 0)


def _topic_number(values: Mapping[str, str], static: Mapping[str, str], name: str) -> int:
    """Return an integer setting of a topic: from ``values``, else the broker's setting or the default."""
    key = TOPIC_KEYS[name]
    if name in values:
        return int(canonical_value(key, values[name]))
    assert key.broker_key is not None
    return _broker_number(static, key.broker_key)


def check_topic(values: Mapping[str, str], static: Mapping[str, str], existing: Mapping[str, str]) -> None:
    """Check the combination of a topic's settings (``LogConfig.validateTopicLogConfigValues``).

    Args:
        values: All settings that the topic will have, each of which is valid by itself.
        static: Settings of the broker, for those that the topic does not set.
        existing: Current settings of the topic.

    Raises:
        ProtocolError: INVALID_CONFIG.
    """
    low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    least, most = (_topic_number(values, static, name) for name in (low, high))
    if least > most:
        why = f"conflict topic config setting {low} ({least}) > {high} ({most})"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, why)
    if REMOTE_STORAGE_ENABLE in values or REMOTE_STORAGE_ENABLE in existing:
        # lazy: 1.1 ms, 54 kB: only topics with tiered storage have the setting
        from ottla.controller.config.tiered_topic_validation import check_tiered_storage

        check_tiered_storage(values, static, existing)


_IN_ORDER = sorted(GROUP_KEYS, key=lambda name: (name.partition(".")[0], "heartbeat" not in name))
"""Group settings in the order of Kafka's validation: heartbeat intervals before session timeouts."""


def check_group(values: Mapping[str, str], broker: Mapping[str, str]) -> None:
    """Check that a group's settings are within the broker's limits and fit together (``GroupConfig.validate``).

    Args:
        values: Settings of the group, each of which is valid by itself.
        broker: Settings of the broker.

    Raises:
        ProtocolError: INVALID_CONFIG.
    """

    def current(name: str) -> int:
        if name in values:
            return int(canonical_value(GROUP_KEYS[name], values[name]))
        return _broker_number(broker, f"group.{name}")

    for name in _IN_ORDER:
        if name not in values or GROUP_KEYS[name].type != "INT":
            continue
        for bound, limit in group_bounds(name):
            ends = _broker_number(broker, limit)
            if (current(name) < ends) if bound == "min" else (current(name) > ends):
                than = "greater" if bound == "min" else "less"
                raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{name} must be {than} than or equal to {limit}")
    for kind in ("consumer", "share", "streams"):
        session, beat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if (session in values or beat in values) and current(session) <= current(beat):
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{session} must be greater than {beat}")


def check_client_metrics(values: Mapping[str, str]) -> None:
    """Check the settings of a client-metrics subscription: interval and match patterns, each valid by its type.

    The interval is 100 ms to 1 h. A pattern is ``KEY=REGEX`` with a known key and a regular expression of Python, not
    of Java; together they have at most `MAX_CLIENT_METRICS_MATCH_CHARS` characters.

    Raises:
        ProtocolError: INVALID_REQUEST for the interval, INVALID_CONFIG for a pattern.
    """
    interval = parse_integer(trim(values["interval.ms"]), 32) if "interval.ms" in values else None
    if interval is not None and not 100 <= interval <= 3_600_000:
        why = f"Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, why)
    match = values.get("match", "")
    if len(match) > MAX_CLIENT_METRICS_MATCH_CHARS:
        why = f"Illegal client matching patterns: more than {MAX_CLIENT_METRICS_MATCH_CHARS} characters"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, why)
    for pattern in dict.fromkeys(parse_list(trim(match))):
        name, *texts = split(pattern, "=")
        if len(texts) != 1 or trim(name) not in _MATCH_KEYS or not _is_pattern(trim(texts[0])):
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def check_size(value: str | None) -> None:
    """Raise ProtocolError INVALID_CONFIG for a value of more than `MAX_CONFIG_VALUE_BYTES` bytes; None is valid."""
    if value is not None and (len(value) > MAX_CONFIG_VALUE_BYTES or len(value.encode()) > MAX_CONFIG_VALUE_BYTES):
        why = "The configuration value cannot be added because it exceeds the maximum value size of"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{why} {MAX_CONFIG_VALUE_BYTES} bytes.")
