"""What a leader checks of a client's batch before it appends: the header, and records only where a rule needs them.

`check_client_batch` looks at the header and at the first bytes of the records: that is all an ordinary batch gets, and
it costs a microsecond. `must_look` says whether a topic's settings need more; then `look` goes through the records a
piece at a time, in bounded memory, and pauses between the pieces, so that a caller can let others have their turn.

Source: ``LogValidator.java``, ``UnifiedLog.analyzeAndValidateRecords``, ``ProduceRequest.validateRecords``,
``ByteBufferLogInputStream.java`` (apache/kafka 4.3.1).

Timestamps: KIP-32, KIP-937.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import NamedTuple

from ottla.log.settings import LogSettings
from ottla.wire import batch as b
from ottla.wire.batch import ATTRIBUTES_OFFSET, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC_OFFSET, BatchHeader
from ottla.wire.compression import (
    DEFAULT_LIMIT_BYTES,
    MOST_TIMES,
    Codec,
    Unpacking,
    UnpacksTooLarge,
    codec_of,
    packer,
)
from ottla.wire.compression_headers import check_beginning
from ottla.wire.crc import crc32c
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.primitives import Buffer, read_varlong
from ottla.wire.record_walk import SMALLEST_RECORD_BYTES, BadRecord, RecordWalk, Seen

RecordErrors = list[tuple[int, str | None]]
Data = bytearray | memoryview

MOST_RECORD_ERRORS = 1000
"""So many records at fault are named; the rest of their batch is not looked at."""
PIECE_BYTES = 32 * 1024
"""So much of a batch's records is looked at without a pause: some five thousand at most, a few milliseconds."""
_GOOD = ErrorCode.NONE
_LAST_CODEC = int(Codec.ZSTD)
_MOST_RECORDS_A_BYTE = [most // SMALLEST_RECORD_BYTES + 1 for most in MOST_TIMES]
"""So many records at most are packed into a byte, by codec: a batch that says it has more of them lies."""
_SMALLEST_SIZE = 14
"""``LegacyRecord.RECORD_OVERHEAD_V0``: a batch of any format is at least as long behind its size."""


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


class Checked(NamedTuple):
    """A client's batch that was looked at under these settings, as it shall be appended."""

    data: Data
    header: BatchHeader
    settings: LogSettings


Looking = Generator[bool, None, Checked]
"""A look at a batch's records, in pauses; with True where much is kept meanwhile, or will be then (`Unpacking`)."""


def _invalid(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_RECORD, message)


def size_at(data: Buffer, at: int = 0) -> int | None:
    """Size of the batch at ``at``, of any format; None where it is not all there.

    Raises:
        ProtocolError: CORRUPT_MESSAGE: no batch of any format begins so.
    """
    if len(data) - at < LOG_OVERHEAD_BYTES:
        return None
    size = b.overhead(data, at)[1]
    if size - LOG_OVERHEAD_BYTES < _SMALLEST_SIZE:
        text = f"Record size {size - LOG_OVERHEAD_BYTES} is less than the minimum record overhead ({_SMALLEST_SIZE})"
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, text)
    if len(data) - at <= MAGIC_OFFSET:
        return None
    magic = data[at + MAGIC_OFFSET]
    if magic > 2:
        text = f"Invalid magic found in record: {magic if magic < 128 else magic - 256}"
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, text)
    return size if size <= len(data) - at else None


def parse_single(data: Buffer) -> BatchHeader:
    """The header of a produce request's data: exactly one whole batch. A piece of another behind it does not count.

    Raises:
        ProtocolError: CORRUPT_MESSAGE, INVALID_RECORD.
    """
    if len(data) >= HEADER_BYTES and data[MAGIC_OFFSET] == 2:
        try:
            header = b.parse_header(data)
        except WireError:
            pass  # said below, in Kafka's order
        else:
            if header.batch_length + LOG_OVERHEAD_BYTES == len(data):
                return header
    size = size_at(data)
    if size is None:
        raise _invalid("there must be at least one record batch per partition")
    if data[MAGIC_OFFSET] != 2:
        raise _invalid(f"only format 2 can be written, not {data[MAGIC_OFFSET]}")
    if size_at(data, size) is not None:
        raise _invalid("one batch for each partition, not more")
    try:
        return b.parse_header(memoryview(data)[:size])
    except WireError as error:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def check_crc(data: Buffer, header: BatchHeader) -> None:
    """Raise CORRUPT_MESSAGE where the checksum is wrong."""
    if not b.crc_matches(data, header):
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, "Record is corrupt (bad CRC)")


def check_size(size_bytes: int, settings: LogSettings, where: str) -> None:
    """Raise MESSAGE_TOO_LARGE where a client's batch is larger than ``max.message.bytes``."""
    if size_bytes > settings.max_message_bytes:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {where} is {size_bytes} bytes "
            f"which exceeds the maximum configured value of {settings.max_message_bytes}.",
        )


