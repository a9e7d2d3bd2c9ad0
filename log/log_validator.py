"""Validation of a client's batch before the leader appends it: always the header, the records only where required.

`check_client_batch` checks the header and the first bytes of the records: this takes a microsecond.
`needs_record_validation` returns True if a topic's settings need more; then `validate_records` validates the records
piece by piece, in bounded memory, and yields between the pieces, so that other tasks can run.

Source: ``LogValidator.java``, ``UnifiedLog.analyzeAndValidateRecords``, ``ProduceRequest.validateRecords``,
``ByteBufferLogInputStream.java`` (apache/kafka 4.3.1).

Timestamps: KIP-32, KIP-937.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import NamedTuple

from ottla.log.limits import MAX_RECORD_ERRORS_PER_BATCH
from ottla.log.log_config import LogConfig
from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.limits import MAX_DECOMPRESSED_BYTES
from ottla.wire.record_batch.batch_header import (
    ATTRIBUTES_OFFSET,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_OFFSET,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    crc_matches,
    pack_batch,
    parse_header,
    read_offset_and_size,
    set_max_timestamp,
)
from ottla.wire.record_batch.compression import (
    MAX_COMPRESSION_RATIOS,
    CompressionType,
    DecompressedSizeExceeded,
    StreamDecompressor,
    compression_type_of,
    create_compressor,
)
from ottla.wire.record_batch.compression_headers import check_compressed_prefix
from ottla.wire.record_batch.crc import crc32c
from ottla.wire.record_batch.incremental_parser import (
    MIN_RECORD_BYTES,
    IncrementalRecordParser,
    MalformedRecord,
    RecordSummary,
    first_record_fits,
)

RecordErrors = list[tuple[int, str | None]]
WritableBuffer = bytearray | memoryview

PIECE_BYTES = 32 * 1024
"""Decompressed bytes of records validated between two yields: at most some 5,000 records, a few milliseconds."""
_VALID = ErrorCode.NONE
_MAX_COMPRESSION_TYPE = int(CompressionType.ZSTD)
_MAX_RECORDS_PER_BYTE = [most // MIN_RECORD_BYTES + 1 for most in MAX_COMPRESSION_RATIOS]
"""Maximum number of records per compressed byte, by codec: a batch that claims more is invalid."""
_MIN_BATCH_SIZE = 14
"""``LegacyRecord.RECORD_OVERHEAD_V0``: minimum bytes of a batch of any format after its size field."""


class AppendOrigin(Enum):
    """Origin of an append (as Kafka's ``AppendOrigin``): only batches of clients are fully validated."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft"


class RecordValidationError(ProtocolError):
    """Rejection of a batch because of single records, each with its index in the batch and an error message or None."""

    def __init__(self, code: ErrorCode, message: str, record_errors: RecordErrors) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class ValidatedBatch(NamedTuple):
    """Client's batch after validation: the bytes to append (perhaps recompressed), their header, the settings used."""

    data: WritableBuffer
    header: BatchHeader
    config: LogConfig


ValidationJob = Generator[bool, None, ValidatedBatch]
"""Validation of a batch's records that yields between pieces; yields True while its memory use is high.

High: a decompressor's window or the recompressed batch is held (`StreamDecompressor`).
"""


def _invalid(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_RECORD, message)


def batch_size(data: Buffer, position: int = 0) -> int | None:
    """Return the size in bytes of the batch of any format at ``position``, with its offset and size fields.

    None if ``data`` ends within the batch.

    Raises:
        ProtocolError: CORRUPT_MESSAGE: the size is too small for a batch of any format, or the format is unknown.
    """
    if len(data) - position < LOG_OVERHEAD_BYTES:
        return None
    size = read_offset_and_size(data, position)[1]
    if size - LOG_OVERHEAD_BYTES < _MIN_BATCH_SIZE:
        text = f"Record size {size - LOG_OVERHEAD_BYTES} is less than the minimum record overhead ({_MIN_BATCH_SIZE})"
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, text)
    if len(data) - position <= MAGIC_OFFSET:
        return None
    magic = data[position + MAGIC_OFFSET]
    if magic > 2:
        text = f"Invalid magic found in record: {magic if magic < 128 else magic - 256}"
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, text)
    return size if size <= len(data) - position else None


def parse_single_batch(data: Buffer) -> BatchHeader:
    """Return the header of the single batch that a partition's data in a Produce request must contain.

    An incomplete second batch at the end is ignored. Only the format is checked, neither CRC nor records.

    Raises:
        ProtocolError: CORRUPT_MESSAGE; INVALID_RECORD: not exactly one batch, or an old message format.
    """
    if len(data) >= HEADER_BYTES and data[MAGIC_OFFSET] == 2:
        try:
            header = parse_header(data)
        except WireError:
            pass  # raised below, in Kafka's order
        else:
            if header.batch_length + LOG_OVERHEAD_BYTES == len(data):
                return header
    size = batch_size(data)
    if size is None:
        raise _invalid("there must be at least one record batch per partition")
    if data[MAGIC_OFFSET] != 2:
        raise _invalid(f"only format 2 can be written, not {data[MAGIC_OFFSET]}")
    if batch_size(data, size) is not None:
        raise _invalid("one batch for each partition, not more")
    try:
        return parse_header(memoryview(data)[:size])
    except WireError as error:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def check_crc(data: Buffer, header: BatchHeader) -> None:
    """Raise ProtocolError CORRUPT_MESSAGE if the checksum of the batch in ``data`` is wrong."""
    if not crc_matches(data, header):
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, "Record is corrupt (bad CRC)")


