"""Recovery of a log with random damage after an unclean shutdown.

Records before the damage are kept, and no record with a bad checksum is served. ``OTTLA_MUTATIONS=10000 pytest
log/recovery/tests/test_corrupted_files.py`` runs more mutations.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import NamedTuple

from ottla.env.memory_disk import MemoryDisk
from ottla.log.partition_log import PartitionLog
from ottla.log.segment.indexes import AbortedTxn
from ottla.log.tests.log_fixtures import (
    DIRECTORY,
    NOW,
    SMALL,
    append_committed,
    make_batch,
    make_marker,
    make_producer_batch,
    make_transactional_batch,
    memory_disk,
    new_log,
    reopen_in_new_session,
)
from ottla.wire.record_batch.batch_header import iterate_batches
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.records import iterate_records

MUTATIONS = int(os.environ.get("OTTLA_MUTATIONS", "500"))
SETTINGS = replace(SMALL, segment_bytes=8000)


class UndamagedLog(NamedTuple):
    """Files and records of the log before the damage."""

    files: dict[str, bytes]
    records: list[tuple[int, bytes | None]]
    """(offset, value) of data and control records."""
    aborted: list[AbortedTxn]
    bases: list[int]


def everything(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [
        (x.offset, x.value)
        for header, raw in log.segments.batches(log.log_start_offset)
        for x in iterate_records(raw, header)
    ]


def original() -> UndamagedLog:
    """Return a log of three segments with indexes, snapshots, every codec and all types of batches."""
    memory = memory_disk()
    log = new_log(memory.session(), SETTINGS)
    codecs = list(CompressionType)
    for number in range(45):
        epoch = number // 20
        log.append_as_leader(make_batch(log.log_end_offset, 3, codecs[number % len(codecs)]), epoch, NOW)
        append_committed(log, make_producer_batch(1, number), epoch=epoch)
        append_committed(log, make_transactional_batch(2, number), epoch=epoch)
        append_committed(log, make_marker(2, number % 2), epoch=epoch)
    log.close()
    assert len(log.segments) == 3
    aborted = log.segments.collect_aborted_txns(0, log.log_end_offset)
    files = {path: bytes(inode.data) for path, inode in memory.files.items()}
    return UndamagedLog(files, everything(log), aborted, log.segments.base_offsets)


def damaged(rng: random.Random, data: bytes) -> tuple[bytes, int]:
    """Damage some bytes; return them and the first changed position."""
    out = bytearray(data)
    at = rng.randrange(len(out)) if out else 0
    kind = rng.choice(("flip", "flips", "tear", "truncate", "garbage", "zeros", "append"))
    if kind == "flip" and out:
        out[at] ^= 1 << rng.randrange(8)
    elif kind == "flips" and out:
        for _ in range(20):
            out[rng.randrange(at, len(out))] ^= 1 << rng.randrange(8)
    elif kind == "tear":  # the rest of a sector has old bytes
        sector = at // 512 * 512
        out[sector:] = bytes(min(512, len(out) - sector))
    elif kind == "truncate":
        del out[at:]
    elif kind == "garbage":
        out[at : at + 50] = rng.randbytes(min(50, len(out) - at))
    elif kind == "zeros":
        out[at:] = bytes(len(out) - at)
    else:
        out += rng.randbytes(rng.randrange(1, 200))
    first = next((i for i, (x, y) in enumerate(zip(data, out, strict=False)) if x != y), min(len(data), len(out)))
    return bytes(out), first


def reordered(rng: random.Random, data: bytes) -> tuple[bytes, int]:
    """Return whole batches in a wrong place, as after a misdirected write: swapped, or one overwritten by a copy."""
    batches = [data[at : at + x.size_bytes] for at, x in iterate_batches(data)]
    i = rng.randrange(len(batches))
    if rng.random() < 0.5:
        j = rng.randrange(len(batches))
        batches[i], batches[j] = batches[j], batches[i]
        i = min(i, j)
    else:
        batches.insert(rng.randrange(i, len(batches)) + 1, batches[i])
    out = b"".join(batches)
    first = next((k for k, (x, y) in enumerate(zip(data, out, strict=False)) if x != y), min(len(data), len(out)))
    return out, first


def kept_at_least(base: int, data: bytes, first: int, end: int) -> int:
    """Return the offset up to which no record is damaged."""
    kept = base
    for at, header in iterate_batches(data):
        if at + header.size_bytes > first:
            return kept
        kept = header.next_offset
    return max(kept, end)


def mutate(rng: random.Random, memory: MemoryDisk, whole: UndamagedLog) -> int:
    """Damage or remove one file; return the offset up to which every record must survive."""
    names = [p for p in whole.files if not p.endswith("partition.metadata")]
    path = rng.choice([p for p in names if p.endswith(".log")] if rng.random() < 0.6 else names)
    data, end = whole.files[path], whole.records[-1][0] + 1
    segment = path.endswith(".log")
    base = int(path.rpartition("/")[2][:20]) if segment else end
    if rng.random() < 0.05:
        del memory.files[path]
        return base
    if segment and rng.random() < 0.3:
        changed, first = reordered(rng, data)
    else:
        changed, first = damaged(rng, data)
    memory.files[path].data[:] = changed
    return kept_at_least(base, data, first, end) if segment else end


def test_recovery_random_damage_keeps_records_before_it() -> None:
    whole = original()
    rng = random.Random(MUTATIONS)
    served = 0
    for turn in range(MUTATIONS):
        memory = memory_disk(turn)
        disk = memory.session()
        disk.makedirs(DIRECTORY)
        for path, data in whole.files.items():
            disk.open(path, create=True).pwrite(data, 0)
        kept = mutate(rng, memory, whole)
        log = reopen_in_new_session(memory, SETTINGS)
        start, end = log.log_start_offset, log.log_end_offset
        assert end >= kept, turn
        got = everything(log)
        if start == 0:
            assert got == [x for x in whole.records if x[0] < end], turn
            assert log.segments.collect_aborted_txns(0, end) == [x for x in whole.aborted if x.last_offset < end], turn
        else:  # the first segment was lost as a whole: the next segment begins the log
            assert start in whole.bases, turn
            assert got == [x for x in whole.records if start <= x[0] < end], turn
        served += len(got)
        append_committed(log, make_batch(0, 1))
        assert log.log_end_offset == end + 1
    assert served > MUTATIONS * 50
