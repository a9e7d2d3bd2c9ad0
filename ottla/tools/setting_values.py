"""Conversion of broker settings from Python values to the text of a ``server.properties``."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath

from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import closest_match
from ottla.broker.config.startup_checks import check_startup_values, setting_prefixes
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import broker_key

SettingValue = str | bool | int | float | PathLike[str] | list["SettingValue"] | tuple["SettingValue", ...]
"""Value of a setting; the elements of a list are joined with commas."""


def setting_text(name: str, value: object) -> str:
    """Return the text of ``value``, the value of setting ``name``.

    Raises:
        ConfigException: the value has a type that no setting has; the message has ``name``.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, PathLike):
        return str(fspath(value))
    if isinstance(value, list | tuple):
        return ",".join(setting_text(name, each) for each in value)
    expected = "text, a number, a boolean, a path or a list of these"
    raise ConfigException(f"setting {name}: {expected} expected, not {type(value).__name__}")


def broker_settings_text(settings: Mapping[str, SettingValue]) -> dict[str, str]:
    """Return the settings of a node as text, after a check of names and values.

    Raises:
        ConfigException: a setting is unknown, or a value is invalid.
    """
    values: dict[str, str] = {}
    for name, value in settings.items():
        if not isinstance(name, str):
            raise ConfigException(f"name of a setting expected, not {type(name).__name__}: {name!r}")
        values[name] = setting_text(name, value)
    prefixes = setting_prefixes(values)
    for name in values:
        if broker_key(name) is None and not name.startswith(prefixes):
            near = closest_match(name, BROKER_KEYS)
            raise ConfigException(f"unknown setting: {name}" + (f"; did you mean {near}?" if near else ""))
    check_startup_values(values)
    return values
