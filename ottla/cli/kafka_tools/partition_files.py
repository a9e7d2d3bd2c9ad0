"""Readers of JSON files of Kafka's tools, such as ``{"partitions": [{"topic": "t", "partition": 0}]}``."""

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


_Kind = tuple[str, Callable[[Any], bool]]
_STRING: _Kind = ("String", lambda value: isinstance(value, str))
_INTEGER: _Kind = ("Integer", lambda value: _is_integer(value, MAX_INT32))
_KINDS: Mapping[str, _Kind] = {
    "topic": _STRING,
    "partition": _INTEGER,
    "offset": ("Long", lambda value: _is_integer(value, MAX_INT64)),
    "version": _INTEGER,
    "replicas": _INTEGER,
    "log_dirs": _STRING,
}
"""Java class of each field, and the check of its value; of each item for the fields in `_LISTS`."""
_LISTS = ("replicas", "log_dirs")


def read_json(path: str, prefix: str = "") -> Any:
    """Return the decoded content of a JSON file; None if it is not valid JSON.

    ``prefix``: text before the error message.

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


def json_object(content: Any, prefix: str = "") -> dict[str, Any]:
    """Return a decoded JSON value after a check that it is an object; ``prefix``: text before the error message.

    Raises:
        ToolFailed: it is another value.
    """
    if not isinstance(content, dict):
        raise ToolFailed(f"{prefix}Expected JSON object, received {_compact_json(content)}")
    return content


def json_objects(content: Any, prefix: str = "") -> list[dict[str, Any]]:
    """Return a decoded JSON value after a check that it is a list of objects; ``prefix``: text before an error message.

    Raises:
        ToolFailed: it is another value.
    """
    if not isinstance(content, list):
        raise ToolFailed(f"{prefix}Expected JSON array, received {_compact_json(content)}")
    return [json_object(row, prefix) for row in content]


def _compact_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def field_value(row: Mapping[str, Any], name: str, prefix: str = "") -> Any:
    """Return field ``name`` of a decoded JSON object, after a check of its type: text, integer, or a list of them.

    ``prefix``: text before the error message.

    Raises:
        ToolFailed: the field is missing or has another type.
    """
    if name not in row:
        raise ToolFailed(f"{prefix}No such field exists: `{name}`")
    value, (kind, is_valid) = row[name], _KINDS[name]
    if name in _LISTS and not isinstance(value, list):
        raise ToolFailed(f"{prefix}Expected `JSON array` value, received {_compact_json(value)}")
    for item in value if name in _LISTS else (value,):
        if not is_valid(item):
            raise ToolFailed(f"{prefix}Expected `{kind}` value, received {_compact_json(item)}")
    return value


def partition_entries(content: Any, names: Sequence[str], missing: str, prefix: str = "") -> list[list[Any]]:
    """Return for each row in ``partitions`` of a decoded file the values of the fields ``names``, in their order.

    Args:
        content: decoded JSON file.
        names: fields that every row must have.
        missing: error message for a file without ``partitions``.
        prefix: text before other error messages.

    Raises:
        ToolFailed: ``partitions`` or a field is missing or has another type.
    """
    if "partitions" not in json_object(content, prefix):
        raise ToolFailed(missing)
    rows = json_objects(content["partitions"], prefix)
    return [[field_value(row, name, prefix) for name in names] for row in rows]
