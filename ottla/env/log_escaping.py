"""Escaping of log lines that contain values of clients: one filter on every logger of a node.

A record is one line of printable characters, whatever is in its values: a transactional id with a line feed does not
begin a line of its own. The filter is on the loggers, so that it holds for every handler, also those of an application
that embeds a node, and no call has to remember it.
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
    "ottla.replicas",
    "ottla.retention",
    "ottla.scrub",
    "ottla.server",
    "ottla.share",
    "ottla.storage",
    "ottla.systemd",
    "ottla.telemetry",
    "ottla.txn",
    "ottla.upkeep",
)
"""Every logger of a node, also of the parts that are loaded when they are first used."""
LONGEST_CHARS = 2_048
"""Of one value: longer than the names and paths of an honest client, and a bounded part of a log."""
TRACEBACK_CHARS = 65_536
_NUMBERS = (int, float, type(None))


def escape(text: str, longest_chars: int | None = None) -> str:
    """Return a text as printable characters: control and format characters are escaped, what is too long is cut."""
    cut = text if longest_chars is None or len(text) <= longest_chars else text[:longest_chars] + "..."
    return cut if cut.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


class _Escaped:
    """A value of a record, formatted when a handler formats the record."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return escape(str(self._value), LONGEST_CHARS)

    def __repr__(self) -> str:
        return escape(repr(self._value), LONGEST_CHARS)


class EscapingFilter(logging.Filter):
    """Escapes the message, the values and the traceback of each record, and lets all of them pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Escape a record before any handler sees it."""
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
    """Put the filter on every logger of a node; once is enough, and again does no harm."""
    for name in LOGGER_NAMES:
        logging.getLogger(name).addFilter(_FILTER)
