"""Timestamp lookups in steps, while the log changes. Rules: ``UnifiedLog.fetchOffsetByTimestamp``."""

from __future__ import annotations

import random
import tracemalloc

import pytest
import snappy

from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.segment.log_segments import remove_files
from ottla.log.tests.log_fixtures import NOW, SMALL, append_batches, append_committed, memory_disk, new_log
from ottla.log.timestamp_lookup import (
    TimestampAndOffset,
    TimestampLookupJob,
    find_max_timestamp,
    find_max_timestamp_job,
    find_offset_by_timestamp,
    find_offset_by_timestamp_job,
)
from ottla.wire.errors import WireError
from ottla.wire.record_batch import records
from ottla.wire.record_batch.batch_header import (
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    pack_batch,
    parse_header,
    set_max_timestamp,
)
from ottla.wire.record_batch.compression import FREE_BYTES, CompressionType


def make_timed_batch(*times: int, codec: CompressionType = CompressionType.NONE) -> bytearray:
    return bytearray(records.build_batch([records.NewRecord(None, b"v" * 20, NOW + t) for t in times], codec=codec))


def mixed(seed: int, settings: LogConfig = SMALL) -> PartitionLog:
    """Return a log with non-monotonic timestamps over several segments."""
    dice = random.Random(seed)
    log = new_log(memory_disk(seed).session(), settings)
    for number in range(60):
        times = [number * 10 + dice.randrange(-400, 400) for _ in range(dice.randrange(1, 6))]
        append_committed(log, make_timed_batch(*times, codec=dice.choice([CompressionType.NONE, CompressionType.GZIP])))
    return log


def all_timestamps(log: PartitionLog) -> list[TimestampAndOffset]:
    return [
        TimestampAndOffset(x.timestamp_ms, x.offset, 0)
        for header, raw in log.segments.batches(log.log_start_offset)
        for x in records.iterate_records(raw, header)
        if x.offset >= log.log_start_offset
    ]


def pauses(steps: TimestampLookupJob) -> tuple[int, TimestampAndOffset | None]:
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return count, done.value
        count += 1


def test_find_offset_by_timestamp_returns_first_record_in_offset_order() -> None:
    for seed in range(12):
        log = mixed(seed)
        log.maybe_increment_log_start_offset(random.Random(seed).randrange(60))
        expected = all_timestamps(log)
        for wanted in range(NOW - 500, NOW + 1100, 37):
            want = next((x for x in expected if x.timestamp_ms >= wanted), None)
            assert find_offset_by_timestamp(log, wanted, log.log_end_offset) == want
            if want is not None:
                assert find_offset_by_timestamp(log, wanted, want.offset) is None, "upper offset is exclusive"
                assert find_offset_by_timestamp(log, wanted, want.offset + 1) == want


def test_find_max_timestamp_returns_first_of_the_latest_records() -> None:
    for seed in range(12):
        log = mixed(seed)
        assert find_max_timestamp(log) == max(all_timestamps(log), key=lambda x: (x.timestamp_ms, -x.offset))
    log = new_log(memory_disk().session())
    assert find_max_timestamp(log) is None
    for _ in range(30):
        append_committed(log, make_timed_batch(5, 9, 9, 1))
    assert len(log.segments.base_offsets) > 1
    assert find_max_timestamp(log) == TimestampAndOffset(NOW + 9, 1, 0)


def test_timestamp_lookup_with_log_append_time_uses_batch_timestamp() -> None:
    log = new_log(memory_disk().session())
    for at in (3, 7, 5):
        data = make_timed_batch(1, 2)
        header = parse_header(data)
        new = header._replace(attributes=header.attributes | TIMESTAMP_TYPE_BIT, max_timestamp=NOW + at)
        set_max_timestamp(data, 0, new)
        append_committed(log, data)
    assert find_offset_by_timestamp(log, NOW + 4, 9) == TimestampAndOffset(NOW + 7, 2, 0)
    assert find_max_timestamp(log) == TimestampAndOffset(NOW + 7, 2, 0)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_timestamp_lookup_ignores_max_timestamp_above_its_records(codec: CompressionType) -> None:
    """Without ``ottla.validate.records`` the header keeps the timestamp of the client."""
    log = new_log(memory_disk().session())
    data = make_timed_batch(1, 4, 2, codec=codec)
    set_max_timestamp(data, 0, parse_header(data)._replace(max_timestamp=NOW + 50))
    append_committed(log, data)
    append_committed(log, make_timed_batch(30, codec=codec))
    assert find_offset_by_timestamp(log, NOW + 20, 4) == TimestampAndOffset(NOW + 30, 3, 0)
    assert find_offset_by_timestamp(log, NOW + 40, 4) is None
    assert find_max_timestamp(log) == TimestampAndOffset(NOW + 4, 1, 0), "value of the time index"


def test_timestamp_lookup_truncated_file_raises_wire_error() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_committed(log, make_timed_batch(*range(50)))
    log.close_files()
    path = f"{log.directory}/{0:020d}.log"
    whole = bytes(memory.files[path].data)
    for cut in (HEADER_BYTES + 40, HEADER_BYTES - 10):
        memory.files[path].data[:] = whole[:cut]
        with pytest.raises(WireError):
            find_offset_by_timestamp(log, NOW + 49, 50)
        assert find_max_timestamp(log) is None


# ---------------------------------------------------------------- in pauses


