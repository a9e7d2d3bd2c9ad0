"""Batches above the decompression limit: rejected by validation, retained by compaction."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from ottla.log import log_validator
from ottla.log.cleaner import compaction
from ottla.log.cleaner.tests.test_compaction_rules import SETTINGS, one_pass, record, remaining_batches
from ottla.log.log_validator import AppendOrigin
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import (
    NOW,
    UNVERIFIED_TXN,
    append_committed,
    make_marker,
    make_transactional_batch,
    memory_disk,
    new_log,
)
from ottla.log.tests.test_log_validator import COMPACT
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.limits import MAX_DECOMPRESSED_BYTES
from ottla.wire.record_batch import record_scan
from ottla.wire.record_batch.batch_header import pack_batch, parse_header
from ottla.wire.record_batch.compression import CompressionType, compress
from ottla.wire.record_batch.records import NewRecord, build_batch, decompress_records, encode_record

LIMIT_BYTES = 5000
LATER = NOW + SETTINGS.delete_retention_ms + 1


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a low decompression limit for compaction."""
    monkeypatch.setattr(decompress_records, "__defaults__", (0, LIMIT_BYTES))


def append_unvalidated(log: PartitionLog, *batches: bytes) -> None:
    """Append batches without validation, in a segment of their own."""
    for raw in batches:
        log.append_as_leader(bytearray(raw), 0, NOW, AppendOrigin.RAFT_LEADER, txn=UNVERIFIED_TXN)
    log.roll(NOW)


def whole(key: bytes = b"k") -> bytes:
    return build_batch([record(key, bytes(LIMIT_BYTES))], codec=CompressionType.GZIP)


def many(count: int, key: bytes, value: bytes = b"v") -> bytes:
    """Return a small compressed batch of very many records of one key, all with offset delta 0."""
    one = encode_record(record(key, value), 0, 0)
    header = parse_header(build_batch([record(key, value)], codec=CompressionType.ZSTD))
    return pack_batch(
        header._replace(records_count=count, last_offset_delta=count - 1), compress(CompressionType.ZSTD, one * count)
    )


# ---------------------------------------------------------------- validation


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
@pytest.mark.parametrize(
    "codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD, CompressionType.SNAPPY]
)
def test_append_compressed_batch_above_decompression_limit_raises_message_too_large(
    monkeypatch: pytest.MonkeyPatch, codec: CompressionType, more: int, taken: bool
) -> None:
    raw = build_batch([record(b"k", bytes(90_000))], codec=codec)
    monkeypatch.setattr(log_validator, "MAX_DECOMPRESSED_BYTES", len(decompress_records(raw, parse_header(raw))) - more)
    log = new_log(memory_disk().session(), COMPACT)
    if taken:
        log.append_as_leader(bytearray(raw), 0, NOW)
    else:
        with pytest.raises(ProtocolError) as caught:
            log.append_as_leader(bytearray(raw), 0, NOW)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert log.log_end_offset == taken


def test_append_uncompressed_batch_ignores_decompression_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_validator, "MAX_DECOMPRESSED_BYTES", 1000)
    log = new_log(memory_disk().session(), COMPACT)
    log.append_as_leader(bytearray(build_batch([record(b"k", bytes(90_000))])), 0, NOW)
    assert log.log_end_offset == 1


# ---------------------------------------------------------------- compaction


def test_compaction_oversized_batch_is_retained_and_does_not_end_the_pass() -> None:
    """A gzip batch of 131,580 bytes stopped the compaction of its log permanently."""
    log = new_log(memory_disk().session(), SETTINGS)
    bomb = build_batch([record(b"k", bytes(MAX_DECOMPRESSED_BYTES))], codec=CompressionType.ZSTD)
    append_unvalidated(log, build_batch([record(b"a", b"1")]), bomb, build_batch([record(b"a", b"2")]))
    stats = one_pass(log)
    assert remaining_batches(log) == [(1, 1), (2, 1)]
    assert [bytes(raw) for header, raw in log.segments.batches() if header.base_offset == 1] == [
        bytes(pack_batch(parse_header(bomb)._replace(base_offset=1, partition_leader_epoch=0), bomb[61:]))
    ]
    assert (stats.oversized_batches, stats.last_oversized_offset) == (1, 1)
    assert log.cleaner_offset == 3


