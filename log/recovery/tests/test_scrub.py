"""Scrubbing of sealed segments: bit rot is located exactly and never served."""

from __future__ import annotations

import errno

import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.scrub import DamagedRange, list_sealed_segments, scrub_batches
from ottla.log.tests.log_fixtures import append_batches, memory_disk, new_log, record_offsets
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import iterate_batches


def cold_log() -> tuple[MemoryDisk, PartitionLog]:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 60)
    log.flush()
    return memory, log


def served(log: PartitionLog, offset: int) -> list[int]:
    """Return the base offsets of the batches that a fetch returns."""
    part = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
    return [] if part is None else [header.base_offset for _, header in iterate_batches(part.read())]


def scrub(log: PartitionLog, at_most_bytes: int = 1 << 20) -> list[DamagedRange]:
    found = []
    for segment in list_sealed_segments(log):
        position: int | None = 0
        while position is not None:
            step = scrub_batches(segment, position, at_most_bytes)
            found += step.damaged_ranges
            segment.damaged_ranges += [(x.position, x.end) for x in step.damaged_ranges]
            position = step.next_position
    return found


@pytest.mark.parametrize("at_most_bytes", [1, 300, 1 << 20])
def test_scrub_undamaged_log_reports_no_damage_for_any_step_size(at_most_bytes: int) -> None:
    _, log = cold_log()
    assert len(list_sealed_segments(log)) == len(log.segments) - 1
    assert scrub(log, at_most_bytes) == []
    assert record_offsets(log) == list(range(180))


@pytest.mark.parametrize("byte", [70, 22, 17])
@pytest.mark.parametrize("at_most_bytes", [1, 1 << 20])
def test_scrub_damaged_batch_is_located_and_not_served(byte: int, at_most_bytes: int) -> None:
    memory, log = cold_log()
    segment = log.segments[1]
    bad = list(iterate_batches(bytes(memory.files[segment.path + ".log"].data)))[4]
    position, header = bad
    memory.files[segment.path + ".log"].data[position + byte] ^= 1
    assert header.base_offset in served(log, header.base_offset), "not scrubbed yet"
    found = scrub(log, at_most_bytes)
    assert found == [DamagedRange(segment.path + ".log", position, position + header.size_bytes, header.base_offset)]
    for offset in (header.base_offset, header.last_offset):
        with pytest.raises(ProtocolError) as error:
            served(log, offset)
        assert error.value.code is ErrorCode.CORRUPT_MESSAGE
    assert served(log, segment.base_offset)[-1] == header.base_offset - 3
    assert served(log, header.next_offset)[0] == header.next_offset


def test_scrub_damaged_size_resumes_at_next_index_entry() -> None:
    memory, log = cold_log()
    segment = log.segments[1]
    batches = list(iterate_batches(bytes(memory.files[segment.path + ".log"].data)))
    position, header = batches[1]
    memory.files[segment.path + ".log"].data[position + 9] ^= 1
    (damage,) = scrub(log)
    assert (damage.position, damage.offset) == (position, header.base_offset)
    assert damage.end == min(p for p in segment.offset_index.positions if p > position)
    behind = next(h for at, h in batches if at == damage.end)
    assert served(log, behind.base_offset)[0] == behind.base_offset


def test_scrub_unreadable_range_is_damage() -> None:
    memory = memory_disk()
    disk = memory.session()
    log = new_log(disk)
    append_batches(log, 60)
    log.flush()
    path = log.segments[0].path + ".log"
    disk.fault = lambda operation, p: OSError(errno.EIO, "unreadable", p) if (operation, p) == ("pread", path) else None
    damage = scrub(log)[0]
    assert (damage.path, damage.position, damage.end) == (path, 0, log.segments[0].size_bytes)


def test_scrub_skips_unsynced_and_active_segments() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 60)
    assert list_sealed_segments(log) == []
    log.flush()
    memory.files[log.segments.active.path + ".log"].data[70] ^= 1
    assert scrub(log) == []


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EMFILE])
def test_scrub_missing_or_unopenable_file_raises_os_error(number: int) -> None:
    memory = memory_disk()
    disk = memory.session()
    log = new_log(disk)
    append_batches(log, 60)
    log.flush()
    log.close_idle_files()
    log.close_idle_files()
    disk.fault = lambda operation, p: (
        OSError(number, "injected", p) if operation == "open" and p.endswith(".log") else None
    )
    with pytest.raises(OSError, match="injected"):
        scrub_batches(log.segments[0], 0, 1 << 20)
