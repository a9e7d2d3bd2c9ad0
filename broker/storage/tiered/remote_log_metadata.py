"""Records of `__remote_log_metadata` as objects and as bytes: frame version, type, version as varints, then the body.

The key of these records is null. A record whose values describe no segment (a negative offset or size, an end before
the start, no leader epoch) is rejected, as by Kafka's constructors, which accept a negative size. Here are also the
choice of the metadata partition, and the valid transitions between states.

Source: ``RemoteLogMetadataSerde.java``, ``BytesApiMessageSerde.java``, ``RemoteLogSegmentMetadataTransform.java`` and
its siblings, ``RemoteLogSegmentState.isValidTransition``, ``RemoteLogMetadataTopicPartitioner.java`` (apache/kafka
4.3.1).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ottla.broker.storage.tiered.remote_storage import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from ottla.client.murmur2 import partition_for_key
from ottla.wire.codec import compiler
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.primitives import Buffer, read_uvarint, write_uvarint
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages import remote_log_records as wire

FRAME_VERSION = 1
RECORD_VERSION = 0
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"


class RemotePartitionDeleteState(enum.IntEnum):
    """Progress of the deletion of a partition in the remote store, with the numbers of Kafka's records."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataUpdate:
    """Record of a new state of a remote segment: its id, state, custom metadata, broker and time."""

    segment_id: RemoteLogSegmentId
    event_timestamp_ms: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    broker_id: int


@dataclass(frozen=True, slots=True)
class RemotePartitionDeleteMetadata:
    """Record of a new state of the deletion of a partition in the remote store, with broker and time."""

    topic_id: bytes
    topic: str
    partition: int
    state: RemotePartitionDeleteState
    event_timestamp_ms: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataSnapshot:
    """State of a remote segment in a snapshot of one partition; topic and partition are not in the record."""

    id: bytes
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_bytes: int
    segment_leader_epochs: dict[int, int]
    state: RemoteLogSegmentState
    custom_metadata: bytes | None = None
    txn_index_empty: bool = False


RemoteLogMetadata = (
    RemoteLogSegmentMetadata
    | RemoteLogSegmentMetadataUpdate
    | RemotePartitionDeleteMetadata
    | RemoteLogSegmentMetadataSnapshot
)

_NEXT_STATES: dict[RemoteLogSegmentState | None, tuple[RemoteLogSegmentState, ...]] = {
    None: (RemoteLogSegmentState.COPY_SEGMENT_STARTED,),
    RemoteLogSegmentState.COPY_SEGMENT_STARTED: (
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
    ),
    RemoteLogSegmentState.COPY_SEGMENT_FINISHED: (RemoteLogSegmentState.DELETE_SEGMENT_STARTED,),
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED: (RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,),
    RemoteLogSegmentState.DELETE_SEGMENT_FINISHED: (),
}


def is_valid_transition(source: RemoteLogSegmentState | None, target: RemoteLogSegmentState) -> bool:
    """Return whether a segment may change from ``source`` to ``target``; None as ``source``: it is not known yet.

    A repeated state is valid, as records are written again after a retry.
    """
    return source is target or target in _NEXT_STATES[source]


def metadata_partition(topic_id: bytes, partition: int, partition_count: int) -> int:
    """Return the 0-based partition of the metadata topic that has the records of a partition, by Kafka's hash.

    Args:
        topic_id: UUID of the topic, 16 bytes.
        partition: Partition of the topic.
        partition_count: Number of partitions of the metadata topic.
    """
    code = 1
    for half in (topic_id[8:], topic_id[:8]):  # Objects.hash(least significant bits, most significant bits, partition)
        code = 31 * code + (int.from_bytes(half[:4], "big") ^ int.from_bytes(half[4:], "big"))
    code = (31 * code + partition) & 0xFFFFFFFF
    return partition_for_key(code.to_bytes(4, "big"), partition_count)


