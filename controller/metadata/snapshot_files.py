"""Metadata snapshot files: ``<end offset>-<epoch>.checkpoint``, and ``bootstrap.checkpoint`` in the same format.

One control batch (header, and for a dynamic quorum: kraft.version, voters), data batches, one control batch (footer);
offsets count from 0. A snapshot file never changes once it has its final name.

Source: ``RecordsSnapshotWriter.java``, ``Snapshots.java``, ``BootstrapDirectory.java`` (apache/kafka 4.3.1).

From KIP-630.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.controller.metadata.record_serde import (
    NEWEST_METADATA_VERSION,
    MetadataBatchWriter,
    control_batch,
    decode_batch,
)
from ottla.env.disk import Disk, read_file
from ottla.jobs.job import Job
from ottla.jobs.sequences import YIELD_EVERY
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.wire.codec.primitives import Buffer
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.wire.record_batch.batch_header import HEADER_BYTES, crc_matches, iterate_batches, parse_header
from ottla.wire.record_batch.control_record import decode_control_record
from ottla.wire.record_batch.records import iterate_records

_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint", re.ASCII)
RECORDS_PER_BATCH = 1024


class SnapshotId(NamedTuple):
    """Id of a snapshot: the end offset, below which it covers all records, and the epoch of the last covered record."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """Name of the snapshot's file in the metadata log directory."""
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


@dataclass(slots=True)
class SnapshotContents:
    """Decoded contents of a snapshot: metadata records, kraft.version, voters; time (ms) of the last covered record."""

    records: list[Message] = field(default_factory=list)
    kraft_version: int = 0
    voters: VotersRecord | None = None
    timestamp_ms: int = 0


def list_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """Return the ids of the snapshots in a metadata log directory, oldest first."""
    found = (_NAME.fullmatch(name) for name in disk.list_files(directory))
    return sorted(SnapshotId(int(m[1]), int(m[2])) for m in found if m)


def read_snapshot(disk: Disk, path: str) -> Job[SnapshotContents]:
    """Return the decoded contents of a snapshot file, as a job: the first step reads the whole file.

    Raises:
        CorruptFile: a bad checksum, no footer, or a record that cannot be decoded.
    """
    raw = read_file(disk, path)
    out = SnapshotContents()
    ended = False
    try:
        for pos, header in iterate_batches(raw):
            if not crc_matches(raw, header, pos):
                raise WireError(f"bad CRC at {pos}")
            view = memoryview(raw)[pos : pos + header.size_bytes]
            if header.is_control:
                for record in iterate_records(view, header):
                    ended = _read_control_record(out, decode_control_record(record)) or ended
                continue
            for _, message in decode_batch(header, view):
                out.records.append(message)
                if len(out.records) % YIELD_EVERY == 0:
                    yield None
    except WireError as error:
        raise CorruptFile(f"{path}: {error}") from None
    if not ended:
        raise CorruptFile(f"{path}: no footer")
    return out


def _read_control_record(out: SnapshotContents, message: Message | None) -> bool:
    match message:
        case SnapshotHeaderRecord():
            out.timestamp_ms = message.last_contained_log_timestamp
        case KRaftVersionRecord():
            out.kraft_version = message.k_raft_version
        case VotersRecord():
            out.voters = message
        case SnapshotFooterRecord():
            return True
    return False


def encode_snapshot(
    snapshot: SnapshotContents,
    epoch: int,
    now_ms: int,
    metadata_version: int = NEWEST_METADATA_VERSION,
    records: Iterable[Message | None] | None = None,
) -> Job[bytes]:
    """Return the bytes of a snapshot file, as a job; nothing is written.

    ``epoch`` is the leader epoch of the batches, ``now_ms`` (wall clock) their timestamp. ``records`` are encoded
    instead of those of ``snapshot``; None among them is not a record, but lets the job yield.
    """
    head: list[Message] = [SnapshotHeaderRecord(0, snapshot.timestamp_ms)]
    if snapshot.kraft_version > 0:
        head.append(KRaftVersionRecord(0, snapshot.kraft_version))
        assert snapshot.voters is not None
        head.append(snapshot.voters)
    parts: list[Buffer] = [control_batch(head, now_ms, 0, epoch)]
    offset = len(head)
    writer = MetadataBatchWriter(now_ms)
    for number, record in enumerate(snapshot.records if records is None else records, 1):
        if record is None:
            yield None
            continue
        writer.add_message(record, metadata_version)
        if writer.count == RECORDS_PER_BATCH:
            parts.append(writer.build(offset, epoch))
            offset += writer.count
            writer = MetadataBatchWriter(now_ms)
        if number % YIELD_EVERY == 0:
            yield None
    if writer.count:
        parts.append(writer.build(offset, epoch))
        offset += writer.count
    parts.append(control_batch([SnapshotFooterRecord()], now_ms, offset, epoch))
    return b"".join(parts)


def read_snapshot_header(disk: Disk, path: str) -> SnapshotContents:
    """Return kraft.version, voters and timestamp from a snapshot's first batch; ``records`` of the result is empty.

    Raises:
        CorruptFile: the first batch cannot be decoded.
    """
    out = SnapshotContents()
    file = disk.open(path, readonly=True)
    try:
        header = parse_header(file.pread(min(file.size(), HEADER_BYTES), 0))
        raw = file.pread(min(file.size(), header.size_bytes), 0)
        if not crc_matches(raw, header):
            raise WireError("bad CRC")
        for record in iterate_records(raw, header):
            _read_control_record(out, decode_control_record(record))
    except WireError as error:
        raise CorruptFile(f"{path}: {error}") from None
    finally:
        file.close()
    return out


def last_contained_log_timestamp(disk: Disk, path: str) -> int:
    """Return the timestamp in ms of the last record that a snapshot covers.

    Raises:
        CorruptFile: the first batch cannot be decoded.
    """
    return read_snapshot_header(disk, path).timestamp_ms


def write_snapshot(disk: Disk, path: str, raw: bytes, *, mode: int = 0o400) -> None:
    """Write a snapshot to a temporary file (``.part``), sync it, rename it to ``path`` and sync the directory."""
    part = path + ".part"
    if disk.exists(part):
        disk.unlink(part)
    with closing(disk.open(part, create=True, mode=mode)) as file:
        file.pwrite(raw, 0)
        file.fsync()
    freeze_snapshot(disk, path)


def freeze_snapshot(disk: Disk, path: str) -> None:
    """Rename a complete, synced ``.part`` file to ``path``, and sync the directory; waits for the disk."""
    disk.rename(path + ".part", path)
    disk.fsync_dir(path.rpartition("/")[0])