def check_client_batch(data: Data, header: BatchHeader, settings: LogSettings, where: str) -> None:
    """What the header of a client's batch and the beginning of its records must keep to, in Kafka's order.

    ``where`` names the partition in messages.

    Raises:
        ProtocolError: INVALID_RECORD, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, and UNKNOWN_SERVER_ERROR for data that is
            not of the codec it names, as Kafka has it.
    """
    base_offset, length, _, _, crc, attributes, last_delta, _, _, producer_id, _, sequence, count = header
    if base_offset != 0:
        raise _invalid(f"a batch for {where} comes with a base offset that is not 0: {base_offset}")
    size_bytes = length + LOG_OVERHEAD_BYTES
    if size_bytes > settings.max_message_bytes:
        check_size(size_bytes, settings, where)
    view = memoryview(data)
    if crc32c(view[ATTRIBUTES_OFFSET:size_bytes]) != crc:
        check_crc(data, header)
    codec = attributes & 0x07
    if codec > _LAST_CODEC:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown codec {codec}")
    if count <= 0 or last_delta != count - 1:
        raise _invalid(f"{count} records and a last offset delta of {last_delta}")
    if attributes & b.CONTROL_BIT:
        raise _invalid("Clients are not allowed to write control records")
    if producer_id >= 0 and sequence < 0:
        raise _invalid(f"Invalid sequence number {sequence} in record batch with producerId {producer_id}")
    if codec == 0:
        if not _first_fits(data, size_bytes, count):
            raise _invalid(f"the first of {count} records is none")
    elif (code := check_beginning(codec, view[HEADER_BYTES:size_bytes])) is not _GOOD:
        raise ProtocolError(code, f"the records are no {Codec(codec).name.lower()} data")
    elif count > (size_bytes - HEADER_BYTES) * _MOST_RECORDS_A_BYTE[codec]:
        raise _invalid(f"{size_bytes} bytes cannot hold {count} records")


def _first_fits(data: Data, end: int, count: int) -> bool:
    """Whether the first of some uncompressed records fits its batch, as far as its size and its key's say."""
    if HEADER_BYTES + count * SMALLEST_RECORD_BYTES > end:
        return False
    size, at = data[HEADER_BYTES], HEADER_BYTES + 1
    if size > 0x7F and (high := data[at]) < 0x80:
        size, at = size & 0x7F | high << 7, at + 1
    elif size > 0x7F:
        try:
            size, at = read_varlong(data, HEADER_BYTES)
        except (WireError, IndexError):
            return False
        size += size
    # Twice the size here, and twice that of the key: odd numbers are negative.
    stop = at + (size >> 1)
    if size & 1 or size < 2 * SMALLEST_RECORD_BYTES - 2 or (stop != end if count == 1 else stop >= end):
        return False
    key = data[at + 3]
    if key > 0x7F or data[at + 1] or data[at + 2]:
        return True  # a long key, or deltas that are not 0, as a producer's first ones are: the key lies further on
    return key == 1 or (not key & 1 and key <= size - 2 * SMALLEST_RECORD_BYTES + 2)


def must_look(header: BatchHeader, settings: LogSettings, now_ms: int) -> bool:
    """Whether a rule must see the records themselves."""
    if settings.looks_always:
        return True
    attributes = header.attributes
    if settings.codec is not None and attributes & 0x07 != settings.codec:
        return True
    if settings.log_append_time:
        return attributes & b.TIMESTAMP_TYPE_BIT != 0
    time_ms = header.max_timestamp
    if time_ms == b.NO_TIMESTAMP:
        return attributes & b.TIMESTAMP_TYPE_BIT != 0
    return time_ms > now_ms + settings.timestamp_after_max_ms