def check_size(size_bytes: int, settings: LogConfig, where: str) -> None:
    """Raise ProtocolError MESSAGE_TOO_LARGE if a batch of ``size_bytes`` is larger than ``max.message.bytes``."""
    if size_bytes > settings.max_message_bytes:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {where} is {size_bytes} bytes "
            f"which exceeds the maximum configured value of {settings.max_message_bytes}.",
        )


def check_client_batch(data: WritableBuffer, header: BatchHeader, settings: LogConfig, where: str) -> None:
    """Check the header and CRC of a client's batch and the beginning of its records, in Kafka's order.

    ``data`` is only read. The beginning is the first record's size, or the headers of compressed data: nothing is
    decompressed, and other records are not checked. ``where`` names the partition in error messages.

    Raises:
        ProtocolError: INVALID_RECORD, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, and UNKNOWN_SERVER_ERROR for an unknown codec
        and for records that cannot be decompressed with the codec in the attributes, as in Kafka.
    """
    base_offset, length, _, _, crc, attributes, last_delta, _, _, producer_id, _, sequence, count = header
    if base_offset != 0:
        raise _invalid(
            f"The baseOffset of the record batch in the append to {where} should be 0, but it is {base_offset}"
        )
    size_bytes = length + LOG_OVERHEAD_BYTES
    if size_bytes > settings.max_message_bytes:
        check_size(size_bytes, settings, where)
    view = data if type(data) is memoryview else memoryview(data)
    if crc32c(view[ATTRIBUTES_OFFSET:size_bytes]) != crc:
        check_crc(data, header)
    codec = attributes & 0x07
    if codec > _MAX_COMPRESSION_TYPE:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown codec {codec}")
    if count <= 0 or last_delta != count - 1:
        raise _invalid(f"{count} records and a last offset delta of {last_delta}")
    if attributes & CONTROL_BIT:
        raise _invalid("Clients are not allowed to write control records")
    if producer_id >= 0 and sequence < 0:
        raise _invalid(f"Invalid sequence number {sequence} in record batch with producerId {producer_id}")
    if codec == 0:
        if not first_record_fits(data, size_bytes, count):
            raise _invalid(f"Found invalid record structure: the first of {count} records")
    elif (code := check_compressed_prefix(codec, view[HEADER_BYTES:size_bytes])) is not _VALID:
        raise ProtocolError(code, f"the records are not valid {CompressionType(codec).name.lower()} data")
    elif count > (size_bytes - HEADER_BYTES) * _MAX_RECORDS_PER_BYTE[codec]:
        raise _invalid(f"{size_bytes} bytes cannot hold {count} records")


def needs_record_validation(header: BatchHeader, settings: LogConfig, now_ms: int) -> bool:
    """Return True if each record of a batch must be validated, because of the topic's settings or its timestamps.

    Also if the records must be recompressed. ``now_ms``: wall clock.
    """
    if settings.always_validates_records:
        return True
    attributes = header.attributes
    if settings.compression_type is not None and attributes & 0x07 != settings.compression_type:
        return True
    if settings.log_append_time:
        return attributes & TIMESTAMP_TYPE_BIT != 0
    time_ms = header.max_timestamp
    if time_ms == NO_TIMESTAMP:
        return attributes & TIMESTAMP_TYPE_BIT != 0
    return time_ms > now_ms + settings.timestamp_after_max_ms


