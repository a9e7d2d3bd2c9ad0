"""Parsing and validation of the values of settings by their definitions, as Kafka's ``ConfigDef``.

Source: ``ConfigDef.java``, ``ThrottledReplicaListValidator.java``, ``ShareGroupAutoOffsetResetStrategy.java``,
``QuorumConfig.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from ottla.controller.config.java_values import (
    double_text,
    parse_boolean,
    parse_double,
    parse_integer,
    parse_list,
    trim,
)

ConfigValue = int | float | bool | str | list[str]


class ConfigKey(NamedTuple):
    """Definition of a setting: name, type, default (None: no default) and validator."""

    name: str
    type: str
    default: str | None
    check: str = "-"
    """Validator of the value, in a short notation.

    ``1..``: at least, ``0..1``: between, ``1..9,-1``: between or equal, ``a|b``: one of, ``anycase:a|b``: one of in any
    case, ``something``: not empty, ``-``: none. For a LIST: ``list``: no empty element, ``some``: at least one element
    as well, ``a|b``: each element one of, ``some:a|b``: both; ``replicas``, ``reset``, ``voters`` and ``servers``: the
    functions below.
    """
    broker_key: str | None = None
    """Broker setting that is the default of this topic setting."""


_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
_BY_MECHANISM = ("sasl.jaas.config", "connections.max.reauth.ms", "callback.handler.class", "sasl.login.class")
INTEGER_BITS = {"INT": 32, "LONG": 64, "SHORT": 16}
_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")
_HOST_PORT = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)]?:([0-9]+)")
_LISTS = ("list", "some")


def base_name(name: str) -> str:
    """Return the setting name without its prefix ``listener.name.NAME.`` and the SASL mechanism after it, if any."""
    found = _LISTENER.fullmatch(name)
    if found is None:
        return name
    return next((x for x in _BY_MECHANISM if found[1].endswith("." + x)), found[1])


class _Invalid(ValueError):
    """Value of the right type that its validator rejects; the message is Kafka's, complete."""


def parse(key: ConfigKey, value: str) -> ConfigValue:
    """Return the typed value of a setting; a list without duplicates if its validator is a ``ValidList``.

    Raises:
        ValueError: ``value`` is not of the setting's type.
    """
    text = trim(value)
    match key.type:
        case "INT" | "LONG" | "SHORT":
            return parse_integer(text, INTEGER_BITS[key.type])
        case "DOUBLE":
            return parse_double(text)
        case "BOOLEAN":
            return parse_boolean(text)
        case "LIST":
            elements = parse_list(text)
            return list(dict.fromkeys(elements)) if _is_distinct(key) else elements
        case "UNKNOWN":
            return value
    return text


def _is_distinct(key: ConfigKey) -> bool:
    """Return True if the validator of a LIST setting is Kafka's ``ValidList``, which removes duplicates."""
    return key.check.partition(":")[0] in _LISTS or "|" in key.check


def to_text(value: ConfigValue) -> str:
    """Return the text of a typed value, as ``ConfigDef.convertToString``."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return double_text(value)
        case list():
            return ",".join(value)
    return str(value)


def canonical_value(key: ConfigKey | None, value: str) -> str:
    """Return a value's text as Kafka writes it back; an unparsable one is trimmed, one of an unknown key unchanged."""
    if key is None or key.type == "UNKNOWN":
        return value
    try:
        return to_text(parse(key, value))
    except ValueError:
        return trim(value)


def check_value(key: ConfigKey, value: str) -> str | None:
    """Return Kafka's error message if ``value`` cannot be parsed or its validator rejects it; None if it is valid."""
    key = key._replace(name=base_name(key.name))
    try:
        parsed = parse(key, value)
    except ValueError:
        if key.type == "BOOLEAN":
            return f"Invalid value {value} for configuration {key.name}: Expected value to be either true or false"
        return f"Invalid value {value} for configuration {key.name}: Not a number of type {key.type}"
    if key.type == "CLASS" and not _is_class(key.name, parsed):
        return f"Invalid value {value} for configuration {key.name}: Class {value} could not be found."
    try:
        _check_rule(key, parsed)
    except _Invalid as error:
        return str(error)
    return None


def _is_class(name: str, value: ConfigValue) -> bool:
    # lazy: 0.6 ms, 7 kB: few nodes name a class
    from ottla.controller.config.pluggable_classes import CLASSES_BY_KEY

    return value in CLASSES_BY_KEY.get(name, ())


def valid_canonical_value(key: ConfigKey | None, value: str) -> str | None:
    """Return the text of a stored value as `canonical_value`; None if it is invalid, so that the default applies."""
    if key is not None and check_value(key, value) is not None:
        return None
    return canonical_value(key, value)


def _invalid(key: ConfigKey, value: ConfigValue, why: str) -> _Invalid:
    shown = f"[{', '.join(value)}]" if isinstance(value, list) else to_text(value)
    return _Invalid(f"Invalid value {shown} for configuration {key.name}: {why}")


