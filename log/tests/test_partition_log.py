"""Partition log: append, roll, read, lookup and truncation."""

from __future__ import annotations

import itertools
import struct

import pytest

from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin, RecordValidationError
from ottla.log.tests.log_fixtures import (
    NOW,
    SMALL,
    UNVERIFIED_TXN,
    append_batches,
    append_committed,
    expected_values,
    make_batch,
    make_marker,
    make_transactional_batch,
    memory_disk,
    new_log,
    record_values,
    reopen_log,
)
from ottla.log.timestamp_lookup import find_max_timestamp, find_offset_by_timestamp
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.record_batch.batch_header import (
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    crc_matches,
    iterate_batches,
    pack_batch,
    parse_header,
)
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.records import NewRecord, build_batch, iterate_records


def test_append_sets_offset_and_epoch_and_keeps_checksum_valid() -> None:
    log = new_log(memory_disk().session())
    log.append_as_leader(make_batch(0), 4, NOW)
    done = log.append_as_leader(make_batch(3), 4, NOW)
    assert (done.first_offset, done.last_offset) == (3, 5)
    for header, raw in log.segments.batches():
        assert header.partition_leader_epoch == 4
        assert crc_matches(raw, header)
    assert record_values(log) == expected_values(6)


def test_append_rolls_by_size_and_all_segments_are_read() -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 60)
    assert len(log.segments) > 5
    assert all(s.size_bytes <= SMALL.segment_bytes for s in log.segments)
    assert record_values(log) == expected_values(180)


@pytest.mark.behaviour("P-65")
def test_append_rolls_by_message_timestamp() -> None:
    log = new_log(memory_disk().session(), LogConfig(segment_ms=1000))
    log.append_as_leader(bytearray(build_batch([NewRecord(None, b"a", NOW)])), 0, NOW)
    log.append_as_leader(bytearray(build_batch([NewRecord(None, b"b", NOW + 1000)])), 0, NOW)
    assert len(log.segments) == 1
    log.append_as_leader(bytearray(build_batch([NewRecord(None, b"c", NOW + 1001)])), 0, NOW)
    assert log.segments.base_offsets == [0, 2]


@pytest.mark.behaviour("P-31")
def test_read_first_batch_above_max_bytes_is_returned_whole() -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 3)
    size = len(make_batch(0))
    whole = log.read(0, 1, log.high_watermark, at_least_one=True)
    assert whole is not None
    assert len(whole) == size
    assert log.read(0, size - 1, log.high_watermark, at_least_one=False) is None, "no partial first batch"
    more = log.read(0, size + 10, log.high_watermark, at_least_one=True)
    assert more is not None
    assert len(more) == size + 10, "max bytes is exact after the first batch and may cut the next"


@pytest.mark.behaviour("P-34")
def test_read_from_middle_of_batch_returns_whole_batch() -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 4)
    part = log.read(4, 10_000, log.high_watermark, at_least_one=True)
    assert part is not None
    assert parse_header(part.read()).base_offset == 3


