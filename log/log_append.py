"""Checks of the batches of an append before the log writes them, and results of appends.

Source: ``UnifiedLog.append``, ``LogAppendInfo.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.log.log_config import LogConfig
from ottla.log.log_validator import (
    ValidatedBatch,
    WritableBuffer,
    check_client_batch,
    needs_record_validation,
    run_validation,
    validate_records,
)
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.record_batch.batch_header import (
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    crc_matches,
    iterate_batches,
    set_max_timestamp,
)


class LogAppendInfo(NamedTuple):
    """Result of an append as leader. ``duplicate``: the batch was appended before, at these offsets."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool = False


class FollowerAppendInfo(NamedTuple):
    """Result of an append as follower."""

    first_offset: int
    last_offset: int


def validate_client_batch(
    data: WritableBuffer,
    header: BatchHeader,
    settings: LogConfig,
    now_ms: int,
    where: str,
    checked: ValidatedBatch | None,
    *,
    at_once: bool,
) -> tuple[WritableBuffer, BatchHeader]:
    """Return a client's batch as it is appended, checked, with the timestamp type of the topic.

    ``checked`` is the result of an earlier `validate_records`, which counts while the settings are the same.

    Raises:
        ProtocolError: the batch is refused; ValidationPending: not ``at_once``, and many records must be read.
    """
    if checked is not None and checked.config is settings:
        data, header, _ = checked
    else:
        check_client_batch(data, header, settings, where)
        if needs_record_validation(header, settings, now_ms):
            data, header, _ = run_validation(validate_records(data, header, settings, now_ms, where), at_once=at_once)
    size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
    if len(data) > size_bytes:
        data = memoryview(data)[:size_bytes]
    if settings.log_append_time:
        attributes = header.attributes | TIMESTAMP_TYPE_BIT
        header = set_max_timestamp(data, 0, header._replace(attributes=attributes, max_timestamp=now_ms))
    elif header.attributes & TIMESTAMP_TYPE_BIT:
        header = set_max_timestamp(data, 0, header._replace(attributes=header.attributes & ~TIMESTAMP_TYPE_BIT))
    return data, header


def check_leader_batches(view: memoryview, next_offset: int, where: str) -> list[tuple[int, BatchHeader]]:
    """Return the whole batches of a leader's response with their positions, all of them checked.

    Raises:
        ProtocolError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE: a batch begins below the end of the one before.
    """
    batches = []
    try:
        for at, header in iterate_batches(view):
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                text = f"{where}: offsets {header.base_offset} to {header.last_offset} from the leader"
                raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
            if not crc_matches(view, header, at):
                raise WireError(f"bad CRC at offset {header.base_offset}")
            batches.append((at, header))
            next_offset = header.next_offset
    except WireError as error:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"{where}: {error}") from None
    return batches
