"""Rows of plain values for the content of Kafka's files in a data directory, which ``ottla dump`` prints.

Fields of segment rows are those of Kafka's ``kafka-dump-log.sh``, so that the outputs can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from ottla.broker.groups import records as group_records
from ottla.broker.transactions.records import decode
from ottla.controller.config.config_keys import broker_key
from ottla.controller.metadata import record_serde
from ottla.controller.metadata.image import RESOURCE_BROKER
from ottla.controller.metadata.snapshot_files import read_snapshot
from ottla.env.disk import Disk, read_file
from ottla.jobs.job import run_to_end
from ottla.log.checkpoints.checkpoint_files import CorruptFile, read_properties
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.segment.indexes import OffsetIndex, TimeIndex, read_txn_index
from ottla.tools.segment_file_reader import SegmentFileReader
from ottla.wire.codec.primitives import uuid_to_string
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages.metadata_records import ConfigRecord
from ottla.wire.record_batch import batch_header, legacy_records
from ottla.wire.record_batch.compression import compression_type_of
from ottla.wire.record_batch.control_record import decode_control_record
from ottla.wire.record_batch.records import Record, iterate_records

Row = dict[str, Any]


def to_json_value(value: Any) -> Any:
    """Return a value as JSON types: messages as objects, 16 bytes as a base64 id, other bytes as text or hex."""
    if isinstance(value, Message):
        return {name: to_json_value(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [to_json_value(x) for x in value]
    if isinstance(value, bytes | memoryview):
        raw = bytes(value)
        if len(raw) == 16:
            return uuid_to_string(raw)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "0x" + raw.hex()
    return value


REDACTED = "(hidden)"
"""Text that replaces secret values."""
_SECRETS = {"UserScramCredentialRecord": ("salt", "stored_key", "server_key")}


def redact_record(record: Message) -> Any:
    """Return a metadata record as a JSON object, with secrets `REDACTED` (``MetadataRecordRedactor.java``)."""
    return {**to_json_value(record), **dict.fromkeys(secret_fields(record), REDACTED)}


def secret_fields(record: Message) -> tuple[str, ...]:
    """Return the names of the fields of a metadata record whose values are secret; empty if there are none."""
    if isinstance(record, ConfigRecord):
        is_set = record.resource_type == RESOURCE_BROKER and record.value is not None
        return ("value",) if is_set and is_secret(record.name) else ()
    return _SECRETS.get(type(record).__name__, ())


def is_secret(name: str) -> bool:
    """Return True if broker setting ``name`` may hold a secret: its type is PASSWORD, or the setting is unknown."""
    key = broker_key(name)
    return key is None or key.type == "PASSWORD"


def _decode_internal_record(topic: str, header: batch_header.BatchHeader, record: Record) -> Any:
    """Return a decoded record of three internal topics, or a control record of any topic, as JSON types; None else.

    They are the metadata log, ``__consumer_offsets`` and ``__transaction_state``. A malformed record is returned as
    ``{"unreadable": message}``.
    """
    try:
        if header.is_control:
            message = decode_control_record(record)
            return None if message is None else {type(message).__name__: to_json_value(message)}
        if topic == "__cluster_metadata":
            inner = record_serde.decode_record(record.value or b"")
            return {type(inner).__name__: redact_record(inner)}
        if topic == "__consumer_offsets":
            found = group_records.decode(record.key, record.value)
            return None if found is None else {"key": to_json_value(found.key), "value": to_json_value(found.value)}
        if topic == "__transaction_state":
            return _decode_transaction_record(record)
    except (WireError, msgspec.MsgspecError) as error:
        return {"unreadable": str(error)}
    return None


_TXN_ROW_NAMES = {
    "start_ms": "started_ms",
    "last_update_ms": "updated_ms",
    "last_producer_epoch": "last_epoch",
    "client_transaction_version": "client_version",
}
"""Output names of the transaction fields with other names in the code."""


def _decode_transaction_record(record: Record) -> Any:
    """Return a record of ``__transaction_state`` as JSON types: its id, and the transaction, None for a tombstone.

    The result is None for an unknown record type.
    """
    found = decode(record.key, record.value)
    if found is None or found.transaction is None:
        return found and {"id": found.transactional_id, "transaction": None}
    fields = {_TXN_ROW_NAMES.get(name, name): value for name, value in found.transaction._asdict().items()}
    del fields["last_epoch"]  # not stored in records
    partitions = sorted(f"{topic}-{number}" for topic, number in found.transaction.partitions)
    return {
        "id": found.transactional_id,
        "transaction": {**fields, "state": found.transaction.state.state_name, "partitions": partitions},
    }


def batch_summary(header: batch_header.BatchHeader, position: int, *, valid: bool) -> Row:
    """Return the row of a batch header at ``position`` (bytes in the file); ``valid``: whether its CRC matches."""
    return {
        "kind": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.records_count,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "leader_epoch": header.partition_leader_epoch,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "position": position,
        "max_timestamp": header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "codec": compression_type_of(header.attributes).name.lower(),
        "crc": header.crc,
        "valid": valid,
    }


def dump_segment(segment: SegmentFileReader, topic: str, *, deep: bool) -> Iterator[Row]:
    """Yield a row for each batch of a segment or metadata snapshot, and with ``deep`` for each record after its batch.

    Args:
        segment: open file.
        topic: topic of the segment; rows of the metadata log and of the internal topics of consumer groups and
            transactions have the decoded record as ``content``, beside key and value as `to_json_value`.
        deep: True for rows of records, too.

    A last row of kind ``damage`` stands for bytes at the end that are no batch.

    Raises:
        WireError: a batch, or with ``deep`` a record, is malformed.
    """
    end = 0
    for position, header, raw in segment.batches():
        yield batch_summary(header, position, valid=legacy_records.any_crc_matches(raw, header))
        end = position + header.size_bytes
        if not deep:
            continue
        for record in iterate_records(raw, header):
            row = {
                "kind": "record",
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                **_key_value(record),
                "headers": {k: to_json_value(v) for k, v in record.headers},
            }
            content = _decode_internal_record(topic, header, record)
            if content is not None:
                row["content"] = content
                if topic == "__cluster_metadata" and REDACTED in repr(content):
                    row["value"] = REDACTED
            yield row
    if end != segment.size_bytes:
        yield {"kind": "damage", "position": end, "bytes": segment.size_bytes - end}


def _key_value(record: Record) -> Row:
    return {
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
        "key": to_json_value(record.key),
        "value": to_json_value(record.value),
    }


def _dump_producer_snapshot(disk: Disk, path: str) -> Iterator[Row]:
    for pid, p in ProducerStateManager.unpack(read_file(disk, path), path).producers.items():
        last = p.batches[-1] if p.batches else None
        yield {
            "kind": "producer",
            "producer_id": pid,
            "producer_epoch": p.epoch,
            "coordinator_epoch": p.coordinator_epoch,
            "txn_first_offset": p.txn_first_offset,
            "last_timestamp": p.timestamp_ms,
            "last_sequence": p.last_sequence,
            "last_offset": last.last_offset if last else -1,
        }


def dump_file(disk: Disk, path: str, *, deep: bool = True) -> Iterator[Row]:
    """Yield the rows of a file, whose format its name determines; with ``deep`` also those of records.

    The key ``kind`` names the type of a row, on which its other keys depend: ``batch``, ``record``, ``damage``,
    ``index``, ``timeindex``, ``aborted``, ``producer``, or the name of another file. Bytes at the end of a segment that
    are no batch are a row of kind ``damage``, not an exception.

    Raises:
        CorruptFile, WireError: the file is damaged.
        ValueError: the name is not that of a file of a data directory.
        OSError: the file cannot be read.
    """
    directory, _, name = path.rpartition("/")
    topic = directory.rpartition("/")[2].rpartition("-")[0]
    stem, _, suffix = name.rpartition(".")
    if suffix == "checkpoint":
        run_to_end(read_snapshot(disk, path))
        with SegmentFileReader(disk, path) as segment:
            yield from dump_segment(segment, "__cluster_metadata", deep=deep)
    elif suffix == "log" and stem.isdigit():
        with SegmentFileReader(disk, path) as segment:
            yield from dump_segment(segment, topic, deep=deep)
    elif suffix == "index":
        index = OffsetIndex.unpack(int(stem), read_file(disk, path), path)
        for relative, position in zip(index.offsets, index.positions, strict=True):
            yield {"kind": "index", "offset": index.base_offset + relative, "position": position}
    elif suffix == "timeindex":
        times = TimeIndex.unpack(int(stem), read_file(disk, path), path)
        for timestamp, relative in zip(times.timestamps, times.offsets, strict=True):
            yield {"kind": "timeindex", "timestamp": timestamp, "offset": times.base_offset + relative}
    elif suffix == "txnindex":
        for entry in read_txn_index(disk, path):
            yield {"kind": "aborted", **entry._asdict()}
    elif suffix == "snapshot":
        yield from _dump_producer_snapshot(disk, path)
    else:
        yield from _small_file(disk, path, name)


def _small_file(disk: Disk, path: str, name: str) -> Iterator[Row]:
    text = read_file(disk, path).decode("utf-8", "replace")
    if name == "meta.properties":
        yield {"kind": name, **read_properties(disk, path)}
    elif name in ("quorum-state", ".kafka_cleanshutdown"):
        try:
            yield {"kind": name, **json.loads(text)}
        except ValueError as error:
            raise CorruptFile(f"{path}: {error}") from None
    elif name == "partition.metadata":
        yield {"kind": name, **dict(line.split(": ", 1) for line in text.split("\n") if ": " in line)}
    elif name.endswith("-checkpoint"):
        for line in text.split("\n")[2:]:
            fields = line.split(" ")
            if len(fields) == 3:
                yield {"kind": name, "topic": fields[0], "partition": int(fields[1]), "offset": int(fields[2])}
            elif len(fields) == 2:
                yield {"kind": name, "epoch": int(fields[0]), "start_offset": int(fields[1])}
    else:
        raise ValueError(f"{name} is no file of a data directory")
