"""Segments in a remote store of tiered storage, for ``ottla tier`` without a broker: list, verify, extract.

Also their records of the metadata topic, and the removal of unfinished uploads.
"""

from __future__ import annotations

import errno
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from ottla.broker.storage.tiered.directory_store import DirectoryStore
from ottla.broker.storage.tiered.object_store import ObjectStore, StoredObject
from ottla.broker.storage.tiered.remote_log_metadata import (
    REMOTE_LOG_METADATA_TOPIC,
    RemoteLogMetadata,
    RemoteLogSegmentMetadataUpdate,
    encode_remote_log_metadata,
    metadata_partition,
)
from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteResourceNotFoundError,
)
from ottla.broker.storage.tiered.segment_format import (
    OBJECT_SUFFIX,
    ObjectIdentity,
    check_topic,
    encode_identity,
    object_name,
)
from ottla.broker.storage.tiered.segment_store import OpenSegment, SegmentStore
from ottla.env.disk import Disk
from ottla.log.checkpoints.checkpoint_files import write_partition_metadata
from ottla.log.segment.log_segment import segment_file_name
from ottla.wire.codec.primitives import uuid_to_string

SUFFIXES = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
}
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"


class StoredSegment(NamedTuple):
    """Object of a remote store with the segment metadata that its descriptor has."""

    object: StoredObject
    metadata: RemoteLogSegmentMetadata
    """Metadata as after a finished copy, with the custom metadata of the store."""


class ObjectProblem(NamedTuple):
    """Object of a remote store that is no segment, is damaged or is left out; ``reason``: message for the user."""

    name: str
    reason: str


def list_segments(
    store: SegmentStore, topic: str | None = None, partition: int | None = None
) -> Iterator[StoredSegment | ObjectProblem]:
    """Yield the segments of a store in the order of its listing, and a problem for each object that is not a segment.

    Args:
        store: the store. The descriptor at the end of each object is read.
        topic: only this topic, None for all.
        partition: only this partition, None for all.

    Raises:
        RemoteStorageError: the store failed.
        ValueError: the topic's name is invalid.
    """
    prefix = "" if topic is None else f"{check_topic(topic)}/"
    for each in store.objects.list_objects(prefix):
        if partition is not None and f"/{partition}/" not in each.name:
            continue
        if not each.name.endswith(OBJECT_SUFFIX):
            yield ObjectProblem(each.name, "no segment object")
            continue
        try:
            metadata = _metadata(each.name, store.describe(each.name, each.size_bytes))
        except RemoteResourceNotFoundError:
            continue  # deleted since it was listed
        except CorruptRemoteSegmentError as error:
            yield ObjectProblem(each.name, str(error).removeprefix(f"{each.name}: "))
            continue
        if partition is None or metadata.segment_id.partition == partition:
            yield StoredSegment(each, metadata)


def _metadata(name: str, segment: OpenSegment) -> RemoteLogSegmentMetadata:
    """Return the segment metadata in an opened object, with size and checksum of the object as custom metadata.

    ``name``: name of the object.

    Raises:
        CorruptRemoteSegmentError: the object has another segment's name.
    """
    descriptor = segment.descriptor
    expected = object_name(descriptor.metadata)
    if expected != name:
        raise CorruptRemoteSegmentError(f"{name}: object of another segment: {expected}")
    identity = ObjectIdentity(descriptor.object_bytes, descriptor.crc32c)
    return replace(descriptor.metadata, custom_metadata=encode_identity(identity))


def verify_segment(store: SegmentStore, segment: StoredSegment) -> ObjectProblem | None:
    """Read a segment whole and check its checksums; return its problem, or None if it is undamaged.

    Raises:
        RemoteStorageError: the store failed.
    """
    name = segment.object.name
    try:
        store.verify(name, store.describe(name, segment.object.size_bytes))
    except (CorruptRemoteSegmentError, RemoteResourceNotFoundError) as error:
        return ObjectProblem(name, str(error).removeprefix(f"{name}: "))
    return None


class Extraction(NamedTuple):
    """Segments to extract, sorted by topic, partition and start offset, and those that are left out with the reason."""

    chosen: list[StoredSegment]
    omitted: list[ObjectProblem]


def choose_segments(segments: Iterable[StoredSegment]) -> Extraction:
    """Choose one segment for each start offset of a partition, the one that was copied last; the others are omitted.

    Several copies of an offset exist after a copy without a known result, and after an unclean leader election. Of
    topics with the same name, which was deleted and created again, the one with the last copy is chosen.
    """
    chosen: dict[tuple[str, int, int], StoredSegment] = {}
    omitted = []
    by_time = sorted(segments, key=lambda segment: (segment.metadata.event_timestamp_ms, segment.object.name))
    topic_ids = {each.metadata.segment_id.topic: each.metadata.segment_id.topic_id for each in by_time}
    for each in by_time:
        identity = each.metadata.segment_id
        if identity.topic_id != topic_ids[identity.topic]:
            newer = uuid_to_string(topic_ids[identity.topic])
            omitted.append(
                ObjectProblem(
                    each.object.name, f"belongs to an earlier topic of this name (topic id of the latest: {newer})"
                )
            )
            continue
        key = (identity.topic, identity.partition, each.metadata.start_offset)
        if key in chosen:
            before = chosen[key].object.name
            omitted.append(ObjectProblem(before, f"has the start offset of a later copy: {each.object.name}"))
        chosen[key] = each
    return Extraction([chosen[key] for key in sorted(chosen)], omitted)


