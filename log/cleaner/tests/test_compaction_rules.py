"""Rules for compaction: ``LogCleaner.java``, ``LogCleanerManager.java``, ``CleanedTransactionMetadata.java``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.log.cleaner import compaction
from ottla.log.cleaner.cleaned_transaction_metadata import CleanedTransactionMetadata, control_batch_type
from ottla.log.cleaner.compaction import (
    CLEANED_FILE_SUFFIX,
    CleanerStats,
    build_offset_map,
    delete_unfinished_files,
    group_segments_by_size,
    run_compaction,
)
from ottla.log.cleaner.log_to_clean import find_log_to_clean, plan_compaction
from ottla.log.cleaner.offset_map import OffsetMap
from ottla.log.cleaner.tests.swap import swap_segments
from ottla.log.cleaner.tests.test_compaction import dirtiest_log
from ottla.log.log_config import FOREVER_MS, LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.segment.indexes import AbortedTxn
from ottla.log.segment.log_segment import MAX_RELATIVE_OFFSET, LogSegment
from ottla.log.tests.log_fixtures import (
    NOW,
    append_committed,
    make_marker,
    make_transactional_batch,
    memory_disk,
    new_log,
)
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
)
from ottla.wire.record_batch.records import NewRecord, build_batch, iterate_records

SETTINGS = LogConfig(compact=True, delete=False, delete_retention_ms=1000, min_cleanable_dirty_ratio=0.5)
MAP_BYTES = 1 << 20


def record(key: bytes | None, value: bytes | None, at: int = NOW) -> NewRecord:
    return NewRecord(key, value, at)


def segments(log: PartitionLog, count: int, size: int = 1) -> None:
    """Append sealed segments of ``size`` one-record batches each; the active segment is empty."""
    for number in range(count):
        for _ in range(size):
            append_committed(log, bytearray(build_batch([record(b"k", b"v%d" % number)])))
        log.roll(NOW)


def one_pass(log: PartitionLog, now: int = NOW) -> CleanerStats:
    log.set_high_watermark(log.log_end_offset)
    found = find_log_to_clean(log, now)
    assert found is not None
    outcome = run_compaction(log.disk, plan_compaction(found, now, MAP_BYTES))
    assert swap_segments(log, outcome.cleaned, now)
    log.raise_cleaner_offset(outcome.end)
    return outcome.stats


def remaining_batches(log: PartitionLog) -> list[tuple[int, int]]:
    """Return (base offset, records) of every batch."""
    return [(h.base_offset, h.records_count) for h, _ in log.segments.batches()]


# ---------------------------------------------------------------- cleanable ranges


@pytest.mark.parametrize(
    ("clean_up_to", "start", "high_watermark", "found"),
    [
        # -> (first dirty offset, end, share of new bytes)
        (0, 0, 8, (0, 8, 1.0)),
        (2, 0, 8, (2, 8, 0.75)),
        (3, 0, 8, (3, 8, 0.75)),  # in the middle of a segment: the whole segment counts as new
        (4, 0, 8, (4, 8, 0.5)),
        (6, 0, 8, (6, 8, 0.25)),
        (8, 0, 8, None),
        (0, 4, 8, (4, 8, 0.5)),  # bytes below the log start do not count as new
        (0, 0, 7, (0, 6, 1.0)),  # only whole segments below the high watermark
        (0, 0, 6, (0, 6, 1.0)),
        (0, 0, 5, (0, 4, 1.0)),
        (4, 0, 5, None),
        (0, 0, 1, None),
    ],
)
def test_find_log_to_clean_returns_dirty_range_and_ratio(
    clean_up_to: int, start: int, high_watermark: int, found: tuple[int, int, float] | None
) -> None:
    log = new_log(memory_disk().session(), SETTINGS)
    for _ in range(4):
        for _ in range(2):
            log.append_as_leader(bytearray(build_batch([record(b"k", b"v")])), 0, NOW)
        log.roll(NOW)
    log.set_high_watermark(high_watermark)
    log.raise_cleaner_offset(clean_up_to)
    log.maybe_increment_log_start_offset(start)
    seen = find_log_to_clean(log, NOW)
    assert (
        None if seen is None else (seen.first_dirty_offset, seen.first_uncleanable_offset, seen.cleanable_ratio)
    ) == found


def test_find_log_to_clean_excludes_open_transactions_and_closed_logs() -> None:
    log = new_log(memory_disk().session(), SETTINGS)
    append_committed(log, bytearray(build_batch([record(b"k", b"v")])))
    assert find_log_to_clean(log, NOW) is None, "the active segment is not cleaned"
    log.roll(NOW)
    assert find_log_to_clean(log, NOW) is not None
    append_committed(log, make_transactional_batch(1, 0))
    log.roll(NOW)
    found = find_log_to_clean(log, NOW)
    assert found is not None
    assert found.first_uncleanable_offset == 1
    log.update_config(replace(SETTINGS, compact=False))
    assert find_log_to_clean(log, NOW) is None
    log.update_config(SETTINGS)
    log.set_offline()
    assert find_log_to_clean(log, NOW) is None


@pytest.mark.parametrize(
    ("min_lag", "max_lag", "now", "found"),
    [
        # -> (end, overdue); the newest records of the segments have timestamps NOW, NOW + 100, NOW + 200
        (0, FOREVER_MS, NOW + 200, (3, False)),
        (100, FOREVER_MS, NOW + 200, (2, False)),
        (101, FOREVER_MS, NOW + 200, (1, False)),
        (200, FOREVER_MS, NOW + 200, (1, False)),
        (201, FOREVER_MS, NOW + 200, None),
        (0, 200, NOW + 200, (3, False)),
        (0, 199, NOW + 200, (3, True)),
        (101, 50, NOW + 200, (1, True)),
    ],
)
def test_find_log_to_clean_respects_min_and_max_compaction_lag(
    min_lag: int, max_lag: int, now: int, found: tuple[int, bool] | None
) -> None:
    """``LogCleanerManager.cleanableOffsets`` and ``maxCompactionDelay`` (KIP-354)."""
    log = new_log(memory_disk().session(), SETTINGS)
    for at in (0, 100, 200):
        append_committed(log, bytearray(build_batch([record(b"k", b"v", NOW + at)])))
        log.roll(NOW)
    log.update_config(replace(SETTINGS, min_compaction_lag_ms=min_lag, max_compaction_lag_ms=max_lag))
    seen = find_log_to_clean(log, now)
    assert (None if seen is None else (seen.first_uncleanable_offset, seen.needs_compaction_now)) == found


def test_select_dirtiest_log_prefers_overdue_log_then_highest_ratio() -> None:
    half, most, late = (new_log(memory_disk().session(), SETTINGS) for _ in range(3))
    for log, clean in ((half, 2), (most, 1), (late, 3)):
        segments(log, 4)
        log.raise_cleaner_offset(clean)
    found = dirtiest_log([half, most, late], NOW)
    assert found is not None
    assert found.log is most
    most.set_offline()
    assert dirtiest_log([half, most, late], NOW) is None, "ratio must exceed one half"
    late.update_config(replace(SETTINGS, max_compaction_lag_ms=10))
    found = dirtiest_log([half, late], NOW + 11)
    assert found is not None
    assert found.log is late
    assert dirtiest_log([], NOW) is None


# ---------------------------------------------------------------- groups of segments


@pytest.mark.parametrize(
    ("sizes", "bases", "limit", "next_base", "groups"),
    [
        ([100], [0], 100, 5, [[0]]),
        ([100, 100], [0, 5], 200, 9, [[0, 5]]),
        ([100, 100], [0, 5], 199, 9, [[0], [5]]),
        ([300, 100], [0, 5], 200, 9, [[0], [5]]),  # an oversized segment stays alone
        ([50, 50, 50, 50], [0, 1, 2, 3], 100, 4, [[0, 1], [2, 3]]),
        ([50, 60, 40, 50], [0, 1, 2, 3], 100, 4, [[0], [1, 2], [3]]),
        ([0, 0, 0], [0, 1, 2], 0, 3, [[0, 1, 2]]),
        # Offsets must fit the new segment's index.
        ([1, 1], [0, 9], 100, MAX_RELATIVE_OFFSET + 1, [[0, 9]]),
        ([1, 1], [0, 9], 100, MAX_RELATIVE_OFFSET + 2, [[0], [9]]),
        ([1, 1, 1], [0, 9, MAX_RELATIVE_OFFSET + 2], 100, MAX_RELATIVE_OFFSET + 9, [[0], [9, MAX_RELATIVE_OFFSET + 2]]),
        ([1, 1, 1], [0, 9, MAX_RELATIVE_OFFSET + 1], 100, MAX_RELATIVE_OFFSET + 9, [[0, 9], [MAX_RELATIVE_OFFSET + 1]]),
    ],
)
def test_group_segments_respects_size_and_index_limits(
    sizes: list[int], bases: list[int], limit: int, next_base: int, groups: list[list[int]]
) -> None:
    """``Cleaner.groupSegmentsBySize``."""
    found = [LogSegment(memory_disk().session(), "/d", base, SETTINGS, 0) for base in bases]
    for segment, size in zip(found, sizes, strict=True):
        segment.size_bytes = size
    made = group_segments_by_size(found, replace(SETTINGS, segment_bytes=limit), next_base)
    assert [[s.base_offset for s in group] for group in made] == groups


# ---------------------------------------------------------------- transactions


def header(pid: int, offset: int, *, transactional: bool = True) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT if transactional else 0
    raw = build_batch([record(b"k", b"v")], attributes=attributes, producer_id=pid, producer_epoch=0, base_sequence=0)
    return parse_header(raw)._replace(base_offset=offset)


ABORTED = AbortedTxn(1, 5, 9, 9)


@pytest.mark.parametrize(
    ("steps", "removed", "kept"),
    [
        # d: data batch (aborted?); a, c: abort and commit marker (without remaining records?); o: other control batch
        (["d1@5", "a1@9"], [True, False], [ABORTED]),
        (["a1@9"], [True], []),  # its records were removed in an earlier pass
        (["d1@4", "d1@5", "a1@9"], [False, True, False], [ABORTED]),  # before the start of the transaction
        (["d2@6", "c2@7", "c2@8"], [False, False, True], []),
        (["c2@7"], [True], []),
        (["n1@6", "a1@9"], [False, True], []),  # not transactional: outside the transaction
        (["d1@5", "a1@9", "d1@10", "c1@11", "a1@12"], [True, False, False, False, True], [ABORTED]),
        (["d2@6", "o2@7", "c2@8"], [False, False, False], []),
    ],
)
def test_cleaned_transaction_metadata_follows_batches_in_offset_order(
    steps: list[str], removed: list[bool], kept: list[AbortedTxn]
) -> None:
    transactions = CleanedTransactionMetadata([ABORTED])
    found = []
    for step in steps:
        kind, pid, offset = step[0], int(step[1]), int(step[3:])
        if kind in "dn":
            found.append(transactions.on_batch_read(header(pid, offset, transactional=kind == "d")))
        else:
            found.append(transactions.on_control_batch_read(header(pid, offset), {"a": 0, "c": 1, "o": 5}[kind]))
    assert found == removed
    assert transactions.retained_txns == kept


def test_control_batch_type_is_read_from_the_key() -> None:
    for kind in (0, 1, 3):
        raw = make_marker(1, kind)
        assert control_batch_type(parse_header(raw), raw) == kind
    for key in (None, b"\0\0\0"):
        raw = bytearray(build_batch([record(key, b"\0" * 6)], attributes=CONTROL_BIT))
        assert control_batch_type(parse_header(raw), raw) == -1
    short = bytearray(build_batch([record(b"\0\0\0\1", b"")], attributes=CONTROL_BIT))
    assert control_batch_type(parse_header(short), short) == 1


def test_compaction_commit_marker_is_removed_after_its_delete_horizon() -> None:
    """The horizon is set when no record of the transaction remains."""
    log = new_log(memory_disk().session(), SETTINGS)
    append_committed(log, make_transactional_batch(1, 0))
    append_committed(log, make_marker(1, 1))
    append_committed(log, make_transactional_batch(1, 1))
    append_committed(log, make_marker(1, 1))
    segments(log, 1)
    for _ in range(2):
        append_committed(log, bytearray(build_batch([record(b"k0", b"new"), record(b"k1", b"new")])))
        log.roll(NOW)
    one_pass(log)
    assert remaining_batches(log)[:4] == [(1, 1), (2, 0), (3, 1), (4, 1)], (
        "the producer's last data batch remains without records"
    )
    first = next(h for h, _ in log.segments.batches())
    assert not first.attributes & DELETE_HORIZON_BIT, "its records were removed by the same pass"
    segments(log, 1)
    one_pass(log)
    first = next(h for h, _ in log.segments.batches())
    assert first.attributes & DELETE_HORIZON_BIT
    assert (first.base_offset, first.base_timestamp) == (1, NOW + 1000)
    for now, stays in ((NOW + 999, True), (NOW + 1000, False)):
        segments(log, 2)
        one_pass(log, now)
        assert ((1, 1) in remaining_batches(log)) == stays


# ---------------------------------------------------------------- tombstones and statistics


def test_compaction_tombstone_is_kept_until_its_delete_horizon() -> None:
    log = new_log(memory_disk().session(), SETTINGS)
    append_committed(log, bytearray(build_batch([record(b"a", b"1"), record(b"gone", b"2", NOW + 7)])))
    append_committed(log, bytearray(build_batch([record(b"gone", None, NOW + 9), record(b"b", b"3", NOW + 30)])))
    log.roll(NOW)
    stats = one_pass(log)
    assert (stats.records_read, stats.records_kept, stats.keys) == (4, 3, 3)
    raws = [bytes(raw) for _, raw in log.segments.batches()]
    assert stats.bytes_written == sum(map(len, raws))
    assert stats.bytes_read > stats.bytes_written
    for now, count in ((NOW + 999, 2), (NOW + 1000, 1)):
        segments(log, 1)
        one_pass(log, now)
        found = list(log.segments.batches())[1]
        assert found[0].records_count == count
        assert [x.timestamp_ms for x in iterate_records(found[1], found[0])] == [NOW + 9, NOW + 30][2 - count :]
        assert (found[0].base_timestamp, found[0].max_timestamp) == (NOW + 1000, NOW + 30)
        assert found[0].attributes & DELETE_HORIZON_BIT


def test_compaction_max_timestamp_is_that_of_retained_records() -> None:
    log = new_log(memory_disk().session(), SETTINGS)
    append_committed(log, bytearray(build_batch([record(b"a", b"1", NOW + 5), record(b"b", b"2", NOW + 90)])))
    append_committed(log, bytearray(build_batch([record(b"b", b"3", NOW + 20)])))
    log.roll(NOW)
    one_pass(log)
    assert [(h.base_offset, h.last_offset, h.max_timestamp) for h, _ in log.segments.batches()] == [
        (0, 1, NOW + 5),
        (2, 2, NOW + 20),
    ]


def test_compaction_fully_retained_batch_keeps_its_bytes() -> None:
    log = new_log(memory_disk().session(), SETTINGS)
    append_committed(log, bytearray(build_batch([record(b"a", b"1"), record(b"b", b"2")])))
    log.roll(NOW)
    before = [bytes(raw) for _, raw in log.segments.batches()]
    one_pass(log)
    assert [bytes(raw) for _, raw in log.segments.batches()] == before


def test_compaction_keeps_last_offset_of_pass_when_empty() -> None:
    log = new_log(memory_disk().session(), SETTINGS)
    segments(log, 1, 2)
    append_committed(log, bytearray(build_batch([record(b"k", None)])))
    log.roll(NOW)
    one_pass(log)
    log.update_config(replace(SETTINGS, min_compaction_lag_ms=0))
    assert remaining_batches(log) == [(2, 1)]
    segments(log, 1)
    one_pass(log, NOW + 1001)
    assert remaining_batches(log) == [(3, 1)]


@pytest.mark.parametrize(("keys", "end"), [(1, 1), (2, 2), (3, 6), (4, 6)])
def test_compaction_pass_ends_where_offset_map_is_full(keys: int, end: int) -> None:
    """A full map ends the pass before the first record without a free entry (``Cleaner.buildOffsetMap``)."""
    log = new_log(memory_disk().session(), SETTINGS)
    for key in (b"a", b"b", b"c", b"a", b"b", b"c"):
        append_committed(log, bytearray(build_batch([record(key, b"v")])))
    log.roll(NOW)
    found = find_log_to_clean(log, NOW)
    assert found is not None
    plan = plan_compaction(found, NOW, 0)
    sources = [LogSegment.load(log.disk, plan.directory, base, plan.config) for base in plan.base_offsets]

    class Small(OffsetMap):
        def __init__(self, _: int) -> None:
            super().__init__(MAP_BYTES)

        def has_capacity_for(self, count: int) -> bool:
            return False

        def put(self, key: bytes, offset: int) -> bool:
            if key not in self.offsets and len(self.offsets) >= keys:
                return False
            self.offsets[key] = offset
            return True

    real, compaction.OffsetMap = compaction.OffsetMap, Small  # type: ignore[misc]
    try:
        made = build_offset_map(plan, sources, CleanerStats())
    finally:
        compaction.OffsetMap = real  # type: ignore[misc]
    assert made.latest_offset == end - 1


def test_compaction_old_message_format_raises_wire_error() -> None:
    log = new_log(memory_disk().session(), SETTINGS)
    segments(log, 1)
    log.segments[0].file.pwrite(b"\x01", 16)
    found = find_log_to_clean(log, NOW)
    assert found is not None
    with pytest.raises(WireError):
        run_compaction(log.disk, plan_compaction(found, NOW, MAP_BYTES))


def test_compaction_closes_files_and_delete_unfinished_files_removes_them() -> None:
    log = new_log(memory_disk().session(), SETTINGS)
    segments(log, 3)
    found = find_log_to_clean(log, NOW)
    assert found is not None
    run_compaction(log.disk, plan_compaction(found, NOW, MAP_BYTES))
    names = [n for n in log.disk.listdir(log.directory) if n.endswith(CLEANED_FILE_SUFFIX)]
    assert names
    log.disk.open(f"{log.directory}/{0:020d}.log.swap", create=True)
    delete_unfinished_files(log.disk, log.directory)
    assert not [n for n in log.disk.listdir(log.directory) if n.endswith((CLEANED_FILE_SUFFIX, ".swap"))]
    assert len(log.disk.listdir(log.directory)) > 3
    delete_unfinished_files(log.disk, "/data/not-there")
