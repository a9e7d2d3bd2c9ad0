"""Conversion of output rows to YAML and CSV, for ``--output yaml`` and ``--output csv``."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_RESERVED = frozenset(["true", "false", "null", "yes", "no", "on", "off", "y", "n"])


def _scalar(value: Any) -> str:
    """Return a value as a YAML scalar: plain words unquoted, everything else as JSON, which is valid YAML."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    return json.dumps(value)


def yaml_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as a YAML sequence of mappings without a line end; ``[]`` for no rows."""
    if not rows:
        return "[]"
    lines = []
    for row in rows:
        for number, (key, value) in enumerate(row.items()):
            lines.append(f"{'  ' if number else '- '}{_scalar(key)}: {_scalar(value)}")
    return "\n".join(lines)


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, list | dict | bool) else value


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as CSV (RFC 4180) with a header line and without a last line end; an empty text for no rows.

    Lists, mappings and booleans are JSON; None is an empty cell.
    """
    if not rows:
        return ""
    heads = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_cell(row.get(head)) for head in heads] for row in rows)
    return out.getvalue().removesuffix("\n")
