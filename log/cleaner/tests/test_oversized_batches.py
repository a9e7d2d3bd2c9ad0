"""Batches that unpack to more than anybody looks into: refused where records are looked at, kept by compaction."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from ottla.log import log_validator
from ottla.log.cleaner import compaction
from ottla.log.cleaner.tests.test_compaction_rules import SETTINGS, left, one_pass, record
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
    """Compaction looks into few bytes."""
    monkeypatch.setattr(decompress_records, "__defaults__", (0, LIMIT_BYTES))


def found_on_disk(log: PartitionLog, *batches: bytes) -> None:
    """What came to lie in a log by another way than a producer's, and a segment of its own for it."""
    for raw in batches:
        log.append_as_leader(bytearray(raw), 0, NOW, AppendOrigin.RAFT_LEADER, txn=UNVERIFIED_TXN)
    log.roll(NOW)


def whole(key: bytes = b"k") -> bytes:
    return build_batch([record(key, bytes(LIMIT_BYTES))], codec=CompressionType.GZIP)


def many(count: int, key: bytes, value: bytes = b"v") -> bytes:
    """Very many records of one key in a small batch: all of them claim to be its first."""
    one = encode_record(record(key, value), 0, 0)
    header = parse_header(build_batch([record(key, value)], codec=CompressionType.ZSTD))
    return pack_batch(
        header._replace(records_count=count, last_offset_delta=count - 1), compress(CompressionType.ZSTD, one * count)
    )


# ---------------------------------------------------------------- taken


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
@pytest.mark.parametrize(
    "codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD, CompressionType.SNAPPY]
)
def test_a_batch_that_is_looked_at_may_unpack_to_as_much_as_later_readers_take(
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


def test_records_that_are_not_packed_may_be_as_large_as_their_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_validator, "MAX_DECOMPRESSED_BYTES", 1000)
    log = new_log(memory_disk().session(), COMPACT)
    log.append_as_leader(bytearray(build_batch([record(b"k", bytes(90_000))])), 0, NOW)
    assert log.log_end_offset == 1


# ---------------------------------------------------------------- compacted


def test_one_small_batch_that_unpacks_to_very_much_does_not_end_the_compaction_of_its_log() -> None:
    """A gzip batch of 131,580 bytes did, for good."""
    log = new_log(memory_disk().session(), SETTINGS)
    bomb = build_batch([record(b"k", bytes(MAX_DECOMPRESSED_BYTES))], codec=CompressionType.ZSTD)
    found_on_disk(log, build_batch([record(b"a", b"1")]), bomb, build_batch([record(b"a", b"2")]))
    stats = one_pass(log)
    assert left(log) == [(1, 1), (2, 1)]
    assert [bytes(raw) for header, raw in log.segments.batches() if header.base_offset == 1] == [
        bytes(pack_batch(parse_header(bomb)._replace(base_offset=1, partition_leader_epoch=0), bomb[61:]))
    ]
    assert (stats.oversized_batches, stats.last_oversized_offset) == (1, 1)
    assert log.cleaner_offset == 3


@pytest.mark.usefixtures("small_limit")
def test_what_a_batch_that_was_not_looked_into_may_hold_stays_deleted() -> None:
    """Its records count as present: a tombstone behind it that went would bring them back."""
    log = new_log(memory_disk().session(), SETTINGS)
    found_on_disk(log, build_batch([record(b"a", None)]), whole(), build_batch([record(b"k", None)]))
    one_pass(log)
    found_on_disk(log, build_batch([record(b"b", b"1")]))
    one_pass(log, LATER)
    assert left(log) == [(1, 1), (2, 1), (3, 1)], "only the tombstone before it went"
    found_on_disk(log, build_batch([record(b"k", b"2")]))
    one_pass(log, LATER)
    assert left(log) == [(1, 1), (3, 1), (4, 1)]


@pytest.mark.usefixtures("small_limit")
def test_a_batch_of_an_aborted_transaction_goes_without_being_looked_into() -> None:
    for kind, stay in ((0, [1]), (1, [0, 1])):
        log = new_log(memory_disk().session(), SETTINGS)
        raw = make_transactional_batch(1, 0)
        header = parse_header(raw)
        body = encode_record(record(b"k", bytes(LIMIT_BYTES)), 0, 0)
        packed = pack_batch(
            header._replace(attributes=header.attributes | CompressionType.GZIP), compress(CompressionType.GZIP, body)
        )
        found_on_disk(log, packed)
        append_committed(log, make_marker(1, kind))
        found_on_disk(log, build_batch([record(b"x", b"1")]))
        for now in (NOW, LATER, LATER + LATER):
            one_pass(log, now)
            found_on_disk(log, build_batch([record(b"x", b"1")]))
        assert [header.base_offset for header, _ in log.segments.batches() if header.records_count][:-2] == stay


def test_a_pass_goes_through_very_many_records_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (record_scan, compaction):
        monkeypatch.setattr(module, "RECORDS_AT_ONCE", 500)
    log = new_log(memory_disk().session(), SETTINGS)
    count = 40_000
    found_on_disk(log, many(count, b"k"), many(count, b"j"), build_batch([record(b"j", b"2")]))
    tracemalloc.start()
    try:
        stats = one_pass(log)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20, "places of all of them take 5 MiB"
    finally:
        tracemalloc.stop()
    assert (stats.records_kept, left(log)) == (count + 1, [(0, count), (2 * count, 1)])


@pytest.mark.parametrize("deletes", [False, True])
def test_a_batch_of_several_parts_is_made_anew_as_one_of_a_single_part_is(
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
            found_on_disk(log, build_batch(items, codec=CompressionType.GZIP))
        one_pass(log)
        found_on_disk(log, build_batch([record(b"x", b"1")]))
        one_pass(log, LATER)
        made.append([bytes(raw) for _, raw in log.segments.batches()])
    assert made[0] == made[1]


def test_a_map_that_is_nearly_full_takes_the_keys_of_a_batch_one_by_one_and_nothing_else_of_it() -> None:
    """A record may have sixty million headers."""
    count = 200_000
    headers = tuple(("", b"") for _ in range(count))
    raw = build_batch([NewRecord(b"k", b"v", NOW, headers), record(b"j", b"v")], codec=CompressionType.GZIP)
    log = new_log(memory_disk().session(), SETTINGS)
    found_on_disk(log, raw)
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
