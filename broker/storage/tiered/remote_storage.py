"""Interface between the broker and a remote store of log segments (KIP-405; RemoteStorageManager of Kafka 4.3.1)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol


class RemoteLogSegmentId(NamedTuple):
    """Identity of one copied segment: a segment that is copied again after a failure gets a new id."""

    topic_id: bytes
    """16 bytes."""
    topic: str
    partition: int
    id: bytes
    """16 random bytes."""


class RemoteLogSegmentState(enum.IntEnum):
    """States of a remote segment, with the numbers of Kafka's metadata records (RemoteLogSegmentState, 4.3.1)."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class IndexType(enum.Enum):
    """Files of a segment that are stored beside its records: indexes, producer snapshot and leader epochs."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    TRANSACTION = "transaction"
    LEADER_EPOCH = "leader_epoch"


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """Metadata of a remote segment, as stored in ``__remote_log_metadata``: offsets, epochs, size, time, state."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    """Last offset, inclusive."""
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_bytes: int
    segment_leader_epochs: dict[int, int] = field(default_factory=dict)
    """Start offset of each leader epoch within the segment."""
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    custom_metadata: bytes | None = None
    txn_index_empty: bool = False


class SegmentFiles(NamedTuple):
    """Local files of a rolled segment; the leader epoch checkpoint is given as bytes, as it has no file of its own."""

    log: Path
    offset_index: Path
    time_index: Path
    producer_snapshot: Path | None
    transaction_index: Path | None
    leader_epochs: bytes


class RemoteStorageError(Exception):
    """Raised if an operation of the remote store failed."""


class RetriableRemoteStorageError(RemoteStorageError):
    """Raised after a failure that may pass: a timeout, a server error, a lost connection, a full disk of the store."""


class RemoteResourceNotFoundError(RemoteStorageError):
    """Raised for a segment, index or object that the remote store, or the metadata of its segments, does not have."""


class CorruptRemoteSegmentError(RemoteStorageError):
    """Raised for a stored object that is truncated or damaged, or is not the object of the segment."""


class RemoteStorage(Protocol):
    """Interface of a store of segments. Its calls may take seconds: they are made in threads, never on the event loop.

    Each raises RemoteStorageError or a subclass of it if the store fails.
    """

    def copy_segment(self, metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> bytes | None:
        """Store a segment with its indexes whole or not at all, and verify the copy.

        Return the custom metadata for the metadata of the segment, None without any. ``files`` are the local files.
        After an error a copy may remain, if its deletion fails, too.
        """

    def fetch_segment(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> bytes:
        """Return bytes [start, end) of the segment's records; fewer at the segment's end.

        Raises RemoteResourceNotFoundError if the segment does not exist.
        """

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        """Return a stored index, whole. Raises RemoteResourceNotFoundError if the segment has none of this type."""

    def delete_segment(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete a segment with its indexes; a segment that does not exist is no error."""
