"""A fetcher with real logs whose leader answers what a test says, and nothing new else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import trio

from ottla.broker.replica.fetcher import Fetcher
from ottla.broker.replica.following import Limits
from ottla.broker.replica.leader_line import World
from ottla.broker.replica.replica import Replica
from ottla.broker.tests.world import HandlerFixture, run_virtual, topic_id_of
from ottla.controller.image import PartitionRegistration
from ottla.log.settings import LogConfig
from ottla.wire import records as r
from ottla.wire.messages import fetch as f
from ottla.wire.messages import list_offsets as lo

SESSION = 4711


def records(first: int, count: int = 1, epoch: int = 3, size_bytes: int = 1) -> bytes:
    """One batch of a leader's."""
    batch = r.build_batch([r.NewRecord(None, bytes(size_bytes), 0) for _ in range(count)], base_offset=first)
    return bytes(batch[:12]) + epoch.to_bytes(4, "big") + bytes(batch[16:])


def row(number: int = 0, raw: bytes | None = b"", high: int = 0, start: int = 0, **more: Any) -> f.PartitionData:
    """What the leader says of a partition of "t"."""
    return f.PartitionData(number, high_watermark=high, log_start_offset=start, records=raw, **more)


class Sent(NamedTuple):
    """A request, and when it was sent."""

    at_s: float
    version: int
    request: Any

    @property
    def partitions(self) -> dict[int, f.FetchPartition]:
        return {p.partition: p for t in self.request.topics for p in t.partitions}

    @property
    def forgotten(self) -> list[int]:
        return [number for t in self.request.forgotten_topics_data for number in t.partitions]


Answer = Exception | list[f.PartitionData] | Callable[[], Awaitable[Any]]


class Scripted(HandlerFixture):
    """Broker 1 follows broker 2, whose answers to Fetch are `answers`, one after the other."""

    def __init__(self, *answers: Answer, level: int = 30, **log: Any) -> None:
        super().__init__()
        self.answers = list(answers)
        self.lies: list[Any] = []
        """What is answered to ListOffsets: (error, offset), or an exception."""
        self.sent: list[Sent] = []
        self.asked: list[Sent] = []
        """ListOffsets."""
        self.hung_up = 0
        self.failed: list[OSError] = []
        self.broker_epoch = 70
        self.over = False
        self.throttled: set[int] = set()
        self.counted: list[int] = []
        world = World(
            self.env,  # type: ignore[arg-type]
            1,
            30.0,
            lambda: self.broker_epoch,
            lambda: level,
            lambda broker: None,
            lambda error, log: self.failed.append(error),
            Limits(),
            lambda replica: replica.partition in self.throttled,
            self.counted.append,
            lambda: self.over,
        )
        self.fetcher = Fetcher(world, 2, 0)
        self.fetcher._line = self  # type: ignore[assignment]
        self.hosted.host("t", partitions=4, leader=2, isr=(2,), replicas=(1, 2), settings=LogConfig(**log))

    def replica(self, number: int = 0) -> Replica:
        return self.hosted.replicas["t", number]

    def log(self, number: int = 0) -> Any:
        return self.replica(number).log

    def follow(self, *numbers: int, epoch: int = 3) -> None:
        for number in numbers or (0,):
            self.replica(number).follow_image(1, PartitionRegistration((1, 2), (2,), 2, epoch, 0), 0)
            self.fetcher.follow(self.replica(number), epoch)

    # ------------------------------------------------------------------ the leader

    async def call(self, request: Any, version: int) -> Any:
        """As `LeaderLine.call`. What there is no answer for is answered with nothing new, after its longest wait."""
        if isinstance(request, lo.ListOffsetsRequest):
            return self._lies(request, version)
        self.sent.append(Sent(round(trio.current_time(), 6), version, request))
        await trio.sleep(0.001)
        answer = self.answers.pop(0) if self.answers else None
        if callable(answer):
            answer = await answer()
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await trio.sleep(request.max_wait_ms / 1000)
            answer = [row(number) for number in self.sent[-1].partitions] if request.session_epoch <= 0 else []
        rows = [f.FetchableTopicResponse(topic_id=topic_id_of("t"), partitions=answer)] if answer else []
        return f.FetchResponse(session_id=SESSION, responses=rows)

    def _lies(self, request: lo.ListOffsetsRequest, version: int) -> Any:
        self.asked.append(Sent(round(trio.current_time(), 6), version, request))
        answer = self.lies.pop(0)
        if isinstance(answer, Exception):
            raise answer
        error, offset = answer
        told = lo.ListOffsetsPartitionResponse(0, error_code=error, offset=offset)
        return lo.ListOffsetsResponse(topics=[lo.ListOffsetsTopicResponse("t", [told])])

    def close(self) -> None:
        self.hung_up += 1

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        """A story beside the fetcher."""

        async def whole() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.fetcher.run)
                await story()
                nursery.cancel_scope.cancel()

        run_virtual(whole)
