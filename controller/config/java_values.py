"""Parsers and writers of numbers, booleans and lists in settings, as Java does it.

Source: ``ConfigDef.parseType`` and ``ConfigDef.convertToString`` (apache/kafka 4.3.1), which use ``String.trim``,
``Integer.parseInt``, ``Long.parseLong``, ``Double.parseDouble`` and ``Double.toString``.
"""

from __future__ import annotations

import re
from math import inf, isinf, isnan, nan
from unicodedata import decimal

WHITESPACE = "".join(map(chr, range(0x21)))
"""Characters that ``String.trim`` removes: every character up to U+0020."""
_COMMA = re.compile(r"[ \t\n\v\f\r]*,[ \t\n\v\f\r]*")
"""``AbstractConfig.COMMA_WITH_WHITESPACE``; ``\\s`` of a Java pattern is ASCII only."""
_LAST_BMP = "\uffff"
"""Last character that is one UTF-16 unit: ``Integer.parseInt`` accepts no digit beyond the basic plane."""
_MOST_DIGITS = 19
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?)0[xX]((?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+))[pP]([+-]?[0-9]+)[fFdD]?",
)
_SPECIAL = {"NaN": nan, "Infinity": inf}
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
"""Range in which ``Double.toString`` writes no exponent."""


def trim(text: str) -> str:
    """Return ``text`` without the whitespace that ``String.trim`` removes."""
    return text.strip(WHITESPACE)


def parse_integer(text: str, bits: int) -> int:
    """Return the value of a decimal integer, as ``Integer.parseInt``; the text is not trimmed here.

    Args:
        text: Digits of any script in Unicode's basic plane, with an optional sign.
        bits: Width of the Java type: 16, 32 or 64.

    Raises:
        ValueError: ``text`` is no integer (so with whitespace), or out of range.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or not digits.isdecimal() or max(digits) > _LAST_BMP:
        raise ValueError(text)
    plain = "".join(str(decimal(x)) for x in digits).lstrip("0") or "0"
    if len(plain) > _MOST_DIGITS:
        raise ValueError(text)
    value = -int(plain) if text[0] == "-" else int(plain)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(text)
    return value


def parse_double(text: str) -> float:
    """Return the value of a floating point literal of Java: decimal or hexadecimal, NaN and Infinity included.

    Raises:
        ValueError: ``text`` is no such literal.
    """
    text = trim(text)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned in _SPECIAL:
        return -_SPECIAL[unsigned] if text[0] == "-" else _SPECIAL[unsigned]
    found = _HEXADECIMAL.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sign, digits, exponent = found.groups()
    try:
        return float.fromhex(f"{sign}0x{digits}p{exponent}")
    except OverflowError:
        return float(f"{sign}inf")
    except ValueError:  # an exponent with very many digits
        return float(f"{sign}0" if exponent.startswith("-") or not digits.strip("0.") else f"{sign}inf")


def parse_boolean(text: str) -> bool:
    """Return True for ``true`` and False for ``false``, in any case (``String.equalsIgnoreCase``).

    Raises:
        ValueError: ``text`` is neither, or is not trimmed.
    """
    word = text.upper() if len(text) <= len("false") else ""
    if len(word) != len(text) or word not in ("TRUE", "FALSE"):
        raise ValueError(text)
    return word == "TRUE"


def parse_list(text: str) -> list[str]:
    """Return the elements of a comma-separated list, without whitespace around the commas; ``text`` must be trimmed.

    An empty text has no elements; empty elements between commas are returned.
    """
    return _COMMA.split(text) if text else []


def split(text: str, separator: str = ",") -> list[str]:
    """Return the result of ``String.split``: without trimming, and without empty strings at the end."""
    parts = text.split(separator)
    if len(parts) == 1:
        return parts
    while parts and not parts[-1]:
        parts.pop()
    return parts


def double_text(value: float) -> str:
    """Return a floating point number as ``Double.toString`` writes it."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    # lazy: 0.9 ms, 250 kB: only to print a setting of type double
    from decimal import Decimal

    sign, numbers, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int), "a finite number"
    digits, point = "".join(map(str, numbers)).rstrip("0"), len(numbers) + exponent
    minus = "-" if sign else ""
    if value == 0:
        return f"{minus}0.0"
    if not _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return f"{minus}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{digits}"
    return f"{minus}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
