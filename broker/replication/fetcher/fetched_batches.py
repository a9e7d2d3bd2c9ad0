"""Split of the records in a leader's Fetch response into chunks, which the follower appends one by one."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ottla.wire.codec.primitives import Buffer
from ottla.wire.record_batch.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES

APPEND_CHUNK_BYTES = 256 * 1024
APPEND_CHUNK_BATCHES = 64
_LENGTH_AND_EPOCH = struct.Struct(">ii").unpack_from


def split_batches(records: Buffer, leader_epoch: int) -> Iterator[memoryview]:
    """Yield chunks of the complete batches before the first batch of an epoch above ``leader_epoch`` (R-319).

    A chunk ends after `APPEND_CHUNK_BATCHES` batches, or with the batch that reaches `APPEND_CHUNK_BYTES`. It shares
    the memory of ``records``. An incomplete batch at the end is left out. From a batch with an invalid length on, all
    bytes are yielded unchanged: the append rejects them.
    """
    view = memoryview(records)
    start = at = count = 0
    while at + HEADER_BYTES <= len(view):
        length, epoch = _LENGTH_AND_EPOCH(view, at + 8)
        if epoch > leader_epoch:
            break
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            at = len(view)
            break
        if at + length + LOG_OVERHEAD_BYTES > len(view):
            break
        at += length + LOG_OVERHEAD_BYTES
        count += 1
        if count == APPEND_CHUNK_BATCHES or at - start >= APPEND_CHUNK_BYTES:
            yield view[start:at]
            start, count = at, 0
    if at > start:
        yield view[start:at]
