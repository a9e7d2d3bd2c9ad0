"""Compaction compared with a model: random keys, tombstones, transactions, codecs and crashes."""

from __future__ import annotations

import contextlib
import os
import random
import struct
from dataclasses import dataclass, field, replace

import pytest

from ottla.env.memory_disk import DiskSession, MemoryDisk, ProcessKilled
from ottla.log.cleaner.compaction import CleanerStats, CompactionPlan, run_compaction
from ottla.log.cleaner.log_to_clean import LogToClean, find_log_to_clean, select_dirtiest_log
from ottla.log.cleaner.log_to_clean import plan_compaction as planned
from ottla.log.cleaner.offset_map import ENTRY_BYTES, OffsetMap
from ottla.log.cleaner.tests.swap import swap_segments
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import NOW, UNVERIFIED_TXN, memory_disk, new_log, reopen_log
from ottla.wire.record_batch.batch_header import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT, crc_matches
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.records import NewRecord, build_batch, iterate_records

KEEP_MS = 10_000
SETTINGS = LogConfig(
    segment_bytes=3000, index_interval_bytes=200, compact=True, delete=False, delete_retention_ms=KEEP_MS
)
HISTORIES = int(os.environ.get("OTTLA_HISTORIES", "150"))
"""``make soak`` sets a higher number."""
Seen = dict[int, tuple[bytes | None, bytes | None]]


def append(log: PartitionLog, items: list[tuple[bytes | None, bytes | None]], now: int = NOW, **more: int) -> int:
    codec = CompressionType(more.pop("codec", 0))
    records = [NewRecord(key, value, now, (("h", b"x"),)) for key, value in items]
    return log.append_as_leader(
        bytearray(build_batch(records, codec=codec, **more)), 0, now, AppendOrigin.COORDINATOR, txn=UNVERIFIED_TXN
    ).first_offset


def mark(log: PartitionLog, pid: int, kind: int, now: int = NOW) -> None:
    """Append the end of a producer's transaction: 0 aborts, 1 commits."""
    record = NewRecord(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), now)
    raw = build_batch([record], attributes=CONTROL_BIT | TRANSACTIONAL_BIT, producer_id=pid, producer_epoch=0)
    log.append_as_leader(bytearray(raw), 0, now, AppendOrigin.COORDINATOR)


def dirtiest_log(logs: list[PartitionLog], now_ms: int) -> LogToClean | None:
    return select_dirtiest_log(c for log in logs if (c := find_log_to_clean(log, now_ms)) is not None)


def plan_of(log: PartitionLog, now: int, map_bytes: int = 1 << 20) -> CompactionPlan | None:
    log.set_high_watermark(log.log_end_offset)
    found = find_log_to_clean(log, now)
    return None if found is None else planned(found, now, map_bytes)


def compact(disk: DiskSession, log: PartitionLog, now: int = NOW, map_bytes: int = 1 << 20) -> list[CleanerStats]:
    """Run passes until the log is clean."""
    passes = []
    while (plan := plan_of(log, now, map_bytes)) is not None:
        outcome = run_compaction(disk, plan)
        assert swap_segments(log, outcome.cleaned, NOW)
        assert outcome.end > log.cleaner_offset or plan.first_dirty_offset == log.log_start_offset
        log.raise_cleaner_offset(outcome.end)
        passes.append(outcome.stats)
    return passes


def data(log: PartitionLog) -> Seen:
    """Return the records of a read_committed consumer by offset."""
    out: Seen = {}
    aborted = log.segments.collect_aborted_txns(log.log_start_offset, log.log_end_offset)
    for header, raw in log.segments.batches(log.log_start_offset):
        assert crc_matches(raw, header)
        if header.is_control:
            continue
        gone = any(
            a.producer_id == header.producer_id and a.first_offset <= header.base_offset <= a.last_offset
            for a in aborted
        )
        for record in iterate_records(raw, header):
            assert record.headers == (("h", b"x"),)
            if not (header.is_transactional and gone):
                out[record.offset] = (record.key, record.value)
    return out


def last_of_keys(seen: Seen) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {key: (offset, value) for offset, (key, value) in sorted(seen.items())}


def test_compaction_keeps_last_record_of_each_key_and_all_offsets() -> None:
    disk = memory_disk().session()
    log = new_log(disk, SETTINGS)
    for i in range(300):
        append(log, [(b"k%d" % (i % 7), b"v%d" % i * 5)])
    before = data(log)
    (*_, stats) = compact(disk, log)
    after = data(log)
    active = log.segments.active.base_offset
    assert stats.keys == 7
    assert {o: v for o, v in after.items() if o >= active} == {o: v for o, v in before.items() if o >= active}
    assert all(before[o] == v for o, v in after.items())
    assert len([o for o in after if o < active]) == 7
    assert last_of_keys(after) == last_of_keys(before)
    assert log.log_end_offset == 300
    assert log.size_bytes < 6000


