"""Very many partitions that are to move: each step looks at those only whose turn it is."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from ottla.broker.replica.mover import Mover
from ottla.broker.tests.ground import topic
from ottla.broker.tests.moving import AT, NONE, Moving
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
        move = ground.mover._next()
        assert move is not None
        assert asked == [move.replica.partition]
        asked.clear()
        ground.say(gone=("u",))
        await ground.applier.settled()
        await ground.until(lambda: not len(ground.mover))

    ground.tell(story, made=False)


@pytest.mark.parametrize("where", ["-future/partition", "-future/0", "-future/leader-epoch", "/b/recovery-point"])
def test_a_move_that_cannot_be_begun_now_leaves_nothing_behind(where: str) -> None:
    ground = Moving()

    async def story() -> None:
        ground.write(3)
        ground.storage.directories[1].were_noted({AT})  # its checkpoints are written before a copy counts
        ground.break_disk(where, errno.EMFILE, times=1)
        assert await ground.moves.alter(AT, "/b") is ErrorCode.KAFKA_STORAGE_ERROR
        assert ground.named("/b") == ["delete"]
        assert ground.doomed == [f"/b/{name}" for name in ground.env.disk.listdir("/b") if name.endswith("-delete")]
        assert not ground.replicas.futures
        assert await ground.moves.alter(AT, "/b") is NONE
        await ground.moved("/b")

    ground.tell(story)
    assert not ground.storage.failed
