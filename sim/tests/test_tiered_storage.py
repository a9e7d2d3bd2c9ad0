"""Tiered storage of simulated nodes: copies, local deletions, and deletion with the topic, with a faulty store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.node import Node
from ottla.broker.storage.tiered.chunk_directory import ChunkCacheOptions
from ottla.broker.storage.tiered.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC
from ottla.wire.messages import delete_topics
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_batch import records
from sim.engine.object_store import SimObjectStore, SimStoreFaults
from sim.engine.simulation import Simulation
from sim.workload.clients import PORT, SimClient

SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
}
TOPIC_SETTINGS = {"remote.storage.enable": "true", "internal.segment.bytes": "2000", "local.retention.ms": "1"}
FAULTY = SimStoreFaults(slow=0.05, failing=0.1, lost_response=0.1, denied=0.02, truncated=0.05, unfinished=0.5)


class TieredNodeFixture:
    """Node with a simulated remote store, and a client of the node."""

    def __init__(self, seed: int, faults: SimStoreFaults, cache: ChunkCacheOptions | None = None) -> None:
        self.simulation = Simulation(seed)
        self.cache = cache
        self.store = SimObjectStore(self.simulation, faults)
        self.client = SimClient(self.simulation, "c")

    async def run_node(self, work: Callable[[Node], Awaitable[None]]) -> None:
        """Run a node until the work is done, then kill it."""
        process = self.simulation.process()
        cache = self.cache
        if cache is not None:
            process.env.open_remote_storage = lambda: self.store.cached_store(process, cache)
        else:
            process.env.open_remote_storage = lambda: self.store.segment_store(process)
        node = Node(process.env, NodeConfig(SETTINGS, "/a", 1, "node", PORT))
        try:
            async with trio.open_nursery() as nursery:
                ready = trio.Event()
                nursery.start_soon(node.run, lambda _: ready.set())
                await ready.wait()
                await work(node)
                nursery.cancel_scope.cancel()
        finally:
            process.kill()
            self.client.close_connections()

    async def create(self, topic: str) -> None:
        configs = [CreatableTopicConfig(*pair) for pair in TOPIC_SETTINGS.items()]
        answer = await self.client.call(CreateTopicsRequest([CreatableTopic(topic, 1, 1, configs=configs)], 5000))
        assert answer.topics[0].error_code == 0, answer

    async def produce(self, topic: str, count: int) -> None:
        for number in range(count):
            raw = records.build_batch(
                [records.NewRecord(b"k", bytes(200), self.simulation.host("node").clock.wall_ms())]
            )
            data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, raw)])
            answer = await self.client.call(ProduceRequest(None, -1, 5000, [data]), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0, number

    async def delete(self, topic: str) -> None:
        answer = await self.client.call(delete_topics.DeleteTopicsRequest([], [topic], 5000), 4)
        assert answer.responses[0].error_code == 0, answer

    async def wait_until(self, condition: Callable[[], Any]) -> None:
        while True:
            if condition():
                return
            await trio.sleep(0.5)


def test_segments_are_copied_deleted_locally_and_deleted_with_their_topic() -> None:
    fixture = TieredNodeFixture(1, FAULTY)

    async def first(node: Node) -> None:
        await fixture.create("t")
        await fixture.produce("t", 60)
        assert node.components is not None
        log = next(x for x in node.log_dirs.logs() if x.topic == "t")
        await fixture.wait_until(lambda: log.local_log_start_offset == log.segments.active.base_offset > 0)
        assert log.log_start_offset == 0
        assert log.highest_remote_offset == log.local_log_start_offset - 1

    async def second(node: Node) -> None:
        assert node.components is not None
        manager = node.components.remote_log_manager
        assert manager is not None
        log = next(x for x in node.log_dirs.logs() if x.topic == "t")
        await fixture.wait_until(lambda: manager.cache(log.topic_id, 0))
        cache = manager.cache(log.topic_id, 0)
        assert cache is not None
        covered = 0
        while covered < log.local_log_start_offset:
            segment = cache.segment_for(0, covered)
            assert segment is not None
            covered = segment.end_offset + 1
        await fixture.delete("t")
        await fixture.wait_until(lambda: not fixture.store.objects)
        await fixture.wait_until(lambda: manager.cache(log.topic_id, 0) is None)
        topics = {x.topic for x in node.log_dirs.logs()}
        assert REMOTE_LOG_METADATA_TOPIC in topics

    async def main() -> None:
        await fixture.run_node(first)
        await fixture.run_node(second)

    fixture.simulation.run(main)
