"""Truncation of one segment before the first batch that ends at or above an offset.

Source: ``LogSegment.truncateTo`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.log.segment.log_segment import SEGMENT_START, IndexedBatch, LogSegment
from ottla.wire.errors import WireError


def truncate_segment(segment: LogSegment, offset: int) -> tuple[int, str | None]:
    """Remove the batches of a segment that end at or above ``offset``, from file and indexes, unsynced.

    Index entries below ``offset`` are trusted, so that only a few batches are read.

    Returns:
        The offset after the last remaining batch (the base offset if none remains), and a message if damage truncated
        the segment further, else None.
    """
    known = segment.truncate_indexes(offset)
    try:
        end, good, damage = _index_batches_from(segment, known, offset)
    except WireError:
        segment.reset_indexes()
        end, good, damage = _index_batches_from(segment, SEGMENT_START, offset)
    if good < segment.size_bytes:
        segment.truncate(good)
    segment.truncate_txn_index(end)
    return (
        end,
        None
        if damage is None
        else f"Corruption found in segment {segment.path}.log, truncating at byte {good}: {damage}",
    )


def _index_batches_from(segment: LogSegment, known: IndexedBatch, offset: int) -> tuple[int, int, WireError | None]:
    """Index the batches from the indexed batch ``known`` on that end below ``offset``.

    Returns:
        The offset and the file position after the last of them, and the error of a damaged batch that follows, or None.

    Raises:
        WireError: there is another batch at the position in the index.
    """
    end, good = segment.base_offset, known.position
    damage: WireError | None = None
    try:
        for position, header, _ in segment.scan(known.position, check=False):
            if position == known.position > 0 and header.last_offset != known.last_offset:
                break
            if header.last_offset >= offset:
                return end, good, None
            segment.index_batch(header, position)
            end, good = header.next_offset, position + header.size_bytes
    except WireError as error:
        damage = error
    if good == known.position > 0:
        raise WireError(f"{segment.path}.index has a wrong position for offset {known.last_offset}")
    return end, good, damage
