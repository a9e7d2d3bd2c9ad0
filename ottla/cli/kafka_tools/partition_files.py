"""JSON files with partitions that tools read: ``{"partitions": [{"topic": "t", "partition": 0, ...}]}``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.cli.arguments import MAX_INT32, MAX_INT64
from ottla.cli.kafka_tools.tool_options import ToolFailed

MAPPING_EXCEPTION = "com.fasterxml.jackson.databind.JsonMappingException: "
"""Prefix of a message where a tool prints the exception of a malformed file with its class."""


def _is_integer(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -most - 1 <= value <= most


_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "topic": ("String", lambda value: isinstance(value, str)),
    "partition": ("Integer", lambda value: _is_integer(value, MAX_INT32)),
    "offset": ("Long", lambda value: _is_integer(value, MAX_INT64)),
}
"""Java class of each field, and the check of its value."""


def read_json(path: str, prefix: str = "") -> Any:
    """Return the content of a JSON file; None if it is not JSON. ``prefix`` stands before the error message.

    Raises:
        ToolFailed: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except OSError:
        raise ToolFailed(f"{prefix}Unable to read file {path}") from None
    except (ValueError, RecursionError):  # the latter: deeply nested
        return None


def partition_entries(content: Any, names: Sequence[str], missing: str, prefix: str = "") -> list[list[Any]]:
    """Return the named fields of each row of ``partitions``: the topic is a text, the others are integers.

    ``missing`` is the error message for a file without ``partitions``, ``prefix`` stands before other messages.

    Raises:
        ToolFailed: a field is missing or has another type.
    """
    if not isinstance(content, dict):
        raise ToolFailed(f"{prefix}Expected JSON object, received {json.dumps(content)}")
    if "partitions" not in content:
        raise ToolFailed(missing)
    out = []
    for row in content["partitions"] if isinstance(content["partitions"], list) else [None]:
        if not isinstance(row, dict):
            raise ToolFailed(f"{prefix}Expected JSON object, received {json.dumps(row)}")
        for name in names:
            if name not in row:
                raise ToolFailed(f"{prefix}No such field exists: `{name}`")
            kind, is_valid = _KINDS[name]
            if not is_valid(row[name]):
                raise ToolFailed(f"{prefix}Expected `{kind}` value, received {json.dumps(row[name])}")
        out.append([row[name] for name in names])
    return out
