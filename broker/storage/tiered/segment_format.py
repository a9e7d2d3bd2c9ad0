"""Format of a segment object: one object holds the records of a segment, its indexes and a description of itself.

The records come first, so that a position in the segment is a position in the object. The other parts follow without
gaps, then a descriptor in JSON, then a footer of fixed length. Each part has a CRC-32C, the records also one for each
chunk, so that a range of them can be verified without the rest. `docs/reference/segment-objects.md` describes the
bytes. Functions here work on bytes and ranges; they do no I/O.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from ottla.wire.codec.primitives import Buffer, uuid_from_string, uuid_to_string
from ottla.wire.record_batch.crc import crc32c

MAGIC = b"OttlaSeg"
FORMAT_VERSION = 1
_FOOTER = struct.Struct(">qiIHHI8s")
FOOTER_BYTES = _FOOTER.size
CHECKSUM_CHUNK_BYTES = 256 * 1024
"""Bytes of records that have a checksum of their own. The last chunk is shorter."""
TAIL_BYTES = 64 * 1024
"""Bytes at the end of an object that a reader fetches first: footer, descriptor and most often the checksums."""
MAX_DESCRIPTOR_BYTES = 4 * 1024 * 1024
MAX_INDEX_BYTES = 256 * 1024 * 1024
MAX_RECORDS_BYTES = 2**31 - 1
RECORDS, CHECKSUMS = "records", "record_checksums"
INDEX_PARTS = tuple(index.value for index in IndexType)
MAX_TOPIC_CHARS = 249
_TOPIC = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_TOPIC_CHARS}}}", re.ASCII)
_CHUNK_LIMITS = (4096, 64 * 1024 * 1024)
_CUSTOM_METADATA = struct.Struct(">BqII")


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Byte range of a segment object: records, an index, producer snapshot, leader epochs, or checksums of records."""

    name: str
    position: int
    length: int
    crc32c: str
    """Checksum as 8 hexadecimal digits."""

    @property
    def end(self) -> int:
        """Position of the first byte after the part."""
        return self.position + self.length


class _DescriptorJson(msgspec.Struct, rename="camel"):
    """Descriptor of a segment object in the form in which it is stored as JSON."""

    topic: str
    topic_id: str
    partition: int
    segment_id: str
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    leader_epochs: list[tuple[int, int]]
    txn_index_empty: bool
    checksum_chunk_bytes: int
    parts: list[Part]


class Footer(NamedTuple):
    """Footer of a segment object: position, length and checksum of its descriptor."""

    position: int
    """Position of the descriptor."""
    length: int
    crc32c: int
    """Checksum of the descriptor."""


class SegmentDescriptor(NamedTuple):
    """Description of a segment object, as read from its end: segment metadata, parts, sizes and checksum."""

    metadata: RemoteLogSegmentMetadata
    parts: dict[str, Part]
    chunk_bytes: int
    object_bytes: int
    """Length of the whole object."""
    crc32c: int
    """Checksum of the stored descriptor."""

    @property
    def records(self) -> Part:
        """Part of the object with the records; its position is 0."""
        return self.parts[RECORDS]


class ObjectIdentity(NamedTuple):
    """Length of an object and checksum of its descriptor: the custom metadata of a segment."""

    object_bytes: int
    crc32c: int


def encode_identity(identity: ObjectIdentity) -> bytes:
    """Encode an object's identity as the custom metadata of a segment: version, length, checksum, own checksum."""
    body = _CUSTOM_METADATA.pack(FORMAT_VERSION, identity.object_bytes, identity.crc32c, 0)[:-4]
    return body + crc32c(body).to_bytes(4, "big")


def decode_identity(raw: bytes | None) -> ObjectIdentity | None:
    """Decode the custom metadata of a segment; None if ``raw`` is None, damaged or of another kind of store."""
    if raw is None or len(raw) != _CUSTOM_METADATA.size:
        return None
    version, object_bytes, descriptor_crc, own_crc = _CUSTOM_METADATA.unpack(raw)
    if version != FORMAT_VERSION or own_crc != crc32c(raw[:-4]) or object_bytes < FOOTER_BYTES:
        return None
    return ObjectIdentity(object_bytes, descriptor_crc)


# ---------------------------------------------------------------------- names


def check_topic(topic: str) -> str:
    """Return ``topic`` if it is a valid topic name; names of objects and directories are made of it.

    Raises:
        ValueError: the name is invalid in Kafka, such as one with a slash.
    """
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ValueError(f"invalid topic name: {topic[:MAX_TOPIC_CHARS]!r}")
    return topic


def object_name(metadata: RemoteLogSegmentMetadata) -> str:
    """Return the name of a segment's object: ``topic/topic id/partition/start offset-segment id.segment``.

    Raises:
        ValueError: the topic's name is invalid.
    """
    segment = metadata.segment_id
    directory = f"{check_topic(segment.topic)}/{uuid_to_string(segment.topic_id)}/{segment.partition}"
    return f"{directory}/{metadata.start_offset:020d}-{uuid_to_string(segment.id)}{OBJECT_SUFFIX}"


