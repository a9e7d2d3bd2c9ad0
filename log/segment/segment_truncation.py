"""Truncation of one segment before the first batch that reaches to an offset.

Source: ``LogSegment.truncateTo`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.log.segment.log_segment import SEGMENT_START, IndexedBatch, LogSegment
from ottla.wire.errors import WireError


def truncate_segment(segment: LogSegment, offset: int) -> tuple[int, str | None]:
    """Truncate a segment. Index entries below the offset are trusted, so that only a few batches are read.

    Returns:
        The end offset of the last batch that is left, and a note where damage ends the segment sooner.
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
    """Index the batches from a known one on; return where those below ``offset`` end, their bytes and damage.

    Raises:
        WireError: another batch lies at the known position.
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
        raise WireError(f"{segment.path}.index is wrong about offset {known.last_offset}")
    return end, good, damage
