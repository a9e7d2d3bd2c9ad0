"""Ten thousand partitions created by a stock admin client: response time, availability, and delay of others.

``python -m bench.topic_creation [--topics 20] [--partitions 500]``. A request for each topic, all sent at once: one for
all would be too large for the controller, as in Kafka. Meanwhile another client requests offsets, 2 ms after each
response. The last partition is written to once all are answered, then every partition is requested until all respond.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import list_offsets, produce
from ottla.wire.record_batch import records

CONCURRENT_REQUESTS = 100


def end_offset_errors(peer: RawClient, topic: str, numbers: range) -> list[int]:
    """Return the error codes of ListOffsets for the end offsets of the partitions ``numbers`` of a topic."""
    rows = [list_offsets.ListOffsetsPartition(number, timestamp=-1) for number in numbers]
    answer = peer.call(
        ApiKey.LIST_OFFSETS, 5, list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic(topic, rows)])
    )
    return [x.error_code for x in answer.topics[0].partitions]


def write(peer: RawClient, topic: str, number: int) -> int:
    """Produce one record to partition ``number`` with acks=all; return the error code."""
    raw = records.build_batch([records.NewRecord(None, b"x", time.time_ns() // 10**6)])
    data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(number, raw)])
    answer = peer.call(ApiKey.PRODUCE, 9, produce.ProduceRequest(None, -1, 60_000, [data]))
    return int(answer.responses[0].partition_responses[0].error_code)


class WaitingClient(threading.Thread):
    """Thread with a client that repeats a small request and records the wait for each response in `waits_s`.

    It ends once `over` is True.
    """

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._peer = RawClient(port, timeout_s=300)
        self.waits_s: list[float] = []
        self.over = False

    def run(self) -> None:
        """Send ListOffsets requests for the topic ``before``, 2 ms apart, until `over` is True."""
        while not self.over:
            began = time.perf_counter()
            assert end_offset_errors(self._peer, "before", range(1)) == [0]
            self.waits_s.append(time.perf_counter() - began)
            time.sleep(0.002)

    def waits_text(self) -> str:
        """Return a text with number, 99th percentile and maximum of the waits in ms."""
        waits = sorted(self.waits_s)
        at = waits[int(len(waits) * 0.99)]
        return f"{len(waits)} answers, 99 % within {at * 1000:.0f} ms, the longest after {waits[-1] * 1000:.0f} ms"


def create_topics(admin: AdminClient, topics: list[NewTopic]) -> None:
    """Create topics by one request for each, all sent at once, and wait for the responses; an error is raised."""
    requests = [admin.create_topics([topic], request_timeout=300, operation_timeout=300) for topic in topics]
    for futures in requests:
        for done in futures.values():
            done.result(300)


def main() -> None:
    """Create the topics on a new node, and print the times until the partitions can be used, and the other client's."""
    parser = argparse.ArgumentParser("bench.topic_creation")
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=500)
    options = parser.parse_args()
    names = [f"t{number}" for number in range(options.topics)]
    with tempfile.TemporaryDirectory() as where, OttlaProcess(Path(where) / "data") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "socket.timeout.ms": 300_000, "log_level": 0})
        create_topics(admin, [NewTopic("before", 1, 1)])
        other = WaitingClient(node.port)
        other.start()
        began = time.perf_counter()
        create_topics(admin, [NewTopic(name, options.partitions, 1) for name in names])
        print(f"{options.topics * options.partitions} partitions: answered after {time.perf_counter() - began:.2f} s")
        peer = RawClient(node.port, timeout_s=300)
        started = time.perf_counter()
        assert write(peer, names[-1], options.partitions - 1) == 0
        print(
            f"the last one, asked for at once: written to after {time.perf_counter() - started:.2f} s more", flush=True
        )
        for name in names:
            for first in range(0, options.partitions, CONCURRENT_REQUESTS):
                numbers = range(first, min(first + CONCURRENT_REQUESTS, options.partitions))
                while any(end_offset_errors(peer, name, numbers)):
                    time.sleep(0.1)
        print(f"all of them served after {time.perf_counter() - began:.2f} s")
        other.over = True
        other.join()
        print(f"another client meanwhile: {other.waits_text()}", flush=True)
        node.kill()


if __name__ == "__main__":
    main()
