"""Reads of a simulated node's remote tier through Fetch and ListOffsets, with a faulty store and restarts."""

from __future__ import annotations

import pytest

from ottla.broker.node import Node
from ottla.broker.storage.tiered.chunk_directory import ChunkCacheOptions
from ottla.client.record_decoding import decode_records
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import fetch, list_offsets
from sim.engine.object_store import SimStoreFaults
from sim.tests.test_tiered_storage import FAULTY, TieredNodeFixture

RECORDS = 60
RETRIABLE = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
SLOW = SimStoreFaults(slow=0.3, slow_s=3.0, failing=0.3, truncated=0.1)


async def fetch_all(fixture: TieredNodeFixture) -> int:
    """Read the topic from its start, each record once, through all errors; return the number of failed requests."""
    offset = failures = 0
    while offset < RECORDS:
        part = fetch.FetchPartition(0, -1, offset, partition_max_bytes=1000)
        topics = [fetch.FetchTopic("t", partitions=[part])]
        answer = await fixture.client.call(
            fetch.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics), 12
        )
        (row,) = answer.responses[0].partitions
        assert row.error_code == 0 or row.error_code in RETRIABLE, row.error_code
        found = list(decode_records(bytes(row.records or b""), offset))
        assert [record.offset for record in found] == list(range(offset, offset + len(found)))
        failures += not found
        offset += len(found)
    return failures


async def find_by_time(fixture: TieredNodeFixture, timestamp_ms: int) -> int:
    """Return the offset of a timestamp, repeated until it is answered."""
    while True:
        wanted = [list_offsets.ListOffsetsTopic("t", [list_offsets.ListOffsetsPartition(0, -1, timestamp_ms)])]
        answer = await fixture.client.call(list_offsets.ListOffsetsRequest(topics=wanted, timeout_ms=2000), 11)
        (row,) = answer.topics[0].partitions
        if row.error_code not in (*RETRIABLE, ErrorCode.REQUEST_TIMED_OUT):
            assert row.error_code == 0, row.error_code
            offset: int = row.offset
            return offset


CACHE = ChunkCacheOptions("/chunks", 5000, 700)
"""Cache with space for a third of the records; its chunks cut most batches."""


@pytest.mark.parametrize("cache", [None, CACHE])
@pytest.mark.parametrize(("seed", "faults"), [(1, FAULTY), (2, SLOW), (3, SLOW), (4, SimStoreFaults())])
def test_all_records_are_read_from_a_faulty_store_before_and_after_a_restart(
    seed: int, faults: SimStoreFaults, cache: ChunkCacheOptions | None
) -> None:
    fixture = TieredNodeFixture(seed, FAULTY, cache)
    failures = []

    async def first(node: Node) -> None:
        await fixture.create("t")
        await fixture.produce("t", RECORDS)
        log = next(x for x in node.log_dirs.logs() if x.topic == "t")
        await fixture.wait_until(lambda: log.local_log_start_offset == log.segments.active.base_offset > 0)
        await second(node)

    async def second(node: Node) -> None:
        fixture.store.faults = faults
        failures.append(await fetch_all(fixture))
        assert await find_by_time(fixture, 0) == 0
        fixture.store.faults = FAULTY

    async def main() -> None:
        await fixture.run_node(first)
        await fixture.run_node(second)

    fixture.simulation.run(main)
    assert any(failures) == (faults is SLOW) or faults is FAULTY
