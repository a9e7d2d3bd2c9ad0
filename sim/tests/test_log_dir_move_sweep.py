"""Move of a partition between log directories under load, which ends at each call to the disk in turn.

The process is killed there, or loses its power, or the call fails. After the next start acknowledged records exist, the
partition is in one directory, the move is complete, and the node serves. Every call: ``OTTLA_FAULTS=1``.
"""

from __future__ import annotations

import errno
import os

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.node import AllLogDirsFailed, Node
from ottla.env.memory_disk import ProcessKilled
from ottla.wire.messages import alter_replica_log_dirs, describe_log_dirs, produce
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.record_batch.records import NewRecord, build_batch
from sim.engine.processes import SimProcess
from sim.engine.simulation import Simulation
from sim.tests.test_disk_fault_sweep import flatten_exceptions
from sim.workload.clients import PORT, RetriableError, SimClient, fetch_records

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "log.flush.interval.messages": "1",
    "log.segment.bytes": "1048576",
    "replica.fetch.max.bytes": "250000",
}
DIRS = ("/a", "/b")
VALUE = bytes(200_000)
BEFORE, MEANWHILE = 8, 6
STABLE_S = 8.0
EVERY = 1 if os.environ.get("OTTLA_FAULTS") else 7
MOST_CALLS = 260
ENDS = ("kill", "power", "EIO")


class MoveSweepWriter:
    """Writer with its acknowledged records."""

    def __init__(self, env: Simulation) -> None:
        self.client = SimClient(env, "c")
        self.acknowledged: list[int] = []
        self._next = 0

    async def write(self, count: int) -> None:
        for _ in range(count):
            number, self._next = self._next, self._next + 1
            raw = build_batch([NewRecord(b"%d" % number, VALUE, 1_800_000_000_000)])
            data = produce.TopicProduceData("t", partition_data=[produce.PartitionProduceData(0, raw)])
            answer = await self.client.call(produce.ProduceRequest(None, -1, 5000, [data]), 9)
            if answer.responses[0].partition_responses[0].error_code == 0:
                self.acknowledged.append(number)

    async def create(self) -> None:
        answer = await self.client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 5000))
        assert answer.topics[0].error_code == 0

    async def places(self) -> list[tuple[str, bool]]:
        answer = await self.client.call(describe_log_dirs.DescribeLogDirsRequest(None), 4)
        rows = [(row.log_dir, t, x) for row in answer.results for t in row.topics for x in t.partitions]
        return [(path, x.is_future_key) for path, t, x in rows if t.name == "t"]

    async def move(self) -> None:
        ((here, _),) = await self.places()
        there = DIRS[1 - DIRS.index(here)]
        row = alter_replica_log_dirs.AlterReplicaLogDir(
            there, [alter_replica_log_dirs.AlterReplicaLogDirTopic("t", [0])]
        )
        await self.client.call(alter_replica_log_dirs.AlterReplicaLogDirsRequest([row]), 2)


def node(process: SimProcess) -> Node:
    return Node(process.env, NodeConfig(SETTINGS, ",".join(DIRS), 1, "node", PORT))


class MoveSweepRun:
    """Run that ends at a disk call; ``hit`` is True if the call was reached."""

    def __init__(self, call: int, end: str) -> None:
        self._call, self._end = call, end
        self.hit = ""
        self.problems: list[str] = []

    async def run(self, env: Simulation) -> None:
        host, writer, process = env.host("node"), MoveSweepWriter(env), env.process()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._use, env, writer, process, nursery.cancel_scope)
                await node(process).run()
        except BaseException as error:  # noqa: BLE001,RUF100 - only these are allowed
            if not all(isinstance(x, ProcessKilled | AllLogDirsFailed) for x in flatten_exceptions(error)):
                self.problems.append(f"ended by {flatten_exceptions(error)!r}")
        process.kill()
        writer.client.close_connections()
        if self._end == "power":
            host.lose_power()
            host.power_up()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node(env.process()).run)
            await trio.sleep(STABLE_S)
            await self._look(env, writer)
            nursery.cancel_scope.cancel()

    async def _use(
        self, env: Simulation, writer: MoveSweepWriter, process: SimProcess, scope: trio.CancelScope
    ) -> None:
        try:
            await writer.create()
            await writer.write(BEFORE)
            self._arm(env, process)
            await writer.move()
            await writer.write(MEANWHILE)
            await trio.sleep(STABLE_S)
            await writer.write(1)
        except RetriableError as error:
            if not self.hit:
                self.problems.append(f"nothing was wrong yet, and: {error}")
        scope.cancel()

    def _arm(self, env: Simulation, process: SimProcess) -> None:
        disk, session = env.host("node").disk, process.session
        at = disk.calls + self._call

        def fault(call: str, path: str) -> OSError | None:
            if self.hit or disk.calls < at:
                return None
            self.hit = f"{call} {path}"
            if self._end == "EIO":
                return OSError(errno.EIO, "injected", path)
            process.kill()
            return None

        session.fault = fault

    async def _look(self, env: Simulation, writer: MoveSweepWriter) -> None:
        """Verify the node after the next start."""
        try:
            places = await writer.places()
            if [is_future for _, is_future in places] != [False]:
                self.problems.append(f"it lies in {places}")
            left = [path for path in env.host("node").disk.dirs if path.endswith("-future")]
            if left:
                self.problems.append(f"{left} are left")
            await writer.write(1)
            reader, found, at = SimClient(env, "reader"), [], 0
            while records := await fetch_records(reader, 0, at, 50):
                found += [int(x.key or b"-1") for x in records]
                at = records[-1].offset + 1
            self.problems += [f"lost {x}" for x in writer.acknowledged if x not in found]
            if found != sorted(set(found)) or not writer.acknowledged or writer.acknowledged[-1] < found[-1]:
                self.problems.append(f"{found} are there, {writer.acknowledged} were acknowledged")
        except RetriableError as error:
            self.problems.append(f"it does not serve: {error}")


def play(call: int, end: str) -> MoveSweepRun:
    env, sweep = Simulation(call), MoveSweepRun(call, end)
    env.run(lambda: sweep.run(env))
    return sweep


@pytest.mark.parametrize("end", ENDS)
def test_log_dir_move_ended_at_any_call_loses_no_record_and_completes(end: str) -> None:
    reached = 0
    for call in range(ENDS.index(end), MOST_CALLS, EVERY):
        sweep = play(call, end)
        assert not sweep.problems, f"{end} at call {call}, {sweep.hit}: {sweep.problems}"
        if not sweep.hit:
            break
        reached += 1
    assert reached >= 100 // EVERY
