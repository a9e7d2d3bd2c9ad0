"""Checks of the settings for the export by OTLP, and its HTTP headers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from ottla.broker.config.listener_config import ConfigException
from ottla.client.http_client import is_http_url
from ottla.controller.config.config_keys import OTLP_ENDPOINT, OTLP_HEADERS, OTLP_TRACE_RATIO
from ottla.controller.config.java_values import parse_double, split

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_OWN_HEADERS = frozenset({"host", "content-type", "content-length", "connection", "transfer-encoding"})
"""Headers that each request has already."""


def check_otlp_settings(values: Mapping[str, str]) -> None:
    """Check endpoint, headers and trace ratio of the export; the ratio only for NaN, which no check of bounds finds.

    Raises:
        ConfigException: one of them is invalid; the message has no value of a header.
    """
    endpoint = values.get(OTLP_ENDPOINT)
    if endpoint and not is_http_url(endpoint):
        raise ConfigException(f"{OTLP_ENDPOINT} must be a URL http://HOST:PORT or https://HOST:PORT")
    parse_otlp_headers(values.get(OTLP_HEADERS, ""))
    if math.isnan(parse_double(values.get(OTLP_TRACE_RATIO, "0"))):
        raise ConfigException(f"Invalid value NaN for configuration {OTLP_TRACE_RATIO}: Value must be from 0 to 1")


def parse_otlp_headers(text: str) -> dict[str, str]:
    """Return the HTTP headers in ``NAME=VALUE`` pairs separated by commas.

    Raises:
        ConfigException: an item is no such pair, a name is invalid, reserved or repeated, or a value has a control
            character.
    """
    out: dict[str, str] = {}
    for number, item in enumerate(split(text) if text.strip() else (), 1):
        name, separator, value = item.partition("=")
        name, value = name.strip(), value.strip()
        if not separator:
            raise ConfigException(f"{OTLP_HEADERS}: NAME=VALUE expected, entry {number} has no '='")
        if not _TOKEN.fullmatch(name):
            raise ConfigException(f"{OTLP_HEADERS}: the name in entry {number} is not a name of an HTTP header")
        if _CONTROL.search(value):
            raise ConfigException(f"{OTLP_HEADERS}: the value of {name} has a control character")
        if name.lower() in _OWN_HEADERS or name.lower() in map(str.lower, out):
            raise ConfigException(f"{OTLP_HEADERS}: {name} is set by the exporter or occurs twice")
        out[name] = value
    return out
