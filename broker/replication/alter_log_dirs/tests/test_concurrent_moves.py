"""Very many moves of partitions: each step examines only the moves that are due."""

from __future__ import annotations

import errno
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.replication.alter_log_dirs.future_replica_copier import COPY_CHUNK_BYTES, FutureReplicaCopier
from ottla.broker.replication.alter_log_dirs.move_scheduler import LogDirMove
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.tests.broker_storage_fixture import led_topic
from ottla.broker.tests.log_dir_moves_fixture import NO_ERROR, TOPIC_PARTITION, LogDirMovesFixture
from ottla.jobs.time_slice import BACKGROUND_SLICE_MS, run_in_background
from ottla.wire.errors import ErrorCode
from ottla.wire.record_batch.records import NewRecord, build_batch

COUNT = 30


def test_step_checks_one_move_for_liveness(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = LogDirMovesFixture(obeys=False)
    requested: list[int] = []
    is_alive = FutureReplicaCopier._is_active

    def counted(mover: FutureReplicaCopier, move: Any) -> bool:
        requested.append(move.replica.partition)
        return is_alive(mover, move)

    async def scenario() -> None:
        fixture.commit_topics(led_topic("u", COUNT))
        await fixture.publisher.wait_applied_and_created()
        for number in range(COUNT):
            replica = fixture.replica_manager.get("u", number)
            assert replica is not None
            path = "/b" if fixture.log_dirs.directory_of(replica.log).path != "/b" else "/c"
            assert await fixture.alter_log_dirs.alter(("u", number), path) is NO_ERROR
        assert len(fixture.copier) == COUNT
        monkeypatch.setattr(FutureReplicaCopier, "_is_active", counted)
        move = await run_in_background(fixture.env, fixture.copier._next_move())
        assert move is not None
        assert requested == [move.replica.partition]
        fixture.copier._scheduler.reschedule(move)
        fixture.commit_topics(gone=("u",))
        await fixture.publisher.wait_applied_and_created()
        await fixture.until(lambda: not len(fixture.copier))

    fixture.run_moves(scenario, made=False)


def test_removal_of_moves_of_deleted_topic_yields_to_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture, ended, ran = LogDirMovesFixture(obeys=False), False, 0
    is_alive, clock = FutureReplicaCopier._is_active, [0.0]

    def slow(mover: FutureReplicaCopier, move: Any) -> bool:
        clock[0] += 1
        return is_alive(mover, move)

    async def others() -> None:
        nonlocal ran
        while not ended:
            ran += 1
            await trio.lowlevel.checkpoint()

    async def scenario() -> None:
        nonlocal ended
        for number in range(COUNT):
            replica: Any = SimpleNamespace(topic="u", partition=number, log=None)
            fixture.copier._scheduler.add(LogDirMove(replica, None))  # type: ignore[arg-type]
        monkeypatch.setattr(FutureReplicaCopier, "_is_active", slow)
        fixture.env.monotonic_ms = lambda: clock[0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            assert await run_in_background(fixture.env, fixture.copier._next_move()) is None
            ended = True
        assert not len(fixture.copier)
        assert clock[0] == COUNT
        assert ran >= COUNT / 2 / BACKGROUND_SLICE_MS

    trio.run(scenario)


def test_cancelled_move_does_not_return_after_power_failure() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        fixture.write(3)
        waited = fixture.watch_disk()
        for path in ("/b", "/c", "/a"):
            assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, path) is NO_ERROR
            assert not fixture.env.memory.renamed_dirs, "all are on the disk"
        assert waited == []

    fixture.run_moves(scenario)
    assert [fixture.directory_names(f"/{x}") for x in "abc"] == [["0"], ["delete"], ["delete"]]


class SeveralMovesFixture(LogDirMovesFixture):
    """Topics of one partition, each in the first directory."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names
        self.replica_manager.on_directory_changed = self._placed

    def _placed(self, topic_id: bytes, number: int, directory_id: bytes) -> None:
        known = self.image.topics[self.image.topic_names[topic_id]]
        self.commit_topics(replace(known, partitions={0: replace(known.partitions[0], directories=(directory_id,))}))

    async def make(self, *sizes: int) -> None:
        """Create the topics with so many chunks of records in each."""
        for name in self.names:
            known = led_topic(name, 1)
            registration = replace(known.partitions[0], directories=(self.ids[0],))
            self.commit_topics(replace(known, partitions={0: registration}))
        await self.publisher.wait_applied_and_created()
        for name, count in zip(self.names, sizes, strict=True):
            for _ in range(count):
                raw = bytearray(build_batch([NewRecord(None, bytes(COPY_CHUNK_BYTES - 100), self.env.now_ms())]))
                self.partition_named(name).append(raw, self.env.now_ms())

    def partition_named(self, name: str) -> HostedPartition:
        found = self.replica_manager.get(name, 0)
        assert found is not None
        return found

    def is_there(self, name: str) -> bool:
        return self.log_dirs.directory_of(self.partition_named(name).log).path == "/b"


def test_short_move_completes_before_long_one_with_earlier_name() -> None:
    fixture = SeveralMovesFixture("long", "short")

    async def scenario() -> None:
        await fixture.make(60, 1)
        for name in fixture.names:
            assert await fixture.alter_log_dirs.alter((name, 0), "/b") is NO_ERROR
        await fixture.until(lambda: fixture.is_there("short"))
        assert fixture.replica_manager.future_logs["long", 0].log_end_offset < 30
        await fixture.until(lambda: fixture.is_there("long"))
        assert fixture.partition_named("long").log.log_end_offset == 60

    fixture.run_moves(scenario, made=False)


def test_one_move_per_directory_is_copied_at_once_in_turn() -> None:
    fixture, most = SeveralMovesFixture(*"fedcba"), 0

    def under_way() -> list[int]:
        ends = [log.log_end_offset for log in fixture.replica_manager.future_logs.values()]
        return [end for end in ends if 0 < end < 20]

    async def scenario() -> None:
        await fixture.make(*[20] * 6)
        for name in fixture.names:
            assert await fixture.alter_log_dirs.alter((name, 0), "/b") is NO_ERROR
        nonlocal most
        await fixture.until(lambda: len(under_way()) == 3)
        ends = under_way()
        while len(ends) == 3:
            assert max(ends) - min(ends) < 10
            ends = under_way()
            await trio.sleep(0.0003)
        assert min(ends) > 10, "each had its turns"
        while not all(map(fixture.is_there, fixture.names)):
            most = max(most, len(under_way()))
            await trio.sleep(0.0003)
        assert most == 3

    fixture.run_moves(scenario, made=False)


def test_moves_blocked_by_corruption_do_not_block_others() -> None:
    fixture = SeveralMovesFixture(*"abcdef")

    async def scenario() -> None:
        await fixture.make(*[3] * 6)
        for name in "abc":
            segment = fixture.partition_named(name).log.segments[0]
            segment.damaged_ranges.append((0, 10**9))
        for name in fixture.names:
            assert await fixture.alter_log_dirs.alter((name, 0), "/b") is NO_ERROR
        await fixture.until(lambda: all(map(fixture.is_there, "def")))
        assert not any(map(fixture.is_there, "abc"))

    fixture.run_moves(scenario, made=False)


@pytest.mark.parametrize("records", [0, 20])
def test_log_with_compacted_tail_is_moved(records: int) -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        fixture.write(records)
        log = fixture.replica.log
        log.assign_epoch_start_offset(3)
        log.roll_past_gap(100, fixture.env.now_ms())
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is NO_ERROR
        await fixture.until(lambda: bool(fixture.reported_directories))
        fixture.commit(fixture.ids[1])
        await fixture.alter_and_wait("/b")
        log = fixture.replica.log
        assert (log.log_start_offset, log.log_end_offset, log.cleaner_offset) == (0, 100, 100)
        fixture.write()
        assert log.log_end_offset == 101

    fixture.run_moves(scenario)


@pytest.mark.parametrize("where", ["-future/partition", "-future/0", "-future/leader-epoch", "/b/recovery-point"])
def test_move_that_fails_at_creation_leaves_no_future_log(where: str) -> None:
    fixture = LogDirMovesFixture()

    async def scenario() -> None:
        fixture.write(3)
        # its checkpoints are written before the future log is used
        fixture.log_dirs.directories[1].checkpoints._bounds[TOPIC_PARTITION] = 1
        fixture.break_disk(where, errno.EMFILE, times=1)
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is ErrorCode.KAFKA_STORAGE_ERROR
        assert fixture.directory_names("/b") == ["delete"]
        assert fixture.scheduled_deletes == [
            f"/b/{name}" for name in fixture.env.disk.listdir("/b") if name.endswith("-delete")
        ]
        assert not fixture.replica_manager.future_logs
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is NO_ERROR
        await fixture.alter_and_wait("/b")

    fixture.run_moves(scenario)
    assert not fixture.log_dirs.offline
