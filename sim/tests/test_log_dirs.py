"""Several log directories over several starts of a node: replaced, missing, copied, foreign ones."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.node import Node, StartupRejected
from ottla.wire.messages import delete_topics, metadata
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_batch import records
from sim.engine.processes import SimProcess
from sim.engine.simulation import Simulation
from sim.workload.clients import PORT, SimClient, fetch_records

PARTITIONS = 4


class LogDirFixture:
    """Disk with a node that starts on it again and again."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.disk = self.simulation.host("node").disk
        self.client = SimClient(self.simulation, "c")

    def node(self, process: SimProcess, dirs: str, **values: str) -> Node:
        settings = {"offsets.topic.num.partitions": "1", **{k.replace("_", "."): v for k, v in values.items()}}
        return Node(process.env, NodeConfig(settings, dirs, 1, "node", PORT))

    async def run_node(
        self,
        work: Callable[[Node], Awaitable[None]],
        dirs: str = "/a,/b",
        broken: str | None = None,
        sound: int = 0,
        **values: str,
    ) -> None:
        """Run a node until the work is done, then kill it; ``broken`` gives EIO after so many sound calls."""
        process = self.simulation.process()
        left = [sound]

        def fault(_: str, path: str) -> OSError | None:
            if broken is None or not path.startswith(broken):
                return None
            left[0] -= 1
            return None if left[0] >= 0 else OSError(errno.EIO, "broken", path)

        process.session.fault = fault
        node = self.node(process, dirs, **values)
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

    async def create(self, topic: str = "t") -> None:
        answer = await self.client.call(CreateTopicsRequest([CreatableTopic(topic, PARTITIONS, 1)], 5000))
        assert answer.topics[0].error_code == 0

    async def produce(self, partition: int, value: bytes = b"v", topic: str = "t") -> int:
        raw = records.build_batch([records.NewRecord(b"k", value, 1_800_000_000_000)])
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, raw)])
        answer = await self.client.call(ProduceRequest(None, -1, 5000, [data]), 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def leaders(self, topic: str = "t") -> list[int]:
        answer = await self.client.call(
            metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)], False), 12
        )
        return [x.leader_id for x in sorted(answer.topics[0].partitions, key=lambda x: x.partition_index)]

    async def create_filled_topic(self, _: Node) -> None:
        """Create a topic over both directories with a record in each partition: the even ones are in /a."""
        await self.create()
        assert [await self.produce(n) for n in range(PARTITIONS)] == [0] * PARTITIONS
        assert {path.split("/")[1] for path in self.disk.files if "/t-1/" in path} == {"b"}


def play(work: Callable[[LogDirFixture], Awaitable[None]]) -> None:
    stage = LogDirFixture()
    stage.simulation.run(partial(work, stage))


def refused(error: BaseException, kind: type[BaseException]) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, kind), error
    return str(error)


def test_log_dir_broken_at_start_returns_later_with_its_records() -> None:
    async def work(stage: LogDirFixture) -> None:
        async def without(node: Node) -> None:
            assert await stage.leaders() == [1, -1, 1, -1]
            assert [await stage.produce(n) for n in range(PARTITIONS)] == [0, 56, 0, 56]
            assert list(node.log_dirs.offline) == ["/b"]
            await stage.create("new")
            assert [await stage.produce(n, topic="new") for n in range(PARTITIONS)] == [0] * PARTITIONS

        async def with_it(_: Node) -> None:
            assert await stage.leaders() == [1, 1, 1, 1]
            assert [len(await fetch_records(stage.client, n, 0, 10)) for n in range(PARTITIONS)] == [2, 1, 2, 1]

        await stage.run_node(stage.create_filled_topic)
        await stage.run_node(without, broken="/b")
        await stage.run_node(with_it)

    play(work)


def test_log_dir_on_replaced_disk_keeps_its_partitions_offline() -> None:
    async def work(stage: LogDirFixture) -> None:
        async def after(node: Node) -> None:
            assert await stage.leaders() == [1, -1, 1, -1]
            assert await stage.produce(1) == 56
            assert not node.log_dirs.offline
            await stage.create("new")
            assert len({d.path for d in node.log_dirs.online if any(t == "new" for t, _ in d.logs)}) == 2

        await stage.run_node(stage.create_filled_topic)
        stage.disk.session().rmtree("/b")
        await stage.run_node(after)

    play(work)


