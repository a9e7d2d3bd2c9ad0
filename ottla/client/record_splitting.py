"""Division of records into batches that a broker with the default ``max.message.bytes`` accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.wire.record_batch.records import NewRecord

BATCH_BYTES = 512 * 1024
"""Maximum size of a batch: half of the default of ``max.message.bytes``."""
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