def updated(metadata: RemoteLogSegmentMetadata, update: RemoteLogSegmentMetadataUpdate) -> RemoteLogSegmentMetadata:
    """Return a copy of a segment's metadata with the values of an update (``createWithUpdates``)."""
    assert metadata.segment_id == update.segment_id
    return replace(
        metadata,
        broker_id=update.broker_id,
        event_timestamp_ms=update.event_timestamp_ms,
        custom_metadata=update.custom_metadata,
        state=update.state,
    )


def encode_remote_log_metadata(metadata: RemoteLogMetadata) -> bytes:
    """Encode metadata as the value of a record of `__remote_log_metadata`."""
    message = _to_message(metadata)
    head = write_uvarint(FRAME_VERSION) + write_uvarint(spec_of(type(message)).key) + write_uvarint(RECORD_VERSION)
    return head + compiler.encode(message, RECORD_VERSION)


def decode_remote_log_metadata(raw: Buffer) -> RemoteLogMetadata:
    """Decode the value of a record of `__remote_log_metadata` as the object of its type.

    Raises:
        WireError: unknown type or version, malformed body, or values that no segment can have.
    """
    try:
        frame, pos = read_uvarint(raw, 0)
        key, pos = read_uvarint(raw, pos)
        version, pos = read_uvarint(raw, pos)
    except IndexError:
        raise WireError("record of remote log metadata without type and version") from None
    decode = _DECODERS.get(key)
    if decode is None or frame != FRAME_VERSION or version != RECORD_VERSION:
        raise WireError(f"unknown record of remote log metadata: frame version {frame}, type {key}, version {version}")
    cls, from_message = decode
    message = compiler.decode(cls, version, raw, pos)[0]
    try:
        metadata: RemoteLogMetadata = from_message(message)
    except ValueError as error:
        raise WireError(f"{cls.__name__}: {error}") from None
    return metadata


def _to_message(metadata: RemoteLogMetadata) -> Message:
    match metadata:
        case RemoteLogSegmentMetadata():
            return _segment_record(metadata)
        case RemoteLogSegmentMetadataUpdate():
            return wire.RemoteLogSegmentMetadataUpdateRecord(
                remote_log_segment_id=_update_segment_id(metadata.segment_id),
                broker_id=metadata.broker_id,
                event_timestamp_ms=metadata.event_timestamp_ms,
                custom_metadata=metadata.custom_metadata,
                remote_log_segment_state=metadata.state,
            )
        case RemotePartitionDeleteMetadata():
            return wire.RemotePartitionDeleteMetadataRecord(
                topic_id_partition=wire.RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry(
                    metadata.topic, metadata.topic_id, metadata.partition
                ),
                broker_id=metadata.broker_id,
                event_timestamp_ms=metadata.event_timestamp_ms,
                remote_partition_delete_state=metadata.state,
            )
        case RemoteLogSegmentMetadataSnapshot():
            return _snapshot_record(metadata)


def _segment_fields(
    metadata: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataSnapshot, entry: Callable[[int, int], Message]
) -> dict[str, Any]:
    """Return the fields that the record of a segment and that of a snapshot share.

    ``entry`` creates the message of a leader epoch from the epoch and its start offset.
    """
    return {
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "broker_id": metadata.broker_id,
        "max_timestamp_ms": metadata.max_timestamp_ms,
        "event_timestamp_ms": metadata.event_timestamp_ms,
        "segment_leader_epochs": [entry(*pair) for pair in sorted(metadata.segment_leader_epochs.items())],
        "segment_size_in_bytes": metadata.segment_size_bytes,
        "custom_metadata": metadata.custom_metadata,
        "remote_log_segment_state": metadata.state,
        "txn_index_empty": metadata.txn_index_empty,
    }


def _segment_record(metadata: RemoteLogSegmentMetadata) -> wire.RemoteLogSegmentMetadataRecord:
    segment_id = metadata.segment_id
    partition = wire.RemoteLogSegmentMetadataRecordTopicIdPartitionEntry(
        segment_id.topic, segment_id.topic_id, segment_id.partition
    )
    return wire.RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=wire.RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry(partition, segment_id.id),
        **_segment_fields(metadata, wire.RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry),
    )