def test_topic_deleted_while_log_dir_offline_becomes_stray_for_new_topic() -> None:
    async def work(stage: LogDirFixture) -> None:
        async def again(_: Node) -> None:
            await stage.client.call(delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
            await stage.create()
            assert await stage.produce(1, b"new") == 0

        async def later(_: Node) -> None:
            (record,) = await fetch_records(stage.client, 1, 0, 10)
            assert record.value == b"new"
            assert [d for d in stage.disk.session().listdir("/b") if d.endswith("-stray")]

        await stage.run_node(stage.create_filled_topic)
        await stage.run_node(again, broken="/b")
        await stage.run_node(later)

    play(work)


def test_partition_in_two_log_dirs_uses_the_one_assigned_by_controller() -> None:
    async def work(stage: LogDirFixture) -> None:
        async def after(node: Node) -> None:
            assert {d.path for d in node.log_dirs.online if ("t", 0) in d.logs} == {"/a"}
            assert len(await fetch_records(stage.client, 0, 0, 10)) == 1
            assert [name for name in stage.disk.session().listdir("/b") if name.startswith("t-0.")]

        await stage.run_node(stage.create_filled_topic)
        disk = stage.disk.session()
        disk.makedirs("/b/t-0")
        for path in [x for x in stage.disk.files if x.startswith("/a/t-0/")]:
            disk.open(path.replace("/a/", "/b/"), create=True).pwrite(bytes(stage.disk.files[path].data), 0)
        await stage.run_node(after)

    play(work)


def test_foreign_copied_or_duplicate_log_dirs_are_rejected_at_start() -> None:
    async def work(stage: LogDirFixture) -> None:
        async def nothing(_: Node) -> None: ...

        async def expect_problem(dirs: str, text: str) -> None:
            with pytest.raises(BaseException) as caught:
                await stage.run_node(nothing, dirs)
            assert text in refused(caught.value, StartupRejected)

        await stage.run_node(nothing, "/a,/b")
        await stage.run_node(nothing, "/other")
        await expect_problem("/a,/other", "/other belongs to cluster")
        await expect_problem("/new,/b", "/new has no metadata log, but /b belongs to a node")
        disk = stage.disk.session()
        disk.makedirs("/copy")
        raw = bytes(stage.disk.files["/b/meta.properties"].data)
        disk.open("/copy/meta.properties", create=True).pwrite(raw, 0)
        await expect_problem("/a,/b,/copy", "/copy is a copy of /b")
        with pytest.raises(ConfigException, match="duplicate directory"):
            stage.node(stage.simulation.process(), "/a,/a/")

    play(work)


def test_metadata_log_dir_setting_places_metadata_log_there() -> None:
    async def work(stage: LogDirFixture) -> None:
        async def first(node: Node) -> None:
            await stage.create()
            assert await stage.produce(0) == 0
            assert not any("__cluster_metadata" in x for x in stage.disk.files if x.startswith(("/a", "/b")))
            assert [d.path for d in node.log_dirs.directories] == ["/a", "/b"]

        async def second(_: Node) -> None:
            assert len(await fetch_records(stage.client, 0, 0, 10)) == 1

        await stage.run_node(first, metadata_log_dir="/meta")
        await stage.run_node(second, metadata_log_dir="/meta")

    play(work)


def test_metadata_log_dir_failure_during_start_ends_node_before_serving() -> None:
    async def work(stage: LogDirFixture) -> None:
        async def never(_: Node) -> None:
            raise AssertionError("it served")

        await stage.run_node(stage.create_filled_topic)
        with pytest.raises(BaseException) as caught:
            await stage.run_node(never, broken="/a/t-0/00000000000000000000.log", sound=2)
        assert "broken: '/a/t-0/00000000000000000000.log" in refused(caught.value, OSError)

    play(work)


def test_log_dir_failure_during_start_leaves_its_partitions_without_leader() -> None:
    async def work(stage: LogDirFixture) -> None:
        async def without(node: Node) -> None:
            assert list(node.log_dirs.offline) == ["/b"]
            await trio.sleep(1)
            assert await stage.leaders() == [1, -1, 1, -1]
            assert [await stage.produce(n) for n in range(PARTITIONS)] == [0, 56, 0, 56]

        await stage.run_node(stage.create_filled_topic)
        await stage.run_node(without, broken="/b/t-1/00000000000000000000.log", sound=2)

    play(work)