@pytest.mark.behaviour("P-33")
def test_read_ends_at_upper_offset_and_raises_outside_the_log() -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 4)
    part = log.read(0, 10_000, 6, at_least_one=True)
    assert part is not None
    assert [h.base_offset for _, h in iterate_batches(part.read())] == [0, 3]
    assert log.read(6, 100, 6, at_least_one=True) is None
    assert log.read(12, 100, 12, at_least_one=True) is None
    with pytest.raises(ProtocolError) as caught:
        log.read(13, 100, 12, at_least_one=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.behaviour("P-42")
@pytest.mark.parametrize("codec", list(CompressionType))
def test_find_offset_by_timestamp_returns_first_record_in_offset_order(codec: CompressionType) -> None:
    log = new_log(memory_disk().session())
    for start in range(0, 120, 4):
        log.append_as_leader(make_batch(start, 4, codec), 0, NOW)
    log.set_high_watermark(120)
    for offset in (0, 1, 57, 119):
        found = find_offset_by_timestamp(log, NOW + offset, 120)
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (offset, NOW + offset)
    assert find_offset_by_timestamp(log, NOW + 120, 120) is None
    assert find_offset_by_timestamp(log, NOW + 60, 50) is None
    latest = find_max_timestamp(log)
    assert latest is not None
    assert latest.offset == 119


@pytest.mark.behaviour("P-75")
def test_append_duplicate_batch_returns_original_offset() -> None:
    log = new_log(memory_disk().session())
    header = {"producer_id": 7, "producer_epoch": 0}
    for sequence in range(0, 21, 3):
        log.append_as_leader(make_batch(sequence, **header, base_sequence=sequence), 0, NOW)
    for sequence in (6, 9, 12, 15, 18):
        again = log.append_as_leader(make_batch(sequence, **header, base_sequence=sequence), 0, NOW)
        assert again.duplicate
        assert again.first_offset == sequence
    assert log.log_end_offset == 21
    for sequence in (3, 24, 19):  # one before the five retained batches, a gap, an overlap
        with pytest.raises(ProtocolError) as caught:
            log.append_as_leader(make_batch(sequence, **header, base_sequence=sequence), 0, NOW)
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.behaviour("P-76", "P-77")
def test_append_unknown_producer_starts_at_any_sequence_and_old_epoch_is_fenced() -> None:
    log = new_log(memory_disk().session())
    log.append_as_leader(make_batch(0, producer_id=1, producer_epoch=3, base_sequence=50), 0, NOW)
    with pytest.raises(ProtocolError) as caught:
        log.append_as_leader(make_batch(3, producer_id=1, producer_epoch=2, base_sequence=53), 0, NOW)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(ProtocolError) as caught:
        log.append_as_leader(make_batch(3, producer_id=1, producer_epoch=4, base_sequence=53), 0, NOW)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append_as_leader(make_batch(3, producer_id=1, producer_epoch=4, base_sequence=0), 0, NOW)


def refused(data: bytearray, settings: LogConfig = SMALL) -> ProtocolError:
    log = new_log(memory_disk().session(), settings)
    with pytest.raises(ProtocolError) as caught:
        log.append_as_leader(data, 0, NOW)
    assert log.log_end_offset == 0
    assert log.size_bytes == 0
    return caught.value


def test_append_invalid_batch_raises_and_writes_no_record() -> None:
    bad_crc = make_batch(0)
    bad_crc[-1] ^= 1
    assert refused(bad_crc).code is ErrorCode.CORRUPT_MESSAGE
    assert refused(make_batch(0)[:-1]).code is ErrorCode.INVALID_RECORD
    assert refused(make_batch(0) + make_batch(3)).code is ErrorCode.INVALID_RECORD
    assert refused(make_batch(0, attributes=CONTROL_BIT)).code is ErrorCode.INVALID_RECORD
    old = make_batch(0)
    old[16] = 1
    assert refused(old).code is ErrorCode.INVALID_RECORD
    large = refused(make_batch(0, 30), LogConfig(max_message_bytes=500))
    assert large.code is ErrorCode.MESSAGE_TOO_LARGE
    header = parse_header(make_batch(0))
    body = bytes(make_batch(0)[HEADER_BYTES:])
    count = bytearray(pack_batch(header._replace(records_count=2), body))
    assert refused(count).code is ErrorCode.INVALID_RECORD


@pytest.mark.behaviour("P-25", "P-26")
def test_append_invalid_records_are_listed_in_the_error() -> None:
    items = [NewRecord(b"k", b"v", NOW), NewRecord(None, b"v", NOW), NewRecord(b"k", b"v", NOW + 10**7)]
    error = refused(bytearray(build_batch(items)))
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RecordValidationError)
    assert [index for index, _ in error.record_errors] == [2]
    error = refused(bytearray(build_batch(items[:2])), LogConfig(compact=True))
    assert isinstance(error, RecordValidationError)
    assert [index for index, _ in error.record_errors] == [1]


@pytest.mark.behaviour("P-24")
def test_append_with_other_compression_type_recompresses() -> None:
    log = new_log(memory_disk().session(), LogConfig(compression_type=CompressionType.ZSTD))
    log.append_as_leader(make_batch(0, codec=CompressionType.GZIP), 0, NOW)
    header, _ = next(log.segments.batches())
    assert header.attributes & 7 == CompressionType.ZSTD
    assert record_values(log) == expected_values(3)