def _snapshot_record(metadata: RemoteLogSegmentMetadataSnapshot) -> wire.RemoteLogSegmentMetadataSnapshotRecord:
    return wire.RemoteLogSegmentMetadataSnapshotRecord(
        segment_id=metadata.id,
        **_segment_fields(metadata, wire.RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry),
    )


def _update_segment_id(
    segment_id: RemoteLogSegmentId,
) -> wire.RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry:
    return wire.RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry(
        wire.RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry(
            segment_id.topic, segment_id.topic_id, segment_id.partition
        ),
        segment_id.id,
    )


def _segment_id(entry: Any) -> RemoteLogSegmentId:
    partition = entry.topic_id_partition
    return RemoteLogSegmentId(partition.id, partition.name, partition.partition, entry.id)


def _segment_values(record: Any) -> dict[str, Any]:
    """Check the record of a segment or of a snapshot, and return the attributes that their metadata share.

    Raises:
        ValueError: The record describes no segment.
    """
    epochs = {entry.leader_epoch: entry.offset for entry in record.segment_leader_epochs}
    start, end, size = record.start_offset, record.end_offset, record.segment_size_in_bytes
    if start < 0 or end < start or size < 0:
        raise ValueError(f"invalid segment: offsets {start} to {end}, {size} bytes")
    if not epochs:
        raise ValueError(f"segment without leader epochs: offsets {start} to {end}")
    if max(epochs.values()) > end:
        raise ValueError(f"leader epoch from offset {max(epochs.values())} in a segment of offsets {start} to {end}")
    return {
        "start_offset": start,
        "end_offset": end,
        "max_timestamp_ms": record.max_timestamp_ms,
        "broker_id": record.broker_id,
        "event_timestamp_ms": record.event_timestamp_ms,
        "segment_size_bytes": size,
        "segment_leader_epochs": dict(sorted(epochs.items())),
        "state": RemoteLogSegmentState(record.remote_log_segment_state),
        "custom_metadata": record.custom_metadata,
        "txn_index_empty": record.txn_index_empty,
    }


def _from_segment_record(record: wire.RemoteLogSegmentMetadataRecord) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(segment_id=_segment_id(record.remote_log_segment_id), **_segment_values(record))


def _from_update_record(record: wire.RemoteLogSegmentMetadataUpdateRecord) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment_id=_segment_id(record.remote_log_segment_id),
        event_timestamp_ms=record.event_timestamp_ms,
        custom_metadata=record.custom_metadata,
        state=RemoteLogSegmentState(record.remote_log_segment_state),
        broker_id=record.broker_id,
    )


def _from_delete_record(record: wire.RemotePartitionDeleteMetadataRecord) -> RemotePartitionDeleteMetadata:
    partition = record.topic_id_partition
    return RemotePartitionDeleteMetadata(
        topic_id=partition.id,
        topic=partition.name,
        partition=partition.partition,
        state=RemotePartitionDeleteState(record.remote_partition_delete_state),
        event_timestamp_ms=record.event_timestamp_ms,
        broker_id=record.broker_id,
    )


def _from_snapshot_record(record: wire.RemoteLogSegmentMetadataSnapshotRecord) -> RemoteLogSegmentMetadataSnapshot:
    return RemoteLogSegmentMetadataSnapshot(id=record.segment_id, **_segment_values(record))


_DECODERS: dict[int, tuple[type[Message], Any]] = {
    spec_of(cls).key: (cls, from_message)
    for cls, from_message in (
        (wire.RemoteLogSegmentMetadataRecord, _from_segment_record),
        (wire.RemoteLogSegmentMetadataUpdateRecord, _from_update_record),
        (wire.RemotePartitionDeleteMetadataRecord, _from_delete_record),
        (wire.RemoteLogSegmentMetadataSnapshotRecord, _from_snapshot_record),
    )
}