@pytest.mark.behaviour("P-69")
def test_compaction_keeps_offsets_sequence_and_epoch_of_a_reduced_batch() -> None:
    disk = memory_disk().session()
    log = new_log(disk, SETTINGS)
    append(log, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], producer_id=9, producer_epoch=3, base_sequence=0)
    append(log, [(b"a", b"3")], producer_id=9, producer_epoch=3, base_sequence=3)
    log.roll(NOW)
    append(log, [(b"z", b"9")])
    compact(disk, log)
    header, raw = next(log.segments.batches(0))
    assert (header.base_offset, header.last_offset_delta, header.records_count) == (0, 2, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 0)
    assert [x.offset for x in iterate_records(raw, header)] == [1]


@pytest.mark.behaviour("P-70")
def test_compaction_tombstone_gets_delete_horizon_and_is_removed_after_it() -> None:
    disk = memory_disk().session()
    log = new_log(disk, SETTINGS)
    append(log, [(b"a", b"1"), (b"b", b"1")])
    append(log, [(b"a", None), (b"c", b"1")])
    log.roll(NOW)
    append(log, [(b"z", b"9")])
    compact(disk, log, NOW)
    stamped = next(h for h, _ in log.segments.batches(0) if h.base_offset == 2)
    assert stamped.attributes & DELETE_HORIZON_BIT
    assert stamped.base_timestamp == NOW + KEEP_MS
    assert data(log) == {1: (b"b", b"1"), 2: (b"a", None), 3: (b"c", b"1"), 4: (b"z", b"9")}
    times = {x.offset: x.timestamp_ms for h, raw in log.segments.batches(0) for x in iterate_records(raw, h)}
    assert set(times.values()) == {NOW}, "timestamp deltas are relative to the delete horizon"
    for later, there in ((KEEP_MS - 1, True), (KEEP_MS + 1, False)):
        log.roll(NOW)
        append(log, [(b"z", b"9")])
        compact(disk, log, NOW + later)
        assert (2 in data(log)) is there
    assert last_of_keys(data(log)) == {
        b"b": (1, b"1"),
        b"c": (3, b"1"),
        b"z": (6, b"9"),
    }


@pytest.mark.behaviour("P-71")
def test_compaction_keeps_last_batch_of_a_producer_when_empty() -> None:
    disk = memory_disk().session()
    log = new_log(disk, SETTINGS)
    append(log, [(b"a", b"1")], producer_id=9, producer_epoch=0, base_sequence=0)
    append(log, [(b"a", b"2")], producer_id=9, producer_epoch=0, base_sequence=1)
    append(log, [(b"a", b"3")])
    log.roll(NOW)
    append(log, [(b"z", b"9")])
    compact(disk, log)
    headers = [(h.base_offset, h.records_count, h.producer_id, h.base_sequence) for h, _ in log.segments.batches(0)]
    assert headers == [(1, 0, 9, 1), (2, 1, -1, -1), (3, 1, -1, -1)]


@pytest.mark.behaviour("P-72")
def test_compaction_removes_aborted_records_at_once_and_markers_later() -> None:
    disk = memory_disk().session()
    log = new_log(disk, SETTINGS)
    txn = {"attributes": TRANSACTIONAL_BIT, "producer_epoch": 0}
    append(log, [(b"a", b"kept")])
    append(log, [(b"a", b"never")], producer_id=1, base_sequence=0, **txn)
    mark(log, 1, 0)
    append(log, [(b"b", b"done")], producer_id=2, base_sequence=0, **txn)
    mark(log, 2, 1)
    append(log, [(b"c", b"1")], producer_id=1, base_sequence=1, **txn)
    mark(log, 1, 1)
    log.roll(NOW)
    append(log, [(b"z", b"9")])

    def markers() -> list[int]:
        return [h.base_offset for h, _ in log.segments.batches(0) if h.is_control and h.records_count]

    before = data(log)
    compact(disk, log, NOW)
    assert data(log) == before
    assert before == {0: (b"a", b"kept"), 3: (b"b", b"done"), 5: (b"c", b"1"), 7: (b"z", b"9")}
    assert 1 not in {h.base_offset for h, _ in log.segments.batches(0) if h.records_count}
    assert markers() == [2, 4, 6], "delete horizon is set by the first pass without data of the transaction"
    for step in (1, KEEP_MS, KEEP_MS + 1):
        log.roll(NOW)
        append(log, [(b"z", b"9"), (b"c", b"2")])
        compact(disk, log, NOW + step)
        assert (2 in markers()) is (step <= KEEP_MS), step
    assert 4 in markers(), "data of the transaction remains"


def test_compaction_excludes_active_segment_and_unstable_records() -> None:
    disk = memory_disk().session()
    log = new_log(disk, SETTINGS)
    append(log, [(b"a", b"1")])
    log.roll(NOW)
    append(log, [(b"a", b"2")], producer_id=1, base_sequence=0, producer_epoch=0, attributes=TRANSACTIONAL_BIT)
    log.roll(NOW)
    append(log, [(b"a", b"3")])
    plan = plan_of(log, NOW)
    assert plan is not None
    assert plan.first_uncleanable_offset == 1
    log.config = replace(SETTINGS, min_compaction_lag_ms=100)
    assert plan_of(log, NOW + 50) is None
    assert plan_of(log, NOW + 150) is not None


