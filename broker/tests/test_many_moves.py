"""Very many partitions that are to move: each step looks at those only whose turn it is."""

from __future__ import annotations

import errno
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.replica.move_turns import Move
from ottla.broker.replica.mover import PIECE_BYTES, Mover
from ottla.broker.replica.replica import Replica
from ottla.broker.tests.ground import topic
from ottla.broker.tests.moving import AT, NONE, Moving
from ottla.broker.turn import BACKGROUND_SLICE_MS
from ottla.wire import records as r
from ottla.wire.errors import ErrorCode

COUNT = 30


def test_a_step_asks_of_one_move_whether_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Moving(obeys=False)
    asked: list[int] = []
    is_alive = Mover._is_alive

    def counted(mover: Mover, move: Any) -> bool:
        asked.append(move.replica.partition)
        return is_alive(mover, move)

    async def story() -> None:
        ground.say(topic("u", COUNT))
        await ground.applier.settled()
        for number in range(COUNT):
            replica = ground.replicas.get("u", number)
            assert replica is not None
            path = "/b" if ground.storage.of(replica.log).path != "/b" else "/c"
            assert await ground.moves.alter(("u", number), path) is NONE
        assert len(ground.mover) == COUNT
        monkeypatch.setattr(Mover, "_is_alive", counted)
        move = await ground.mover._next()
        assert move is not None
        assert asked == [move.replica.partition]
        ground.mover._turns.put_back(move)
        ground.say(gone=("u",))
        await ground.applier.settled()
        await ground.until(lambda: not len(ground.mover))

    ground.tell(story, made=False)


