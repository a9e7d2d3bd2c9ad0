"""Parsers of records for ``kafka-dump-log``: plain keys and values, and records of four internal topics as JSON.

These are ``__consumer_offsets``, ``__transaction_state``, ``__share_group_state`` and ``__cluster_metadata``.

Source: ``DumpLogSegments`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.broker.groups import records as group_records
from ottla.broker.share_state import records as share_records
from ottla.broker.transactions import records as transaction_records
from ottla.cli.kafka_tools.tool_options import ToolFailed
from ottla.controller.metadata.record_serde import FRAME_VERSION, decode_record
from ottla.tools.dump import REDACTED, secret_fields
from ottla.tools.message_json import camel_case, message_to_json
from ottla.wire.codec import compiler
from ottla.wire.codec.primitives import read_uvarint
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.messages.offset_records import GroupMetadataValue
from ottla.wire.record_batch.records import Record

_TYPE = struct.Struct(">h")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DECODERS: dict[str, Callable[[bytes], str]] = {
    "StringDecoder": lambda raw: raw.decode(errors="replace"),
    "IntegerDecoder": lambda raw: str(struct.unpack(">i", raw)[0]),
    "LongDecoder": lambda raw: str(struct.unpack(">q", raw)[0]),
}
DECODER_PACKAGE = "org.apache.kafka.tools.api."
DEFAULT_DECODER = f"{DECODER_PACKAGE}StringDecoder"
RecordClasses = Callable[[int], tuple[type[Message], type[Message]] | None]


class RecordText(NamedTuple):
    """Key and value of a record as text; None if there is none."""

    key: str | None
    value: str | None


RecordParser = Callable[[Record], RecordText]


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _decoder(name: str) -> Callable[[bytes], str]:
    short = name.removeprefix(DECODER_PACKAGE)
    if short not in _DECODERS:
        raise ToolFailed("Failed to load decoder class")
    return _DECODERS[short]


def plain_parser(key_decoder: str, value_decoder: str) -> RecordParser:
    """Return a parser of records that applies decoder classes of Kafka's tool to keys and values.

    The parser raises ToolFailed for bytes of another length than an integer decoder expects.

    Raises:
        ToolFailed: a decoder is unknown.
    """
    keys, values = _decoder(key_decoder), _decoder(value_decoder)

    def parse(record: Record) -> RecordText:
        try:
            key = None if record.key is None else keys(record.key)
            return RecordText(key, None if record.value is None else values(record.value))
        except struct.error as error:
            raise ToolFailed(str(error)) from None

    return parse


def _coordinator_parser(classes_of: RecordClasses) -> RecordParser:
    """Return a parser of records of an internal topic: a key begins with its record type, a value with its version.

    ``classes_of`` returns the message classes of key and value for a type, None for an unknown one. Of a record whose
    key or value it cannot decode the parser returns error text as key; it raises ToolFailed for one without a key.
    """

    def parse(record: Record) -> RecordText:
        if record.key is None:
            raise ToolFailed(
                f"Failed to decode message at offset {record.offset} using the specified decoder "
                "(message had a missing key)"
            )
        try:
            (kind,) = _TYPE.unpack_from(record.key)
            classes = classes_of(kind)
            if classes is None:
                return RecordText(f"Unknown record type {kind} at offset {record.offset}, skipping.", None)
            key = compiler.decode(classes[0], 0, record.key, _TYPE.size)[0]
            shown = _json({"type": str(kind), "data": message_to_json(key, 0)})
            if record.value is None:
                return RecordText(shown, "<DELETE>")
            (version,) = _TYPE.unpack_from(record.value)
            value = compiler.decode(classes[1], version, record.value, _TYPE.size)[0]
        except (WireError, struct.error) as error:
            return RecordText(f"Error at offset {record.offset}, skipping. {error}", None)
        return RecordText(shown, _json({"version": str(version), "data": _value_json(value, version)}))

    return parse


def _value_json(value: Message, version: int) -> dict[str, Any]:
    out = message_to_json(value, version)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == "consumer":
        for row, member in zip(out["members"], value.members, strict=True):
            for name, cls in (
                ("subscription", ConsumerProtocolSubscription),
                ("assignment", ConsumerProtocolAssignment),
            ):
                decoded = _protocol_json(cls, getattr(member, name))
                if decoded is not None:
                    row[name] = decoded
    return out


def _protocol_json(cls: type[Message], raw: bytes) -> dict[str, Any] | None:
    """Return a member's subscription or assignment (``raw``, of class ``cls``) as JSON; None if it is malformed."""
    try:
        (version,) = _TYPE.unpack_from(raw)
        return message_to_json(compiler.decode(cls, version, raw, _TYPE.size)[0], version)
    except (WireError, struct.error, KeyError, ValueError):
        return None


def _parse_metadata_record(record: Record) -> RecordText:
    """Return the metadata record as JSON, with secrets replaced, or error text if it cannot be decoded."""
    raw = record.value or b""
    try:
        frame, at = read_uvarint(raw, 0)
        if frame != FRAME_VERSION:
            raise WireError(
                f"Could not deserialize metadata record due to unknown frame version {frame}(only frame version "
                f"{FRAME_VERSION} is supported)"
            )
        _, at = read_uvarint(raw, at)
        version, _ = read_uvarint(raw, at)
        message = decode_record(raw)
    except WireError as error:
        return RecordText(None, f"Error at {record.offset}, skipping. {error}")
    hidden = {camel_case(name): REDACTED for name in secret_fields(message)}
    name = _WORD.sub("_", type(message).__name__).upper()
    row = {"type": name, "version": version, "data": {**message_to_json(message, version), **hidden}}
    return RecordText(None, _json(row))


INTERNAL_PARSERS: dict[str, RecordParser] = {
    "offsets-decoder": _coordinator_parser(group_records.record_classes),
    "transaction-log-decoder": _coordinator_parser(transaction_records.record_classes),
    "cluster-metadata-decoder": _parse_metadata_record,
    "share-group-state-decoder": _coordinator_parser(share_records.record_classes),
}
"""Parser of each option of ``kafka-dump-log``, in the order in which the tool looks for them."""