@pytest.mark.usefixtures("small_limit")
def test_compaction_keeps_tombstone_after_oversized_batch() -> None:
    """The records of an oversized batch count as present: without a later tombstone they would reappear."""
    log = new_log(memory_disk().session(), SETTINGS)
    append_unvalidated(log, build_batch([record(b"a", None)]), whole(), build_batch([record(b"k", None)]))
    one_pass(log)
    append_unvalidated(log, build_batch([record(b"b", b"1")]))
    one_pass(log, LATER)
    assert remaining_batches(log) == [(1, 1), (2, 1), (3, 1)], "only the tombstone before the batch is removed"
    append_unvalidated(log, build_batch([record(b"k", b"2")]))
    one_pass(log, LATER)
    assert remaining_batches(log) == [(1, 1), (3, 1), (4, 1)]


@pytest.mark.usefixtures("small_limit")
def test_compaction_removes_oversized_batch_of_aborted_transaction() -> None:
    for kind, stay in ((0, [1]), (1, [0, 1])):
        log = new_log(memory_disk().session(), SETTINGS)
        raw = make_transactional_batch(1, 0)
        header = parse_header(raw)
        body = encode_record(record(b"k", bytes(LIMIT_BYTES)), 0, 0)
        packed = pack_batch(
            header._replace(attributes=header.attributes | CompressionType.GZIP), compress(CompressionType.GZIP, body)
        )
        append_unvalidated(log, packed)
        append_committed(log, make_marker(1, kind))
        append_unvalidated(log, build_batch([record(b"x", b"1")]))
        for now in (NOW, LATER, LATER + LATER):
            one_pass(log, now)
            append_unvalidated(log, build_batch([record(b"x", b"1")]))
        assert [header.base_offset for header, _ in log.segments.batches() if header.records_count][:-2] == stay


def test_compaction_batch_of_many_records_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (record_scan, compaction):
        monkeypatch.setattr(module, "RECORDS_AT_ONCE", 500)
    log = new_log(memory_disk().session(), SETTINGS)
    count = 40_000
    append_unvalidated(log, many(count, b"k"), many(count, b"j"), build_batch([record(b"j", b"2")]))
    tracemalloc.start()
    try:
        stats = one_pass(log)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20, "the offsets of all records take 5 MiB"
    finally:
        tracemalloc.stop()
    assert (stats.records_kept, remaining_batches(log)) == (count + 1, [(0, count), (2 * count, 1)])


@pytest.mark.parametrize("deletes", [False, True])
def test_compaction_batch_in_several_parts_equals_batch_in_one_part(
    monkeypatch: pytest.MonkeyPatch, deletes: bool
) -> None:
    made = []
    for at_once in (100_000, 7):
        for module in (record_scan, compaction):
            monkeypatch.setattr(module, "RECORDS_AT_ONCE", at_once)
        dice = random.Random(1)
        log = new_log(memory_disk().session(), SETTINGS)
        for _ in range(3):
            items = [
                record(
                    b"%d" % dice.randrange(99),
                    None if deletes and dice.random() < 0.3 else b"v",
                    NOW + dice.randrange(99),
                )
                for _ in range(60)
            ]
            append_unvalidated(log, build_batch(items, codec=CompressionType.GZIP))
        one_pass(log)
        append_unvalidated(log, build_batch([record(b"x", b"1")]))
        one_pass(log, LATER)
        made.append([bytes(raw) for _, raw in log.segments.batches()])
    assert made[0] == made[1]


def test_compaction_nearly_full_map_reads_only_keys_of_a_batch() -> None:
    """A record may have sixty million headers."""
    count = 200_000
    headers = tuple(("", b"") for _ in range(count))
    raw = build_batch([NewRecord(b"k", b"v", NOW, headers), record(b"j", b"v")], codec=CompressionType.GZIP)
    log = new_log(memory_disk().session(), SETTINGS)
    append_unvalidated(log, raw)
    found = compaction.OffsetMap(1)
    found.capacity = 1
    plan = compaction.CompactionPlan(log.directory, [0], 0, 2, SETTINGS, NOW, b"", [], 1)
    tracemalloc.start()
    try:
        assert not compaction._note_keys(plan, found, parse_header(raw), memoryview(raw))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert (found.offsets, found.latest_offset) == ({b"k": 0}, 0)