def test_select_dirtiest_log_respects_ratio_and_max_compaction_lag() -> None:
    disk = memory_disk().session()
    log = new_log(disk, replace(SETTINGS, min_cleanable_dirty_ratio=0.9))
    for i in range(200):
        append(log, [(b"k%d" % i, b"v" * 20)])
    log.set_high_watermark(log.log_end_offset)
    assert dirtiest_log([log], NOW) is not None, "no segment is clean"
    compact(disk, log)
    append(log, [(b"k", b"v")])
    log.roll(NOW)
    append(log, [(b"k", b"v")])
    log.set_high_watermark(log.log_end_offset)
    assert dirtiest_log([log], NOW) is None
    log.config = replace(log.config, max_compaction_lag_ms=1000)
    assert dirtiest_log([log], NOW + 5000) is not None, "exceeds max.compaction.lag.ms"


def test_compaction_full_offset_map_takes_several_passes() -> None:
    disk = memory_disk().session()
    log = new_log(disk, SETTINGS)
    rng = random.Random(5)
    for i in range(300):
        append(log, [(b"k%d" % rng.randrange(60), b"v%d" % i)])
    before = data(log)
    passes = compact(disk, log, map_bytes=ENTRY_BYTES * 10)
    assert len(passes) > 2
    assert last_of_keys(data(log)) == last_of_keys(before)


def test_offset_map_long_keys_are_compared_by_digest() -> None:
    found = OffsetMap(10_000)
    keys = [b"x" * 31, b"x" * 32, b"x" * 33, b"y" * 1000]
    for number, key in enumerate(keys):
        assert found.put(key, number)
    assert [found.get(key) for key in keys] == [0, 1, 2, 3]
    assert found.get(b"x" * 30) == -1


@dataclass
class CompactionHistory:
    """Random operations on a compacted log, and the records that a consumer may find."""

    seed: int
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def write(self, log: PartitionLog, now: int) -> None:
        rng = self.rng
        kind = rng.random()
        items = [
            (b"key-%d" % rng.randrange(12), None if rng.random() < 0.15 else b"v%d" % rng.randrange(10**6))
            for _ in range(rng.randint(1, 6))
        ]
        codec = rng.choice(list(CompressionType))
        if kind < 0.6:
            append(log, items, now, codec=codec)
            return
        pid = rng.randrange(3)
        known = log.producers.producers.get(pid)
        sequence = 0 if known is None else (known.last_sequence + 1)
        more = {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequence, "codec": codec}
        if kind < 0.75 and pid not in log.producers.ongoing_txns:
            append(log, items, now, **more)
        elif kind < 0.9:
            append(log, items, now, attributes=TRANSACTIONAL_BIT, **more)
        elif pid in log.producers.ongoing_txns:
            mark(log, pid, rng.randrange(2), now)


@pytest.mark.parametrize("part", range(4))
def test_compaction_random_histories_keep_last_committed_values(part: int) -> None:
    for seed in range(part, HISTORIES, 4):
        run_history(seed)


def run_history(seed: int) -> None:
    """Write, compact and crash; check that the last committed value of every key stays at its offset."""
    history = CompactionHistory(seed)
    rng = history.rng
    memory: MemoryDisk = memory_disk(seed)
    disk = memory.session()
    log = new_log(disk, SETTINGS)
    now = NOW
    model: dict[bytes | None, tuple[int, bytes | None]] = {}
    for _ in range(rng.randint(20, 120)):
        history.write(log, now)
        now += rng.choice([0, 1, KEEP_MS // 3])
        if rng.random() < 0.08:
            log.flush()
            log.set_high_watermark(log.log_end_offset)
            before = data(log)
            model = last_of_keys(before)
            crash = rng.random() < 0.4
            if crash:
                disk.kill_at = memory.calls + rng.randint(1, 60)
            with contextlib.suppress(ProcessKilled):
                compact(disk, log, now, rng.choice([1 << 20, ENTRY_BYTES * 4]))
            if crash:
                end, point = log.log_end_offset, log.cleaner_offset
                disk.kill()
                disk = memory.session()
                log = reopen_log(disk, SETTINGS, point=log.recovery_point)
                log.raise_cleaner_offset(min(point, log.log_end_offset))
                assert log.log_end_offset == end, seed
                log.set_high_watermark(end)
            check(log, before, model, now, seed)


def check(
    log: PartitionLog, before: Seen, model: dict[bytes | None, tuple[int, bytes | None]], now: int, seed: int
) -> None:
    after = data(log)
    for offset, row in after.items():
        assert before.get(offset) == row, f"seed {seed}: offset {offset} is {row}, was {before.get(offset)}"
    for key, (offset, value) in model.items():
        if value is not None:
            assert after.get(offset) == (key, value), f"seed {seed}: the last value of {key!r} is gone"
    found = last_of_keys(after)
    for key, (offset, value) in found.items():
        assert model[key] == (offset, value), f"seed {seed}: {key!r} went back to {offset}"
    names = log.disk.listdir(log.directory)
    assert not [n for n in names if n.endswith((".cleaned", ".swap"))], (seed, names)
