"""Log cleaner: results and failures of compaction passes."""

from __future__ import annotations

import errno
import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import trio

from ottla.broker.storage.log_cleaner import LogCleaner
from ottla.broker.storage.log_dirs import LogDirs
from ottla.broker.storage.tests.test_background_tasks import (
    NOW,
    SETTINGS,
    BackgroundEnv,
    in_virtual_time,
    log_with_storage,
)
from ottla.env.env import ChildDied, Env, WorkerContext
from ottla.log.log_validator import AppendOrigin
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import memory_disk, new_log
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.records import NewRecord, build_batch, decompress_records, iterate_records

COMPACTED = replace(SETTINGS, compact=True)
KEYS = 7
SET = {
    "log.cleaner.backoff.ms": "15000",
    "log.cleaner.dedupe.buffer.size": str(1 << 20),
    "log.cleaner.io.max.bytes.per.second": "1.7976931348623157e308",
}


class CleanerEnv(BackgroundEnv):
    """Child process with a hook before its work."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk
        self.passes = 0
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    async def in_process(self, work: Callable[..., Any], job: Any) -> Any:
        self.passes += 1
        await trio.lowlevel.checkpoint()
        self.before()
        outcome = work(WorkerContext(self._disk, lambda: 0.0, lambda _: None), job)
        self.after()
        return outcome


class CleanerFixture:
    def __init__(self) -> None:
        _, disk, self.log_dirs, self.log = log_with_storage()
        self.log.flush()
        self.log.update_config(COMPACTED)
        self.env = CleanerEnv(disk)
        self.failures: list[Any] = []
        self.log_cleaner = LogCleaner(
            cast("Env", self.env), self.log_dirs, SET.__getitem__, lambda *x: self.failures.append(x)
        )

    def once(self) -> bool:
        done: list[bool] = []

        async def work() -> None:
            done.append(await self.log_cleaner.clean_dirtiest())

        in_virtual_time(work, 3600)
        return done[0]

    def found(self) -> list[int]:
        return [record.offset for header, raw in self.log.segments.batches() for record in iterate_records(raw, header)]


def test_clean_dirtiest_compacts_log_and_writes_checkpoint() -> None:
    fixture = CleanerFixture()
    active = fixture.log.segments.active.base_offset
    assert fixture.once() is True
    assert fixture.log.cleaner_offset == active
    assert len([offset for offset in fixture.found() if offset < active]) == KEYS
    assert fixture.log_dirs.directories[0].disk.exists("/data/cleaner-offset-checkpoint")
    assert (fixture.log_cleaner.passes, fixture.log_cleaner.uncleanable_count) == (1, 0)
    assert fixture.log_cleaner.bytes_read > fixture.log_cleaner.bytes_written > 0
    assert fixture.once() is False, "nothing is dirty any more"


def test_cleaner_checkpoint_is_synced_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = CleanerFixture()
    beside, waited = [False], list[str]()

    async def in_thread(work: Callable[[], Any], lane: Any = None) -> Any:
        await trio.lowlevel.checkpoint()
        beside[0] = True
        try:
            return work()
        finally:
            beside[0] = False

    def fault(call: str, path: str) -> OSError | None:
        if call.startswith("fsync") and "cleaner-offset" in path and not beside[0]:
            waited.append(path)
        return None

    monkeypatch.setattr(fixture.env, "in_thread", in_thread, raising=False)
    disk: Any = fixture.log.disk
    disk.fault = fault
    assert fixture.once() is True
    assert waited == []
    directory = fixture.log_dirs.directories[0]
    assert directory.checkpoints.cleaner.synced_offsets == {("t", 0): fixture.log.cleaner_offset}
    on_disk = disk.disk.durable_files["/data/cleaner-offset-checkpoint"].durable
    assert on_disk == b"0\n1\nt 0 %d\n" % fixture.log.cleaner_offset


@pytest.mark.parametrize("short", [0, 3])
def test_cleaner_checkpoint_is_durable_before_segments_are_swapped(short: int) -> None:
    """Recovery takes a gap without checkpoint for a loss; a process short of a resource waits until it is not."""
    fixture = CleanerFixture()
    disk: Any = fixture.log.disk
    left, named = [short], list[bytes]()

    def fault(call: str, path: str) -> OSError | None:
        if call == "open" and "cleaner-offset" in path and left[0] > 0:
            left[0] -= 1
            return OSError(errno.EMFILE, "short of descriptors")
        if call == "rename" and path.endswith(".log.swap"):
            named.append(bytes(disk.disk.durable_files["/data/cleaner-offset-checkpoint"].durable))
        return None

    disk.fault = fault
    assert fixture.once() is True
    assert (left, {*named}) == ([0], {b"0\n1\nt 0 %d\n" % fixture.log.cleaner_offset})


def test_cleaner_runs_each_backoff_and_continues_while_logs_are_dirty() -> None:
    fixture = CleanerFixture()
    in_virtual_time(fixture.log_cleaner.run, 14.9)
    assert fixture.env.passes == 0
    in_virtual_time(fixture.log_cleaner.run, 15.1)
    assert fixture.env.passes == 1


def test_compaction_of_log_truncated_meanwhile_is_discarded() -> None:
    fixture = CleanerFixture()
    log = fixture.log

    def cut() -> None:
        log.truncate_to(10, NOW)
        while log.log_end_offset < 120:  # the same segments, with other records
            own = NewRecord(b"k%d" % log.log_end_offset, bytes(100), NOW)
            log.append_as_leader(bytearray(build_batch([own])), 0, NOW)
        log.set_high_watermark(120)

    fixture.env.before = cut
    bases = list(log.segments.base_offsets)
    assert fixture.once() is False
    assert log.segments.base_offsets == bases
    assert fixture.found() == list(range(120)), "each has a key of its own now"
    assert not [n for n in log.disk.listdir(log.directory) if n.endswith((".cleaned", ".swap"))]
    assert fixture.log_cleaner.uncleanable_count == 0


def test_log_with_future_log_is_not_compacted() -> None:
    fixture = CleanerFixture()
    log = fixture.log
    bases = list(log.segments.base_offsets)
    fixture.env.before = lambda: log.set_has_future_log(begins=True)
    assert fixture.once() is False
    assert (fixture.env.passes, log.segments.base_offsets) == (1, bases)
    assert not [n for n in log.disk.listdir(log.directory) if n.endswith((".cleaned", ".swap"))]
    assert fixture.once() is False
    assert fixture.env.passes == 1, "not even begun"
    log.set_has_future_log(begins=False)
    fixture.env.before = lambda: None
    assert fixture.once() is True


def test_move_started_during_segment_swap_keeps_segments() -> None:
    fixture = CleanerFixture()
    log = fixture.log
    bases, wait = list(log.segments.base_offsets), fixture.env.in_thread

    async def begins(work: Any, lane: Any = None) -> Any:
        log.set_has_future_log(begins=True)
        return await wait(work, lane)

    fixture.env.in_thread = begins  # type: ignore[method-assign]
    assert fixture.once() is False
    assert log.segments.base_offsets == bases
    assert not [n for n in log.disk.listdir(log.directory) if n.endswith((".cleaned", ".swap"))]


def test_log_closed_during_compaction_is_ignored() -> None:
    fixture = CleanerFixture()
    fixture.env.before = fixture.log.set_offline
    assert fixture.once() is False
    assert (fixture.log_cleaner.uncleanable_count, fixture.failures) == (0, [])


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        (WireError("no records"), True),
        (OSError(errno.EIO, "gone"), True),
        (ChildDied("killed"), True),
        (OSError(errno.EMFILE, "short of descriptors"), False),
        (OSError(errno.ENOMEM, "short of memory"), False),
    ],
)
def test_compaction_error_marks_log_uncleanable_unless_transient(error: Exception, broken: bool) -> None:
    fixture = CleanerFixture()

    def fail() -> None:
        raise error

    fixture.env.before = fail
    assert fixture.once() is False
    assert fixture.log_cleaner.uncleanable_count == broken
    fixture.env.before = lambda: None
    assert fixture.once() is not broken
    assert fixture.env.passes == (1 if broken else 2)


def test_malformed_transaction_index_marks_log_uncleanable(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = CleanerFixture()

    def malformed(start: int, end: int) -> None:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, "transaction index")

    monkeypatch.setattr(fixture.log.segments, "collect_aborted_txns", malformed)
    assert fixture.once() is False
    assert (fixture.log_cleaner.uncleanable_count, fixture.env.passes) == (1, 0)
    monkeypatch.undo()
    assert fixture.once() is False, "not until the next start"


def test_oversized_compressed_batch_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(decompress_records, "__defaults__", (0, 1000))
    fixture, reported = CleanerFixture(), []
    fixture.log.update_config(replace(COMPACTED, min_cleanable_dirty_ratio=0.0))
    for value in (bytes(2000), b"v", bytes(2000), b"v"):
        codec = CompressionType.GZIP if len(value) > 1 else CompressionType.NONE
        fixture.log.append_as_leader(
            bytearray(build_batch([NewRecord(b"k", value, NOW)], codec=codec)), 0, NOW, AppendOrigin.RAFT_LEADER
        )
        fixture.log.roll(NOW)
        fixture.log.set_high_watermark(fixture.log.log_end_offset)
        assert fixture.once() is True
        reported.append([line.message for line in caplog.records if line.levelname == "WARNING"])
        caplog.clear()
    text = (
        "Batches too large to clean in t-0: %d, the last one at offset %d, exceed 134217728 bytes uncompressed; they "
        "and the tombstones after the first one are retained"
    )
    assert reported == [[text % (1, 120)], [], [text % (2, 122)], []]
    assert fixture.log_cleaner.uncleanable_count == 0


def test_cleaner_state_of_log_is_garbage_collected() -> None:
    fixture, log = CleanerFixture(), new_log(memory_disk().session())
    fixture.log_cleaner._warned_offsets[log] = 1
    fixture.log_cleaner._uncleanable.add(log)
    gone = weakref.ref(log)
    del log
    gc.collect()
    assert (gone(), fixture.log_cleaner.uncleanable_count) == (None, 0)


def test_compaction_error_of_truncated_log_does_not_mark_it_uncleanable() -> None:
    fixture = CleanerFixture()

    def cut() -> None:
        fixture.log.truncate_to(119, NOW)
        raise WireError("half a batch")

    fixture.env.before = cut
    assert fixture.once() is False
    assert fixture.log_cleaner.uncleanable_count == 0


def test_segment_swap_os_error_is_reported() -> None:
    fixture = CleanerFixture()
    error = OSError(errno.EIO, "gone")

    def fault(call: str, path: str) -> OSError | None:
        return error if call == "rename" else None

    fixture.env.after = lambda: setattr(fixture.log.disk, "fault", fault)
    assert fixture.once() is False
    assert fixture.failures == [(error, fixture.log)]


def test_selection_among_many_logs_yields_to_event_loop() -> None:
    fixture = CleanerFixture()
    logs: list[PartitionLog] = [fixture.log] * 1000
    clock = [0.0]

    def ticking() -> float:  # every look at the clock costs a tenth of a millisecond
        clock[0] += 0.1
        return clock[0]

    fixture.env.monotonic_ms = ticking  # type: ignore[method-assign]
    turns = [0]

    class Many(LogDirs):
        def logs(self) -> list[PartitionLog]:
            return logs

    fixture.log_dirs.__class__ = Many
    fixture.log.update_config(SETTINGS)

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:

            async def other() -> None:
                while True:
                    turns[0] += 1
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(other)
            assert await fixture.log_cleaner.clean_dirtiest() is False
            nursery.cancel_scope.cancel()

    in_virtual_time(scenario, 60)
    assert turns[0] >= 45
