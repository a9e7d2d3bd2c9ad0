"""Rules for reading a log: ``UnifiedLog.read``, ``LocalLog.collectAbortedTransactions``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.segment.log_segments import remove_files
from ottla.log.tests.log_fixtures import (
    COMPACTED,
    DIRECTORY,
    NOW,
    append_committed,
    make_batch,
    make_marker,
    make_transactional_batch,
    memory_disk,
    new_log,
    reopen_in_new_session,
    write_segment_file,
)
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import iterate_batches, parse_header

SIZE = len(make_batch(0))


def three_segments() -> PartitionLog:
    """Return a log of three segments with three batches of three records each: offsets 0 to 26."""
    log = new_log(memory_disk().session(), LogConfig(segment_bytes=3 * SIZE + 10, index_interval_bytes=0))
    for _ in range(9):
        log.append_as_leader(make_batch(0), 0, NOW)
    log.set_high_watermark(27)
    assert log.segments.base_offsets == [0, 9, 18]
    return log


def first_offsets(log: PartitionLog, offset: int, max_bytes: int, upper: int, *, whole: bool) -> list[int] | int | None:
    """Return the first offsets of the batches of a read, its size if it ends within a batch, or None."""
    part = log.read(offset, max_bytes, upper, at_least_one=whole)
    if part is None:
        return None
    raw = part.read()
    assert len(raw) == len(part)
    found = [h.base_offset for _, h in iterate_batches(raw)]
    return found if len(raw) == len(found) * SIZE else len(raw)


@pytest.mark.parametrize(
    ("offset", "max_bytes", "upper", "whole", "found"),
    [
        (0, 10_000, 27, False, [0, 3, 6]),  # up to the end of the segment
        (4, 10_000, 27, False, [3, 6]),  # from the batch that contains the offset
        (9, 10_000, 27, False, [9, 12, 15]),
        (8, 10_000, 27, False, [6]),
        (26, 10_000, 27, False, [24]),
        (27, 10_000, 27, False, None),  # the log end
        (0, 10_000, 0, False, None),
        (5, 10_000, 5, False, None),
        (5, 10_000, 4, False, None),
        (0, 10_000, 3, False, [0]),  # up to the upper offset
        (0, 10_000, 6, False, [0, 3]),
        (4, 10_000, 4, False, None),
        (0, 10_000, 9, False, [0, 3, 6]),
        (9, 10_000, 12, False, [9]),
        (18, 10_000, 24, False, [18, 21]),
        (0, SIZE, 27, False, [0]),  # at most max_bytes
        (0, SIZE + 1, 27, False, SIZE + 1),
        (0, 2 * SIZE, 27, False, [0, 3]),
        (0, 2 * SIZE - 1, 27, False, 2 * SIZE - 1),  # a later batch may be truncated
        (0, SIZE - 1, 27, False, None),  # the first batch is never truncated
        (0, 1, 27, False, None),
        (0, 0, 27, False, None),
        (4, SIZE - 1, 27, False, None),
        (26, SIZE - 1, 27, False, None),
        (26, SIZE, 27, False, [24]),
        (0, SIZE - 1, 3, False, None),
        (0, SIZE, 3, False, [0]),
        (0, 0, 27, True, [0]),  # at least one whole batch
        (0, 1, 27, True, [0]),
        (0, SIZE - 1, 27, True, [0]),
        (0, SIZE + 1, 27, True, SIZE + 1),
        (0, 1, 4, True, [0]),
        (3, 10_000, 4, True, None),  # the upper offset is within the batch
        (3, 1, 5, True, None),
        (0, 10_000, 4, True, [0]),
    ],
)
def test_read_returns_batches_up_to_upper_offset_and_max_bytes(
    offset: int, max_bytes: int, upper: int, *, whole: bool, found: list[int] | int | None
) -> None:
    assert first_offsets(three_segments(), offset, max_bytes, upper, whole=whole) == found


@pytest.mark.parametrize("offset", [-1, 28, 2**62])
def test_read_outside_the_log_raises_offset_out_of_range(offset: int) -> None:
    log = three_segments()
    with pytest.raises(ProtocolError) as caught:
        log.read(offset, 100, 27, at_least_one=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.check_readable(0)
    log.check_readable(27)
    log.maybe_increment_log_start_offset(10)
    log.check_readable(10)
    with pytest.raises(ProtocolError):
        log.check_readable(9)


def test_read_skips_offset_gap_but_not_the_upper_offset() -> None:
    memory = memory_disk()
    write_segment_file(memory, 0, [(0, 3), (9, 3)])
    write_segment_file(memory, 20, [(20, 3)])
    log = reopen_in_new_session(memory, COMPACTED)
    size = len(make_batch(0, 3))
    for offset, upper, at in ((3, 23, 9), (8, 23, 9), (12, 23, 20), (19, 23, 20)):
        part = log.read(offset, size, upper, at_least_one=True)
        assert part is not None
        assert parse_header(part.read()).base_offset == at
    assert log.read(3, size, 9, at_least_one=True) is None
    assert log.read(12, size, 20, at_least_one=True) is None
    assert log.read(12, size, 22, at_least_one=True) is None, "upper offset is within the batch"
    assert log.read(12, size, 23, at_least_one=True) is not None
    assert [h.base_offset for h, _ in log.segments.batches(3)] == [9, 20]
    assert list(log.segments.batches(23)) == []


@pytest.mark.parametrize(
    ("damage", "offset", "found"),
    [
        ([(SIZE, 2 * SIZE)], 0, [0]),  # up to the damage
        ([(SIZE, 2 * SIZE)], 3, None),
        ([(SIZE, 2 * SIZE)], 6, [6]),
        ([(0, SIZE)], 0, None),
        ([(0, SIZE)], 3, [3, 6]),
        ([(2 * SIZE, 3 * SIZE)], 0, [0, 3]),
    ],
)
def test_read_known_damage_raises_corrupt_message(
    damage: list[tuple[int, int]], offset: int, found: list[int] | None
) -> None:
    log = three_segments()
    log.segments[0].damaged_ranges = damage
    if found is None:
        with pytest.raises(ProtocolError) as caught:
            first_offsets(log, offset, 10_000, 27, whole=True)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    else:
        assert first_offsets(log, offset, 10_000, 27, whole=True) == found


@pytest.mark.parametrize(
    ("offset", "upper", "found"),
    [
        (0, 27, None),  # on an older segment
        (8, 18, None),
        (18, 27, 3 * SIZE),
        (19, 27, 3 * SIZE),
        (21, 27, 2 * SIZE),
        (26, 27, SIZE),
        (18, 24, 2 * SIZE),
        (18, 21, SIZE),
        (0, 6, 2 * SIZE),  # on the segment of the upper offset, which may be inactive
        (0, 4, SIZE),
        (3, 4, 0),  # within one batch
        (27, 27, 0),
        (5, 5, 0),
        (6, 5, 0),
    ],
)
def test_bytes_between_counts_up_to_upper_offset_on_its_segment(offset: int, upper: int, found: int | None) -> None:
    assert three_segments().bytes_between(offset, upper) == found


def test_bytes_between_below_log_start_returns_zero() -> None:
    log = three_segments()
    log.maybe_increment_log_start_offset(20)
    assert log.bytes_between(19, 27) == 0
    assert log.bytes_between(20, 27) == 3 * SIZE


@pytest.mark.parametrize(
    ("offset", "upper", "above"),
    [(3, 3, False), (3, 9, False), (4, 3, False), (5, 4, False), (6, 3, True), (6, 5, True), (27, 26, True)],
)
def test_is_batch_above_compares_base_offset(offset: int, upper: int, *, above: bool) -> None:
    assert three_segments().segments.is_batch_above(offset, upper) is above


def test_batches_begin_with_the_batch_that_contains_the_offset() -> None:
    log = three_segments()
    for offset, first in ((0, 0), (2, 0), (3, 3), (8, 6), (9, 9), (26, 24)):
        assert [h.base_offset for h, _ in log.segments.batches(offset)] == list(range(first, 27, 3))


TXNS: list[Callable[[PartitionLog], object]] = [
    lambda log: append_committed(log, make_transactional_batch(1, 0)),  # 0
    lambda log: append_committed(log, make_transactional_batch(2, 0)),  # 1
    lambda log: append_committed(log, make_marker(1, 0)),  # 2 aborts 0
    lambda log: log.roll(NOW),
    lambda log: append_committed(log, make_transactional_batch(1, 1)),  # 3
    lambda log: append_committed(log, make_marker(2, 0)),  # 4 aborts 1
    lambda log: log.roll(NOW),
    lambda log: append_committed(log, make_marker(1, 0)),  # 5 aborts 3
    lambda log: append_committed(log, make_transactional_batch(3, 0)),  # 6
    lambda log: append_committed(log, make_marker(3, 1)),  # 7 commits
]


@pytest.mark.parametrize(
    ("offset", "upper", "found"),
    [
        (0, 8, [0, 1, 3]),
        (0, 1, [0]),
        (0, 2, [0, 1]),
        (0, 3, [0, 1]),
        (2, 8, [0, 1, 3]),  # the marker is after the offset
        (3, 8, [1, 3]),
        (4, 8, [1, 3]),
        (5, 8, [3]),
        (6, 8, []),
        (3, 3, [1]),
        (3, 4, [1, 3]),
    ],
)
def test_collect_aborted_txns_returns_transactions_with_records_in_range(
    offset: int, upper: int, found: list[int]
) -> None:
    log = new_log(memory_disk().session(), LogConfig())
    for step in TXNS:
        step(log)
    assert [entry.first_offset for entry in log.segments.collect_aborted_txns(offset, upper)] == found


def test_last_stable_offset_is_start_of_oldest_open_transaction() -> None:
    log = new_log(memory_disk().session(), LogConfig())
    stable = []
    for step in TXNS:
        step(log)
        stable.append(log.last_stable_offset)
    assert stable == [0, 0, 1, 1, 1, 3, 3, 6, 6, 8]
    append_committed(log, make_transactional_batch(4, 0))
    append_committed(log, make_transactional_batch(5, 0))
    assert log.last_stable_offset == 8
    log.maybe_increment_log_start_offset(9)
    assert log.last_stable_offset == 9
    assert log.high_watermark == 10


@pytest.mark.parametrize(("start", "high_watermark", "end"), [(5, 4, 9), (0, 10, 9), (10, 9, 9)])
def test_check_offset_order_violation_raises_assertion_error(start: int, high_watermark: int, end: int) -> None:
    log = three_segments()
    log.log_start_offset, log.high_watermark, log.log_end_offset = start, high_watermark, end
    with pytest.raises(AssertionError, match=f"t-0: start {start}, high watermark {high_watermark}, end {end}"):
        log.check_offset_order()


def test_set_high_watermark_only_increases_up_to_log_end() -> None:
    log = new_log(memory_disk().session())
    log.append_as_leader(make_batch(0), 0, NOW)
    assert [log.set_high_watermark(o) for o in (0, 2, 2, 1, 99, 99)] == [False, True, False, False, True, False]
    assert log.high_watermark == 3
    assert not log.maybe_increment_log_start_offset(0)
    assert log.maybe_increment_log_start_offset(2)
    assert not log.maybe_increment_log_start_offset(1)
    assert log.maybe_increment_log_start_offset(99)
    assert log.log_start_offset == 3


def test_delete_segments_below_start_renames_files_and_deletes_them_later() -> None:
    log = three_segments()
    log.maybe_increment_log_start_offset(9)
    log.delete_segments_below_start(NOW)
    assert log.segments.base_offsets == [9, 18]
    assert {path.rpartition("/")[2] for _, path in log.segments.retired_files} >= {
        f"{0:020d}.log.deleted",
        f"{0:020d}.index.deleted",
    }
    due = {at for at, _ in log.segments.retired_files}
    assert due == {NOW + log.config.file_delete_delay_ms}
    remove_files(log.disk, log.segments.pop_deletable_files(NOW + log.config.file_delete_delay_ms - 1))
    assert log.disk.exists(f"{DIRECTORY}/{0:020d}.log.deleted")
    remove_files(log.disk, log.segments.pop_deletable_files(NOW + log.config.file_delete_delay_ms))
    assert not [n for n in log.disk.listdir(DIRECTORY) if n.endswith(".deleted")]
    assert log.segments.retired_files == []
    log.maybe_increment_log_start_offset(27)
    log.delete_segments_below_start(NOW)
    assert log.segments.base_offsets == [18], "the active segment remains"
