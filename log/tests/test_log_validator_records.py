"""Validation of records: in pieces, in bounded memory, recompressed if the topic requires it."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import pytest
import snappy

from ottla.log import log_validator
from ottla.log.log_config import LogConfig
from ottla.log.tests.log_fixtures import NOW, memory_disk, new_log
from ottla.log.tests.test_log_validator import COMPACT, WHOLE, body_of, changed, good
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import HEADER_BYTES, crc_matches, pack_batch, parse_header
from ottla.wire.record_batch.compression import FREE_BYTES, CompressionType, compress
from ottla.wire.record_batch.records import NewRecord, build_batch, iterate_records


@pytest.mark.parametrize("wanted", list(CompressionType))
@pytest.mark.parametrize("sent", list(CompressionType))
@pytest.mark.parametrize("count", [3, 40_000])
def test_append_recompresses_records_in_topic_codec(sent: CompressionType, wanted: CompressionType, count: int) -> None:
    items = [NewRecord(b"%d" % i, b"value %d" % (i * i), NOW + i) for i in range(count)]
    raw = build_batch(items, codec=sent, producer_id=5, producer_epoch=2, base_sequence=9)
    log = new_log(memory_disk().session(), LogConfig(compression_type=wanted, max_message_bytes=1 << 30))
    log.append_as_leader(bytearray(raw), 3, NOW)
    ((header, data),) = log.segments.batches()
    assert header.attributes == wanted
    assert crc_matches(data, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.records_count) == (5, 2, 9, count)
    got = list(iterate_records(data, header))
    assert [(x.key, x.value, x.timestamp_ms) for x in got] == [(x.key, x.value, x.timestamp_ms) for x in items]
    if sent is wanted:
        assert bytes(data)[HEADER_BYTES:] == body_of(raw)


def test_append_recompressed_batch_too_large_raises_in_bounded_memory() -> None:
    bomb = changed(
        good(1, codec=CompressionType.GZIP), compress(CompressionType.GZIP, bytes(200 << 20)), records_count=1
    )
    log = new_log(memory_disk().session(), LogConfig(compression_type=CompressionType.NONE, max_message_bytes=300_000))
    assert len(bomb) < 300_000
    body = build_batch([NewRecord(b"k", bytes(100 << 20), NOW)])[HEADER_BYTES:]
    large = changed(good(1), compress(CompressionType.GZIP, body), attributes=CompressionType.GZIP)
    tracemalloc.start()
    with pytest.raises(ProtocolError) as caught:
        log.append_as_leader(bytearray(large), 0, NOW)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 2 << 20


def keyless_bomb(count: int) -> bytes:
    """Return a small batch with `count` records without a key."""
    raw = build_batch([NewRecord(None, None, NOW)] * count)
    header = parse_header(raw)
    return pack_batch(header._replace(attributes=CompressionType.GZIP), compress(CompressionType.GZIP, body_of(raw)))


def test_validate_records_many_invalid_records_takes_bounded_memory() -> None:
    raw = keyless_bomb(300_000)
    steps = log_validator.validate_records(bytearray(raw), parse_header(raw), COMPACT, NOW, "t-0")
    tracemalloc.start()
    with pytest.raises(log_validator.RecordValidationError) as caught:
        log_validator.run_validation(steps, at_once=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(caught.value.record_errors) == log_validator.MAX_RECORD_ERRORS_PER_BATCH
    assert peak < 4 << 20


def pauses(raw: bytes, settings: LogConfig) -> int:
    steps = log_validator.validate_records(bytearray(raw), parse_header(raw), settings, NOW, "t-0")
    count = 0
    try:
        while True:
            next(steps)
            count += 1
    except StopIteration:
        return count


def test_validate_records_pauses_after_each_piece() -> None:
    assert pauses(good(100), WHOLE) == 0
    value = random.Random(1).randbytes(10_000)
    large = good(30, value=value)
    assert pauses(large, WHOLE) == len(large) // log_validator.PIECE_BYTES
    for codec in (CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD, CompressionType.SNAPPY):
        assert pauses(good(30, value=value, codec=codec), WHOLE) >= 9


def test_append_with_validation_pending_continues_with_checked_batch() -> None:
    raw = good(30, value=bytes(10_000))
    log = new_log(memory_disk().session(), WHOLE)
    with pytest.raises(log_validator.ValidationPending) as caught:
        log.append_as_leader(bytearray(raw), 0, NOW, at_once=False)
    assert log.log_end_offset == 0
    checked = log_validator.run_validation(caught.value.steps, at_once=True)
    log.append_as_leader(bytearray(raw), 0, NOW, checked=checked, at_once=False)
    assert log.log_end_offset == 30
    log.append_as_leader(bytearray(good(5)), 0, NOW, at_once=False)
    assert log.log_end_offset == 35
    log.update_config(replace(WHOLE, compact=True))
    with pytest.raises(log_validator.ValidationPending):  # validated under other settings: the result is not reused
        log.append_as_leader(bytearray(raw), 0, NOW, checked=checked, at_once=False)


def announcements(raw: bytes) -> list[bool]:
    return list(log_validator.validate_records(bytearray(raw), parse_header(raw), COMPACT, NOW, "t-0"))


def test_validate_records_announces_large_memory_before_allocation() -> None:
    for codec in CompressionType:
        small, large = (good(1, value=bytes(size), codec=codec) for size in (900 << 10, 3 << 20))
        assert not any(announcements(small))
        assert any(announcements(large)) is (codec is not CompressionType.NONE)
        if codec not in (CompressionType.NONE, CompressionType.SNAPPY):
            assert announcements(large).index(True) <= FREE_BYTES // log_validator.PIECE_BYTES + 1


def test_validate_records_large_snappy_block_is_announced_before_decompression() -> None:
    raw = good(1, value=bytes(3 << 20))
    header = parse_header(raw)
    packed = pack_batch(header._replace(attributes=CompressionType.SNAPPY), snappy.compress(body_of(raw)))
    tracemalloc.start()
    steps = log_validator.validate_records(bytearray(packed), parse_header(packed), COMPACT, NOW, "t-0")
    with pytest.raises(log_validator.ValidationPending) as caught:
        log_validator.run_validation(steps, at_once=False)
    assert next(caught.value.steps) is True, "large block is announced by the first step"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert log_validator.run_validation(caught.value.steps, at_once=True).header.records_count == 1
