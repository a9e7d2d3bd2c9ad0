"""Failures of each I/O call in a node with two log directories: a clean retry, or only that directory fails.

The script writes to both directories with a sync before each acknowledgement, rolls segments, creates a topic and lets
time pass. After any failure, acknowledged records exist after the next start, and the other directory serves while the
node runs. Every call: ``OTTLA_FAULTS=1 pytest sim/tests/test_disk_fault_sweep.py`` (3 minutes).
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.node import AllLogDirsFailed, Node
from ottla.env.memory_disk import DiskSession, MemoryDisk
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_batch.records import NewRecord, build_batch
from sim.engine.processes import SimProcess
from sim.engine.simulation import Simulation
from sim.workload.clients import PORT, RetriableError, SimClient, fetch_records

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "log.flush.interval.messages": "1",
    "log.segment.bytes": "1048576",
}
PARTITIONS = 4
ROUNDS = 6
VALUE = bytes(400_000)
EVERY = 1 if os.environ.get("OTTLA_FAULTS") else 9
KINDS = {
    "EIO": (errno.EIO, None),
    "ENOSPC": (errno.ENOSPC, ("pwrite", "open", "makedirs", "rename")),
    "EROFS": (errno.EROFS, ("pwrite", "open", "makedirs", "rename", "unlink", "truncate")),
    "EMFILE": (errno.EMFILE, ("open", "listdir", "fsync_dir")),
    "fsync": (errno.EIO, ("fsync", "fsync_dir")),
}
"""A short write is what `MemoryDisk` makes of any failed one: a part of it is there."""


class FaultOutcome(NamedTuple):
    """Result of one run."""

    hit: str
    """Failed call and path; empty if the script ended before."""
    stopped: bool
    calls: int
    problems: list[str]


class WriteScript:
    """Script with its acknowledged records."""

    def __init__(self, env: Simulation) -> None:
        self.env = env
        self.client = SimClient(env, "c")
        self.acknowledged: list[tuple[int, int]] = []
        self.codes: dict[int, int] = {}

    async def produce(self, partition: int, number: int) -> None:
        raw = build_batch([NewRecord(b"%d" % number, VALUE, 1_800_000_000_000)])
        data = TopicProduceData("t", partition_data=[PartitionProduceData(partition, raw)])
        answer = await self.client.call(ProduceRequest(None, -1, 5000, [data]), 9)
        code = answer.responses[0].partition_responses[0].error_code
        self.codes[partition] = code
        if code == 0:
            self.acknowledged.append((partition, number))

    async def run(self) -> None:
        for number in range(ROUNDS):
            for partition in range(PARTITIONS):
                await self.produce(partition, number)
            await trio.sleep(6)
            if number == 2:
                await self.client.call(CreateTopicsRequest([CreatableTopic("u", 2, 1)], 5000))

    async def create(self) -> None:
        answer = await self.client.call(CreateTopicsRequest([CreatableTopic("t", PARTITIONS, 1)], 5000))
        assert answer.topics[0].error_code == 0


def fault_at(disk: MemoryDisk, session: DiskSession, call: int, kind: str, hit: list[str]) -> None:
    """Fail the next call of that kind from a certain one on, once; after a failed sync the next ones succeed."""
    number, calls = KINDS[kind]
    first = disk.calls + call

    def fault(disk_call: str, path: str) -> OSError | None:
        if disk.calls < first or hit or (calls is not None and disk_call not in calls):
            return None
        hit.append(f"{disk_call} {path}")
        return OSError(number, "injected", path)

    session.fault = fault


async def run_with_fault(env: Simulation, call: int, kind: str) -> FaultOutcome:
    disk = env.host("node").disk
    script = WriteScript(env)
    hit: list[str] = []
    problems: list[str] = []
    stopped = False

    def node(process: SimProcess) -> Node:
        return Node(process.env, NodeConfig(SETTINGS, "/a,/b", 1, "node", PORT))

    first = env.process()
    running = node(first)

    async def play(scope: trio.CancelScope) -> None:
        try:
            await script.create()
            fault_at(disk, first.session, call, kind, hit)
            await script.run()
            for number in (ROUNDS, ROUNDS + 1):
                for partition in range(PARTITIONS):
                    await script.produce(partition, number)
            if hit and not running.log_dirs.offline and any(script.codes.values()):
                problems.append(f"nothing is out of service, but {script.codes}")
            if running.log_dirs.offline and list(script.codes.values()).count(0) < PARTITIONS // 2:
                problems.append(f"the other directory does not serve: {script.codes}")
        except RetriableError as error:
            if not hit:
                problems.append(f"no fault yet, and: {error}")
        scope.cancel()

    calls = disk.calls
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(play, nursery.cancel_scope)
            await running.run()
    except BaseException as error:  # noqa: BLE001,RUF100 - only one kind is allowed
        leaves = flatten_exceptions(error)
        if not all(isinstance(x, AllLogDirsFailed) for x in leaves):
            problems.append(f"ended by {leaves!r}")
        stopped = True
    if stopped and not hit:
        problems.append("stopped without a fault")
    calls = disk.calls - calls
    first.kill()
    script.client.close_connections()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node(env.process()).run)
        await trio.sleep(1)
        problems += await find_lost_records(env, script.acknowledged)
        nursery.cancel_scope.cancel()
    return FaultOutcome(hit[0] if hit else "", stopped, calls, problems)


async def find_lost_records(env: Simulation, acknowledged: list[tuple[int, int]]) -> list[str]:
    """Return the acknowledged records that are missing now."""
    found = set()
    client = SimClient(env, "reader")
    for partition in range(PARTITIONS):
        at = 0
        while records := await fetch_records(client, partition, at, 50):
            found |= {(partition, int(x.key or b"-1")) for x in records}
            at = records[-1].offset + 1
    client.close_connections()
    return [f"lost {x}" for x in acknowledged if x not in found]


def flatten_exceptions(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [x for y in error.exceptions for x in flatten_exceptions(y)]
    return [error]


def play(call: int, kind: str) -> FaultOutcome:
    env = Simulation(1)
    outcome: list[FaultOutcome] = []

    async def main() -> None:
        outcome.append(await run_with_fault(env, call, kind))

    env.run(main)
    return outcome[0]


@pytest.fixture
def unlogged() -> Iterator[None]:
    """Keep no log records: their tracebacks hold the simulations of all runs, a gibibyte, until the end of the test."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("unlogged")
@pytest.mark.parametrize("kind", KINDS)
def test_disk_fault_at_any_call_loses_no_record_and_no_other_log_dir(kind: str) -> None:
    call, alone, bad = 1, 0, []
    while True:
        found = play(call, kind)
        bad += [f"call {call} ({found.hit}): {x}" for x in found.problems]
        if not found.hit:
            break
        alone += " /b/" in found.hit and not found.stopped
        if " /b/" in found.hit and found.stopped:
            bad.append(f"call {call} ({found.hit}): the node stopped")
        call += EVERY
    assert not bad, "\n".join(bad[:10])
    assert call > 200
    assert alone > 0
