"""Texts of the configuration reference for types, units, defaults and valid values of settings."""

from __future__ import annotations

import re

TYPES = {
    "BOOLEAN": "boolean",
    "CLASS": "class name",
    "DOUBLE": "double",
    "INT": "int",
    "LIST": "list, separated by commas",
    "LONG": "long",
    "PASSWORD": "password; never returned by DescribeConfigs",
    "SHORT": "short",
    "STRING": "string",
}
UNITS = (
    (r"connection\.creation\.rate$", "connections per second"),
    (r"\.bytes\.per\.second$|throttled\.rate$", "bytes per second"),
    (r"\.(ms|millis)$", "ms"),
    (r"\.(seconds|secs)$", "seconds"),
    (r"\.minutes$", "minutes"),
    (r"\.hours$", "hours"),
    (r"\.bytes$|buffer\.size$|receive\.size$", "bytes"),
    (r"\.interval\.requests$", "requests"),
)
"""Patterns of names with the unit of the value; the first match counts."""
LARGEST = ("9223372036854775807", "2147483647", "1.7976931348623157E308")
MS_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
BYTE_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
CHECKS = {
    "-": "any",
    "list": "no empty elements",
    "replicas": "`PARTITION:BROKER,...`, or `*`",
    "reset": "`earliest`, `latest` or `by_duration:DURATION`",
    "servers": "`HOST:PORT,...`",
    "some": "at least one element",
    "something": "not empty",
    "voters": "`ID@HOST:PORT,...`",
}


def unit_of(name: str) -> str:
    """Return the unit of the values of a setting, or ``""`` if they have none."""
    return next((unit for pattern, unit in UNITS if re.search(pattern, name)), "")


def describe_type(name: str, kind: str) -> str:
    """Return the type of a setting, and its unit if it is a number with one."""
    unit = unit_of(name) if kind in ("DOUBLE", "INT", "LONG", "SHORT") else ""
    return f"{TYPES[kind]}, in {unit}" if unit else TYPES[kind]


def describe_default(name: str, default: str | None) -> str:
    """Return the default of a setting as Markdown, round times and sizes also in a larger unit; ``none`` for None."""
    if default is None:
        return "none"
    if default == "<required>":
        return "none; has to be set"
    if not default:
        return "empty"
    if default in LARGEST:
        return f"`{default}` (no limit)"
    scales = {"ms": MS_UNITS, "bytes": BYTE_UNITS}.get(unit_of(name), ())
    if default.isdecimal():
        number = int(default)
        for scale, unit in scales:
            if number >= scale and number % scale == 0:
                return f"`{default}` ({number // scale} {unit})"
    return f"`{default}`"


def _choices(text: str) -> str:
    return ", ".join(f"`{choice}`" for choice in text.split("|"))


def describe_valid_values(kind: str, check: str) -> str:
    """Return the valid values of a setting in words; ``check`` is that of `ConfigKey`."""
    if kind == "BOOLEAN":
        return "`true`, `false`"
    if check in CHECKS:
        return CHECKS[check]
    prefix, _, choices = check.rpartition(":")
    if "|" in choices:
        each = {"some": "at least one of ", "anycase": "in any case: "}.get(prefix, "elements: " * (kind == "LIST"))
        return each + _choices(choices)
    bounds, _, besides = check.partition(",")
    low, _, high = bounds.partition("..")
    text = f"{low} to {high}" if high else f"at least {low}"
    return f"{text}, or {besides}" if besides else text