class _RecordRules:
    """Checks of the single records of a batch (key, timestamp), and the errors found."""

    def __init__(self, header: BatchHeader, settings: LogConfig, now_ms: int, where: str) -> None:
        self._header = header
        self._settings = settings
        self._where = where
        self._oldest_ms = now_ms - settings.timestamp_before_max_ms
        self._newest_ms = now_ms + settings.timestamp_after_max_ms
        self._record_count = 0
        self._has_timestamp_error = False
        self.max_timestamp = NO_TIMESTAMP
        self.errors: RecordErrors = []

    def check_record(self, record: RecordSummary) -> None:
        """Check the next record of the batch and add its error, if any, to ``errors``, which is limited in length."""
        header, settings = self._header, self._settings
        index, self._record_count = self._record_count, self._record_count + 1
        time_ms = header.max_timestamp if header.has_log_append_time else header.base_timestamp + record.time_delta
        if time_ms > self.max_timestamp:
            self.max_timestamp = time_ms
        if settings.compact and record.key_bytes < 0:
            text = f"Compacted topic cannot accept message without key in topic partition {self._where}"
        elif not settings.log_append_time and time_ms != NO_TIMESTAMP:
            if self._oldest_ms <= time_ms <= self._newest_ms:
                return
            self._has_timestamp_error = True
            text = (
                f"Timestamp {time_ms} of message with offset {index} is out of range. "
                f"The timestamp should be within [{self._oldest_ms}, {self._newest_ms}]"
            )
        elif header.has_log_append_time:
            self._has_timestamp_error = True
            kind = "DefaultRecord" if header.attributes & 0x07 == 0 else "PartialDefaultRecord"
            text = (
                f"Invalid timestamp type in message {kind}(offset={index}, timestamp={time_ms}, "
                f"key={max(record.key_bytes, 0)} bytes, value={max(record.value_bytes, 0)} bytes). "
                "Producer should not set timestamp type to LogAppendTime."
            )
        else:
            return
        if len(self.errors) < MAX_RECORD_ERRORS_PER_BATCH:
            self.errors.append((index, text))

    def raise_errors(self) -> None:
        """Raise the collected errors, if there are any.

        Raises:
            RecordValidationError: INVALID_RECORD, INVALID_TIMESTAMP.
        """
        bad = self.errors
        if self._has_timestamp_error:
            text = "One or more records have been rejected due to invalid timestamp"
            raise RecordValidationError(ErrorCode.INVALID_TIMESTAMP, text, bad)
        if bad:
            shown = ", ".join(f"RecordError(batchIndex={i}, message='{text}')" for i, text in bad[:3])
            text = (
                f"One or more records have been rejected due to {len(bad)} record errors in total, "
                f"and only showing the first three errors at most: [{shown}]"
            )
            raise RecordValidationError(ErrorCode.INVALID_RECORD, text, bad)


def validate_records(
    data: WritableBuffer, header: BatchHeader, settings: LogConfig, now_ms: int, where: str
) -> ValidationJob:
    """Return a job that validates a batch's records and returns the batch to append; it yields after each piece.

    It yields True while it holds much memory. The job recompresses the records if ``compression.type`` is another
    codec, and fails as soon as the batch exceeds ``max.message.bytes``, or if the decompressed size exceeds the limit
    of compaction, which could not read it. It may correct the maximum timestamp in ``data``. ``now_ms``: wall clock.

    Raises:
        RecordValidationError: INVALID_RECORD, INVALID_TIMESTAMP; ProtocolError: INVALID_RECORD, MESSAGE_TOO_LARGE,
            UNKNOWN_SERVER_ERROR if the records cannot be decompressed.
    """
    codec, claimed = compression_type_of(header.attributes), header.max_timestamp
    rules = _RecordRules(header, settings, now_ms, where)
    walk = IncrementalRecordParser(header.records_count)
    wanted = codec if settings.compression_type is None else settings.compression_type
    pack = None if wanted is codec else create_compressor(wanted, settings.compression_level)
    packed = bytearray()
    try:
        first, raw = True, memoryview(data)[HEADER_BYTES : header.size_bytes]
        for piece in (unpacking := StreamDecompressor(codec, raw, PIECE_BYTES, MAX_DECOMPRESSED_BYTES)):
            if not first or not piece:
                yield unpacking.is_memory_heavy
            first = False
            for record in walk.feed(piece):
                rules.check_record(record)
            if len(rules.errors) >= MAX_RECORD_ERRORS_PER_BATCH:
                rules.raise_errors()
            if pack is not None and not rules.errors:
                packed += pack.add(piece)
                check_size(HEADER_BYTES + len(packed), settings, where)
        walk.finish()
    except MalformedRecord as error:
        raise _invalid(str(error)) from None
    except DecompressedSizeExceeded as error:
        text = f"The record batch in the append to {where} is refused: its {error}."
        raise ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, text) from None
    except WireError as error:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    rules.raise_errors()
    if not settings.log_append_time:
        header = header._replace(max_timestamp=rules.max_timestamp)
    if pack is not None:
        packed += pack.finish()
        header = header._replace(attributes=header.attributes & ~0x07 | wanted)
        data = bytearray(pack_batch(header, packed))
        check_size(len(data), settings, where)
        header = parse_header(data)
    elif header.max_timestamp != claimed:
        header = set_max_timestamp(data, 0, header)
    return ValidatedBatch(data, header, settings)


class ValidationPending(Exception):
    """Signal that a batch has more records than one piece: the caller runs the job ``steps``, which validates the rest.

    An exception, not a result: the records of nearly all batches need no validation, and their append stays a plain
    call through four functions, without a generator and without a check of the result's type in each.
    """

    def __init__(self, steps: ValidationJob) -> None:
        super().__init__()
        self.steps = steps


def run_validation(steps: ValidationJob, *, at_once: bool) -> ValidatedBatch:
    """Run the job of `validate_records`, to its end if ``at_once``, else to its first yield; return its result.

    Raises:
        ValidationPending: the job has yielded and ``at_once`` is False.
    """
    while True:
        try:
            heavy = next(steps)
        except StopIteration as done:
            checked: ValidatedBatch = done.value
            return checked
        if not at_once:
            raise ValidationPending(_resume_validation(steps, heavy=heavy))


def _resume_validation(steps: ValidationJob, *, heavy: bool) -> ValidationJob:
    if heavy:
        yield heavy
    return (yield from steps)
