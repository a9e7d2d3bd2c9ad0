"""Filters of records: ``key=user-7``, ``value~timeout``, ``header.trace!=``, ``value.order.total=7`` (JSON)."""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.wire.record_batch.records import Record

HELP = (
    "print only matching records; FIELD is key, value, header.NAME, or value.PATH and key.PATH for a member of JSON, "
    "such as value.order.id; OP is = (equals), != (differs), ~ (contains the regular expression) or !~; "
    "may be repeated, then all must match"
)
_EXPRESSION = re.compile(r"(key|value|header)((?:\.[^=~!]+)?)(!?[=~])(.*)", re.DOTALL)


class RecordFilter(NamedTuple):
    """Condition on a field of a record: key, value, header, or a member of a JSON key or value.

    Attributes:
        field: ``key``, ``value`` or ``header``.
        path: name of the header, or names of the nested JSON members; empty for the whole key or value.
        accepts: function that checks the bytes of the field, None for a null.
        is_negated: True if the condition is fulfilled by records of which ``accepts`` accepts no field.
    """

    field: str
    path: tuple[str, ...]
    accepts: Callable[[bytes | None], bool]
    is_negated: bool

    def matches(self, record: Record) -> bool:
        """Return True if a record fulfils the condition; a record without the field fulfils only a negated one."""
        return any(self.accepts(value) for value in self._values(record)) is not self.is_negated

    def _values(self, record: Record) -> Iterator[bytes | None]:
        if self.field == "header":
            yield from (value for name, value in record.headers if name == self.path[0])
            return
        raw = record.key if self.field == "key" else record.value
        if not self.path:
            yield raw
            return
        try:
            found: Any = json.loads(raw or b"null")
        except (ValueError, RecursionError):
            return
        for name in self.path:
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return
        yield None if found is None else found.encode() if isinstance(found, str) else json.dumps(found).encode()


def parse_record_filter(text: str) -> RecordFilter:
    """Argument type: parse a filter such as ``value.order.id=7``: field, operator and operand; spaces are not removed.

    Raises:
        ArgumentTypeError: the expression has another form, or an invalid regular expression.
    """
    found = _EXPRESSION.fullmatch(text)
    if found is None or (found[1] == "header" and not found[2]):
        raise ArgumentTypeError(f"key=TEXT, value~REGEX, header.NAME=TEXT or value.PATH=TEXT expected: {text}")
    field, dotted, operator, operand = found.groups()
    path = () if not dotted else (dotted[1:],) if field == "header" else tuple(dotted[1:].split("."))
    wanted = operand.encode("utf-8", "surrogateescape")
    if operator.endswith("="):
        return RecordFilter(field, path, lambda value: value == wanted, operator.startswith("!"))
    try:
        pattern = re.compile(wanted)
    except re.error as error:
        raise ArgumentTypeError(f"invalid regular expression: {operand} ({error})") from None
    return RecordFilter(
        field, path, lambda value: bool(value is not None and pattern.search(value)), operator[0] == "!"
    )
