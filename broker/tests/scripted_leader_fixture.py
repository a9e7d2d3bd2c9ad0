"""Fetcher with real logs, and a leader with scripted responses, otherwise empty ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import trio

from ottla.broker.replication.fetcher.fetch_state import ReplicaFetchLimits
from ottla.broker.replication.fetcher.leader_endpoint import FetcherDependencies
from ottla.broker.replication.fetcher.replica_fetcher import ReplicaFetcher
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.tests.handler_fixture import HandlerFixture, run_virtual, topic_id_of
from ottla.controller.metadata.image import PartitionRegistration
from ottla.log.log_config import LogConfig
from ottla.wire.messages import fetch, list_offsets
from ottla.wire.record_batch import records

SESSION = 4711


def leader_batch(first: int, count: int = 1, epoch: int = 3, size_bytes: int = 1) -> bytes:
    """Return a batch of a leader."""
    batch = records.build_batch(
        [records.NewRecord(None, bytes(size_bytes), 0) for _ in range(count)], base_offset=first
    )
    return bytes(batch[:12]) + epoch.to_bytes(4, "big") + bytes(batch[16:])


def partition_data(
    number: int = 0, raw: bytes | None = b"", high: int = 0, start: int = 0, **more: Any
) -> fetch.PartitionData:
    """Return the leader's response for a partition of "t"."""
    return fetch.PartitionData(number, high_watermark=high, log_start_offset=start, records=raw, **more)


class SentRequest(NamedTuple):
    """Request with the time it was sent."""

    at_s: float
    version: int
    request: Any

    @property
    def partitions(self) -> dict[int, fetch.FetchPartition]:
        return {p.partition: p for t in self.request.topics for p in t.partitions}

    @property
    def forgotten(self) -> list[int]:
        return [number for t in self.request.forgotten_topics_data for number in t.partitions]


ScriptedResponse = Exception | list[fetch.PartitionData] | Callable[[], Awaitable[Any]]


class ScriptedLeaderFetcher(HandlerFixture):
    """Broker 1 follows broker 2; its responses to Fetch are `responses`, in order."""

    def __init__(self, *answers: ScriptedResponse, level: int = 30, **log: Any) -> None:
        super().__init__()
        self.responses = list(answers)
        self.list_offsets_responses: list[Any] = []
        """What is answered to ListOffsets: (error, offset), or an exception."""
        self.sent: list[SentRequest] = []
        self.list_offsets_requests: list[SentRequest] = []
        """ListOffsets."""
        self.close_count = 0
        self.failed: list[OSError] = []
        self.broker_epoch = 70
        self.is_quota_exceeded = False
        self.throttled_partitions: set[int] = set()
        self.throttled_bytes: list[int] = []
        dependencies = FetcherDependencies(
            self.env,  # type: ignore[arg-type]
            1,
            30.0,
            lambda: self.broker_epoch,
            lambda: level,
            lambda broker: None,
            lambda error, log: self.failed.append(error),
            ReplicaFetchLimits(),
            lambda replica: replica.partition in self.throttled_partitions,
            self.throttled_bytes.append,
            lambda: self.is_quota_exceeded,
        )
        self.fetcher = ReplicaFetcher(dependencies, 2, 0)
        self.fetcher._connection = self  # type: ignore[assignment]
        self.hosted.host("t", partitions=4, leader=2, isr=(2,), replicas=(1, 2), settings=LogConfig(**log))

    def replica(self, number: int = 0) -> HostedPartition:
        return self.hosted.replicas["t", number]

    def log(self, number: int = 0) -> Any:
        return self.replica(number).log

    def add_partitions(self, *numbers: int, epoch: int = 3) -> None:
        for number in numbers or (0,):
            self.replica(number).apply_partition_state(1, PartitionRegistration((1, 2), (2,), 2, epoch, 0), 0)
            self.fetcher.add_partition(self.replica(number), epoch)

    # ------------------------------------------------------------------ the leader

    async def call(self, request: Any, version: int) -> Any:
        """Answer as `NodeConnection.call` does.

        Without a scripted response, the result is empty after the maximum wait.
        """
        if isinstance(request, list_offsets.ListOffsetsRequest):
            return self._list_offsets(request, version)
        self.sent.append(SentRequest(round(trio.current_time(), 6), version, request))
        await trio.sleep(0.001)
        answer = self.responses.pop(0) if self.responses else None
        if callable(answer):
            answer = await answer()
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await trio.sleep(request.max_wait_ms / 1000)
            answer = (
                [partition_data(number) for number in self.sent[-1].partitions] if request.session_epoch <= 0 else []
            )
        rows = [fetch.FetchableTopicResponse(topic_id=topic_id_of("t"), partitions=answer)] if answer else []
        return fetch.FetchResponse(session_id=SESSION, responses=rows)

    def _list_offsets(self, request: list_offsets.ListOffsetsRequest, version: int) -> Any:
        self.list_offsets_requests.append(SentRequest(round(trio.current_time(), 6), version, request))
        answer = self.list_offsets_responses.pop(0)
        if isinstance(answer, Exception):
            raise answer
        error, offset = answer
        result = list_offsets.ListOffsetsPartitionResponse(0, error_code=error, offset=offset)
        return list_offsets.ListOffsetsResponse(topics=[list_offsets.ListOffsetsTopicResponse("t", [result])])

    def close(self) -> None:
        self.close_count += 1

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Run a scenario beside the fetcher."""

        async def whole() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.fetcher.run)
                await scenario()
                nursery.cancel_scope.cancel()

        run_virtual(whole)
