"""Division of records into batches that a broker accepts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.records import NewRecord

BATCH_BYTES = 512 * 1024
"""Maximum size of a batch: half of the default of ``max.message.bytes``."""
TOO_LARGE_CODES = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_RECORD_OVERHEAD_BYTES = 32


def split_records(records: Sequence[NewRecord]) -> Iterator[list[NewRecord]]:
    """Yield groups of records that fit into a batch of `BATCH_BYTES`, at least one group; a larger record is alone."""
    group: list[NewRecord] = []
    size_bytes = 0
    for record in records:
        own_bytes = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        own_bytes += sum(_RECORD_OVERHEAD_BYTES + 4 * len(name) + len(value or b"") for name, value in record.headers)
        if group and size_bytes + own_bytes > BATCH_BYTES:
            yield group
            group, size_bytes = [], 0
        group.append(record)
        size_bytes += own_bytes
    yield group


async def append_in_batches(
    records: Sequence[NewRecord], append: Callable[[list[NewRecord]], Awaitable[object]]
) -> None:
    """Call ``append`` with each group of `split_records`; halve a group that is too large for the topic.

    Raises:
        ProtocolError: that of ``append``; one of `TOO_LARGE_CODES` only for a single record.

    Source: ``Sender.completeBatch``, ``RecordAccumulator.splitAndReenqueue`` (apache/kafka 4.3.1).
    """
    for group in split_records(records):
        pending = [group]
        while pending:
            items = pending.pop()
            try:
                await append(items)
            except ProtocolError as error:
                if error.code not in TOO_LARGE_CODES or len(items) < 2:
                    raise
                middle = len(items) // 2
                pending += (items[middle:], items[:middle])
