"""Checks of record batches before `PartitionLog` appends them, and the results of its appends.

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
    """Result of an append as leader: first and last offset (inclusive) of the batch, and its log append time (ms).

    The time is -1 with CreateTime, and for batches that are not a client's. ``duplicate``: the batch was a retry, is
    already in the log at these offsets, and was not appended; the time is then its `BatchMetadata.timestamp_ms`.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool = False


class FollowerAppendInfo(NamedTuple):
    """Result of an append as follower: first and last offset (inclusive) of the appended batches."""

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
    """Validate a client's batch for an append by the leader; return the batch to append and its header.

    The timestamp type is set to the topic's, in ``data`` itself unless the records were recompressed. Bytes behind the
    batch are cut off.

    Args:
        data: Batch, and possibly an incomplete one behind it.
        header: Header of the batch.
        settings: Settings of the topic.
        now_ms: Wall clock; the log append time if the topic has LogAppendTime.
        where: Name of the partition in messages.
        checked: Result of an earlier `validate_records`, used only if the topic's settings are unchanged; or None.
        at_once: False if the caller handles ValidationPending.

    Raises:
        ProtocolError: the batch is rejected.
        ValidationPending: ``at_once`` is False and more than one piece of records must be validated.
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
    """Check the batches that a follower fetched from the leader, before it appends them.

    ``next_offset``: lowest offset for the first batch, the log end offset. ``where``: name of the partition in
    messages.

    Returns:
        (position in ``view``, header) of each complete batch; an incomplete last one is left out.

    Raises:
        ProtocolError: CORRUPT_MESSAGE; OFFSET_OUT_OF_RANGE: a batch begins below the end of the previous batch, or has
            a negative last offset delta.
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
