"""Parser of durations in Java's form (ISO 8601), ``PnDTnHnMn.nS``, for offset resets ``by_duration``.

Source: ``java.time.Duration.parse`` as ``AutoOffsetResetStrategy.java`` uses it (apache/kafka 4.3.1).
"""

from __future__ import annotations

import re

BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"([-+]?)P(?=[-+0-9T])(?:([-+]?[0-9]+)D)?"
    r"(?:T(?=[-+0-9])(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
_UNITS_S = (86_400, 3_600, 60, 1)
_MOST_CHARS = 200
_MOST_S = 2**63


def by_duration_ms(text: str) -> int | None:
    """Return the duration in a text such as ``by_duration:PT1H`` in ms, rounded down; None if invalid or negative."""
    found = _DURATION.fullmatch(text.removeprefix(BY_DURATION)) if len(text) <= _MOST_CHARS else None
    if found is None or not text.startswith(BY_DURATION):
        return None
    sign, *whole, fraction = found.groups()
    seconds = [int(number or 0) * unit for number, unit in zip(whole, _UNITS_S, strict=True)]
    ns = int((fraction or "").ljust(9, "0"))
    total_ns = sum(seconds) * 1_000_000_000 + (-ns if (whole[-1] or "").startswith("-") else ns)
    total_ns = -total_ns if sign == "-" else total_ns
    if total_ns < 0 or any(abs(x) >= _MOST_S for x in (*seconds, sum(seconds))):
        return None
    return total_ns // 1_000_000
