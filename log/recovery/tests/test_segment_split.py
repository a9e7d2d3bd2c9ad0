"""Large offset gaps and old message formats: logs after compaction, and logs of earlier Kafka versions.

Source: the case names of ``LogLoaderTest.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
import zlib

import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.log.recovery.log_loader import open_log
from ottla.log.recovery.segment_split import split_overflowed_segment
from ottla.log.segment.log_segment import MAX_RELATIVE_OFFSET, LogSegment
from ottla.log.tests.log_fixtures import (
    COMPACTED,
    DIRECTORY,
    NOW,
    SMALL,
    make_batch,
    memory_disk,
    record_offsets,
    record_values,
    reopen_in_new_session,
    write_segment_file,
)


def test_recovery_of_over_compacted_log_keeps_all_records() -> None:
    """testOverCompactedLogRecovery: the offset distance may exceed the range of one segment."""
    far = MAX_RELATIVE_OFFSET
    memory = memory_disk()
    for base in (0, far - 1, far, far + 1):
        write_segment_file(memory, base, [(base, 1)])
    again = reopen_in_new_session(memory, COMPACTED)
    assert record_offsets(again) == [0, far - 1, far, far + 1]
    assert again.log_end_offset == far + 2
    again.append_as_leader(make_batch(0, 1), 0, NOW)
    assert record_offsets(again)[-1] == far + 2


@pytest.mark.parametrize("magic", [2, 1])
def test_recovery_of_over_compacted_log_with_larger_batches_keeps_all_records(magic: int) -> None:
    """testOverCompactedLogRecoveryMultiRecord(V1): the same with several records in a batch, or old messages."""
    far = MAX_RELATIVE_OFFSET
    memory = memory_disk()
    write_segment_file(memory, 0, [(0, 2)])
    write_segment_file(memory, far - 1, [(far - 1, 2)])
    write_segment_file(memory, far + 1, [(far + 1, 2)])
    if magic == 1:
        old_message(memory, far + 3)
    again = reopen_in_new_session(memory, COMPACTED)
    want = [0, 1, far - 1, far, far + 1, far + 2]
    assert record_offsets(again) == want + [far + 3] * (magic == 1)


def old_message(memory: MemoryDisk, offset: int, value: bytes = b"old") -> bytes:
    """Write a segment with one message of format 1."""
    inner = struct.pack(">bbq", 1, 0, NOW) + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    raw = struct.pack(">qiI", offset, len(inner) + 4, zlib.crc32(inner)) + inner
    disk = memory.session()
    disk.makedirs(DIRECTORY)
    disk.open(f"{DIRECTORY}/{offset:020d}.log", create=True).pwrite(raw, 0)
    return raw


def write_overflowing_segment(memory: MemoryDisk) -> list[int]:
    """Write a segment with offsets beyond its range, between two valid ones; return every offset."""
    far = MAX_RELATIVE_OFFSET
    middle = [10, 50, far, far + 9, far + 11, 2 * far + 12]
    write_segment_file(memory, 0, [(o, 1) for o in range(10)])
    write_segment_file(memory, 10, [(o, 1) for o in middle])
    write_segment_file(memory, 3 * far, [(3 * far, 1), (3 * far + 1, 1)])
    return [*range(10), *middle, 3 * far, 3 * far + 1]


def test_recovery_splits_segment_with_offset_overflow() -> None:
    """testRecoveryOfSegmentWithOffsetOverflow: it becomes several indexable segments without losing a record."""
    memory = memory_disk()
    want = write_overflowing_segment(memory)
    far = MAX_RELATIVE_OFFSET
    for settings, compacted_below in ((COMPACTED, 0), (SMALL, 3 * far)):
        again = open_log(
            memory.session(), DIRECTORY, "t", 0, settings, NOW, clean=False, compacted_below=compacted_below
        )
        assert record_offsets(again) == want
        assert again.segments.base_offsets == [0, 10, far + 10, far + 12, 3 * far]
        assert not [p for p in memory.files if p.endswith((".swap", ".cleaned"))]
        for segment in again.segments:
            last = segment.base_offset + (segment.offset_index.offsets[-1] if segment.offset_index.offsets else 0)
            assert last - segment.base_offset <= MAX_RELATIVE_OFFSET


@pytest.mark.parametrize("phase", [1, 2, 3, 4, 5])
def test_recovery_after_crash_during_split_keeps_all_records(phase: int) -> None:
    """testRecoveryAfterCrashDuringSplitPhase1-5: before, between and after the renames, and at every other call."""
    memory = memory_disk()
    want = write_overflowing_segment(memory)
    disk = memory.session()
    source = LogSegment.load(disk, DIRECTORY, 10, COMPACTED)
    wanted = {1: ".log.cleaned", 2: ".index.cleaned", 3: ".log", 4: ".log.swap", 5: ""}[phase]
    operation = {1: "fsync", 2: "rename", 3: "unlink", 4: "rename", 5: ""}[phase]
    seen: list[str] = []

    def crash(call: str, path: str) -> OSError | None:
        if call == operation and path.endswith(wanted):
            seen.append(path)
            if len(seen) == 1 + (phase == 2):
                disk.kill()
                return OSError("killed")
        return None

    disk.fault = crash
    try:
        split_overflowed_segment(disk, DIRECTORY, source)
        assert phase == 5
    except OSError:
        assert seen
    again = reopen_in_new_session(memory, COMPACTED)
    assert record_offsets(again) == want
    assert not [p for p in memory.files if p.endswith((".swap", ".cleaned", ".deleted"))]
    assert record_offsets(reopen_in_new_session(memory, COMPACTED)) == want


def test_split_killed_at_every_call_keeps_all_records() -> None:
    for at in range(1, 200):
        memory = memory_disk(at)
        want = write_overflowing_segment(memory)
        disk = memory.session()
        source = LogSegment.load(disk, DIRECTORY, 10, COMPACTED)
        disk.kill_at = memory.calls + at
        done = True
        try:
            split_overflowed_segment(disk, DIRECTORY, source)
        except BaseException:
            done = False
        assert record_offsets(reopen_in_new_session(memory, COMPACTED)) == want, at
        if done:
            break
    assert at > 30


def test_recovery_of_old_message_formats_keeps_and_serves_them() -> None:
    """Formats 0 and 1 are valid, not damage."""
    memory = memory_disk()
    raw = old_message(memory, 0)
    disk = memory.session()
    path = f"{DIRECTORY}/{0:020d}.log"
    for offset in range(1, 40):
        one = bytearray(raw)
        one[:8] = offset.to_bytes(8, "big")
        disk.open(path).pwrite(bytes(one), len(memory.files[path].data))
    whole = bytes(memory.files[path].data)
    again = reopen_in_new_session(memory)
    assert again.log_end_offset == 40
    assert record_values(again) == [(i, b"old") for i in range(40)]
    part = again.read(17, 10_000, 40, at_least_one=True)
    assert part is not None
    assert part.read() == whole[len(raw) * 17 :]
    again.append_as_leader(make_batch(0, 1), 0, NOW)
    assert record_offsets(again)[-2:] == [39, 40]
    memory.files[path].data[len(raw) * 30 + 25] ^= 1
    assert reopen_in_new_session(memory).log_end_offset == 30
