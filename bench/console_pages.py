"""Times of console pages and of a scrape with 1,000 topics, 10,000 partitions and 1,000 groups; delay of the live tail.

``python -m bench.console_pages`` prints the median and the slowest of some requests for each page, the time, the
number of series and the size of ``/metrics``, and the time from a Produce request to the record in an open list of
records.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import NamedTuple

from bench.console import ConsoleBenchmarkNode
from compat_tests.support.raw_client import RawClient
from ottla.tools.blocking_client import BlockingClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, find_coordinator, offset_commit

TOPICS, PARTITIONS, GROUPS = 1000, 10, 1000
TOPICS_PER_REQUEST = 50
PAGES = ("/", "/topics", "/topic?name=t0", "/records?name=t0", "/groups", "/group?id=g0", "/connections", "/cluster")
PAGE_LIMIT_S, SCRAPE_LIMIT_S, TAIL_LIMIT_S = 1.0, 1.0, 0.2


class MeasuredTimes(NamedTuple):
    """Times in s of one kind of request, and the limit of their median."""

    name: str
    times_s: list[float]
    limit_s: float

    @property
    def is_slow(self) -> bool:
        """True if the median is above the limit."""
        return statistics.median(self.times_s) > self.limit_s

    def __str__(self) -> str:
        median, worst = statistics.median(self.times_s) * 1000, max(self.times_s) * 1000
        return f"{self.name:20} median {median:6.0f} ms, worst {worst:6.0f} ms, limit {self.limit_s * 1000:.0f} ms"


def fill(node: ConsoleBenchmarkNode, topics: int, groups: int) -> None:
    """Create topics, and for each group committed offsets in all partitions of one topic."""
    client = RawClient(node.port, 300)
    for first in range(0, topics, TOPICS_PER_REQUEST):
        numbers = range(first, min(first + TOPICS_PER_REQUEST, topics))
        rows = [create_topics.CreatableTopic(f"t{number}", PARTITIONS, 1) for number in numbers]
        response = client.call(ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest(rows, 300_000))
        assert {row.error_code for row in response.topics} == {0}
    while client.call(ApiKey.FIND_COORDINATOR, 3, find_coordinator.FindCoordinatorRequest("g0")).error_code:
        time.sleep(0.1)
    for number in range(groups):
        partitions = [offset_commit.OffsetCommitRequestPartition(partition, 0) for partition in range(PARTITIONS)]
        request = offset_commit.OffsetCommitRequest(
            f"g{number}", topics=[offset_commit.OffsetCommitRequestTopic(f"t{number % topics}", partitions=partitions)]
        )
        while client.call(ApiKey.OFFSET_COMMIT, 8, request).topics[0].partitions[0].error_code:
            time.sleep(0.1)
    client.close()


def get(port: int, path: str) -> tuple[float, bytes]:
    """Send a GET request; return the time in s until its response is complete, and the body.

    Raises:
        AssertionError: the status is not 200.
    """
    began = time.perf_counter()
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    took_s = time.perf_counter() - began
    connection.close()
    assert response.status == 200, (path, response.status, body[:500])
    return took_s, body


def measure_tail(node: ConsoleBenchmarkNode, rounds: int) -> list[float]:
    """Produce ``rounds`` records while the list of records is open; return the time in s until each is in an update."""
    client = BlockingClient(node.bootstrap)
    connection = HTTPConnection("127.0.0.1", node.console_port, timeout=300)
    connection.request("GET", "/live/records?name=t0")
    response = connection.getresponse()
    _next_event(response)
    times = []
    for number in range(rounds):
        time.sleep(1.0)  # a quiet list
        value = f"record {number} of the tail".encode()
        began = time.perf_counter()
        client.produce("t0", value)
        while value not in _next_event(response):
            pass
        times.append(time.perf_counter() - began)
    connection.close()
    return times


def _next_event(response: HTTPResponse) -> bytes:
    while (line := response.readline()) != b"event: live\n":
        assert line, "the stream has ended"
    return response.readline()


def main() -> int:
    """Fill a node, measure pages, scrape and live tail, print the times; return 1 if a median is above its limit."""
    parser = argparse.ArgumentParser("bench.console_pages", description=__doc__)
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as where:
        node = ConsoleBenchmarkNode(Path(where) / "data", has_console=True)
        with node:
            fill(node, options.topics, options.groups)
            for path in PAGES:
                times = [get(node.console_port, path)[0] for _ in range(options.rounds)]
                found.append(MeasuredTimes(path, times, PAGE_LIMIT_S))
            scrapes = [get(node.metrics_port, "/metrics") for _ in range(options.rounds)]
            found.append(MeasuredTimes("/metrics", [took_s for took_s, _ in scrapes], SCRAPE_LIMIT_S))
            series = sum(not line.startswith(b"#") for line in scrapes[-1][1].splitlines())
            found.append(MeasuredTimes("live tail", measure_tail(node, options.rounds), TAIL_LIMIT_S))
    size_kb = len(scrapes[-1][1]) // 1000
    print(f"{options.topics} topics of {PARTITIONS} partitions, {options.groups} groups, {series} series, {size_kb} kB")
    print("\n".join(map(str, found)))
    return int(any(each.is_slow for each in found))


if __name__ == "__main__":
    sys.exit(main())
