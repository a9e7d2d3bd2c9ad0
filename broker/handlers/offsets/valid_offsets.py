"""Valid offsets of OffsetCommit and TxnOffsetCommit requests, which are submitted to the group coordinator.

Source: ``OffsetMetadataManager.isMetadataInvalid`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.broker.groups.committed_offsets import OffsetToCommit


class ValidPartitions(NamedTuple):
    """Existing partitions of one topic, by name and topic id, with a request's rows of offsets to commit."""

    name: str
    topic_id: bytes
    partitions: Sequence[Any]


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 code units, as Java's ``String.length`` does."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def is_metadata_too_long(part: Any, limit: int) -> bool:
    """Return True if a partition's metadata exceeds ``limit`` (``offset.metadata.max.bytes``) in UTF-16 code units."""
    return utf16_length(part.committed_metadata or "") > limit


def new_offsets(good: Iterable[ValidPartitions], limit: int) -> Iterator[OffsetToCommit]:
    """Yield the offsets to commit; those with metadata longer than ``limit`` UTF-16 code units are left out."""
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
