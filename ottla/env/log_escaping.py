"""Escaping of control characters in log records, which may contain clients' values: a filter on each logger of a node.

A log record is one line of printable characters for any values: a transactional id with a line feed does
not begin a new line. Only a traceback follows it, in indented lines. Long values are cut. The filter is on the loggers,
so that it applies to every handler, also those of an application that embeds a node, and no logging call has to escape
values. Commands escape values in their output with `escape`.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any

LOGGER_NAMES = (
    "ottla.admin",
    "ottla.audit",
    "ottla.auth",
    "ottla.channel",
    "ottla.cleaner",
    "ottla.client",
    "ottla.config",
    "ottla.connection",
    "ottla.console",
    "ottla.controller",
    "ottla.coordinator",
    "ottla.directories",
    "ottla.fetcher",
    "ottla.files",
    "ottla.http",
    "ottla.isr",
    "ottla.lifecycle",
    "ottla.loggers",
    "ottla.making",
    "ottla.modules",
    "ottla.moves",
    "ottla.otlp",
    "ottla.replicas",
    "ottla.retention",
    "ottla.scrub",
    "ottla.server",
    "ottla.share",
    "ottla.storage",
    "ottla.systemd",
    "ottla.telemetry",
    "ottla.tiered",
    "ottla.txn",
    "ottla.upkeep",
)
"""All loggers of a node, including those of modules that are imported later."""
LONGEST_CHARS = 2_048
"""Maximum length of one value in a log record: longer than regular names and paths, but bounded."""
TRACEBACK_CHARS = 65_536
_NUMBERS = (int, float, type(None))


def escape(text: str, longest_chars: int | None = None) -> str:
    """Return ``text`` with non-printable characters escaped; ``...`` replaces those after ``longest_chars``.

    The escapes are not counted. ``longest_chars`` None: nothing is cut.
    """
    cut = text if longest_chars is None or len(text) <= longest_chars else text[:longest_chars] + "..."
    return cut if cut.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


class _Escaped:
    """Argument of a log record that is escaped when a handler formats the record."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return escape(str(self._value), LONGEST_CHARS)

    def __repr__(self) -> str:
        return escape(repr(self._value), LONGEST_CHARS)


class EscapingFilter(logging.Filter):
    """Logging filter that escapes and cuts message, arguments and traceback of each record, and drops none."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Escape ``record`` in place before handlers get it; return True."""
        record.msg = escape(str(record.msg), LONGEST_CHARS)
        if isinstance(record.args, Mapping):
            record.args = {name: _escape_record_value(value) for name, value in record.args.items()}
        elif record.args:
            record.args = tuple(_escape_record_value(value) for value in record.args)
        if record.exc_info and not record.exc_text:
            lines = "".join(traceback.format_exception(*record.exc_info))[:TRACEBACK_CHARS].splitlines()
            # Indented: a line feed in the message of an exception does not begin a line of the log.
            record.exc_text = "\n".join("  " + escape(line, LONGEST_CHARS) for line in lines)
        return True


def _escape_record_value(value: Any) -> Any:
    return value if isinstance(value, _NUMBERS) else _Escaped(value)


_FILTER = EscapingFilter()


def install() -> None:
    """Add the filter to all loggers of a node; repeated calls have no effect."""
    for name in LOGGER_NAMES:
        logging.getLogger(name).addFilter(_FILTER)
