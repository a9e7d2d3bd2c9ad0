"""What a leader checks of a client's batch before it appends: the header, and records only where a rule needs them.

Source: ``LogValidator.java`` and ``UnifiedLog.analyzeAndValidateRecords`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from enum import Enum

from ottla.log.settings import FOREVER_MS, LogSettings
from ottla.wire import records as r
from ottla.wire.batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    crc_matches,
    parse_header,
)
from ottla.wire.compression import Codec, codec_of
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.primitives import Buffer

RecordErrors = list[tuple[int, str | None]]


class Origin(Enum):
    """Who appends: decides how much is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT = "raft"


class InvalidRecords(ProtocolError):
    """A refusal that names the records at fault."""

    def __init__(self, code: ErrorCode, message: str, record_errors: RecordErrors) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def parse_single(data: Buffer) -> BatchHeader:
    """The header of a produce request's data: exactly one whole batch with the right checksum.

    Raises:
        ProtocolError: CORRUPT_MESSAGE, INVALID_RECORD.
    """
    if len(data) > 16 and data[16] != 2:
        raise ProtocolError(ErrorCode.INVALID_RECORD, f"only format 2 can be written, not {data[16]}")
    if len(data) < HEADER_BYTES:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"{len(data)} bytes are no record batch")
    try:
        header = parse_header(data)
    except WireError as error:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if header.size_bytes > len(data):
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {header.size_bytes} bytes in {len(data)}")
    if header.size_bytes < len(data):
        raise ProtocolError(ErrorCode.INVALID_RECORD, "one batch for each partition, not more")
    return header


def check_crc(data: Buffer, header: BatchHeader) -> None:
    """Raise CORRUPT_MESSAGE where the checksum is wrong."""
    if not crc_matches(data, header):
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, "Record is corrupt (bad CRC)")


def check_client_batch(data: Buffer, header: BatchHeader, settings: LogSettings, now_ms: int, where: str) -> None:
    """What a client's batch must keep to. ``where`` names the partition in messages.

    Raises:
        InvalidRecords: INVALID_RECORD, INVALID_TIMESTAMP; ProtocolError: CORRUPT_MESSAGE, RECORD_LIST_TOO_LARGE...
    """
    if header.records_count <= 0 or header.last_offset_delta != header.records_count - 1:
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD,
            f"{header.records_count} records and a last offset delta of {header.last_offset_delta}",
            [],
        )
    if header.is_control:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records", [])
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecords(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}",
            [],
        )
    try:
        codec_of(header.attributes)
    except WireError as error:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if settings.compact:
        _check_keys(data, header, where)
    if not settings.log_append_time:
        late = header.max_timestamp > now_ms + settings.timestamp_after_max_ms
        if late or settings.timestamp_before_max_ms != FOREVER_MS:
            _check_times(data, header, settings, now_ms)


def _records(data: Buffer, header: BatchHeader) -> list[r.Record]:
    try:
        return list(r.iterate(data, header))
    except WireError as error:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def _check_keys(data: Buffer, header: BatchHeader, where: str) -> None:
    """A compacted topic keeps the last value of each key: a record without one has no place in it."""
    bad: RecordErrors = [
        (i, f"Compacted topic cannot accept message without key in topic partition {where}")
        for i, record in enumerate(_records(data, header))
        if record.key is None
    ]
    if bad:
        shown = ", ".join(f"RecordError(batchIndex={i}, message='{text}')" for i, text in bad[:3])
        text = (
            f"One or more records have been rejected due to {len(bad)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )
        raise InvalidRecords(ErrorCode.INVALID_RECORD, text, bad)


def _check_times(data: Buffer, header: BatchHeader, settings: LogSettings, now_ms: int) -> None:
    oldest = now_ms - settings.timestamp_before_max_ms
    newest = now_ms + settings.timestamp_after_max_ms
    bad: RecordErrors = []
    for i, record in enumerate(_records(data, header)):
        time_ms = record.timestamp_ms
        if time_ms != NO_TIMESTAMP and not oldest <= time_ms <= newest:
            bad.append(
                (
                    i,
                    f"Timestamp {time_ms} of message with offset {i} is out of range. "
                    f"The timestamp should be within [{oldest}, {newest}]",
                )
            )
    if bad:
        raise InvalidRecords(
            ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", bad
        )


def recompress(data: Buffer, header: BatchHeader, codec: Codec, level: int | None) -> bytes:
    """The same records in another codec: what ``compression.type`` asks for when the producer sent something else."""
    from ottla.wire.batch import pack_header
    from ottla.wire.compression import compress

    try:
        body = r.body(data, header)
    except WireError as error:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return pack_header(
        header._replace(attributes=header.attributes & ~0x07 | codec),
        compress(codec, body, level),
    )
