"""Validation of the tiered storage settings of a topic (KIP-405, KIP-950).

Source: ``LogConfig.validateTopicLogConfigValues`` and the methods it calls (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.controller.config.broker_config_validation import BrokerConfigValues
from ottla.controller.config.config_keys import TOPIC_KEYS, broker_key, canonical_value, valid_canonical_value
from ottla.controller.config.java_values import parse_list
from ottla.wire.errors import ErrorCode, ProtocolError

REMOTE_STORAGE_ENABLE = "remote.storage.enable"
SYSTEM_ENABLE = "remote.log.storage.system.enable"
SAME_AS_RETENTION = -2
"""Value of a local retention setting: the value of the setting for both tiers."""
UNLIMITED = -1
_BROKER_SETTINGS = (
    SYSTEM_ENABLE,
    "log.cleanup.policy",
    "log.retention.bytes",
    "log.retention.ms",
    "log.retention.minutes",
    "log.retention.hours",
    "log.local.retention.bytes",
    "log.local.retention.ms",
)


def check_tiered_storage(values: Mapping[str, str], static: Mapping[str, str], existing: Mapping[str, str]) -> None:
    """Check a topic's settings of tiered storage together with its retention and cleanup policy.

    Args:
        values: All settings that the topic will have, each of which is valid by itself.
        static: Settings of the broker, for those that the topic does not set.
        existing: Current settings of the topic.

    Raises:
        ProtocolError: INVALID_CONFIG.
    """
    settings = _TopicSettings(values, static)
    if not settings.is_true(REMOTE_STORAGE_ENABLE):
        if _is_true(existing, REMOTE_STORAGE_ENABLE) and not settings.is_true("remote.log.delete.on.disable"):
            raise _invalid(
                "It is invalid to disable remote storage without deleting remote data. "
                "If you want to keep the remote data and turn to read only, please set "
                "`remote.storage.enable=true,remote.log.copy.disable=true`. "
                "If you want to disable remote storage and delete all remote data, please set "
                "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
            )
        return
    if not settings.is_system_enabled:
        why = "Tiered Storage functionality is disabled in the broker."
        raise _invalid(f"{why} Topic cannot be configured with remote log storage.")
    if settings.cleanup_policy not in ([], ["delete"]):
        raise _invalid(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
        )
    _check_local_retention(settings, "retention.bytes")
    _check_local_retention(settings, "retention.ms")
    if settings.is_true("remote.log.copy.disable"):
        _check_equal_retention(settings, "retention.bytes")
        _check_equal_retention(settings, "retention.ms")


class _TopicSettings:
    """Effective settings of a topic: its own, else the broker's."""

    def __init__(self, values: Mapping[str, str], static: Mapping[str, str]) -> None:
        self._values = values
        keys = {name: broker_key(name) for name in _BROKER_SETTINGS if name in static}
        self._broker = BrokerConfigValues(  # a stored value may be invalid: it has no effect
            {name: static[name] for name, key in keys.items() if valid_canonical_value(key, static[name]) is not None}
        )

    @property
    def is_system_enabled(self) -> bool:
        """True if tiered storage is enabled on the broker."""
        return bool(self._broker.get(SYSTEM_ENABLE))

    @property
    def cleanup_policy(self) -> list[str]:
        """Elements of the topic's ``cleanup.policy``, or of the broker's ``log.cleanup.policy`` if it is not set."""
        name = "cleanup.policy"
        if name in self._values:
            return parse_list(canonical_value(TOPIC_KEYS[name], self._values[name]))
        return self._broker.elements("log.cleanup.policy")

    def is_true(self, name: str) -> bool:
        """Return True if a boolean setting, which only topics have, is set to true."""
        return _is_true(self._values, name)

    def number(self, name: str) -> int:
        """Return the value of an integer setting of the topic, or the broker's."""
        if name in self._values:
            return int(canonical_value(TOPIC_KEYS[name], self._values[name]))
        if name == "retention.ms":
            return self._broker.milliseconds("log.retention.ms")
        return self._broker.number(f"log.{name}")


def _check_local_retention(settings: _TopicSettings, name: str) -> None:
    """Raise ProtocolError INVALID_CONFIG if a topic's local retention (by time or size) is above its retention."""
    most, local = settings.number(name), settings.number(f"local.{name}")
    is_limited = most != UNLIMITED if name == "retention.ms" else most > UNLIMITED
    if not is_limited or local == SAME_AS_RETENTION:
        return
    why = None
    if local == UNLIMITED:
        why = f"Value must not be -1 as {name} value is set as {most}."
    elif local > most:
        why = f"Value must not be more than {name} property value: {most}"
    if why is not None:
        raise _invalid(f"Invalid value {local} for configuration local.{name}: {why}")


def _check_equal_retention(settings: _TopicSettings, name: str) -> None:
    """Raise ProtocolError INVALID_CONFIG unless both retentions of a topic that is no longer copied are equal."""
    if settings.number(f"local.{name}") not in (SAME_AS_RETENTION, settings.number(name)):
        raise _invalid(
            f"When `remote.log.copy.disable` is set to true, the `local.{name}` "
            f"and `{name}` must be set to the identical value because there will be no more logs copied to "
            "the remote storage."
        )


def _is_true(values: Mapping[str, str], name: str) -> bool:
    text = canonical_value(TOPIC_KEYS[name], values.get(name, ""))
    return text == "true"


def _invalid(why: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_CONFIG, why)
