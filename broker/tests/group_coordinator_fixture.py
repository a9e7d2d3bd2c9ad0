"""Group coordinator that leads `__consumer_offsets` in virtual time, with the handlers of its APIs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

from ottla.broker.coordinator.timers import Timers
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.dispatch.dispatcher import load_handler
from ottla.broker.groups.committed_offsets import OffsetToCommit
from ottla.broker.groups.coordinator import TOPIC, GroupCoordinator
from ottla.broker.groups.offset_commit import CommitOffsets
from ottla.broker.tests.handler_fixture import HandlerFixture, run_virtual, start, topic_id_of
from ottla.wire.api_keys import ApiKey

UNKNOWN_ID = b"\x09" * 16


class GroupCoordinatorNode:
    """Group coordinator that leads all of `__consumer_offsets`, and its handlers."""

    def __init__(self, *, followed: bool = False, led: bool = True, partitions: int = 1, **settings: str) -> None:
        self.fixture = HandlerFixture(group_initial_rebalance_delay_ms="0", offset_metadata_max_bytes="5", **settings)
        isr = (1, 2) if followed else (1,)
        self.replica = self.fixture.hosted.host(TOPIC, partitions=partitions, isr=isr, replicas=isr)
        self.fixture.hosted.host("t", partitions=3)
        env: Any = self.fixture.env
        self.timers = Timers(env)
        self.failures: list[Any] = []
        self.groups = GroupCoordinator(
            env,
            self.fixture.config,
            self.timers,
            lambda *expected: self.failures.append(expected),
            lambda: self.fixture.hosted.image,
        )
        self.fixture.services.groups = self.groups
        if led:
            for number in range(partitions):
                self.groups.on_election(self.fixture.hosted.replicas[TOPIC, number])

    def ask(self, key: ApiKey, version: int, request: Any, each_ms: float = 0) -> Any:
        """Return the response, or the awaitable of it; each step takes ``each_ms``."""
        context = self.fixture.context(key, version)
        return start(
            load_handler(BROKER_APIS[key].endpoint(at_controller=False).handler_module)(context, request), each_ms
        )

    def commit(self, group: str = "g", offset: int = 5, partition: int = 0, topic: str = "t") -> None:
        new = [OffsetToCommit(topic, topic_id_of(topic), partition, offset, 3, "meta")]
        self.groups.submit(group, lambda own: CommitOffsets(own, group, "", None, -1, -1, new, 9))

    def commit_log(self) -> None:
        self.replica.log.set_high_watermark(self.replica.log.log_end_offset)
        self.groups.on_high_watermark_updated(self.replica)


def run(node: GroupCoordinatorNode, scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.groups.run)
            nursery.start_soon(node.timers.run)
            await trio.testing.wait_all_tasks_blocked()
            await scenario()
            nursery.cancel_scope.cancel()

    run_virtual(main)


def codes(answer: Any) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.topics]