def test_timestamp_lookup_pauses_among_segments_headers_and_records() -> None:
    log = new_log(memory_disk().session(), LogConfig(segment_bytes=400))
    append_batches(log, 90)
    segments = len(log.segments.base_offsets)
    assert segments > 40
    count, found = pauses(find_offset_by_timestamp_job(log, NOW + 269, 270))
    assert found is not None
    assert count >= segments - 2
    assert pauses(find_max_timestamp_job(log))[0] >= segments

    log = new_log(memory_disk().session(), LogConfig())
    for _ in range(1500):
        append_committed(log, make_timed_batch(5))  # timestamps do not increase: the index has no entry
    append_committed(log, make_timed_batch(9))
    count, found = pauses(find_offset_by_timestamp_job(log, NOW + 9, 1501))
    assert found == TimestampAndOffset(NOW + 9, 1500, 0)
    assert count >= log.size_bytes // (16 * 1024) - 1


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD])
def test_timestamp_lookup_pauses_within_a_large_batch(codec: CompressionType) -> None:
    log = new_log(memory_disk().session(), LogConfig())
    append_committed(log, make_timed_batch(*([0] * 9_000), 7, codec=codec))
    for steps in (find_offset_by_timestamp_job(log, NOW + 7, 9_001), find_max_timestamp_job(log)):
        count, found = pauses(steps)
        assert found == TimestampAndOffset(NOW + 7, 9_000, 0)
        assert count >= 4


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_concurrent_timestamp_lookups_in_compressed_batch_take_bounded_memory(codec: CompressionType) -> None:
    """Every connection may run a lookup: without a bound, 100 lookups retain 100 decompressed batches."""
    log = new_log(memory_disk().session(), LogConfig())
    items = [records.NewRecord(b"k", bytes(4 << 20), NOW + t) for t in (0, 0, 0, 7)]
    append_committed(log, bytearray(records.build_batch(items, codec=codec)))
    waiting = [find_offset_by_timestamp_job(log, NOW + 7, 4) for _ in range(10)] + [
        find_max_timestamp_job(log) for _ in range(10)
    ]
    found = []
    tracemalloc.start()
    try:
        while waiting:
            for steps in waiting[:]:
                try:
                    next(steps)
                except StopIteration as done:
                    found.append(done.value)
                    waiting.remove(steps)
        assert tracemalloc.get_traced_memory()[1] < 20 * (512 << 10)
    finally:
        tracemalloc.stop()
    assert found == [TimestampAndOffset(NOW + 7, 3, 0)] * 20


@pytest.mark.parametrize("codec", list(CompressionType))
def test_timestamp_lookup_announces_large_memory_before_allocation(codec: CompressionType) -> None:
    """Above 1 MiB the memory of the codec counts; snappy decompresses a whole block at once."""
    for size_bytes in (900 << 10, 3 << 20):
        log = new_log(memory_disk().session(), LogConfig(max_message_bytes=1 << 30))
        items = [records.NewRecord(b"k", bytes(size_bytes), NOW), records.NewRecord(b"k", b"v", NOW + 7)]
        raw = records.build_batch(items, codec=codec)
        if codec is CompressionType.SNAPPY:
            header = parse_header(raw)
            raw = pack_batch(header, snappy.compress(bytes(records.decompress_records(raw, header))))
        append_committed(log, bytearray(raw))
        for steps in (find_offset_by_timestamp_job(log, NOW + 7, 9), find_max_timestamp_job(log)):
            heavy = list(steps)
            assert any(heavy) is (size_bytes > FREE_BYTES and codec is not CompressionType.NONE)
            if any(heavy):
                free = 0 if codec is CompressionType.SNAPPY else FREE_BYTES // records.PIECE_BYTES
                assert heavy.index(True) <= free + 2
                assert all(heavy[heavy.index(True) : -1])


def test_timestamp_lookup_log_changed_during_pause_returns_current_records() -> None:
    """Deletion, truncation or appends: no deleted file is opened, and the result was in the log."""
    ends = set()
    for seed in range(150):
        dice = random.Random(seed)
        log = mixed(seed)
        before = {(x.timestamp_ms, x.offset) for x in all_timestamps(log)}
        wanted = NOW + dice.randrange(-300, 700)
        steps = find_offset_by_timestamp_job(log, wanted, 2**62) if dice.random() < 0.8 else find_max_timestamp_job(log)
        for _ in range(dice.randrange(12)):
            next(steps, None)
        action = dice.choice(["drop", "cut", "append", "roll", "close", "start over"])
        if action == "drop":
            log.maybe_increment_log_start_offset(dice.choice(log.segments.base_offsets))
            log.delete_segments_below_start(NOW)
            remove_files(log.disk, log.segments.pop_deletable_files(NOW + 10**9))
        elif action == "cut":
            log.truncate_to(dice.randrange(log.log_end_offset), NOW)
        elif action == "append":
            append_committed(log, make_timed_batch(1000))
        elif action == "roll":
            log.roll(NOW)
        elif action == "start over":
            log.truncate_fully_and_start_at(500, NOW)
        else:
            log.close()
        try:
            found = pauses(steps)[1]
        except WireError:
            ends.add("cut in the middle of it")
            assert action in ("cut", "start over")
            continue
        ends.add("found" if found else "nothing")
        if found is not None:
            assert (found.timestamp_ms, found.offset) in before | {(NOW + 1000, log.log_end_offset - 1)}
    assert {"found", "nothing"} <= ends


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_max_timestamp_in_a_damaged_batch_raises_wire_error(codec: CompressionType) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_committed(log, make_timed_batch(*range(50), codec=codec))
    log.close_files()
    data = memory.files[f"{log.directory}/{0:020d}.log"].data
    data[HEADER_BYTES + 1 :] = b"\xff" * len(data[HEADER_BYTES + 1 :])
    with pytest.raises(WireError):
        find_max_timestamp(log)