def extract_segment(store: SegmentStore, disk: Disk, segment: StoredSegment, directory: str) -> str:
    """Write a segment below ``directory`` as files of Kafka's log; return the path of its ``.log`` file.

    The directory of the partition is created. It also gets the topic id and the leader epochs, those of the segment
    that is extracted last.

    Raises:
        FileExistsError: a file of the segment exists.
        RemoteStorageError: the segment cannot be read; OSError: a file cannot be written. No file of it is left,
            unless only the leader epochs or the topic id failed.
    """
    metadata, name = segment.metadata, segment.object.name
    identity = metadata.segment_id
    where = f"{directory.rstrip('/')}/{identity.topic}-{identity.partition}"
    stored = store.describe(name, segment.object.size_bytes)
    contents: list[tuple[str, Iterable[bytes]]] = [
        (segment_file_name(metadata.start_offset, ".log"), store.records(name, stored))
    ]
    parts = stored.descriptor.parts
    for index, suffix in SUFFIXES.items():
        if index.value in parts:
            file_name = segment_file_name(metadata.start_offset, suffix)
            contents.append((file_name, [store.read_part(name, parts[index.value])]))
    if IndexType.PRODUCER_SNAPSHOT.value in parts:
        snapshot = segment_file_name(metadata.end_offset + 1, ".snapshot")
        contents.append((snapshot, [store.read_part(name, parts[IndexType.PRODUCER_SNAPSHOT.value])]))
    disk.makedirs(where)
    written: list[str] = []
    try:
        for file_name, pieces in contents:
            path = f"{where}/{file_name}"
            if disk.exists(path):
                raise FileExistsError(errno.EEXIST, "File exists", path)
            written.append(path)
            _write(disk, path, pieces)
    except Exception:
        for path in written:
            with suppress(OSError):
                disk.unlink(path)
        raise
    if IndexType.LEADER_EPOCH.value in parts:
        _write(disk, f"{where}/{LEADER_EPOCH_FILE}", [store.read_part(name, parts[IndexType.LEADER_EPOCH.value])])
    write_partition_metadata(disk, where, identity.topic_id, sync=False)
    return f"{where}/{contents[0][0]}"


def _write(disk: Disk, path: str, pieces: Iterable[bytes]) -> None:
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        position = 0
        for piece in pieces:
            file.pwrite(piece, position)
            position += len(piece)
    finally:
        file.close()


class MetadataRecord(NamedTuple):
    """Record of `__remote_log_metadata` that describes a segment of a store; its key is null."""

    partition: int
    """Partition of the metadata topic."""
    timestamp_ms: int
    """Time of the copy in ms since 1970."""
    value: bytes


def metadata_records(metadata: RemoteLogSegmentMetadata, partition_count: int) -> list[MetadataRecord]:
    """Return the two records that a broker writes for a segment: copy started and copy finished.

    Args:
        metadata: metadata of a finished copy.
        partition_count: number of partitions of the metadata topic.
    """
    segment = metadata.segment_id
    partition = metadata_partition(segment.topic_id, segment.partition, partition_count)
    records: list[RemoteLogMetadata] = [
        replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED, custom_metadata=None),
        RemoteLogSegmentMetadataUpdate(
            segment,
            metadata.event_timestamp_ms,
            metadata.custom_metadata,
            RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            metadata.broker_id,
        ),
    ]
    at_ms = metadata.event_timestamp_ms
    return [MetadataRecord(partition, at_ms, encode_remote_log_metadata(record)) for record in records]


def metadata_record_to_json(record: MetadataRecord) -> dict[str, object]:
    """Return a record as a JSON object that ``ottla produce -i json`` takes."""
    return {
        "topic": REMOTE_LOG_METADATA_TOPIC,
        "partition": record.partition,
        "timestamp_ms": record.timestamp_ms,
        "key": None,
        "value_base64": b64encode(record.value).decode(),
    }


def remove_unfinished_uploads(objects: ObjectStore, modified_before_ms: int) -> list[str]:
    """Delete the unfinished uploads of a directory that were last modified before a time; return their names.

    ``modified_before_ms``: milliseconds since 1970. An object store has no such files: nothing is deleted.
    """
    return objects.remove_uploads(modified_before_ms) if isinstance(objects, DirectoryStore) else []
