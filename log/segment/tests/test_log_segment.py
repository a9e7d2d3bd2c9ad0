"""Log segment: roll conditions, lookups of batches, and its files: append_batches_with_header, open, trusted.

Sources: ``LogSegment.shouldRoll``, ``LogSegment.append``, ``FileRecords.searchForOffsetFromPosition`` (apache/kafka
4.3.1).
"""

from __future__ import annotations

import errno
from dataclasses import replace
from zlib import crc32

import pytest

from ottla.env.memory_disk import DiskSession
from ottla.log.log_config import FOREVER_MS, LogConfig
from ottla.log.segment.batch_scan import LogOffsetPosition
from ottla.log.segment.indexes import AbortedTxn
from ottla.log.segment.log_segment import (
    MAX_RELATIVE_OFFSET,
    MAX_UNSYNCED_INDEX_BYTES,
    LogSegment,
    SegmentOffsetOverflow,
)
from ottla.log.tests.log_fixtures import NOW, SMALL, append_batches, make_batch, memory_disk, new_log, reopen_log
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES, set_offset_and_epoch
from ottla.wire.record_batch.records import NewRecord, build_batch

BASE = 1000
PATH = "/d/00000000000000001000"


def segment(settings: LogConfig | None = None, disk: DiskSession | None = None, base: int = BASE) -> LogSegment:
    disk = memory_disk().session() if disk is None else disk
    disk.makedirs("/d")
    return LogSegment.create(disk, "/d", base, LogConfig() if settings is None else settings, NOW)


