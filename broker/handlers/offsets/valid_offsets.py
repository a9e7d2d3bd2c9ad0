"""Positions handed in for a group, by OffsetCommit or within a transaction: which of them go to the group's machine.

Source: ``OffsetMetadataManager.isMetadataInvalid`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.broker.groups.committed_offsets import OffsetToCommit


class ValidPartitions(NamedTuple):
    """Partitions of a topic that exist, as a request names them."""

    name: str
    topic_id: bytes
    partitions: Sequence[Any]


def utf16_length(text: str) -> int:
    """``String.length``: UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def is_metadata_too_long(part: Any, limit: int) -> bool:
    """Return True if the metadata exceeds ``offset.metadata.max.bytes``, which Kafka counts in UTF-16 units."""
    return utf16_length(part.committed_metadata or "") > limit


def new_offsets(good: Iterable[ValidPartitions], limit: int) -> Iterator[OffsetToCommit]:
    """Yield the offsets to store: all with valid metadata."""
    for name, topic_id, partitions in good:
        for part in partitions:
            if not is_metadata_too_long(part, limit):
                yield OffsetToCommit(
                    name,
                    topic_id,
                    part.partition_index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.committed_metadata or "",
                )
