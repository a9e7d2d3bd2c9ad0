"""What the settings of a broker, group or client-metrics subscription must keep to, beyond each value's own form.

Source: ``DynamicBrokerConfig.validateConfigs``, ``GroupConfig.validate``, ``ClientMetricsConfigs.validateProperties``,
``ConfigurationControlManager.validateAlterConfig`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.controller.broker_keys import BROKER_KEYS
from ottla.controller.config_keys import GROUP_KEYS, TOPIC_KEYS, broker_key, check_value, group_bounds
from ottla.controller.image import Image
from ottla.controller.records import CORDONED_SINCE, ELR_VERSION, METADATA_VERSION
from ottla.wire.errors import ErrorCode, ProtocolError

MAX_VALUE_BYTES = 32767
MAX_MATCH_CHARS = 1024
"""Kafka has no such limit; but here a pattern of 32 KiB takes a tenth of a second to look at."""
MIN_ISR = "min.insync.replicas"
CORDONED = "cordoned.log.dirs"
OVERRIDES = "max.connections.per.ip.overrides"
_OVERRIDE = re.compile(r"[^,\s]+:\s*\d{1,9}")
_LIMIT = re.compile(r"(^|\.)max\.connections?(\.creation\.rate)?$")
_PER_LISTENER = re.compile(r"ssl\.(keystore|truststore|key)\.")
_MATCH_KEYS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def _listed(names: list[str]) -> str:
    return f"[{', '.join(names)}]"


def check_broker(name: str, values: Mapping[str, str]) -> None:
    """Settings of one broker, or with an empty name of all.

    Raises:
        ProtocolError: INVALID_REQUEST.
    """
    known = {k: BROKER_KEYS[k] for k in values if k in BROKER_KEYS}
    fixed = [k for k, details in known.items() if not details.dynamic]
    if fixed:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {_listed(fixed)}")
    bare = [k for k in known if _PER_LISTENER.match(k)]
    if bare:
        why = "These security configs can be dynamically updated only per-listener using the listener prefix"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{why}: {_listed(bare)}")
    for key_name, value in values.items():
        key = broker_key(key_name)
        wrong = None if key is None else check_value(key, value)
        if wrong is not None:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, wrong)
        wrong = wrong_overrides(value) if key_name == OVERRIDES else None
        if wrong is not None:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, wrong)
        if key is not None and _LIMIT.search(key_name) and int(value) == 0:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Invalid {key_name} 0")  # nobody could take it back
    if "listeners" in values and name:
        if "://" not in values["listeners"]:
            why = f"Unable to parse a listener name from {values['listeners']}"
            raise ProtocolError(ErrorCode.INVALID_REQUEST, why)
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "listeners cannot be changed while the broker runs")
    own = [k for k, details in known.items() if details.when == "own"]
    if own and not name:
        why = "Cannot update these configs at default cluster level, broker id must be specified"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{why}: {_listed(own)}")


def check_cordoned(image: Image, changes: Mapping[str, str | None]) -> None:
    """Directories are cordoned while the node runs only where the cluster's level can say so (KIP-1066).

    A node's own configuration may name them before: the node heeds it, and nobody else knows.

    Raises:
        ProtocolError: INVALID_CONFIG.
    """
    if CORDONED in changes and image.features.get(METADATA_VERSION, 0) < CORDONED_SINCE:
        why = f"The {CORDONED} configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, why)


def wrong_overrides(value: str) -> str | None:
    """What is wrong with ``max.connections.per.ip.overrides``, or None."""
    for pair in filter(None, (x.strip() for x in value.split(","))):
        if not _OVERRIDE.fullmatch(pair):
            return f"Invalid value {value} for configuration {OVERRIDES}: {pair} is no HOST:NUMBER"
    return None


def check_min_isr(image: Image, name: str, changes: Mapping[str, str | None]) -> None:
    """With eligible leader replicas the minimum of in-sync replicas is the cluster's: it stays set, and only there.

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


def _broker_number(broker: Mapping[str, str], key: str) -> int:
    return int(broker.get(key) or BROKER_KEYS[key].default or 0)


def _topic_number(values: Mapping[str, str], static: Mapping[str, str], name: str) -> int:
    key = TOPIC_KEYS[name]
    return int(values.get(name) or static.get(key.broker_key or "") or key.default or 0)


def check_topic(values: Mapping[str, str], static: Mapping[str, str]) -> None:
    """A topic's settings together; ``static`` holds what was set in the node's configuration (``LogConfig.validate``).

    Raises:
        ProtocolError: INVALID_CONFIG.
    """
    low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    least, most = (_topic_number(values, static, name) for name in (low, high))
    if least > most:
        why = f"conflict topic config setting {low} ({least}) > {high} ({most})"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, why)
    if values.get("remote.storage.enable", "").strip().lower() == "true":
        why = "Tiered Storage functionality is disabled in the broker."
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{why} Topic cannot be configured with remote log storage.")


def check_group(values: Mapping[str, str], broker: Mapping[str, str]) -> None:
    """A group's settings lie within what the broker allows; ``broker`` holds what was set there.

    Raises:
        ProtocolError: INVALID_CONFIG.
    """

    def current(name: str) -> int:
        if name in values:
            return int(values[name])
        return _broker_number(broker, f"group.{name}")

    for name in values:
        if GROUP_KEYS[name].type != "INT":
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
    """A client-metrics subscription.

    Raises:
        ProtocolError: INVALID_REQUEST, INVALID_CONFIG.
    """
    interval = values.get("interval.ms")
    if interval is not None and not 100 <= int(interval) <= 3_600_000:
        why = f"Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, why)
    match = values.get("match", "")
    if len(match) > MAX_MATCH_CHARS:
        why = f"Illegal client matching patterns: more than {MAX_MATCH_CHARS} characters"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, why)
    for pattern in filter(None, match.split(",")):
        name, separator, text = pattern.strip().partition("=")
        if not separator or name.strip() not in _MATCH_KEYS or not _is_pattern(text.strip()):
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def check_size(value: str | None) -> None:
    """Raise INVALID_CONFIG for a value too long to be kept."""
    if value is not None and (len(value) > MAX_VALUE_BYTES or len(value.encode()) > MAX_VALUE_BYTES):
        why = "The configuration value cannot be added because it exceeds the maximum value size of"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{why} {MAX_VALUE_BYTES} bytes.")
