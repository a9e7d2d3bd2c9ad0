"""Dynamic settings of a broker, from the metadata image, as far as they are valid.

The metadata log may have any value: a controller accepts settings of brokers without validating them. Invalid values
are ignored, and a change that would violate a rule between settings leaves the previous ones in force.

Source: ``DynamicBrokerConfig.fromPersistentProps``, ``updateBrokerConfig``, ``updateDefaultConfig`` in
``DynamicBrokerConfig.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

from ottla.controller.config.broker_config_keys import BROKER_KEYS, KEYSTORE_KEY_PATTERN, PER_BROKER_KEYS
from ottla.controller.config.config_keys import broker_key, check_value, synonyms_of
from ottla.controller.config.internal_broker_config_keys import INTERNAL_BROKER_KEYS
from ottla.controller.metadata.image import RESOURCE_BROKER, MetadataImage

logger = logging.getLogger("ottla.config")
_MAX_LOGGED = 1_000
_UNCONSTRAINED_KEYS = frozenset(("min.insync.replicas",))
"""Settings that no rule between settings uses. With eligible leader replicas a cluster sets it from the beginning."""

ConfigValues = Mapping[str, str]


@lru_cache(maxsize=_MAX_LOGGED)
def log_invalid_stored_value(resource: str, name: str, value: str) -> None:
    """Log, once for each value, that a stored value is invalid and the default is used."""
    logger.warning("Invalid value of a stored config: %s=%r of %s (using the default)", name, value, resource)


@lru_cache(maxsize=_MAX_LOGGED)
def _log_rejected(level: str, why: str) -> None:
    logger.error("%s configs could not be applied: %s", level, why)


def merge_overrides(values: ConfigValues, changes: ConfigValues) -> dict[str, str]:
    """Return ``values`` overridden by ``changes``; a setting also replaces its synonyms in other units."""
    out = dict(values)
    for name, value in changes.items():
        for other, _ in synonyms_of(name):
            out.pop(other, None)
        out[name] = value
    return out


def select_applicable(values: ConfigValues, *, per_broker: bool) -> dict[str, str]:
    """Return the stored settings to apply: dynamic ones with a valid value, permitted at this level.

    Settings of unknown names are among them. Invalid values are logged, but no passwords. ``per_broker``: the settings
    are those of one broker, not the cluster default.
    """
    out = {}
    for name, value in values.items():
        known = BROKER_KEYS.get(name) or INTERNAL_BROKER_KEYS.get(name)
        if known is not None and (not known.is_dynamic or KEYSTORE_KEY_PATTERN.match(name)):
            continue
        if not per_broker and known is not None and name in PER_BROKER_KEYS:
            continue
        key = broker_key(name)
        if key is not None and check_value(key, value) is not None:
            if key.type not in ("PASSWORD", "UNKNOWN"):
                log_invalid_stored_value("a broker", name, value)
            continue
        out[name] = value
    return out


class DynamicBrokerConfig:
    """Dynamic settings of one broker that are in force, cached by the image's configs."""

    def __init__(self, node_id: int, static: ConfigValues) -> None:
        self._node_id = str(node_id)
        self._static = static
        self._last_image_values: tuple[ConfigValues, ConfigValues] = {}, {}
        self._last_applicable: tuple[ConfigValues, ConfigValues] = {}, {}
        self._current_values: tuple[ConfigValues, ConfigValues] = {}, {}

    def current_values(self, image: MetadataImage) -> tuple[ConfigValues, ConfigValues]:
        """Return two mappings of the dynamic settings in force: this broker's own, and the cluster-wide defaults."""
        own, everyone = image.config(RESOURCE_BROKER, self._node_id), image.config(RESOURCE_BROKER, "")
        if not (_is_unchanged(own, self._last_image_values[0]) and _is_unchanged(everyone, self._last_image_values[1])):
            self._last_image_values = own, everyone
            self._apply(select_applicable(own, per_broker=True), select_applicable(everyone, per_broker=False))
        return self._current_values

    def _apply(self, own: ConfigValues, everyone: ConfigValues) -> None:
        """Put the cluster default in force first, then the broker's own settings, as at the start of a broker.

        A level that would violate a rule between settings is logged and leaves the settings in force unchanged.
        """
        for level, stored in (
            ("Cluster default", (self._last_applicable[0], everyone)),
            ("Per-broker", (own, everyone)),
        ):
            if stored == self._last_applicable:
                continue
            self._last_applicable = stored
            if not (stored[0].keys() | stored[1].keys()) - _UNCONSTRAINED_KEYS:
                self._current_values = stored
                continue
            # lazy: 1.2 ms, 54 kB: few clusters have dynamic broker settings
            from ottla.controller.config.broker_config_validation import InvalidBrokerConfig, check_combinations

            merged = merge_overrides(merge_overrides(self._static, stored[1]), stored[0])
            try:
                check_combinations(merged, merged.get("cordoned.log.dirs", "").split(","))
            except (InvalidBrokerConfig, ValueError) as error:
                _log_rejected(level, str(error))
                continue
            self._current_values = stored


def _is_unchanged(values: ConfigValues, seen: ConfigValues) -> bool:
    return values is seen or (not values and not seen)
