"""Encoding and decoding of `__transaction_state` records: a transactional id and its new state; null is a tombstone.

Source: ``TransactionLog.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ottla.broker.transactions.transaction_metadata import (
    EPOCH_BUMP_VERSION,
    FLEXIBLE_RECORDS_VERSION,
    NO_EPOCH,
    NO_PRODUCER_ID,
    UNPERSISTED_STATES,
    S,
    TransactionMetadata,
    TransactionState,
)
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

_VERSION = struct.Struct(">h")
_KEY_TYPE = 0
_NEWEST_VALUE_VERSION = 1


class TransactionRecord(NamedTuple):
    """Transactional id and its new state; None is a tombstone."""

    transactional_id: str
    transaction: TransactionMetadata | None


def encode(record: TransactionRecord, level: int) -> tuple[bytes, bytes | None]:
    """Return key and value as bytes, None as the value of a tombstone.

    ``level``: finalized transaction.version, which decides the version of the value: 0 at level 0, else 1.
    """
    key = _VERSION.pack(_KEY_TYPE) + compiler.encode(TransactionLogKey(record.transactional_id), 0)
    txn = record.transaction
    if txn is None:
        return key, None
    value = TransactionLogValue(
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state,
        transaction_partitions=None if txn.state is S.EMPTY else _partitions_by_topic(txn),
        transaction_last_update_timestamp_ms=txn.last_update_ms,
        transaction_start_timestamp_ms=txn.start_ms,
    )
    version = 0
    if level >= FLEXIBLE_RECORDS_VERSION:
        version = _NEWEST_VALUE_VERSION
        value.previous_producer_id = txn.previous_producer_id
        value.next_producer_id = txn.next_producer_id
        value.client_transaction_version = txn.client_transaction_version
    return key, _VERSION.pack(version) + compiler.encode(value, version)


def _partitions_by_topic(txn: TransactionMetadata) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(txn.partitions):
        topics.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic, partitions) for topic, partitions in topics.items()]


def record_classes(kind: int) -> tuple[type[Message], type[Message]] | None:
    """Return the key and value classes of a record type; None for an unknown one."""
    return (TransactionLogKey, TransactionLogValue) if kind == _KEY_TYPE else None


def form(key: bytes, value: bytes) -> tuple[type[Message], int] | None:
    """Return message class and version of an encoded value; None if too short, or if type or version is unknown."""
    if min(len(key), len(value)) < _VERSION.size or _VERSION.unpack_from(key) != (_KEY_TYPE,):
        return None
    (version,) = _VERSION.unpack_from(value)
    return (TransactionLogValue, version) if 0 <= version <= _NEWEST_VALUE_VERSION else None


def decode(key: bytes | None, value: bytes | None, parsed: Any = None) -> TransactionRecord | None:
    """Return the record of encoded key and value; None for an unknown type or version, which replay skips.

    ``parsed``: the value, if it is decoded already.

    Raises:
        WireError: the key has no type, or a record of a known version is malformed or has invalid fields.
    """
    if key is None or len(key) < _VERSION.size:
        raise WireError("a transaction record without a key")
    if _VERSION.unpack_from(key) != (_KEY_TYPE,):
        return None
    transactional_id = compiler.decode(TransactionLogKey, 0, key, _VERSION.size)[0].transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    if len(value) < _VERSION.size:
        raise WireError("a transaction record's value without a version")
    (version,) = _VERSION.unpack_from(value)
    if not 0 <= version <= _NEWEST_VALUE_VERSION:
        return None
    return TransactionRecord(
        transactional_id, _to_transaction(parsed or compiler.decode(TransactionLogValue, version, value, 2)[0])
    )


def _check(value: TransactionLogValue) -> TransactionState:
    """Check the fields of a record's value, which a client may have written; return the transaction's state.

    Raises:
        WireError: a field has a value that no coordinator writes.
    """
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise WireError(f"invalid transaction state: {value.transaction_status}") from None
    if state in UNPERSISTED_STATES:
        raise WireError(f"invalid transaction state: {state.state_name}")
    if value.producer_id < 0 or value.producer_epoch < 0:
        raise WireError(f"invalid producer: id {value.producer_id}, epoch {value.producer_epoch}")
    if min(value.previous_producer_id, value.next_producer_id) < NO_PRODUCER_ID:
        ids = f"previous {value.previous_producer_id}, next {value.next_producer_id}"
        raise WireError(f"invalid producer ids of a transition: {ids}")
    if not 0 <= value.client_transaction_version <= EPOCH_BUMP_VERSION:
        raise WireError(f"invalid client transaction version: {value.client_transaction_version}")
    return state


def _to_transaction(value: TransactionLogValue) -> TransactionMetadata:
    state = _check(value)
    topics = value.transaction_partitions or () if state is not S.EMPTY else ()
    return TransactionMetadata(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset((topic.topic, number) for topic in topics for number in topic.partition_ids),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        last_producer_epoch=NO_EPOCH,
        client_transaction_version=value.client_transaction_version,
    )
