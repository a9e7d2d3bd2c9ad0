"""Tail of a topic: ranges of new records, bounded reading, rows by time, deleted and truncated records."""

from __future__ import annotations

from ottla.console.record_scan import MatchingRecord, ScanRange
from ottla.console.record_tail import MAX_NEWEST, RecordTail, newest_per_partition
from ottla.wire.record_batch.records import Record


def found(partition: int, offset: int, timestamp_ms: int) -> MatchingRecord:
    return MatchingRecord(partition, Record(offset, timestamp_ms, None, b"", ()), False)


def tail_of(limit: int, *records: MatchingRecord, end: int = 10, partitions: int = 2) -> RecordTail:
    """Return a tail that has read its partitions to an offset, and has the rows of the given records."""
    ranges = [ScanRange(number, 0, end) for number in range(partitions)]
    tail = RecordTail(limit, ranges)
    add(tail, ranges, *records)
    return tail


def add(tail: RecordTail, ranges: list[ScanRange], *records: MatchingRecord) -> None:
    chosen = tail.choose(records)
    tail.advance(ranges, [], sum(each.end - each.position for each in ranges))
    tail.add(chosen, [{"at": (each.partition, each.record.offset)} for each in chosen])


def places(tail: RecordTail) -> list[tuple[int, int]]:
    return [row["at"] for row in tail.listed]


def test_next_ranges_are_those_of_partitions_with_new_records() -> None:
    tail = tail_of(50)
    assert tail.next_ranges({0: 10, 1: 10}) == []
    assert tail.next_ranges({0: 10, 1: 12, 7: 3}) == [ScanRange(1, 10, 12)]
    assert (tail.skipped, tail.scanned) == (0, 20)


def test_new_records_beyond_the_limit_are_skipped_and_counted_once() -> None:
    tail = tail_of(50)
    ranges = tail.next_ranges({0: 1010, 1: 11})
    assert ranges == [ScanRange(0, 960, 1010), ScanRange(1, 10, 11)]
    assert tail.skipped == 950
    assert tail.next_ranges({0: 1010, 1: 11}) == ranges, "the scan has failed"
    assert tail.skipped == 950


def test_unfinished_range_is_continued_at_its_next_offset() -> None:
    tail = tail_of(50)
    tail.advance(tail.next_ranges({0: 30, 1: 30}), [ScanRange(0, 17, 30), ScanRange(1, 10, 30)], 7)
    assert tail.next_ranges({0: 31, 1: 30}) == [ScanRange(0, 17, 31), ScanRange(1, 10, 30)]
    assert tail.scanned == 27


def test_rows_are_the_newest_of_old_and_new_records_by_time() -> None:
    tail = tail_of(3, found(0, 8, 100), found(1, 8, 400), found(0, 9, 300))
    assert places(tail) == [(1, 8), (0, 9), (0, 8)]
    late, new = found(0, 10, 50), found(1, 9, 350)
    assert tail.choose([late, new]) == [new], "an older record is not shown"
    add(tail, tail.next_ranges({0: 11, 1: 10}), late, new)
    assert places(tail) == [(1, 8), (1, 9), (0, 9)]


def test_rows_of_deleted_records_are_dropped() -> None:
    tail = tail_of(5, found(0, 8, 1), found(0, 9, 2), found(1, 8, 3))
    tail.drop_deleted({0: 9})
    assert places(tail) == [(1, 8), (0, 9)]
    tail.drop_deleted({1: -1})
    assert places(tail) == [(1, 8), (0, 9)], "the log start offset is unknown"


def test_truncated_partition_is_read_again_from_its_end() -> None:
    tail = tail_of(5, found(0, 8, 1), found(0, 9, 2), found(1, 9, 3))
    assert tail.next_ranges({0: 9, 1: 10}) == []
    assert places(tail) == [(1, 9), (0, 8)]
    assert tail.next_ranges({0: 11, 1: 10}) == [ScanRange(0, 9, 11)]


def test_all_partitions_together_have_a_bounded_number_of_newest_records() -> None:
    assert newest_per_partition(50, 1) == newest_per_partition(50, 40) == 50
    assert newest_per_partition(50, 100) == MAX_NEWEST // 100
    assert newest_per_partition(50, 10_000) == 1