OBJECT_SUFFIX = ".segment"


# ---------------------------------------------------------------------- encoding


class SegmentEncoder:
    """Encoder of a segment object; it holds the indexes and one piece of the records in memory."""

    def __init__(self, metadata: RemoteLogSegmentMetadata, indexes: Mapping[IndexType, bytes]) -> None:
        self._metadata = metadata
        self._indexes = indexes
        self._parts: list[Part] = []
        self._position = 0
        self.identity: ObjectIdentity | None = None
        """Length and checksum of the object, once it is encoded."""

    @property
    def minimum_bytes(self) -> int:
        """Length in bytes of records and indexes, without checksums and descriptor."""
        return self._metadata.segment_size_bytes + sum(map(len, self._indexes.values()))

    def encode(self, records: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the object's bytes in order; set `identity` at the end.

        Args:
            records: the records in pieces, each but the last a multiple of `CHECKSUM_CHUNK_BYTES` long.

        Raises:
            ValueError: the records are not as long as the metadata state, or the descriptor is too long.
        """
        checksums = bytearray()
        whole = size = 0
        for piece in records:
            view = memoryview(piece)
            for start in range(0, len(view), CHECKSUM_CHUNK_BYTES):
                checksums += crc32c(view[start : start + CHECKSUM_CHUNK_BYTES]).to_bytes(4, "big")
            whole = crc32c(piece, whole)
            size += len(piece)
            yield piece
        if size != self._metadata.segment_size_bytes:
            raise ValueError(f"segment has {size} bytes of records ({self._metadata.segment_size_bytes} expected)")
        self._add(RECORDS, size, whole)
        for index in IndexType:
            if index in self._indexes:
                data = self._indexes[index]
                self._add(index.value, len(data), crc32c(data))
                yield data
        self._add(CHECKSUMS, len(checksums), crc32c(checksums))
        yield bytes(checksums)
        yield self._end()

    def _add(self, name: str, length: int, checksum: int) -> None:
        self._parts.append(Part(name, self._position, length, f"{checksum:08x}"))
        self._position += length

    def _end(self) -> bytes:
        metadata, segment = self._metadata, self._metadata.segment_id
        descriptor = msgspec.json.encode(
            _DescriptorJson(
                segment.topic,
                uuid_to_string(segment.topic_id),
                segment.partition,
                uuid_to_string(segment.id),
                metadata.start_offset,
                metadata.end_offset,
                metadata.max_timestamp_ms,
                metadata.broker_id,
                metadata.event_timestamp_ms,
                sorted(metadata.segment_leader_epochs.items()),
                metadata.txn_index_empty,
                CHECKSUM_CHUNK_BYTES,
                self._parts,
            )
        )
        if len(descriptor) > MAX_DESCRIPTOR_BYTES:
            raise ValueError(f"descriptor of {len(descriptor)} bytes (at most {MAX_DESCRIPTOR_BYTES})")
        footer = encode_footer(Footer(self._position, len(descriptor), crc32c(descriptor)))
        object_bytes = self._position + len(descriptor) + FOOTER_BYTES
        self.identity = ObjectIdentity(object_bytes, crc32c(descriptor))
        return descriptor + footer


def encode_footer(footer: Footer) -> bytes:
    """Return a footer encoded as the last `FOOTER_BYTES` bytes of a segment object."""
    body = _FOOTER.pack(*footer, FORMAT_VERSION, 0, 0, MAGIC)[: -4 - len(MAGIC)]
    return body + crc32c(body).to_bytes(4, "big") + MAGIC


# ---------------------------------------------------------------------- decoding


def decode_footer(raw: Buffer, object_bytes: int) -> Footer:
    """Return the footer at the end of ``raw``, which holds the last bytes of an object of ``object_bytes`` bytes.

    Raises:
        CorruptRemoteSegmentError: the object is truncated or damaged, or is no segment object.
    """
    if object_bytes < FOOTER_BYTES or len(raw) < FOOTER_BYTES:
        raise CorruptRemoteSegmentError(f"no segment object: {object_bytes} bytes (at least {FOOTER_BYTES} expected)")
    end = bytes(raw[-FOOTER_BYTES:])
    position, length, descriptor_crc, version, _, own_crc, magic = _FOOTER.unpack(end)
    if magic != MAGIC:
        raise CorruptRemoteSegmentError(f"no segment object, or a truncated one: it ends with {magic.hex(' ')}")
    if own_crc != crc32c(end[: -4 - len(MAGIC)]):
        raise CorruptRemoteSegmentError("footer is damaged: wrong checksum")
    if version != FORMAT_VERSION:
        raise CorruptRemoteSegmentError(f"unknown format: version {version} ({FORMAT_VERSION} expected)")
    if not 0 < length <= MAX_DESCRIPTOR_BYTES or position < 0 or position + length + FOOTER_BYTES != object_bytes:
        raise CorruptRemoteSegmentError(
            f"footer does not fit the object: descriptor of {length} bytes at {position}, {object_bytes} bytes in all"
        )
    return Footer(position, length, descriptor_crc)


def decode_descriptor(raw: bytes, footer: Footer) -> SegmentDescriptor:
    """Decode and check the descriptor of an object; ``raw`` has the bytes that ``footer`` points to.

    Raises:
        CorruptRemoteSegmentError: wrong checksum, or values that no segment has.
    """
    if len(raw) != footer.length or crc32c(raw) != footer.crc32c:
        raise CorruptRemoteSegmentError("descriptor is damaged: wrong checksum")
    try:
        stored = msgspec.json.decode(raw, type=_DescriptorJson)
        metadata = _checked_metadata(stored)
        parts = _checked_parts(stored, footer.position)
    except (ValueError, RecursionError) as error:
        raise CorruptRemoteSegmentError(f"invalid descriptor: {error}") from None
    return SegmentDescriptor(
        metadata, parts, stored.checksum_chunk_bytes, footer.position + footer.length + FOOTER_BYTES, footer.crc32c
    )


def _checked_metadata(stored: _DescriptorJson) -> RemoteLogSegmentMetadata:
    epochs = dict(stored.leader_epochs)
    if min(stored.partition, stored.start_offset, stored.broker_id) < 0 or stored.end_offset < stored.start_offset:
        raise ValueError(
            f"partition {stored.partition}, offsets {stored.start_offset} to {stored.end_offset}, "
            f"broker {stored.broker_id}"
        )
    if not epochs or len(epochs) != len(stored.leader_epochs) or min(*epochs, *epochs.values()) < 0:
        raise ValueError("no leader epochs, or a negative or repeated one")
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(
            uuid_from_string(stored.topic_id),
            check_topic(stored.topic),
            stored.partition,
            uuid_from_string(stored.segment_id),
        ),
        start_offset=stored.start_offset,
        end_offset=stored.end_offset,
        max_timestamp_ms=stored.max_timestamp_ms,
        broker_id=stored.broker_id,
        event_timestamp_ms=stored.event_timestamp_ms,
        segment_size_bytes=stored.parts[0].length if stored.parts else 0,
        segment_leader_epochs=epochs,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        txn_index_empty=stored.txn_index_empty,
    )


def _checked_parts(stored: _DescriptorJson, end: int) -> dict[str, Part]:
    position = 0
    for part in stored.parts:
        limit = MAX_RECORDS_BYTES if part.name == RECORDS else MAX_INDEX_BYTES
        if part.position != position or not 0 <= part.length <= limit:
            raise ValueError(f"part {part.name[:40]}: {part.length} bytes at {part.position} ({position} expected)")
        if not re.fullmatch(r"[0-9a-f]{8}", part.crc32c, re.ASCII):
            raise ValueError(f"part {part.name[:40]}: checksum {part.crc32c[:20]!r}")
        position = part.end
    parts = {part.name: part for part in stored.parts}
    if position != end or len(parts) != len(stored.parts):
        raise ValueError(f"parts end at {position} ({end} expected), or have equal names")
    if not parts or stored.parts[0].name != RECORDS or CHECKSUMS not in parts:
        raise ValueError("no records, or no checksums of records")
    chunk_bytes = stored.checksum_chunk_bytes
    if not _CHUNK_LIMITS[0] <= chunk_bytes <= _CHUNK_LIMITS[1]:
        raise ValueError(f"chunks of {chunk_bytes} bytes")
    count = -(-stored.parts[0].length // chunk_bytes)
    if parts[CHECKSUMS].length != 4 * count:
        raise ValueError(f"{parts[CHECKSUMS].length} bytes of checksums ({4 * count} expected)")
    return parts


def verify_part(part: Part, data: Buffer) -> None:
    """Check the length and the checksum of a part's bytes.

    Raises:
        CorruptRemoteSegmentError: the length differs, or the checksum is wrong.
    """
    if len(data) != part.length:
        raise CorruptRemoteSegmentError(f"{part.name} is truncated: {len(data)} bytes ({part.length} expected)")
    if f"{crc32c(data):08x}" != part.crc32c:
        raise CorruptRemoteSegmentError(f"{part.name} is damaged: wrong checksum")


def chunk_range(descriptor: SegmentDescriptor, start: int, end: int) -> tuple[int, int]:
    """Return start and exclusive end of the whole chunks that contain bytes [start, end) of the records."""
    size = descriptor.chunk_bytes
    return start // size * size, min(-(-end // size) * size, descriptor.records.length)


def verify_chunks(descriptor: SegmentDescriptor, checksums: bytes, start: int, data: Buffer) -> None:
    """Check the checksums of whole chunks of records in ``data``, the first of which begins at position ``start``.

    ``checksums`` are those of all chunks of the object.

    Raises:
        CorruptRemoteSegmentError: a chunk has a wrong checksum.
    """
    size = descriptor.chunk_bytes
    view = memoryview(data)
    for at in range(0, len(view), size):
        entry = (start + at) // size * 4
        if crc32c(view[at : at + size]) != int.from_bytes(checksums[entry : entry + 4], "big"):
            raise CorruptRemoteSegmentError(f"records are damaged: wrong checksum (chunk at {start + at})")