def test_append_with_log_append_time_uses_broker_time() -> None:
    log = new_log(memory_disk().session(), LogConfig(log_append_time=True))
    done = log.append_as_leader(make_batch(0), 0, 5_000_000)
    assert done.log_append_time_ms == 5_000_000
    header, raw = next(log.segments.batches())
    assert crc_matches(raw, header)
    assert {x.timestamp_ms for x in iterate_records(raw, header)} == {5_000_000}


def control(producer_id: int, kind: int) -> bytearray:
    import struct

    record = NewRecord(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), NOW)
    attributes = CONTROL_BIT | TRANSACTIONAL_BIT
    return bytearray(build_batch([record], attributes=attributes, producer_id=producer_id, producer_epoch=0))


@pytest.mark.behaviour("P-35", "P-78")
def test_abort_marker_is_indexed_and_raises_last_stable_offset() -> None:
    disk = memory_disk().session()
    log = new_log(disk, LogConfig())
    txn = {"attributes": TRANSACTIONAL_BIT, "producer_epoch": 0, "base_sequence": 0}
    log.append_as_leader(make_batch(0, producer_id=1, **txn), 0, NOW, txn=UNVERIFIED_TXN)
    log.append_as_leader(make_batch(3, producer_id=2, **txn), 0, NOW, txn=UNVERIFIED_TXN)
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 0
    log.append_as_leader(control(1, 0), 0, NOW, AppendOrigin.COORDINATOR)
    assert log.last_stable_offset == 0, "marker is not below the high watermark"
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 3
    log.append_as_leader(control(2, 1), 0, NOW, AppendOrigin.COORDINATOR)
    log.set_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 8
    assert [tuple(a) for a in log.segments.collect_aborted_txns(0, 8)] == [(1, 0, 6, 3)]
    assert log.segments.collect_aborted_txns(7, 8) == []
    again = reopen_log(disk, LogConfig())
    again.set_high_watermark(8)
    assert again.segments.collect_aborted_txns(0, 8) == log.segments.collect_aborted_txns(0, 8)
    assert again.last_stable_offset == 8


def test_truncate_removes_records_epochs_and_producers() -> None:
    log = new_log(memory_disk().session())
    for start in range(0, 90, 3):
        log.append_as_leader(make_batch(start, producer_id=1, producer_epoch=0, base_sequence=start), start // 30, NOW)
    log.truncate_to(40, NOW)
    assert log.log_end_offset == 39 or log.log_end_offset == 40
    log.truncate_to(30, NOW)
    assert record_values(log) == expected_values(30)
    assert log.epochs.entries == [(0, 0)]
    log.append_as_leader(make_batch(30, producer_id=1, producer_epoch=0, base_sequence=30), 5, NOW)
    assert record_values(log) == expected_values(33)


@pytest.mark.behaviour("P-44")
def test_end_offset_for_epoch_returns_end_of_largest_epoch_at_or_below() -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 2, epoch=0)
    append_batches(log, 3, epoch=2)
    assert log.epochs.end_offset_for(0, log.log_end_offset) == (0, 6)
    assert log.epochs.end_offset_for(1, log.log_end_offset) == (0, 6)
    assert log.epochs.end_offset_for(2, log.log_end_offset) == (2, 15)
    assert log.epochs.end_offset_for(9, log.log_end_offset) == (-1, -1)


@pytest.mark.behaviour("P-68")
def test_log_start_increment_applies_at_once_and_deletes_segments_below() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 60)
    log.maybe_increment_log_start_offset(100)
    log.delete_segments_below_start(NOW)
    assert log.log_start_offset == 100
    assert log.segments.base_offsets[0] <= 100 < log.segments.base_offsets[1]
    with pytest.raises(ProtocolError):
        log.read(99, 100, 180, at_least_one=True)
    assert [offset for offset, _ in record_values(log) if offset >= 100] == list(range(100, 180))
    again = reopen_log(memory.session())
    assert again.log_start_offset == again.segments.base_offsets[0], "log start falls back to the first segment"
    assert again.log_end_offset == 180
    assert not log.maybe_increment_log_start_offset(50), "log start never decreases"


