"""Messages as JSON with the field names of Kafka's generated ``JsonConverter`` classes (apache/kafka 4.3.1)."""

from __future__ import annotations

import base64
from typing import Any

from ottla.wire.codec.primitives import uuid_to_string
from ottla.wire.codec.schema import FieldSpec, Message, fields_of


def camel_case(name: str) -> str:
    """Return the name of a field as Kafka's JSON has it, such as ``topicName`` for ``topic_name``."""
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def message_to_json(message: Message, version: int) -> dict[str, Any]:
    """Return the fields of a message in a version as JSON types, by Kafka's names.

    Fields that the version does not have, and tagged fields with their default value, are left out. Bytes are base64.
    """
    out = {}
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if version not in field.versions or (version in field.tagged and value == field.default_value()):
            continue
        out[camel_case(field.name)] = _field_to_json(field, value, version)
    return out


def _field_to_json(field: FieldSpec, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_value_to_json(field.element, item, version) for item in value]
    return _value_to_json(field.kind, value, version)


def _value_to_json(kind: str, value: Any, version: int) -> Any:
    if isinstance(value, Message):
        return message_to_json(value, version)
    if kind == "uuid":
        return uuid_to_string(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return value
