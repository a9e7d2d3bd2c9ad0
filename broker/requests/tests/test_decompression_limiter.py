"""Limit of concurrent large decompressions; small ones and cancelled ones do not wait or block."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any

import trio

from ottla.broker.config.limits import MAX_CONCURRENT_DECOMPRESSIONS
from ottla.broker.handlers.offsets import list_offsets
from ottla.broker.handlers.produce import produce
from ottla.broker.handlers.produce.tests.test_produce import NEWEST, request, row_of
from ottla.broker.requests.decompression_limiter import DecompressionLimiter
from ottla.broker.tests.handler_fixture import HandlerFixture, resolve, run_virtual
from ottla.jobs.time_slice import TimeSlice
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin
from ottla.log.tests.log_fixtures import NOW
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.record_batch import records
from ottla.wire.record_batch.compression import CompressionType


class DecompressingClients:
    """Clients that decompress, with the maximum number of concurrent ones."""

    def __init__(self) -> None:
        self.keeping = self.most = 0
        self.done: list[str] = []

    def work(self, name: str, *, much: bool) -> Generator[bool | None, None, str]:
        yield False
        yield much
        self.keeping += much
        self.most = max(self.most, self.keeping)
        try:
            for _ in range(9):
                yield much
        finally:
            self.keeping -= much
        self.done.append(name)
        return name


class ExhaustedSliceClock:
    """Clock with which every time slice is used up at once."""

    now_ms = 0

    def monotonic_ms(self) -> float:
        self.now_ms += 100
        return self.now_ms


def test_large_decompressions_are_limited_and_small_ones_do_not_wait() -> None:
    clients, unpackings = DecompressingClients(), DecompressionLimiter()

    async def one(name: str, *, much: bool) -> None:
        work = clients.work(name, much=much)
        assert await TimeSlice(ExhaustedSliceClock()).run(unpackings.as_job(work)) == name  # type: ignore[arg-type]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(lambda n=number: one(f"much {n}", much=True))
            nursery.start_soon(lambda: one("little", much=False))

    run_virtual(main)
    assert clients.most == MAX_CONCURRENT_DECOMPRESSIONS
    assert len(clients.done) == 11
    assert clients.done.index("little") <= MAX_CONCURRENT_DECOMPRESSIONS
    assert unpackings.active_count == 0


def test_cancelled_decompression_releases_its_slot() -> None:
    """Cancelled while it decompresses, and while it waits for a slot."""
    clients, unpackings = DecompressingClients(), DecompressionLimiter()
    known: list[Any] = []
    """Nobody waits until they are collected."""

    async def one(scope: trio.CancelScope) -> None:
        work = clients.work("", much=True)
        known.append(work)
        with scope:
            known.append(unpackings.as_job(work))
            way: Any = TimeSlice(ExhaustedSliceClock()).start(known[-1])  # type: ignore[arg-type]
            await way

    async def main() -> None:
        first, others = ([trio.CancelScope() for _ in range(count)] for count in (MAX_CONCURRENT_DECOMPRESSIONS, 4))
        with trio.move_on_after(60):
            async with trio.open_nursery() as nursery:
                for scope in first:
                    nursery.start_soon(one, scope)
                while clients.keeping < MAX_CONCURRENT_DECOMPRESSIONS:
                    await trio.lowlevel.checkpoint()
                for scope in others:
                    nursery.start_soon(one, scope)
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
                for scope in (*first, *others[:2]):
                    scope.cancel()

    run_virtual(main)
    assert (len(clients.done), clients.keeping, unpackings.active_count) == (2, 0, 0)


def test_cancellation_after_wait_releases_the_slot() -> None:
    """The time slice is used up at once, so the job is paused as soon as it has the slot."""
    clients, unpackings = DecompressingClients(), DecompressionLimiter()

    async def main() -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                job = unpackings.as_job(clients.work("", much=True))
                nursery.start_soon(TimeSlice(ExhaustedSliceClock()).run, job)  # type: ignore[arg-type]
                while not unpackings.active_count:
                    await trio.lowlevel.checkpoint()
                scope.cancel()

    run_virtual(main)
    assert unpackings.active_count == 0


def large(value: bytes) -> bytearray:
    return bytearray(
        records.build_batch(
            [records.NewRecord(b"k", value, NOW), records.NewRecord(b"k", b"v", NOW + 7)], codec=CompressionType.GZIP
        )
    )


def held_up(fixture: HandlerFixture, ask: Any, *, much: Any, little: Any) -> list[Any]:
    """Return the responses to small and large decompressions while the slots are in use for a second."""
    ended: list[tuple[str, float, Any]] = []

    async def one(name: str, call: Any) -> None:
        answer = await resolve(ask(call))
        ended.append((name, trio.current_time(), answer))

    async def main() -> None:
        capacity = fixture.services.decompression_limiter._limiter
        for number in range(MAX_CONCURRENT_DECOMPRESSIONS):
            capacity.acquire_on_behalf_of_nowait(number)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "much", much)
            nursery.start_soon(one, "little", little)
            await trio.sleep(1)
            capacity.release_on_behalf_of(0)

    run_virtual(main)
    assert [name for name, _, _ in ended] == ["little", "much"]
    assert ended[1][1] - ended[0][1] >= 1
    assert fixture.services.decompression_limiter.active_count == MAX_CONCURRENT_DECOMPRESSIONS - 1
    return [answer for _, _, answer in ended]


def test_produce_waits_for_slot_to_decompress_large_batch() -> None:
    fixture = HandlerFixture()
    fixture.hosted.host("c", settings=LogConfig(compact=True))
    fixture.hosted.host("d", settings=LogConfig(compact=True))
    answers = held_up(
        fixture,
        lambda call: produce.handle(fixture.context(ApiKey.PRODUCE, NEWEST), request(call)),
        much=("c", 0, large(bytes(2 << 20))),
        little=("d", 0, large(bytes(200_000))),
    )
    assert [row_of(answer).error_code for answer in answers] == [0, 0]


def test_list_offsets_waits_for_slot_to_decompress_large_batch() -> None:
    fixture = HandlerFixture()
    for name, size in (("c", 2 << 20), ("d", 200_000)):
        fixture.hosted.host(name)
        log = fixture.hosted.replicas[name, 0].log
        log.append_as_leader(large(bytes(size)), 0, NOW, AppendOrigin.RAFT_LEADER)
        log.set_high_watermark(log.log_end_offset)

    def ask(name: str) -> Awaitable[Any] | Any:
        wanted = ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, NOW + 7)])
        return list_offsets.handle(fixture.context(ApiKey.LIST_OFFSETS, 7), ListOffsetsRequest(-1, 0, [wanted]))

    for answer in held_up(fixture, ask, much="c", little="d"):
        assert [x.offset for topic in answer.topics for x in topic.partitions] == [1]
