"""`RemoteStorage` on an object store: segments as self-describing objects, verified when written and when read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ottla.broker.storage.tiered.object_store import ObjectStore
from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    SegmentFiles,
)
from ottla.broker.storage.tiered.segment_format import (
    CHECKSUM_CHUNK_BYTES,
    CHECKSUMS,
    MAX_INDEX_BYTES,
    TAIL_BYTES,
    ObjectIdentity,
    Part,
    SegmentDescriptor,
    SegmentEncoder,
    chunk_range,
    decode_descriptor,
    decode_footer,
    decode_identity,
    encode_identity,
    object_name,
    verify_chunks,
    verify_part,
)
from ottla.env.disk import Disk, File, read_file

COPY_PIECE_BYTES = 4 * CHECKSUM_CHUNK_BYTES
"""Bytes of records that a copy reads at a time."""
VERIFY_PIECE_BYTES = 32 * CHECKSUM_CHUNK_BYTES
"""Bytes of records that one request of a verification returns."""
MAX_CACHED_DESCRIPTORS = 256


class OpenSegment(NamedTuple):
    """Descriptor of a segment object with the checksums of its records."""

    descriptor: SegmentDescriptor
    checksums: bytes


class SegmentStore:
    """`RemoteStorage` whose segments are objects of an `ObjectStore`. Its methods may be called in several threads."""

    def __init__(self, objects: ObjectStore, disk: Disk, *, reads_back: bool = True) -> None:
        """Create a store.

        Args:
            objects: the backend.
            disk: the disk with the local segments.
            reads_back: whether the records of a copy are read again and verified; its length, descriptor and
                checksums always are.
        """
        self.objects = objects
        self._disk = disk
        self._reads_back = reads_back
        self._lock = threading.Lock()  # never held during a call of the store or the disk
        self._descriptors: OrderedDict[str, OpenSegment] = OrderedDict()

    # ------------------------------------------------------------------ RemoteStorage

    def copy_segment(self, metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> bytes | None:
        """Store a segment whole or not at all, verify it, and return length and checksum as custom metadata.

        Raises:
            RemoteStorageError: the segment cannot be read or stored, or its copy differs or cannot be read back; then
                the copy is deleted, if that is possible.
        """
        try:
            name = object_name(metadata)
            encoder = SegmentEncoder(metadata, self._read_indexes(files))
            file = self._disk.open(str(files.log), readonly=True)
        except (OSError, ValueError) as error:
            raise RemoteStorageError(f"cannot read segment: {files.log}: {error}") from error
        try:
            pieces = _read_records(file, metadata.segment_size_bytes, str(files.log))
            self.objects.put(name, _local_errors(encoder.encode(pieces), str(files.log)), encoder.minimum_bytes)
        finally:
            file.close()
        assert encoder.identity is not None, "the store has consumed the object's bytes"
        try:
            self._verify_copy(name, encoder.identity)
        except RemoteStorageError:
            with suppress(RemoteStorageError):
                self.objects.delete(name)
            raise
        return encode_identity(encoder.identity)

    def fetch_segment(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> bytes:
        """Return bytes [start, end) of the segment's records, fewer at its end, after a check of their checksums.

        Raises:
            RemoteResourceNotFoundError: the object does not exist. CorruptRemoteSegmentError: it is truncated, damaged,
                or not the object of the segment's custom metadata. RemoteStorageError: the store failed.
            ValueError: ``start`` is negative or above ``end``.
        """
        if not 0 <= start <= end:
            raise ValueError(f"invalid range: {start} to {end}")
        name = self._name(metadata)
        segment = self._open(name, decode_identity(metadata.custom_metadata))
        end = min(end, segment.descriptor.records.length)
        if start >= end:
            return b""
        first, last = chunk_range(segment.descriptor, start, end)
        data = self._read_records(name, segment, first, last)
        return data if (first, last) == (start, end) else data[start - first : end - first]

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        """Return a stored index, whole, after a check of its checksum.

        Raises:
            RemoteResourceNotFoundError: the segment does not exist, or has no such index.
            CorruptRemoteSegmentError: its object is truncated, damaged, or not that of the segment's custom metadata.
            RemoteStorageError: the store failed.
        """
        name = self._name(metadata)
        segment = self._open(name, decode_identity(metadata.custom_metadata))
        part = segment.descriptor.parts.get(index.value)
        if part is None:
            raise RemoteResourceNotFoundError(f"segment has no {index.value} index: {name}")
        return self.read_part(name, part)

    def delete_segment(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete a segment's object; one that does not exist is no error."""
        name = self._name(metadata)
        with self._lock:
            self._descriptors.pop(name, None)
        self.objects.delete(name)

    # ------------------------------------------------------------------ objects by name

    def describe(self, name: str, object_bytes: int | None = None) -> OpenSegment:
        """Read the end of an object; return its descriptor and the checksums of its records.

        Args:
            name: name of the object.
            object_bytes: its length, None if it is not known.

        Raises:
            RemoteResourceNotFoundError: it does not exist. CorruptRemoteSegmentError: it is truncated or damaged, or no
                segment object. RemoteStorageError: the store failed.
        """
        size = self.objects.size(name) if object_bytes is None else object_bytes
        tail_start = max(0, size - TAIL_BYTES)
        tail = self._range(name, tail_start, size) if size else b""
        try:
            footer = decode_footer(tail, size)

            def read(start: int, length: int) -> bytes:
                at = start - tail_start
                return tail[at : at + length] if at >= 0 else self._range(name, start, start + length)

            descriptor = decode_descriptor(read(footer.position, footer.length), footer)
            part = descriptor.parts[CHECKSUMS]
            checksums = read(part.position, part.length) if part.length else b""
            verify_part(part, checksums)
        except CorruptRemoteSegmentError as error:
            raise _named(name, error) from None
        return OpenSegment(descriptor, checksums)

    def read_part(self, name: str, part: Part) -> bytes:
        """Return the bytes of a part of an object, such as an index, after a check of its checksum; not the records.

        Raises:
            RemoteResourceNotFoundError: the object does not exist. CorruptRemoteSegmentError: the part is truncated or
                damaged. RemoteStorageError: the store failed.
        """
        data = self._range(name, part.position, part.end) if part.length else b""
        try:
            verify_part(part, data)
        except CorruptRemoteSegmentError as error:
            raise _named(name, error) from None
        return data

    def records(self, name: str, segment: OpenSegment) -> Iterator[bytes]:
        """Yield the records of an object in verified pieces of about `VERIFY_PIECE_BYTES`.

        Raises:
            RemoteResourceNotFoundError: the object does not exist. CorruptRemoteSegmentError: a piece is truncated or
                damaged. RemoteStorageError: the store failed.
        """
        size = segment.descriptor.records.length
        step = max(VERIFY_PIECE_BYTES // segment.descriptor.chunk_bytes, 1) * segment.descriptor.chunk_bytes
        for start in range(0, size, step):
            yield self._read_records(name, segment, start, min(start + step, size))

    def verify(self, name: str, segment: OpenSegment) -> None:
        """Read an object whole and check all its checksums.

        Raises:
            CorruptRemoteSegmentError: it is truncated, or a checksum is wrong.
            RemoteStorageError: it does not exist, or the store failed.
        """
        for _ in self.records(name, segment):
            pass
        for part in segment.descriptor.parts.values():
            if part is not segment.descriptor.records:
                self.read_part(name, part)

    # ------------------------------------------------------------------ details

    def _name(self, metadata: RemoteLogSegmentMetadata) -> str:
        try:
            return object_name(metadata)
        except ValueError as error:
            raise RemoteStorageError(str(error)) from None

    def _verify_copy(self, name: str, identity: ObjectIdentity) -> None:
        """Check that the store has the object with this length and checksum; read the records again if so configured.

        Raises:
            RetriableRemoteStorageError: it has another one or none; a further attempt writes the object again.
            RemoteStorageError: the store failed.
        """
        try:
            size = self.objects.size(name)
            if size != identity.object_bytes:
                raise CorruptRemoteSegmentError(f"{name}: {size} bytes ({identity.object_bytes} were sent)")
            segment = self._open(name, identity, cached=False)
            if self._reads_back:
                self.verify(name, segment)
        except (CorruptRemoteSegmentError, RemoteResourceNotFoundError) as error:
            raise RetriableRemoteStorageError(f"uploaded segment differs from the local one: {error}") from error

    def _open(self, name: str, identity: ObjectIdentity | None, *, cached: bool = True) -> OpenSegment:
        """Return a segment's descriptor, from the cache if ``cached``; add it to the cache.

        Raises:
            CorruptRemoteSegmentError: it is damaged, or does not have the given identity (None: any is accepted).
            RemoteResourceNotFoundError: it does not exist. RemoteStorageError: the store failed.
        """
        with self._lock:
            known = self._descriptors.get(name) if cached else None
            if known is not None:
                self._descriptors.move_to_end(name)
        segment = known or self.describe(name, None if identity is None else identity.object_bytes)
        if identity is not None and segment.descriptor.crc32c != identity.crc32c:
            raise CorruptRemoteSegmentError(f"object was replaced: {name} (descriptor has another checksum)")
        if known is None:
            with self._lock:
                self._descriptors[name] = segment
                while len(self._descriptors) > MAX_CACHED_DESCRIPTORS:
                    self._descriptors.popitem(last=False)
        return segment

    def _range(self, name: str, start: int, end: int) -> bytes:
        data = self.objects.get_range(name, start, end)
        if len(data) != end - start:
            raise CorruptRemoteSegmentError(f"{name}: {len(data)} bytes at {start} ({end - start} expected)")
        return data

    def _read_records(self, name: str, segment: OpenSegment, start: int, end: int) -> bytes:
        data = self._range(name, start, end)
        try:
            verify_chunks(segment.descriptor, segment.checksums, start, data)
        except CorruptRemoteSegmentError as error:
            raise _named(name, error) from None
        return data

    def _read_indexes(self, files: SegmentFiles) -> dict[IndexType, bytes]:
        """Read a segment's index files; return their contents by type, with the leader epochs.

        Raises:
            OSError: one cannot be read; ValueError: one is too long.
        """
        paths = {
            IndexType.OFFSET: files.offset_index,
            IndexType.TIMESTAMP: files.time_index,
            IndexType.PRODUCER_SNAPSHOT: files.producer_snapshot,
            IndexType.TRANSACTION: files.transaction_index,
        }
        given = {index: str(path) for index, path in paths.items() if path is not None}
        for index, path in given.items():
            size = self._disk.stat(path).size_bytes
            if size > MAX_INDEX_BYTES:
                raise ValueError(f"{index.value} index of {size} bytes (at most {MAX_INDEX_BYTES})")
        indexes = {index: read_file(self._disk, path) for index, path in given.items()}
        return {**indexes, IndexType.LEADER_EPOCH: files.leader_epochs}


def _named(name: str, error: CorruptRemoteSegmentError) -> CorruptRemoteSegmentError:
    return CorruptRemoteSegmentError(f"{name}: {error}")


def _read_records(file: File, size: int, path: str) -> Iterator[bytes]:
    """Yield the records of a local segment in pieces of `COPY_PIECE_BYTES`, after a check of its length.

    Raises:
        ValueError: it is not ``size`` bytes long. OSError: it cannot be read.
    """
    actual = file.size()
    if actual != size:
        raise ValueError(f"segment has {actual} bytes ({size} expected)")
    for start in range(0, size, COPY_PIECE_BYTES):
        length = min(COPY_PIECE_BYTES, size - start)
        piece = file.pread(length, start)
        if len(piece) != length:
            raise ValueError(f"segment was truncated at {start + len(piece)}")
        yield piece


def _local_errors(chunks: Iterator[bytes], path: str) -> Iterator[bytes]:
    """Yield ``chunks``; raise an error of the local segment ``path`` as RemoteStorageError, which ends the upload."""
    try:
        yield from chunks
    except (OSError, ValueError) as error:
        raise RemoteStorageError(f"cannot read segment: {path}: {error}") from error