class _Rules:
    """The rules for single records, and which of them were broken."""

    def __init__(self, header: BatchHeader, settings: LogSettings, now_ms: int, where: str) -> None:
        self._header = header
        self._settings = settings
        self._where = where
        self._oldest_ms = now_ms - settings.timestamp_before_max_ms
        self._newest_ms = now_ms + settings.timestamp_after_max_ms
        self._seen = 0
        self._late = False
        self.max_timestamp = b.NO_TIMESTAMP
        self.errors: RecordErrors = []

    def see(self, record: Seen) -> None:
        """Hold one record against the rules."""
        header, settings = self._header, self._settings
        index, self._seen = self._seen, self._seen + 1
        time_ms = header.max_timestamp if header.has_log_append_time else header.base_timestamp + record.time_delta
        if time_ms > self.max_timestamp:
            self.max_timestamp = time_ms
        if settings.compact and record.key_bytes < 0:
            text = f"Compacted topic cannot accept message without key in topic partition {self._where}"
        elif not settings.log_append_time and time_ms != b.NO_TIMESTAMP:
            if self._oldest_ms <= time_ms <= self._newest_ms:
                return
            self._late = True
            text = (
                f"Timestamp {time_ms} of message with offset {index} is out of range. "
                f"The timestamp should be within [{self._oldest_ms}, {self._newest_ms}]"
            )
        elif header.has_log_append_time:
            self._late = True
            kind = "DefaultRecord" if header.attributes & 0x07 == 0 else "PartialDefaultRecord"
            text = (
                f"Invalid timestamp type in message {kind}(offset={index}, timestamp={time_ms}, "
                f"key={max(record.key_bytes, 0)} bytes, value={max(record.value_bytes, 0)} bytes). "
                "Producer should not set timestamp type to LogAppendTime."
            )
        else:
            return
        if len(self.errors) < MOST_RECORD_ERRORS:
            self.errors.append((index, text))

    def check(self) -> None:
        """Raise what the records broke.

        Raises:
            InvalidRecords: INVALID_RECORD, INVALID_TIMESTAMP.
        """
        bad = self.errors
        if self._late:
            text = "One or more records have been rejected due to invalid timestamp"
            raise InvalidRecords(ErrorCode.INVALID_TIMESTAMP, text, bad)
        if bad:
            shown = ", ".join(f"RecordError(batchIndex={i}, message='{text}')" for i, text in bad[:3])
            text = (
                f"One or more records have been rejected due to {len(bad)} record errors in total, "
                f"and only showing the first three errors at most: [{shown}]"
            )
            raise InvalidRecords(ErrorCode.INVALID_RECORD, text, bad)


def look(data: Data, header: BatchHeader, settings: LogSettings, now_ms: int, where: str) -> Looking:
    """Go through a batch's records, pausing after each piece; gives the batch as it shall be appended.

    Packs them anew where ``compression.type`` asks for another codec, and stops as soon as that is too large. So it
    does where they unpack to more than whoever looks into the batch later takes: compaction could not read it.

    Raises:
        InvalidRecords: INVALID_RECORD, INVALID_TIMESTAMP; ProtocolError: INVALID_RECORD, MESSAGE_TOO_LARGE,
            UNKNOWN_SERVER_ERROR where the records cannot be unpacked.
    """
    codec, claimed = codec_of(header.attributes), header.max_timestamp
    rules = _Rules(header, settings, now_ms, where)
    walk = RecordWalk(header.records_count)
    wanted = codec if settings.codec is None else settings.codec
    pack = None if wanted is codec else packer(wanted, settings.codec_level)
    packed = bytearray()
    try:
        first, raw = True, memoryview(data)[HEADER_BYTES : header.size_bytes]
        for piece in (unpacking := Unpacking(codec, raw, PIECE_BYTES, DEFAULT_LIMIT_BYTES)):
            if not first or not piece:
                yield unpacking.heavy
            first = False
            for record in walk.feed(piece):
                rules.see(record)
            if len(rules.errors) >= MOST_RECORD_ERRORS:
                rules.check()
            if pack is not None and not rules.errors:
                packed += pack.add(piece)
                check_size(HEADER_BYTES + len(packed), settings, where)
        walk.finish()
    except BadRecord as error:
        raise _invalid(str(error)) from None
    except UnpacksTooLarge as error:
        text = f"The record batch in the append to {where} is refused: its {error}."
        raise ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, text) from None
    except WireError as error:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    rules.check()
    if not settings.log_append_time:
        header = header._replace(max_timestamp=rules.max_timestamp)
    if pack is not None:
        packed += pack.finish()
        header = header._replace(attributes=header.attributes & ~0x07 | wanted)
        data = bytearray(b.pack_header(header, packed))
        check_size(len(data), settings, where)
        header = b.parse_header(data)
    elif header.max_timestamp != claimed:
        header = b.stamp_times(data, 0, header)
    return Checked(data, header, settings)


class LookFirst(Exception):
    """A batch has so many records to look at that others shall have their turn meanwhile: go on with ``steps``."""

    def __init__(self, steps: Looking) -> None:
        super().__init__()
        self.steps = steps


def looked(steps: Looking, *, at_once: bool) -> Checked:
    """Go through a batch's records: all of them at once, or no further than the first pause.

    Raises:
        LookFirst: there is more than one piece of them.
    """
    while True:
        try:
            heavy = next(steps)
        except StopIteration as done:
            checked: Checked = done.value
            return checked
        if not at_once:
            raise LookFirst(_told_again(steps, heavy=heavy))


def _told_again(steps: Looking, *, heavy: bool) -> Looking:
    if heavy:
        yield heavy
    return (yield from steps)
