"""Encoding and decoding of metadata records, and of the batches of ``__cluster_metadata`` with them.

A record's value is ``frame version, api key, version`` as varints, then the body. Source: ``MetadataRecordSerde.java``,
``AbstractApiMessageSerde.java`` (apache/kafka 4.3.1).

From KIP-631.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.wire.codec import compiler
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.primitives import Buffer, read_uvarint, write_uvarint
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages import metadata_records
from ottla.wire.record_batch import records as batch_records
from ottla.wire.record_batch.batch_header import (
    CONTROL_BIT,
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    pack_batch,
)
from ottla.wire.record_batch.control_record import build_control_record

FRAME_VERSION = 1

_BY_KEY: dict[int, type[Message]] = {
    spec_of(cls).key: cls
    for cls in vars(metadata_records).values()
    if isinstance(cls, type) and issubclass(cls, Message) and cls is not Message and hasattr(cls, "SPEC")
}

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELR_VERSION = "eligible.leader.replicas.version"
OLDEST_METADATA_VERSION = 23
"""4.0-IV1, the first with eligible leader replicas; a node does not start in a cluster with an older one."""
NEWEST_METADATA_VERSION = 30
CORDONED_DIRS_MIN_VERSION = 30
"""First metadata.version with cordoned log directories."""

_VERSIONS: dict[type[Message], tuple[tuple[int, int], ...]] = {
    metadata_records.RegisterBrokerRecord: ((30, 4), (0, 3)),
    metadata_records.PartitionRecord: ((0, 2),),
    metadata_records.PartitionChangeRecord: ((0, 2),),
    metadata_records.BrokerRegistrationChangeRecord: ((30, 3), (0, 2)),
}


def record_version(cls: type[Message], metadata_version: int) -> int:
    """Return the version in which a record type is written at a metadata.version (``MetadataVersion.java``)."""
    for level, version in _VERSIONS.get(cls, ((0, 0),)):
        if metadata_version >= level:
            return version
    raise AssertionError(cls)


def encode_record(record: Message, metadata_version: int = NEWEST_METADATA_VERSION) -> bytes:
    """Return the value of a metadata record: frame version, type, version of the record, and its fields.

    The version of the record is the newest one that brokers of the ``metadata_version`` can read.
    """
    version = record_version(type(record), metadata_version)
    head = write_uvarint(FRAME_VERSION) + write_uvarint(spec_of(type(record)).key) + write_uvarint(version)
    return head + compiler.encode(record, version)


def decode_record(raw: Buffer) -> Message:
    """Return the metadata record in the value bytes of a record.

    Raises:
        WireError: unknown frame version, record type or record version, or a malformed body.
    """
    frame, pos = read_uvarint(raw, 0)
    if frame != FRAME_VERSION:
        raise WireError(f"metadata record frame version {frame}")
    key, pos = read_uvarint(raw, pos)
    version, pos = read_uvarint(raw, pos)
    if key not in _BY_KEY:
        raise WireError(f"unknown metadata record {key}")
    return compiler.decode(_BY_KEY[key], version, raw, pos)[0]


def decode_batch(header: BatchHeader, raw: Buffer) -> Iterator[tuple[int, Message]]:
    """Yield (offset, record) of every metadata record in a batch; control batches have none. The CRC is not checked.

    Raises:
        WireError: a record cannot be decoded.
    """
    if not header.is_control:
        for record in batch_records.iterate_records(raw, header):
            if record.value is None:
                raise WireError(f"metadata record {record.offset} has no value")
            yield record.offset, decode_record(record.value)


class MetadataBatchWriter:
    """Builder of the bytes of one batch of the metadata log, record by record, so that the caller can yield in between.

    ``now_ms``: wall clock, timestamp of the records. ``control``: the batch has control records.
    """

    def __init__(self, now_ms: int, *, control: bool = False) -> None:
        self._now_ms = now_ms
        self._control = control
        self._parts: list[bytes] = []
        self.count = 0
        self.size_bytes = HEADER_BYTES

    def add(self, record: batch_records.NewRecord) -> None:
        """Add a record whose key and value are encoded; its timestamp becomes that of the batch."""
        raw = batch_records.encode_record(record, self.count, 0)
        self._parts.append(raw)
        self.count += 1
        self.size_bytes += len(raw)

    def add_message(self, message: Message, metadata_version: int = NEWEST_METADATA_VERSION) -> None:
        """Encode a metadata record in its version at ``metadata_version`` and add it to the batch."""
        self.add(batch_records.NewRecord(None, encode_record(message, metadata_version), self._now_ms))

    def build(self, base_offset: int = 0, leader_epoch: int = -1) -> bytearray:
        """Return the bytes of the batch, which must have at least one record."""
        assert self.count > 0
        attributes = CONTROL_BIT if self._control else 0
        header = BatchHeader(
            base_offset,
            0,
            leader_epoch,
            2,
            0,
            attributes,
            self.count - 1,
            self._now_ms,
            self._now_ms,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            self.count,
        )
        return bytearray(pack_batch(header, b"".join(self._parts)))


def control_batch(controls: Iterable[Message], now_ms: int, base_offset: int = 0, leader_epoch: int = -1) -> bytearray:
    """Return the bytes of a batch with control records of the quorum, such as SnapshotHeader and Voters.

    ``now_ms``: wall clock, their timestamp.
    """
    writer = MetadataBatchWriter(now_ms, control=True)
    for control in controls:
        writer.add(build_control_record(control, now_ms))
    return writer.build(base_offset, leader_epoch)