def append_batches_with_header(target: LogSegment, *batches: tuple[int, int, int]) -> list[LogOffsetPosition]:
    """Append batches of (first offset, last offset, bytes) with a valid header only; return their positions."""
    out = []
    for first, last, size in batches:
        data = bytearray(size)
        data[:HEADER_BYTES] = bytes(make_batch(0, 1))[:HEADER_BYTES]
        data[0:8] = first.to_bytes(8, "big")
        data[8:12] = (size - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
        data[23:27] = (last - first).to_bytes(4, "big")
        out.append(LogOffsetPosition(target.size_bytes, size, first, last))
        target.append(data, last, NOW + first)
    return out


# ---------------------------------------------------------------- roll conditions

FULL = LogConfig(segment_bytes=1000, segment_ms=500)
# (name, settings, appended bytes, their largest timestamp, their last offset, whether they begin a new segment)
ROLLS = [
    ("as many bytes as fit", FULL, 800, 0, BASE + 9, False),
    ("one byte more", FULL, 801, 0, BASE + 9, True),
    ("as old as may be", FULL, 100, 500, BASE + 9, False),
    ("a millisecond older", FULL, 100, 501, BASE + 9, True),
    ("of before", FULL, 100, -900, BASE + 9, False),
    ("as far as an index can say", FULL, 100, 0, BASE + MAX_RELATIVE_OFFSET, False),
    ("one offset further", FULL, 100, 0, BASE + MAX_RELATIVE_OFFSET + 1, True),
    ("compacted soon", replace(FULL, compact=True, max_compaction_lag_ms=50), 100, 51, BASE + 9, True),
    ("not yet to be compacted", replace(FULL, compact=True, max_compaction_lag_ms=50), 100, 50, BASE + 9, False),
    ("compacted some day", replace(FULL, compact=True, max_compaction_lag_ms=9000), 100, 501, BASE + 9, True),
    ("a lag of a topic that is not compacted", replace(FULL, max_compaction_lag_ms=50), 100, 500, BASE + 9, False),
]


@pytest.mark.parametrize(("case", "settings", "size", "time_ms", "last", "rolls"), ROLLS, ids=[row[0] for row in ROLLS])
def test_should_roll_by_size_age_and_offset_range(
    case: str, settings: LogConfig, size: int, time_ms: int, last: int, *, rolls: bool
) -> None:
    target = segment(settings)
    target.append(bytes(200), BASE, NOW)
    assert target.should_roll(NOW, size, NOW + time_ms, last) == rolls


def test_should_roll_empty_segment_only_for_offset_range() -> None:
    target = segment(FULL)
    assert not target.should_roll(NOW + 10**9, 5000, NOW + 10**9, BASE + MAX_RELATIVE_OFFSET)
    assert target.should_roll(NOW, 100, NOW, BASE + MAX_RELATIVE_OFFSET + 1)


@pytest.mark.parametrize(("waited", "rolls"), [(500, False), (501, True)])
def test_should_roll_first_batch_without_timestamp_uses_segment_age(waited: int, *, rolls: bool) -> None:
    target = segment(FULL)
    target.append(bytes(100), BASE, -1)
    assert target.should_roll(NOW + waited, 100, NOW + 10**9, BASE + 1) == rolls


def test_should_roll_after_restart_reads_first_timestamp() -> None:
    disk = memory_disk().session()
    target = segment(FULL, disk)
    target.append(make_batch(0, 1), BASE, NOW)
    target.append(make_batch(70, 1), BASE + 1, NOW + 70)
    again = LogSegment.load(disk, "/d", BASE, FULL)
    assert not again.should_roll(NOW + 10**9, 100, NOW + 500, BASE + 2)
    assert again.should_roll(NOW, 100, NOW + 501, BASE + 2)


def test_should_roll_jitter_reduces_age_per_segment() -> None:
    settings = replace(FULL, segment_jitter_ms=100)
    target = segment(settings)
    target.append(bytes(100), BASE, NOW)
    longest = 500 - crc32(PATH.encode()) % 100
    assert not target.should_roll(NOW, 100, NOW + longest, BASE + 1)
    assert target.should_roll(NOW, 100, NOW + longest + 1, BASE + 1)
    short = replace(settings, segment_ms=9, segment_jitter_ms=10_000)
    target.config = short
    longest = 9 - crc32(PATH.encode()) % 10
    assert not target.should_roll(NOW, 100, NOW + longest, BASE + 1)
    assert target.should_roll(NOW, 100, NOW + longest + 1, BASE + 1)


@pytest.mark.parametrize(("index_bytes", "entries", "grows"), [(80, 10, False), (80, 9, False), (96, 7, True)])
def test_should_roll_when_an_index_is_full(index_bytes: int, entries: int, *, grows: bool) -> None:
    """``segment.index.bytes``: eight bytes per entry of the offset index, twelve of the time index, which keeps one
    entry free for the close.
    """
    settings = LogConfig(segment_index_bytes=index_bytes, index_interval_bytes=0, segment_ms=FOREVER_MS)
    target = segment(settings)
    for number in range(entries + 1):  # the first batch has no entry
        assert not target.should_roll(NOW, 50, NOW, BASE + number)
        target.append(bytes(50), BASE + number, NOW + (number if grows else 0))
    assert target.should_roll(NOW, 50, NOW, BASE + 50) == (entries != 9)


# ---------------------------------------------------------------- lookups


def test_locate_returns_first_batch_that_reaches_the_offset() -> None:
    target = segment(LogConfig(index_interval_bytes=500))
    far = 1 << 24
    placed = append_batches_with_header(
        target,
        (BASE, BASE, 70),
        (BASE + 1, BASE + 300, 61),
        (BASE + 301, BASE + 70_000, 900),
        (BASE + 70_001, BASE + 70_001 + far + 5, 20_000),  # its last offset needs all four bytes
        (BASE + 70_010 + far, BASE + 70_010 + far, 16_500),
        (BASE + 90_000 + far, BASE + 90_001 + far, 80),
    )
    ends = {end + d for one in placed for end in (one.base_offset, one.last_offset) for d in (-2, -1, 0, 1, 2)}
    for offset in sorted(ends):
        want = next((one for one in placed if one.last_offset >= offset), None)
        assert target.locate(offset) == want, offset


def test_locate_old_messages_by_their_own_offset() -> None:
    """Formats 0 and 1: the leading offset is that of the last message, and bytes 23 to 26 have another meaning."""
    target = segment()
    for number in (0, 4, 9):
        data = bytearray(b"\xff" * 40)
        data[0:8] = (BASE + number).to_bytes(8, "big")
        data[8:12] = (28).to_bytes(4, "big")
        data[16] = 1
        target.append(data, BASE + number, NOW)
    assert target.locate(BASE + 4) == LogOffsetPosition(40, 40, BASE + 4, BASE + 4)
    assert target.locate(BASE + 5) == LogOffsetPosition(80, 40, BASE + 9, BASE + 9)
    assert target.locate(BASE + 10) is None


def test_locate_beyond_truncated_file_returns_none_or_raises() -> None:
    target = segment()
    append_batches_with_header(target, (BASE, BASE + 1, 100), (BASE + 2, BASE + 3, 100))
    target.file.truncate(100 + LOG_OVERHEAD_BYTES - 1)
    assert target.locate(BASE + 3) is None
    target.file.truncate(100 + LOG_OVERHEAD_BYTES)
    with pytest.raises(WireError, match="at 100"):
        target.locate(BASE + 3)


def test_append_offset_beyond_index_range_raises_segment_offset_overflow() -> None:
    target = segment(LogConfig(index_interval_bytes=0))
    target.append(bytes(70), BASE, NOW)
    with pytest.raises(SegmentOffsetOverflow):
        target.append(bytes(70), BASE + MAX_RELATIVE_OFFSET + 1, NOW)


# ---------------------------------------------------------------- files


def test_append_adds_index_entry_after_index_interval() -> None:
    target = segment(LogConfig(index_interval_bytes=200))
    for number in range(6):
        target.append(bytes(100), BASE + number, NOW + (0, 5, 5, 3, 9, 9)[number])
    assert target.offset_index.offsets.tolist() == [3]
    assert target.offset_index.positions.tolist() == [300]
    assert (target.time_index.timestamps.tolist(), target.time_index.offsets.tolist()) == ([NOW + 5], [1])
    assert target.bytes_since_index_entry == 300
    assert (target.max_timestamp, target.max_timestamp_offset, target.first_timestamp) == (NOW + 9, BASE + 4, NOW)
    target.write_index_files()
    assert target.time_index.timestamps.tolist() == [NOW + 5, NOW + 9], "write_index_files adds the last entry"


def renames(disk: DiskSession) -> list[str]:
    seen: list[str] = []

    def watch(operation: str, path: str) -> None:
        if operation == "rename":
            seen.append(path.rpartition("/")[2])

    disk.fault = watch
    return seen


def test_sealed_unchanged_segment_writes_no_index_files() -> None:
    disk = memory_disk().session()
    log = new_log(disk)
    append_batches(log, 40)
    seen = renames(disk)
    log.flush()
    for _ in range(3):
        log.close_idle_files()
    assert seen == []
    assert all(s._offset_index is None for s in log.segments[:-1])
    base = f"{log.segments.active.base_offset:020d}"
    log.close()
    assert [name for name in seen if name.endswith("index.tmp")] == [f"{base}.index.tmp", f"{base}.timeindex.tmp"]


@pytest.mark.parametrize("sync", [True, False])
def test_write_index_files_syncs_only_if_requested(*, sync: bool) -> None:
    disk = memory_disk().session()
    target = segment(LogConfig(index_interval_bytes=0), disk)
    for number in range(3):
        target.append(bytes(70), BASE + number, NOW + number)
    assert target.are_index_files_stale
    target.write_index_files(sync=sync)
    assert not target.are_index_files_stale
    for ending, size in ((".index", 16), (".timeindex", 36 - 12)):
        inode = disk.disk.files[PATH + ending]
        assert len(inode.data) == size
        assert bytes(inode.durable) == (bytes(inode.data) if sync else b"")


def test_create_segment_empty_index_files_are_not_stale() -> None:
    disk = memory_disk().session()
    target = segment(disk=disk)
    assert not target.are_index_files_stale
    assert target.is_open
    assert {p: len(i.data) for p, i in disk.disk.files.items()} == {
        f"{PATH}{e}": 0 for e in (".log", ".index", ".timeindex")
    }


@pytest.mark.parametrize(("entries", "named"), [(127, []), (192, [".index", ".timeindex"]), (128, [".timeindex"])])
def test_index_files_to_sync_contains_only_files_that_can_be_torn(entries: int, named: list[str]) -> None:
    target = segment(LogConfig(index_interval_bytes=0))
    for number in range(entries + 1):
        target.append(bytes(70), BASE + number, NOW + number)
    assert len(target.offset_index.offsets) == len(target.time_index.offsets) == entries
    assert (entries * 12 >= MAX_UNSYNCED_INDEX_BYTES) == (".timeindex" in named)
    assert target.index_files_to_sync(sealed=True) == [PATH + ending for ending in named]
    assert target.index_files_to_sync(sealed=False) == []
    target.add_aborted_txn(AbortedTxn(1, BASE, BASE + 1, BASE + 2))
    assert target.index_files_to_sync(sealed=False) == [f"{PATH}.txnindex"]
    assert target.index_files_to_sync(sealed=True)[0] == f"{PATH}.txnindex"


def test_index_files_to_sync_unloaded_indexes_are_included() -> None:
    disk = memory_disk().session()
    segment(disk=disk).close()
    assert LogSegment.load(disk, "/d", BASE, LogConfig()).index_files_to_sync(sealed=True) == [
        f"{PATH}.index",
        f"{PATH}.timeindex",
    ]


def test_torn_small_index_is_rebuilt_at_every_sector() -> None:
    disk = memory_disk().session()
    target = segment(LogConfig(index_interval_bytes=0), disk)
    today = 1_790_000_000_000  # the upper half of a timestamp of 1970 is zero, torn or not
    for number in range(127):
        one = bytearray(build_batch([NewRecord(b"k", b"v", today + number)]))
        set_offset_and_epoch(one, 0, BASE + number, 0)
        target.append(one, BASE + number, today + number)
    target.write_index_files()
    whole = {ending: bytes(disk.disk.files[PATH + ending].data) for ending in (".index", ".timeindex")}
    want = (today + 126, BASE + 126)
    for ending, full in whole.items():
        size = len(full)
        torn = [full[:at] for at in range(0, size, 512)]
        for at in range(0, size, 512):
            torn.append(full[:at] + bytes(min(512, size - at)) + full[at + 512 :])
        for raw in torn:
            for other, right in whole.items():
                disk.disk.files[PATH + other].data[:] = raw if other == ending else right
            again = LogSegment.load(disk, "/d", BASE, LogConfig(index_interval_bytes=0))
            again.load_max_timestamp()
            assert (again.max_timestamp, again.max_timestamp_offset) == want
            assert again.time_index.last_entry() == want
            assert again.locate(BASE + 100) == target.locate(BASE + 100)


def test_append_failed_write_truncates_file_and_keeps_indexes() -> None:
    disk = memory_disk().session()
    target = segment(LogConfig(index_interval_bytes=0), disk)
    target.append(bytes(70), BASE, NOW)
    disk.fault = lambda operation, path: OSError(errno.ENOSPC, "full") if operation == "pwrite" else None
    with pytest.raises(OSError, match="full"):
        target.append(bytes(70), BASE + 1, NOW + 9)
    disk.fault = None
    assert target.size_bytes == target.file.size() == 70
    assert (target.max_timestamp, len(target.offset_index.offsets)) == (NOW, 0)


def test_index_interval_continues_after_clean_shutdown() -> None:
    for stop_at in range(1, 12):
        memory, other = memory_disk(), memory_disk()
        settings = LogConfig(index_interval_bytes=400)
        log, never = new_log(memory.session(), settings), new_log(other.session(), settings)
        append_batches(log, stop_at)
        append_batches(never, stop_at + 12)
        log.close()
        again = reopen_log(memory.session(), settings, clean=True)
        assert again.log_end_offset == stop_at * 3
        append_batches(again, 12)
        assert (
            again.segments.active.offset_index.offsets.tolist() == never.segments.active.offset_index.offsets.tolist()
        )
        assert (
            again.segments.active.offset_index.positions.tolist()
            == never.segments.active.offset_index.positions.tolist()
        )
        assert again.segments.active.bytes_since_index_entry == never.segments.active.bytes_since_index_entry


@pytest.mark.parametrize("left", [1, 30, 100])
def test_open_log_damaged_end_after_clean_shutdown_truncates_log(left: int) -> None:
    """The clean shutdown file means that the log was synced; the disk may have lost bytes since."""
    memory = memory_disk()
    settings = LogConfig()
    log = new_log(memory.session(), settings)
    append_batches(log, 9)
    last = [position for position, _, _ in log.segments.active.scan()][-1]
    log.close()
    del memory.files[f"{log.directory}/{0:020d}.log"].data[last + left :]
    again = reopen_log(memory.session(), settings, clean=True)
    assert again.log_end_offset == 24
    assert again.segments.active.size_bytes == last
    assert again.recovery_notes
    append_batches(again, 1)
    assert reopen_log(memory.session(), settings).log_end_offset == 27


def test_load_max_timestamp_reads_only_the_time_index() -> None:
    memory = memory_disk()
    log = new_log(memory.session(), LogConfig(segment_bytes=2000, index_interval_bytes=200))
    append_batches(log, 60)
    want = [(s.max_timestamp, s.max_timestamp_offset) for s in log.segments]
    log.close()
    again = reopen_log(memory.session(), log.config, clean=True)
    opened: list[str] = []

    def note(call: str, path: str) -> None:
        if call == "open":
            opened.append(path.rpartition(".")[2])

    again.disk.fault = note  # type: ignore[attr-defined]
    for segment in again.segments:
        segment.load_max_timestamp()
    assert [(s.max_timestamp, s.max_timestamp_offset) for s in again.segments] == want
    assert set(opened) <= {"timeindex"}


@pytest.mark.parametrize(
    "damage", [b"", bytes(24), bytes(7), b"\xff" * 24, b"\x00" * 7 + b"\x05" + b"\x00" * 16 + b"x"]
)
def test_load_max_timestamp_with_damaged_time_index_rebuilds_it(damage: bytes) -> None:
    memory = memory_disk()
    log = new_log(memory.session(), SMALL)
    append_batches(log, 30)
    want = log.segments[0].max_timestamp
    log.close()
    again = reopen_log(memory.session(), clean=True)
    file = again.disk.open(again.segments[0].path + ".timeindex")
    file.truncate(0)
    file.pwrite(damage, 0)
    again.segments[0].load_max_timestamp()
    assert again.segments[0].max_timestamp == want
