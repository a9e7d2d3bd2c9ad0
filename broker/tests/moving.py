"""A node with three directories and a partition in the first; its controller takes what it is told of places."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import trio

from ottla.broker.replica.mover import Mover
from ottla.broker.replica.moves import Moves
from ottla.broker.replica.replica import Replica
from ottla.broker.replica.unfinished import take_up
from ottla.broker.tests.ground import Ground, topic
from ottla.log.partition_log import PartitionLog
from ottla.wire import records as r
from ottla.wire.errors import ErrorCode

AT = ("t", 0)
NONE = ErrorCode.NONE


class Moving(Ground):
    """The ground, and what moves partitions on it."""

    def __init__(self, directories: str = "/a,/b,/c", *, obeys: bool = True, env: Any = None, **settings: str) -> None:
        super().__init__(directories, env=env, **settings)
        self.obeys = obeys
        """Whether what the controller is told is committed."""
        self.flush_due: Callable[[Replica], None] = lambda replica: None
        self.replicas._flush_due = lambda replica: self.flush_due(replica)  # noqa: PLW0108 - a test sets it later
        self.replicas.on_place = self._told
        self.mover = Mover(self.env, self.config, self.storage, self.replicas, self.losses.fail)
        args = (self.env, self.storage, self.replicas, self.mover, self.making.prefer, self.losses.fail)
        self.moves = Moves(*args)
        self.applier.followers.append(self.mover.publish)
        self.replicas.on_future = self.mover.go_on
        self.ids = [d.id for d in self.storage.directories]

    def _told(self, topic_id: bytes, number: int, directory_id: bytes) -> None:
        self.places.append((topic_id, number, directory_id))
        if self.obeys:
            self.commit(directory_id)

    def commit(self, directory_id: bytes, **more: int) -> None:
        """The image has the partition in that directory."""
        known = self.image.topics["t"]
        told = replace(known.partitions[0], directories=(directory_id,), **more)
        self.say(replace(known, partitions={0: told}))

    def lying(self, directory: int = 0) -> None:
        """The topic is made there."""
        known = topic("t", 1)
        told = replace(known.partitions[0], directories=(self.ids[directory],))
        self.say(replace(known, partitions={0: told}))

    @property
    def replica(self) -> Replica:
        found = self.replicas.get(*AT)
        assert found is not None
        return found

    @property
    def future(self) -> PartitionLog:
        return self.replicas.futures[AT]

    def where(self) -> str:
        """The directory the partition is served from."""
        return self.storage.of(self.replica.log).path

    def write(self, count: int = 1, size_bytes: int = 100) -> None:
        for _ in range(count):
            raw = bytearray(r.build_batch([r.NewRecord(None, bytes(size_bytes), self.env.now_ms())]))
            self.replica.append(raw, self.env.now_ms())

    async def open(self) -> None:
        """The start of a process."""
        await self.replicas.load(self.image)
        if self.replicas.copies_left:
            await take_up(self.env, self.config, self.replicas, self.storage, self.image)

    async def until(self, is_so: Callable[[], bool]) -> None:
        with trio.fail_after(60):
            while not is_so():  # noqa: ASYNC110 - what is waited for tells nobody
                await trio.sleep(0.001)

    async def moved(self, path: str) -> None:
        await self.until(lambda: self.where() == path)

    def tell(self, story: Callable[[], Awaitable[None]], *, made: bool = True) -> None:
        """A story beside all tasks, with the partition there from the start."""

        async def whole() -> None:
            if made:
                self.lying()
                await self.applier.settled()
                self.places.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.mover.run)
                await story()
                nursery.cancel_scope.cancel()

        self.play(whole)

    def named(self, path: str) -> list[str]:
        """What lies of the partition in a directory, by the endings of the names."""
        names = (name for name in self.env.disk.listdir(path) if name.startswith("t-0"))
        return sorted(name.rpartition("-")[2] for name in names)