def test_expire_keeps_producers_with_open_transaction() -> None:
    log = new_log(memory_disk().session(), LogConfig())
    txn = {"attributes": TRANSACTIONAL_BIT, "producer_epoch": 0, "base_sequence": 0}
    log.append_as_leader(make_batch(0, producer_id=1, producer_epoch=0, base_sequence=0), 0, NOW)
    log.append_as_leader(make_batch(3, producer_id=2, **txn), 0, NOW, txn=UNVERIFIED_TXN)
    log.producers.expire(NOW + 20_000, 10_000)
    assert sorted(log.producers.producers) == [1, 2], "both were active since the last expiration"
    log.producers.expire(NOW + 1000, 10_000)
    assert sorted(log.producers.producers) == [1, 2]
    log.producers.expire(NOW + 20_000, 10_000)
    assert sorted(log.producers.producers) == [2]


def test_roll_jitter_differs_per_segment() -> None:
    spans = set()
    for jitter in (0, 5_000):
        settings = LogConfig(segment_ms=10_000, segment_jitter_ms=jitter)
        log = new_log(memory_disk().session(), settings)
        for step in range(200):
            log.append_as_leader(bytearray(build_batch([NewRecord(b"k", b"v", NOW + step * 500)])), 0, NOW + step * 500)
        gaps = {(later - base) * 500 for base, later in itertools.pairwise(log.segments.base_offsets)}
        if jitter == 0:
            assert gaps == {10_500}
        else:
            assert all(5_000 <= gap <= 10_500 for gap in gaps)
            spans |= gaps
    assert len(spans) > 3


@pytest.mark.parametrize("length", [-12, -13, -(2**31), 0, 1, 48])
@pytest.mark.parametrize("magic", [2, 1, 9])
def test_read_impossible_batch_length_raises_corrupt_message(length: int, magic: int) -> None:
    """A length of -12 is a batch of zero bytes: a search that trusts it never advances."""
    log = new_log(memory_disk().session(), LogConfig())
    append_batches(log, 3)
    size = log.segments.active.size_bytes // 3
    log.segments.active.file.pwrite(struct.pack(">i", length), size + 8)
    log.segments.active.file.pwrite(bytes([magic]), size + 16)
    if magic == 1 and length == 48:
        return  # the minimum length of an old message
    assert log.read(0, 10, 9, at_least_one=True) is not None
    with pytest.raises(ProtocolError) as caught:
        log.read(8, 10, 9, at_least_one=True)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.bytes_between(8, 9) is None, "a fetch is answered at once with an error"
    with pytest.raises(WireError):
        find_offset_by_timestamp(log, NOW + 8, 9)
    with pytest.raises(WireError):
        list(log.segments.batches(8))
    with pytest.raises(WireError):
        list(log.segments.active.scan(size))


def test_log_size_equals_sum_of_its_segments() -> None:
    log = new_log(memory_disk().session())

    def right() -> bool:
        return log.size_bytes == sum(s.size_bytes for s in log.segments)

    assert right()
    for _ in range(60):
        append_batches(log, 1)
        assert right()
    log.maybe_increment_log_start_offset(50)
    log.delete_segments_below_start(NOW)
    assert right()
    for offset in (130, 100, 70):
        log.truncate_to(offset, NOW)
        assert right()
    append_batches(log, 30)
    assert right()
    log.truncate_fully_and_start_at(500, NOW)
    assert right()


def test_aborted_txns_in_slice_returns_transactions_of_the_slice() -> None:
    log = new_log(memory_disk().session(), LogConfig(index_interval_bytes=1))
    for sequence in range(20):
        append_committed(log, make_transactional_batch(7, sequence))
        append_committed(log, make_marker(7, 0))
    everything = log.segments.collect_aborted_txns(0, 40)
    assert [a.first_offset for a in everything] == list(range(0, 40, 2))
    part = log.read(10, 300, 40, at_least_one=True)
    assert part is not None
    got = [h.base_offset for _, h in iterate_batches(part.read())]
    first_offsets = [a.first_offset for a in log.aborted_txns_in_slice(part, 10)]
    assert first_offsets[0] == 10
    assert {o for o in got if o % 2 == 0} <= set(first_offsets) < set(range(10, got[-1] + 4))
    assert [a.first_offset for a in log.segments.collect_aborted_txns(11, 15)] == [10, 12, 14]
    whole = log.read(0, 1 << 20, 40, at_least_one=True)
    assert whole is not None
    assert log.aborted_txns_in_slice(whole, 0) == everything