def test_others_run_while_moves_are_found_to_be_over_with_their_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    ground, ended, ran = Moving(obeys=False), False, 0
    is_alive, clock = Mover._is_alive, [0.0]

    def slow(mover: Mover, move: Any) -> bool:
        clock[0] += 1
        return is_alive(mover, move)

    async def others() -> None:
        nonlocal ran
        while not ended:
            ran += 1
            await trio.lowlevel.checkpoint()

    async def story() -> None:
        nonlocal ended
        for number in range(COUNT):
            replica: Any = SimpleNamespace(topic="u", partition=number, log=None)
            ground.mover._turns.add(Move(replica, None))  # type: ignore[arg-type]
        monkeypatch.setattr(Mover, "_is_alive", slow)
        ground.env.monotonic_ms = lambda: clock[0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            assert await ground.mover._next() is None
            ended = True
        assert not len(ground.mover)
        assert clock[0] == COUNT
        assert ran >= COUNT / 2 / BACKGROUND_SLICE_MS

    trio.run(story)


def test_a_move_that_was_given_up_does_not_come_back_after_a_power_cut() -> None:
    ground = Moving(obeys=False)

    async def story() -> None:
        ground.write(3)
        waited = ground.watch_disk()
        for path in ("/b", "/c", "/a"):
            assert await ground.moves.alter(AT, path) is NONE
            assert not ground.env.memory.renamed_dirs, "all are on the disk"
        assert waited == []

    ground.tell(story)
    assert [ground.named(f"/{x}") for x in "abc"] == [["0"], ["delete"], ["delete"]]


class Several(Moving):
    """Topics of one partition, each in the first directory."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names
        self.replicas.on_place = self._placed

    def _placed(self, topic_id: bytes, number: int, directory_id: bytes) -> None:
        known = self.image.topics[self.image.topic_names[topic_id]]
        self.say(replace(known, partitions={0: replace(known.partitions[0], directories=(directory_id,))}))

    async def make(self, *sizes: int) -> None:
        """So many pieces are in each."""
        for name in self.names:
            known = topic(name, 1)
            told = replace(known.partitions[0], directories=(self.ids[0],))
            self.say(replace(known, partitions={0: told}))
        await self.applier.settled()
        for name, count in zip(self.names, sizes, strict=True):
            for _ in range(count):
                raw = bytearray(r.build_batch([r.NewRecord(None, bytes(PIECE_BYTES - 100), self.env.now_ms())]))
                self.of(name).append(raw, self.env.now_ms())

    def of(self, name: str) -> Replica:
        found = self.replicas.get(name, 0)
        assert found is not None
        return found

    def is_there(self, name: str) -> bool:
        return self.storage.of(self.of(name).log).path == "/b"


def test_a_short_move_does_not_wait_for_a_long_one_whose_name_comes_first() -> None:
    ground = Several("long", "short")

    async def story() -> None:
        await ground.make(60, 1)
        for name in ground.names:
            assert await ground.moves.alter((name, 0), "/b") is NONE
        await ground.until(lambda: ground.is_there("short"))
        assert ground.replicas.futures["long", 0].log_end_offset < 30
        await ground.until(lambda: ground.is_there("long"))
        assert ground.of("long").log.log_end_offset == 60

    ground.tell(story, made=False)


def test_as_many_are_copied_at_once_as_there_are_directories_and_each_gets_its_turn() -> None:
    ground, most = Several(*"fedcba"), 0

    def under_way() -> list[int]:
        ends = [log.log_end_offset for log in ground.replicas.futures.values()]
        return [end for end in ends if 0 < end < 20]

    async def story() -> None:
        await ground.make(*[20] * 6)
        for name in ground.names:
            assert await ground.moves.alter((name, 0), "/b") is NONE
        nonlocal most
        await ground.until(lambda: len(under_way()) == 3)
        ends = under_way()
        while len(ends) == 3:
            assert max(ends) - min(ends) < 10
            ends = under_way()
            await trio.sleep(0.0003)
        assert min(ends) > 10, "each had its turns"
        while not all(map(ground.is_there, ground.names)):
            most = max(most, len(under_way()))
            await trio.sleep(0.0003)
        assert most == 3

    ground.tell(story, made=False)


def test_who_waits_for_a_disk_or_for_damage_to_be_mended_keeps_nobody_waiting() -> None:
    ground = Several(*"abcdef")

    async def story() -> None:
        await ground.make(*[3] * 6)
        for name in "abc":
            segment = ground.of(name).log.segments[0]
            segment.damaged_ranges.append((0, 10**9))
        for name in ground.names:
            assert await ground.moves.alter((name, 0), "/b") is NONE
        await ground.until(lambda: all(map(ground.is_there, "def")))
        assert not any(map(ground.is_there, "abc"))

    ground.tell(story, made=False)


@pytest.mark.parametrize("records", [0, 20])
def test_a_log_whose_last_records_were_compacted_away_moves_too(records: int) -> None:
    ground = Moving(obeys=False)

    async def story() -> None:
        ground.write(records)
        log = ground.replica.log
        log.assign_epoch_start_offset(3)
        log.roll_past_gap(100, ground.env.now_ms())
        assert await ground.moves.alter(AT, "/b") is NONE
        await ground.until(lambda: bool(ground.places))
        ground.commit(ground.ids[1])
        await ground.moved("/b")
        log = ground.replica.log
        assert (log.log_start_offset, log.log_end_offset, log.cleaner_offset) == (0, 100, 100)
        ground.write()
        assert log.log_end_offset == 101

    ground.tell(story)


@pytest.mark.parametrize("where", ["-future/partition", "-future/0", "-future/leader-epoch", "/b/recovery-point"])
def test_a_move_that_cannot_be_begun_now_leaves_nothing_behind(where: str) -> None:
    ground = Moving()

    async def story() -> None:
        ground.write(3)
        ground.storage.directories[1].complete_checkpoint_write(
            {AT}
        )  # its checkpoints are written before a copy counts
        ground.break_disk(where, errno.EMFILE, times=1)
        assert await ground.moves.alter(AT, "/b") is ErrorCode.KAFKA_STORAGE_ERROR
        assert ground.named("/b") == ["delete"]
        assert ground.doomed == [f"/b/{name}" for name in ground.env.disk.listdir("/b") if name.endswith("-delete")]
        assert not ground.replicas.futures
        assert await ground.moves.alter(AT, "/b") is NONE
        await ground.moved("/b")

    ground.tell(story)
    assert not ground.storage.failed