def _check_rule(key: ConfigKey, value: ConfigValue) -> None:
    check = key.check
    if check == "-":
        return
    if isinstance(value, list):
        _LIST_RULES.get(check, _check_elements)(key, value)
    elif isinstance(value, int | float) and ".." in check:
        _check_bounds(key, value)
    else:
        _check_text(key, str(value))


def _check_bounds(key: ConfigKey, value: float) -> None:
    bounds, _, also = key.check.partition(",")
    low, _, high = bounds.partition("..")
    if also:
        if value != float(also) and not float(low) <= value <= float(high):
            raise _invalid(key, value, f"Value must be between {low} and {high} or equal to {also}")
    elif low and value < float(low):
        raise _invalid(key, value, f"Value must be at least {low}")
    elif high and value > float(high):
        raise _invalid(key, value, f"Value must be no more than {high}")


def _check_text(key: ConfigKey, text: str) -> None:
    check = key.check
    if check == "something":
        if not text:
            raise _invalid(key, text, "String must be non-empty")
    elif check == "reset":
        # lazy: 1.1 ms, 7 kB: only for auto.offset.reset by duration
        from ottla.controller.config.java_duration import by_duration_ms

        if text not in ("earliest", "latest") and by_duration_ms(text) is None:
            why = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            raise _invalid(key, text, f"Invalid value `{text}` for configuration {key.name}. {why}")
    elif check.startswith("anycase:"):
        names = check.removeprefix("anycase:").split("|")
        if text.upper() not in names:
            raise _invalid(key, text, f"String must be one of (case insensitive): {', '.join(names)}")
    elif text not in check.split("|"):
        raise _invalid(key, text, f"String must be one of: {', '.join(check.split('|'))}")


# ------------------------------------------------------------------ lists


def _check_elements(key: ConfigKey, elements: list[str]) -> None:
    """Raise _Invalid unless a LIST is a ``ValidList``: no empty, only allowed elements; for ``some`` at least one."""
    kind, _, allowed = key.check.partition(":")
    names = (allowed or ("" if kind in _LISTS else kind)).split("|")
    known = [] if names == [""] else names
    if kind == "some" and not elements:
        valid = f"[{', '.join(known)}]" if known else "any non-empty value"
        raise _Invalid(f"Configuration '{key.name}' must not be empty. Valid values include: {valid}")
    for element in elements:
        if not element:
            raise _Invalid(f"Configuration '{key.name}' values must not be empty.")
        if known and element not in known:
            raise _invalid(key, element, f"String must be one of: {', '.join(known)}")


def _check_replicas(key: ConfigKey, elements: list[str]) -> None:
    """Raise _Invalid unless a list of throttled replicas is valid, as ``ThrottledReplicaListValidator``."""
    replicas = [trim(x) for x in elements]
    if "".join(replicas) != "*" and not all(_REPLICA.fullmatch(x) for x in replicas):
        allowed = "the literal '*' or a list of replicas in the following format: "
        raise _invalid(
            key, elements, f"{key.name} must be {allowed}[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )


def _check_voters(key: ConfigKey, elements: list[str]) -> None:
    """Raise _Invalid unless ``controller.quorum.voters`` is valid, as ``ControllerQuorumVotersValidator``."""
    form = f"for the configuration {key.name}. Each entry should be in the form `{{id}}@{{host}}:{{port}}`."
    for entry in elements:
        number, _, address = entry.partition("@")
        if not address or "@" in address.rstrip("@"):
            problem = f"Invalid configuration value for {key.name}"
            raise _Invalid(f"{problem}. Each entry should be in the form `{{id}}@{{host}}:{{port}}`.")
        try:
            parse_integer(number, 32)
        except ValueError:
            raise _Invalid(f"Failed to parse voter ID as an integer from {number}") from None
        found = _HOST_PORT.fullmatch(address.rstrip("@"))
        if found is None:
            raise _Invalid(f"Failed to parse host name from entry {entry} {form}")
        if found[1] == "0.0.0.0":  # noqa: S104 - compared with, not bound to
            raise _Invalid(f"Host string ({found[1]}) is not routeable")
        _check_port(found[2])


def _check_servers(key: ConfigKey, elements: list[str]) -> None:
    """Raise _Invalid for invalid bootstrap servers, as ``ControllerQuorumBootstrapServersValidator``."""
    for entry in elements:
        found = _HOST_PORT.fullmatch(entry)
        if found is None:
            form = 'Each entry should be in the form "{host}:{port}"'
            raise _Invalid(f"Failed to parse host name from {entry} for the configuration {key.name}. {form}")
        _check_port(found[2])


def _check_port(text: str) -> None:
    try:
        port = parse_integer(text, 32)
    except ValueError:
        raise _Invalid(f'For input string: "{text}"') from None
    if not 0 <= port <= 0xFFFF:
        raise _Invalid(f"port out of range:{port}")


_LIST_RULES: dict[str, Callable[[ConfigKey, list[str]], None]] = {
    "replicas": _check_replicas,
    "voters": _check_voters,
    "servers": _check_servers,
}
