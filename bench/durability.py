"""Cost of an fsync before each acknowledgement: rate of Kafka's load tool, and round trip of a single record.

Compares a node with ``log.flush.interval.messages=1`` and one that leaves flushes to the operating system.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from bench.produce import run_load_tool
from compat_tests.support.processes import OttlaProcess, java_tool
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import produce
from ottla.wire.record_batch import records

ROUND_TRIPS = 300


def round_trip_ms(node: OttlaProcess) -> float:
    """Produce `ROUND_TRIPS` records one by one with acks=all; return the median time to the acknowledgement in ms."""
    peer = RawClient(node.port)
    took = []
    for number in range(ROUND_TRIPS):
        raw = records.build_batch([records.NewRecord(b"k", b"v%d" % number, time.time_ns() // 10**6)])
        data = produce.TopicProduceData("load", partition_data=[produce.PartitionProduceData(0, raw)])
        began = time.perf_counter()
        answer = peer.call(ApiKey.PRODUCE, 9, produce.ProduceRequest(None, -1, 10_000, [data]))
        took.append((time.perf_counter() - began) * 1000)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return statistics.median(took)


def main() -> None:
    """Measure a node without and one with syncs, and print the rates and round trips."""
    for name, settings in (("page cache", {}), ("synced", {"log_flush_interval_messages": "1"})):
        with tempfile.TemporaryDirectory() as where, OttlaProcess(Path(where) / "data", **settings) as node:
            java_tool("TopicCommand", "--bootstrap-server", node.bootstrap, "--create", "--topic", "load")
            rates = [run_load_tool(node, 500_000, 100) for _ in range(3)]
            best = statistics.median(x.records_a_second for x in rates)
            print(f"{name}: {best:,.0f} records/s under the load tool, one record {round_trip_ms(node):.2f} ms")


if __name__ == "__main__":
    main()
