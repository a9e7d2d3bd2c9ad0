"""Disk failure in a running node: the node ends, and acknowledges no record after an unknown state."""

from __future__ import annotations

import errno

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.node import AllLogDirsFailed, Node
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_batch import records
from sim.engine.simulation import Simulation
from sim.faults.fault_plan import SETTINGS
from sim.workload.clients import PORT, RetriableError, SimClient


def contains(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(contains(x, kind) for x in error.exceptions)
    return isinstance(error, kind)


@pytest.mark.parametrize(
    ("call", "where"), [("fsync", "__cluster_metadata"), ("pwrite", "__cluster_metadata"), ("pwrite", "/t-0/")]
)
def test_disk_failure_of_write_or_sync_stops_node_without_acknowledgement(call: str, where: str) -> None:
    outcome: dict[str, object] = {}

    env = Simulation(1)

    async def main() -> None:
        process = env.process()
        session = process.session
        node = Node(process.env, NodeConfig(SETTINGS, "/data", 1, "node", PORT))

        async def client() -> None:
            one = SimClient(env, "c")
            await one.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 5000))
            session.fault = lambda w, p: OSError(errno.EIO, "injected", p) if w == call and where in p else None
            raw = records.build_batch([records.NewRecord(b"k", b"v", 1)])
            data = TopicProduceData("t", partition_data=[PartitionProduceData(0, raw)])
            try:
                if where == "/t-0/":
                    answer = await one.call(ProduceRequest(None, -1, 5000, [data]), 9)
                    outcome["code"] = answer.responses[0].partition_responses[0].error_code
                else:
                    outcome["code"] = await one.call(CreateTopicsRequest([CreatableTopic("u", 1, 1)], 5000))
            except RetriableError:
                outcome["code"] = "closed"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(client)
            try:
                await node.run()
            except BaseException as error:  # noqa: BLE001,RUF100 - looked into below
                outcome["failed"] = contains(error, AllLogDirsFailed)
            process.kill()

    env.run(main)
    assert outcome["failed"] is True
    assert outcome["code"] in ("closed", 56), "KAFKA_STORAGE_ERROR or no answer at all"
