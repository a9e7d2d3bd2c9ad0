"""Parsing of times on the command line to milliseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ottla.cli.arguments import MAX_INT64, parse_integer
from ottla.cli.errors import CommandFailed

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}
_AGO = re.compile(r"(?:\d{1,9}[dhms])+")


def datetime_ms(text: str) -> int:
    """Return milliseconds since 1970 of an ISO 8601 time; UTC without a zone.

    Raises:
        CommandFailed: the text is not such a time.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(
            f"time expected, such as 2026-01-31T12:00:00.000+01:00 (default zone: UTC): {text}"
        ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return (at - _EPOCH) // timedelta(milliseconds=1)


def local_time(ms: int) -> datetime:
    """Return the time in the local time zone of milliseconds since 1970; the fraction of a second is dropped."""
    return datetime.fromtimestamp(ms // 1000, UTC).astimezone()


def parse_time(text: str, now_ms: int) -> int:
    """Parse a time to milliseconds since 1970: ``now``, a time before now such as ``1h30m``, milliseconds, or ISO 8601.

    A number of up to 8 digits is a date, such as ``20260131``. An ISO 8601 time without a zone is UTC.

    Raises:
        CommandFailed: the text has none of these forms, or the time is before 1970.
    """
    if text == "now":
        return now_ms
    if _AGO.fullmatch(text):
        ago_ms = sum(int(part[:-1]) * _UNITS_MS[part[-1]] for part in re.findall(r"\d+[dhms]", text))
        return _checked_time(now_ms - ago_ms, text)
    number = parse_integer(text)
    if number is not None and 0 <= number <= MAX_INT64 and len(text) > len("20260131"):
        return number
    try:
        time_ms = datetime_ms(text)
    except CommandFailed:
        expected = "time expected, such as 1h30m (before now), 2026-01-31T12:00:00+01:00, 1769857200000 or now"
        raise CommandFailed(f"{expected}: {text}") from None
    return _checked_time(time_ms, text)


def _checked_time(time_ms: int, text: str) -> int:
    """Return a time that was given as ``text``.

    Raises:
        CommandFailed: it is before 1970: brokers give negative times another meaning.
    """
    if time_ms < 0:
        raise CommandFailed(f"brokers find no records by a timestamp before 1970: {text}")
    return time_ms
