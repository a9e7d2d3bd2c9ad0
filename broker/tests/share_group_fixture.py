"""Node with share groups in virtual time: real rules, and a persister that answers at once or as scripted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import trio
import trio.testing

from ottla.broker.coordinator.timers import Timers
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.dispatch.dispatcher import RequestContext, load_handler
from ottla.broker.requests.peer import Peer
from ottla.broker.share_partitions.share_partition_manager import SharePartitionManager
from ottla.broker.share_state.share_group_offsets import ShareGroupOffset, SharePartitionKey
from ottla.broker.tests.handler_fixture import HandlerFixture, resolve, run_virtual, start, topic_id_of
from ottla.log.log_validator import AppendOrigin
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import share_fetch
from ottla.wire.record_batch.records import NewRecord, build_batch

T = topic_id_of("t")


class FakePersister:
    """Persister with every share partition initialized at offset 0."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, SharePartitionKey]] = []
        self.refusal: Exception | None = None

    async def _record_call(self, label: str, key: SharePartitionKey) -> None:
        self.calls.append((label, key))
        if self.refusal is not None:
            raise self.refusal

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareGroupOffset:
        await self._record_call("read", key)
        return ShareGroupOffset(0, 0, leader_epoch, 0, 0, ())

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        await self._record_call("initialize", key)

    async def write(self, key: SharePartitionKey, *batches: Any) -> None:
        await self._record_call("write", key)

    async def delete(self, key: SharePartitionKey) -> None:
        await self._record_call("delete", key)

    async def read_summary(self, key: SharePartitionKey) -> tuple[int, int, int]:
        await self._record_call("summary", key)
        return 0, 0, 0

    def close(self) -> None: ...


class ShareGroupNode:
    """Node that leads all partitions of "t"."""

    step_ms = 0.0
    """Duration of each step of a handler."""

    def __init__(self, partitions: int = 1) -> None:
        self.fixture = HandlerFixture()
        self.fixture.hosted.host("t", partitions=partitions)
        self.fixture.hosted.image = replace(self.fixture.hosted.image, features={"share.version": 1})
        hosted: Any = self.fixture.hosted
        hosted.on_resigned = []
        self.timers = Timers(self.fixture.env)  # type: ignore[arg-type]
        self.persister: Any = FakePersister()
        self.peer = Peer("h", ("here", 9092))

    def context(self, key: ApiKey, version: int) -> RequestContext:
        context = self.fixture.context(key, version)
        context.peer = self.peer
        return context

    async def ask(self, key: ApiKey, request: Any) -> Any:
        answer: Any = load_handler(BROKER_APIS[key].endpoint(at_controller=False).handler_module)(
            self.context(key, BROKER_APIS[key].max_version), request
        )
        return await resolve(start(answer, self.step_ms))

    async def fetch(self, epoch: int, *partitions: int, **fields: Any) -> share_fetch.ShareFetchResponse:
        """Send a ShareFetch of member "m" of group "g"."""
        limits: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
        }
        parts = [share_fetch.FetchPartition(number) for number in partitions]
        topics = [share_fetch.FetchTopic(T, parts)] if parts else []
        answer: share_fetch.ShareFetchResponse = await self.ask(
            ApiKey.SHARE_FETCH,
            share_fetch.ShareFetchRequest(
                group_id="g", member_id="m", share_session_epoch=epoch, topics=topics, **limits | fields
            ),
        )
        return answer

    def produce(self, partition: int, records: int = 5) -> None:
        replica = self.fixture.hosted.replicas["t", partition]
        raw = build_batch([NewRecord(b"k", b"v", 0)] * records)
        replica.append(bytearray(raw), 0, AppendOrigin.CLIENT)
        replica.log.set_high_watermark(replica.log.log_end_offset)
        self.fixture.services.purgatory.check_and_complete(("fetch", "t", partition))

    async def rounds_in(self, work: Callable[[], Awaitable[Any]]) -> int:
        """Return the number of event loop iterations during a task."""
        count = 0

        async def rounds() -> None:
            nonlocal count
            while True:
                count += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(rounds)
            await work()
            nursery.cancel_scope.cancel()
        return count

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        fixture = self.fixture

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                fixture.services.share_partition_manager = SharePartitionManager(
                    *(fixture.env, fixture.config, self.timers, fixture.hosted, self.persister, None, None),  # type: ignore[arg-type]
                    *(nursery.start_soon, fixture.services.purgatory.check_and_complete, fixture.services.fail),
                )
                nursery.start_soon(self.timers.run)
                await scenario()
                nursery.cancel_scope.cancel()

        run_virtual(main)
