"""Tail of a topic: the newest matching records, to which each update adds those that were appended since the last one.

What an update reads is bounded: of a partition with more new records, only the newest are read and the others counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from ottla.console.record_scan import MatchingRecord, ScanRange

MAX_NEWEST = 2000
"""Maximum number of newest records to read from all partitions together."""


def newest_per_partition(limit: int, partitions: int) -> int:
    """Return how many of the newest records of each partition are read to show at most ``limit`` of them all."""
    return min(limit, max(MAX_NEWEST // partitions, 1))


class ListedRecord(NamedTuple):
    """Record of a tail: its timestamp and position, and the values of its row on the page."""

    timestamp_ms: int
    partition: int
    offset: int
    values: Mapping[str, Any]


class RecordTail:
    """State of a tail: the next offset of each partition, the rows, and counts since the tail was opened."""

    def __init__(self, limit: int, ranges: Iterable[ScanRange]) -> None:
        """Create a tail of at most ``limit`` records, without rows; ``ranges``: those that its first update reads."""
        self._limit = limit
        self._listed: list[ListedRecord] = []
        self.positions = {each.partition: each.position for each in ranges}
        """Next offset to read by partition number."""
        self._each = newest_per_partition(limit, len(self.positions) or 1)
        self.scanned = self.skipped = 0
        """Records that were compared with the filter, and new ones that were left out, as more came than are read."""

    @property
    def listed(self) -> list[Mapping[str, Any]]:
        """Values of the rows, newest first."""
        return [row.values for row in reversed(self._listed)]

    def next_ranges(self, ends: Mapping[int, int]) -> list[ScanRange]:
        """Return the ranges of the newest records that were not read yet, and count those that are left out.

        A partition whose end is before its position was truncated: its rows are dropped, and nothing is read.

        Args:
            ends: end offset by partition number; partitions that are not in the tail are ignored.
        """
        out = []
        for partition, end in ends.items():
            position = self.positions.get(partition, end)
            if end < position:
                self.positions[partition] = end
                self._drop_truncated(partition, end)
            elif end > position:
                begin = max(position, end - self._each)
                self.skipped += begin - position
                self.positions[partition] = begin
                out.append(ScanRange(partition, begin, end))
        return out

    def advance(self, ranges: Iterable[ScanRange], rest: Iterable[ScanRange], scanned: int) -> None:
        """Set the positions after a scan.

        Args:
            ranges: the ranges that were to be read.
            rest: those of them that the scan has not finished, from their next offset on.
            scanned: number of records that the scan has compared with the filter.
        """
        self.positions.update((each.partition, each.end) for each in ranges)
        self.positions.update((each.partition, each.position) for each in rest)
        self.scanned += scanned

    def drop_deleted(self, log_start_offsets: Mapping[int, int]) -> None:
        """Drop the rows below the log start offset of their partition; those of partitions without one are kept."""
        self._listed = [row for row in self._listed if row.offset >= log_start_offsets.get(row.partition, -1)]

    def _drop_truncated(self, partition: int, end: int) -> None:
        """Drop the rows of a partition from an offset on, since their records do not exist any more."""
        self._listed = [row for row in self._listed if row.partition != partition or row.offset < end]

    def choose(self, matches: Sequence[MatchingRecord]) -> list[MatchingRecord]:
        """Return those of newly found records that will be shown: as many as the tail shows, by their timestamps."""
        times: list[tuple[int, MatchingRecord | None]] = [(row.timestamp_ms, None) for row in self._listed]
        times += [(each.record.timestamp_ms, each) for each in matches]
        newest = sorted(times, key=itemgetter(0))[-self._limit :]
        return [each for _, each in newest if each is not None]

    def add(self, chosen: Iterable[MatchingRecord], values: Iterable[Mapping[str, Any]]) -> None:
        """Add the records of `choose` with the values of their rows; the oldest rows beyond the limit are dropped."""
        for each, row in zip(chosen, values, strict=True):
            self._listed.append(ListedRecord(each.record.timestamp_ms, each.partition, each.record.offset, row))
        self._listed = sorted(self._listed, key=itemgetter(0))[-self._limit :]
